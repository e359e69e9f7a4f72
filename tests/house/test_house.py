"""The parts of the house import each other in one direction: what stands in ORDER, and nothing against it but KNOWN."""

from __future__ import annotations

import ast
import functools
import os
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"

ORDER = """
mitl.errors mitl.records mitl.resources mitl.addresses mitl.progress mitl.interrupts mitl.logs
mitl.core mitl.protocol
mitl.settings mitl.datasets mitl.judgements
mitl.audits
mitl.datasets.scenes
mitl.analysis
mitl.analysis.report.inputs
mitl.analysis.report.figure mitl.analysis.report.views
mitl.analysis.report.plots
mitl.analysis.report
annotators
mitl.retrieval mitl.proposals
mitl.fusion
mitl.selection
mitl.metrics mitl.hits
mitl.metrics.__init__
mitl.positives
mitl.positives.exports
mitl.db
mitl.db.models mitl.db.dumps
mitl.db.store
mitl.crowd_server.protocol mitl.crowd_server.health
mitl.crowd_server.store
mitl.crowd_server.pages
mitl.crowd_server.api mitl.crowd_server.work
mitl.crowd_server.middleware
mitl.crowd_server.operator
mitl.crowd_server
mitl.crowd
mitl.campaign.kinds.protocol
mitl.campaign
mitl.campaign.kinds.pairs mitl.campaign.kinds.rankings mitl.campaign.kinds.similarity
mitl.campaign.kinds.texts
mitl.campaign.kinds
mitl.campaign.standing
mitl.campaign.jobs
mitl.campaign.publish
mitl.stages.setup mitl.stages.proposing
mitl.stages.evaluating
mitl.__init__
mitl.stages.harvesting
mitl.stages.hits mitl.stages.past_work mitl.stages.reviewing
mitl.stages.fusing mitl.stages.collecting
mitl.stages.auditing
mitl.stages.labelling
mitl.stages.analysing mitl.stages.paying
mitl.stages.planning
mitl.stages.training
mitl.stages.releasing
mitl.stages.rounds
mitl.stages.reporting
mitl.stages.operating mitl.stages
mitl.desk
mitl.explorer
mitl.cli
mitl.cli.reference
mitl.__main__
"""
"""From the ground up: a part imports from itself and from the lines above it.

A part is a folder without those below it that are named too, or a module that is named by itself; ``__init__`` is the
names that a folder gives to users. ``annotators`` is one part. docs/architecture.md shows the same lines.
"""

KNOWN: frozenset[str] = frozenset()
"""Imports against the order that are still there; what is gone is taken out, and nothing is added."""


def _modules() -> dict[str, Path]:
    files = (
        file
        for top in ("mitl", "annotators")
        for file in (ROOT / top).rglob("*.py")
        if "_bundled" not in file.parts
    )
    return {
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
        for file in files
    }


MODULES = _modules()
LINES = [line.split() for line in ORDER.strip().splitlines()]
LEVEL = {part: level for level, parts in enumerate(LINES) for part in parts}


def _part(module: str) -> str:
    """The longest name in ORDER that the module stands under."""
    facade = f"{module}.__init__"
    if facade in LEVEL:
        return facade
    name = module
    while name not in LEVEL and "." in name:
        name = name.rpartition(".")[0]
    return name


@functools.cache
def _nodes(file: Path) -> list[ast.AST]:
    """The imports and classes of a file, at its top or within functions."""
    kinds = (ast.Import, ast.ImportFrom, ast.ClassDef)
    return [node for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, kinds)]


@functools.cache
def _imported(file: Path) -> set[str]:
    """The modules of the house that a file imports, at its top or within functions."""
    names: set[str] = set()
    for node in _nodes(file):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= whole & MODULES.keys() or {node.module}
    return names & MODULES.keys()


def _against(order: dict[str, int]) -> set[str]:
    """Every import that the order does not allow, as ``importer -> imported``."""
    return {
        f"{module} -> {target}"
        for module, file in MODULES.items()
        for target in _imported(file)
        if (home := _part(module)) != (other := _part(target)) and order[other] >= order[home]
    }


def test_every_part_stands_once_in_the_order():
    """A new folder below mitl/ gets its line, and a line whose folder is gone goes too."""
    listed = Counter(part for parts in LINES for part in parts)
    rooms = {".".join(name.split(".")[:2]) for name in MODULES if name.startswith("mitl.")} | {"annotators"}
    folders = {
        name
        for name, file in MODULES.items()
        if file.name == "__init__.py" and name.startswith("mitl.") and any(file.parent.glob("[!_]*.py"))
    }

    assert [part for part, times in listed.items() if times > 1] == []
    assert sorted((rooms | folders) - listed.keys()) == []
    assert [part for part in listed if part.removesuffix(".__init__") not in MODULES] == []


def test_imports_go_one_way():
    """Nothing imports from its own line or from a line below it, but what KNOWN still lists."""
    against = _against(LEVEL)

    assert sorted(against - KNOWN) == [], "turn these around: what both need goes to a line above both"
    assert sorted(KNOWN - against) == [], "these are gone: take them out of KNOWN"


def test_an_import_the_other_way_is_seen():
    """With two lines exchanged, the imports between them are against the order."""
    exchanged = LEVEL | {"mitl.cli": LEVEL["mitl.stages"], "mitl.stages": LEVEL["mitl.cli"]}

    assert {line.split(".")[1] for line in _against(exchanged) - KNOWN} >= {"cli"}


def test_nothing_within_uses_the_names_for_users():
    """What `mitl.metrics` gives to users is not how the house reaches its own modules there."""
    facades = [part.removesuffix(".__init__") for part in LEVEL if part.endswith(".__init__")]
    users = [
        f"{module} -> {target}"
        for module, file in MODULES.items()
        for target in _imported(file)
        if target in facades and module.startswith(target)
    ]

    assert users == []


def test_a_public_class_has_its_name_for_itself():
    """A name that stands in a message or a search leads to one class; a private one is its module's own matter."""
    homes: dict[str, list[str]] = {}
    for path in sorted(MODULES.values()):
        for node in _nodes(path):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_the_architecture_shows_the_order():
    """docs/architecture.md has the lines of ORDER; MITL_REWRITE_GOLDEN=1 puts them there."""
    before, start, rest = PAGE.read_text(encoding="utf-8").partition("```text\n")
    _, end, after = rest.partition("```")
    page = before + start + ORDER.lstrip() + end + after

    if os.environ.get("MITL_REWRITE_GOLDEN"):
        PAGE.write_text(page, encoding="utf-8")
    assert page == PAGE.read_text(encoding="utf-8")


def test_pictures_are_opened_only_as_formats_that_run_nothing():
    """Every `Image.open` names `FORMATS` of mitl.core.pictures; what a test of speed made itself needs none."""
    opened = {
        f"{path.relative_to(ROOT)}: {call[0]}"
        for part in ("mitl", "annotators")
        for path in (ROOT / part).rglob("*.py")
        for call in re.finditer(r"\b(?:Image|Pictures)\.open\(.*", path.read_text("utf-8"))
        if "formats=FORMATS)" not in call[0]
    }

    assert opened == {"mitl/retrieval/estimates.py: Image.open(io.BytesIO(file.getvalue())) as image:"}

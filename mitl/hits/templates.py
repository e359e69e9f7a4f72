"""The wordings of the HIT page: one folder of ``hit_templates`` each, found by name.

A folder holds ``page.html.j2``, ``instructions.html.j2`` and ``hit_type.toml`` (title, description, keywords,
seconds_per_pair, rationale, and ``asks = "rankings"`` where two rankings stand side by side; then the seconds are for
each such comparison). ``_shared`` holds what the wordings have in common, ``_rankings`` what those of rankings have. A
project may have a folder of its own wordings; a wording found there goes before a bundled one of the same name.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mitl import resources
from mitl.errors import TemplateError
from mitl.records import BatchKind

_SHARED = "_shared"
_FILES = ("page.html.j2", "instructions.html.j2", "hit_type.toml")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_TEXT_LIMITS = {"title": 128, "description": 2000, "keywords": 1000}
"""The requester API's own limits, in characters."""


@dataclass(frozen=True, slots=True)
class HitTemplate:
    """One wording of the HIT page, with what its HIT type says to workers who look for work."""

    name: str
    title: str
    description: str
    keywords: str
    seconds_per_pair: int
    rationale: bool
    """Whether the page asks why a pair does not fully match."""
    content_hash: str
    """SHA-256 over the wording's files and the shared ones; two pages of one hash ask the same."""
    asks: str
    """The kind of campaign that it is a wording of."""
    search_path: tuple[Path, ...]
    """Where Jinja looks: the wording's folder, then the folders that hold ``_shared``."""


def template_names(extra_folder: Path | None = None, *, asks: str = BatchKind.PAIRS) -> list[str]:
    """The names of the wordings of this kind, sorted; one whose ``hit_type.toml`` cannot be read counts as of pairs."""
    return sorted(name for name, kind in _kinds(_roots(extra_folder)).items() if kind == asks)


def load_template(
    name: str,
    extra_folder: Path | None = None,
    *,
    asks: str | None = None,
    kind_folder: Path | None = None,
) -> HitTemplate:
    """The wording called ``name``, from the project's own folder of wordings or from the bundled ones.

    Args:
        asks: what it has to ask; None takes any.
        kind_folder: the wordings that the kind of campaign brings itself.

    Raises:
        TemplateError: there is no such wording, it asks something else, a file of it is missing, or its
            ``hit_type.toml`` is not right.
    """
    roots = [*_roots(extra_folder), *([] if kind_folder is None else [kind_folder])]
    kinds = _kinds(roots)
    if name not in kinds or asks not in (None, kinds[name]):
        known = ", ".join(sorted(known for known in kinds if kinds[known] == (asks or BatchKind.PAIRS)))
        other = f" asks for {kinds[name]}" if name in kinds else ""
        what = f"HIT template {name!r}{other}, not {asks}" if other else f"no HIT template called {name!r}"
        raise TemplateError(f"{what}; known: {known}")
    folder = next(root / name for root in roots if (root / name / "hit_type.toml").is_file())
    missing = [file for file in _FILES if not (folder / file).is_file()]
    if missing:
        raise TemplateError(f"HIT template {name!r} lacks {', '.join(missing)} in {folder}")
    shared = [root for root in roots if (root / _SHARED).is_dir()]
    fields = _hit_type(folder / "hit_type.toml", asks)
    # What all wordings have in common, and what those of one kind have.
    parts = (_SHARED, f"_{kinds[name]}")
    common = [root / part for part in parts for root in roots if (root / part).is_dir()]
    return HitTemplate(
        name=name,
        title=str(fields["title"]),
        description=str(fields["description"]),
        keywords=str(fields["keywords"]),
        seconds_per_pair=int(str(fields["seconds_per_pair"])),
        rationale=bool(fields["rationale"]),
        content_hash=_content_hash([folder, *common]),
        asks=kinds[name],
        search_path=(folder, *shared),
    )


def _roots(extra_folder: Path | None) -> list[Path]:
    bundled = resources.folder("hit_templates")
    return [bundled] if extra_folder is None else [extra_folder, bundled]


def _kinds(roots: Sequence[Path]) -> dict[str, str]:
    """Wording → what it asks; of one name, the first folder counts."""
    found: dict[str, str] = {}
    for root in roots:
        for folder in sorted(root.iterdir()) if root.is_dir() else ():
            if _NAME.fullmatch(folder.name) and (folder / "hit_type.toml").is_file():
                found.setdefault(folder.name, _kind(folder / "hit_type.toml"))
    return found


def _kind(path: Path) -> str:
    try:
        return str(tomllib.loads(path.read_text(encoding="utf-8")).get("asks", BatchKind.PAIRS))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return BatchKind.PAIRS  # whoever loads it is told what is wrong with the file


def _hit_type(path: Path, wanted_kind: str | None) -> dict[str, object]:
    try:
        fields: dict[str, object] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TemplateError(f"{path} is not TOML: {error}") from error
    wanted = {*_TEXT_LIMITS, "seconds_per_pair", "rationale"}
    asks = fields.pop("asks", BatchKind.PAIRS.value)
    if asks not in (*BatchKind, wanted_kind):
        raise TemplateError(f"asks in {path} is {asks!r}; known: {', '.join(BatchKind)}")
    if set(fields) != wanted:
        raise TemplateError(f"{path} has the keys {sorted(fields)}, but needs exactly {sorted(wanted)}")
    for key, limit in _TEXT_LIMITS.items():
        text = fields[key]
        if not isinstance(text, str) or not 0 < len(text) <= limit:
            raise TemplateError(f"{key} in {path} must be a text of 1 to {limit} characters")
    seconds = fields["seconds_per_pair"]
    if isinstance(seconds, bool) or not isinstance(seconds, int) or seconds < 1:
        raise TemplateError(f"seconds_per_pair in {path} is {seconds!r}, but must be a whole number from 1")
    if not isinstance(fields["rationale"], bool):
        raise TemplateError(f"rationale in {path} is {fields['rationale']!r}, but must be true or false")
    return fields


def _content_hash(folders: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.name.startswith("."):
                content = path.read_bytes()
                name = f"{folder.name}/{path.relative_to(folder).as_posix()}"
                digest.update(f"{len(name)}:{name}{len(content)}:".encode())
                digest.update(content)
    return digest.hexdigest()

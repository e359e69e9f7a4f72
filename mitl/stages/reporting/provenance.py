"""How a project's data came to be: the commands that make it again, with seeds, hashes and versions."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version

from mitl.analysis.report.inputs import Provenance, RebuildStep
from mitl.campaign.kinds import kind_of
from mitl.core.pricing import format_dollars
from mitl.datasets.scenes.world import WORLD_KINDS
from mitl.db.store.hits import BatchRow
from mitl.db.store.proposals import fingerprints
from mitl.db.store.releases import ReleaseRow
from mitl.judgements.aggregators import Aggregator
from mitl.positives.merging import CXC_POSITIVE, MergeRecipe, MergeRules
from mitl.positives.release_input import ProposalRun, QueryDraw
from mitl.records import BatchKind, Direction, JudgementSource, PairRole, several
from mitl.records.collection import TEXTS
from mitl.records.forms import IMAGES
from mitl.records.similarity import SIMILARITY, Likeness
from mitl.stages.analysing.snapshot import ProjectSnapshot

PACKAGES = ("mitl", "numpy", "torch", "pyarrow", "SQLAlchemy", "matplotlib", "Pillow", "Jinja2")
"""What numbers, pictures and bytes depend on; those that are not installed are left out."""

_SIDE = {Direction.I2T: "image", Direction.T2I: "caption"}


def provenance(project: ProjectSnapshot, runs: Sequence[ProposalRun], *, evaluated: bool) -> Provenance:
    """The way from the data set to the report.

    Args:
        runs: the proposal runs of this data set, oldest first.
    """
    marks = fingerprints(project.runs)
    # Past work from files brings runs without annotators.
    ranked = [run.hash for run in project.runs if run.config.get("annotators")]
    return Provenance(
        steps=(
            _init(project),
            *(
                _propose(project.settings.seed, run, run_hash)
                for run, run_hash in zip(runs, ranked, strict=False)
            ),
            *(
                step
                for batch in project.batches
                for step in (*_choose(project, batch), _publish(project, batch))
            ),
            *_harvest(project),
            *(step for release in project.releases[-1:] for step in _release(release, evaluated)),
            _step(["report", *([f"--{project.environment.value}"] if project.batches else [])], "", ()),
        ),
        seeds=(("project", str(project.settings.seed)),),
        versions=tuple(versions()),
        hashes=tuple(
            (f"annotator {row.name}", marks.get(row.name, row.fingerprint)) for row in project.annotators
        ),
    )


def _init(project: ProjectSnapshot) -> RebuildStep:
    data = project.dataset
    if data.kind == "scenes":
        kind = next(name for name, kind in WORLD_KINDS.items() if kind.form == data.form)
        words = ["--dataset", "scenes", *(["--kind", kind] if data.form != IMAGES else [])]
        words += ["--n-images", str(len(project.images)), "--seed", str(project.settings.seed)]
        note = ""
    else:
        words = ["--dataset", data.kind, "…"]
        note = "with the files it was loaded from; the same content has the same hash"
    return _step(["init", *words], note, (("content of the data set", data.content_sha256),))


def _propose(seed: int, run: ProposalRun, run_hash: str) -> RebuildStep:
    words = [word for name in run.annotators for word in ("--annotator", name)]
    words += ["--top-k", str(run.top_k), "--depth", str(run.depth)]
    listed = []
    draws = {draw.direction: draw for draw in run.draws}
    for direction, side in _SIDE.items():
        draw = draws.get(direction)
        words += _queries(side, draw)
        if draw is not None and draw.queries < draw.items and draw.seed is None:
            listed.append(f"{side} queries")
    note = (
        f"the {' and '.join(listed)} came from lists of ids, or from a draw with another --seed"
        if listed
        else ""
    )
    return _step(["propose", *words, "--seed", str(seed)], note, (("run", run_hash),))


def _queries(side: str, draw: QueryDraw | None) -> list[str]:
    if draw is None:
        return [f"--{side}-queries", "0"]
    if draw.queries >= draw.items:
        return []
    if draw.seed is None:
        return [f"--{side}-query-ids", "FILE"]
    return [f"--{side}-queries", str(draw.queries)]


def _choose(project: ProjectSnapshot, batch: BatchRow) -> Iterator[RebuildStep]:
    """Before the first batch of ratings of a phase, or of texts: the command that chose what it asks."""
    words = _chosen_by(batch)
    first = next(other for other in project.batches if _chosen_by(other) == words)
    if words and first == batch:
        yield _step([*words, "--seed", str(batch.seed), "…"], "the options as then", ())


def _chosen_by(batch: BatchRow) -> list[str]:
    if batch.kind == SIMILARITY:
        phase = "2" if batch.direction == Likeness.SITS else "1"
        return ["propose", "--scheme", "crisscross", "--phase", phase]
    return ["collect", "choose"] if batch.kind == TEXTS else []


def _publish(project: ProjectSnapshot, batch: BatchRow) -> RebuildStep:
    if batch.source is JudgementSource.IMPORT:
        return _step(["harvest", "--from", "FILE"], f"past work, as batch {batch.name}", ())
    if batch.kind != BatchKind.PAIRS:
        kind = kind_of(batch.kind)
        return _step(
            [*kind.command.split()[1:], f"--{project.environment.value}", "--seed", str(batch.seed), "…"],
            f"batch {batch.name}, {several(_n_hits(project, batch), 'HIT')} of {kind.shown}; the options as then",
            (),
        )
    environment, wordings = f"--{project.environment.value}", project.wordings.get(batch.name, ())
    hashes = tuple((f"template {batch.template}", wording) for wording in wordings)
    hits = several(_n_hits(project, batch), "HIT")
    if (row := project.round_of.get(batch.id)) is not None:
        words = ["round", "run", environment]
        if batch.id == min(other for other, of in project.round_of.items() if of is row):
            words += ["--budget", _dollars(row.config["budget_cents"]), "--strategy", row.strategy, "…"]
        return _step(words, f"round {row.number}: batch {batch.name}, {hits}; the options as then", hashes)
    words = [environment, "--direction", batch.direction, "--template", batch.template]
    words += ["--reward", _dollars(batch.reward_cents), "--assignments", str(batch.assignments)]
    roles = project.roles.get(batch.id, Counter[PairRole]())
    if roles[PairRole.OVERLAP] and roles[PairRole.CANDIDATE]:
        words += ["--overlap", f"{roles[PairRole.OVERLAP] / roles[PairRole.CANDIDATE]:.2g}"]
    words += ["--pilot", str(_n_hits(project, batch))] if batch.pilot else []
    return _step(["publish", *words, "--seed", str(batch.seed)], f"batch {batch.name}, {hits}", hashes)


def _dollars(cents: int) -> str:
    """As it is typed."""
    return format_dollars(cents).lstrip("$").replace(",", "")


def _n_hits(project: ProjectSnapshot, batch: BatchRow) -> int:
    return sum(hit.batch_id == batch.id for hit in project.hits)


def _harvest(project: ProjectSnapshot) -> Iterator[RebuildStep]:
    if project.submissions:
        environment = f"--{project.environment.value}"
        note = (
            f"{several(len(project.submissions), 'submission')}; people's answers and what was decided on them cannot "
            "be made again: they are in the database, which mitl db backup copies"
        )
        yield _step(["harvest", environment], note, ())


def _release(release: ReleaseRow, evaluated: bool) -> Iterator[RebuildStep]:
    of = () if release.environment is None else (f"--{release.environment}",)
    flags = (*of, *_flags(MergeRules(**release.rules)), *release.flags)
    yield _step(
        ["build-dataset", "--out", release.name, "--name", release.name, *flags],
        "",
        (("manifest.json", release.manifest_sha256),),
    )
    if evaluated:
        yield _step(["evaluate", "--release", release.name], "", ())


def _flags(rules: MergeRules) -> Iterator[str]:
    if rules.aggregator is not Aggregator.MAJORITY:
        yield from ("--aggregate", rules.aggregator.value)
    if rules.cxc_threshold != CXC_POSITIVE:
        yield from ("--cxc-threshold", f"{rules.cxc_threshold:g}")
    for applies, flag in (
        (rules.recipe is MergeRecipe.PAPER and not rules.official, "--recipe paper"),
        (rules.strict, "--strict"),
        (rules.official, "--official-filters"),
    ):
        if applies:
            yield from flag.split()


def versions() -> Iterator[tuple[str, str]]:
    """The packages that are installed, with their versions."""
    for name in PACKAGES:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue


def _step(words: Iterable[str], note: str, hashes: tuple[tuple[str, str], ...]) -> RebuildStep:
    line = " ".join(word if word == "…" else shlex.quote(word) for word in words)
    return RebuildStep(f"mitl {line}", note, hashes)

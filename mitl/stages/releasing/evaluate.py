"""Evaluating annotators on sets of positives."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mitl.db.session import open_database
from mitl.db.store import items as item_store
from mitl.db.store import proposals as proposal_store
from mitl.errors import UsageError
from mitl.metrics.positives import Positives, locate
from mitl.metrics.retrieval import RetrievalScores, score
from mitl.positives.loading import ReleasePositives, official_positives, read_release
from mitl.progress import Progress, no_progress
from mitl.proposals.candidates import NamedRanking
from mitl.records import Direction, StageResult, Table
from mitl.settings import Settings
from mitl.stages.proposing.computing import Means
from mitl.stages.proposing.ranking import Items, build_annotators, rank_all

OFFICIAL = ("original", "cxc", "eccv")
KS = (1, 5, 10)
PROJECT_ORIGINALS = "original"
SCORES_FILE = "evaluation/scores.json"
"""Where the latest scores lie, within the runs folder."""


@dataclass(frozen=True, slots=True)
class EvaluatedSet:
    """One annotator on one set in one direction."""

    positives: str
    annotator: str
    direction: Direction
    n_queries: int
    scores: RetrievalScores


def evaluate(
    settings: Settings,
    *,
    release: Path | None = None,
    official: Sequence[str] = (),
    annotators: Sequence[str] = (),
    progress: Progress = no_progress,
) -> StageResult:
    """Recall@K, R-Precision and mAP@R of the project's annotators.

    The project's own originals are always among the sets, so that before and after stand side by side. Every set
    is scored on the queries that it lists and that the data set holds; its rankings are made as deep as its
    largest R, and kept.

    Raises:
        UsageError: an official set is unknown.
        ReleaseError: the release cannot be read.
    """
    for name in official:
        if name not in OFFICIAL:
            raise UsageError(f"no official set called {name!r}; known: {', '.join(OFFICIAL)}")
    with open_database(settings.db_url, read_only=True) as session:
        dataset = item_store.dataset(session)
        if official and dataset.kind != "coco":
            raise UsageError(
                f"the official sets are COCO's, but this project holds {dataset.name!r} of kind {dataset.kind!r}; "
                "leave --official out"
            )
        items = Items(
            dataset.id_kind,
            item_store.images(session, dataset.id, settings.project),
            item_store.captions(session, dataset.id),
        )
        run_queries = proposal_store.queries(session)
        names = annotators or [row.name for row in proposal_store.annotators(session)] or settings.annotators
    warnings: list[str] = []
    sets: dict[str, Mapping[Direction, Mapping[str, Sequence[str]]]] = {
        PROJECT_ORIGINALS: _originals(items, run_queries)
    }
    if release is not None:
        sets["release"] = read_release(release).by_query
    for name in official:
        inside = _inside(official_positives(name), items)  # type: ignore[arg-type]
        if any(inside.values()):
            sets[f"official-{name}"] = inside
        else:
            warnings.append(f"the official set {name!r} lists no item of this data set, so it was left out")
    located = {name: _locate(by_query, items) for name, by_query in sets.items()}
    rows, computed = score_sets(settings, names, items, located, progress)
    result = _result(rows, computed, release)
    changed = _remember(settings, _scores(rows))
    if computed or changed:
        return replace(result, warnings=tuple(warnings))
    return replace(
        result,
        status="nothing_to_do",
        warnings=tuple(warnings),
        lines=("nothing to do: these scores are kept already",),
    )


def _remember(settings: Settings, scores: Mapping[str, object]) -> bool:
    """Keep the scores of these sets for the report beside those of others; returns whether anything changed."""
    path = settings.runs / SCORES_FILE
    before = path.read_text(encoding="utf-8") if path.exists() else "{}"
    text = json.dumps({**json.loads(before), **scores}, indent=1, sort_keys=True) + "\n"
    if before == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
    return True


def score_sets(
    settings: Settings,
    names: Sequence[str],
    items: Items,
    located: Mapping[str, Mapping[Direction, Positives]],
    progress: Progress,
) -> tuple[list[EvaluatedSet], int]:
    """Every annotator on every set, and how many rankings had to be computed for it."""
    queries: dict[Direction, list[int]] = {}
    depth: dict[Direction, int] = {}
    for direction in Direction:
        parts = [found[direction] for found in located.values()]
        wanted = set().union(*(part.query_ids.tolist() for part in parts))
        deepest = max([max(KS), *(int(part.counts.max()) for part in parts if len(part))])
        queries[direction] = sorted(wanted)
        depth[direction] = min(deepest, len(items.side(direction, gallery=True)))
    built = build_annotators(settings, names)
    folder = settings.runs / "evaluation" / _key(queries, depth)
    rankings, computed = rank_all(folder, built, items, queries, depth, progress, Means.of(settings))
    rows = []
    for set_name, found in located.items():
        for named in rankings:
            positives = found[named.direction]
            if len(positives):
                rows.append(_score(set_name, named, positives))
    return rows, computed


def _score(set_name: str, named: NamedRanking, positives: Positives) -> EvaluatedSet:
    # A gallery smaller than K or R has no further places: what is missing there is a miss.
    scores = score(named.ranking.query_ids, named.ranking.item_ids, positives, ks=KS, short="zero")
    return EvaluatedSet(set_name, named.annotator, named.direction, len(positives), scores)


def _key(queries: Mapping[Direction, Sequence[int]], depth: Mapping[Direction, int]) -> str:
    import hashlib

    value = {d.value: [list(queries[d]), depth[d]] for d in Direction}
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def _originals(
    items: Items, queries: Mapping[Direction, Sequence[int]]
) -> dict[Direction, dict[str, list[str]]]:
    images = {image.id: image.external_id for image in items.images}
    wanted_images, wanted_captions = (set(queries[direction]) for direction in Direction)
    everything = not wanted_images and not wanted_captions
    found: dict[Direction, dict[str, list[str]]] = {d: defaultdict(list) for d in Direction}
    for caption in items.captions:
        if everything or caption.image_id in wanted_images:
            found[Direction.I2T][images[caption.image_id]].append(caption.external_id)
        if everything or caption.id in wanted_captions:
            found[Direction.T2I][caption.external_id].append(images[caption.image_id])
    return found


def _inside(release: ReleasePositives, items: Items) -> dict[Direction, dict[str, tuple[str, ...]]]:
    """The queries that the data set holds; items that it lacks still count in R, as in the official scores."""
    known = {
        direction: {item.external_id for item in items.side(direction, gallery=False)}
        for direction in Direction
    }
    return {
        direction: {query: found for query, found in by_query.items() if query in known[direction]}
        for direction, by_query in release.by_query.items()
    }


def _locate(
    by_query: Mapping[Direction, Mapping[str, Sequence[str]]], items: Items
) -> dict[Direction, Positives]:
    located = {}
    for direction in Direction:
        index = [
            {item.external_id: item.id for item in items.side(direction, gallery=gallery)}
            for gallery in (False, True)
        ]
        located[direction] = locate(by_query.get(direction, {}), index[0], index[1]).positives
    return located


def _result(rows: Sequence[EvaluatedSet], computed: int, release: Path | None) -> StageResult:
    table = []
    for row in rows:
        percent = tuple(f"{100 * value:.2f}" for value in _values(row).values())
        table.append((row.positives, row.annotator, row.direction.value, row.n_queries, *percent))
    columns = ("positives", "annotator", "direction", "queries", *(f"R@{k}" for k in KS), "R-P", "mAP@R")
    return StageResult(
        counts={"scores": _scores(rows), "rankings_computed": computed},
        paths={} if release is None else {"release": str(release)},
        tables=(Table("in percent", columns, tuple(table)),),
        lines=(f"{computed:,} rankings computed",) if computed else (),
        next="mitl report",
    )


def _values(row: EvaluatedSet) -> dict[str, float]:
    values = {f"R@{k}": row.scores.recall[k] for k in KS}
    assert row.scores.r_precision is not None and row.scores.map_at_r is not None
    return {**values, "R-Precision": row.scores.r_precision, "mAP@R": row.scores.map_at_r}


def _scores(rows: Sequence[EvaluatedSet]) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    """Positives → annotator → direction → metric → value."""
    found: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    for row in rows:
        by_annotator = found.setdefault(row.positives, {})
        by_annotator.setdefault(row.annotator, {})[row.direction.value] = _values(row)
    return found

"""Proposing: rank both directions with every annotator, dedupe, store with provenance."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from annotators.base import Annotator, RankingSource, device_name
from mitl.db.session import open_database
from mitl.db.store import items as item_store
from mitl.db.store import proposals as store
from mitl.errors import RetrievalError, UsageError
from mitl.progress import Progress, no_progress
from mitl.proposals.candidates import DIRECTIONS, ProposalTable, proposal_summary
from mitl.proposals.candidates import propose as take_top
from mitl.proposals.sampling import sample
from mitl.records import Direction, Pair, Proposal, StageResult, Table
from mitl.settings import Settings
from mitl.stages.proposing.computing import Computing, Means, open_engine
from mitl.stages.proposing.query_lists import query_ids
from mitl.stages.proposing.ranker import Ranker
from mitl.stages.proposing.ranking import Items, build_annotators, rank_with, rankers, ranking_path


@dataclass(frozen=True, slots=True)
class QueryChoice:
    """Which items of one side search: a sample of ``count`` (all where None), or the ids in a file."""

    count: int | None = None
    file: Path | None = None


def propose(
    settings: Settings,
    *,
    annotators: Sequence[str],
    top_k: int,
    depth: int,
    images: QueryChoice,
    captions: QueryChoice,
    computing: Computing | None = None,
    progress: Progress = no_progress,
) -> StageResult:
    """Store the candidate pairs of one run; nothing is done where the same run is stored already.

    ``computing`` says where rankings are computed; None as the settings do. It changes no result.

    Raises:
        AnnotatorError: an unknown annotator, or what it needs is missing.
        RetrievalError: ``top_k`` exceeds a gallery.
        DatasetError: an id list names an item that is not in the data set.
    """
    with open_database(settings.db_url, read_only=True) as session:
        dataset = item_store.dataset(session)
        items = Items(
            dataset.id_kind,
            item_store.images(session, dataset.id, settings.project),
            item_store.captions(session, dataset.id),
        )
    queries = {
        Direction.I2T: _choose(
            [(i.external_id, i.id) for i in items.images], images, settings.seed, Direction.I2T
        ),
        Direction.T2I: _choose(
            [(c.external_id, c.id) for c in items.captions], captions, settings.seed, Direction.T2I
        ),
    }
    if not any(queries.values()):
        raise UsageError("no image and no caption is left to search with; ask for one query at least")
    depths = _depths(items, queries, top_k, depth)
    built = build_annotators(settings, annotators)
    means = Means.of(settings)
    chosen = rankers(built, items, progress, means)
    config = _configuration(dataset.name, chosen, top_k, depth, queries, items)
    run_hash = hashlib.sha256(config.encode()).hexdigest()[:16]
    folder = settings.runs / run_hash
    with open_database(settings.db_url, read_only=True) as session:
        known = store.find_run(session, run_hash) is not None
    if known and _complete(folder, built, queries):
        return _nothing_to_do(run_hash, folder)
    with open_engine(settings, computing or Computing.of(settings), annotators) as means.engine:
        rankings, computed = rank_with(folder, chosen, queries, depths)
    table = take_top(rankings, top_k)
    new_pairs = 0 if known else _store(settings, run_hash, config, queries, built, table)
    return _result(run_hash, folder, top_k, queries, table, new_pairs, computed, means, _devices(built))


def _store(
    settings: Settings,
    run_hash: str,
    config: str,
    queries: dict[Direction, list[int]],
    built: Sequence[Annotator | RankingSource],
    table: ProposalTable,
) -> int:
    """Write the run and its proposals, all or nothing; returns how many pairs are new."""
    rows = [
        store.AnnotatorRow(
            a.name, a.kind, json.dumps(_config_of(settings, a.name), sort_keys=True), a.fingerprint
        )
        for a in built
    ]
    new_pairs = 0
    with open_database(settings.db_url) as session:
        # The same command may have run beside this one and stored it meanwhile.
        if store.find_run(session, run_hash) is None:
            new_pairs = store.add_run(session, run_hash, config, queries, rows, _proposals(table))
        session.commit()
    return new_pairs


def _result(
    run_hash: str,
    folder: Path,
    top_k: int,
    queries: dict[Direction, list[int]],
    table: ProposalTable,
    new_pairs: int,
    computed: int,
    means: Means,
    devices: dict[str, str],
) -> StageResult:
    summary = proposal_summary(table)
    n_images, n_captions = (len(queries[direction]) for direction in Direction)
    counts: dict[str, object] = {
        "run": run_hash,
        "image_queries": n_images,
        "caption_queries": n_captions,
        "proposals": len(table),
        "pairs": summary.distinct,
        "new_pairs": new_pairs,
        "rankings_computed": computed,
        "images_encoded": means.encodings.computed["image"],
        "captions_encoded": means.encodings.computed["caption"],
        "pairs_scored": sum(means.scored.values()),
        "kept_bytes": means.kept_bytes,
        "devices": devices,
        "products": sorted(means.engine.used),
        "shortlists": means.shortlists,
        "annotators": {
            row.annotator: {
                "proposed": row.proposed,
                "unique": row.unique,
                "new": row.new,
                "exclusive": row.exclusive,
                "overlap": row.overlap_share,
            }
            for row in summary.shares
        },
    }
    shares = Table(
        f"run {run_hash} · top {top_k} of {n_images:,} image and {n_captions:,} caption queries",
        ("annotator", "proposed", "unique", "new", "only this one", "overlap"),
        tuple(
            (r.annotator, r.proposed, r.unique, r.new, r.exclusive, r.overlap_share) for r in summary.shares
        ),
    )
    return StageResult(
        counts=counts,
        paths={"rankings": str(folder), **means.paths},
        tables=(shares,),
        lines=(
            *means.shortlist_lines,
            *(_where(devices, means.engine.used) if computed else ()),
            f"{summary.distinct:,} candidate pairs, {new_pairs:,} of them new to the project",
        ),
        next="mitl publish --sandbox",
    )


def _devices(built: Sequence[Annotator | RankingSource]) -> dict[str, str]:
    """Where each annotator's network runs, of those that have one."""
    return {annotator.name: device for annotator in built if (device := device_name(annotator)) is not None}


def _where(devices: dict[str, str], products: set[str]) -> Iterator[str]:
    """What ``auto`` came to."""
    if devices:
        yield f"networks ran on {', '.join(sorted(set(devices.values())))}"
    if products:
        yield f"vectors were first multiplied by {', '.join(sorted(products))}"


def _choose(side: list[tuple[str, int]], choice: QueryChoice, seed: int, direction: Direction) -> list[int]:
    if choice.file is not None:
        return query_ids(choice.file, direction, dict(side))
    noun = "image" if direction is Direction.I2T else "caption"
    return sample([id_ for _, id_ in side], choice.count, seed, f"{noun} queries")


def _proposals(table: ProposalTable) -> Iterator[Proposal]:
    columns = (
        table.image_id,
        table.caption_id,
        table.annotator,
        table.direction,
        table.rank,
        table.similarity,
    )
    for image, caption, annotator, direction, rank, similarity in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        yield Proposal(
            Pair(image, caption), table.annotators[annotator], DIRECTIONS[direction], rank, similarity
        )


def _depths(
    items: Items, queries: dict[Direction, list[int]], top_k: int, depth: int
) -> dict[Direction, int]:
    found = {}
    for direction in Direction:
        gallery = len(items.side(direction, gallery=True))
        if queries[direction] and top_k > gallery:
            raise RetrievalError(
                f"--top-k is {top_k}, but the gallery of {direction} has {gallery} items; give {gallery} or less"
            )
        found[direction] = min(max(top_k, depth), gallery)
    return found


def _config_of(settings: Settings, name: str) -> dict[str, Any]:
    return dict(settings.annotator_config.get(name, {}))


def _configuration(
    dataset: str,
    chosen: Sequence[Ranker],
    top_k: int,
    depth: int,
    queries: dict[Direction, list[int]],
    items: Items,
) -> str:
    """JSON of all that decides a run; its hash names the run. The seed shows in the queries that it drew."""
    digests = {}
    for direction, searching in queries.items():
        names = {item.id: item.external_id for item in items.side(direction, gallery=False)}
        listed = "\n".join(names[id_] for id_ in searching)
        digests[direction.value] = {
            "count": len(searching),
            "sha256": hashlib.sha256(listed.encode()).hexdigest(),
        }
    config = {
        "dataset": dataset,
        "annotators": [
            {"name": ranker.name, "kind": ranker.annotator.kind.value, "fingerprint": ranker.mark()}
            for ranker in chosen
        ],
        "top_k": top_k,
        "depth": depth,
        "queries": digests,
    }
    return json.dumps(config, sort_keys=True)


def _complete(
    folder: Path, built: Sequence[Annotator | RankingSource], queries: dict[Direction, list[int]]
) -> bool:
    return all(
        ranking_path(folder, annotator.name, direction).exists()
        for annotator in built
        for direction in Direction
        if queries[direction]
    )


def _nothing_to_do(run_hash: str, folder: Path) -> StageResult:
    return StageResult(
        status="nothing_to_do",
        counts={"run": run_hash},
        paths={"rankings": str(folder)},
        lines=(f"nothing to do: run {run_hash} with these annotators and queries is stored already",),
        next="mitl publish --sandbox",
    )

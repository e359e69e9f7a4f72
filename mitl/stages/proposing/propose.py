"""Proposing: rank both directions with every annotator, dedupe, store with provenance."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, TypedDict

import pandas as pd

from annotators.base import device_name
from mitl.core.whole_files import folder_bytes
from mitl.db.session import open_database
from mitl.db.store import proposals as store
from mitl.db.store import rounds as round_store
from mitl.errors import RetrievalError, UsageError
from mitl.progress import Progress, no_progress
from mitl.proposals.candidates import proposal_summary, ranking_path
from mitl.proposals.candidates import propose as take_top
from mitl.proposals.sampling import sample
from mitl.records import Direction, StageResult, Table
from mitl.records.forms import IMAGES, SET_FORMS
from mitl.records.items import counted
from mitl.records.results import printed_by
from mitl.settings import Settings
from mitl.stages.proposing.computing import ComputeContext, Computing, open_engine
from mitl.stages.proposing.crisscross_counts import CrisscrossCounts
from mitl.stages.proposing.query_lists import query_ids
from mitl.stages.proposing.ranking import (
    AnnotatorRun,
    RankingFolder,
    SearchedItems,
    annotator_runs,
    build_annotators,
    rank_with,
    read_items,
)
from mitl.stages.proposing.trained import with_trained


class ShareCounts(TypedDict):
    """What one annotator contributed, as ``--json`` prints it."""

    proposed: int
    unique: int
    new: int
    exclusive: int
    overlap: float


@printed_by("propose")
class ProposeCounts(CrisscrossCounts, total=False):
    """What proposing counts, an estimate of it, and sampling under the scheme ``crisscross``."""

    run: Annotated[str, "the run's name: a hash of its configuration"]
    image_queries: Annotated[int, "images that search"]
    caption_queries: Annotated[int, "captions that search"]
    proposals: Annotated[int, "rows (pair, annotator, direction)"]
    pairs: Annotated[int, "distinct candidate pairs of the run"]
    new_pairs: Annotated[int, "those that no earlier run had proposed"]
    rankings_computed: Annotated[int, "rankings not found in `runs/`"]
    images_encoded: Annotated[int, "images that had to be encoded, once for each annotator"]
    captions_encoded: Annotated[int, "the same of captions"]
    pairs_scored: Annotated[int, "pairs that had to be scored one by one"]
    kept_bytes: Annotated[
        int, "what encodings and scores of pairs take in `runs/`; both folders can be deleted at any time"
    ]
    devices: Annotated[dict[str, str], "by annotator: where its network ran, as torch calls it"]
    products: Annotated[
        list[str],
        "what multiplied vectors: numpy, torch, bf16, int16, int8, cuda or faiss; none where rankings were there",
    ]
    shortlists: Annotated[
        dict[str, dict[str, object]],
        "annotator and direction → how much of the true top k its shortlist holds: share, low, high, k, "
        "depth, candidates of a query, gallery, and on what that was measured",
    ]
    annotators: Annotated[
        dict[str, ShareCounts],
        "by annotator: proposed, unique, new (not by those before it), exclusive, overlap (share also "
        "proposed by another)",
    ]
    images: Annotated[int, "images that the estimate is for (`--estimate`)"]
    captions: Annotated[int, "captions that it is for (`--estimate`)"]
    machines: Annotated[int, "machines that share the work (`--estimate`)"]
    estimates: Annotated[
        dict[str, dict[str, object]],
        "hardware → its rates, and by annotator, in total and for alternatives: encode_flop, "
        "compare_flop, pairs, kept_bytes, read_bytes, seconds, cents (`--estimate`)",
    ]


@printed_by("propose", key="paths")
class ProposePaths(TypedDict, total=False):
    """Where proposing leaves its files."""

    rankings: Annotated[str, "folder of the run's ranking files"]
    encodings: Annotated[str, "folder of the encoded items"]
    scores: Annotated[str, "folder of the pairs' scores"]


@dataclass(frozen=True, slots=True)
class QueryChoice:
    """Which items of one side search: a sample of ``count`` (all where None), or the ids in a file."""

    count: int | None = None
    file: Path | None = None


@dataclass(frozen=True, slots=True)
class ProposeRequest:
    """Who proposes how many pairs for which queries."""

    annotators: Sequence[str]
    top_k: int
    """Ranks that become candidates."""
    depth: int
    """Ranks that are kept in files."""
    images: QueryChoice
    captions: QueryChoice


def propose(
    settings: Settings,
    request: ProposeRequest,
    *,
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
    settings = with_trained(settings, request.annotators)
    with open_database(settings.db_url, read_only=True) as session:
        dataset, items = read_items(session, settings)
    choices = {Direction.I2T: request.images, Direction.T2I: request.captions}
    queries = {
        direction: _queries(items, direction, choice, settings.seed) for direction, choice in choices.items()
    }
    if not any(queries.values()):
        raise UsageError(
            f"no {items.sides[0]} and no {items.sides[1]} is left to search with; ask for one query at least"
        )
    depths = _depths(items, queries, request.top_k, request.depth)
    compute = ComputeContext.of(settings, progress=progress)
    runs = annotator_runs(build_annotators(settings, request.annotators), items, compute)
    config = _configuration(runs, queries, dataset=dataset.name, top_k=request.top_k, depth=request.depth)
    run = _Run(settings, hashlib.sha256(config.encode()).hexdigest()[:16], config, queries, runs)
    with open_database(settings.db_url, read_only=True) as session:
        is_stored = store.find_run(session, run.name) is not None
        following = round_store.first_command(session)
    if is_stored and run.is_ranked():
        return _nothing_to_do(run, following)
    with open_engine(settings, computing or Computing.of(settings), request.annotators) as compute.engine:
        rankings, computed = rank_with(RankingFolder(run.folder, queries, depths), runs)
    proposals = take_top(rankings, request.top_k)
    new_pairs = 0 if is_stored else run.store(proposals)
    counts: ProposeCounts = {"new_pairs": new_pairs, "rankings_computed": computed}
    return replace(_result(run, proposals, compute, counts, request.top_k), next=following)


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of proposing, named by the hash of all that decides it."""

    settings: Settings
    name: str
    config: str
    queries: Mapping[Direction, list[int]]
    annotators: Sequence[AnnotatorRun]

    @property
    def folder(self) -> Path:
        return self.settings.runs / self.name

    def is_ranked(self) -> bool:
        """Whether the files of all rankings are there."""
        return all(
            ranking_path(self.folder, annotator.name, direction).exists()
            for annotator in self.annotators
            for direction in Direction
            if self.queries[direction]
        )

    def store(self, proposals: pd.DataFrame) -> int:
        """Write the run and its proposals, all or nothing; returns how many pairs are new."""
        rows = [
            store.AnnotatorRow(a.name, a.kind, json.dumps(config, sort_keys=True), a.fingerprint)
            for a in (run.annotator for run in self.annotators)
            for config in (dict(self.settings.annotator_config.get(a.name, {})),)
        ]
        new_pairs = 0
        with open_database(self.settings.db_url) as session:
            # The same command may have run beside this one and stored it meanwhile.
            if store.find_run(session, self.name) is None:
                new_pairs = store.add_run(
                    session, self.name, self.config, dict(self.queries), rows, proposals
                )
            session.commit()
        return new_pairs


def _queries(items: SearchedItems, direction: Direction, choice: QueryChoice, seed: int) -> list[int]:
    ids = {item.external_id: item.id for item in items.side(direction)}
    if choice.file is not None:
        return query_ids(choice.file, direction, ids, items.sides)
    noun = "image" if direction is Direction.I2T else "caption"
    return sample(list(ids.values()), choice.count, seed, f"{noun} queries")


def _depths(
    items: SearchedItems, queries: Mapping[Direction, list[int]], top_k: int, depth: int
) -> dict[Direction, int]:
    depths = {}
    ways = SET_FORMS[items.sides].way_names
    for direction in Direction:
        gallery = items.reach(direction)
        if queries[direction] and top_k > gallery:
            raise RetrievalError(
                f"--top-k is {top_k}, but the gallery of {ways[direction]} has {gallery} items; give {gallery} or less"
            )
        depths[direction] = min(max(top_k, depth), gallery)
    return depths


def _configuration(
    runs: Sequence[AnnotatorRun], queries: Mapping[Direction, list[int]], **also: object
) -> str:
    """JSON of all that decides a run; its hash names the run. The seed shows in the queries that it drew."""
    digests = {}
    for direction, searching in queries.items():
        names = {item.id: item.external_id for item in runs[0].items.side(direction)}
        listed = "\n".join(names[id_] for id_ in searching)
        digests[direction.value] = {
            "count": len(searching),
            "sha256": hashlib.sha256(listed.encode()).hexdigest(),
        }
    annotators = [
        {"name": run.name, "kind": run.annotator.kind.value, "fingerprint": run.mark()} for run in runs
    ]
    return json.dumps({**also, "annotators": annotators, "queries": digests}, sort_keys=True)


def _nothing_to_do(run: _Run, following: str) -> StageResult:
    counts: ProposeCounts = {"run": run.name}
    paths: ProposePaths = {"rankings": str(run.folder)}
    return StageResult(
        status="nothing_to_do",
        counts=counts,
        paths=paths,
        lines=(f"nothing to do: run {run.name} with these annotators and queries is stored already",),
        next=following,
    )


def _result(
    run: _Run, proposals: pd.DataFrame, compute: ComputeContext, done: ProposeCounts, top_k: int
) -> StageResult:
    summary = proposal_summary(proposals)
    n_images, n_captions = (len(run.queries[direction]) for direction in Direction)
    devices = {a.name: device for a in run.annotators if (device := device_name(a.annotator)) is not None}
    products = sorted(compute.engine.used)
    counts: ProposeCounts = {
        "run": run.name,
        "image_queries": n_images,
        "caption_queries": n_captions,
        "proposals": len(proposals),
        "pairs": summary.distinct,
        "new_pairs": done["new_pairs"],
        "rankings_computed": done["rankings_computed"],
        "images_encoded": compute.encodings.computed["image"],
        "captions_encoded": compute.encodings.computed["caption"],
        "pairs_scored": sum(compute.scored.values()),
        "kept_bytes": compute.encodings.size_bytes + folder_bytes(compute.scores),
        "devices": devices,
        "products": products,
        "shortlists": compute.shortlists,
        "annotators": {
            share.annotator: {
                "proposed": share.proposed,
                "unique": share.unique,
                "new": share.new,
                "exclusive": share.exclusive,
                "overlap": share.overlap_share,
            }
            for share in summary.shares
        },
    }
    paths: ProposePaths = {
        "rankings": str(run.folder),
        "encodings": str(compute.encodings.folder),
        "scores": str(compute.scores),
    }
    sides = run.annotators[0].items.sides
    searching = f"{n_images:,} image and {n_captions:,} caption queries"
    if sides != IMAGES.sides:
        searching = f"what {counted(sides, n_images, n_captions)} find"
    shares = Table(
        f"run {run.name} · top {top_k} of {searching}",
        ("annotator", "proposed", "unique", "new", "only this one", "overlap"),
        tuple((name, *share.values()) for name, share in counts["annotators"].items()),
    )
    where = []
    if done["rankings_computed"] and devices:
        where.append(f"networks ran on {', '.join(sorted(set(devices.values())))}")
    if done["rankings_computed"] and products:
        where.append(f"vectors were first multiplied by {', '.join(products)}")
    pairs = f"{summary.distinct:,} candidate pairs, {done['new_pairs']:,} of them new to the project"
    return StageResult(
        counts=counts,
        paths=paths,
        tables=(shares,),
        lines=(*compute.shortlist_lines, *where, pairs),
    )

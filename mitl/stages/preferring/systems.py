"""The ranking systems of a study: annotators of the latest run, and rankings from files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.orm import Session

from mitl.db.store import items as item_store
from mitl.db.store import proposals as proposal_store
from mitl.errors import ProposalError, RetrievalError, UsageError
from mitl.hits.comparisons import Lists
from mitl.proposals.sampling import sample
from mitl.records import Direction, System
from mitl.retrieval.rankings import read_ranking
from mitl.settings import Settings
from mitl.stages.preferring.designed import designed_rankings
from mitl.stages.preferring.study import Study
from mitl.stages.proposing.ranking import ranking_path

_SHA = 12
"""Digits of a file's hash that its origin names."""


@dataclass(frozen=True, slots=True)
class Contest:
    """What is compared: each system's lists of the same queries."""

    systems: tuple[System, ...]
    queries: tuple[int, ...]
    rankings: Mapping[str, Lists]
    """System → query → its first items."""
    positives: Lists
    """Query → what is known to be right, where the rankings were made of it; else nothing."""


def contest(session: Session, settings: Settings, study: Study) -> Contest:
    """The systems of a study with their lists of a random sample of the queries that all of them ranked.

    Raises:
        StoreError: nothing was proposed yet, and annotators are meant.
        UsageError: an annotator is not in the run, there are fewer than two systems, or no such positives.
        ProposalError: there are fewer common queries than asked for.
        RetrievalError, AnnotatorError: a ranking is missing, damaged or shorter than ``top_k``.
    """
    if study.designed is not None:
        made, positives = designed_rankings(session, settings, study, study.designed)
        systems = tuple(System(name, f"made of {study.designed}") for name in sorted(made))
        return Contest(systems, tuple(sorted(positives)), made, positives)
    images, captions = item_store.id_maps(session, item_store.dataset(session).id)
    query_ids, item_ids = (images, captions) if study.direction is Direction.I2T else (captions, images)
    lists: dict[str, dict[int, tuple[int, ...]]] = {}
    found = []
    if study.systems or not study.files:
        run, names = _annotators(session, study)
        for name in names:
            path = ranking_path(settings.runs / run, name, study.direction)
            lists[name] = _from_run(path, query_ids, item_ids, name, study.top_k)
            found.append(System(name, f"run {run}"))
    known = [set(one) for one in lists.values()]
    known += [_queries_of(path, query_ids) for _, path in study.files]
    if len(known) < 2:
        raise UsageError(
            f"a study compares two systems or more, but {len(known)} is given; name annotators with --system, or files "
            "with --rankings NAME=FILE"
        )
    common = sorted(set.intersection(*known))
    if len(common) < study.queries:
        raise ProposalError(
            f"cannot sample {study.queries} queries; the systems have {len(common)} in common in the direction "
            f"{study.direction}, so ask for --queries {len(common)} at most"
        )
    queries = sample(common, study.queries, settings.seed, "preference queries")
    for name, path in study.files:
        lists[name] = _from_file(path, query_ids, item_ids, queries, study.top_k)
        found.append(System(name, f"file {path.name} sha256 {_sha256(path)[:_SHA]}"))
    chosen = {name: {query: own[query] for query in queries} for name, own in lists.items()}
    return Contest(tuple(sorted(found, key=lambda one: one.name)), tuple(queries), chosen, {})


def _annotators(session: Session, study: Study) -> tuple[str, list[str]]:
    """The latest run and the annotators of it that are meant."""
    run = proposal_store.latest_run(session)
    config = json.loads(run.config)
    if not config["queries"][study.direction.value]["count"]:
        raise UsageError(
            f"the latest run {run.hash} has no {study.direction} queries; give the other --direction, or run "
            "`mitl propose` with such queries"
        )
    known = [entry["name"] for entry in config["annotators"]]
    unknown = [name for name in study.systems if name not in known]
    if unknown:
        raise UsageError(
            f"{unknown[0]!r} is no annotator of the latest run {run.hash}; known: {', '.join(known)}"
        )
    return run.hash, list(study.systems) or known


def _from_run(
    path: Path, queries: Mapping[str, int], items: Mapping[str, int], name: str, top_k: int
) -> dict[int, tuple[int, ...]]:
    if not path.is_file():
        raise RetrievalError(
            f"annotator {name!r} has no ranking {str(path)!r}; leave it out with --system, or run `mitl propose` again"
        )
    ranking = read_ranking(path, queries, items)
    depth = ranking.item_ids.shape[1]
    if depth < top_k:
        raise RetrievalError(
            f"the ranking {str(path)!r} is {depth} deep, but --top-k is {top_k}; ask for {depth} at most"
        )
    rows = ranking.item_ids[:, :top_k].tolist()
    return {int(query): tuple(row) for query, row in zip(ranking.query_ids, rows, strict=True)}


def _from_file(
    path: Path, queries: Mapping[str, int], items: Mapping[str, int], chosen: Sequence[int], top_k: int
) -> dict[int, tuple[int, ...]]:
    from annotators.inputs import ranking_files

    ranking = ranking_files.read_ranking(path, queries, items, chosen, top_k)
    return {query: tuple(row) for query, row in zip(chosen, ranking.item_ids.tolist(), strict=True)}


def _queries_of(path: Path, queries: Mapping[str, int]) -> set[int]:
    """The project's queries that a file of rankings has."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise RetrievalError(f"no file {str(path)!r}; --rankings NAME=FILE takes a Parquet file of rankings")
    try:
        names = pq.read_table(path, columns=["query_id"])["query_id"].unique().to_pylist()
    except (pa.ArrowException, OSError, KeyError) as error:
        raise RetrievalError(
            f"{str(path)!r} is no Parquet file with the columns query_id, rank, item_id, similarity: "
            f"{' '.join(str(error).split())}"
        ) from error
    found = {queries[str(name)] for name in names if str(name) in queries}
    if not found:
        raise RetrievalError(
            f"{str(path)!r} ranks none of the project's queries in this direction; its query_id should be the data "
            "set's own ids; or give the other --direction"
        )
    return found


def _sha256(path: Path) -> str:
    from annotators.fingerprint import file_sha256

    return file_sha256(path)

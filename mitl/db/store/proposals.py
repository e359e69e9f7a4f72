"""Runs, their queries, annotators and pairs; `mitl.db.store.columns` reads who proposed which."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import Select, select, update
from sqlalchemy.orm import Session

from mitl.core.arrays import (
    Ints,
    coded,
    contains,
    distinct,
    pack_ids,
    pack_pairs,
    places,
    unpack_ids,
    unpack_pairs,
)
from mitl.db.base import columns
from mitl.db.models import PairRow, ProposalRow, Query, Run, StoredAnnotator, TrainedAnnotator
from mitl.db.store.items import pair_sides
from mitl.db.store.statements import (
    add_rows,
    add_tuples,
    change_among,
    chunks,
    ids_were_given,
    next_id,
    number_columns,
    numbers_among,
    rows_of,
)
from mitl.errors import StoreError
from mitl.records import AnnotatorKind, Direction, Pair

if TYPE_CHECKING:
    import pandas as pd  # takes longer to load than most commands take


@dataclass(frozen=True, slots=True)
class RunRow:
    """One propose configuration that has been stored."""

    id: int
    hash: str
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AnnotatorRow:
    """A machine annotator as stored."""

    name: str
    kind: AnnotatorKind
    config: str
    fingerprint: str


def find_run(session: Session, run_hash: str) -> RunRow | None:
    """The run of this configuration, if its proposals are stored."""
    return next((run for run in runs(session) if run.hash == run_hash), None)


def runs(session: Session) -> list[RunRow]:
    """All runs, oldest first."""
    rows = session.execute(select(Run.id, Run.hash, Run.config).order_by(Run.id))
    return [RunRow(id_, run_hash, json.loads(config)) for id_, run_hash, config in rows]


def fingerprints(stored: Iterable[RunRow]) -> dict[str, str]:
    """Annotator → the fingerprint of its newest run, pictures included: the one that a release's manifest names."""
    return {one["name"]: one["fingerprint"] for run in stored for one in run.config.get("annotators", ())}


def latest_run(session: Session) -> RunRow:
    """The newest run; StoreError where nothing was proposed yet."""
    stored = runs(session)
    if not stored:
        raise StoreError("nothing has been proposed yet; run `mitl propose` first")
    return stored[-1]


def add_run(
    session: Session,
    run_hash: str,
    config: str,
    queries: Mapping[Direction, Sequence[int]],
    annotators: Sequence[AnnotatorRow],
    proposals: pd.DataFrame,
) -> int:
    """Insert a run with its queries, annotators, new pairs and proposals; returns the number of new pairs.

    Proposals are inserted by pair, whatever their order, so that both of their indexes grow at one end.

    Args:
        proposals: ``PROPOSALS``.
    """
    run = Run(hash=run_hash, config=config)
    session.add(run)
    session.flush()
    add_rows(
        session,
        Query,
        (
            {"run_id": run.id, "direction": direction, "item_id": item}
            for direction in Direction
            for item in sorted(queries.get(direction, ()))
        ),
    )
    annotator_ids = _annotator_ids(session, annotators)
    pair, n_new = _number_pairs(
        session, proposals["pair"].to_numpy(np.int64), pair_sides(session), proposed=True
    )
    _mark_proposed(session, pair)
    names = proposals["annotator"].cat
    annotator = np.array([annotator_ids[name] for name in names.categories], np.int64)[names.codes]
    direction = proposals["direction"].to_numpy(np.int64)
    order = np.lexsort((direction, annotator, pair))
    ways = np.array([direction.value for direction in Direction], np.object_)
    columns = (
        pair,
        annotator,
        ways[direction],
        proposals["rank"].to_numpy(np.int64),
        proposals["similarity"].to_numpy(np.float64),
    )
    add_tuples(
        session,
        ProposalRow,
        ("run_id", "pair_id", "annotator_id", "direction", "rank", "similarity"),
        ((run.id, *row) for row in rows_of(columns, order)),
    )
    return n_new


def packed_rows(session: Session, rows: Ints) -> Ints:
    """The packed pairs in these rows, in their order."""
    known, at = coded(rows)
    query = "SELECT id, left_id, right_id FROM pair WHERE"
    found, left, right = numbers_among(session, query, 3, "id", known.tolist())
    return pack_ids(left, right)[np.argsort(found)][at]


def pairs_of_rows(session: Session, rows: Ints) -> list[Pair]:
    """The pairs in these rows, in their order."""
    return unpack_pairs(packed_rows(session, rows))


def ensure_pairs(
    session: Session, pairs: Iterable[Pair], sides: tuple[int, int] | None = None
) -> dict[Pair, int]:
    """Insert the pairs that are not there yet, in canonical order; returns the row of each of these pairs."""
    packed = pack_pairs(pairs)
    rows, _ = _number_pairs(session, packed, sides or pair_sides(session), proposed=False)
    return dict(zip(unpack_pairs(packed), rows.tolist(), strict=True))


def pair_rows(session: Session, pairs: Ints) -> Ints:
    """The rows of these packed pairs, in their order; made, as not proposed, where they are not there yet."""
    return _number_pairs(session, pairs, pair_sides(session), proposed=False)[0]


def _mark_proposed(session: Session, ids: Ints) -> None:
    """Pairs that were there as controls or past work before anything proposed them."""
    before = number_columns(session, "SELECT id FROM pair WHERE NOT proposed", 1)[0]
    new = before[contains(distinct(ids), before)].tolist()
    change_among(session, update(PairRow).values(proposed=True), PairRow.id, new)


def _number_pairs(
    session: Session, packed: Ints, sides: tuple[int, int], *, proposed: bool
) -> tuple[Ints, int]:
    """The row of each pair, (n,), and how many were inserted; only these are marked as proposed or not."""
    pairs = distinct(packed)
    stored, rows = known_pairs(session, pairs, sides)
    new = pairs[~contains(stored, pairs)]
    first = next_id(session, PairRow)
    if len(new):
        given = rows_of(unpack_ids(new), np.arange(len(new)))
        add_tuples(
            session,
            PairRow,
            ("id", "left_side_id", "right_side_id", "left_id", "right_id", "proposed"),
            ((row, *sides, *pair, proposed) for row, pair in enumerate(given, first)),
        )
        ids_were_given(session, PairRow)
    stored = np.concatenate([stored, new])
    rows = np.concatenate([rows, np.arange(first, first + len(new))])
    order = np.argsort(stored)
    return rows[order][places(stored[order], packed)], len(new)


_FEW = 50_000
"""Pairs that are looked for one by one rather than by a look at all."""


def known_pairs(session: Session, wanted: Ints, sides: tuple[int, int]) -> tuple[Ints, Ints]:
    """Those of these packed pairs that are there, ascending, with their rows; all pairs where these are many."""
    of_sides = f"p.left_side_id = {sides[0]} AND p.right_side_id = {sides[1]}"
    query = f"SELECT p.left_id, p.right_id, p.id FROM {{}} p WHERE {of_sides}"
    parts = [np.empty((3, 0), np.int64)]
    if len(wanted) > _FEW:
        parts.append(number_columns(session, query.format("pair"), 3))
    else:
        for chunk in chunks(list(zip(*(side.tolist() for side in unpack_ids(wanted)), strict=True))):
            listed = ", ".join(map(str, chunk))
            # SQLite looks for each of a list of two columns by its index in a join alone.
            joined = (
                query.format("wanted CROSS JOIN pair") + " AND p.left_id = wanted.l AND p.right_id = wanted.r"
            )
            parts.append(number_columns(session, f"WITH wanted (l, r) AS (VALUES {listed}) {joined}", 3))
    left, right, rows = np.concatenate(parts, axis=1)
    stored = pack_ids(left, right)
    order = np.argsort(stored)
    return stored[order], rows[order]


def queries(session: Session) -> dict[Direction, list[int]]:
    """The query items of all runs, ascending, no repeats."""
    items_of: dict[Direction, set[int]] = {direction: set() for direction in Direction}
    for direction, item in session.execute(select(Query.direction, Query.item_id)):
        items_of[direction].add(item)
    return {direction: sorted(items) for direction, items in items_of.items()}


def annotators(session: Session) -> list[AnnotatorRow]:
    """All annotators in the order in which they first proposed."""
    query = select(*columns(AnnotatorRow, StoredAnnotator))
    return [AnnotatorRow(*row) for row in session.execute(query.order_by(StoredAnnotator.id))]


def withdrawn_names(session: Session) -> frozenset[str]:
    """The annotators that learnt in a round that was taken back: nothing is proposed from their rankings."""
    return frozenset(session.scalars(_withdrawn()))


def _withdrawn() -> Select[str]:
    return select(TrainedAnnotator.name).where(TrainedAnnotator.withdrawn_at.is_not(None))


def unmark_withdrawn(session: Session) -> None:
    """Mark the pairs that withdrawn annotators alone proposed as not proposed; who proposed them stays written."""
    is_theirs = StoredAnnotator.name.in_(_withdrawn())
    theirs, others = (
        select(ProposalRow.pair_id)
        .join(StoredAnnotator, StoredAnnotator.id == ProposalRow.annotator_id)
        .where(side)
        for side in (is_theirs, ~is_theirs)
    )
    session.execute(
        update(PairRow).where(PairRow.id.in_(theirs), PairRow.id.not_in(others)).values(proposed=False),
        execution_options={"synchronize_session": False},
    )


def candidate_pairs(session: Session, directions: Sequence[Direction]) -> list[Pair]:
    """The distinct pairs that stand as proposed in any of these directions, in canonical order."""
    query = select(PairRow.left_id, PairRow.right_id).where(PairRow.proposed)
    if not set(directions).issuperset(Direction):
        of_directions = (
            select(ProposalRow.pair_id)
            .join(StoredAnnotator, StoredAnnotator.id == ProposalRow.annotator_id)
            .where(ProposalRow.direction.in_(list(directions)), StoredAnnotator.name.not_in(_withdrawn()))
        )
        query = query.where(PairRow.id.in_(of_directions))
    return unpack_pairs(np.sort(pack_ids(*number_columns(session, query, 2))))


def _annotator_ids(session: Session, wanted: Sequence[AnnotatorRow]) -> dict[str, int]:
    ids = {}
    for row in wanted:
        known = session.scalar(select(StoredAnnotator).where(StoredAnnotator.name == row.name))
        stored = known or StoredAnnotator(name=row.name)
        stored.kind, stored.config, stored.fingerprint = row.kind, row.config, row.fingerprint
        session.add(stored)
        session.flush()
        ids[row.name] = stored.id
    return ids

"""Runs, their queries, and who proposed which pair."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Select, select, update
from sqlalchemy.orm import Session

from mitl.core.packed import Ints
from mitl.db.base import columns
from mitl.db.models import PairRow, ProposalRow, Query, Run, StoredAnnotator, TrainedAnnotator
from mitl.db.store.bulk import add_rows, add_tuples, chunks, ids_were_given, next_id, rows_among
from mitl.db.store.items import pair_sides
from mitl.errors import StoreError
from mitl.records import AnnotatorKind, Direction, Pair, Proposal


@dataclass(frozen=True, slots=True)
class RunRow:
    """One propose configuration that has been stored."""

    id: int
    hash: str
    config: str
    """JSON."""


@dataclass(frozen=True, slots=True)
class AnnotatorRow:
    """A machine annotator as stored."""

    name: str
    kind: AnnotatorKind
    config: str
    fingerprint: str


def find_run(session: Session, run_hash: str) -> RunRow | None:
    """The run of this configuration, if its proposals are stored."""
    row = session.execute(select(Run.id, Run.hash, Run.config).where(Run.hash == run_hash)).first()
    return None if row is None else RunRow(*row)


def runs(session: Session) -> list[RunRow]:
    """All runs, oldest first."""
    return [RunRow(*row) for row in session.execute(select(Run.id, Run.hash, Run.config).order_by(Run.id))]


def latest_run(session: Session) -> RunRow:
    """The newest run; StoreError where nothing was proposed yet."""
    found = runs(session)
    if not found:
        raise StoreError("nothing has been proposed yet; run `mitl propose` first")
    return found[-1]


def add_run(
    session: Session,
    run_hash: str,
    config: str,
    queries: Mapping[Direction, Sequence[int]],
    annotators: Sequence[AnnotatorRow],
    proposals: Iterable[Proposal],
) -> int:
    """Insert a run with its queries, annotators, new pairs and proposals; returns the number of new pairs."""
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
    rows = list(proposals)
    ids, n_new = _ensure_pairs(session, {row.pair for row in rows}, pair_sides(session), proposed=True)
    _mark_proposed(session, {ids[row.pair] for row in rows})
    add_tuples(
        session,
        ProposalRow,
        ("run_id", "pair_id", "annotator_id", "direction", "rank", "similarity"),
        (
            (
                run.id,
                ids[row.pair],
                annotator_ids[row.annotator],
                row.direction.value,
                row.rank,
                row.similarity,
            )
            for row in rows
        ),
    )
    return n_new


def pair_ids(session: Session, sides: tuple[int, int] | None = None) -> dict[Pair, int]:
    """The row of every known pair of these sides, left and right; of images and captions where none are named."""
    left, right = sides or pair_sides(session)
    query = select(PairRow.left_id, PairRow.right_id, PairRow.id).where(
        PairRow.left_side_id == left, PairRow.right_side_id == right
    )
    return {Pair(*row[:2]): row[2] for row in session.execute(query)}


def pairs_of_rows(session: Session, rows: Ints) -> list[Pair]:
    """The pairs in these rows, in their order."""
    query = select(PairRow.id, PairRow.left_id, PairRow.right_id)
    known = {
        row: Pair(image, caption)
        for row, image, caption in rows_among(session, query, PairRow.id, rows.tolist())
    }
    return [known[row] for row in rows.tolist()]


def ensure_pairs(
    session: Session, pairs: Iterable[Pair], sides: tuple[int, int] | None = None
) -> dict[Pair, int]:
    """Insert the pairs that are not there yet, in canonical order; returns the row of every known pair of the sides."""
    return _ensure_pairs(session, set(pairs), sides or pair_sides(session), proposed=False)[0]


def _mark_proposed(session: Session, ids: set[int]) -> None:
    """Pairs that were there as controls or past work before anything proposed them."""
    before = session.scalars(select(PairRow.id).where(PairRow.proposed.is_(False))).all()
    for chunk in chunks([id_ for id_ in before if id_ in ids]):
        session.execute(update(PairRow).where(PairRow.id.in_(chunk)).values(proposed=True))


def _ensure_pairs(
    session: Session, pairs: set[Pair], sides: tuple[int, int], *, proposed: bool
) -> tuple[dict[Pair, int], int]:
    """The same, and how many were new; only new ones are marked as proposed."""
    known = pair_ids(session, sides)
    keys = sorted((pair.image_id, pair.caption_id) for pair in pairs - known.keys())
    first = next_id(session, PairRow)
    rows = [(first + n, *sides, left, right, proposed) for n, (left, right) in enumerate(keys)]
    if rows:
        names = ("id", "left_side_id", "right_side_id", "left_id", "right_id", "proposed")
        add_tuples(session, PairRow, names, rows)
        ids_were_given(session, PairRow)
    known |= {Pair(left, right): id_ for id_, _, _, left, right, _ in rows}
    return known, len(rows)


def queries(session: Session, run_ids: Sequence[int] | None = None) -> dict[Direction, list[int]]:
    """The query items of these runs (all by default), ascending, no repeats."""
    query = select(Query.direction, Query.item_id)
    if run_ids is not None:
        query = query.where(Query.run_id.in_(run_ids))
    found: dict[Direction, set[int]] = {direction: set() for direction in Direction}
    for direction, item in session.execute(query):
        found[direction].add(item)
    return {direction: sorted(items) for direction, items in found.items()}


def annotators(session: Session) -> list[AnnotatorRow]:
    """All annotators in the order in which they first proposed."""
    query = select(*columns(AnnotatorRow, StoredAnnotator))
    return [AnnotatorRow(*row) for row in session.execute(query.order_by(StoredAnnotator.id))]


def proposals(session: Session, run_id: int | None = None) -> list[Proposal]:
    """Who proposed what, in canonical order (pair, annotator, direction); of one run or of all."""
    query = (
        select(
            PairRow.left_id,
            PairRow.right_id,
            StoredAnnotator.name,
            ProposalRow.direction,
            ProposalRow.rank,
            ProposalRow.similarity,
        )
        .join(PairRow, PairRow.id == ProposalRow.pair_id)
        .join(StoredAnnotator, StoredAnnotator.id == ProposalRow.annotator_id)
        .order_by(
            PairRow.left_id, PairRow.right_id, StoredAnnotator.id, ProposalRow.direction, ProposalRow.run_id
        )
    )
    if run_id is not None:
        query = query.where(ProposalRow.run_id == run_id)
    return [
        Proposal(Pair(image, caption), name, direction, rank, similarity)
        for image, caption, name, direction, rank, similarity in session.execute(query)
    ]


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
    query = (
        select(PairRow.left_id, PairRow.right_id)
        .join(ProposalRow, ProposalRow.pair_id == PairRow.id)
        .join(StoredAnnotator, StoredAnnotator.id == ProposalRow.annotator_id)
        .where(ProposalRow.direction.in_(list(directions)), StoredAnnotator.name.not_in(_withdrawn()))
        .distinct()
        .order_by(PairRow.left_id, PairRow.right_id)
    )
    return [Pair(*row) for row in session.execute(query)]


def _annotator_ids(session: Session, wanted: Sequence[AnnotatorRow]) -> dict[str, int]:
    ids = {}
    for row in wanted:
        found = session.execute(
            select(StoredAnnotator).where(StoredAnnotator.name == row.name)
        ).scalar_one_or_none()
        if found is None:
            found = StoredAnnotator(
                name=row.name, kind=row.kind, config=row.config, fingerprint=row.fingerprint
            )
            session.add(found)
        else:
            found.kind, found.config, found.fingerprint = row.kind, row.config, row.fingerprint
        session.flush()
        ids[row.name] = found.id
    return ids

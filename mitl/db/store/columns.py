"""Judgements, proposals, ratings and originals as columns: millions of rows without a record for each."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, case, func, select
from sqlalchemy.orm import Session

from mitl.db.models import (
    Annotator,
    Assignment,
    Batch,
    Caption,
    Hit,
    HitItem,
    Judgement,
    Pair,
    Proposal,
    Rating,
    Rationale,
    Worker,
)
from mitl.positives.judgement_columns import UNMEASURED, UNWRITTEN, JudgementColumns
from mitl.positives.merge_columns import UNANSWERED
from mitl.proposals.columns import ProposalColumns
from mitl.proposals.packed import Ints, pack_ids
from mitl.records import Concept, Direction, Environment, Label, Outcome, PairRole, RationaleKind, Shortcoming

_AT_ONCE = 100_000
"""Rows that are fetched together; bounds the memory that Python's own numbers take."""


def judgement_columns(
    session: Session, environment: Environment, *, with_texts: bool = False
) -> JudgementColumns:
    """Every judgement of an environment, in no order that matters.

    Args:
        with_texts: what workers wrote in their own words too, as it was written.
    """
    reasons = _reasons()
    query = (
        select(
            Pair.image_id,
            Pair.caption_id,
            Assignment.worker_id,
            _place(Judgement.label, Label, UNANSWERED),
            _place(Judgement.outcome, Outcome),
            _place(HitItem.role, PairRole),
            case((Judgement.usable, 1), else_=0),
            func.coalesce(reasons.c.shortcomings, 0),
            func.coalesce(reasons.c.concepts, 0),
            func.coalesce(Judgement.active_ms, UNMEASURED),
            *((Judgement.id,) if with_texts else ()),
        )
        .join(Assignment, Assignment.id == Judgement.assignment_id)
        .join(Hit, Hit.id == Assignment.hit_id)
        .join(Batch, Batch.id == Hit.batch_id)
        .join(HitItem, (HitItem.hit_id == Hit.id) & (HitItem.place == Judgement.place))
        .join(Pair, Pair.id == Judgement.pair_id)
        .outerjoin(reasons, reasons.c.judgement_id == Judgement.id)
        .where(Batch.environment == environment)
    )
    rows = _fetch(session, query, 10 + with_texts)
    ids, names = _workers(session, environment)
    return JudgementColumns(
        pairs=pack_ids(rows[0], rows[1]),
        worker=np.searchsorted(ids, rows[2]).astype(np.int32),
        workers=names,
        label=rows[3].astype(np.int8),
        outcome=rows[4].astype(np.int8),
        role=rows[5].astype(np.int8),
        usable=rows[6].astype(np.bool_),
        shortcomings=rows[7].astype(np.int16),
        concepts=rows[8].astype(np.int16),
        active_ms=rows[9],
        **(_texts(session, environment, rows[10]) if with_texts else {}),
    )


def proposal_columns(session: Session) -> ProposalColumns:
    """Who proposed what, each (pair, annotator, direction) once with its best rank over all runs."""
    query = select(
        Pair.image_id,
        Pair.caption_id,
        Proposal.annotator_id,
        _place(Proposal.direction, Direction),
        Proposal.rank,
        Proposal.run_id,
        Proposal.similarity,
    ).join(Pair, Pair.id == Proposal.pair_id)
    numbers = _fetch(session, query, 7, dtype=np.float64)  # exact for ids: they are far below 2^53
    image, caption, annotator, direction, rank, run = (column.astype(np.int64) for column in numbers[:6])
    known = session.execute(select(Annotator.id, Annotator.name).order_by(Annotator.id)).all()
    pairs, codes = pack_ids(image, caption), np.searchsorted([row.id for row in known], annotator)
    order = np.lexsort((run, rank, direction, codes, pairs))
    keys = np.stack([pairs[order], codes[order], direction[order]])
    first = (
        np.append(True, (keys[:, 1:] != keys[:, :-1]).any(axis=0)) if len(order) else np.empty(0, np.bool_)
    )
    best = order[first]
    return ProposalColumns.make(
        pairs[best],
        codes[best],
        tuple(row.name for row in known),
        direction[best],
        rank[best],
        numbers[6][best],
    )


def rating_columns(session: Session) -> tuple[Ints, NDArray[np.float64]]:
    """CxC's ratings: packed pairs and scores."""
    found = _fetch(session, select(Rating.image_id, Rating.caption_id, Rating.score), 3, dtype=np.float64)
    return pack_ids(found[0].astype(np.int64), found[1].astype(np.int64)), found[2]


def original_columns(session: Session, dataset_id: int) -> Ints:
    """Each caption with its own image, packed."""
    found = _fetch(session, select(Caption.image_id, Caption.id).where(Caption.dataset_id == dataset_id), 2)
    return pack_ids(found[0], found[1])


def _fetch(session: Session, query: Any, n: int, dtype: type = np.int64) -> NDArray[Any]:
    """The columns of a query, (n, rows)."""
    parts: list[NDArray[Any]] = [np.empty((n, 0), dtype)]
    # Past the ORM, and number by number: numpy would ask each row object whether it is an array.
    for rows in session.connection().execute(query).partitions(_AT_ONCE):
        numbers: NDArray[Any] = np.fromiter(chain.from_iterable(rows), dtype, n * len(rows))
        parts.append(numbers.reshape(-1, n).T.copy())
    return np.concatenate(parts, axis=1)


def _place(column: Any, enum: type[StrEnum], missing: int | None = None) -> ColumnElement[int]:
    """The place of a stored value in its enum, told by the database."""
    return case(*((column == value, place) for place, value in enumerate(enum)), else_=missing)


def _reasons() -> Any:
    """A bit for each shortcoming and concept that a judgement names."""
    once = select(Rationale.judgement_id, Rationale.kind, Rationale.value).distinct().subquery()

    def bits(kind: RationaleKind, values: Sequence[str]) -> ColumnElement[int]:
        named = [((once.c.kind == kind) & (once.c.value == value), 1 << n) for n, value in enumerate(values)]
        return func.sum(case(*named, else_=0))

    return (
        select(
            once.c.judgement_id,
            bits(RationaleKind.SHORTCOMING, list(Shortcoming)).label("shortcomings"),
            bits(RationaleKind.CONCEPT, list(Concept)).label("concepts"),
        )
        .where(once.c.kind != RationaleKind.TEXT)
        .group_by(once.c.judgement_id)
        .subquery()
    )


def _texts(session: Session, environment: Environment, judgements: Ints) -> dict[str, Any]:
    """The columns of what was written at these judgements; several remarks at one are lines of one text."""
    query = (
        select(Rationale.judgement_id, Rationale.value)
        .join(Judgement, Judgement.id == Rationale.judgement_id)
        .join(Assignment, Assignment.id == Judgement.assignment_id)
        .join(Hit, Hit.id == Assignment.hit_id)
        .join(Batch, Batch.id == Hit.batch_id)
        .where(Batch.environment == environment, Rationale.kind == RationaleKind.TEXT)
        .order_by(Rationale.id)
    )
    written: dict[int, str] = {}
    for judgement, text in session.execute(query):
        written[judgement] = f"{written[judgement]}\n{text}" if judgement in written else text
    texts = tuple(sorted(set(written.values())))
    place = {text: code for code, text in enumerate(texts)}
    codes = np.full(len(judgements), UNWRITTEN, np.int32)
    order = np.argsort(judgements)
    known = np.array(sorted(written), np.int64)
    codes[order[np.searchsorted(judgements, known, sorter=order)]] = [
        place[written[id_]] for id_ in known.tolist()
    ]
    return {"text": codes, "texts": texts}


def _workers(session: Session, environment: Environment) -> tuple[Ints, tuple[str, ...]]:
    query = select(Worker.id, Worker.mturk_worker_id).where(Worker.environment == environment)
    rows = session.execute(query.order_by(Worker.id)).all()
    return np.array([row.id for row in rows], np.int64), tuple(row.mturk_worker_id for row in rows)

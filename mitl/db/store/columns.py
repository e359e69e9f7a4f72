"""Answers, proposals, ratings and originals as columns: millions of rows without a record for each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sqlalchemy import case, select
from sqlalchemy.orm import Session

from mitl.core.arrays import Ints, contains, pack_ids
from mitl.db.models import Assignment, Hit, JudgementRow, ProposalRow, Rationale, StoredAnnotator, Worker
from mitl.db.store.answer_sheets import answers_of
from mitl.db.store.items import original_pairs, rated_pairs
from mitl.db.store.proposals import withdrawn_names
from mitl.db.store.statements import number_columns, query_hits, query_submissions
from mitl.records import Direction, Environment, HitState, PairRole
from mitl.records.frames import ANSWERS, NONE, PROPOSALS, frame, is_role, judgement_schema
from mitl.records.questions import RATIONALE, Question

_PLACES = 1 << 16
"""More than a page has."""


def answer_columns(session: Session, environment: Environment) -> pd.DataFrame:
    """All answers (``ANSWERS``), by submission and place."""
    return frame(ANSWERS, answers_of(session, environment))


def judgement_columns(
    session: Session,
    environment: Environment,
    *,
    questions: Sequence[Question] = RATIONALE,
    with_texts: bool = False,
) -> pd.DataFrame:
    """All answers but an audit's (``judgement_schema``), by packed pairs and workers' ids.

    What merges, learns and releases starts here; the answers of an audit are read by `mitl.db.store.audits` alone.

    Args:
        questions: whose answers are wanted.
        with_texts: what workers wrote in their own words too, as it was written.
    """
    answers = answer_columns(session, environment)
    answers = answers[~is_role(answers, PairRole.AUDIT)].reset_index(drop=True)
    keys = answers["assignment"].to_numpy() * _PLACES + answers["place"].to_numpy()
    packed = _packed_pairs(session)
    chosen = [question for question in questions if question.choices]
    at, (code,) = _at(keys, number_columns(session, _choices(chosen), 3))
    masks = {question.column: np.zeros(len(answers), np.int64) for question in chosen}
    for number, mask in enumerate(masks.values()):
        of_question = code // _CHOICES == number
        np.bitwise_or.at(mask, at[of_question], 1 << code[of_question] % _CHOICES)
    active_ms = np.where(answers["active_ms"] == 0, NONE, answers["active_ms"])
    active_ms[_at(keys, number_columns(session, _NO_TIME, 2))[0]] = 0
    workers = select(Worker.id, Worker.mturk_worker_id).where(Worker.environment == environment)
    people = session.execute(workers.order_by(Worker.id)).all()
    who = np.searchsorted(np.array([person.id for person in people], np.int64), answers["worker"])
    return frame(
        judgement_schema(questions),
        {
            "pair": packed[answers["pair"]],
            "worker": pd.Categorical.from_codes(who, pd.Index([person.mturk_worker_id for person in people])),
            **{name: answers[name] for name in ("label", "outcome", "role", "usable")},
            **masks,
            "active_ms": active_ms,
            **{
                question.column: _texts(session, environment, keys, question.name)
                for question in questions
                if with_texts and not question.choices
            },
        },
    )


def proposal_columns(session: Session, *, run_id: int | None = None, withdrawn: bool = False) -> pd.DataFrame:
    """Who proposed what (``PROPOSALS``), in order: each pair, annotator and direction once, with its best rank.

    Args:
        run_id: in this run alone; None takes all.
        withdrawn: whether proposals of withdrawn annotators are among them, as for who proposed what was asked.
    """
    annotators = sorted(session.execute(select(StoredAnnotator.name, StoredAnnotator.id)).all())
    columns = (
        ProposalRow.pair_id,
        ProposalRow.annotator_id,
        case(*((ProposalRow.direction == way, place) for place, way in enumerate(Direction))),
        ProposalRow.rank,
    )
    # Exact for ids, which are far below 2^53.
    query = select(*columns, ProposalRow.run_id, ProposalRow.similarity)
    if run_id is not None:
        query = query.where(ProposalRow.run_id == run_id)
    numbers = number_columns(session, query, 6, np.float64)
    row, annotator, direction, rank, run = (column.astype(np.int64) for column in numbers[:5])
    code_of = np.zeros(max((id_ for _, id_ in annotators), default=0) + 1, np.int64)
    code_of[[id_ for _, id_ in annotators]] = np.arange(len(annotators))
    pairs, codes = _packed_pairs(session)[row], code_of[annotator]
    order = np.lexsort((run, rank, direction, codes, pairs))
    keys = np.stack([pairs[order], codes[order], direction[order]])
    best = order[(np.diff(keys, axis=1, prepend=-1) != 0).any(axis=0)]
    gone = frozenset() if withdrawn else withdrawn_names(session)
    if gone:
        best = best[~np.array([name in gone for name, _ in annotators])[codes[best]]]
    return frame(
        PROPOSALS,
        {
            "pair": pairs[best],
            "annotator": pd.Categorical.from_codes(
                codes[best], pd.Index([name for name, _ in annotators], dtype="str")
            ),
            "direction": direction[best],
            "rank": rank[best],
            "similarity": numbers[5][best],
        },
    )


def candidate_columns(session: Session, environment: Environment) -> pd.DataFrame:
    """What stands as a candidate on pages: ``pair``, ``batch``, and ``out`` where the page is or was posted."""
    out = case((Hit.state.in_([HitState.POSTED, HitState.CLOSED]), 1), else_=0)
    hits = number_columns(session, query_hits(environment, Hit.id, Hit.batch_id, out).order_by(Hit.id), 3)
    stands = f"SELECT hit_id, pair_id FROM hit_item WHERE role = '{PairRole.CANDIDATE}'"
    hit, row = number_columns(session, stands, 2)
    here = contains(hits[0], hit)  # joined here: by the database it takes four times as long
    _, batch, is_out = hits[:, np.searchsorted(hits[0], hit[here])]
    return pd.DataFrame(
        {"pair": _packed_pairs(session)[row[here]], "batch": batch, "out": is_out.astype(np.bool_)}
    )


def _packed_pairs(session: Session) -> Ints:
    """The packed pair in each row of pairs; 0 where there is none."""
    row, left, right = number_columns(session, "SELECT id, left_id, right_id FROM pair", 3)
    packed = np.zeros(int(row.max(initial=0)) + 1, np.int64)
    packed[row] = pack_ids(left, right)
    return packed


def rating_columns(session: Session) -> tuple[Ints, NDArray[np.float64]]:
    """CxC's ratings: packed pairs and scores."""
    image, caption, score = number_columns(session, rated_pairs(session), 3, np.float64)
    return pack_ids(image.astype(np.int64), caption.astype(np.int64)), score


def original_columns(session: Session, dataset_id: int) -> Ints:
    """Each caption with its own image, and other original positives, packed."""
    columns = (number_columns(session, query, 2) for query in original_pairs(dataset_id))
    return np.concatenate([pack_ids(*image_and_caption) for image_and_caption in columns])


_CHOICES = 64
"""In a number of a choice, the question counts by it; more than a question may have."""

_NO_TIME = "SELECT assignment_id, place FROM judgement WHERE active_ms = 0"


def _choices(questions: Sequence[Question]) -> Any:
    """Submission, place, and the number of a choice that was made there; one of several at a place a row."""
    numbers = [
        ((Rationale.kind == question.name) & (Rationale.value == value), number * _CHOICES + place)
        for number, question in enumerate(questions)
        for place, value in enumerate(question.values)
    ]
    return (
        select(JudgementRow.assignment_id, JudgementRow.place, case(*numbers, else_=-1))
        .join(JudgementRow, JudgementRow.id == Rationale.judgement_id)
        .where(Rationale.kind.in_([question.name for question in questions]))
    )


def _at(keys: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Where the submissions and places of these rows stand among the keys of answers, and the other columns of rows.

    Rows of another environment are left out.
    """
    row_keys = rows[0] * _PLACES + rows[1]
    if not len(keys):
        return np.empty(0, np.int64), rows[2:, :0]
    at = np.minimum(np.searchsorted(keys, row_keys), len(keys) - 1)
    here = keys[at] == row_keys
    return at[here], rows[2:, here]


def _texts(session: Session, environment: Environment, keys: Ints, question: str) -> pd.Categorical[str]:
    """What was written in answer to a question at these places; several remarks at one are lines of one text."""
    query = (
        query_submissions(environment, JudgementRow.assignment_id, JudgementRow.place, Rationale.value)
        .join(JudgementRow, JudgementRow.assignment_id == Assignment.id)
        .join(Rationale, Rationale.judgement_id == JudgementRow.id)
        .where(Rationale.kind == question)
        .order_by(Rationale.id)
    )
    written: dict[int, str] = {}
    for assignment, place, text in session.execute(query):
        key = assignment * _PLACES + place
        written[key] = f"{written[key]}\n{text}" if key in written else text
    shown = contains(keys, np.fromiter(written, np.int64))
    written = {key: written[key] for key in compress(written, shown)}
    texts = sorted(set(written.values()))
    code = {text: n for n, text in enumerate(texts)}
    codes = np.full(len(keys), NONE, np.int32)
    codes[np.searchsorted(keys, list(written))] = [code[text] for text in written.values()]
    return pd.Categorical.from_codes(codes, pd.Index(texts))

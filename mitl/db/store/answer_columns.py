"""Every answer of an environment as columns: what half a million of them say together, read in one go."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from mitl.db.store import answer_sheets as sheets
from mitl.db.store.answer_sheets import LABELS, NO_LABEL, OUTCOMES, ROLES
from mitl.db.store.packed_rows import number_columns
from mitl.records import Environment, Outcome

__all__ = ["LABELS", "NO_LABEL", "OUTCOMES", "ROLES", "AnswerColumns", "answer_columns"]

Ints = NDArray[np.int64]
Codes = NDArray[np.int8]
Flags = NDArray[np.bool_]

_GOLD = np.array([role.is_gold for role in ROLES])


@dataclass(frozen=True, slots=True)
class AnswerColumns:
    """Answers by submission and place; each column (answers,)."""

    assignment: Ints
    hit: Ints
    worker: Ints
    """Rows in the database, as those of submissions, HITs and pairs."""
    pair: Ints
    place: Ints
    """On the page, from 1."""
    role: Codes
    label: Codes
    """-1 unless answered."""
    outcome: Codes
    active_ms: Ints
    """0 where nothing was measured."""
    usable: Flags

    def __len__(self) -> int:
        return len(self.assignment)

    @property
    def is_gold(self) -> Flags:
        """Whether the answer is on a gold control."""
        return np.asarray(_GOLD[self.role], np.bool_)

    @property
    def is_given(self) -> Flags:
        """Whether a label was given to a pair that is no control."""
        answered = self.outcome == OUTCOMES.index(Outcome.ANSWERED)
        return np.asarray((self.label != NO_LABEL) & answered & ~self.is_gold, np.bool_)


def answer_columns(session: Session, environment: Environment) -> AnswerColumns:
    """All answers; their HITs' and workers' rows are joined here, which takes a tenth of what it takes the database."""
    submissions = number_columns(session, _submissions(environment), 3)
    submissions = submissions[:, np.argsort(submissions[0], kind="stable")]
    assignment, pair, word = sheets.read(session, submissions[0])
    at = np.searchsorted(submissions[0], assignment)
    return AnswerColumns(
        assignment=assignment,
        hit=submissions[1][at],
        worker=submissions[2][at],
        pair=pair,
        place=word % sheets.ACTIVE_MS // sheets.PLACE,
        role=(word % sheets.PLACE // sheets.ROLE).astype(np.int8),
        label=(word % sheets.ROLE // sheets.LABEL + NO_LABEL).astype(np.int8),
        outcome=(word % sheets.LABEL // sheets.OUTCOME).astype(np.int8),
        active_ms=word // sheets.ACTIVE_MS,
        usable=word % 2 == 1,
    )


def _submissions(environment: Environment) -> str:
    return (
        "SELECT a.id, a.hit_id, a.worker_id FROM assignment a JOIN worker w ON w.id = a.worker_id "
        f"WHERE w.environment = '{environment.value}'"
    )

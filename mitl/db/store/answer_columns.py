"""Every answer of an environment as columns: what half a million of them say together, read in one go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from mitl.db.store.packed_rows import number_columns
from mitl.records import Environment, Label, Outcome, PairRole

Ints = NDArray[np.int64]
Codes = NDArray[np.int8]
Flags = NDArray[np.bool_]

LABELS, OUTCOMES, ROLES = tuple(Label), tuple(Outcome), tuple(PairRole)
"""What the codes stand for."""
NO_LABEL = -1
_CANDIDATE = ROLES.index(PairRole.CANDIDATE)
_GOLD = np.array([role.is_gold for role in ROLES])
_PLACES = 1 << 16
_MS = 1 << 24


@dataclass(frozen=True, slots=True)
class AnswerColumns:
    """Answers by submission and place; each column (answers,)."""

    assignment: Ints
    hit: Ints
    worker: Ints
    """Rows in the database, as those of submissions, HITs and pairs."""
    pair: Ints
    role: Codes
    label: Codes
    """-1 unless answered."""
    outcome: Codes
    active_ms: Ints
    """0 where nothing was measured."""
    usable: Flags
    special_hit: Ints
    special_role: Codes
    """What stands on HITs beside candidates, answered or not; each (places,)."""

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
    special = number_columns(session, _SPECIAL, 3)
    special = special[:, np.argsort(special[0] * _PLACES + special[1], kind="stable")]
    rows = number_columns(session, _JUDGEMENTS, 3)
    at, known = _find(submissions[0], rows[0])
    if not known.all():
        rows, at = rows[:, known], at[known]
    place = rows[2] // 256 % _PLACES
    order = np.argsort(rows[0] * _PLACES + place, kind="stable")
    rows, at, place = rows[:, order], at[order], place[order]
    hit = submissions[1][at]
    beside, is_special = _find(special[0] * _PLACES + special[1], hit * _PLACES + place)
    role = np.full(len(hit), _CANDIDATE, np.int8)
    role[is_special] = special[2][beside[is_special]]
    return AnswerColumns(
        assignment=rows[0],
        hit=hit,
        worker=submissions[2][at],
        pair=rows[1],
        role=role,
        label=(rows[2] // 16 % 16 - 1).astype(np.int8),
        outcome=(rows[2] // 2 % 8).astype(np.int8),
        active_ms=rows[2] // _MS,
        usable=rows[2] % 2 == 1,
        special_hit=special[0],
        special_role=special[2].astype(np.int8),
    )


def _find(known: Ints, wanted: Ints) -> tuple[Ints, Flags]:
    """Where each wanted value stands among the known ones, which ascend, and whether it does at all."""
    if not len(known):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return at, known[at] == wanted


def _place(column: str, values: Sequence[StrEnum]) -> str:
    """The place of a stored value in its enum, told by the database."""
    cases = " ".join(f"WHEN '{value}' THEN {place}" for place, value in enumerate(values))
    return f"CASE {column} {cases} ELSE {NO_LABEL} END"


def _submissions(environment: Environment) -> str:
    return (
        "SELECT a.id, a.hit_id, a.worker_id FROM assignment a JOIN worker w ON w.id = a.worker_id "
        f"WHERE w.environment = '{environment.value}'"
    )


_SPECIAL = f"SELECT hit_id, place, {_place('role', ROLES)} FROM hit_item WHERE role <> 'candidate'"
# All but the ids in one number, from the highest bits: time, place, label, outcome, whether it counts. A row costs by
# its values.
_JUDGEMENTS = f"""
    SELECT assignment_id, pair_id,
        coalesce(active_ms, 0) * CAST({_MS} AS BIGINT) + place * 256 + ({_place("label", LABELS)} + 1) * 16
        + {_place("outcome", OUTCOMES)} * 2 + CASE WHEN usable THEN 1 ELSE 0 END
    FROM judgement"""

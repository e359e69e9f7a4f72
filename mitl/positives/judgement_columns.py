"""Judgements as columns, for releases of millions of them; see ``Judgement`` for what each column means."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.positives.merge_columns import UNANSWERED
from mitl.proposals.packed import Ints, pack_ids
from mitl.records import Concept, Judgement, Outcome, PairRole, Shortcoming

UNMEASURED = -1
"""In the column of times: the page measured nothing."""
UNWRITTEN = -1
"""In the column of texts: the worker wrote nothing."""

Mask = NDArray[np.bool_]

_GOLD = np.array([role.is_gold for role in PairRole])
_ANSWERED = list(Outcome).index(Outcome.ANSWERED)
_REPEAT = list(PairRole).index(PairRole.REPEAT)


@dataclass(frozen=True, slots=True, eq=False)
class JudgementColumns:
    """One row per judgement, all columns (n,)."""

    pairs: Ints
    """Packed, see :mod:`mitl.proposals.packed`."""
    worker: NDArray[np.int32]
    """Places in ``workers``."""
    workers: tuple[str, ...]
    label: NDArray[np.int8]
    """Places of ``Label``; ``UNANSWERED`` where there is none."""
    outcome: NDArray[np.int8]
    """Places of ``Outcome``."""
    role: NDArray[np.int8]
    """Places of ``PairRole``."""
    usable: Mask
    shortcomings: NDArray[np.int16]
    """A bit for each place of ``Shortcoming``."""
    concepts: NDArray[np.int16]
    """A bit for each place of ``Concept``."""
    active_ms: Ints
    """``UNMEASURED`` where the page measured nothing."""
    text: NDArray[np.int32] | None = None
    """Places in ``texts``, ``UNWRITTEN`` where there is none; None where nobody asked for texts."""
    texts: tuple[str, ...] = ()
    """Distinct and ascending."""

    def __post_init__(self) -> None:
        assert len({len(column) for column in self._columns().values()}) == 1, (
            "a row per judgement everywhere"
        )

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def gold(self) -> Mask:
        """Answers on controls."""
        return _GOLD[self.role]

    @property
    def given(self) -> Mask:
        """Answered, and not set aside."""
        return np.asarray(self.usable & (self.outcome == _ANSWERED) & (self.label != UNANSWERED))

    @property
    def repeat(self) -> Mask:
        """Pairs that filled a last page."""
        return np.asarray(self.role == _REPEAT)

    @property
    def counting(self) -> Mask:
        """As ``counts_for_pair``: usable, answered, and no gold control."""
        return self.given & ~self.gold

    def take(self, rows: NDArray[np.integer] | Mask) -> JudgementColumns:
        """These rows alone."""
        taken: dict[str, Any] = {name: column[rows] for name, column in self._columns().items()}
        return replace(self, **taken)

    def _columns(self) -> dict[str, NDArray[Any]]:
        """By name, those that are there."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: column for name, column in columns.items() if isinstance(column, np.ndarray)}

    @classmethod
    def from_records(cls, judgements: Iterable[Judgement]) -> JudgementColumns:
        """The columns of records, in their order."""
        rows = list(judgements)
        workers = tuple(sorted({row.worker for row in rows}))
        place = {worker: code for code, worker in enumerate(workers)}
        ids = np.array([(row.pair.image_id, row.pair.caption_id) for row in rows], np.int64).reshape(-1, 2)
        return cls(
            pairs=pack_ids(ids[:, 0], ids[:, 1]),
            worker=np.array([place[row.worker] for row in rows], np.int32),
            workers=workers,
            label=np.array(
                [UNANSWERED if row.label is None else row.label.code - 1 for row in rows], np.int8
            ),
            outcome=np.array([_place(row.outcome) for row in rows], np.int8),
            role=np.array([_place(row.role) for row in rows], np.int8),
            usable=np.array([row.usable for row in rows], np.bool_),
            shortcomings=np.array([bits(row.shortcomings) for row in rows], np.int16),
            concepts=np.array([bits(row.concepts) for row in rows], np.int16),
            active_ms=np.array(
                [UNMEASURED if row.active_ms is None else row.active_ms for row in rows], np.int64
            ),
        )


def bits(values: Iterable[Shortcoming | Concept]) -> int:
    """A bit for each value's place in its enum."""
    return sum({1 << _place(value) for value in values})


def from_bits(mask: int, enum: type[StrEnum]) -> list[StrEnum]:
    """The values whose bits are set, in the enum's order."""
    return [value for place, value in enumerate(enum) if mask >> place & 1]


def _place(value: StrEnum) -> int:
    return list(type(value)).index(value)

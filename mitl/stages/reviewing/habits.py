"""How each worker goes about it, from all answers of an environment; whatever was decided about them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from sqlalchemy.orm import Session

from mitl.crowd.golds import gold_state
from mitl.db.store import desk as desk_store
from mitl.db.store.columns import answer_columns
from mitl.judgements.conduct import (
    Agreement,
    Run,
    agreement_and_consistency,
    entropy_of_counts,
    label_counts,
    longest_runs,
    medians_s,
)
from mitl.judgements.gold_records import GoldState
from mitl.records import Environment, Label
from mitl.records.frames import LABELS, is_gold, is_labelled
from mitl.records.gold_rule import GoldRule


@dataclass(frozen=True, slots=True)
class Habit:
    """What one worker's answers say, whatever was decided about them."""

    answers: int = 0
    median_s: float | None = None
    """Active seconds on one pair."""
    run: Run | None = None
    entropy: float | None = None
    """Bits, 0 to 2."""
    shares: Mapping[Label, float] | None = None
    """Of the worker's answers."""
    agreement: Agreement | None = None
    """With others; None where nobody else answered the same pairs."""
    consistency: Agreement | None = None
    """With the worker's own earlier answers; None where no pair came twice."""


@dataclass(frozen=True, slots=True)
class Habits:
    """What all answers of an environment say; dear to gather, and the same until an answer comes."""

    of: Mapping[str, Habit]
    """By the worker's id on the requester API."""
    golds: GoldState
    answers: int
    """Places of pages that were read, answered or not."""
    median_s: float | None
    """Median of the workers' medians."""
    run: float | None
    """Median of the workers' longest runs."""
    entropy: float | None

    def others_s(self, worker: str) -> float | None:
        """Median of the other workers' medians."""
        return _usual(habit.median_s for other, habit in self.of.items() if other != worker)


def habits(session: Session, environment: Environment, rule: GoldRule) -> Habits:
    """Everyone's answers, looked at together."""
    every = answer_columns(session, environment)
    golds = gold_state(session, environment, rule, every)
    found = _all_habits(every, desk_store.worker_names(session, environment), golds)
    return Habits(
        of=found,
        golds=golds,
        answers=len(every),
        median_s=_usual(habit.median_s for habit in found.values()),
        run=_usual(habit.run.length for habit in found.values() if habit.run is not None),
        entropy=_usual(habit.entropy for habit in found.values()),
    )


def _all_habits(every: pd.DataFrame, names: Mapping[int, str], golds: GoldState) -> dict[str, Habit]:
    workers, code = np.unique(every["worker"], return_inverse=True)
    known = [names[row] for row in workers.tolist()]
    distrusted = np.array([golds.record(name).is_bad for name in known], np.bool_)
    given = is_labelled(every) & ~is_gold(every)
    assignment, pair, label, active_ms = (
        every[name].to_numpy() for name in ("assignment", "pair", "label", "active_ms")
    )
    medians = medians_s(code, active_ms)
    runs = longest_runs(code, assignment, label)
    counts = label_counts(code, label, len(known)).tolist()
    agreeing, consistent = agreement_and_consistency(code[given], pair[given], label[given], distrusted)
    return {
        name: _habit(
            dict(zip(LABELS, counts[place], strict=True)),
            median_s=medians.get(place),
            run=runs.get(place),
            agreement=agreeing.get(place),
            consistency=consistent.get(place),
        )
        for place, name in enumerate(known)
    }


def _habit(
    counts: Mapping[Label, int],
    *,
    median_s: float | None,
    run: Run | None,
    agreement: Agreement | None,
    consistency: Agreement | None,
) -> Habit:
    total = sum(counts.values())
    return Habit(
        answers=total,
        median_s=median_s,
        run=run,
        entropy=entropy_of_counts(counts.values()),
        shares={label: count / total if total else 0.0 for label, count in counts.items()},
        agreement=agreement,
        consistency=consistency,
    )


def _usual(values: Iterable[float | None]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return statistics.median(known) if known else None

"""Which controls are withdrawn, over columns: :func:`mitl.judgements.gold_records.withdrawn_golds` for millions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mitl.judgements.gold_records import GOOD_MEAN, MIN_FAILURES_TO_WITHDRAW, MIN_GOLDS

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class GoldColumns:
    """What the controls say; workers and controls are codes from 0."""

    passes: Ints
    """(workers,): controls passed, those withdrawn apart."""
    golds: Ints
    """(workers,): controls answered, those withdrawn apart."""
    withdrawn: Mask
    """(controls,)."""


def gold_columns(worker: Ints, gold: Ints, passed: Mask, *, n_workers: int, n_golds: int) -> GoldColumns:
    """Withdrawn controls and the records without them, as `withdrawn_golds` and `gold_records` find them.

    Args:
        worker, gold: (n,) codes, a row for each control that was answered.
        passed: (n,) whether the answer was the expected one.
    """
    withdrawn = np.zeros(n_golds, np.bool_)
    found = withdrawn_columns(worker, gold, passed)
    withdrawn[: len(found)] = found
    trusted = ~withdrawn[gold]
    golds = np.bincount(worker[trusted], minlength=n_workers)
    return GoldColumns(np.bincount(worker[trusted & passed], minlength=n_workers), golds, withdrawn)


def withdrawn_columns(worker: Ints, control: Ints, passed: Mask) -> Mask:
    """(controls,) whether each control is withdrawn.

    Args:
        worker, control: (n,) codes from 0, a row for each control that was answered; every control has a row.
        passed: (n,) whether the answer was the expected one.
    """
    n_controls, n_workers = int(control.max(initial=-1)) + 1, int(worker.max(initial=-1)) + 1
    failures = np.bincount(control[~passed], minlength=n_controls)
    # Few controls fail more than once, and no other can be withdrawn.
    doubtful = failures >= MIN_FAILURES_TO_WITHDRAW
    withdrawn = np.zeros(n_controls, np.bool_)
    while True:
        counting = ~withdrawn[control]
        golds = np.bincount(worker[counting], minlength=n_workers)
        passes = np.bincount(worker[counting & passed], minlength=n_workers)
        tried = counting & doubtful[control]
        met, place = np.unique(control[tried] * n_workers + worker[tried], return_inverse=True)
        own_golds = np.bincount(place, minlength=len(met))
        own_passes = np.bincount(place[passed[tried]], minlength=len(met))
        who, which = met % max(n_workers, 1), met // max(n_workers, 1)
        good = _is_good(passes[who] - own_passes, golds[who] - own_golds)
        n_good = np.bincount(which[good], minlength=n_controls)
        n_failed = np.bincount(which[good & (own_passes < own_golds)], minlength=n_controls)
        added = (n_failed >= MIN_FAILURES_TO_WITHDRAW) & (2 * n_failed >= n_good)
        if not added.any():
            return withdrawn
        withdrawn |= added


def _is_good(passes: Ints, golds: Ints) -> Mask:
    """As ``GoldRecord.is_good``, in whole numbers."""
    mean_is_good = GOOD_MEAN.denominator * (2 * passes + 1) >= GOOD_MEAN.numerator * 2 * (golds + 1)
    return np.asarray((golds >= MIN_GOLDS) & mean_is_good)

"""Krippendorff's alpha: agreement of any number of people on any share of the items, corrected for chance.

Source: Krippendorff, Content Analysis, 4th edition, chapter 12; Computing Krippendorff's Alpha-Reliability, 2011.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mitl.core.arrays import Floats, distinct
from mitl.core.formats import rounded
from mitl.core.statistics import percentile_interval
from mitl.judgements.answer_table import POSITIVE_LABELS, UNKNOWN, AnswerTable, answer_table
from mitl.records.frames import counts as that_count

if TYPE_CHECKING:
    import pandas as pd

Counts = NDArray[np.int64]

REPLICATES = 1000
INTERVAL = 0.95
FEWEST_UNITS = 10
"""With fewer, resampling says little: the interval would look surer than it is."""
_CHUNK = 1 << 18
_ROUNDING = 1e-12
"""Part of a sum of squares that may be left of none."""


class Scale(StrEnum):
    """What the distance of two values means."""

    NOMINAL = "nominal"
    """Equal or not."""
    ORDINAL = "ordinal"
    """By the answers that lie between."""
    INTERVAL = "interval"
    """By the squared difference of the values."""


@dataclass(frozen=True, slots=True)
class Alpha:
    """An estimate of agreement, or why there is none."""

    alpha: float | None
    """1 is perfect, 0 what chance gives."""
    low: float | None
    """Lower end of the bootstrap interval over the items; None for fewer than ``FEWEST_UNITS`` of them, or where too
    few replicates can be estimated."""
    high: float | None
    units: int
    """Items with answers of two people or more."""
    answers: int
    """Their answers."""
    reason: str = ""
    """Why ``alpha`` is None, for people."""


def table_alpha(
    table: AnswerTable, scale: Scale = Scale.ORDINAL, *, replicates: int = REPLICATES, seed: int = 0
) -> Alpha:
    """Agreement between the workers of a table.

    A worker who answered an item more than once counts with the first answer: alpha is about people, and
    nobody is a second person. Known items (gold controls) are left out: they are easier than others, and
    everybody meets them.
    """
    first = np.ones(len(table), dtype=bool)
    first[1:] = (np.diff(table.item) != 0) | (np.diff(table.worker) != 0)
    first &= table.known[table.item] == UNKNOWN
    cells = table.item[first].astype(np.int64) * table.n_labels + table.label[first]
    patterns: dict[tuple[int, ...], int] = {}
    for counts in _blocks(cells, table.n_items, table.n_labels):
        rows, times = np.unique(counts[counts.sum(axis=1) > 1], axis=0, return_counts=True)
        for row, n in zip(rows.tolist(), times.tolist(), strict=True):
            patterns[tuple(row)] = patterns.get(tuple(row), 0) + n
    rows = np.array(sorted(patterns), dtype=np.int64).reshape(-1, table.n_labels)
    times = np.array([patterns[tuple(row)] for row in rows.tolist()], dtype=np.int64)
    return _estimate(rows, times, np.arange(table.n_labels), scale, replicates, seed)


def interval_alpha(scores: Floats, units: Counts, *, replicates: int = REPLICATES, seed: int = 0) -> Alpha:
    """Agreement of numbers that may take any value, on the interval scale.

    As of a table with ``Scale.INTERVAL``, without a column for each value: the squared differences of all answers of a
    unit sum to twice their number times their squares about the mean.

    Args:
        scores: (N,) answers; each person answers a unit once.
        units: (N,) what each is about.
        replicates: resamples of the units, of the same seed, for the interval.
    """
    codes = np.unique(units, return_inverse=True)[1]
    several = np.bincount(codes)[codes] > 1 if len(codes) else np.zeros(0, np.bool_)
    scores, codes = scores[several], np.unique(codes[several], return_inverse=True)[1]
    if not len(scores):
        return Alpha(None, None, None, 0, 0, "no item has answers of two people")
    n_units = int(codes.max()) + 1
    if np.ptp(scores) == 0:
        reason = "all answers are the same, so nothing shows whether people could have disagreed"
        return Alpha(None, None, None, n_units, len(scores), reason)
    about = scores - scores.mean()
    sizes = np.bincount(codes).astype(np.float64)
    sums, squares = np.bincount(codes, about), np.bincount(codes, about**2)
    within = sizes * (squares - sums**2 / sizes) / (sizes - 1)
    parts = np.stack([sizes, sums, squares, within], axis=1)  # (units, 4)
    alpha = float(_interval_alphas(parts.sum(axis=0)[None])[0])
    rng = np.random.default_rng(seed)
    drawn = np.stack([parts[rng.integers(n_units, size=n_units)].sum(axis=0) for _ in range(replicates)])
    low, high = _bounds(_interval_alphas(drawn), n_units)
    return Alpha(alpha, low, high, n_units, len(scores))


def _interval_alphas(totals: Floats) -> Floats:
    """(B,) alpha of (B, 4) answers, their sums and squares, and the squares within units; NaN where all are equal."""
    answers, sums, squares, within = totals.T
    by_chance = squares - sums**2 / answers
    with np.errstate(invalid="ignore", divide="ignore"):
        alphas: Floats = 1 - (answers - 1) * within / (answers * by_chance)
    return np.where(by_chance > _ROUNDING * squares, alphas, np.nan)


def _bounds(bootstrap: Floats, units: int) -> tuple[float, float] | tuple[None, None]:
    """The interval of the replicates, of which those that could not be estimated are NaN."""
    estimated = bootstrap[~np.isnan(bootstrap)]
    if units < FEWEST_UNITS or len(estimated) < len(bootstrap) / 2 or not len(estimated):
        return None, None
    return percentile_interval(estimated, INTERVAL, units)


def _blocks(cells: Counts, n_items: int, n_labels: int) -> Iterator[Counts]:
    for start in range(0, n_items, _CHUNK):
        stop = min(start + _CHUNK, n_items)
        first, last = np.searchsorted(cells, [start * n_labels, stop * n_labels])
        counted = np.bincount(cells[first:last] - start * n_labels, minlength=(stop - start) * n_labels)
        yield counted.reshape(-1, n_labels)


def _estimate(
    rows: Counts, times: Counts, values: NDArray[np.generic], scale: Scale, replicates: int, seed: int
) -> Alpha:
    """From distinct rows of counts, each of two answers or more, and how many units have each."""
    units, sizes = int(times.sum()), rows.sum(axis=1)
    answers = int((times * sizes).sum())
    if not units:
        return Alpha(None, None, None, 0, 0, "no item has answers of two people")
    if np.count_nonzero(times @ rows) < 2:
        reason = "all answers are the same, so nothing shows whether people could have disagreed"
        return Alpha(None, None, None, units, answers, reason)
    # (rows, values × values) the ordered pairs of answers of different people, each unit weighing its answers.
    pairs = rows[:, :, None] * rows[:, None, :].astype(np.float64)
    diagonal = np.arange(rows.shape[1])
    pairs[:, diagonal, diagonal] -= rows
    pairs = (pairs / (sizes - 1)[:, None, None]).reshape(len(rows), -1)
    alpha = _alphas(times[None], rows, pairs, values, scale)[0]
    drawn = np.random.default_rng(seed).multinomial(units, times / units, size=replicates)
    low, high = _bounds(_alphas(drawn, rows, pairs, values, scale), units)
    return Alpha(float(alpha), low, high, units, answers)


def _alphas(times: Counts, rows: Counts, pairs: Floats, values: NDArray[np.generic], scale: Scale) -> Floats:
    """(B,) alpha for each (B, rows) of multiplicities; NaN where only one value is left."""
    n_values = rows.shape[1]
    observed = (times @ pairs).reshape(-1, n_values, n_values)
    totals = (times @ rows).astype(np.float64)  # (B, values)
    distance = _distances(totals, values, scale)
    n = totals.sum(axis=1)
    expected = totals[:, :, None] * totals[:, None, :]
    disagreement = (observed * distance).sum(axis=(1, 2)) * (n - 1)
    by_chance = (expected * distance).sum(axis=(1, 2))
    with np.errstate(invalid="ignore", divide="ignore"):
        alphas: Floats = np.where(by_chance > 0, 1 - disagreement / by_chance, np.nan)
    return alphas


def _distances(totals: Floats, values: NDArray[np.generic], scale: Scale) -> Floats:
    """(B, values, values) squared distances; on the ordinal scale they follow the totals."""
    n_values = totals.shape[1]
    if scale is Scale.NOMINAL:
        return np.broadcast_to(1 - np.eye(n_values), (len(totals), n_values, n_values))
    if scale is Scale.INTERVAL:
        line = values.astype(np.float64)
        return np.broadcast_to((line[:, None] - line) ** 2, (len(totals), n_values, n_values))
    middle = totals.cumsum(axis=1) - totals / 2  # where a value's answers lie in the order of all
    squared: Floats = (middle[:, :, None] - middle[:, None, :]) ** 2
    return squared


@dataclass(frozen=True, slots=True)
class PairAgreement:
    """Agreement on the pairs that two people or more answered, gold controls left out."""

    alpha: Alpha
    """Ordinal: a step on the scale of four weighs by the answers that lie between."""
    same_label: int
    """Pairs on which all answers are the same."""
    same_side: int
    """Pairs on which all are positive or all negative."""

    @property
    def pairs(self) -> int:
        """Pairs with usable answers of two people or more."""
        return self.alpha.units

    @property
    def has_interval(self) -> bool:
        """Whether the bootstrap gave one."""
        return self.alpha.low is not None and self.alpha.high is not None

    def as_json(self) -> dict[str, object]:
        """The figures for the manifest; ``alpha`` is null where it cannot be estimated."""
        return {
            "alpha": rounded(self.alpha.alpha),
            "alpha_low": rounded(self.alpha.low),
            "alpha_high": rounded(self.alpha.high),
            "pairs": self.pairs,
            "answers": self.alpha.answers,
            "same_label": self.same_label,
            "same_side": self.same_side,
        }


def pair_agreement(judgements: pd.DataFrame) -> PairAgreement:
    """Agreement among the usable answers; a worker who answered a pair twice counts once.

    The rows may come in any order.
    """
    counting = judgements[that_count(judgements)]
    pairs, label = counting["pair"].to_numpy(), counting["label"].to_numpy()
    worker = counting["worker"].cat.codes.to_numpy()
    # By label last: which of somebody's two answers counts must not depend on the order of the rows.
    order = np.lexsort((label, worker, pairs))
    table = answer_table(
        np.searchsorted(distinct(pairs), pairs[order]),
        worker[order],
        label[order],
        n_workers=len(judgements["worker"].cat.categories),
    )
    same_label = same_side = 0
    if len(table):
        first = np.append(True, (np.diff(table.item) != 0) | (np.diff(table.worker) != 0))
        item, given = table.item[first], table.label[first]
        starts = np.flatnonzero(np.append(True, np.diff(item) != 0))
        several = np.diff(np.append(starts, len(item))) > 1
        low, high = np.minimum.reduceat(given, starts)[several], np.maximum.reduceat(given, starts)[several]
        same_label = int((low == high).sum())
        same_side = int(((low < POSITIVE_LABELS) == (high < POSITIVE_LABELS)).sum())
    return PairAgreement(table_alpha(table), same_label, same_side)

"""How raters go about it: one number for all, straight lines, drift, controls, time. Evidence, never a verdict.

What a rater does is compared with what others said of the same pairs, or with the same answers in random order, so that
a batch of pairs that are all alike accuses nobody. A rule fires where something is both unlikely by chance and large.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mitl.core.arrays import Flags, Floats, Ints, spans
from mitl.core.formats import percent
from mitl.judgements.gold_records import GoldRecord
from mitl.judgements.rating_tests import (
    ASKED,
    CHANCE,
    IDENTICAL,
    MOST_APART,
    RANDOM,
    Drift,
    Row,
    apart,
    chance_of_at_least,
    drift,
    passes,
    rows,
    untrusted,
)
from mitl.records import Finding
from mitl.records.frames import NONE
from mitl.records.similarity import SimilarityRole

NEAR = 0.05
"""Around one value: half of what an arrow key moves the slider by; a tenth of a level is one number."""
MIN_SCORES = 10
"""From which one number, and a row of equal answers, tell something: a usual page."""
HALF = 0.5
"""Share of scores in one place from which on somebody may have given one number; it need not be all of them."""
SNAP = 0.5
"""Who answers by whole levels moves scores by so much: others' scores are counted as far from the value as that."""
EXCESS = 0.3
"""Above the others' share on the same pairs. A batch of images with their own captions, of mean 4.85 in CxC, gets 5.00
almost throughout from an honest rater too."""
ALONE = 0.95
"""Share from which on one number shows where nobody else rated the same pairs: with a random control on each page of
ten, at most nine of ten honest scores are alike."""

BINS = 10
"""Half levels of the scale."""

ONE_NUMBER, STRAIGHT_LINE, DRIFTS, CONTROLS = (
    "one_number_rater",
    "straight_line",
    "drift",
    "rating_controls",
)
_NONE = GoldRecord()
Arrays = dict[str, NDArray[Any]]
"""Column → its values; a frame takes longer to cut for each rater than all that is reckoned."""


@dataclass(frozen=True, slots=True)
class OneNumber:
    """The value that most scores of a rater lie within 0.05 of."""

    value: float
    n_near: int
    n_scores: int
    spread: float
    """Standard deviation of the scores."""
    others: float | None
    """Share of the others' scores on the same pairs that lie within half a level of it; None where nobody else rated
    them."""

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.n_near / self.n_scores

    @property
    def is_marked(self) -> bool:
        """Half of the scores or more in one place, 30 points more than others put there, by chance in 1 of 1,000.

        The chance is of a binomial with the others' mean share, which is no less than that of unequal shares
        (Hoeffding, Annals of Mathematical Statistics 1956, theorem 4); one pair more is reckoned on which all agree.
        """
        if self.n_scores < MIN_SCORES:
            return False
        if self.others is None:
            return self.share >= ALONE
        expected = (self.others * self.n_scores + 1) / (self.n_scores + 1)
        return (
            self.share >= max(HALF, self.others + EXCESS)
            and chance_of_at_least(self.n_near, self.n_scores, expected) < CHANCE
        )

    @property
    def text(self) -> str:
        """In words."""
        beside = (
            ""
            if self.others is None
            else f"; others put {percent(self.others, 0)} within {SNAP:g} of it on the same pairs"
        )
        return (
            f"{percent(self.share, 0)} of {self.n_scores:,} scores lie within {NEAR:g} of {self.value:.2f}{beside}; "
            f"standard deviation {self.spread:.2f}"
        )


@dataclass(frozen=True, slots=True)
class ControlsMet:
    """Of each kind of control, how many were rated and how many as they should be."""

    identical: GoldRecord = _NONE
    random: GoldRecord = _NONE
    repeated: GoldRecord = _NONE

    @property
    def all(self) -> GoldRecord:
        """Together."""
        kinds = (self.identical, self.random, self.repeated)
        return GoldRecord(sum(kind.passes for kind in kinds), sum(kind.golds for kind in kinds))

    @property
    def is_marked(self) -> bool:
        """Whether the record is bad by the same test as one on pages of pairs (`GoldRecord.is_bad`)."""
        return self.all.is_bad

    @property
    def text(self) -> str:
        """In words."""
        kinds = {"identical": self.identical, "random": self.random, "repeated": self.repeated}
        parts = ", ".join(
            f"{name} {kind.passes} of {kind.golds}" for name, kind in kinds.items() if kind.golds
        )
        return f"passed {self.all.passes} of {self.all.golds} controls{f' ({parts})' if parts else ''}"


@dataclass(frozen=True, slots=True)
class RatingConduct:
    """What one rater's answers say, controls apart unless named, whatever was decided about them."""

    n: int
    """Scores given to pairs that were asked."""
    one_number: OneNumber
    line: Row | None
    """The most striking row of answers that repeat; None where no two answers can be compared."""
    drift: Drift | None
    """None where others rated too few of the same pairs."""
    offset: float | None
    """Mean of score minus the others' median of the pair; positive where the rater scores higher."""
    controls: ControlsMet
    median_s: float | None
    """Active seconds on one pair."""
    speed: float | None
    """Their median over the usual time of the task; 1 is usual."""
    residuals: tuple[float, ...] = ()
    """Score minus the others' median, in the order of answering, where others rated the pair."""
    shares: tuple[float, ...] = ()
    """Of the scores in each half level from 0 to 5."""
    others_shares: tuple[float, ...] = ()
    """The same of the others' scores on these pairs; empty where there are none."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What a person should look at, in words; empty for most raters."""
        marked = (
            (ONE_NUMBER, self.one_number),
            (STRAIGHT_LINE, self.line),
            (DRIFTS, self.drift),
            (CONTROLS, self.controls),
        )
        return tuple(Finding(code, what.text) for code, what in marked if what is not None and what.is_marked)

    @property
    def text(self) -> str:
        """In one line, whether or not anything is wrong."""
        parts = [self.one_number.text]
        if self.offset is not None:
            parts.append(f"{self.offset:+.2f} beside the others on the same pairs")
        if self.drift is not None:
            parts.append(f"drift {self.drift.change:+.2f} from first to last")
        parts.append(self.controls.text)
        if self.median_s is not None:
            parts.append(f"{self.median_s:.1f} s a pair")
        return "; ".join(parts)


def rating_conduct(ratings: pd.DataFrame) -> dict[str, RatingConduct]:
    """Rater → what their answers say; nobody who gave no score to a pair that was asked.

    Everybody is compared with those of whom nothing is marked beside all others: who drifts among five would else make
    the others seem to drift the other way.

    Args:
        ratings: ``RATINGS`` in any order; every submission counts, also one that waits for a decision, and of the
            others' too. At least all ratings of the pairs that the raters of interest have rated.
    """
    if ratings.empty:
        return {}  # most projects rate nothing, and each look at their workers passes here
    in_order = ratings.sort_values(["assignment", "place"], kind="stable")
    who, names = pd.factorize(in_order["worker"].astype(str), sort=True)
    role = np.where(untrusted(in_order), NONE, in_order["role"])
    known = in_order.assign(worker=who, role=role)
    answered = known[known["score"].notna()]
    twice = apart(answered)  # once: a merge for each rater takes longer than all the rest
    met = (twice["apart"] <= MOST_APART).groupby(twice["worker"]).agg(["sum", "size"])
    repeated = {int(worker): GoldRecord(int(passes), int(n)) for worker, passes, n in met.itertuples()}
    first = _compared(answered, repeated)
    odd = {worker for worker, conduct in first.items() if conduct.findings}
    again = first
    if odd and odd != set(first):
        is_odd = answered["worker"].isin(odd)
        again = _compared(answered[~is_odd], repeated)
        for worker in odd:
            again |= _compared(answered[~is_odd | (answered["worker"] == worker)], repeated, worker)
    # Whom nobody is left to be compared with stays as they were.
    return {
        names[worker]: again[worker] if again[worker].residuals else conduct
        for worker, conduct in first.items()
    }


def _compared(
    answered: pd.DataFrame, repeated: Mapping[int, GoldRecord], only: int | None = None
) -> dict[int, RatingConduct]:
    """Each rater beside all others of the table; ``only`` one of them where one is named.

    Args:
        answered: ``RATINGS`` that have a score, with workers by number.
        repeated: worker → on repeated pairs.
    """
    measured = answered["active_ms"].where(answered["active_ms"] > 0)
    usual = measured.groupby(answered["task"]).transform("median")
    answered = answered.assign(active_ms=measured, relative=measured / usual)
    if only is not None:  # what is usual is so on all pairs, all else on those of the rater
        rated = answered.loc[answered["worker"] == only, "pair"]
        answered = answered[answered["pair"].isin(rated)]
    asked = answered[answered["role"] == ASKED]
    answered["residual"] = asked["score"] - _beside(asked)  # NaN for controls
    by_pair = _arrays(asked.sort_values("pair", kind="stable"))
    chosen = answered if only is None else answered[answered["worker"] == only]
    by_worker = _arrays(chosen.sort_values("worker", kind="stable"))
    workers, starts, lengths = np.unique(by_worker["worker"], return_index=True, return_counts=True)
    compared = {}
    for worker, start, end in zip(workers.tolist(), starts, starts + lengths, strict=True):
        every = _where(by_worker, slice(start, end))
        own = _where(every, every["role"] == ASKED)
        if len(own["score"]):
            compared[worker] = _conduct(own, every, _others(by_pair, own), repeated.get(worker, _NONE))
    return compared


def _arrays(table: pd.DataFrame) -> Arrays:
    return {str(name): table[name].to_numpy() for name in table}


def _where(columns: Arrays, rows: Flags | Ints | slice) -> Arrays:
    return {name: column[rows] for name, column in columns.items()}


def _others(by_pair: Arrays, own: Arrays) -> Arrays:
    """The scores of others on the pairs of one rater.

    Args:
        by_pair: everybody's, those of one pair together.
    """
    pairs, ordered = np.unique(own["pair"]), by_pair["pair"]
    at = spans(np.searchsorted(ordered, pairs), np.searchsorted(ordered, pairs, "right"))
    return _where(by_pair, at[by_pair["worker"][at] != own["worker"][0]])


def _beside(asked: pd.DataFrame) -> pd.Series:
    """The median of the others' scores on the pair of each rating; NaN where nobody else rated it.

    The median, since a mean lets one rater who drifts among five carry the others along. Of several scores that a rater
    gave to one pair the first stands for them.
    """
    first = asked.drop_duplicates(["pair", "worker"]).sort_values(["pair", "score"], kind="stable")
    score, pair = first["score"].to_numpy(), first["pair"].to_numpy()
    start, length = np.unique(pair, return_index=True, return_counts=True)[1:]
    of = np.repeat(np.arange(len(start)), length)
    left = length[of] - 1  # scores without one's own
    own = np.arange(len(score)) - start[of]
    middles = []
    for place in (np.maximum(left - 1, 0) // 2, left // 2):
        at = np.minimum(place + (place >= own), np.maximum(left, 0))  # one's own is passed over
        middles.append(score[start[of] + at])
    median = np.where(left > 0, (middles[0] + middles[1]) / 2, np.nan)
    known = pd.Series(median, pd.MultiIndex.from_frame(first[["pair", "worker"]]))
    return pd.Series(
        known.reindex(pd.MultiIndex.from_frame(asked[["pair", "worker"]])).to_numpy(), asked.index
    )


def _conduct(own: Arrays, every: Arrays, others: Arrays, repeated: GoldRecord) -> RatingConduct:
    """Of one rater.

    Args:
        own: the rater's scores of pairs that were asked; ``every``: with the controls.
        others: everybody else's scores of those pairs.
    """
    known = _where(own, ~np.isnan(own["residual"]))
    scores, residuals = known["score"], known["residual"]
    compared = rows(*(every[name] for name in ("score", "pair", "assignment", "place")))
    timed = _where(every, ~np.isnan(every["active_ms"]))
    is_timed = len(timed["active_ms"]) > 0
    return RatingConduct(
        n=len(own["score"]),
        one_number=_one_number(own, others),
        line=min(compared, key=lambda row: (row.p, row.lag), default=None),
        drift=drift(scores, scores - residuals),
        offset=float(residuals.mean()) if len(residuals) else None,
        controls=_controls(every, repeated),
        median_s=float(np.median(timed["active_ms"]) / 1000) if is_timed else None,
        speed=float(np.median(timed["relative"])) if is_timed else None,
        residuals=tuple(residuals.tolist()),
        shares=_half_levels(own["score"]),
        others_shares=_half_levels(others["score"]),
    )


def _one_number(own: Arrays, others: Arrays) -> OneNumber:
    """Over the pairs that others rated too, where there are enough of them; else over all."""
    pairs, code = np.unique(others["pair"], return_inverse=True)
    beside = _where(own, np.isin(own["pair"], pairs))
    is_beside = len(beside["score"]) >= MIN_SCORES
    scores = (beside if is_beside else own)["score"]
    cents = np.sort(np.rint(100 * scores).astype(np.int64))
    width = round(200 * NEAR)
    near = np.searchsorted(cents, cents + width, "right") - np.arange(len(cents))
    first = int(near.argmax())
    inside = cents[first : first + int(near[first])]
    there = None
    if is_beside:
        other = np.rint(100 * others["score"])
        wide = round(100 * (SNAP - NEAR))
        hits = (other >= cents[first] - wide) & (other <= cents[first] + width + wide)
        share = np.bincount(code, hits) / np.bincount(code)
        there = float(share[np.searchsorted(pairs, beside["pair"])].mean())
    return OneNumber(
        value=float(np.median(inside) / 100),
        n_near=len(inside),
        n_scores=len(cents),
        spread=float(scores.std()),
        others=there,
    )


def _controls(every: Arrays, repeated: GoldRecord) -> ControlsMet:
    role, score = every["role"], every["score"]
    return ControlsMet(
        identical=_record(passes(SimilarityRole.IDENTICAL, score[role == IDENTICAL])),
        random=_record(passes(SimilarityRole.RANDOM, score[role == RANDOM])),
        repeated=repeated,
    )


def _record(passed: Flags) -> GoldRecord:
    return GoldRecord(int(passed.sum()), len(passed))


def _half_levels(scores: Floats) -> tuple[float, ...]:
    """Shares of scores in [0, 0.5), [0.5, 1), … [4.5, 5]; empty without scores."""
    if not len(scores):
        return ()
    counts = np.bincount(np.minimum((2 * scores).astype(np.int64), BINS - 1), minlength=BINS)
    return tuple((counts / len(scores)).tolist())

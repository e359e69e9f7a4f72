"""Ratings of similarity taken together: which count, a score for each pair, how much people agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd

from mitl.core.arrays import Floats
from mitl.judgements.agreement import Alpha, interval_alpha
from mitl.judgements.intraclass import BoundedEstimate, OneWay, TwoWay, one_way, two_way
from mitl.judgements.rater_model import RaterModel, fit_raters
from mitl.records import Outcome
from mitl.records.frames import Schema, frame
from mitl.records.similarity import HIGHEST, LOWEST, SIMILARITY_ROLES, TASKS, Likeness, SimilarityRole

ENOUGH = 5
"""Ratings of a pair that CxC asks for."""
PSEUDO_RATINGS = 5
"""Ratings of an average rater that are added to everybody's before a mean and a spread are taken from them."""

SCORES: Schema = {
    "pair": ("int64", "row of the pair in the database; ascending and distinct"),
    "task": ("int8", "place in Likeness"),
    "score": ("float64", "0 to 5, by the method asked for; to the ninth decimal"),
    "n_ratings": ("int32", "ratings that count, 1 or more"),
    "sd": ("float64", "standard deviation of the ratings as given, with n - 1 below; NaN for a single one"),
}
"""Every pair with a rating that counts."""

LISTED: Schema = {
    "pair": ("int64", "row of the pair in the database"),
    "task": ("int8", "place in Likeness"),
    "first": ("int64", "the item that chose the other; of SITS the image; numbers are within their sides"),
    "second": ("int64", "the item that was chosen; of SITS the caption"),
    "method": ("int8", "place in SamplingMethod; the first that sampled the pair in this order"),
    "score": ("float64", "0 to 5, as in ``SCORES``; NaN without ratings"),
    "n_ratings": ("int32", "ratings that count"),
    "sd": ("float64", "as in ``SCORES``; NaN for fewer than two ratings"),
}
"""A row for each order in which a pair was sampled, as CxC lists them: by task, method, first and second item."""


class Aggregation(StrEnum):
    """How several ratings of a pair become one score."""

    MEAN = "mean"
    """The plain mean, as in CxC."""
    TRIMMED = "trimmed"
    """The mean without a fifth of the ratings at each end, rounded down: of five the middle three."""
    STANDARDISED = "standardised"
    """The mean of what each rating is among its rater's own, put back on the scale of all raters."""
    MODEL = "model"
    """Raters' offsets and scales, learned with the scores."""


@dataclass(frozen=True, slots=True)
class AggregatedRatings:
    """Scores, and how a model's fit ended."""

    scores: pd.DataFrame
    """``SCORES``."""
    fits: Mapping[Likeness, RaterModel]
    """Of the tasks that a model was fitted to; empty for methods that fit nothing."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why the scores should be taken with care."""
        return tuple(
            f"the model of {task.upper()} raters {fit.text}; its scores may still move a little, see --method mean"
            for task, fit in self.fits.items()
            if not fit.converged
        )


@dataclass(frozen=True, slots=True)
class RaterAgreement:
    """How much the raters of one task agree."""

    one_way: OneWay
    two_way: TwoWay
    alpha: Alpha
    """Krippendorff's, on the interval scale."""

    @property
    def estimates(self) -> dict[str, BoundedEstimate]:
        """All of it by short names: icc1, icc1k, icc2, icc2k, icc3, icc3k, alpha."""
        one, two, alpha = self.one_way, self.two_way, self.alpha
        return {
            "icc1": one.single,
            "icc1k": one.of_mean,
            "icc2": two.agreement,
            "icc2k": two.agreement_of_mean,
            "icc3": two.consistency,
            "icc3k": two.consistency_of_mean,
            "alpha": BoundedEstimate(alpha.alpha, alpha.low, alpha.high, alpha.reason),
        }

    @property
    def words(self) -> dict[str, str]:
        """What each of these is, for people."""
        ks = (self.one_way.k, self.two_way.k)
        one, two = (f"the mean of {k:.3g} ratings" if np.isfinite(k) else "a mean" for k in ks)
        return {
            "icc1": "ICC(1,1): one rating",
            "icc1k": f"ICC(1,k): {one}",
            "icc2": "ICC(2,1): one rating, among those of one page",
            "icc2k": f"ICC(2,k): {two}, among those of one page",
            "icc3": "ICC(3,1): one rating, but for what its rater always adds",
            "icc3k": f"ICC(3,k): {two}, in the same way",
            "alpha": "Krippendorff's alpha, interval scale",
        }


def counting(ratings: pd.DataFrame) -> pd.DataFrame:
    """The rows of ``RATINGS`` that count: answered, usable, no control, and one for each worker and pair.

    Of several ratings of one pair by one worker the first that came in counts. In order of pair, worker.
    """
    answered = ratings["outcome"] == tuple(Outcome).index(Outcome.ANSWERED)
    asked = ratings["role"] == SIMILARITY_ROLES.index(SimilarityRole.ASKED)
    kept = ratings[answered & asked & ratings["usable"] & ratings["score"].notna()]
    first = kept.sort_values(["assignment", "place"], kind="stable").drop_duplicates(["pair", "worker"])
    names = first["worker"].astype(str)
    return first.assign(worker=names.astype(pd.CategoricalDtype(sorted(names.unique())))).sort_values(
        ["pair", "worker"], kind="stable", ignore_index=True
    )


def aggregate(counted: pd.DataFrame, method: Aggregation = Aggregation.MEAN) -> AggregatedRatings:
    """One score for each pair that was rated.

    Args:
        counted: what :func:`counting` gives; each task is taken by itself.
    """
    fits: dict[Likeness, RaterModel] = {}
    parts = []
    for place, task in enumerate(TASKS):
        rated = counted[counted["task"] == place]
        if not len(rated):
            continue
        by_pair = rated.groupby("pair", sort=True)["score"]
        pairs, codes = np.unique(rated["pair"].to_numpy(), return_inverse=True)
        if method is Aggregation.TRIMMED:
            scores = _trimmed(rated)
        elif method is Aggregation.STANDARDISED:
            scores = _standardised(rated)
        elif method is Aggregation.MODEL:
            raters = np.unique(rated["worker"].cat.codes.to_numpy(), return_inverse=True)[1]
            fits[task] = fit_raters(rated["score"].to_numpy(), codes, raters)
            scores = fits[task].scores
        else:
            scores = by_pair.mean().to_numpy()
        parts.append(
            frame(
                SCORES,
                {
                    "pair": pairs,
                    "task": np.full(len(pairs), place),
                    # A mean of 3 may be a hair less in binary, and is to reach 3 where positives begin.
                    "score": np.round(np.clip(scores, LOWEST, HIGHEST), 9),
                    "n_ratings": by_pair.size().to_numpy(),
                    "sd": by_pair.std(ddof=1).to_numpy(),
                },
            )
        )
    if not parts:
        return AggregatedRatings(frame(SCORES, dict.fromkeys(SCORES, ())), fits)
    return AggregatedRatings(pd.concat(parts).sort_values("pair", ignore_index=True), fits)


def listed(samples: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """The sampled orders (``LISTED``) with their pairs' scores.

    Args:
        samples: ``SAMPLES``.
        scores: ``SCORES``; a pair that was sampled in both orders gives both the same.
    """
    orders = samples.drop_duplicates(["pair", "first", "second"])
    whole = orders[["pair", "task", "first", "second", "method"]].merge(
        scores.drop(columns="task"), on="pair", how="left"
    )
    whole = whole.assign(n_ratings=whole["n_ratings"].fillna(0))
    return frame(LISTED, {name: whole[name] for name in LISTED}).sort_values(
        ["task", "method", "first", "second"], ignore_index=True
    )


def agreement(rated: pd.DataFrame, *, seed: int = 0) -> RaterAgreement:
    """Agreement of the raters of one task.

    Args:
        rated: rows of :func:`counting` that are of one task.
        seed: of the bootstrap that gives the interval of alpha.
    """
    scores, pairs = rated["score"].to_numpy(np.float64), rated["pair"].to_numpy(np.int64)
    raters = rated["worker"].cat.codes.to_numpy().astype(np.int64)
    return RaterAgreement(
        one_way(scores, pairs), two_way(scores, pairs, raters), interval_alpha(scores, pairs, seed=seed)
    )


def _trimmed(rated: pd.DataFrame) -> Floats:
    """(P,) means of the inner ratings."""
    ordered = rated.sort_values(["pair", "score"], kind="stable")
    by_pair = ordered.groupby("pair", sort=True)["score"]
    sizes, places = by_pair.transform("size"), by_pair.cumcount()
    cut = sizes // 5
    inner = ordered[(places >= cut) & (places < sizes - cut)]
    return inner.groupby("pair", sort=True)["score"].mean().to_numpy(np.float64)


def _standardised(rated: pd.DataFrame) -> Floats:
    """Each rating in standard deviations from its rater's mean; the means of these with all raters' mean and spread.

    A rater's mean and variance are taken together with ``PSEUDO_RATINGS`` of the average rater's.
    """
    score = rated["score"]
    mean, variance = score.mean(), score.var(ddof=0)
    if variance == 0:
        return score.groupby(rated["pair"], sort=True).mean().to_numpy(np.float64)
    of_rater = rated.groupby("worker", observed=True)["score"]
    sizes = of_rater.transform("size")
    own = (of_rater.transform("sum") + PSEUDO_RATINGS * mean) / (sizes + PSEUDO_RATINGS)
    squares = ((score - own) ** 2).groupby(rated["worker"], observed=True).transform("sum")
    spread = np.sqrt((squares + PSEUDO_RATINGS * variance) / (sizes + PSEUDO_RATINGS))
    told = mean + np.sqrt(variance) * (score - own) / spread
    means: Floats = told.groupby(rated["pair"], sort=True).mean().to_numpy()
    return means

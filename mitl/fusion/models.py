"""The models that fuse features, how their output is calibrated, and how well it tells matches from the rest.

Model and calibration are chosen by log-loss on unread answers. Where there is a pilot alone, a probability for each
candidate is learned from annotators' ranks and similarities.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mitl.core.arrays import Floats, Ints
from mitl.core.statistics import expit, logistic
from mitl.errors import MetricError

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController


@dataclass(frozen=True, slots=True)
class Area:
    """The area under the receiver operating characteristic, and where it lies with a confidence of 95 %."""

    value: float
    """Chance that a match scores above a pair that is none, ties counted half."""
    low: float
    high: float
    positives: int
    negatives: int


_CONFIDENCE = 0.95


def area(scores: ArrayLike, truth: ArrayLike, clusters: ArrayLike) -> Area:
    """The area over pairs that hang together in clusters, such as the pairs of one image.

    The interval is normal on the scale of log-odds, with the variance between clusters, so that many pairs of few
    queries do not count as many. It is from 0 to 1 where nothing can be said: one cluster, or no error at all.

    Args:
        clusters: (n,), or (2, n) where pairs hang together in two ways, as by their image and by their caption.

    Raises:
        MetricError: all are matches or none is.

    Source: DeLong et al., Biometrics 1988; Obuchowski, Biometrics 1997 (clusters); Cameron, Gelbach and Miller, Journal
        of Business and Economic Statistics 2011 (two ways, never less than by one of them).
    """
    from scipy.special import ndtri
    from scipy.stats import rankdata

    score, true = np.asarray(scores, np.float64), np.asarray(truth, np.bool_)
    ways = [np.unique(way, return_inverse=True)[1] for way in np.atleast_2d(clusters)]
    m, n = int(true.sum()), int((~true).sum())
    if not m or not n:
        raise MetricError(f"of {m + n:,} pairs {m:,} are matches; an area under the curve needs both kinds")
    both, positives, negatives = rankdata(score), rankdata(score[true]), rankdata(score[~true])
    below = (both[true] - positives) / n  # of each match: share of the others that score less
    above = 1 - (both[~true] - negatives) / m
    value = float(below.mean())
    parts = np.empty(m + n)  # of each pair in the error of the area
    parts[true], parts[~true] = (below - value) / m, (above - value) / n

    def between(way: Ints) -> float:
        k = int(way.max()) + 1
        return k / max(k - 1, 1) * float((np.bincount(way, parts) ** 2).sum())

    if not all(way.any() for way in ways) or not 0 < value < 1:
        return Area(value, 0.0, 1.0, m, n)
    variance = max(map(between, ways))
    if len(ways) == 2:
        cells = np.unique(ways[0] * (ways[1].max() + 1) + ways[1], return_inverse=True)[1]
        variance = max(variance, sum(map(between, ways)) - between(cells))
    middle, wide = np.log(value / (1 - value)), float(ndtri((1 + _CONFIDENCE) / 2)) * np.sqrt(variance)
    ends = (middle + sign * wide / (value * (1 - value)) for sign in (-1, 1))
    low, high = (float(1 / (1 + np.exp(-end))) for end in ends)
    return Area(value, low, high, m, n)


def logits(probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log-odds of probabilities, bounded where they are 0 or 1."""
    p = np.clip(probability, 1e-6, 1 - 1e-6)
    log_odds: NDArray[np.float64] = np.log(p / (1 - p))
    return log_odds


Matrix = NDArray[np.float32]

SEED = 0
"""Of the trees' features and the network's weights."""
EXTRA = "fusion needs scikit-learn, which is not installed; pip install 'mitl[fusion]'"


class Predicts(Protocol):
    """A fitted model."""

    def predict_proba(self, X: Matrix) -> Floats:
        """(n, 2): the probability of no match and of a match."""
        ...


def _logistic() -> Any:
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(
        SimpleImputer(strategy="mean", keep_empty_features=True),
        StandardScaler(),
        LogisticRegression(C=0.1, max_iter=500),
    )


def _network() -> Any:
    from sklearn.impute import SimpleImputer
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(
        SimpleImputer(strategy="mean", keep_empty_features=True),
        StandardScaler(),
        MLPClassifier((64,), alpha=3.0, learning_rate_init=2e-3, random_state=SEED),
    )


def _boosted() -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(
        learning_rate=0.09,
        max_iter=100,
        max_leaf_nodes=12,
        min_samples_leaf=20,
        l2_regularization=5.0,
        max_features=0.5,
        early_stopping=False,
        random_state=SEED,
    )


BASES: Mapping[str, Callable[[], Any]] = {"logistic": _logistic, "boosted": _boosted, "network": _network}
CHOICES: Mapping[str, tuple[str, ...]] = {
    **{name: (name,) for name in BASES},
    "boosted and network": ("boosted", "network"),
    "all three": tuple(BASES),
}
"""What may be chosen: a base model, or the mean of the log-odds of several."""
EPOCHS = 20
"""Of the network: by then its loss on unread answers had stopped falling on generated worlds."""


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """Rows to learn from: each answered pair with how many said yes and how many no."""

    features: Matrix
    yes: Floats
    no: Floats

    def rows(self, chosen: NDArray[np.bool_]) -> Examples:
        """Some of them."""
        return Examples(self.features[chosen], self.yes[chosen], self.no[chosen])

    def log_loss(self, probability: Floats) -> float:
        """Mean loss over the answers, in nats."""
        p = np.clip(probability, 1e-6, 1 - 1e-6)
        return float(-(self.yes * np.log(p) + self.no * np.log(1 - p)).sum() / (self.yes + self.no).sum())


def fit(name: str, examples: Examples) -> Predicts:
    """A base model fitted to the examples; a pair that workers disagree on counts for both sides.

    Raises:
        MetricError: scikit-learn is not installed.
    """
    try:
        model = BASES[name]()
    except ModuleNotFoundError as error:
        raise MetricError(EXTRA) from error
    said = [(examples.yes, 1), (examples.no, 0)]
    if not all((weight > 0).any() for weight, _ in said):
        raise MetricError(
            "nearly all answers of one kind are on pairs of a few images, so what is learnt there cannot be tried on "
            "others; ask about pairs of more images"
        )
    features = np.concatenate([examples.features[weight > 0] for weight, _ in said])
    target = np.concatenate([np.full(int((weight > 0).sum()), label) for weight, label in said])
    weights = np.concatenate([weight[weight > 0] for weight, _ in said])
    # Threads within a fit wait for each other more than they bring, and would sum in other orders elsewhere.
    with _loaded().limit(limits=1, user_api="openmp"):
        if name == "boosted":
            # Weighted rows have their bins found one by one in Python, five sixths of a fit; so each answer is a row.
            times = weights.astype(np.int64)
            model.fit(features.repeat(times, axis=0), target.repeat(times))
        elif name == "logistic":
            model.fit(features, target, logisticregression__sample_weight=weights)
        else:
            scaled = model[:-1].fit_transform(features)
            for _ in range(EPOCHS):
                model[-1].partial_fit(scaled, target, sample_weight=weights, classes=(0, 1))
    fitted: Predicts = model
    return fitted


@cache
def _loaded() -> ThreadpoolController:
    """The libraries that scikit-learn has loaded; to look for them takes longer than to predict a few pairs."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def predict(model: Predicts, features: Matrix) -> Floats:
    """(n,) log-odds of a match, not calibrated."""
    with _loaded().limit(limits=1, user_api="openmp"):
        return logits(model.predict_proba(features)[:, 1].astype(np.float64))


def combined(scores: Mapping[str, Floats]) -> dict[str, Floats]:
    """Choice → the mean log-odds of its models, where all of them are there."""
    return {
        choice: np.mean([scores[name] for name in names], axis=0)
        for choice, names in CHOICES.items()
        if all(name in scores for name in names)
    }


class Calibrator(Protocol):
    """From log-odds to a probability."""

    def __call__(self, scores: Floats) -> Floats:
        """(n,) probabilities, rising with the score."""
        ...


@dataclass(frozen=True, slots=True)
class Platt:
    """A logistic curve. Source: Platt, Probabilistic outputs for support vector machines, 1999 (with his targets)."""

    slope: float
    offset: float

    def __call__(self, scores: Floats) -> Floats:
        """(n,) probabilities."""
        from scipy.special import expit

        probability: Floats = expit(self.slope * scores + self.offset)
        return probability

    @classmethod
    def fit(cls, scores: Floats, yes: Floats, no: Floats) -> Platt:
        """The likeliest curve that does not fall."""
        from scipy.optimize import minimize
        from scipy.special import expit, log_expit

        n_yes, n_no = float(yes.sum()), float(no.sum())
        high, low = (n_yes + 1) / (n_yes + 2), 1 / (n_no + 2)
        up, total = yes * high + no * low, yes + no

        def loss(curve: Floats) -> tuple[float, Floats]:
            z = curve[0] * scores + curve[1]
            slope = total * expit(z) - up
            value = -(up * log_expit(z) + (total - up) * log_expit(-z)).sum()
            return float(value), np.array([(slope * scores).sum(), slope.sum()])

        optimum = minimize(
            loss, np.array([1.0, 0.0]), jac=True, method="L-BFGS-B", bounds=[(0, None), (None, None)]
        )
        return cls(*optimum.x.tolist())


@dataclass(frozen=True, slots=True, eq=False)
class Isotonic:
    """A rising curve of steps joined by lines; ends are drawn in by one answer, so that nothing is certain."""

    at: Floats
    value: Floats

    def __call__(self, scores: Floats) -> Floats:
        """(n,) probabilities."""
        return np.interp(scores, self.at, self.value)

    @classmethod
    def fit(cls, scores: Floats, yes: Floats, no: Floats) -> Isotonic:
        """The rising curve nearest to the answers."""
        from scipy.optimize import isotonic_regression

        levels, place = np.unique(scores, return_inverse=True)
        up, total = np.bincount(place, yes), np.bincount(place, yes + no)
        curve = isotonic_regression(up / total, weights=total)
        blocks = np.asarray(curve.blocks)
        mass = np.add.reduceat(total, blocks[:-1])
        share = np.add.reduceat(up, blocks[:-1])
        value = np.repeat((share + 0.5) / (mass + 1), np.diff(blocks))
        # Smoothing small blocks may bend the curve; the running maximum keeps it rising.
        return cls(levels, np.maximum.accumulate(value))


CALIBRATORS: Mapping[str, Callable[[Floats, Floats, Floats], Calibrator]] = {
    "platt": Platt.fit,
    "isotonic": Isotonic.fit,
}


FOLDS = 5
RIDGE = 1.0


def pilot_scores(
    features: Floats, queries: Ints, answered: Ints, matches: NDArray[np.bool_], seed: int
) -> Floats:
    """(N,) probabilities by logistic regression; no pair's comes from answers on its own query.

    Args:
        features: (N, F) of the candidates, higher is likelier; 0 where an annotator does not list the pair.
        queries: (N,) whose pair each is.
        answered: (n,) places of the answered pairs.
        matches: (n,) whether people called each a match.
    """
    spread = features.std(axis=0)
    middle, scale = features.mean(axis=0), np.where(spread > 0, spread, 1.0)

    def form(rows: NDArray[Any]) -> Floats:
        # Not of all at once: of millions of pairs there would be two tables.
        return np.hstack([np.ones((len(features[rows]), 1)), (features[rows] - middle) / scale])

    names, at = np.unique(queries, return_inverse=True)
    fold = np.random.default_rng(seed).permutation(len(names))[at] % FOLDS
    ridge = np.append(1e-3, np.full(features.shape[1], RIDGE))
    probability = np.empty(len(features))
    for number in range(FOLDS):
        heard = fold[answered] != number
        taught, ones = form(answered[heard]), np.ones(int(heard.sum()))
        weights = logistic(taught, matches[heard].astype(np.float64), ones, 0 * ones, ridge)
        probability[fold == number] = expit(form(fold == number) @ weights)
    return probability


def rank_features(sources: Ints, pairs: Ints, ranks: Ints, similarities: Floats, count: int) -> Floats:
    """(N, F): of each source (annotator and direction) 1 / rank and the standardised similarity, then how many list it.

    Args:
        sources: (P,) which one lists the pair, from 0.
        pairs: (P,) the place of the pair among ``count``.
        ranks: (P,) from 1.
    """
    n = int(sources.max(initial=-1)) + 1
    features = np.zeros((count, 2 * n + 1))
    place, likeness, listed = np.split(features, [n, 2 * n], axis=1)
    place[pairs, sources] = 1 / ranks
    for number in range(n):
        of_source = sources == number
        values = similarities[of_source]
        spread = values.std()
        if np.isfinite(values).all() and spread > 0:
            likeness[pairs[of_source], number] = (values - values.mean()) / spread
    listed[:] = (place > 0).sum(axis=1, keepdims=True)
    return features

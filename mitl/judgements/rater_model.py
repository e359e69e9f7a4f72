"""What raters mean by their numbers: each has an offset and a scale, learned together with the items' scores.

The rating of item i by person r is c + offset_r + scale_r (s_i - c) + noise, which is a_r + b_r s_i + noise with
b_r = scale_r and a_r = offset_r + c (1 - scale_r); c is the mean of all ratings, at which an offset is easier to read
than at 0. Offsets and scales could be traded for the items' mean and spread. So the mean offset is 0 and the mean scale
1 over all ratings, each weighted by its rater's scale: people whose numbers say nothing do not squeeze the scores.
Items are normal with a mean and a variance of their own. Raters are pulled towards offset 0 and scale 1, and somebody
with three answers counts almost as given. The fit is expectation and maximisation (Dempster, Laird and Rubin 1977) of a
factor analysis with one factor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mitl.core.arrays import Floats, Ints

OFFSET_SPREAD, SCALE_SPREAD = 0.75, 0.25
"""How far raters are apart before they are known: standard deviations, in points and of the scale."""
ROUNDS = 2000
TOLERANCE = 1e-4
"""Points by which no item may move any more."""
_LEAST = 1e-6
"""A variance is never smaller, so that raters who agree to the last digit are no division by zero."""


@dataclass(frozen=True, slots=True, eq=False)
class RaterModel:
    """Items' scores and raters' ways."""

    scores: Floats
    """(I,) not bounded."""
    offsets: Floats
    """(R,) points that a rater gives an average item above what others give it."""
    scales: Floats
    """(R,) by how much a rater's numbers follow the scores; 0 for one whose numbers say nothing."""
    noise: float
    """Standard deviation of what is left, points."""
    rounds: int
    converged: bool

    @property
    def text(self) -> str:
        """How the fit ended."""
        ended = "converged" if self.converged else "stopped before it converged"
        return f"{ended} after {self.rounds:,} rounds; noise {self.noise:.2f} points"


@dataclass(slots=True)
class _State:
    """What a round changes; ratings and items less the mean of all ratings."""

    offsets: Floats
    scales: Floats
    noise: float
    middle: float
    spread: float
    """Variances of noise and of items, and the items' mean."""
    items: Floats
    doubt: Floats
    """(I,) posterior means and variances."""


def fit_raters(scores: Floats, items: Ints, raters: Ints, *, rounds: int = ROUNDS) -> RaterModel:
    """Fit the model.

    Args:
        scores: (N,) ratings.
        items, raters: (N,) whose each is, from 0 without gaps.
        rounds: at most so many.
    """
    n_items, n_raters = int(items.max(initial=-1)) + 1, int(raters.max(initial=-1)) + 1
    centre = float(scores.mean()) if len(scores) else 0.0
    given = scores - centre
    sizes = np.bincount(items, minlength=n_items)
    means = np.bincount(items, given, n_items) / sizes
    inner = max(float(((given - means[items]) ** 2).sum()) / max(len(given) - n_items, 1), _LEAST)
    spread = max(float(means.var()) if n_items else 0.0, _LEAST)
    state = _State(np.zeros(n_raters), np.ones(n_raters), inner, 0.0, spread, means.copy(), np.zeros(n_items))
    done, converged = 0, n_items == 0
    while not converged and done < rounds:
        before = state.items.copy()
        _expect(state, given, items, raters)
        _maximise(state, given, items, raters)
        done += 1
        converged = bool(np.abs(state.items - before).max() < TOLERANCE)
    # An item whose raters say little by their scales is left at the plain mean of what they gave.
    weight = state.noise / state.spread
    told = np.bincount(items, state.scales[raters] * (given - state.offsets[raters]), n_items)
    weighed = np.bincount(items, state.scales[raters] ** 2, n_items)
    final = (told + weight * means) / (weighed + weight)
    return RaterModel(
        final + centre, state.offsets, state.scales, float(np.sqrt(state.noise)), done, converged
    )


def _expect(state: _State, given: Floats, items: Ints, raters: Ints) -> None:
    """Where the items are, by the raters' ways."""
    n_items = len(state.items)
    told = np.bincount(items, state.scales[raters] * (given - state.offsets[raters]), n_items)
    weighed = np.bincount(items, state.scales[raters] ** 2, n_items)
    sureness = 1 / state.spread + weighed / state.noise
    state.items = (state.middle / state.spread + told / state.noise) / sureness
    state.doubt = 1 / sureness


def _maximise(state: _State, given: Floats, items: Ints, raters: Ints) -> None:
    """The raters' ways, the noise and the items' spread, by where the items are."""
    n_raters = len(state.offsets)
    place = state.items[items]
    square = place**2 + state.doubt[items]
    answers = np.bincount(raters, minlength=n_raters).astype(np.float64)
    sums = [
        np.bincount(raters, values, n_raters) for values in (place, square, given, place * given)
    ]  # each (R,)
    prior_offset, prior_scale = state.noise / OFFSET_SPREAD**2, state.noise / SCALE_SPREAD**2
    corner, cross, other = answers + prior_offset, sums[0], sums[1] + prior_scale
    right_offset, right_scale = sums[2], sums[3] + prior_scale
    determinant = corner * other - cross**2
    # A scale below 0 would turn a rater's words round; such a rater says nothing here.
    state.scales = np.maximum((corner * right_scale - cross * right_offset) / determinant, 0.0)
    state.offsets = (right_offset - cross * state.scales) / corner
    scale, offset = state.scales[raters], state.offsets[raters]
    left = (given - offset - scale * place) ** 2 + scale**2 * state.doubt[items]
    state.noise = max(float(left.mean()), _LEAST)
    state.middle = float(state.items.mean())
    state.spread = max(float(((state.items - state.middle) ** 2 + state.doubt).mean()), _LEAST)
    _identify(state, answers / answers.sum())


def _identify(state: _State, shares: Floats) -> None:
    """The same ratings from a mean offset of 0 and a mean scale of 1; ``shares`` (R,) of all ratings."""
    weights = shares * state.scales
    if weights.sum() <= 0:
        return
    weights = weights / weights.sum()
    scale = float(weights @ state.scales)
    state.scales = state.scales / scale
    state.items, state.middle = state.items * scale, state.middle * scale
    state.doubt, state.spread = state.doubt * scale**2, max(state.spread * scale**2, _LEAST)
    offset = float(weights @ state.offsets)
    state.offsets = state.offsets - state.scales * offset
    state.items, state.middle = state.items + offset, state.middle + offset

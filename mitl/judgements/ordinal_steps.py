"""The maximisation steps of the ordinal model: thresholds, workers, and the spread of the crowd."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from mitl.core.arrays import Flags, Floats, Ints
from mitl.judgements.ordinal_parameters import (
    LAPSE,
    SPREAD,
    TYPICAL_LOG_NOISE,
    Curves,
    Grid,
    Parameters,
    curves,
)

_SPREAD_WORKERS = 4.0
"""Workers that the usual spread of a crowd is worth."""
_LAPSE_ANSWERS = 10.0
"""Answers that the crowd's share of blind ones is worth against a worker's own."""

_HABIT_ANSWERS = 2.0
"""Blind answers that the crowd's shares of the levels among blind ones are worth."""

_SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Shares of the workers who may apply the common standard."""
_CLOSENESS = (1 / 12, 1 / 6, 1 / 3)
"""How closely they may do so; this and what follows in spreads of the crowd's bias."""
_PLACE_SPREAD = 0.5
"""Standard deviation of the common standard's place about the crowd's mean."""
_FARTHEST, _PLACES = 2.5, 61
"""The places tried."""
_LEAST_INFORMATION = 1e-6
"""A worker's answers say nothing of their bias if they say less than this part of what the crowd does."""

_CHUNK = 1 << 17
"""Cells (workers × nodes) of a chunk."""
_LONGEST = 0.5
"""The longest step in a bias, a log-noise or a threshold; the curves are far from straight beyond."""
_NARROWEST = 0.02
"""Least distance of two thresholds."""
_THRESHOLD_INFORMATION = 1e-3
"""Added so that the threshold of a level that nobody gave stays where it is."""


def step_thresholds(parameters: Parameters, counts: Floats, grid: Grid) -> Parameters:
    """One step of Fisher scoring for the shared thresholds; they are those of :func:`common_bias`.

    Args:
        counts: (W, K, Q) expected number of answers by level and node.
    """
    n = len(parameters.thresholds)
    gradient, information = np.zeros(n), _THRESHOLD_INFORMATION * np.eye(n)
    places = np.arange(n)
    for rows, at, noise in _workers(parameters, grid):
        fall = at.slope / noise[:, None, None]  # -dF/dt
        ratio = counts[rows] / at.probability
        gradient -= ((ratio[:, 1:] - ratio[:, :-1]) * fall).sum(axis=(0, 2))
        weight = counts[rows].sum(axis=1)[:, None] / at.probability  # (W, K, Q)
        information[places, places] += ((weight[:, 1:] + weight[:, :-1]) * fall**2).sum(axis=(0, 2))
        between = (weight[:, 1:-1] * fall[:, 1:] * fall[:, :-1]).sum(axis=(0, 2))
        information[places[:-1], places[1:]] -= between
        information[places[1:], places[:-1]] -= between
    step = np.asarray(np.linalg.solve(information, gradient), dtype=np.float64)
    moved = parameters.thresholds + _bounded(step)
    for k in range(1, len(moved)):
        moved[k] = max(moved[k], moved[k - 1] + _NARROWEST)
    centre = common_bias(parameters)
    return replace(
        parameters,
        thresholds=moved + centre,
        bias=parameters.bias - centre,
        mean_bias=parameters.mean_bias - centre,
    )


def step_workers(
    parameters: Parameters, counts: Floats, grid: Grid, observed: tuple[float, float] = (1.0, 1.0)
) -> Parameters:
    """One step of Fisher scoring for each worker's bias and log-noise, and the share of blind answers.

    Args:
        counts: (W, K, Q) expected number of answers by level and node.
        observed: shares of the information on b and on log s that is left when the matches are not seen;
            they enter what is left to know of each worker, not the step.
    """
    n = len(parameters.bias)
    bias, log_noise = np.empty(n), np.empty(n)
    blind = np.empty_like(parameters.blind)
    left = np.empty((2, n))
    spread = np.array([parameters.bias_spread, parameters.noise_spread])
    for rows, at, noise in _workers(parameters, grid):
        gradient, information = _worker_score(at, counts[rows], noise)
        left[:, rows] = 1 / (np.array(observed)[:, None] * information[:2] + spread[:, None] ** -2)
        gradient[0] -= (parameters.bias[rows] - parameters.mean_bias) / spread[0] ** 2
        gradient[1] -= (parameters.log_noise[rows] - parameters.typical_log_noise) / spread[1] ** 2
        first, second, both = (
            information[0] + spread[0] ** -2,
            information[1] + spread[1] ** -2,
            information[2],
        )
        determinant = first * second - both**2
        step_b = (second * gradient[0] - both * gradient[1]) / determinant
        step_n = (first * gradient[1] - both * gradient[0]) / determinant
        bias[rows] = parameters.bias[rows] + _bounded(step_b)
        log_noise[rows] = parameters.log_noise[rows] + _bounded(step_n)
        blind[rows] = (counts[rows] / at.probability).sum(axis=2) * parameters.blind[rows]
    # Less noise than half a cell cannot be told from none.
    np.maximum(log_noise, np.log(grid.width / 2), out=log_noise)
    answers, gone = counts.sum(axis=(1, 2)), blind.sum(axis=1)
    typical = parameters.typical_blind
    lapse = (gone + _LAPSE_ANSWERS * typical.sum()) / (answers + _LAPSE_ANSWERS)
    shares = (blind + _HABIT_ANSWERS * typical / typical.sum()) / (gone + _HABIT_ANSWERS)[:, None]
    return replace(
        parameters,
        bias=bias,
        log_noise=log_noise,
        blind=lapse[:, None] * shares,
        bias_variance=left[0],
        noise_variance=left[1],
    )


def step_spread(parameters: Parameters, active: Flags) -> Parameters:
    """The crowd from its workers, what is left to know of each counted in; workers without answers aside."""
    bias, log_noise = parameters.bias[active], parameters.log_noise[active]
    n = len(bias)
    precision = parameters.noise_spread**-2
    typical = (log_noise.sum() * precision + TYPICAL_LOG_NOISE) / (n * precision + 1)
    mean_bias = float(bias.mean())
    squares_b = ((bias - mean_bias) ** 2 + parameters.bias_variance[active]).sum()
    squares_n = ((log_noise - typical) ** 2 + parameters.noise_variance[active]).sum()
    return replace(
        parameters,
        mean_bias=mean_bias,
        bias_spread=_spread(squares_b, n),
        typical_log_noise=float(typical),
        noise_spread=_spread(squares_n, n),
        typical_blind=(parameters.blind[active].sum(axis=0) + LAPSE / parameters.blind.shape[1]) / (n + 1),
    )


def observed_shares(
    parameters: Parameters, nodes: Floats, workers: Ints, levels: Ints, posterior: Floats
) -> tuple[float, float]:
    """Shares of the information on b and on log s that answers hold when the matches are not seen.

    With z known an answer's score is a number; without it, the score's mean over z. The mean square of the
    latter over that of the former is the share (after Louis, 1982), taken for all workers together.

    Args:
        workers, levels: (n,) of a sample of answers.
        posterior: (n, Q) of their items.
    """
    distinct, place = np.unique(workers, return_inverse=True)
    noise = np.exp(parameters.log_noise[distinct])
    at = curves(nodes, parameters.thresholds, parameters.bias[distinct], noise, parameters.blind[distinct])
    shares = []
    for by in _worker_derivatives(at, noise):
        change = _level_changes(by)
        score = change / at.probability
        whole = (posterior * (change * score).sum(axis=1)[place]).sum()
        seen = ((posterior * score[place, levels]).sum(axis=1) ** 2).sum()
        shares.append(float(np.clip(seen / max(whole, 1e-300), 0.01, 1.0)))
    return shares[0], shares[1]


def common_bias(parameters: Parameters) -> float:
    """The bias of the workers who apply the common standard: the posterior median of where they stand.

    Some share of the workers stands closely around one place, the others scatter as the crowd does; share,
    closeness and place are unknown, and the former two are integrated out. A worker speaks in proportion to how
    much the match decides their answers, so neither careless workers of few answers nor clickers set
    the standard by their number. If nobody stands closer together than the crowd at large, the place is
    near the crowd's mean.
    """
    spread, mean = parameters.bias_spread, parameters.mean_bias
    information = parameters.bias_variance**-1 * spread**2 - 1  # in units of what the crowd says of a worker
    seen = np.flatnonzero(information > _LEAST_INFORMATION)
    variance = 1 / information[seen]
    own = (parameters.bias[seen] - mean) / spread * (1 + variance)  # without the pull towards the mean
    noise = np.exp(parameters.log_noise[seen] - parameters.typical_log_noise)
    voice = (1 - parameters.blind[seen].sum(axis=1)) ** 2 / (1 + noise**2)
    places = np.linspace(-_FARTHEST, _FARTHEST, _PLACES)
    log_posterior = np.zeros((len(_CLOSENESS), len(_SHARES), _PLACES))
    for start in range(0, len(seen), max(1, _CHUNK // _PLACES)):
        rows = slice(start, start + max(1, _CHUNK // _PLACES))
        v, at = variance[rows], own[rows]
        strays = np.exp(-0.5 * at**2 / (1 + v)) / np.sqrt(1 + v)
        for i, closeness in enumerate(_CLOSENESS):
            total = closeness**2 + v
            near = np.exp(-0.5 * (at - places[:, None]) ** 2 / total) / np.sqrt(total)
            ratio = near / strays.clip(min=1e-300) - 1
            for j, share in enumerate(_SHARES):
                log_posterior[i, j] += np.log1p(share * ratio) @ voice[rows]
    log_posterior -= 0.5 * (places / _PLACE_SPREAD) ** 2
    mass = np.exp(log_posterior - log_posterior.max()).sum(axis=(0, 1))
    below = mass.cumsum() - mass / 2
    return mean + spread * float(np.interp(mass.sum() / 2, below, places))


def _workers(parameters: Parameters, grid: Grid) -> Iterator[tuple[slice, Curves, Floats]]:
    """Workers in chunks: their rows, curves and noise."""
    step = max(1, _CHUNK // len(grid.nodes))
    for start in range(0, len(parameters.bias), step):
        rows = slice(start, start + step)
        noise = np.exp(parameters.log_noise[rows])
        bias, blind = parameters.bias[rows], parameters.blind[rows]
        yield rows, curves(grid.nodes, parameters.thresholds, bias, noise, blind), noise


def _worker_derivatives(at: Curves, noise: Floats) -> tuple[Floats, Floats]:
    """(W, K - 1, Q) of each threshold's curve by b and by log s."""
    return -at.slope / noise[:, None, None], -at.slope * at.place


def _worker_score(at: Curves, counts: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """(2, W) gradient for b and log s, and (3, W) Fisher information: b with b, log s with log s, b with log s."""
    by_bias, by_noise = _worker_derivatives(at, noise)
    ratio = counts / at.probability
    difference = ratio[:, 1:] - ratio[:, :-1]
    gradient = np.stack([(difference * by).sum(axis=(1, 2)) for by in (by_bias, by_noise)])
    weight = counts.sum(axis=1)[:, None] / at.probability
    change_b, change_n = _level_changes(by_bias), _level_changes(by_noise)
    products = (change_b**2, change_n**2, change_b * change_n)
    return gradient, np.stack([(weight * product).sum(axis=(1, 2)) for product in products])


def _level_changes(by: Floats) -> Floats:
    """(W, K, Q) derivative of each level's probability from the (W, K - 1, Q) thresholds' curves."""
    edge = np.zeros_like(by[:, :1])
    change: Floats = np.concatenate([edge, by], axis=1) - np.concatenate([by, edge], axis=1)
    return change


def _bounded(step: Floats) -> Floats:
    bounded: Floats = np.clip(step, -_LONGEST, _LONGEST)
    return bounded


def _spread(squares: float, n: int) -> float:
    return float(np.sqrt((squares + _SPREAD_WORKERS * SPREAD**2) / (n + _SPREAD_WORKERS)))

"""The ordinal model: a match in degrees, workers who set their limits differently and err by different amounts.

Each item has a latent match z. Worker j answers at least level k with probability Φ((z - t_k - b_j) / s_j): the
thresholds t_1 < … < t_{K-1} are shared, b_j ~ N(0, β²) is the worker's bias, log s_j ~ N(log s, γ²) the worker's
noise; t, s, β and γ are learned, so workers with few answers stay near the crowd. What the bare model lacks, and
why it is here:

* The typical noise s is learned and not 1: z has variance 1, so nothing else says how well a crowd tells pairs apart.
* A share of each worker's answers is blind, given without looking, by shares of the labels that are the worker's
  own; both are learned, under priors around the crowd's. Without it one slip rules a level out, and clickers pass
  for noise or bias.
* Thresholds are those of the workers who agree closely and whose answers hang on the match, and the mean of b is
  learned: moving all thresholds and biases together changes no answer's probability, so something has to say where
  the scale begins, and neither a few who always give one label nor many careless workers should.
* z has mean 0 and variance 1, but its shape is learned, held near the normal: pairs that plainly match or plainly
  do not are more common than the middle of a normal distribution allows.

The true level of an item is the stretch between thresholds that holds z: what a worker without bias or noise
would answer. An item that is known (a gold control) has its z within that stretch: for ``yes`` at or beyond the
uppermost threshold, for ``no`` at or below the lowest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mitl.core.arrays import Floats
from mitl.judgements.answer_table import POSITIVE_LABELS, AnswerTable, Labels
from mitl.judgements.ordinal_parameters import Grid, Parameters, blend, curves, make_grid, starting_parameters
from mitl.judgements.ordinal_steps import observed_shares, step_spread, step_thresholds, step_workers
from mitl.judgements.posterior_sweep import Convergence, Sweeper, has_settled

_LEAST_ITEMS = 20.0
"""The normal shape is worth this many items at least."""
_SAMPLE = 20_000
"""Answers enough for a share that is the same for the whole crowd."""
_SLOWEST = 0.25
"""Least share of a step that is taken."""


@dataclass(frozen=True, slots=True)
class OrdinalOptions:
    """How the model is fitted and what is reported."""

    n_cells: int = 33
    """Cells of the quadrature grid."""
    limit: int = 500
    """Passes at most."""
    tolerance: float = 1e-5
    """The fit has settled when passes change the log-likelihood by no more than this, in nats an answer."""
    anchor: float = 0.05
    """Share of the items that the normal shape of z is worth; infinity keeps z normal."""
    interval: float = 0.9
    """Probability that the credible interval holds."""


@dataclass(frozen=True, slots=True, eq=False)
class Ordinal:
    """A fitted model; arrays of items are in the table's order."""

    parameters: Parameters
    level: Floats32
    """(items, labels) probability of each true label, the best first."""
    match: Floats32
    """(items,) posterior mean of z."""
    low: Floats32
    """(items,) lower end of the central credible interval of z."""
    high: Floats32
    """(items,) upper end."""
    convergence: Convergence

    def positive(self, n_positive: int = POSITIVE_LABELS) -> Floats32:
        """(items,) probability that the true label is one of the ``n_positive`` best: P(yes or weak_yes)."""
        total: Floats32 = self.level[:, :n_positive].sum(axis=1).clip(0, 1)
        return total

    @property
    def label(self) -> Labels:
        """(items,) the most probable label; of equals the worse one."""
        n_labels = self.level.shape[1]
        label: Labels = (n_labels - 1 - self.level[:, ::-1].argmax(axis=1)).astype(np.int8)
        return label


def fit_ordinal(table: AnswerTable, options: OrdinalOptions | None = None) -> Ordinal:
    """Fit by expectation maximisation over the matches, the workers' parameters at their posterior mode.

    In the items' final posteriors what is left to know of each worker is integrated out.

    Raises:
        ValueError: there are no answers, or fewer than two labels.
    """
    if not len(table):
        raise ValueError("there are no answers to fit a model to")
    if table.n_labels < 2:
        raise ValueError(f"{table.n_labels} label makes no scale; two or more are right")
    options = options or OrdinalOptions()
    grid = make_grid(options.n_cells)
    sweeper, sample = Sweeper(table), PosteriorSample(table, grid)
    active = np.bincount(table.worker, minlength=table.n_workers) > 0
    parameters, population = starting_parameters(table), grid.mass
    trace: list[float] = []
    pace = 1.0
    while True:
        prior = _log_prior(parameters, grid, population)
        swept = sweeper.sweep(log_answers(parameters, grid), prior, sample.read)
        trace.append(swept.log_likelihood)
        settled = has_settled(trace, options.tolerance * len(table))
        if settled or len(trace) >= options.limit:
            break
        if len(trace) > 1 and trace[-1] < trace[-2]:
            pace = max(pace / 2, _SLOWEST)  # the steps overshoot each other
        counts = swept.answers[:, ::-1]  # by level
        parameters = step_thresholds(parameters, counts, grid)
        parameters = step_workers(parameters, counts, grid, sample.observed_shares(parameters))
        moved = step_spread(parameters, active)
        if np.isfinite(options.anchor):
            moved, learned = learn_population(moved, swept.items[0], grid, options.anchor)
            population = (1 - pace) * population + pace * learned
        parameters = blend(parameters, moved, pace)
    reader = PosteriorReader(table, parameters, grid, options.interval)
    sweeper.sweep(log_answers(parameters, grid, marginal=True), prior, reader.read)
    readings = (reader.level, reader.match, reader.low, reader.high)
    return Ordinal(parameters, *readings, Convergence(tuple(trace), settled))


def log_answers(parameters: Parameters, grid: Grid, *, marginal: bool = False) -> Floats:
    """(workers, labels, nodes) log-probability of each answer.

    Args:
        marginal: integrate out what is left to know of each worker: b exactly (it widens the noise), log s
            over three points.
    """
    points = ((-np.sqrt(3), 1 / 6), (0.0, 2 / 3), (np.sqrt(3), 1 / 6)) if marginal else ((0.0, 1.0),)
    total = np.zeros((len(parameters.bias), len(parameters.thresholds) + 1, len(grid.nodes)))
    for shift, weight in points:
        noise = np.exp(parameters.log_noise + shift * np.sqrt(parameters.noise_variance))
        if marginal:
            noise = np.sqrt(noise**2 + parameters.bias_variance)
        at = curves(grid.nodes, parameters.thresholds, parameters.bias, noise, parameters.blind)
        total += weight * at.probability
    logs: Floats = np.log(total, out=total)[:, ::-1]
    return logs


def _log_prior(parameters: Parameters, grid: Grid, population: Floats) -> Floats:
    """(labels + 1, Q): of an unknown item, then of items whose z lies within each label's stretch."""
    within = grid.within(parameters.thresholds)[::-1] * (population / grid.mass)
    # A stretch without mass belongs to a label that nobody gave; an item known to be that one says nothing.
    empty = within.sum(axis=1) <= 0
    within[empty] = population
    within /= within.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        logs: Floats = np.log(np.vstack([population, within]))
    return logs


def learn_population(
    parameters: Parameters, items: Floats, grid: Grid, anchor: float
) -> tuple[Parameters, Floats]:
    """The distribution seen, brought back to mean 0 and variance 1 with the parameters on the same scale.

    Moving and stretching the scale changes no probability of an answer; it also makes the fit quicker, since
    the crowd's noise is then learned from the spread of the matches as well.

    Args:
        items: (Q,) expected number of items at each node, of those that are not known.
        anchor: share of the items that the normal shape is worth.

    Returns:
        The parameters, and (Q,) the mass of each cell.
    """
    mass = items + (anchor * items.sum() + _LEAST_ITEMS) * grid.mass
    mass /= mass.sum()
    mean = float(mass @ grid.nodes)
    variance = float(mass @ (grid.nodes - mean) ** 2 / (grid.mass @ grid.nodes**2))
    scale = float(np.sqrt(variance))
    shape = np.interp(grid.nodes * scale + mean, grid.nodes, mass / grid.mass)  # against the normal
    moved = shape * np.exp(-0.5 * ((grid.nodes * scale + mean) ** 2 - grid.nodes**2)) * grid.mass
    return _rescaled(parameters, mean, scale), moved / moved.sum()


def _rescaled(parameters: Parameters, mean: float, scale: float) -> Parameters:
    return replace(
        parameters,
        thresholds=(parameters.thresholds - mean) / scale,
        bias=parameters.bias / scale,
        mean_bias=parameters.mean_bias / scale,
        log_noise=parameters.log_noise - np.log(scale),
        bias_spread=parameters.bias_spread / scale,
        typical_log_noise=parameters.typical_log_noise - float(np.log(scale)),
    )


Floats32 = NDArray[np.float32]


class PosteriorSample:
    """The posteriors of items taken at even distances, with their answers."""

    def __init__(self, table: AnswerTable, grid: Grid) -> None:
        self._stride = max(1, -(-len(table) // _SAMPLE))
        items = np.arange(0, table.n_items, self._stride)
        sizes = table.answers_per_item[items]
        self._place = np.repeat(np.arange(len(items)), sizes)
        within = np.arange(len(self._place)) - np.repeat(sizes.cumsum() - sizes, sizes)
        rows = table.starts[items][self._place] + within
        self._workers = table.worker[rows].astype(np.int64)
        self._levels = table.n_labels - 1 - table.label[rows].astype(np.int64)
        self._posterior = np.empty((len(items), len(grid.nodes)))
        self._nodes = grid.nodes

    def read(self, start: int, stop: int, posterior: Floats) -> None:
        """Keep the posteriors of this run's items that belong to the sample."""
        taken = posterior[-start % self._stride :: self._stride]
        place = -(-start // self._stride)
        self._posterior[place : place + len(taken)] = taken

    def observed_shares(self, parameters: Parameters) -> tuple[float, float]:
        """As :func:`mitl.judgements.ordinal_steps.observed_shares`, of the sample."""
        posterior = self._posterior[self._place]
        return observed_shares(parameters, self._nodes, self._workers, self._levels, posterior)


class PosteriorReader:
    """What is reported of each item."""

    def __init__(self, table: AnswerTable, parameters: Parameters, grid: Grid, interval: float) -> None:
        n, n_labels = table.n_items, table.n_labels
        self.level = np.empty((n, n_labels), dtype=np.float32)
        self.match, self.low, self.high = (np.empty(n, dtype=np.float32) for _ in range(3))
        self._grid, self._tail, self._known = grid, (1 - interval) / 2, table.known
        self._within = (grid.within(parameters.thresholds) / grid.mass)[::-1].T  # (Q, labels)

    def read(self, start: int, stop: int, posterior: Floats) -> None:
        """Fill in the items from ``start`` to before ``stop``."""
        rows = slice(start, stop)
        self.level[rows] = posterior @ self._within
        known = self._known[rows]
        sure = np.flatnonzero(known >= 0)
        self.level[start + sure] = np.eye(self.level.shape[1], dtype=np.float32)[known[sure]]
        self.match[rows] = posterior @ self._grid.nodes
        below = posterior.cumsum(axis=1)
        self.low[rows] = self._quantile(posterior, below, self._tail)
        self.high[rows] = self._quantile(posterior, below, 1 - self._tail)

    def _quantile(self, posterior: Floats, below: Floats, share: float) -> Floats:
        """(items,) where the distribution function reaches a share; within a cell it rises evenly."""
        nodes = self._grid.nodes
        cell = np.minimum((below < share).sum(axis=1), len(nodes) - 1)
        rows = np.arange(len(posterior))
        mass = posterior[rows, cell]
        inside = (share - (below[rows, cell] - mass)) / np.where(mass > 0, mass, 1.0)
        quantile: Floats = nodes[cell] + (inside.clip(0, 1) - 0.5) * self._grid.width
        return quantile

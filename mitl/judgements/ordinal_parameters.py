"""What the ordinal model learns of a crowd, where its fit starts, and the curves that follow.

A response curve says how probable each answer is at each place of the match's scale. Levels count up, 0 the worst and
K - 1 the best, as thresholds do; labels count the other way.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from scipy.special import ndtr, ndtri

from mitl.core.arrays import Floats
from mitl.judgements.answer_table import AnswerTable

SPAN = 4.0
"""Half the width of the grid, in standard deviations of the match; the outer cells reach to infinity."""


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """The scale of the match in Q cells; a cell's mass stands at its node."""

    nodes: Floats
    """(Q,) ascending."""
    edges: Floats
    """(Q + 1,) with infinities at both ends."""
    mass: Floats
    """(Q,) of the standard normal distribution; sums to 1."""

    @property
    def width(self) -> float:
        """Of a cell, in standard deviations of the match."""
        return float(self.nodes[1] - self.nodes[0])

    def within(self, thresholds: Floats) -> Floats:
        """(K, Q) mass of each cell that lies within each level's stretch of the scale; sums over K to ``mass``."""
        bounds = np.concatenate([[-np.inf], thresholds, [np.inf]])
        low = np.maximum(bounds[:-1, None], self.edges[:-1])
        high = np.minimum(bounds[1:, None], self.edges[1:])
        return _normal_mass(low, np.maximum(low, high))


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """Answers of W workers at Q nodes."""

    probability: Floats
    """(W, K, Q) of each level."""
    slope: Floats
    """(W, K - 1, Q) of each threshold's curve in u."""
    place: Floats
    """(W, K - 1, Q) u = (z - t - b) / s."""


def make_grid(n_cells: int) -> Grid:
    """``n_cells`` cells of equal width over ±``SPAN``, the outer ones open.

    Raises:
        ValueError: fewer than three cells.
    """
    if n_cells < 3:
        raise ValueError(f"{n_cells} cells make no grid; 3 or more are right")
    inner = np.linspace(-SPAN, SPAN, n_cells + 1)
    edges = np.concatenate([[-np.inf], inner[1:-1], [np.inf]])
    return Grid((inner[:-1] + inner[1:]) / 2, edges, _normal_mass(edges[:-1], edges[1:]))


def curves(nodes: Floats, thresholds: Floats, bias: Floats, noise: Floats, blind: Floats) -> Curves:
    """The response curves of workers with (W,) bias and noise, and (W, K) shares of answers given blindly."""
    considered = (1 - blind.sum(axis=1))[:, None, None]
    place = (nodes - thresholds[:, None] - bias[:, None, None]) / noise[:, None, None]
    edge = np.full((len(bias), 1, len(nodes)), np.inf)
    # Level k lies between its own threshold and the next: u falls from threshold to threshold.
    upper, lower = np.concatenate([edge, place], axis=1), np.concatenate([place, -edge], axis=1)
    probability = _normal_mass(lower, upper)
    probability *= considered
    probability += blind[:, :, None]
    slope = np.exp(-0.5 * place**2) * (considered / np.sqrt(2 * np.pi))
    return Curves(probability, slope, place)


def starting_thresholds(shares: Floats, noise: float) -> Floats:
    """(K - 1,) thresholds that give the (K,) shares of levels, ascending, for answers of this noise."""
    below = np.cumsum(shares)[:-1]
    return np.asarray(ndtri(below) * np.hypot(1.0, noise), dtype=np.float64)


def _normal_mass(low: Floats, high: Floats) -> Floats:
    """Mass of N(0, 1) from ``low`` to ``high``; where Φ would cancel, from the other tail."""
    mirrored = low > 0
    mass: Floats = ndtr(np.where(mirrored, -low, high)) - ndtr(np.where(mirrored, -high, low))
    return mass


TYPICAL_LOG_NOISE = float(np.log(0.6))
"""Centre of the wide prior N(., 1) of the typical log-noise."""
SPREAD = 0.4
"""A crowd of few workers is taken to spread like this, in b and in log s."""
LAPSE = 0.02
"""Blind answers are this frequent where the crowd says nothing of it; worth one worker."""


@dataclass(frozen=True, slots=True, eq=False)
class Parameters:
    """All that the model learns of the crowd."""

    thresholds: Floats
    """(K - 1,) t, ascending."""
    bias: Floats
    """(W,) b; above 0 for a worker who sees less of a match than others do."""
    log_noise: Floats
    """(W,) log s."""
    blind: Floats
    """(W, K) share of answers given blindly, by level."""
    mean_bias: float
    """Mean of b; not 0 where those who stray from the median worker stray to one side."""
    bias_spread: float
    """β, the standard deviation of b."""
    typical_log_noise: float
    """Mean of log s."""
    noise_spread: float
    """γ, the standard deviation of log s."""
    typical_blind: Floats
    """(K,) the crowd's share of blind answers, by level."""
    bias_variance: Floats
    """(W,) what is left to know of b."""
    noise_variance: Floats
    """(W,) what is left to know of log s."""


def starting_parameters(table: AnswerTable) -> Parameters:
    """A crowd of equal workers who give the table's shares of labels."""
    shares = np.bincount(table.label, minlength=table.n_labels)[::-1] + 1.0
    workers = np.zeros(table.n_workers)
    return Parameters(
        thresholds=starting_thresholds(shares / shares.sum(), float(np.exp(TYPICAL_LOG_NOISE))),
        bias=workers,
        log_noise=workers + TYPICAL_LOG_NOISE,
        blind=np.full((table.n_workers, table.n_labels), LAPSE / table.n_labels),
        mean_bias=0.0,
        bias_spread=SPREAD,
        typical_log_noise=TYPICAL_LOG_NOISE,
        noise_spread=SPREAD,
        typical_blind=np.full(table.n_labels, LAPSE / table.n_labels),
        bias_variance=workers + SPREAD**2,
        noise_variance=workers + SPREAD**2,
    )


def blend(old: Parameters, new: Parameters, pace: float) -> Parameters:
    """From ``old`` a share ``pace`` of the way to ``new``."""
    moved = {f.name: (1 - pace) * getattr(old, f.name) + pace * getattr(new, f.name) for f in fields(old)}
    return Parameters(**moved)

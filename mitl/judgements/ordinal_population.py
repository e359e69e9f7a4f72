"""The distribution of the match over the items: mean 0, variance 1, its shape learned and held near the normal."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mitl.judgements.ordinal_curves import Grid
from mitl.judgements.ordinal_parameters import Parameters

Floats = NDArray[np.float64]

_LEAST_ITEMS = 20.0
"""The normal shape is worth this many items at least."""


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

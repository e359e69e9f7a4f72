"""What the ordinal model learns of a crowd, and where its fit starts."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from mitl.judgements.answer_table import AnswerTable
from mitl.judgements.ordinal_curves import starting_thresholds

Floats = NDArray[np.float64]

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

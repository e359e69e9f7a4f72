"""Dawid and Skene's model: each worker has a confusion matrix, each item a true label.

Each row of a worker's matrix has a Dirichlet prior around the crowd's mean row, so that a worker with few answers
is taken for a usual one, and never for one who cannot err.

Source: Dawid and Skene, Maximum Likelihood Estimation of Observer Error-Rates Using the EM Algorithm, 1979.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mitl.judgements.answer_table import UNKNOWN, AnswerTable, Labels
from mitl.judgements.convergence import Convergence, has_settled
from mitl.judgements.posterior_sweep import Floats, Sweeper, Swept

_LEAST = 1e-10
"""Least expected count and least class prior where no prior smooths them; crowd-kit's."""


@dataclass(frozen=True, slots=True)
class DawidSkeneOptions:
    """How the model is fitted."""

    strength: float = 4.0
    """Answers to each true label that the prior is worth; 0 fits without a prior, as crowd-kit does."""
    limit: int = 500
    """Passes at most."""
    tolerance: float = 1e-5
    """The fit has settled when a pass changes the objective by no more than this, in nats an answer."""


@dataclass(frozen=True, slots=True, eq=False)
class DawidSkene:
    """A fitted model."""

    posterior: Floats
    """(items, labels) probability of each true label."""
    class_prior: Floats
    """(labels,) share of each true label among the items that were not known."""
    confusion: Floats
    """(workers, true labels, labels) probability of an answer; without a prior 0 for labels never given."""
    convergence: Convergence

    @property
    def label(self) -> Labels:
        """(items,) the most probable label; of equals the worse one."""
        n_labels = self.posterior.shape[1]
        label: Labels = (n_labels - 1 - self.posterior[:, ::-1].argmax(axis=1)).astype(np.int8)
        return label


def fit_dawid_skene(table: AnswerTable, options: DawidSkeneOptions | None = None) -> DawidSkene:
    """Fit by expectation maximisation, from the shares of each item's answers.

    Items that are known keep their label; they speak for the workers' matrices and not for the class prior.

    Raises:
        ValueError: there are no answers.
    """
    if not len(table):
        raise ValueError("there are no answers to fit a model to")
    options = options or DawidSkeneOptions()
    sweeper = Sweeper(table)
    posterior = _shares(table)

    def keep(start: int, stop: int, found: Floats) -> None:
        posterior[start:stop] = found

    swept = sweeper.count(posterior)
    seen = swept.answers.sum(axis=2) > 0
    trace: list[float] = []
    settled = False
    while not settled and len(trace) < options.limit:
        class_prior, confusion, log_density = _maximise(swept, seen, options)
        log_confusion = np.log(confusion, out=np.zeros_like(confusion), where=confusion > 0)
        swept = sweeper.sweep(log_confusion, _log_prior(class_prior), keep)
        trace.append(swept.log_likelihood + log_density)
        settled = has_settled(trace, options.tolerance * len(table))
    class_prior, confusion, _ = _maximise(swept, seen, options)
    return DawidSkene(
        posterior, class_prior, confusion.transpose(0, 2, 1), Convergence(tuple(trace), settled)
    )


def _shares(table: AnswerTable) -> Floats:
    """(items, labels) shares of the answers; one for the label of a known item."""
    counts = table.counts().astype(np.float64)
    counts /= counts.sum(axis=1, keepdims=True)
    known = np.flatnonzero(table.known != UNKNOWN)
    counts[known] = np.eye(table.n_labels)[table.known[known]]
    return counts


def _log_prior(class_prior: Floats) -> Floats:
    """(labels + 1, labels): the class prior for unknown items, certainty for known ones."""
    certain = np.where(np.eye(len(class_prior), dtype=bool), 0.0, -np.inf)
    return np.vstack([np.log(class_prior), certain])


def _maximise(
    swept: Swept, seen: NDArray[np.bool_], options: DawidSkeneOptions
) -> tuple[Floats, Floats, float]:
    """The class prior, (workers, labels, true labels) confusion, and the log-density of both under the prior."""
    if options.strength:
        return _smoothed(swept, options.strength)
    class_prior = swept.items[0] / max(swept.items[0].sum(), _LEAST)
    counts = np.where(seen[:, :, None], swept.answers.clip(min=_LEAST), 0.0)
    totals = counts.sum(axis=1, keepdims=True)
    return class_prior.clip(min=_LEAST), counts / np.where(totals > 0, totals, 1.0), 0.0


def _smoothed(swept: Swept, strength: float) -> tuple[Floats, Floats, float]:
    class_prior = swept.items[0] + 1
    class_prior /= class_prior.sum()
    crowd = swept.answers.sum(axis=0) + 1 / len(class_prior)  # (labels, true labels)
    crowd /= crowd.sum(axis=0)
    prior = strength * crowd
    confusion = swept.answers + prior
    confusion /= confusion.sum(axis=1, keepdims=True)
    log_density = float(np.log(class_prior).sum() + (prior * np.log(confusion)).sum())
    return class_prior, confusion, log_density

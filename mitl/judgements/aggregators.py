"""The ways to make one answer of several, by name; and the model of Dawid and Skene, one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from mitl.core.arrays import Flags, Floats
from mitl.judgements.answer_table import POSITIVE_LABELS, UNKNOWN, AnswerTable, Labels, majority_table
from mitl.judgements.ordinal import fit_ordinal
from mitl.judgements.posterior_sweep import Convergence, Sweeper, Swept, has_settled

Floats32 = NDArray[np.float32]

OVERLAP = 1.5
"""Answers that an item should have on average for a model that learns workers' errors from overlaps alone."""


class Aggregator(StrEnum):
    """A way to make one answer of several."""

    MAJORITY = "majority"
    """The most frequent label; a tie goes to the label nearer the median, then towards ``no``."""
    DAWID_SKENE = "dawid-skene"
    """Each worker has a confusion matrix; controls count."""
    ORDINAL = "ordinal"
    """Matches in degrees; each worker has a bias and a noise; controls count."""


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """What a fitted model holds possible for each item; arrays are over the items, in the table's order."""

    level: Floats32
    """(items, labels) probability of each true label, the best first."""
    match: Floats32 | None = None
    """(items,) how well the item matches, in standard deviations of the items; None where a model has no degrees."""
    low: Floats32 | None = None
    """(items,) lower end of the central 90 % credible interval of ``match``."""
    high: Floats32 | None = None
    """(items,) upper end."""

    def first(self, n: int) -> Posterior:
        """The first ``n`` items alone."""
        others = (None if part is None else part[:n] for part in (self.match, self.low, self.high))
        return Posterior(self.level[:n], *others)


@dataclass(frozen=True, slots=True, eq=False)
class Aggregated:
    """One answer for each item of a table, known items included; arrays are (items,), in the table's order."""

    label: Labels
    probability: Floats
    """That the item is positive; of a majority the share of positive answers, without smoothing."""
    n_answers: NDArray[np.int32]
    convergence: Convergence | None = None
    """How the fit ended; None where nothing was fitted."""
    posterior: Posterior | None = None
    """None where nothing was fitted."""
    warnings: tuple[str, ...] = ()
    """Why the result should be taken with care, for people."""


def aggregate(table: AnswerTable, method: Aggregator = Aggregator.MAJORITY) -> Aggregated:
    """One answer for each item.

    A fitted model's label is the most probable one on the more probable side, positive or not: so it never
    contradicts the probability.
    """
    if method is Aggregator.MAJORITY or not len(table):
        majority = majority_table(table)
        return Aggregated(majority.label, majority.positive.astype(np.float64), majority.n_answers)
    posterior, convergence = _FITS[method](table)
    level = posterior.level.astype(np.float64)
    probability = level[:, :POSITIVE_LABELS].sum(axis=1).clip(0, 1)
    warnings = () if convergence.settled else (f"the fit of {method.value} {convergence.line}",)
    return Aggregated(
        _labels(level, probability),
        probability,
        table.answers_per_item.astype(np.int32),
        convergence,
        posterior,
        (*_evidence_warnings(table, method), *warnings),
    )


def _labels(posterior: Floats, probability: Floats) -> Labels:
    """The most probable label of the more probable side; of equals the worse one."""
    n_labels = posterior.shape[1]
    label = np.zeros(len(posterior), dtype=np.int8)
    sides = ((0, POSITIVE_LABELS, probability > 0.5), (POSITIVE_LABELS, n_labels, probability <= 0.5))
    for first, end, rows in sides:
        if first < end:
            label[rows] = end - 1 - posterior[rows, first:end][:, ::-1].argmax(axis=1)
    return label


def _evidence_warnings(table: AnswerTable, method: Aggregator) -> tuple[str, ...]:
    asked = table.answers_per_item[table.known == UNKNOWN]
    if not len(asked) or asked.mean() >= OVERLAP:
        return ()
    seen = f"the pairs have {asked.mean():.2f} answers on average"
    if method is Aggregator.DAWID_SKENE:
        return (
            f"{seen}, and {method.value} learns who errs from pairs that several people answered "
            f"(at least {OVERLAP} are wanted); take ordinal or majority, or publish with --overlap",
        )
    if len(asked) == table.n_items and asked.max() < 2:
        return (f"{seen} and there are no gold controls, so nothing shows how much workers err",)
    return ()


def _dawid_skene(table: AnswerTable) -> tuple[Posterior, Convergence]:
    model = fit_dawid_skene(table)
    return Posterior(model.posterior.astype(np.float32)), model.convergence


def _ordinal(table: AnswerTable) -> tuple[Posterior, Convergence]:
    model = fit_ordinal(table)
    return Posterior(model.level, model.match, model.low, model.high), model.convergence


_FITS: Mapping[Aggregator, Callable[[AnswerTable], tuple[Posterior, Convergence]]] = {
    Aggregator.DAWID_SKENE: _dawid_skene,
    Aggregator.ORDINAL: _ordinal,
}


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
    """Fit Dawid and Skene's model by expectation maximisation, from the shares of each item's answers.

    Each worker has a confusion matrix, each item a true label. Each row of a worker's matrix has a Dirichlet prior
    around the crowd's mean row, so that a worker with few answers is taken for a usual one, and never for one who
    cannot err. Items that are known keep their label; they speak for the workers' matrices and not for the class prior.

    Raises:
        ValueError: there are no answers.

    Source: Dawid and Skene, Maximum Likelihood Estimation of Observer Error-Rates Using the EM Algorithm, 1979.
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
        # (labels + 1, labels): the class prior for unknown items, certainty for known ones.
        certain = np.where(np.eye(len(class_prior), dtype=bool), 0.0, -np.inf)
        swept = sweeper.sweep(log_confusion, np.vstack([np.log(class_prior), certain]), keep)
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


def _maximise(swept: Swept, seen: Flags, options: DawidSkeneOptions) -> tuple[Floats, Floats, float]:
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

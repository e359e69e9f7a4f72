"""The ways to make one answer of several, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from mitl.judgements.answer_table import UNKNOWN, AnswerTable, Labels
from mitl.judgements.convergence import Convergence
from mitl.judgements.dawid_skene import fit_dawid_skene
from mitl.judgements.majority import POSITIVE_LABELS, majority_table
from mitl.judgements.ordinal import fit_ordinal

Floats = NDArray[np.float64]
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
        return Posterior(self.level[:n], *(_start(one, n) for one in (self.match, self.low, self.high)))


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


def aggregate(
    table: AnswerTable, method: Aggregator = Aggregator.MAJORITY, *, n_positive: int = POSITIVE_LABELS
) -> Aggregated:
    """One answer for each item.

    A fitted model's label is the most probable one on the more probable side, positive or not: so it never
    contradicts the probability.

    Args:
        n_positive: how many labels, counted from the best, are positive.
    """
    if method is Aggregator.MAJORITY or not len(table):
        found = majority_table(table, n_positive)
        return Aggregated(found.label, found.positive.astype(np.float64), found.n_answers)
    posterior, convergence = _FITS[method](table)
    level = posterior.level.astype(np.float64)
    probability = level[:, :n_positive].sum(axis=1).clip(0, 1)
    warnings = () if convergence.settled else (f"the fit of {method.value} {convergence.line}",)
    return Aggregated(
        _labels(level, probability, n_positive),
        probability,
        table.answers_per_item.astype(np.int32),
        convergence,
        posterior,
        (*_evidence_warnings(table, method), *warnings),
    )


def _labels(posterior: Floats, probability: Floats, n_positive: int) -> Labels:
    """The most probable label of the more probable side; of equals the worse one."""
    n_labels = posterior.shape[1]
    label = np.zeros(len(posterior), dtype=np.int8)
    for first, end, rows in ((0, n_positive, probability > 0.5), (n_positive, n_labels, probability <= 0.5)):
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


def _start(column: Floats32 | None, n: int) -> Floats32 | None:
    return None if column is None else column[:n]


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

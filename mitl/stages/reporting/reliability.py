"""How far the probabilities of the answers can be trusted, where something tells what is true."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mitl.analysis.report.inputs import Reliability, ReliabilityBin
from mitl.core.intervals import clopper_pearson
from mitl.core.packed import Ints, contains
from mitl.judgements.aggregators import Aggregator, aggregate
from mitl.judgements.answer_table import UNKNOWN, AnswerTable
from mitl.judgements.calibration import Fit, calibration, cross_fit
from mitl.judgements.majority import POSITIVE_LABELS
from mitl.positives.pair_answers import pair_answers, table_with_controls
from mitl.positives.rules import MergeRules
from mitl.records import GoldControl

FOLDS = 5
CONFIDENCE = 0.95
MANY_ANSWERS = 20_000
"""Beyond these one fold of the controls is enough, and five fits would take longer than all the rest of a report."""


def reliability(
    judgements: pd.DataFrame,
    rules: MergeRules,
    withdrawn: Collection[GoldControl],
    true: Ints | None,
) -> tuple[Reliability, ...]:
    """The probabilities held against the known truth, and those of a fitted model against controls kept from it.

    A plain majority says nothing of controls: their one answer is what is to be checked.

    Args:
        true: packed pairs that are a match in truth, sorted; None where nobody knows.
    """
    found = []
    if true is not None:
        answers = pair_answers(judgements, rules, withdrawn).pairs
        if len(answers):
            right = contains(true, answers["pair"].to_numpy())
            found.append(_reliability("the known truth", rules, answers["probability"].to_numpy(), right))
    if rules.aggregator is not Aggregator.MAJORITY:
        _, table = table_with_controls(judgements, withdrawn, ["pair", "gold"])
        if (table.known >= 0).sum() >= FOLDS:
            items, probability = _kept_out(table, lambda part: _probability(part, rules))
            positive = table.known[items] < POSITIVE_LABELS
            found.append(_reliability("controls kept from the fit", rules, probability, positive))
    return tuple(found)


def _kept_out(table: AnswerTable, fit: Fit) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Controls with the probability that each matches, by a fit that did not know them."""
    if len(table) <= MANY_ANSWERS:
        return cross_fit(table, fit, folds=FOLDS)
    items = np.flatnonzero(table.known != UNKNOWN)
    hidden = np.sort(np.random.default_rng(0).permutation(items)[: len(items) // FOLDS])
    known = table.known.copy()
    known[hidden] = UNKNOWN
    return hidden, fit(table.with_known(known))[hidden]


def _probability(table: AnswerTable, rules: MergeRules) -> NDArray[np.float64]:
    return aggregate(table, rules.aggregator).probability


def _reliability(
    against: str, rules: MergeRules, probability: NDArray[np.float64], true: NDArray[np.bool_]
) -> Reliability:
    found = calibration(probability, true)
    bins = []
    for stated, observed, cases in zip(
        found.stated.tolist(), found.observed.tolist(), found.cases.tolist(), strict=True
    ):
        low, high = clopper_pearson(round(observed * cases), cases, CONFIDENCE)
        bins.append(ReliabilityBin(stated, observed, cases, low, high))
    return Reliability(
        against, rules.aggregator.value, found.n, found.error, found.brier, found.log_loss, tuple(bins)
    )

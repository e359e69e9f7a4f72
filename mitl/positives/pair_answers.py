"""One answer for each pair from the judgements of many, by any of the aggregators."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mitl.core.arrays import Ints, contains, distinct, pack_each, pack_pairs, unpack_pairs
from mitl.judgements.aggregators import Aggregator, Posterior, aggregate
from mitl.judgements.answer_table import (
    GOLD_LABELS,
    POSITIVE_LABELS,
    UNKNOWN,
    AnswerTable,
    answer_table,
    most_positive_table,
)
from mitl.positives.merging import MergeRules
from mitl.records import GoldControl, Judgement, Label, Pair
from mitl.records.frames import (
    JUDGEMENTS,
    LABELS,
    NONE,
    OUTCOMES,
    PAIR_ANSWERS,
    ROLES,
    counts,
    frame,
    is_asked,
    is_gold,
    is_labelled,
)
from mitl.records.questions import RATIONALE


@dataclass(frozen=True, slots=True)
class PairAnswer:
    """What people answered on a pair, taken together."""

    label: Label
    n_judgements: int
    probability: float
    """Share of the usable judgements that are positive, without smoothing: 1.0 after a single yes."""


@dataclass(frozen=True, slots=True, eq=False)
class PairAnswers:
    """The answers of pairs, and what to know of how they were made."""

    pairs: pd.DataFrame
    """``PAIR_ANSWERS``."""
    fit: str = ""
    """How the fit of a model ended; empty where nothing was fitted."""
    posterior: Posterior | None = None
    """In order of the pairs; None where nothing was fitted."""
    warnings: tuple[str, ...] = ()


def judgement_frame(judgements: Iterable[Judgement]) -> pd.DataFrame:
    """Records as a frame (``JUDGEMENTS``), in their order."""
    rows = list(judgements)
    return frame(
        JUDGEMENTS,
        {
            "pair": pack_each(row.pair for row in rows),
            "worker": pd.Categorical([row.worker for row in rows], sorted({row.worker for row in rows})),
            "label": [NONE if row.label is None else LABELS.index(row.label) for row in rows],
            "outcome": [OUTCOMES.index(row.outcome) for row in rows],
            "role": [ROLES.index(row.role) for row in rows],
            "usable": [row.usable for row in rows],
            **{
                question.column: [question.bits(row.given.get(question.name, ())) for row in rows]
                for question in RATIONALE
                if question.choices
            },
            "active_ms": [NONE if row.active_ms is None else row.active_ms for row in rows],
        },
    )


def pair_answers(
    judgements: pd.DataFrame, rules: MergeRules | None = None, withdrawn: Collection[GoldControl] = ()
) -> PairAnswers:
    """The answer of each pair that has a usable judgement, in order of the pairs.

    Args:
        judgements: ``JUDGEMENTS``.
        rules: name the aggregator; the majority where they are left out. Under the official filters one positive answer
            among several makes a positive.
        withdrawn: controls that say nothing about anybody; the others tell a model how its workers err.
    """
    rules = rules or MergeRules()
    if rules.aggregator is Aggregator.MAJORITY:
        return PairAnswers(_by_majority(judgements, most_positive=rules.official))
    pairs, table = table_with_controls(judgements, withdrawn, ["gold", "pair"])
    aggregated = aggregate(table, rules.aggregator)
    n = len(pairs)
    answers = _frame(pairs, aggregated.label[:n], aggregated.n_answers[:n], aggregated.probability[:n])
    fit = "" if aggregated.convergence is None else aggregated.convergence.line
    posterior = None if aggregated.posterior is None else aggregated.posterior.first(n)
    return PairAnswers(answers, fit, posterior, aggregated.warnings)


def majority_answers(judgements: pd.DataFrame) -> dict[Pair, PairAnswer]:
    """What most people answered on each pair that has a usable answer, in order of the pairs."""
    answers = pair_answers(judgements).pairs
    columns = (answers[name].tolist() for name in ("label", "n_judgements", "probability"))
    return {
        pair: PairAnswer(LABELS[label], n, probability)
        for pair, label, n, probability in zip(
            unpack_pairs(answers["pair"].to_numpy()), *columns, strict=True
        )
    }


def _by_majority(judgements: pd.DataFrame, *, most_positive: bool) -> pd.DataFrame:
    given = judgements[counts(judgements)]
    pairs = distinct(given["pair"].to_numpy())
    table = answer_table(np.searchsorted(pairs, given["pair"]), given["worker"].cat.codes, given["label"])
    aggregated = aggregate(table)
    label = most_positive_table(table) if most_positive else aggregated.label
    # The share as a quotient of whole numbers: what a model gives is rounded.
    positive = (
        np.add.reduceat(table.label < POSITIVE_LABELS, table.starts[:-1]) if len(pairs) else np.empty(0)
    )
    return _frame(pairs, label, aggregated.n_answers, positive / np.maximum(aggregated.n_answers, 1))


def table_with_controls(
    judgements: pd.DataFrame, withdrawn: Collection[GoldControl], order: list[str]
) -> tuple[Ints, AnswerTable]:
    """The pairs with a usable answer, ascending, and a table of these answers and of those on trusted controls.

    A pair that was asked as a control and as a candidate is two items: what a control is known to be says
    nothing about the answer that people are asked for.

    Args:
        order: of the items: ``gold`` (pairs that are asked, then the controls of each role) and ``pair``.
    """
    gold = np.where(is_gold(judgements), judgements["role"], 0)  # candidates have the first place in PairRole
    trusted = np.asarray(judgements["usable"]) & is_labelled(judgements)
    trusted &= is_gold(judgements) | is_asked(judgements)
    for role in GOLD_LABELS:
        gone = pack_pairs(control.pair for control in withdrawn if control.role is role)
        trusted &= ~((gold == ROLES.index(role)) & contains(gone, judgements["pair"].to_numpy()))
    answers = judgements.loc[trusted, ["pair", "worker", "label"]].assign(gold=gold[trusted])
    item = answers.groupby(order, sort=True).ngroup().to_numpy()
    known = np.full(len(ROLES), UNKNOWN, np.int8)
    for role, label in GOLD_LABELS.items():
        known[ROLES.index(role)] = LABELS.index(label)
    _, first = np.unique(item, return_index=True)
    table = answer_table(
        item, answers["worker"].cat.codes, answers["label"], known=known[answers["gold"].to_numpy()[first]]
    )
    return distinct(answers.loc[answers["gold"] == 0, "pair"].to_numpy()), table


def _frame(pairs: Ints, label: object, n_judgements: object, probability: object) -> pd.DataFrame:
    columns = {"pair": pairs, "label": label, "n_judgements": n_judgements, "probability": probability}
    return frame(PAIR_ANSWERS, columns)

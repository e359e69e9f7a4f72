"""One answer for each pair from the judgements of many, by any of the aggregators."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mitl.judgements.aggregators import Aggregator, Posterior, aggregate
from mitl.judgements.answer_table import GOLD_LABELS, UNKNOWN, AnswerTable, answer_table
from mitl.judgements.majority import POSITIVE_LABELS, most_positive_table
from mitl.positives.judgement_columns import JudgementColumns
from mitl.positives.merge_columns import AnswerColumns
from mitl.positives.rules import MergeRules
from mitl.proposals.packed import Ints, contains, distinct, pack_pairs
from mitl.records import GoldControl, PairRole


@dataclass(frozen=True, slots=True, eq=False)
class PairAnswers:
    """The answers of pairs, and what to know of how they were made."""

    columns: AnswerColumns
    fit: str = ""
    """How the fit of a model ended; empty where nothing was fitted."""
    posterior: Posterior | None = None
    """In order of the pairs; None where nothing was fitted."""
    warnings: tuple[str, ...] = ()


def pair_answers(
    columns: JudgementColumns, rules: MergeRules | None = None, withdrawn: Collection[GoldControl] = ()
) -> PairAnswers:
    """The answer of each pair that has a usable judgement, in order of the pairs.

    Args:
        rules: name the aggregator; the majority where they are left out. Under the official filters one positive answer
            among several makes a positive.
        withdrawn: controls that say nothing about anybody; the others tell a model how its workers err.
    """
    rules = rules or MergeRules()
    counting = columns.counting
    pairs = distinct(columns.pairs[counting])
    if rules.aggregator is Aggregator.MAJORITY:
        item = np.searchsorted(pairs, columns.pairs[counting])
        table = answer_table(item, columns.worker[counting], columns.label[counting])
        return PairAnswers(_by_majority(pairs, table, most_positive=rules.official))
    found = aggregate(_with_controls(columns, pairs, withdrawn), rules.aggregator)
    n = len(pairs)
    answers = AnswerColumns(pairs, found.label[:n], found.n_answers[:n], found.probability[:n])
    fit = "" if found.convergence is None else found.convergence.line
    posterior = None if found.posterior is None else found.posterior.first(n)
    return PairAnswers(answers, fit, posterior, found.warnings)


def _by_majority(pairs: Ints, table: AnswerTable, *, most_positive: bool) -> AnswerColumns:
    found = aggregate(table)
    label = most_positive_table(table) if most_positive else found.label
    # The share as a quotient of whole numbers, as the one-pair function has it.
    positive = (
        np.add.reduceat(table.label < POSITIVE_LABELS, table.starts[:-1]) if len(pairs) else np.empty(0)
    )
    share = np.asarray(positive / np.maximum(found.n_answers, 1), np.float64)
    return AnswerColumns(pairs, label, found.n_answers, share)


def _with_controls(columns: JudgementColumns, pairs: Ints, withdrawn: Collection[GoldControl]) -> AnswerTable:
    """The pairs as the first items, then the controls of each role, which are known."""
    rows, items = (
        [np.flatnonzero(columns.counting)],
        [np.searchsorted(pairs, columns.pairs[columns.counting])],
    )
    known: list[NDArray[np.int8]] = [np.full(len(pairs), UNKNOWN, np.int8)]
    n_items = len(pairs)
    for role, label in GOLD_LABELS.items():
        gone = pack_pairs(gold.pair for gold in withdrawn if gold.role is role)
        mine = columns.given & (columns.role == list(PairRole).index(role))
        mine &= ~contains(gone, columns.pairs)
        controls = distinct(columns.pairs[mine])
        rows.append(np.flatnonzero(mine))
        items.append(n_items + np.searchsorted(controls, columns.pairs[mine]))
        known.append(np.full(len(controls), label.code - 1, np.int8))
        n_items += len(controls)
    row = np.concatenate(rows)
    return answer_table(
        np.concatenate(items), columns.worker[row], columns.label[row], known=np.concatenate(known)
    )

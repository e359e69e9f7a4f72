"""What judges the answers: recall and precision in a generated world, rule by rule, and how far probabilities hold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mitl.analysis.known_truth import DirectionScores, recall_precision, score_directions
from mitl.analysis.report.inputs import Reliability, ReliabilityBin, TruthStats
from mitl.core.arrays import Ints
from mitl.core.intervals import clopper_pearson
from mitl.core.packed import contains, pack_pairs
from mitl.crowd.truth import true_pairs
from mitl.db.store.judgements import StoredJudgement
from mitl.judgements.aggregators import Aggregator, aggregate
from mitl.judgements.answer_table import POSITIVE_LABELS, UNKNOWN, AnswerTable
from mitl.judgements.calibration import Fit, calibration, cross_fit
from mitl.judgements.gold_records import check_assignment, decide, is_usable
from mitl.positives.merging import Merged, MergeRules
from mitl.positives.pair_answers import judgement_frame, majority_answers, pair_answers, table_with_controls
from mitl.records import Direction, Judgement, Pair
from mitl.stages.analysing.snapshot import ProjectSnapshot
from mitl.stages.reporting.funnel import asked_pairs

PRECISION_TARGET = 0.95
FOLDS = 5
CONFIDENCE = 0.95
MANY_ANSWERS = 20_000
"""Beyond these one fold of the controls is enough, and five fits would take longer than all the rest of a report."""


def packed_truth(project: ProjectSnapshot) -> Ints:
    """The query × gallery pairs, both directions, that are a match in truth; packed and sorted."""
    images, captions = project.queries[Direction.I2T], project.queries[Direction.T2I]
    return pack_pairs(true_pairs(project.settings, images, captions, project.image_ids, project.caption_ids))


def truth_stats(project: ProjectSnapshot, merged: Merged | None, truth: Ints) -> TruthStats:
    """Scores of the originals, of the release, of each annotator alone, and of the gold rules.

    Args:
        merged: what a release would hold; None where nobody judged or rated anything.
        truth: as :func:`packed_truth` gives it.
    """
    queries = (project.queries[Direction.I2T], project.queries[Direction.T2I])
    judged = project.answers

    def score(pairs: Iterable[Pair]) -> DirectionScores:
        return score_directions(pack_pairs(pairs), truth, *queries)

    kept = None if merged is None else merged.where("kept")
    positive = {pair for pair, answer in judged.items() if answer.label.is_positive}
    proposed: dict[str, set[Pair]] = defaultdict(set)
    for proposal in project.proposals:
        proposed[proposal.annotator].add(proposal.pair)
    return TruthStats(
        original=score(project.originals),
        release=None if kept is None else score_directions(kept, truth, *queries),
        released=0 if kept is None else len(kept),
        by_annotator=tuple((row.name, score(proposed[row.name] & positive)) for row in project.annotators)
        if judged
        else (),
        hit_rule=score(_positive(_by_hit_rule(project))) if judged else None,
        hit_rule_and_record=score(positive) if judged else None,
        # What people found among the pairs that they were asked about: their share of the recall, not the machines'.
        asked=recall_precision(pack_pairs(positive), truth, pack_pairs(asked_pairs(project)))
        if judged
        else None,
        precision_target=PRECISION_TARGET,
    )


def _by_hit_rule(project: ProjectSnapshot) -> list[Judgement]:
    """What would count if each page's own two controls were the only rule, and no passed page were asked again.

    Per pair, the earliest answer on a page that passes stands.
    """
    pages: dict[int, list[StoredJudgement]] = defaultdict(list)
    for row in project.stored:
        pages[row.assignment_id].append(row)
    found: dict[Pair, Judgement] = {}
    for submission in project.submissions:
        page = pages[submission.id]
        records = [row.record for row in page]
        check = check_assignment(records, project.settings.gold_rule, project.golds.withdrawn)
        decision = decide(check).decision
        for record in records:
            if record.role.is_asked and is_usable(record, decision):
                found.setdefault(record.pair, replace(record, usable=True))
    return list(found.values())


def _positive(judgements: Iterable[Judgement]) -> set[Pair]:
    answers = majority_answers(judgement_frame(judgements))
    return {pair for pair, answer in answers.items() if answer.label.is_positive}


def reliability(project: ProjectSnapshot, true: Ints | None) -> tuple[Reliability, ...]:
    """The probabilities compared with the known truth, and those of a fitted model against controls kept from it.

    A plain majority says nothing of controls: their one answer is what is to be checked.

    Args:
        true: packed pairs that are a match in truth, sorted; None where nobody knows.
    """
    judgements, rules, withdrawn = project.judgements, project.merge_rules, project.golds.withdrawn
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

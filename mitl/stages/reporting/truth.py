"""The report's figures from pairs to positives, and what judges them.

What was ranked, proposed, asked, judged and found; recall and precision in a generated world, rule by rule; and how far
probabilities hold.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mitl.analysis.known_truth import DirectionScores, recall_precision, score_directions
from mitl.analysis.report.inputs import (
    AnnotatorProposals,
    FunnelCounts,
    ProposalPlaces,
    Reliability,
    TruthStats,
)
from mitl.core.arrays import Ints, contains, pack_pairs
from mitl.crowd.truth import true_pairs
from mitl.db.store.judgements import StoredJudgement
from mitl.judgements.aggregators import Aggregator, aggregate
from mitl.judgements.answer_table import POSITIVE_LABELS, UNKNOWN, AnswerTable
from mitl.judgements.calibration import Fit, calibration, cross_fit
from mitl.judgements.gold_records import check_assignment, decide, is_usable
from mitl.positives.merging import Merged
from mitl.positives.pair_answers import judgement_frame, majority_answers, pair_answers, table_with_controls
from mitl.records import Direction, HitState, Judgement, Pair, PairRole
from mitl.stages.analysing.snapshot import ProjectSnapshot


def annotator_proposals(project: ProjectSnapshot) -> tuple[AnnotatorProposals, ...]:
    """What each machine annotator proposed, how much of it was new, and how much people confirmed."""
    answers = project.answers
    places = Counter(proposal.annotator for proposal in project.proposals)
    proposed: dict[str, set[Pair]] = {row.name: set() for row in project.annotators}
    for proposal in project.proposals:
        proposed[proposal.annotator].add(proposal.pair)
    earlier: set[Pair] = set()
    rows = []
    for row in project.annotators:
        pairs = proposed[row.name]
        judged = [answers[pair] for pair in pairs if pair in answers]
        rows.append(
            AnnotatorProposals(
                name=row.name,
                kind=row.kind.value,
                proposed=places[row.name],
                distinct=len(pairs),
                new=len(pairs - earlier),
                overlap=sum(len(project.ranks[pair]) > 1 for pair in pairs),
                usable=len(judged) if answers else None,
                positive=sum(answer.label.is_positive for answer in judged) if answers else None,
            )
        )
        earlier |= pairs
    return tuple(rows)


def funnel_counts(project: ProjectSnapshot) -> FunnelCounts:
    """From all possible pairs down to the positives beyond the originals."""
    images, captions = (frozenset(project.queries[direction]) for direction in Direction)
    asked = asked_pairs(project)
    candidates = {proposal.pair for proposal in project.standing} | asked
    # A pair of an image query and a caption query belongs to both directions, and counts once.
    possible = (
        len(images) * len(project.captions)
        + len(captions) * len(project.images)
        - len(images) * len(captions)
    )
    beyond = sum(pair.image_id not in images and pair.caption_id not in captions for pair in candidates)
    records = [row.record for row in project.stored if row.record.role.is_asked]
    positive = {pair for pair, answer in project.answers.items() if answer.label.is_positive}
    return FunnelCounts(
        possible=possible + beyond if project.runs else None,
        distinct=len(candidates) if project.runs else None,
        asked=len(asked) if asked else None,
        judged=len({record.pair for record in records if record.label is not None}) if records else None,
        usable=len(project.answers) if records else None,
        positive=len(positive) if records else None,
        beyond_originals=len(positive - set(project.originals)) if records else None,
    )


def asked_pairs(project: ProjectSnapshot) -> set[Pair]:
    """The pairs that people were asked about: candidates of posted HITs, and what past work judged."""
    out = {hit.id for hit in project.hits if hit.state in (HitState.POSTED, HitState.CLOSED)}
    asked = {
        item.pair for hit_id in out for item in project.hit_items[hit_id] if item.role is PairRole.CANDIDATE
    }
    return asked | {row.record.pair for row in project.stored if row.record.role.is_asked}


def proposal_places(project: ProjectSnapshot) -> ProposalPlaces | None:
    """Places in rankings and proposals; None where nothing was proposed.

    Per annotator and direction the rankings of the run that ranked most count; withdrawn annotators' none.
    """
    if not project.runs:
        return None
    galleries = {Direction.I2T: len(project.captions), Direction.T2I: len(project.images)}
    places: dict[tuple[str, Direction], int] = defaultdict(int)
    for run in project.runs:
        config = run.config
        names = {entry["name"] for entry in config.get("annotators", ())}
        for name in names - project.withdrawn:
            for direction, gallery in galleries.items():
                count = config["queries"][direction.value]["count"] * min(config["depth"], gallery)
                places[name, direction] = max(places[name, direction], count)
    return ProposalPlaces(ranked=sum(places.values()), proposed=len(project.standing))


FOLDS = 5
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
    )


def _by_hit_rule(project: ProjectSnapshot) -> list[Judgement]:
    """What would count if each page's own two controls were the only rule, and no passed page were asked again.

    Per pair, the earliest answer on a page that passes stands.
    """
    pages: dict[int, list[StoredJudgement]] = defaultdict(list)
    for row in project.stored:
        pages[row.assignment_id].append(row)
    earliest: dict[Pair, Judgement] = {}
    for submission in project.submissions:
        page = pages[submission.id]
        records = [row.record for row in page]
        check = check_assignment(records, project.settings.gold_rule, project.golds.withdrawn)
        decision = decide(check).decision
        for record in records:
            if record.role.is_asked and is_usable(record, decision):
                earliest.setdefault(record.pair, replace(record, usable=True))
    return list(earliest.values())


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
    reliabilities = []
    if true is not None:
        answers = pair_answers(judgements, rules, withdrawn).pairs
        if len(answers):
            right = contains(true, answers["pair"].to_numpy())
            curve = calibration(answers["probability"].to_numpy(), right)
            reliabilities.append(Reliability("the known truth", rules.aggregator.value, curve))
    if rules.aggregator is not Aggregator.MAJORITY:
        _, table = table_with_controls(judgements, withdrawn, ["pair", "gold"])
        if (table.known >= 0).sum() >= FOLDS:
            items, probability = _kept_out(table, lambda part: aggregate(part, rules.aggregator).probability)
            positive = table.known[items] < POSITIVE_LABELS
            curve = calibration(probability, positive)
            reliabilities.append(Reliability("controls kept from the fit", rules.aggregator.value, curve))
    return tuple(reliabilities)


def _kept_out(table: AnswerTable, fit: Fit) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Controls with the probability that each matches, by a fit that did not know them."""
    if len(table) <= MANY_ANSWERS:
        return cross_fit(table, fit, folds=FOLDS)
    items = np.flatnonzero(table.known != UNKNOWN)
    hidden = np.sort(np.random.default_rng(0).permutation(items)[: len(items) // FOLDS])
    known = table.known.copy()
    known[hidden] = UNKNOWN
    return hidden, fit(table.with_known(known))[hidden]

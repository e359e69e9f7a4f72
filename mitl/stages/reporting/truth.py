"""The report's figures from pairs to positives, and what judges them.

What was ranked, proposed, asked, judged and found; recall and precision in a generated world, rule by rule; and how far
probabilities hold.
"""

from __future__ import annotations

from collections import defaultdict
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
from mitl.core.arrays import Ints, contains, distinct, pack_pairs, unpack_ids
from mitl.crowd.truth import true_pairs
from mitl.db.session import open_database
from mitl.db.store import judgements as judgement_store
from mitl.judgements.aggregators import Aggregator, aggregate
from mitl.judgements.answer_table import POSITIVE_LABELS, UNKNOWN, AnswerTable
from mitl.judgements.calibration import Fit, calibration, cross_fit
from mitl.judgements.gold_records import check_assignment, gold_findings, is_usable, verdict
from mitl.positives.merging import Merged
from mitl.positives.pair_answers import judgement_frame, pair_answers, table_with_controls
from mitl.records import Direction, Judgement, Pair, PairRole
from mitl.records.frames import NONE, is_asked
from mitl.stages.analysing.snapshot import ProjectSnapshot


def annotator_proposals(project: ProjectSnapshot) -> tuple[AnnotatorProposals, ...]:
    """What each machine annotator proposed, how much of it was new, and how much people confirmed."""
    ranks = project.ranks
    shared = ranks["pair"].duplicated(keep=False)
    places = project.proposals["annotator"].value_counts()
    judged, earlier = len(project.answered), np.empty(0, np.int64)
    rows = []
    for row in project.annotators:
        own = ranks["annotator"] == row.name
        pairs = ranks.loc[own, "pair"].to_numpy()
        rows.append(
            AnnotatorProposals(
                name=row.name,
                kind=row.kind.value,
                proposed=int(places.get(row.name, 0)),
                distinct=len(pairs),
                new=int((~contains(earlier, pairs)).sum()),
                overlap=int(shared[own].sum()),
                usable=int(contains(project.answered, pairs).sum()) if judged else None,
                positive=int(contains(project.positive, pairs).sum()) if judged else None,
            )
        )
        earlier = distinct(np.concatenate([earlier, pairs]))
    return tuple(rows)


def funnel_counts(project: ProjectSnapshot) -> FunnelCounts:
    """From all possible pairs down to the positives beyond the originals."""
    images, captions = (np.array(project.queries[direction], np.int64) for direction in Direction)
    asked = project.asked_pairs
    candidates = distinct(np.concatenate([project.standing["pair"].to_numpy(), asked]))
    # A pair of an image query and a caption query belongs to both directions, and counts once.
    possible = (
        len(images) * len(project.captions)
        + len(captions) * len(project.images)
        - len(images) * len(captions)
    )
    of_image, of_caption = unpack_ids(candidates)
    beyond = int((~contains(images, of_image) & ~contains(captions, of_caption)).sum())
    records = project.judgements[is_asked(project.judgements)]
    some = not records.empty
    judged = distinct(records.loc[records["label"] != NONE, "pair"].to_numpy())
    return FunnelCounts(
        possible=possible + beyond if project.runs else None,
        distinct=len(candidates) if project.runs else None,
        asked=len(asked) or None,
        judged=len(judged) if some else None,
        usable=len(project.answered) if some else None,
        positive=len(project.positive) if some else None,
        beyond_originals=int((~contains(project.original_pairs, project.positive)).sum()) if some else None,
    )


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
    judged, positive = len(project.answered), project.positive

    def score(pairs: Ints) -> DirectionScores:
        return score_directions(pairs, truth, *queries)

    kept = None if merged is None else merged.where("kept")
    found = project.ranks[contains(positive, project.ranks["pair"].to_numpy())]
    return TruthStats(
        original=score(project.original_pairs),
        release=None if kept is None else score(kept),
        released=0 if kept is None else len(kept),
        by_annotator=tuple(
            (row.name, score(found.loc[found["annotator"] == row.name, "pair"].to_numpy()))
            for row in project.annotators
        )
        if judged
        else (),
        hit_rule=score(_positive(_by_hit_rule(project))) if judged else None,
        hit_rule_and_record=score(positive) if judged else None,
        # What people found among the pairs that they were asked about: their share of the recall, not the machines'.
        asked=recall_precision(positive, truth, project.asked_pairs) if judged else None,
    )


def _by_hit_rule(project: ProjectSnapshot) -> list[Judgement]:
    """What would count if each page's own two controls were the only rule, and no passed page were asked again.

    Per pair, the earliest answer on a page that passes stands.
    """
    with open_database(project.settings.db_url, read_only=True) as session:
        stored = judgement_store.judgements(session, project.environment)
    pages: dict[int, list[Judgement]] = defaultdict(list)
    for row in stored:
        if row.record.role is not PairRole.AUDIT:
            pages[row.assignment_id].append(row.record)
    earliest: dict[Pair, Judgement] = {}
    for submission in project.submissions:
        records = pages[submission.id]
        check = check_assignment(records, project.settings.gold_rule, project.golds.withdrawn)
        decision = verdict(gold_findings(check)).decision
        for record in records:
            if record.role.is_asked and is_usable(record, decision):
                earliest.setdefault(record.pair, replace(record, usable=True))
    return list(earliest.values())


def _positive(judgements: Iterable[Judgement]) -> Ints:
    answers = pair_answers(judgement_frame(judgements)).pairs
    return answers.loc[answers["label"] < POSITIVE_LABELS, "pair"].to_numpy()


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

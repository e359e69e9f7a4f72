"""What a generated world tells of a project: recall and precision before and after, rule by rule."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from mitl.analysis.known_truth import DirectionScores, Score, recall_precision, score_directions
from mitl.analysis.report.inputs import TruthStats
from mitl.core.packed import Ints, pack_pairs
from mitl.crowd.truth import true_pairs
from mitl.db.store.judgements import StoredJudgement
from mitl.judgements.gold_records import GoldState
from mitl.judgements.goldcheck import check_assignment, decide, is_usable
from mitl.positives.merging import Merged
from mitl.positives.pair_answers import PairAnswer, judgement_frame, majority_answers
from mitl.records import Direction, Judgement, Pair
from mitl.records.gold_rule import GoldRule
from mitl.settings import Settings
from mitl.stages.analysing.funnel import asked_pairs
from mitl.stages.analysing.snapshot import Snapshot

PRECISION_TARGET = 0.95


def packed_truth(settings: Settings, known: Snapshot) -> Ints:
    """The query × gallery pairs, both directions, that are a match in truth; packed and sorted."""
    queries = (known.queries[Direction.I2T], known.queries[Direction.T2I])
    return pack_pairs(true_pairs(settings, *queries, known.image_ids, known.caption_ids))


def truth_stats(
    settings: Settings,
    known: Snapshot,
    merged: Merged | None,
    state: GoldState,
    truth: Ints,
    judged: Mapping[Pair, PairAnswer],
) -> TruthStats:
    """Scores of the originals, of the release, of each annotator alone, and of the gold rules.

    Args:
        truth: as :func:`packed_truth` gives it.
        judged: the answer of each pair that has one.
    """
    queries = (known.queries[Direction.I2T], known.queries[Direction.T2I])

    def score(pairs: Iterable[Pair]) -> DirectionScores:
        return score_directions(pack_pairs(pairs), truth, *queries)

    positive = {pair for pair, answer in judged.items() if answer.label.is_positive}
    proposed: dict[str, set[Pair]] = defaultdict(set)
    for proposal in known.proposals:
        proposed[proposal.annotator].add(proposal.pair)
    return TruthStats(
        original=score(known.originals),
        release=None if merged is None else score_directions(merged.where("kept"), truth, *queries),
        by_annotator=tuple((row.name, score(proposed[row.name] & positive)) for row in known.annotators)
        if judged
        else (),
        hit_rule=score(_positive(by_hit_rule(known, settings.gold_rule, state))) if judged else None,
        hit_rule_and_record=score(positive) if judged else None,
        asked=_recall_of_asked(known, positive, truth) if judged else None,
        precision_target=PRECISION_TARGET,
    )


def _recall_of_asked(known: Snapshot, positive: set[Pair], truth: Ints) -> Score:
    """What people found among the pairs that they were asked about: their share, not the machines', of the recall."""
    asked = pack_pairs(asked_pairs(known))
    return recall_precision(pack_pairs(positive), truth, universe=asked)


def by_hit_rule(known: Snapshot, rule: GoldRule, state: GoldState) -> list[Judgement]:
    """What would count if each page's own two controls were the only rule, and no passed page were asked again.

    Per pair, the earliest answer on a page that passes stands.
    """
    pages: dict[int, list[StoredJudgement]] = defaultdict(list)
    for row in known.judgements:
        pages[row.assignment_id].append(row)
    found: dict[Pair, Judgement] = {}
    for submission in known.submissions:
        page = pages[submission.id]
        check = check_assignment([row.record for row in page], rule, state.withdrawn)
        decision = decide(check).decision
        for row in page:
            record = row.record
            if not record.role.is_gold and is_usable(record, decision):
                found.setdefault(record.pair, _usable(record))
    return list(found.values())


def _usable(record: Judgement) -> Judgement:
    return replace(record, usable=True)


def _positive(judgements: Iterable[Judgement]) -> set[Pair]:
    answers = majority_answers(judgement_frame(judgements))
    return {pair for pair, answer in answers.items() if answer.label.is_positive}

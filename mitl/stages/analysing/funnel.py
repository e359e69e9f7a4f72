"""The report's figures from pairs to positives: what was ranked, proposed, asked, judged and found."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd

from mitl.analysis.report.inputs import (
    AnnotatorProposals,
    FunnelCounts,
    Multiplicity,
    ProposalPlaces,
)
from mitl.positives.merging import Merged, gather, listed_queries, merge
from mitl.positives.pair_answers import PairAnswer, packed, pair_answers
from mitl.positives.rules import MergeRules
from mitl.records import (
    Direction,
    GoldControl,
    HitState,
    Pair,
    PairRole,
)
from mitl.stages.analysing.snapshot import Snapshot


def annotator_proposals(
    known: Snapshot, answers: Mapping[Pair, PairAnswer]
) -> tuple[AnnotatorProposals, ...]:
    """What each machine annotator proposed, how much of it was new, and how much people confirmed."""
    places: dict[str, int] = defaultdict(int)
    pairs: dict[str, set[Pair]] = {row.name: set() for row in known.annotators}
    for proposal in known.proposals:
        places[proposal.annotator] += 1
        pairs[proposal.annotator].add(proposal.pair)
    found = known.found_by
    earlier: set[Pair] = set()
    rows = []
    for row in known.annotators:
        own = pairs[row.name]
        rows.append(
            AnnotatorProposals(
                name=row.name,
                kind=row.kind.value,
                proposed=places[row.name],
                distinct=len(own),
                new=len(own - earlier),
                overlap=sum(len(found[pair]) > 1 for pair in own),
                usable=sum(pair in answers for pair in own) if answers else None,
                positive=sum(answers[pair].label.is_positive for pair in own if pair in answers)
                if answers
                else None,
            )
        )
        earlier |= own
    return tuple(rows)


def funnel_counts(known: Snapshot, answers: Mapping[Pair, PairAnswer]) -> FunnelCounts:
    """From all possible pairs down to the positives beyond the originals."""
    images, captions = (frozenset(known.queries[direction]) for direction in Direction)
    asked = asked_pairs(known)
    candidates = {proposal.pair for proposal in known.proposals} | asked
    # A pair of an image query and a caption query belongs to both directions, and counts once.
    possible = (
        len(images) * len(known.captions) + len(captions) * len(known.images) - len(images) * len(captions)
    )
    beyond = sum(pair.image_id not in images and pair.caption_id not in captions for pair in candidates)
    records = [row.record for row in known.judgements if not row.record.role.is_gold]
    positive = {pair for pair, answer in answers.items() if answer.label.is_positive}
    return FunnelCounts(
        possible=possible + beyond if known.runs else None,
        distinct=len(candidates) if known.runs else None,
        asked=len(asked) if asked else None,
        judged=len({record.pair for record in records if record.label is not None}) if records else None,
        usable=len(answers) if records else None,
        positive=len(positive) if records else None,
        beyond_originals=len(positive - set(known.originals)) if records else None,
    )


def asked_pairs(known: Snapshot) -> set[Pair]:
    """The pairs that people were asked about: candidates of posted HITs, and what past work judged."""
    out = {hit.id for hit in known.hits if hit.state in (HitState.POSTED, HitState.CLOSED)}
    asked = {
        item.pair for hit_id in out for item in known.hit_items[hit_id] if item.role is PairRole.CANDIDATE
    }
    return asked | {row.record.pair for row in known.judgements if not row.record.role.is_gold}


def proposal_places(known: Snapshot) -> ProposalPlaces | None:
    """Places in rankings and proposals; None where nothing was proposed.

    Per annotator and direction the rankings of the run that ranked most count.
    """
    if not known.runs:
        return None
    galleries = {Direction.I2T: len(known.captions), Direction.T2I: len(known.images)}
    places: dict[tuple[str, Direction], int] = defaultdict(int)
    for run in known.runs:
        config = json.loads(run.config)
        for entry in config.get("annotators", ()):
            for direction, gallery in galleries.items():
                count = config["queries"][direction.value]["count"] * min(config["depth"], gallery)
                key = (entry["name"], direction)
                places[key] = max(places[key], count)
    return ProposalPlaces(ranked=sum(places.values()), proposed=len(known.proposals))


def multiplicities(
    known: Snapshot, merged: Merged, answers: Mapping[Pair, PairAnswer]
) -> tuple[Multiplicity, ...]:
    """Positives of each query before and after, by direction.

    Where people answered anything, of the queries with an answered candidate; else, as for CxC's ratings alone, of all.
    """
    after = listed_queries(merged, known.queries)
    candidates: Mapping[Direction, set[Pair]] = {direction: set() for direction in Direction}
    for proposal in known.proposals:
        candidates[proposal.direction].add(proposal.pair)
    answered = {
        direction: {pair for pair in candidates[direction] if pair in answers} for direction in Direction
    }
    looked_at = {
        Direction.I2T: {pair.image_id for pair in answered[Direction.I2T]},
        Direction.T2I: {pair.caption_id for pair in answered[Direction.T2I]},
    }
    queries = {
        direction: [
            query for query in known.queries[direction] if not answers or query in looked_at[direction]
        ]
        for direction in Direction
    }
    before: Mapping[Direction, dict[int, int]] = {direction: defaultdict(int) for direction in Direction}
    for pair in known.originals:
        before[Direction.I2T][pair.image_id] += 1
        before[Direction.T2I][pair.caption_id] += 1
    return tuple(
        Multiplicity(
            direction=direction,
            before=tuple(before[direction][query] for query in queries[direction]),
            after=tuple(len(after[direction].get(query, ())) for query in queries[direction]),
            queries=len(known.queries[direction]),
            candidates=len(candidates[direction]),
            answered=len(answered[direction]),
        )
        for direction in Direction
        if queries[direction]
    )


def merged_pairs(
    known: Snapshot, judgements: pd.DataFrame, rules: MergeRules, withdrawn: Collection[GoldControl]
) -> Merged:
    """What a release by these rules would hold.

    Args:
        judgements: ``JUDGEMENTS``, those of the snapshot.
    """
    answers = pair_answers(judgements, rules, withdrawn).pairs
    scores = np.array(list(known.ratings.values()), np.float64)
    return merge(
        gather(answers, packed(known.ratings), scores, packed(known.originals)), rules, known.exclusions
    )

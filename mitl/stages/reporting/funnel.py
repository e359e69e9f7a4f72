"""The report's figures from pairs to positives: what was ranked, proposed, asked, judged and found."""

from __future__ import annotations

import json
from collections import Counter, defaultdict

from mitl.analysis.report.inputs import AnnotatorProposals, FunnelCounts, ProposalPlaces
from mitl.records import Direction, HitState, Pair, PairRole
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
        own = proposed[row.name]
        judged = [answers[pair] for pair in own if pair in answers]
        rows.append(
            AnnotatorProposals(
                name=row.name,
                kind=row.kind.value,
                proposed=places[row.name],
                distinct=len(own),
                new=len(own - earlier),
                overlap=sum(len(project.ranks[pair]) > 1 for pair in own),
                usable=len(judged) if answers else None,
                positive=sum(answer.label.is_positive for answer in judged) if answers else None,
            )
        )
        earlier |= own
    return tuple(rows)


def funnel_counts(project: ProjectSnapshot) -> FunnelCounts:
    """From all possible pairs down to the positives beyond the originals."""
    images, captions = (frozenset(project.queries[direction]) for direction in Direction)
    asked = asked_pairs(project)
    candidates = {proposal.pair for proposal in project.proposals} | asked
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

    Per annotator and direction the rankings of the run that ranked most count.
    """
    if not project.runs:
        return None
    galleries = {Direction.I2T: len(project.captions), Direction.T2I: len(project.images)}
    places: dict[tuple[str, Direction], int] = defaultdict(int)
    for run in project.runs:
        config = json.loads(run.config)
        for entry in config.get("annotators", ()):
            for direction, gallery in galleries.items():
                count = config["queries"][direction.value]["count"] * min(config["depth"], gallery)
                key = (entry["name"], direction)
                places[key] = max(places[key], count)
    return ProposalPlaces(ranked=sum(places.values()), proposed=len(project.proposals))

"""Everything a project knows in one environment, read once for building, reporting and counting."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mitl.db.store import answers as answer_store
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store import journal, ledger, open_work, releases
from mitl.db.store import judgements as judgement_store
from mitl.db.store import proposals as proposal_store
from mitl.db.store.answers import AssignmentRow
from mitl.db.store.hits import BatchRow, HitRow
from mitl.db.store.items import DatasetRow, ExclusionRow
from mitl.db.store.judgements import StoredJudgement
from mitl.db.store.ledger import SettledWork
from mitl.db.store.open_work import OpenWork
from mitl.db.store.proposals import AnnotatorRow, RunRow
from mitl.db.store.releases import ReleaseRow
from mitl.positives.merging import Exclusions
from mitl.positives.rules import MergeRules
from mitl.records import (
    CaptionItem,
    Direction,
    Environment,
    ExclusionKind,
    Finding,
    HitItem,
    ImageItem,
    Pair,
    Proposal,
)
from mitl.settings import Settings


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One environment of a project, by surrogate ids."""

    environment: Environment
    dataset: DatasetRow
    images: tuple[ImageItem, ...]
    captions: tuple[CaptionItem, ...]
    ratings: Mapping[Pair, float]
    exclusion_rows: tuple[ExclusionRow, ...]
    runs: tuple[RunRow, ...]
    annotators: tuple[AnnotatorRow, ...]
    queries: Mapping[Direction, tuple[int, ...]]
    proposals: tuple[Proposal, ...]
    """Each (pair, annotator, direction) once, with its best rank over all runs."""
    batches: tuple[BatchRow, ...]
    hits: tuple[HitRow, ...]
    hit_items: Mapping[int, list[HitItem]]
    submissions: tuple[AssignmentRow, ...]
    judgements: tuple[StoredJudgement, ...]
    findings: Mapping[int, list[Finding]]
    spent: Mapping[str, int]
    releases: tuple[ReleaseRow, ...]
    work: OpenWork
    settled: tuple[SettledWork, ...]
    """The submissions on posted pages with what was paid for them."""

    @property
    def merge_rules(self) -> MergeRules:
        """How the latest release was merged; the default recipe if there is none."""
        return MergeRules(**json.loads(self.releases[-1].rules)) if self.releases else MergeRules()

    @property
    def originals(self) -> list[Pair]:
        """Each caption with its own image."""
        return [Pair(caption.image_id, caption.id) for caption in self.captions]

    @property
    def image_ids(self) -> dict[int, str]:
        """Surrogate → external id."""
        return {image.id: image.external_id for image in self.images}

    @property
    def caption_ids(self) -> dict[int, str]:
        """Surrogate → external id."""
        return {caption.id: caption.external_id for caption in self.captions}

    @property
    def found_by(self) -> dict[Pair, tuple[str, ...]]:
        """The annotators that proposed each pair."""
        found: dict[Pair, set[str]] = defaultdict(set)
        for proposal in self.proposals:
            found[proposal.pair].add(proposal.annotator)
        return {pair: tuple(sorted(names)) for pair, names in found.items()}

    @property
    def exclusions(self) -> Exclusions:
        """The exclusion lists as sets."""
        return exclusion_sets(self.exclusion_rows)


def exclusion_sets(rows: Iterable[ExclusionRow]) -> Exclusions:
    """Exclusion lists as sets."""
    captions, images, pairs = set(), set(), set()
    for row in rows:
        if row.kind is ExclusionKind.CAPTION and row.caption_id is not None:
            captions.add(row.caption_id)
        elif row.kind is ExclusionKind.IMAGE and row.image_id is not None:
            images.add(row.image_id)
        elif row.image_id is not None and row.caption_id is not None:
            pairs.add(Pair(row.image_id, row.caption_id))
    return Exclusions(frozenset(captions), frozenset(images), frozenset(pairs))


def snapshot(session: Session, settings: Settings, environment: Environment) -> Snapshot:
    """Read it all."""
    dataset = item_store.dataset(session)
    hits = hit_store.hits(session, environment)
    queries = proposal_store.queries(session)
    return Snapshot(
        environment=environment,
        dataset=dataset,
        images=tuple(item_store.images(session, dataset.id, settings.project)),
        captions=tuple(item_store.captions(session, dataset.id)),
        ratings=item_store.ratings(session),
        exclusion_rows=tuple(item_store.exclusions(session)),
        runs=tuple(proposal_store.runs(session)),
        annotators=tuple(proposal_store.annotators(session)),
        queries={direction: tuple(items) for direction, items in queries.items()},
        proposals=_best(proposal_store.proposals(session)),
        batches=tuple(hit_store.batches(session, environment)),
        hits=tuple(hits),
        hit_items=hit_store.hit_items(session, [hit.id for hit in hits]),
        submissions=tuple(answer_store.assignments(session, environment)),
        judgements=tuple(judgement_store.judgements(session, environment)),
        findings=answer_store.findings(session, environment),
        spent=journal.spent(session, environment),
        releases=tuple(releases.built(session)),
        work=open_work.open_work(session, environment),
        settled=tuple(ledger.settled_work(session, environment)),
    )


def _best(proposals: Sequence[Proposal]) -> tuple[Proposal, ...]:
    """Later runs propose much of what earlier ones did; a pair counts once per annotator and direction."""
    best: dict[tuple[Pair, str, Direction], Proposal] = {}
    for proposal in proposals:
        key = (proposal.pair, proposal.annotator, proposal.direction)
        if key not in best or proposal.rank < best[key].rank:
            best[key] = proposal
    return tuple(best.values())

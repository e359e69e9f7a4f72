"""Everything a project knows in one environment, read once for its analyses and its report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from mitl.core.arrays import pack_each
from mitl.crowd.context import choose_environment
from mitl.crowd.truth import TruthOf, has_known_truth, truth_source
from mitl.datasets.scenes.files import read_world
from mitl.db.store import answers as answer_store
from mitl.db.store import audits as audit_store
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store import journal, ledger, open_work, releases
from mitl.db.store import judgements as judgement_store
from mitl.db.store import proposals as proposal_store
from mitl.db.store.answers import StoredAssignment
from mitl.db.store.hits import BatchRow, StoredHit
from mitl.db.store.items import DatasetRow, ExclusionRow
from mitl.db.store.judgements import StoredJudgement
from mitl.db.store.ledger import SettledWork
from mitl.db.store.open_work import OpenWork
from mitl.db.store.proposals import AnnotatorRow, RunRow
from mitl.db.store.releases import ReleaseRow
from mitl.hits.templates import declared_questions
from mitl.judgements.gold_records import GoldState, gold_state
from mitl.positives.exclusions import Exclusions
from mitl.positives.merging import Merged, MergeRules, gather, merge
from mitl.positives.pair_answers import PairAnswer, judgement_frame, majority_answers, pair_answers
from mitl.records import (
    BatchKind,
    CaptionItem,
    Concept,
    Direction,
    Environment,
    HitItem,
    ImageItem,
    Judgement,
    JudgementSource,
    Label,
    Pair,
    PairRole,
    Proposal,
    Shortcoming,
)
from mitl.records.frames import counts
from mitl.records.questions import Question
from mitl.settings import WORLD_FOLDER, Settings
from mitl.stages.collecting.show import picked_pairs
from mitl.stages.fusing.scores import sources
from mitl.stages.proposing.ranking import SearchedItems

OBJECT = "object"
"""A thing that a caption tells of and the image does not show, or shows as another."""


def wrong_parts(shortcomings: Sequence[Shortcoming], concepts: Sequence[Concept]) -> tuple[str, ...]:
    """What of a caption is wrong for an image: ``object``, and concepts by name; what is only left out is not wrong.

    Source: the kinds of Chun et al., ECCV Caption, Fig. F.1 (object, colour, quantity).
    """
    strange = Shortcoming.NOT_IN_IMAGE in shortcomings or Concept.SPECIES in concepts
    named = tuple(concept.value for concept in concepts if concept is not Concept.SPECIES)
    if not strange and not named and Shortcoming.DESCRIBED_WRONGLY in shortcomings:
        return (Concept.OTHER.value,)
    return (OBJECT, *named) if strange else named


@dataclass(frozen=True, eq=False)
class ProjectSnapshot:
    """One environment of a project, by surrogate ids; what follows from the rows is made when it is first asked for."""

    settings: Settings
    environment: Environment
    dataset: DatasetRow
    images: tuple[ImageItem, ...]
    captions: tuple[CaptionItem, ...]
    ratings: Mapping[Pair, float]
    exclusion_rows: tuple[ExclusionRow, ...]
    runs: tuple[RunRow, ...]
    fused_from: tuple[str, ...]
    """`mitl.stages.fusing.scores.sources`."""
    annotators: tuple[AnnotatorRow, ...]
    queries: Mapping[Direction, tuple[int, ...]]
    proposals: tuple[Proposal, ...]
    """Each (pair, annotator, direction) once, with its best rank over all runs."""
    withdrawn: frozenset[str]
    """`mitl.db.store.proposals.withdrawn_names`."""
    batches: tuple[BatchRow, ...]
    wordings: Mapping[str, Sequence[str]]
    """`mitl.db.store.journal.wordings`."""
    hits: tuple[StoredHit, ...]
    hit_items: Mapping[int, list[HitItem]]
    submissions: tuple[StoredAssignment, ...]
    stored: tuple[StoredJudgement, ...]
    """Every answer but an audit's, with the submission that it stands in."""
    machine: pd.DataFrame
    """``MACHINE_LABELS`` of the labelling that stands."""
    spent: Mapping[str, int]
    releases: tuple[ReleaseRow, ...]
    work: OpenWork
    settled: tuple[SettledWork, ...]
    """The submissions on posted pages with what was paid for them."""
    originals: Sequence[Pair]
    """Each caption with its own image, and what else the data set knows to match."""
    picked: Sequence[Pair]
    """`mitl.stages.collecting.show.picked_pairs`; a release takes them for originals."""
    questions: tuple[Question, ...]
    """What pages of pairs asked besides the label; the standard questions always."""
    posted_to: tuple[Environment, ...]
    """The environments that hold batches."""

    @cached_property
    def standing(self) -> tuple[Proposal, ...]:
        """The proposals but those of withdrawn annotators, about whose pairs nobody is asked any more."""
        return tuple(proposal for proposal in self.proposals if proposal.annotator not in self.withdrawn)

    @cached_property
    def askable(self) -> tuple[Proposal, ...]:
        """Those of ``standing`` that no exclusion list names: people are asked about their pairs alone."""
        return tuple(proposal for proposal in self.standing if proposal.pair not in self.exclusions)

    @property
    def scored_in(self) -> Environment | None:
        """Of which environment scores on a release are this one's; None for all, where nothing was posted."""
        return self.environment if self.posted_to else None

    @cached_property
    def merge_rules(self) -> MergeRules:
        """How the latest release was merged; the default recipe if there is none."""
        return MergeRules(**self.releases[-1].rules) if self.releases else MergeRules()

    @cached_property
    def image_ids(self) -> dict[int, str]:
        """Surrogate → external id."""
        return {image.id: image.external_id for image in self.images}

    @cached_property
    def caption_ids(self) -> dict[int, str]:
        """Surrogate → external id."""
        return {caption.id: caption.external_id for caption in self.captions}

    @cached_property
    def image_of(self) -> dict[int, ImageItem]:
        """Surrogate id → image."""
        return {image.id: image for image in self.images}

    @cached_property
    def caption_of(self) -> dict[int, CaptionItem]:
        """Surrogate id → caption."""
        return {caption.id: caption for caption in self.captions}

    @property
    def image_of_caption(self) -> dict[str, str]:
        """Caption → its own image, by external ids."""
        return {caption.external_id: self.image_ids[caption.image_id] for caption in self.captions}

    def sides(self, direction: Direction) -> tuple[dict[int, str], dict[int, str]]:
        """Surrogate → external id of what searches and of what is searched."""
        return direction.ordered(self.image_ids, self.caption_ids)

    def gallery(self, direction: Direction) -> NDArray[np.int64]:
        """(G,) surrogate ids of what is searched in, rising."""
        return np.array(sorted(self.sides(direction)[1]), np.int64)

    @property
    def items(self) -> SearchedItems:
        """Both sides of the data set, as annotators take them."""
        of = self.dataset
        return SearchedItems(of.id_kind, self.images, self.captions, of.pair_sides, of.content_sha256)

    @cached_property
    def exclusions(self) -> Exclusions:
        """The exclusion lists as sets."""
        return Exclusions.of((row.kind, row.image_id, row.caption_id) for row in self.exclusion_rows)

    @cached_property
    def judgements(self) -> pd.DataFrame:
        """Every answer in a frame (``JUDGEMENTS``), in the order of ``stored``."""
        return judgement_frame(row.record for row in self.stored)

    @cached_property
    def golds(self) -> GoldState:
        """The workers' gold records, and the controls that are not to be trusted."""
        return gold_state(self.judgements, self.settings.gold_rule)

    @cached_property
    def answers(self) -> dict[Pair, PairAnswer]:
        """What people answered on each pair, majority of the usable answers."""
        return majority_answers(self.judgements)

    @cached_property
    def merged(self) -> Merged:
        """What a release would hold, by the rules of the latest, without what only an audit found."""
        answers = pair_answers(self.judgements, self.merge_rules, self.golds.withdrawn).pairs
        scores = np.array(list(self.ratings.values()), np.float64)
        machine = None if self.releases and self.releases[-1].humans_only else self.machine
        evidence = gather(
            answers, pack_each(self.ratings), scores, pack_each([*self.originals, *self.picked]), machine
        )
        return merge(evidence, self.merge_rules, self.exclusions)

    @cached_property
    def truth_of(self) -> TruthOf | None:
        """What is true of a pair by its external ids; None unless the world was generated."""
        return truth_source(self.settings, "scenes") if has_known_truth(self.settings) else None

    @property
    def has_truth(self) -> bool:
        """Whether the world was generated."""
        return has_known_truth(self.settings)

    def truth_codes(self, direction: Direction, query_ids: Sequence[int]) -> NDArray[np.int8]:
        """(Q, G) label codes of a generated world, 1 to 4; the gallery in order of its surrogate ids."""
        from mitl.datasets.scenes.world import truth_matrix

        world = read_world(self.settings.project / WORLD_FOLDER)
        queries, gallery = self.sides(direction)
        asked, searched = (
            [queries[number] for number in query_ids],
            [gallery[number] for number in sorted(gallery)],
        )
        if direction is Direction.I2T:
            return truth_matrix(world, asked, searched)
        return truth_matrix(world, searched, asked).T

    @cached_property
    def ranks(self) -> Mapping[Pair, Mapping[str, int]]:
        """Pair → annotator → the better of its ranks over both directions."""
        ranks: dict[Pair, dict[str, int]] = defaultdict(dict)
        for proposal in self.proposals:
            best = ranks[proposal.pair]
            best[proposal.annotator] = min(proposal.rank, best.get(proposal.annotator, proposal.rank))
        return dict(ranks)

    def found_by(self, pair: Pair) -> tuple[tuple[str, int], ...]:
        """(annotator, rank) of each proposal of the pair."""
        return tuple(self.ranks.get(pair, {}).items())

    def is_original(self, pair: Pair) -> bool:
        """Whether the caption was written for this image, or the data set knows otherwise that they match."""
        return pair in self._originals

    @cached_property
    def _originals(self) -> frozenset[Pair]:
        return frozenset(self.originals)

    def is_refused(self, pair: Pair) -> bool:
        """Whether people answered, and called it no match."""
        answer = self.answers.get(pair)
        return answer is not None and not answer.label.is_positive

    @cached_property
    def _counting(self) -> Mapping[Pair, list[Judgement]]:
        """The answers on each pair that count."""
        by_pair: dict[Pair, list[Judgement]] = defaultdict(list)
        for place in np.flatnonzero(counts(self.judgements)):
            record = self.stored[place].record
            by_pair[record.pair].append(record)
        return by_pair

    def given(self, pair: Pair) -> tuple[Label, ...]:
        """The usable answers, best first."""
        labels = (record.label for record in self._counting.get(pair, ()))
        return tuple(sorted((label for label in labels if label is not None), key=lambda label: label.code))

    def people(self, pair: Pair) -> int:
        """How many workers gave its usable answers."""
        return len({record.worker for record in self._counting.get(pair, ())})

    def reasons(self, pair: Pair) -> tuple[tuple[Shortcoming, ...], tuple[Concept, ...]]:
        """What its workers ticked, each once."""
        records: Sequence[Judgement] = self._counting.get(pair, ())
        shortcomings = dict.fromkeys(tick for record in records for tick in record.shortcomings)
        return tuple(shortcomings), tuple(
            dict.fromkeys(tick for record in records for tick in record.concepts)
        )

    def truth(self, pair: Pair) -> Label | None:
        """What is true of it; None where that is not known, or nothing was proposed."""
        if self.truth_of is None or not self.proposals:
            return None
        return self.truth_of(self.image_ids[pair.image_id], self.caption_ids[pair.caption_id]).label


def query_of(pair: Pair, direction: Direction) -> int:
    """The query's side of a pair."""
    return pair.image_id if direction is Direction.I2T else pair.caption_id


def item_of(pair: Pair, direction: Direction) -> int:
    """The gallery's side of a pair."""
    return pair.caption_id if direction is Direction.I2T else pair.image_id


def read_project(
    session: Session, settings: Settings, environment: Environment | None = None
) -> ProjectSnapshot:
    """Read it all; the environment as `choose_environment` chooses it, where nothing is posted that of a release."""
    chosen = choose_environment(session, environment, unposted=Environment.LIVE)
    dataset = item_store.dataset(session)
    hits = hit_store.hits(session, chosen)
    batches = tuple(hit_store.batches(session, chosen))
    asked = [
        batch.template
        for batch in batches
        if batch.source is JudgementSource.CROWD and batch.kind == BatchKind.PAIRS
    ]
    queries = proposal_store.queries(session)
    return ProjectSnapshot(
        settings=settings,
        environment=chosen,
        dataset=dataset,
        images=tuple(item_store.images(session, dataset.id, settings.project)),
        captions=tuple(item_store.captions(session, dataset.id)),
        originals=item_store.originals(session, dataset.id),
        picked=picked_pairs(session, chosen),
        ratings=item_store.ratings(session),
        exclusion_rows=tuple(item_store.exclusions(session)),
        runs=tuple(proposal_store.runs(session)),
        fused_from=tuple(sources(session)),
        annotators=tuple(proposal_store.annotators(session)),
        queries={direction: tuple(items) for direction, items in queries.items()},
        proposals=_best(proposal_store.proposals(session)),
        withdrawn=proposal_store.withdrawn_names(session),
        batches=batches,
        wordings=journal.wordings(session),
        questions=declared_questions(asked, settings.wordings),
        posted_to=tuple(hit_store.environments(session)),
        hits=tuple(hits),
        hit_items=hit_store.hit_items(session, [hit.id for hit in hits]),
        submissions=tuple(answer_store.assignments(session, chosen)),
        machine=audit_store.machine_labels(session, chosen),
        stored=tuple(
            row
            for row in judgement_store.judgements(session, chosen)
            if row.record.role is not PairRole.AUDIT
        ),
        spent=journal.spent(session, chosen),
        releases=tuple(releases.built(session, chosen)),
        work=open_work.open_work(session, chosen),
        settled=tuple(ledger.settled_work(session, chosen)),
    )


def _best(proposals: Sequence[Proposal]) -> tuple[Proposal, ...]:
    """Later runs propose much of what earlier ones did; a pair counts once per annotator and direction."""
    best: dict[tuple[Pair, str, Direction], Proposal] = {}
    for proposal in proposals:
        key = (proposal.pair, proposal.annotator, proposal.direction)
        if key not in best or proposal.rank < best[key].rank:
            best[key] = proposal
    return tuple(best.values())

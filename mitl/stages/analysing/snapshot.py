"""Everything a project knows in one environment, read once for its analyses and its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from mitl.core.arrays import Ints, coded, contains, distinct, pack_each, pack_pair, pack_pairs, unpack_ids
from mitl.crowd.context import choose_environment
from mitl.crowd.paying import paid_work
from mitl.crowd.truth import TruthOf, has_known_truth, truth_source
from mitl.datasets.scenes.files import read_world
from mitl.db.store import answers as answer_store
from mitl.db.store import audits as audit_store
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store import journal, ledger, open_work, releases, rounds
from mitl.db.store import proposals as proposal_store
from mitl.db.store.answers import StoredAssignment
from mitl.db.store.columns import candidate_columns, judgement_columns, proposal_columns
from mitl.db.store.hits import BatchRow, StoredHit
from mitl.db.store.items import DatasetRow, ExclusionRow
from mitl.db.store.ledger import SettledWork
from mitl.db.store.open_work import OpenWork
from mitl.db.store.proposals import AnnotatorRow, RunRow
from mitl.db.store.releases import ReleaseRow
from mitl.db.store.rounds import RoundRow
from mitl.hits.templates import declared_questions
from mitl.judgements.aggregators import Aggregator
from mitl.judgements.answer_table import POSITIVE_LABELS
from mitl.judgements.gold_records import GoldState, gold_state
from mitl.judgements.wages import PaidWork
from mitl.positives.exclusions import Exclusions
from mitl.positives.merging import Merged, MergeRules, gather, merge
from mitl.positives.pair_answers import PairAnswer, pair_answers
from mitl.records import (
    BatchKind,
    CaptionItem,
    Concept,
    Direction,
    Environment,
    ImageItem,
    JudgementSource,
    Label,
    Pair,
    PairRole,
    Shortcoming,
)
from mitl.records.frames import LABELS, counts, is_asked
from mitl.records.questions import CONCEPT, SHORTCOMING, Question
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
    proposals: pd.DataFrame
    """``PROPOSALS``, those of withdrawn annotators too."""
    withdrawn: frozenset[str]
    """`mitl.db.store.proposals.withdrawn_names`."""
    batches: tuple[BatchRow, ...]
    round_of: Mapping[int, RoundRow]
    """`mitl.db.store.rounds.by_batch`."""
    wordings: Mapping[str, Sequence[str]]
    """`mitl.db.store.journal.wordings`."""
    hits: tuple[StoredHit, ...]
    roles: Mapping[int, Counter[PairRole]]
    """Batch → role → places on its pages."""
    candidates: pd.DataFrame
    """`mitl.db.store.columns.candidate_columns`."""
    submissions: tuple[StoredAssignment, ...]
    judgements: pd.DataFrame
    """``judgement_schema`` of the questions: every answer but an audit's, by submission and place."""
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
    def standing(self) -> pd.DataFrame:
        """The proposals but those of withdrawn annotators, about whose pairs nobody is asked any more."""
        return self.proposals[~self.proposals["annotator"].isin(self.withdrawn)]

    @cached_property
    def askable(self) -> pd.DataFrame:
        """Those of ``standing`` that no exclusion list names: people are asked about their pairs alone."""
        return self.standing[~self.exclusions.name(self.standing["pair"].to_numpy())]

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
    def golds(self) -> GoldState:
        """The workers' gold records, and the controls that are not to be trusted."""
        return gold_state(self.judgements, self.settings.gold_rule)

    @cached_property
    def answers(self) -> pd.DataFrame:
        """What people answered on each pair, majority of the usable answers (``PAIR_ANSWERS``)."""
        return pair_answers(self.judgements).pairs

    @cached_property
    def answered(self) -> Ints:
        """The pairs of ``answers``, packed and ascending."""
        return self.answers["pair"].to_numpy()

    @cached_property
    def positive(self) -> Ints:
        """Those that people called a match."""
        return self.answered[self.answers["label"] < POSITIVE_LABELS]

    def answer(self, pair: Pair) -> PairAnswer | None:
        """What people answered on a pair; None where nobody did."""
        found = [self._answers[name][_span(self.answered, pair)].tolist() for name in _ANSWER]
        return next((PairAnswer(LABELS[label], *rest) for label, *rest in zip(*found, strict=True)), None)

    @cached_property
    def _answers(self) -> dict[str, NDArray[Any]]:
        """Columns of ``answers`` as arrays, in which one pair is found in a tenth of the time."""
        return {name: self.answers[name].to_numpy() for name in _ANSWER}

    @cached_property
    def merged(self) -> Merged:
        """What a release would hold, by the rules of the latest, without what only an audit found."""
        rules = self.merge_rules
        is_usual = rules.aggregator is Aggregator.MAJORITY and not rules.official
        answers = (
            self.answers if is_usual else pair_answers(self.judgements, rules, self.golds.withdrawn).pairs
        )
        scores = np.array(list(self.ratings.values()), np.float64)
        machine = None if self.releases and self.releases[-1].humans_only else self.machine
        evidence = gather(
            answers, pack_each(self.ratings), scores, pack_each([*self.originals, *self.picked]), machine
        )
        return merge(evidence, rules, self.exclusions)

    @cached_property
    def paid(self) -> list[PaidWork]:
        """Those of ``settled`` that were approved."""
        return paid_work(self.settled, self.environment)

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
    def ranks(self) -> pd.DataFrame:
        """Each ``pair`` and ``annotator`` once, in order, with the better ``rank`` over both directions."""
        by = self.proposals.groupby(["pair", "annotator"], observed=True, as_index=False)
        return by.agg({"rank": "min"})

    def found_by(self, pair: Pair) -> tuple[tuple[str, int], ...]:
        """(annotator, rank) of each annotator that proposed the pair, in the order of the runs."""
        packed, annotators, ranks = self._ranks
        found = _span(packed, pair)
        names = self.ranks["annotator"].cat.categories[annotators[found]]
        rank_of = dict(zip(names, ranks[found].tolist(), strict=True))
        return tuple((row.name, rank_of[row.name]) for row in self.annotators if row.name in rank_of)

    @cached_property
    def _ranks(self) -> tuple[Ints, NDArray[np.integer[Any]], Ints]:
        """The columns of ``ranks`` as arrays, annotators by their places among its categories."""
        ranks = self.ranks
        return ranks["pair"].to_numpy(), ranks["annotator"].cat.codes.to_numpy(), ranks["rank"].to_numpy()

    def is_original(self, pair: Pair) -> bool:
        """Whether the caption was written for this image, or the data set knows otherwise that they match."""
        return self.original_pairs[_span(self.original_pairs, pair)].size > 0

    @cached_property
    def original_pairs(self) -> Ints:
        """``originals``, packed and ascending."""
        return pack_pairs(self.originals)

    @cached_property
    def asked_pairs(self) -> Ints:
        """What people were asked about: candidates of posted HITs, and what past work judged; packed, ascending."""
        judged = self.judgements.loc[is_asked(self.judgements), "pair"]
        out = self.candidates.loc[self.candidates["out"], "pair"]
        return distinct(np.concatenate([out, judged]))

    def is_refused(self, pair: Pair) -> bool:
        """Whether people answered, and called it no match."""
        answer = self.answer(pair)
        return answer is not None and not answer.label.is_positive

    @cached_property
    def counting(self) -> pd.DataFrame:
        """The rows of ``judgements`` that count, by pair and in order; workers by their places among its categories."""
        shown = ["pair", "worker", "label", SHORTCOMING.column, CONCEPT.column]
        rows = self.judgements.loc[counts(self.judgements), shown]
        rows["worker"] = rows["worker"].cat.codes
        return rows.sort_values("pair", kind="stable", ignore_index=True)

    @cached_property
    def _counting(self) -> dict[str, Ints]:
        """Its columns as arrays, as in ``_answers``."""
        return {str(name): self.counting[name].to_numpy() for name in self.counting}

    def _on(self, pair: Pair, column: str) -> Ints:
        """A column of the answers on a pair that count."""
        return self._counting[column][_span(self._counting["pair"], pair)]

    def given(self, pair: Pair) -> tuple[Label, ...]:
        """The usable answers, best first."""
        return tuple(LABELS[label] for label in np.sort(self._on(pair, "label")))

    def people(self, pair: Pair) -> int:
        """How many workers gave its usable answers."""
        return len(distinct(self._on(pair, "worker")))

    def reasons(self, pair: Pair) -> tuple[tuple[Shortcoming, ...], tuple[Concept, ...]]:
        """What its workers ticked, each once and in the order of the page, whoever answered first."""
        columns = SHORTCOMING.column, CONCEPT.column
        return _ticked(*(int(np.bitwise_or.reduce(self._on(pair, column))) for column in columns))

    @cached_property
    def faults(self) -> pd.Series[Any]:
        """Packed pair → which parts of its caption are wrong by its workers' ticks; matches that have any."""
        rows = self.counting[contains(self.positive, self.counting["pair"].to_numpy())]
        if rows.empty:
            return pd.Series(np.empty(0, np.int64), np.empty(0, np.int64))
        first = np.flatnonzero(np.diff(rows["pair"], prepend=-1))
        shortcomings, concepts = (
            np.bitwise_or.reduceat(rows[question.column].to_numpy(np.int64), first)
            for question in (SHORTCOMING, CONCEPT)
        )
        kinds, of_kind = coded(shortcomings << len(CONCEPT.choices) | concepts)
        masks = [divmod(kind, 1 << len(CONCEPT.choices)) for kind in kinds.tolist()]
        parts = [wrong_parts(*_ticked(*both)) for both in masks]
        found = pd.Series(map(parts.__getitem__, of_kind), rows["pair"].to_numpy()[first], object)
        return found[found.astype(bool)]

    def truth(self, pair: Pair) -> Label | None:
        """What is true of it; None where that is not known, or nothing was proposed."""
        if self.truth_of is None or self.proposals.empty:
            return None
        return self.truth_of(self.image_ids[pair.image_id], self.caption_ids[pair.caption_id]).label


def _ticked(shortcomings: int, concepts: int) -> tuple[tuple[Shortcoming, ...], tuple[Concept, ...]]:
    """What the masks of both questions say was ticked."""
    named = tuple(Shortcoming(choice.value) for choice in SHORTCOMING.chosen(shortcomings))
    return named, tuple(Concept(choice.value) for choice in CONCEPT.chosen(concepts))


_ANSWER = ("label", "n_judgements", "probability")


def _span(rising: Ints, pair: Pair) -> slice:
    """The places of a pair among packed ones."""
    packed = pack_pair(pair)
    return slice(np.searchsorted(rising, packed), np.searchsorted(rising, packed, "right"))


def query_and_item(pairs: Ints, direction: Direction) -> tuple[Ints, Ints]:
    """Both sides of packed pairs: what searches, and what is found."""
    return direction.ordered(*unpack_ids(pairs))


def read_project(
    session: Session, settings: Settings, environment: Environment | None = None
) -> ProjectSnapshot:
    """Read it all; the environment as `choose_environment` chooses it, where nothing is posted that of the release."""
    unposted = Environment.LIVE if releases.built(session, Environment.LIVE) else Environment.SANDBOX
    chosen = choose_environment(session, environment, unposted=unposted)
    dataset = item_store.dataset(session)
    batches = tuple(hit_store.batches(session, chosen))
    asked = [
        batch.template
        for batch in batches
        if batch.source is JudgementSource.CROWD and batch.kind == BatchKind.PAIRS
    ]
    queries = proposal_store.queries(session)
    questions = declared_questions(asked, settings.wordings)
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
        proposals=proposal_columns(session, withdrawn=True),
        withdrawn=proposal_store.withdrawn_names(session),
        batches=batches,
        round_of=rounds.by_batch(session, chosen),
        wordings=journal.wordings(session),
        questions=questions,
        posted_to=tuple(hit_store.environments(session)),
        hits=tuple(hit_store.hits(session, chosen)),
        roles=hit_store.roles(session, chosen),
        candidates=candidate_columns(session, chosen),
        submissions=tuple(answer_store.assignments(session, chosen)),
        machine=audit_store.machine_labels(session, chosen),
        judgements=judgement_columns(session, chosen, questions=questions),
        spent=journal.spent(session, chosen),
        releases=tuple(releases.built(session, chosen)),
        work=open_work.open_work(session, chosen),
        settled=tuple(ledger.settled_work(session, chosen)),
    )

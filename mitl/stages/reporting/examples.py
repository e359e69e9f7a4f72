"""Queries to show in the report, with their positives by source and their near misses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from mitl.analysis.report.inputs import ExampleItem, ExampleQuery
from mitl.judgements.aggregation import PairAnswer, answers_by_pair
from mitl.positives.merging import Merged
from mitl.records import Concept, Direction, ImageItem, Judgement, Pair, Shortcoming
from mitl.stages.reporting.snapshot import Snapshot
from mitl.stages.reporting.truth import TruthOf

PER_DIRECTION = 4
_MOST_POSITIVES = 8
_NEAR_MISSES = 2


def examples(known: Snapshot, merged: Merged, truth: TruthOf | None) -> tuple[ExampleQuery, ...]:
    """The queries of each direction that gained most, as far apart in the data set as they come."""
    view = _View(known, merged, truth)
    found = []
    for direction in (Direction.T2I, Direction.I2T):
        ranked = sorted(known.queries[direction], key=lambda query: (-view.gained(direction, query), query))
        for query in [query for query in ranked if view.gained(direction, query) > 0][:PER_DIRECTION]:
            found.append(view.example(direction, query))
    return tuple(found)


class _View:
    """Lookups shared by all examples."""

    def __init__(self, known: Snapshot, merged: Merged, truth: TruthOf | None) -> None:
        self._images: Mapping[int, ImageItem] = {image.id: image for image in known.images}
        self._captions = {caption.id: caption for caption in known.captions}
        self._ratings = known.ratings
        self._truth = truth
        records = [row.record for row in known.judgements]
        self._answers: Mapping[Pair, PairAnswer] = answers_by_pair(records)
        self._records: dict[Pair, list[Judgement]] = defaultdict(list)
        for record in records:
            if record.usable and not record.role.is_gold:
                self._records[record.pair].append(record)
        self._positives = {positive.pair for positive in merged.positives}
        self._ranks: dict[Pair, dict[str, int]] = defaultdict(dict)
        for proposal in known.proposals:
            ranks = self._ranks[proposal.pair]
            ranks[proposal.annotator] = min(proposal.rank, ranks.get(proposal.annotator, proposal.rank))
        self._by_query: dict[Direction, dict[int, set[Pair]]] = {
            direction: defaultdict(set) for direction in Direction
        }
        for pair in {*self._answers, *self._positives, *known.originals}:
            self._by_query[Direction.I2T][pair.image_id].add(pair)
            self._by_query[Direction.T2I][pair.caption_id].add(pair)

    def gained(self, direction: Direction, query: int) -> int:
        """Positives beyond the original annotation."""
        pairs = self._by_query[direction].get(query, set())
        return sum(pair in self._positives and not self._is_original(pair) for pair in pairs)

    def example(self, direction: Direction, query: int) -> ExampleQuery:
        """One query with its originals, its positives and near misses that people refused."""
        pairs = sorted(self._by_query[direction][query], key=self._order)
        shown = [pair for pair in pairs if self._is_original(pair) or pair in self._positives]
        refused = [pair for pair in pairs if pair in self._answers and pair not in self._positives]
        refused = [pair for pair in refused if not self._is_original(pair)][:_NEAR_MISSES]
        items = tuple(self._item(direction, pair) for pair in [*shown[:_MOST_POSITIVES], *refused])
        if direction is Direction.I2T:
            image = self._images[query]
            return ExampleQuery(direction, image.external_id, items, image=image.path)
        caption = self._captions[query]
        return ExampleQuery(direction, caption.external_id, items, text=caption.text)

    def _is_original(self, pair: Pair) -> bool:
        return self._captions[pair.caption_id].image_id == pair.image_id

    def _order(self, pair: Pair) -> tuple[bool, int, int, Pair]:
        answer = self._answers.get(pair)
        best = min(self._ranks[pair].values(), default=10**6) if pair in self._ranks else 10**6
        return (not self._is_original(pair), answer.label.code if answer else 5, best, pair)

    def _item(self, direction: Direction, pair: Pair) -> ExampleItem:
        image, caption = self._images[pair.image_id], self._captions[pair.caption_id]
        answer = self._answers.get(pair)
        records: Sequence[Judgement] = self._records.get(pair, ())
        i2t = direction is Direction.I2T
        shortcomings: dict[Shortcoming, None] = {}
        concepts: dict[Concept, None] = {}
        for record in records:
            shortcomings.update(dict.fromkeys(record.shortcomings))
            concepts.update(dict.fromkeys(record.concepts))
        return ExampleItem(
            external_id=caption.external_id if i2t else image.external_id,
            text=caption.text if i2t else None,
            image=None if i2t else image.path,
            original=self._is_original(pair),
            label=None if answer is None else answer.label,
            cxc_score=self._ratings.get(pair),
            found_by=tuple(self._ranks[pair].items()) if pair in self._ranks else (),
            shortcomings=tuple(shortcomings),
            concepts=tuple(concepts),
            truth=None if self._truth is None else self._truth(image.external_id, caption.external_id).label,
        )

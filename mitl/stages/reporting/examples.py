"""Queries to show in the report, with their positives by source and their near misses."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from mitl.analysis.report.inputs import ExampleItem, ExampleQuery, Frame
from mitl.core.packed import unpack_pairs
from mitl.positives.merging import Merged
from mitl.records import Direction, Pair
from mitl.stages.analysing.pair_facts import PairFacts
from mitl.stages.analysing.snapshot import Snapshot

PER_DIRECTION = 6
MOST = {Frame.ORIGINAL: 5, Frame.YES: 6, Frame.WEAK_YES: 4, Frame.CXC: 3, Frame.REFUSED: 3}
"""Items shown of each kind; the page says how many there are."""


def examples(known: Snapshot, merged: Merged, facts: PairFacts) -> tuple[ExampleQuery, ...]:
    """Queries of each direction from the one that gained most to the one that gained least, evenly spaced."""
    gallery = _Gallery(known, merged, facts)
    return tuple(
        gallery.example(direction, query)
        for direction in (Direction.T2I, Direction.I2T)
        for query in evenly(gallery.gainers(direction, known.queries[direction]), PER_DIRECTION)
    )


def evenly(ranked: Sequence[int], count: int) -> list[int]:
    """So many of them, first and last among them, at even distances; all where there are no more."""
    if len(ranked) <= count:
        return list(ranked)
    return [ranked[round(place * (len(ranked) - 1) / (count - 1))] for place in range(count)]


class _Gallery:
    """The judged and the positive pairs of each query."""

    def __init__(self, known: Snapshot, merged: Merged, facts: PairFacts) -> None:
        self._facts = facts
        self._positives = set(unpack_pairs(merged.where("kept")))
        self._pairs: dict[Direction, dict[int, set[Pair]]] = {way: defaultdict(set) for way in Direction}
        for pair in {*facts.answers, *self._positives, *known.originals}:
            self._pairs[Direction.I2T][pair.image_id].add(pair)
            self._pairs[Direction.T2I][pair.caption_id].add(pair)

    def gainers(self, direction: Direction, queries: Sequence[int]) -> list[int]:
        """The queries with positives beyond the originals, most first."""
        gained = {query: self._gained(direction, query) for query in queries}
        return sorted(
            (query for query in queries if gained[query]), key=lambda query: (-gained[query], query)
        )

    def _gained(self, direction: Direction, query: int) -> int:
        pairs = self._pairs[direction].get(query, set())
        return sum(pair in self._positives and not self._facts.is_original(pair) for pair in pairs)

    def example(self, direction: Direction, query: int) -> ExampleQuery:
        """One query with its originals, its positives and near misses that people refused."""
        facts = self._facts
        pairs = [
            pair
            for pair in sorted(self._pairs[direction][query], key=self._order)
            if pair in self._positives or facts.is_original(pair) or facts.is_refused(pair)
        ]
        items = [self._item(direction, pair) for pair in pairs]
        totals = Counter(item.frame for item in items)
        shown: Counter[Frame] = Counter()
        kept = []
        for item in items:
            if shown[item.frame] < MOST[item.frame]:
                kept.append(item)
            shown[item.frame] += 1
        image, caption = facts.images.get(query), facts.captions.get(query)
        i2t = direction is Direction.I2T
        item_id = image.external_id if i2t and image else caption.external_id if caption else str(query)
        return ExampleQuery(
            direction,
            item_id,
            tuple(kept),
            text=None if i2t or caption is None else caption.text,
            image=image.path if i2t and image else None,
            totals=tuple((frame, totals[frame]) for frame in Frame if totals[frame]),
            gained=self._gained(direction, query),
        )

    def _order(self, pair: Pair) -> tuple[bool, int, int, Pair]:
        """Originals first, then by answer and by the best rank that any annotator gave."""
        answer = self._facts.answers.get(pair)
        best = min(self._facts.ranks.get(pair, {}).values(), default=10**6)
        return (not self._facts.is_original(pair), answer.label.code if answer else 5, best, pair)

    def _item(self, direction: Direction, pair: Pair) -> ExampleItem:
        facts = self._facts
        image, caption = facts.images[pair.image_id], facts.captions[pair.caption_id]
        answer = facts.answers.get(pair)
        shortcomings, concepts = facts.reasons(pair)
        i2t = direction is Direction.I2T
        return ExampleItem(
            external_id=caption.external_id if i2t else image.external_id,
            text=caption.text if i2t else None,
            image=None if i2t else image.path,
            original=facts.is_original(pair),
            label=None if answer is None else answer.label,
            cxc_score=facts.ratings.get(pair),
            found_by=facts.found_by(pair),
            shortcomings=shortcomings,
            concepts=concepts,
            truth=facts.truth(pair),
            released=pair in self._positives,
        )

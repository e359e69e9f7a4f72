"""Pairs to look at: matches that were found, queries with their positives, pairs on which the sources disagree."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from textwrap import shorten

from mitl.analysis.report.inputs import (
    Dispute,
    DisputedPair,
    DisputeKind,
    ExampleItem,
    ExampleQuery,
    Found,
    FoundPair,
    Frame,
)
from mitl.core.arrays import unpack_pairs
from mitl.records import Direction, ImageItem, Label, Pair
from mitl.stages.analysing.snapshot import ProjectSnapshot, wrong_parts

PER_DIRECTION = 6
MOST = {Frame.ORIGINAL: 5, Frame.YES: 6, Frame.WEAK_YES: 4, Frame.CXC: 3, Frame.REFUSED: 3}
"""Items shown of each kind; the page says how many there are."""
SHOWN = 6
"""Pairs of each kind of disagreement, and of the found matches."""

Weight = tuple[float, ...]
"""The smaller, the more a pair is worth a look."""


def examples(project: ProjectSnapshot) -> tuple[ExampleQuery, ...]:
    """Queries of each direction from the one that gained most to the one that gained least, evenly spaced."""
    gallery = _Gallery(project)
    return tuple(
        gallery.example(direction, query)
        for direction in (Direction.T2I, Direction.I2T)
        for query in evenly(gallery.gainers(direction, project.queries[direction]), PER_DIRECTION)
    )


def evenly(ranked: Sequence[int], count: int) -> list[int]:
    """So many of them, first and last among them, at even distances; all where there are no more."""
    if len(ranked) <= count:
        return list(ranked)
    return [ranked[round(place * (len(ranked) - 1) / (count - 1))] for place in range(count)]


class _Gallery:
    """The judged and the positive pairs of each query."""

    def __init__(self, project: ProjectSnapshot) -> None:
        self._project = project
        self._positives = set(unpack_pairs(project.merged.where("kept")))
        self._pairs: dict[Direction, dict[int, set[Pair]]] = {way: defaultdict(set) for way in Direction}
        for pair in {*project.answers, *self._positives, *project.originals}:
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
        return sum(pair in self._positives and not self._project.is_original(pair) for pair in pairs)

    def example(self, direction: Direction, query: int) -> ExampleQuery:
        """One query with its originals, its positives and near misses that people refused."""
        project = self._project
        pairs = [
            pair
            for pair in sorted(self._pairs[direction][query], key=self._order)
            if pair in self._positives or project.is_original(pair) or project.is_refused(pair)
        ]
        items = [self._item(direction, pair) for pair in pairs]
        totals = Counter(item.frame for item in items)
        shown: Counter[Frame] = Counter()
        kept = []
        for item in items:
            if shown[item.frame] < MOST[item.frame]:
                kept.append(item)
            shown[item.frame] += 1
        image, caption = project.image_of.get(query), project.caption_of.get(query)
        i2t = direction is Direction.I2T
        shows = image if i2t else project.image_of.get((caption and caption.reference_id) or 0)
        item_id = image.external_id if i2t and image else caption.external_id if caption else str(query)
        return ExampleQuery(
            direction,
            item_id,
            tuple(kept),
            text=_document(image) if i2t and image else None if caption is None else caption.text,
            image=shows.path if shows else None,
            totals=tuple((frame, totals[frame]) for frame in Frame if totals[frame]),
            gained=self._gained(direction, query),
        )

    def _order(self, pair: Pair) -> tuple[bool, int, int, Pair]:
        """Originals first, then by answer and by the best rank that any annotator gave."""
        answer = self._project.answers.get(pair)
        best = min(self._project.ranks.get(pair, {}).values(), default=10**6)
        return (not self._project.is_original(pair), answer.label.code if answer else 5, best, pair)

    def _item(self, direction: Direction, pair: Pair) -> ExampleItem:
        project = self._project
        image, caption = project.image_of[pair.image_id], project.caption_of[pair.caption_id]
        answer = project.answers.get(pair)
        shortcomings, concepts = project.reasons(pair)
        i2t = direction is Direction.I2T
        return ExampleItem(
            external_id=caption.external_id if i2t else image.external_id,
            text=caption.text if i2t else _document(image),
            image=None if i2t else image.path,
            original=project.is_original(pair),
            label=None if answer is None else answer.label,
            cxc_score=project.ratings.get(pair),
            found_by=project.found_by(pair),
            shortcomings=shortcomings,
            concepts=concepts,
            truth=project.truth(pair),
            released=pair in self._positives,
        )


def _document(image: ImageItem) -> str | None:
    """The beginning of a document's text; None of images."""
    return shorten(image.texts[-1], 240, placeholder=" …") if image.texts else None


def found_pairs(project: ProjectSnapshot) -> Found:
    """Matches by people's answers that a release keeps and the original annotation lacks.

    Those with the largest share of plain yes come first, then those of most people, then the data set's order; no two
    that are shown share an image or a caption.
    """
    beyond = [pair for pair in project.answers if not project.is_original(pair)]
    if not beyond:
        return Found()
    kept = set(unpack_pairs(project.merged.where("kept")))
    matches = [pair for pair in beyond if pair in kept and not project.is_refused(pair)]

    def weight(pair: Pair) -> tuple[float, int, Pair]:
        labels = project.given(pair)
        return (-labels.count(Label.YES) / len(labels), -project.people(pair), pair)

    shown, _ = _apart(sorted(matches, key=weight))
    captions: dict[int, list[str]] = {pair.image_id: [] for pair in shown}
    images: dict[int, list[str]] = {pair.caption_id: [] for pair in shown}
    for original in project.originals:
        if original.image_id in captions:
            captions[original.image_id].append(project.caption_of[original.caption_id].text)
        if original.caption_id in images:
            images[original.caption_id].append(project.image_ids[original.image_id])

    def with_annotation(pair: Pair) -> FoundPair:
        with_caption = ", ".join(images[pair.caption_id])
        return FoundPair(
            _disputed(project, pair), project.people(pair), tuple(captions[pair.image_id]), with_caption
        )

    return Found(len(matches), len(beyond), tuple(map(with_annotation, shown)))


def disputes(project: ProjectSnapshot, true: Collection[Pair] | None = None) -> tuple[Dispute, ...]:
    """The disagreements that there could have been, those without a single case too.

    Args:
        true: the pairs that are a match in truth; None where nobody knows.
    """
    possible = [_workers(project), _originals(project)]
    if project.ratings:
        possible.append(_cxc(project))
    if len(project.annotators) > 1:
        possible.append(_machines(project))
    possible.append(_wrong(project))
    if true is not None:
        possible.append(_truth(project, true))
    return tuple(dispute for dispute in possible if dispute.of)


def _workers(project: ProjectSnapshot) -> Dispute:
    """Answers on both sides of the scale; those furthest apart first, then those with most answers."""
    several = [pair for pair, answer in project.answers.items() if answer.n_judgements > 1]

    def weight(pair: Pair) -> Weight | None:
        labels = project.given(pair)
        if labels[0].is_positive == labels[-1].is_positive:
            return None
        return (labels[0].code - labels[-1].code, -len(labels))

    return _dispute(project, DisputeKind.WORKERS, several, weight)


def _originals(project: ProjectSnapshot) -> Dispute:
    """A plain no first, then what most annotators had found."""
    asked = [pair for pair in project.answers if project.is_original(pair)]

    def weight(pair: Pair) -> Weight | None:
        if not project.is_refused(pair):
            return None
        return (-project.answers[pair].label.code, -len(project.found_by(pair)))

    return _dispute(project, DisputeKind.ORIGINAL, asked, weight)


def _cxc(project: ProjectSnapshot) -> Dispute:
    """The rating furthest from the threshold first."""
    threshold = project.merge_rules.cxc_threshold
    rated = [pair for pair in project.answers if pair in project.ratings]

    def weight(pair: Pair) -> Weight | None:
        score = project.ratings[pair]
        if (score >= threshold) == project.answers[pair].label.is_positive:
            return None
        return (-abs(score - threshold),)

    return _dispute(project, DisputeKind.CXC, rated, weight)


def _machines(project: ProjectSnapshot) -> Dispute:
    """The best mean rank first."""
    agreed = [pair for pair in project.answers if len(project.found_by(pair)) == len(project.annotators)]

    def weight(pair: Pair) -> Weight | None:
        if not project.is_refused(pair):
            return None
        return (sum(rank for _, rank in project.found_by(pair)), -project.answers[pair].label.code)

    return _dispute(project, DisputeKind.MACHINES, agreed, weight)


def _wrong(project: ProjectSnapshot) -> Dispute:
    """A plain yes first, then those with most parts wrong."""
    matches = [pair for pair, answer in project.answers.items() if answer.label.is_positive]

    def weight(pair: Pair) -> Weight | None:
        parts = wrong_parts(*project.reasons(pair))
        return (project.answers[pair].label.code, -len(parts)) if parts else None

    asked = any(any(project.reasons(pair)) for pair in project.answers)
    return _dispute(project, DisputeKind.WRONG, matches if asked else (), weight)


def _truth(project: ProjectSnapshot, true: Collection[Pair]) -> Dispute:
    """Answers that are furthest from the truth first."""

    def weight(pair: Pair) -> Weight | None:
        answer = project.answers[pair].label
        if answer.is_positive == (pair in true):
            return None
        truth = project.truth(pair)
        return (-abs(answer.code - truth.code) if truth else 0,)

    return _dispute(project, DisputeKind.TRUTH, project.answers, weight)


def _dispute(
    project: ProjectSnapshot,
    kind: DisputeKind,
    pairs: Collection[Pair],
    weight: Callable[[Pair], Weight | None],
) -> Dispute:
    weighed = [(key, pair) for pair in pairs if (key := weight(pair)) is not None]
    first, others = _apart(pair for _, pair in sorted(weighed))
    chosen = [*first, *others[: SHOWN - len(first)]]
    return Dispute(kind, len(weighed), len(pairs), tuple(_disputed(project, pair) for pair in chosen))


def _apart(ranked: Iterable[Pair]) -> tuple[list[Pair], list[Pair]]:
    """The first few of which no two share an image or a caption, and those that were passed over."""
    chosen: list[Pair] = []
    others: list[Pair] = []
    images: set[int] = set()
    captions: set[int] = set()
    for pair in ranked:
        if pair.image_id in images or pair.caption_id in captions:
            others.append(pair)
            continue
        chosen.append(pair)
        images.add(pair.image_id)
        captions.add(pair.caption_id)
        if len(chosen) == SHOWN:
            break
    return chosen, others


def _disputed(project: ProjectSnapshot, pair: Pair) -> DisputedPair:
    image, caption = project.image_of[pair.image_id], project.caption_of[pair.caption_id]
    shortcomings, concepts = project.reasons(pair)
    return DisputedPair(
        image_id=image.external_id,
        caption_id=caption.external_id,
        text=caption.text,
        image=image.path,
        document=_document(image) or "",
        reference=None if caption.reference_id is None else project.image_of[caption.reference_id].path,
        answers=project.given(pair),
        label=project.answers[pair].label,
        original=project.is_original(pair),
        cxc_score=project.ratings.get(pair),
        found_by=project.found_by(pair),
        shortcomings=shortcomings,
        concepts=concepts,
        truth=project.truth(pair),
    )

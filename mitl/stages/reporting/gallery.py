"""Pairs to look at: matches that were found, queries with their positives, pairs on which the sources disagree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from textwrap import shorten
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
from mitl.core.arrays import Flags, Ints, contains, distinct, pack_each, pack_pair, unpack_pairs
from mitl.judgements.answer_table import POSITIVE_LABELS
from mitl.records import Direction, ImageItem, Label, Pair
from mitl.records.frames import LABELS
from mitl.records.questions import CONCEPT, SHORTCOMING
from mitl.stages.analysing.snapshot import ProjectSnapshot, query_and_item

PER_DIRECTION = 6
MOST = {Frame.ORIGINAL: 5, Frame.YES: 6, Frame.WEAK_YES: 4, Frame.CXC: 3, Frame.REFUSED: 3}
"""Items shown of each kind; the page says how many there are."""
SHOWN = 6
"""Pairs of each kind of disagreement, and of the found matches."""


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
        self._positives = distinct(project.merged.where("kept"))
        self._pairs = distinct(np.concatenate([project.answered, self._positives, project.original_pairs]))
        gained = self._positives[~contains(project.original_pairs, self._positives)]
        self._gained = {way: Counter(query_and_item(gained, way)[0].tolist()) for way in Direction}

    def gainers(self, direction: Direction, queries: Sequence[int]) -> list[int]:
        """The queries with positives beyond the originals, most first."""
        gained = self._gained[direction]
        return sorted(
            (query for query in queries if gained[query]), key=lambda query: (-gained[query], query)
        )

    def example(self, direction: Direction, query: int) -> ExampleQuery:
        """One query with its originals, its positives and near misses that people refused."""
        project = self._project
        found = self._pairs[query_and_item(self._pairs, direction)[0] == query]
        pairs = [
            pair
            for pair in sorted(unpack_pairs(found), key=self._order)
            if self._is_positive(pair) or project.is_original(pair) or project.is_refused(pair)
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
            gained=self._gained[direction][query],
        )

    def _is_positive(self, pair: Pair) -> bool:
        return bool(contains(self._positives, np.array([pack_pair(pair)]))[0])

    def _order(self, pair: Pair) -> tuple[bool, int, int, Pair]:
        """Originals first, then by answer and by the best rank that any annotator gave."""
        answer = self._project.answer(pair)
        best = min((rank for _, rank in self._project.found_by(pair)), default=10**6)
        return (not self._project.is_original(pair), answer.label.code if answer else 5, best, pair)

    def _item(self, direction: Direction, pair: Pair) -> ExampleItem:
        project = self._project
        image, caption = project.image_of[pair.image_id], project.caption_of[pair.caption_id]
        answer = project.answer(pair)
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
            released=self._is_positive(pair),
        )


def _document(image: ImageItem) -> str | None:
    """The beginning of a document's text; None of images."""
    return shorten(image.texts[-1], 240, placeholder=" …") if image.texts else None


def found_pairs(project: ProjectSnapshot) -> Found:
    """Matches by people's answers that a release keeps and the original annotation lacks.

    Those with the largest share of plain yes come first, then those of most people, then the data set's order; no two
    that are shown share an image or a caption.
    """
    beyond = project.answered[~contains(project.original_pairs, project.answered)]
    if not len(beyond):
        return Found()
    kept = distinct(project.merged.where("kept"))
    matches = beyond[contains(kept, beyond) & contains(project.positive, beyond)]
    said = project.counting[contains(matches, project.counting["pair"].to_numpy())]
    by_pair = said.assign(yes=said["label"] == LABELS.index(Label.YES)).groupby("pair")
    yes, people = by_pair["yes"].mean().to_numpy(), by_pair["worker"].nunique().to_numpy()
    shown, _ = _apart(unpack_pairs(matches[np.lexsort((matches, -people, -yes))]))
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


def disputes(project: ProjectSnapshot, true: Ints | None = None) -> tuple[Dispute, ...]:
    """The disagreements that there could have been, those without a single case too.

    Args:
        true: packed pairs that are a match in truth, sorted; None where nobody knows.
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
    labels = project.counting.groupby("pair")["label"]
    best, worst, n = (values.to_numpy(np.int64) for values in (labels.min(), labels.max(), labels.size()))
    apart = (best < POSITIVE_LABELS) != (worst < POSITIVE_LABELS)
    rows = project.answered[apart], (best - worst)[apart], -n[apart]
    return _dispute(project, DisputeKind.WORKERS, int((n > 1).sum()), *rows)


def _originals(project: ProjectSnapshot) -> Dispute:
    """A plain no first, then what most annotators had found."""
    asked = contains(project.original_pairs, project.answered)
    pairs, label = _refused(project, asked)
    found = project.ranks["pair"].value_counts().reindex(pairs, fill_value=0).to_numpy()
    return _dispute(project, DisputeKind.ORIGINAL, int(asked.sum()), pairs, -label, -found)


def _cxc(project: ProjectSnapshot) -> Dispute:
    """The rating furthest from the threshold first."""
    threshold = project.merge_rules.cxc_threshold
    pairs = pack_each(project.ratings)
    judged = contains(project.answered, pairs)
    score = np.array(list(project.ratings.values()), np.float64)
    differ = judged & ((score >= threshold) != contains(project.positive, pairs))
    far = -np.abs(score - threshold)
    return _dispute(project, DisputeKind.CXC, int(judged.sum()), pairs[differ], far[differ])


def _machines(project: ProjectSnapshot) -> Dispute:
    """The best mean rank first."""
    by_pair = project.ranks.groupby("pair")["rank"].agg(["size", "sum"])
    by_pair = by_pair[by_pair["size"] == len(project.annotators)]
    agreed = contains(by_pair.index.to_numpy(), project.answered)
    pairs, label = _refused(project, agreed)
    ranks = by_pair["sum"].reindex(pairs).to_numpy()
    return _dispute(project, DisputeKind.MACHINES, int(agreed.sum()), pairs, ranks, -label)


def _wrong(project: ProjectSnapshot) -> Dispute:
    """A plain yes first, then those with most parts wrong."""
    pairs, parts = project.faults.index.to_numpy(), project.faults.map(len).to_numpy()
    label = project.answers["label"].to_numpy()[np.searchsorted(project.answered, pairs)]
    asked = project.counting[[SHORTCOMING.column, CONCEPT.column]].to_numpy().any()
    return _dispute(project, DisputeKind.WRONG, len(project.positive) if asked else 0, pairs, label, -parts)


def _truth(project: ProjectSnapshot, true: Ints) -> Dispute:
    """Answers that are furthest from the truth first."""
    differ = contains(project.positive, project.answered) != contains(true, project.answered)
    pairs, label = project.answered[differ], project.answers["label"].to_numpy(np.int64)[differ]
    truths = [project.truth(pair) for pair in unpack_pairs(pairs)]
    far = [
        -abs(code - LABELS.index(truth)) if truth else 0 for code, truth in zip(label, truths, strict=True)
    ]
    return _dispute(project, DisputeKind.TRUTH, len(project.answered), pairs, np.array(far))


def _refused(project: ProjectSnapshot, among: Flags) -> tuple[Ints, Ints]:
    """Those of some answered pairs that people called no match, with their labels."""
    refused = among & ~contains(project.positive, project.answered)
    return project.answered[refused], project.answers["label"].to_numpy(np.int64)[refused]


def _dispute(
    project: ProjectSnapshot, kind: DisputeKind, of: int, pairs: Ints, *weights: NDArray[Any]
) -> Dispute:
    """The pairs with the smallest weights, compared one after the other; ``of`` is how many there could have been."""
    order = np.lexsort((pairs, *reversed(weights)))
    first, others = _apart(unpack_pairs(pairs[order]))
    chosen = [*first, *others[: SHOWN - len(first)]]
    return Dispute(kind, len(pairs), of, tuple(_disputed(project, pair) for pair in chosen))


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
    answer = project.answer(pair)
    assert answer is not None, pair
    shortcomings, concepts = project.reasons(pair)
    return DisputedPair(
        image_id=image.external_id,
        caption_id=caption.external_id,
        text=caption.text,
        image=image.path,
        document=_document(image) or "",
        reference=None if caption.reference_id is None else project.image_of[caption.reference_id].path,
        answers=project.given(pair),
        label=answer.label,
        original=project.is_original(pair),
        cxc_score=project.ratings.get(pair),
        found_by=project.found_by(pair),
        shortcomings=shortcomings,
        concepts=concepts,
        truth=project.truth(pair),
    )

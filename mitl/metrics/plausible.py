"""Plausible Match R-Precision (PMRP): items match where their images show nearly the same objects.

An image is a binary vector over object classes (80 in COCO), and a caption has its image's. Two items match where
their vectors differ in at most ζ places. A query can have ten thousand matches, so matches are told from the
distances of distinct vectors and never listed. Sources: Chun et al., Probabilistic Embeddings for Cross-Modal
Retrieval, CVPR 2021 (the metric, mean over ζ = 0, 1, 2); Chun et al., ECCV Caption, section 4.1 (ζ = 0 and
min(R, 50) in place of R).

Matches as sets come from the objects of images, or from the lists of ECCV Caption's library (``extra_file_dir``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from mitl.datasets.files import read_json
from mitl.datasets.objects import ImageObjects
from mitl.datasets.official import OfficialPositives, listed_ids
from mitl.errors import DatasetError, MetricError
from mitl.metrics.positives import Ids, NoPositives, Places, Positives, QueryValues, Short
from mitl.metrics.ranks import NOTHING, ArrayRankings, ranks_in
from mitl.metrics.retrieval import Values
from mitl.metrics.table import Gaps, MetricRequest
from mitl.records import Direction

ZETAS = (0, 1, 2)
"""The distances that PCME's PMRP is the mean over."""
CAP = 50
"""ECCV Caption's bound on R."""
Objectless = Literal["leave_out", "keep"]
"""Items without any object: left out of queries and gallery, as in PCME's evaluation, or taken to match each other."""
FILES = {Direction.I2T: "pm_image_to_caption.json", Direction.T2I: "pm_caption_to_image.json"}
WHAT = "plausible matches: lists of item ids by query id"
_CELLS = 1 << 22
"""Distances, or places, looked at in one go: some 100 MB."""


@dataclass(frozen=True, slots=True, eq=False)
class ObjectVectors:
    """``vectors`` (N, C), true where an object of class c belongs to the item; ``ids`` (N,), each once."""

    ids: Ids
    vectors: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if self.vectors.ndim != 2 or len(self.vectors) != len(self.ids):
            raise MetricError(f"object vectors are {self.vectors.shape}, but {len(self.ids)} ids were given")
        if self.vectors.dtype != np.bool_:
            raise MetricError(f"object vectors are {self.vectors.dtype}; give booleans, an item a row")

    def __len__(self) -> int:
        return len(self.ids)

    def of_captions(self, caption_ids: Ids, image_ids: Ids) -> ObjectVectors:
        """The captions' vectors: those of their images, ``image_ids`` (M,) beside ``caption_ids`` (M,).

        Raises:
            MetricError: the arrays differ in length, or an image is not among these.
        """
        if len(caption_ids) != len(image_ids):
            raise MetricError(f"{len(caption_ids)} captions, but {len(image_ids)} images of theirs")
        places = Places.of(self.ids, "images with objects").need(image_ids, "the captions' images")
        return ObjectVectors(np.asarray(caption_ids, dtype=np.int64), self.vectors[places])

    def with_objects(self) -> ObjectVectors:
        """These without the items that have no object."""
        some = self.vectors.any(axis=1)
        return ObjectVectors(self.ids[some], self.vectors[some])


@dataclass(frozen=True, slots=True, eq=False)
class ObjectKinds:
    """The distinct vectors (U, C), as numbers for products, and the kind of each item (N,)."""

    vectors: NDArray[np.float32]
    of_item: Ids

    @classmethod
    def of(cls, vectors: NDArray[np.bool_]) -> ObjectKinds:
        """The kinds of (N, C) vectors."""
        words = _words(vectors)
        order = np.lexsort(words.T)
        new = np.ones(len(order), dtype=np.bool_)
        new[1:] = (words[order][1:] != words[order][:-1]).any(axis=1)
        of_item = np.empty(len(order), dtype=np.int64)
        of_item[order] = np.cumsum(new) - 1
        return cls(vectors[order[new]].astype(np.float32), of_item)

    def distances(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """(B, U) in how many classes each of ``vectors`` (B, C) differs from each kind."""
        common = vectors @ self.vectors.T  # whole numbers below 2 ** 24: exact
        lengths = vectors.sum(axis=1)[:, None] + self.vectors.sum(axis=1)[None, :]
        return np.asarray(lengths - 2 * common, dtype=np.float32)


def _words(vectors: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """The vectors as (N, W) words of 64 classes each, one at least."""
    packed = np.packbits(vectors, axis=1)
    missing = -packed.shape[1] % 8 if packed.shape[1] else 8
    return np.ascontiguousarray(np.pad(packed, ((0, 0), (0, missing)))).view(np.uint64)


@dataclass(frozen=True, slots=True, eq=False)
class PlausibleSearch:
    """The gallery's items by id, their kinds, and which (G,) are left out for want of objects."""

    places: Places
    kinds: ObjectKinds
    silent: NDArray[np.bool_]

    @classmethod
    def of(cls, gallery: ObjectVectors, *, leave_out: bool) -> PlausibleSearch:
        """A gallery; ``leave_out`` says whether items without objects are passed over."""
        silent = ~gallery.vectors.any(axis=1) if leave_out else np.zeros(len(gallery), dtype=np.bool_)
        return cls(
            Places.of(gallery.ids, "items with objects"), ObjectKinds.of(gallery.vectors), np.asarray(silent)
        )

    @property
    def width(self) -> int:
        """Cells that a query takes at most beside its ranking."""
        return len(self.places)

    def reach(self, r: int) -> int:
        """Places of a ranking that hold ``r`` items for certain, whatever is left out."""
        return r + int(self.silent.sum())

    def counts(self, vectors: NDArray[np.bool_], zetas: Sequence[int]) -> Ids:
        """(Z, Q) how many gallery items match each of ``vectors`` (Q, C)."""
        queries = ObjectKinds.of(vectors)
        sizes = np.bincount(self.kinds.of_item[~self.silent], minlength=len(self.kinds.vectors))
        counts = np.empty((len(zetas), len(queries.vectors)), dtype=np.int64)
        block = max(1, _CELLS // len(sizes))
        for start in range(0, len(queries.vectors), block):
            part = slice(start, start + block)
            distances = self.kinds.distances(queries.vectors[part])
            for row, zeta in zip(counts, zetas, strict=True):
                row[part] = (distances <= zeta) @ sizes
        return counts[:, queries.of_item]

    def precisions(
        self,
        queries: ObjectVectors,
        head: NDArray[Any],
        wanted: Ids,
        zetas: Sequence[int],
        short: Short,
    ) -> NDArray[np.float64]:
        """(Z, B) share of matches among the first ``wanted`` (Z, B) items of rankings ``head`` (B, depth).

        Raises:
            MetricError: an item is unknown or named twice; a ranking ends too early, unless ``short`` is "zero".
        """
        ended = head == NOTHING
        places = self.places.need(np.where(ended, self.places.ids[0], head), "the rankings")
        self._refuse_repeats(places, head, ~ended, queries.ids)
        heard = ~(self.silent[places] | ended)
        rank = np.cumsum(heard, axis=1, dtype=np.int32)
        if short == "raise":
            refuse_short(
                rank[:, -1] if head.shape[1] else np.zeros(len(head)), wanted.max(axis=0), queries.ids
            )
        distances = self.kinds.distances(queries.vectors.astype(np.float32))  # (B, U)
        item_distances = np.take_along_axis(distances, self.kinds.of_item[places], axis=1)  # (B, depth)
        item_distances[~heard] = np.inf
        hits = [
            ((item_distances <= zeta) & (rank <= r[:, None])).sum(axis=1) / r
            for zeta, r in zip(zetas, wanted, strict=True)
        ]
        return np.stack(hits)

    def _refuse_repeats(
        self, places: NDArray[Any], head: NDArray[Any], ranked: NDArray[np.bool_], query_ids: Ids
    ) -> None:
        seen = np.zeros((len(places), len(self.places)), dtype=np.bool_)
        seen[np.nonzero(ranked)[0], places[ranked]] = True
        short = np.flatnonzero(seen.sum(axis=1) < ranked.sum(axis=1))
        if len(short):
            named, times = np.unique(head[short[0]][ranked[short[0]]], return_counts=True)
            raise MetricError(
                f"the ranking of query {query_ids[short[0]]} names item {named[times > 1][0]} twice"
            )


def refuse_short(depths: NDArray[Any], wanted: Ids, query_ids: Ids) -> None:
    """MetricError where a ranking holds fewer items, ``depths`` (Q,), than are wanted (Q,)."""
    missing = np.flatnonzero(wanted > depths)
    if len(missing):
        row = missing[wanted[missing].argmax()]
        raise MetricError(
            f"query {query_ids[row]} needs {wanted[row]} ranked items, but its ranking holds {int(depths[row])}; "
            "rank deeper, bound R, or count the missing places as misses (short='zero')"
        )


def plausible_r_precision(
    query_ids: NDArray[Any],
    items: NDArray[Any],
    queries: ObjectVectors,
    gallery: ObjectVectors,
    *,
    zetas: Sequence[int] = ZETAS,
    cap: int | None = None,
    objectless: Objectless = "leave_out",
    **gaps: Unpack[Gaps],
) -> Values:
    """R-Precision under plausible matches: one for each ζ and, where there are several, their mean, ``PMRP``.

    Args:
        query_ids: (N,) the query of each row of ``items``; may hold more queries than ``queries``.
        items: (N, depth) gallery ids, best first; ``NOTHING`` behind the end of a shorter ranking.
        queries: the queries to score, with their objects.
        gallery: the objects of all items that the rankings may name.
        cap: R is at most this; all matches where None. Rankings then need no more than ``cap`` places, beside
            those that items without objects take.
        short, no_positives: as for ``score_queries``.

    Raises:
        MetricError: queries and gallery differ in the number of classes, a ranked item has no vector, a ranking
            names an item twice, is shorter than R (unless missing places count as misses), or a query has no
            ranking or no match (unless those without a match are left out).
    """
    _check(queries, gallery, zetas, cap)
    scoring = MetricRequest((), **gaps)
    rankings = ArrayRankings(query_ids, items)
    heard = queries.with_objects() if objectless == "leave_out" else queries
    search = PlausibleSearch.of(gallery, leave_out=objectless == "leave_out")
    order = np.argsort(heard.ids)
    ids, vectors = heard.ids[order], heard.vectors[order]
    counts = search.counts(vectors, zetas)  # (Z, Q)
    matched = counts.min(axis=0, initial=1) > 0
    _refuse_unmatched(ids, matched, scoring.no_positives)
    ids, vectors, counts = ids[matched], vectors[matched], counts[:, matched]
    wanted = counts if cap is None else np.minimum(counts, cap)
    rows = rankings.rows_of(ids)
    deepest = wanted.max(axis=0)
    values = np.empty(wanted.shape)
    for part in blocks(deepest, search.width):
        stop = search.reach(int(deepest[part].max()))
        head = rankings.block(rows[part], 0, min(stop, items.shape[1]))
        values[:, part] = search.precisions(
            ObjectVectors(ids[part], vectors[part]), head, wanted[:, part], zetas, scoring.short
        )
    named = {_name(zeta, cap): of_zeta for zeta, of_zeta in zip(zetas, values, strict=True)}
    if len(zetas) > 1:
        named[_name(None, cap)] = values.mean(axis=0)
    left_out = len(queries) - len(ids)
    return tuple(QueryValues(name, ids, of_name, left_out=left_out) for name, of_name in named.items())


def listed_r_precision(
    query_ids: NDArray[Any],
    items: NDArray[Any],
    matches: Positives,
    *,
    zeta: int = 0,
    cap: int | None = None,
    **gaps: Unpack[Gaps],
) -> QueryValues:
    """R-Precision under matches that were listed beforehand, as in ECCV Caption's files of plausible matches.

    Args:
        query_ids: (N,) the query of each row of ``items``; may hold more queries than ``matches``.
        items: (N, depth) gallery ids, best first.
        zeta: the distance that the lists were made with; it names the metric.
        cap, short, no_positives: as for ``plausible_r_precision``.

    Raises:
        MetricError: as ``plausible_r_precision``.
    """
    _check_cap(cap)
    scoring = MetricRequest((), **gaps)
    rankings = ArrayRankings(query_ids, items)
    _refuse_unmatched(matches.query_ids, matches.counts > 0, scoring.no_positives)
    scored = matches.with_positives()
    rows = rankings.rows_of(scored.query_ids)
    wanted = scored.counts if cap is None else np.minimum(scored.counts, cap)
    if scoring.short == "raise":
        refuse_short(np.full(len(wanted), items.shape[1]), wanted, scored.query_ids)
    values = np.empty(len(scored))
    for part in blocks(wanted):
        head = rankings.block(rows[part], 0, min(int(wanted[part].max()), items.shape[1]))
        listed = scored.take(part)
        ranks = ranks_in(head, listed)
        hits = (ranks > 0) & (ranks <= wanted[part][listed.rows])
        values[part] = np.bincount(listed.rows, hits, len(part)) / wanted[part]
    return QueryValues(_name(zeta, cap), scored.query_ids, values, left_out=len(matches) - len(scored))


def blocks(needed: Ids, least: int = 1) -> Iterator[Ids]:
    """Queries, in rising order, in blocks of like need: a block's head is hardly longer than its rows want."""
    order = np.argsort(-needed, kind="stable")
    start = 0
    while start < len(order):
        width = max(int(needed[order[start]]), least)
        stop = start + max(1, _CELLS // width)
        yield np.sort(order[start:stop])
        start = stop


def _name(zeta: int | None, cap: int | None) -> str:
    """``PMRP``, ``PMRP zeta=0``, ``PMRP zeta=0 R<=50``."""
    parts = ["PMRP", "" if zeta is None else f"zeta={zeta}", "" if cap is None else f"R<={cap}"]
    return " ".join(part for part in parts if part)


def _refuse_unmatched(ids: Ids, matched: NDArray[np.bool_], no_positives: NoPositives) -> None:
    strange = ids[~matched]
    if len(strange) and no_positives == "raise":
        raise MetricError(
            f"query {strange[0]} has no plausible match in the gallery ({len(strange)} of {len(ids)} have none), "
            "so its score is undefined; leave it out"
        )
    if len(strange) == len(ids):
        raise MetricError("no query has objects and a plausible match, so there is nothing to score")


def _check(queries: ObjectVectors, gallery: ObjectVectors, zetas: Sequence[int], cap: int | None) -> None:
    classes = queries.vectors.shape[1], gallery.vectors.shape[1]
    if classes[0] != classes[1]:
        raise MetricError(
            f"queries have {classes[0]} object classes, but the gallery has {classes[1]}; use one list of classes"
        )
    if not zetas or min(zetas) < 0:
        raise MetricError(f"zeta is {min(zetas, default='missing')}, but distances start at 0")
    _check_cap(cap)


def _check_cap(cap: int | None) -> None:
    if cap is not None and cap < 1:
        raise MetricError(f"R is bounded by {cap}, but the bound is at least 1")


def matches_by_objects(objects: ImageObjects, image_of: Mapping[str, str]) -> OfficialPositives:
    """The captions that match an image plausibly, and the images that match a caption, with zeta = 0.

    They match if the caption's own image shows exactly the same classes of objects. Images without any object match
    nothing, nor do their captions. Items of equal objects share one list.

    Args:
        image_of: caption id -> its own image's; no other image or caption is in the set.

    Raises:
        DatasetError: the objects of an image are not told.
    Source: Chun et al., PCME, CVPR 2021, section 4.1; a row of ECCV Caption's Table 2.
    """
    row_of = {image: row for row, image in enumerate(objects.image_ids)}
    images = list(dict.fromkeys(image_of.values()))
    unknown = [image for image in images if image not in row_of]
    if unknown:
        raise DatasetError(
            f"the objects are not told of {len(unknown):,} of {len(images):,} images; first: {unknown[0]!r}"
        )
    kinds: defaultdict[bytes, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    kind_of = {
        image: objects.vectors[row_of[image]].tobytes()
        for image in images
        if objects.vectors[row_of[image]].any()
    }
    for image, kind in kind_of.items():
        kinds[kind][0].append(image)
    for caption, image in image_of.items():
        if image in kind_of:
            kinds[kind_of[image]][1].append(caption)
    shared = {kind: (tuple(same), tuple(captions)) for kind, (same, captions) in kinds.items()}
    return OfficialPositives(
        {image: shared[kind][1] for image, kind in kind_of.items()},
        {caption: shared[kind_of[image]][0] for caption, image in image_of.items() if image in kind_of},
    )


def listed_matches(folder: Path) -> OfficialPositives:
    """The plausible matches of the library's two files, by external id.

    Raises:
        DatasetError: as ``read_plausible_matches``.
    """
    tables = []
    for positives in read_plausible_matches(folder).values():
        # A list of thousands of items comes again and again: each id is one text, however often it is listed.
        texts = {item: str(item) for item in np.unique(positives.item_ids).tolist()}
        lists = np.split(positives.item_ids, positives.offsets[1:-1])
        tables.append(
            {
                str(query): tuple(texts[item] for item in items.tolist())
                for query, items in zip(positives.query_ids.tolist(), lists, strict=True)
            }
        )
    return OfficialPositives(*tables)


def read_plausible_matches(folder: Path) -> dict[Direction, Positives]:
    """The plausible matches of each query, both directions, under COCO's ids.

    Raises:
        DatasetError: a file is missing or malformed, or an id is not a whole number.
    """
    return {direction: _read(folder / name) for direction, name in FILES.items()}


def _read(path: Path) -> Positives:
    value = read_json(path, WHAT)
    if not isinstance(value, dict):
        raise DatasetError(f"{str(path)!r} holds no object of queries; it should hold {WHAT}")
    try:
        queries = np.array([int(query) for query in value], dtype=np.int64)
        # Each list is let go as it becomes an array: the official ones hold millions of ids.
        lists = [listed_ids(value.pop(query)) for query in list(value)]
    except (TypeError, ValueError, OverflowError) as error:
        raise DatasetError(f"{str(path)!r} is malformed ({error}); it should hold {WHAT}") from error
    items = np.concatenate(lists) if lists else np.empty(0, dtype=np.int64)
    return Positives.from_pairs(np.repeat(queries, [len(part) for part in lists]), items, queries=queries)

"""Rankings of an annotator of pairs among what cheaper annotators propose, with the recall of that shortlist measured.

The shortlist of a query is the union of its best N items by each of the other annotators. How much of the true top k
it holds is no matter of belief: a random sample of the queries is scored outside its shortlists too, before anything
else is, and N grows on that evidence where a recall is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from annotators.base import Ranking
from mitl.core.arrays import places
from mitl.core.statistics import clopper_pearson, mean_of_shares
from mitl.errors import RetrievalError
from mitl.progress import Advance, Progress, no_progress

Ids = NDArray[np.int64]
Places = NDArray[np.int64]
Exhaustive = Callable[[Ids, int, Advance], Ranking]
"""(query ids, k) to each query's k best of the whole gallery; told to count queries times gallery pairs."""
Among = Callable[[Ids, Sequence[Places], int, Advance], Ranking]
"""(query ids, rising places in the gallery for each, k) to each query's k best of its own; counts those pairs."""

_QUERIES_AT_A_TIME = 4096


@dataclass(frozen=True, slots=True)
class ShortlistAudit:
    """How recall is measured: on so many random queries, each against the whole gallery.

    With ``items``, each against its shortlist and so many random items beside it, where the gallery is too large. That
    bounds recall from below only, and loosely: an item that was not drawn may belong to the top k.
    """

    queries: int = 20
    items: int | None = None
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if self.queries < 1 or (self.items is not None and self.items < 1) or not 0 < self.confidence < 1:
            raise RetrievalError(
                f"an audit of {self.queries} queries, {self.items} items and confidence {self.confidence} measures "
                "nothing; it needs a query, an item and a confidence between 0 and 1"
            )


@dataclass(frozen=True, slots=True)
class ShortlistRecall:
    """The share of the true top ``k`` that shortlists of the best ``depth`` of each source hold, on average."""

    k: int
    depth: int
    share: float
    low: float
    high: float
    """Ends of the interval of ``audit.confidence``."""
    audit: ShortlistAudit
    queries: int
    """Audited."""
    candidates: float
    """Items of an audited query's shortlist, on average."""
    gallery: int

    @property
    def line(self) -> str:
        """For people."""
        is_whole = self.audit.items is None
        scored = "all items" if is_whole else f"{self.audit.items:,} random items beside their shortlists"
        return (
            f"shortlist of the best {self.depth:,} of each source ({self.candidates:,.0f} of {self.gallery:,} items a "
            f"query): recall@{self.k} {'' if is_whole else 'at least '}{self.share:.3f}, {self.audit.confidence:.0%} "
            f"interval {self.low:.3f} to {self.high:.3f}; measured on {self.queries:,} queries with {scored}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Shortlisted:
    """A ranking among shortlists, and how good those are."""

    ranking: Ranking
    recall: ShortlistRecall
    pairs: int
    """Of queries and their candidates."""


@dataclass(frozen=True, slots=True)
class Shortlisting:
    """How long shortlists are, and how their recall is measured."""

    depth: int
    """N, items of each source; at least so deep the sources must be."""
    wished: float | None = None
    """A recall that the interval's lower end must reach. N is doubled until it does, as far as the rankings go; the
    interval allows for every N that may be tried."""
    audit: ShortlistAudit = field(default_factory=ShortlistAudit)
    seed: int = 0
    """Of the sample of queries and of items."""


@dataclass(frozen=True, slots=True)
class PairRanking:
    """How pairs are ranked, and who is told. Scores should be kept: N is tried on queries that were audited."""

    exhaustive: Exhaustive
    among: Among
    progress: Progress = no_progress
    label: str = "score shortlists"


def shortlisted_top_k(
    query_ids: Ids,
    gallery_ids: Ids,
    k: int,
    sources: Sequence[Ranking],
    shortlisting: Shortlisting,
    pairs: PairRanking,
) -> Shortlisted:
    """Each query's ``k`` best items of its shortlist, best first, ties to the smaller id.

    Args:
        gallery_ids: ascending.
        sources: the other annotators' rankings of all these queries.

    Raises:
        RetrievalError: a query's shortlist is shorter than k, a ranking lacks a query, names an item that is not in
            the gallery or is too short, or the wished recall is not reached.
    """
    union, wished = Union(query_ids, gallery_ids, sources), shortlisting.wished
    union.check(shortlisting.depth)
    depths = [shortlisting.depth] if wished is None else union.depths(shortlisting.depth)
    auditor = _Auditor(union, k, pairs, shortlisting, len(depths))
    for depth in depths:
        recall = auditor.recall(depth)
        if wished is None or recall.low >= wished:
            break
    else:
        raise RetrievalError(
            f"no shortlist reaches a recall of {wished}: {recall.line}; rank with the others deeper than {depth:,}, "
            "audit more queries or score all pairs"
        )
    parts, count = [], 0
    with pairs.progress(pairs.label, union.pairs(depth)) as advance:
        for rows in union.blocks():
            candidates = union.places(rows, depth, k)
            count += sum(map(len, candidates))
            parts.append(pairs.among(query_ids[rows], candidates, k, advance))
    items = np.concatenate([np.empty((0, k), np.int64), *(part.item_ids for part in parts)])
    values = np.concatenate([np.empty((0, k), np.float32), *(part.similarities for part in parts)])
    return Shortlisted(Ranking(query_ids, items, values), recall, count)


class Union:
    """What several rankings propose for each query."""

    def __init__(self, query_ids: Ids, gallery_ids: Ids, sources: Sequence[Ranking]) -> None:
        if not sources:
            raise RetrievalError("a shortlist needs the ranking of at least one other annotator")
        self.query_ids, self.gallery_ids = query_ids, gallery_ids
        self._sources = [
            (source, _places(source.query_ids, query_ids, "a ranking for the shortlist lacks query"))
            for source in sources
        ]
        self.deepest = min(source.item_ids.shape[1] for source in sources)

    def check(self, depth: int) -> None:
        """RetrievalError unless every ranking has so many items, or the gallery itself has fewer."""
        if depth < 1 or self.deepest < min(depth, len(self.gallery_ids)):
            raise RetrievalError(
                f"a shortlist of {depth:,} needs rankings as deep, but one has {self.deepest:,} items a query"
            )

    def depths(self, first: int) -> list[int]:
        """``first``, doubled as far as the rankings go."""
        depths = [min(first, self.deepest)]
        while depths[-1] < self.deepest:
            depths.append(min(2 * depths[-1], self.deepest))
        return depths

    def blocks(self) -> Iterator[Places]:
        """Rows of the queries that are worked on together."""
        for start in range(0, len(self.query_ids), _QUERIES_AT_A_TIME):
            yield np.arange(start, min(start + _QUERIES_AT_A_TIME, len(self.query_ids)))

    def pairs(self, depth: int) -> int:
        """Of all queries and their candidates."""
        return sum(int(self._candidates(rows, depth)[1].sum()) for rows in self.blocks())

    def places(self, rows: Places, depth: int, k: int) -> list[Places]:
        """The candidates of these rows of the queries as rising places in the gallery; at least k each."""
        rising, is_first = self._candidates(rows, depth)
        lists = [row[first] for row, first in zip(rising, is_first, strict=True)]
        short = next((place for place, items in enumerate(lists) if len(items) < k), None)
        if short is not None:
            raise RetrievalError(
                f"the shortlist of query {self.query_ids[rows[short]]} has {len(lists[short])} items, but the top {k} "
                f"is wanted; make it longer than {depth:,}"
            )
        return lists

    def _candidates(self, rows: Places, depth: int) -> tuple[Places, NDArray[np.bool_]]:
        proposed = [source.item_ids[of_query[rows], :depth] for source, of_query in self._sources]
        items = np.concatenate(proposed, axis=1)
        held = _places(self.gallery_ids, items.ravel(), "a ranking for the shortlist names item")
        rising = np.sort(held.reshape(items.shape), axis=1)
        return rising, np.diff(rising, axis=1, prepend=-1) > 0


class _Auditor:
    """A random sample of the queries, to be scored beyond their shortlists."""

    def __init__(
        self, union: Union, k: int, pairs: PairRanking, shortlisting: Shortlisting, tries: int
    ) -> None:
        audit = self._audit = shortlisting.audit
        self._union, self._k, self._pairs = union, k, pairs
        self._confidence = 1 - (1 - audit.confidence) / tries
        rng = np.random.default_rng(shortlisting.seed)
        population, gallery = len(union.query_ids), len(union.gallery_ids)
        self._is_census = audit.queries >= population
        self._rows = np.sort(rng.choice(population, min(audit.queries, population), replace=False))
        self._drawn: list[Places] | None = None
        if audit.items is not None:
            count = min(audit.items, gallery)
            self._drawn = [rng.choice(gallery, count, replace=False) for _ in self._rows]
        self._truth: Ranking | None = None

    def recall(self, depth: int) -> ShortlistRecall:
        """Of the shortlists of this depth."""
        listed = self._union.places(self._rows, depth, self._k)
        bounds = self._in_full(listed) if self._drawn is None else self._by_sample(listed, self._drawn)
        candidates = float(np.mean([len(shortlist) for shortlist in listed]))
        gallery = len(self._union.gallery_ids)
        return ShortlistRecall(self._k, depth, *bounds, self._audit, len(self._rows), candidates, gallery)

    def _in_full(self, listed: Sequence[Places]) -> tuple[float, float, float]:
        union, pairs, ids = self._union, self._pairs, self._union.query_ids[self._rows]
        if self._truth is None:
            with pairs.progress(f"{pairs.label}: audit", len(ids) * len(union.gallery_ids)) as advance:
                self._truth = pairs.exhaustive(ids, self._k, advance)
        best = np.searchsorted(union.gallery_ids, self._truth.item_ids)
        shares = np.array(
            [np.isin(top, shortlist).mean() for top, shortlist in zip(best, listed, strict=True)]
        )
        mean = float(shares.mean())
        if self._is_census:
            return mean, mean, mean
        return mean, *mean_of_shares(shares, self._k, self._confidence)

    def _by_sample(self, listed: Sequence[Places], drawn: Sequence[Places]) -> tuple[float, float, float]:
        """A member of the top k outside the shortlist, if drawn, is in the top k of the shortlist and the drawn too.

        So how many drawn items come into that top k bounds how many outsiders belong to the true one. Draws of one
        query are alike, so the bound is never above that of the queries' own shares.
        """
        union, pairs, ids = self._union, self._pairs, self._union.query_ids[self._rows]
        outside = [np.setdiff1d(some, shortlist) for some, shortlist in zip(drawn, listed, strict=True)]
        both = [np.sort(np.concatenate(two)) for two in zip(listed, outside, strict=True)]
        with pairs.progress(f"{pairs.label}: audit", sum(len(candidates) for candidates in both)) as advance:
            ranking = pairs.among(ids, both, self._k, advance)
        best = np.searchsorted(union.gallery_ids, ranking.item_ids)
        came = np.array([np.isin(top, some).sum() for top, some in zip(best, outside, strict=True)])
        outsiders = np.array([len(union.gallery_ids) - len(shortlist) for shortlist in listed])
        counts = np.array([len(some) for some in outside])
        if not counts.sum():
            recall = float(not outsiders.any())
            return recall, recall, 1.0
        most = float(outsiders.mean()) / self._k
        missing = most * came.sum() / counts.sum()
        _, upper = clopper_pearson(float(came.sum()), float(counts.sum()), self._confidence)
        share, low = max(0.0, 1 - float(missing)), max(0.0, 1 - most * upper)
        if not self._is_census:
            shares = np.clip(1 - outsiders * came / (np.maximum(counts, 1) * self._k), 0, 1)
            told = shares[(counts > 0) | (outsiders == 0)]
            low = min(low, mean_of_shares(told, self._k, self._confidence)[0])
        return share, low, 1.0


def _places(ids: Ids, wanted: Ids, lacks: str) -> Places:
    """Where the wanted ids stand among ``ids``, which may be in any order; RetrievalError where one does not."""
    order = np.argsort(ids, kind="stable")
    at = places(ids[order], wanted)
    wrong = np.flatnonzero(at < 0)
    if len(wrong):
        raise RetrievalError(f"{lacks} {wanted[wrong[0]]}, which is not there; both must be of the same data")
    return order[at]

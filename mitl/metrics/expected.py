"""Metrics in expectation over labels that are not known: each pair is a match by its own chance, apart from the others.

Recall@K and P@K follow exactly. R-Precision and mAP@R look as deep as there are matches, so they are averaged over
draws of all labels; a draw of a pair depends on nothing but the pair, so that models are compared on the same draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mitl.core.arrays import Flags, Floats, mixed
from mitl.errors import MetricError
from mitl.metrics.partial_labels import Counts, PartialLabels
from mitl.metrics.positives import Ids, Short
from mitl.metrics.ranks import NOTHING, Rankings
from mitl.metrics.table import Asked, average_precisions_at_r, precision_at_k, r_precisions, recall_at_k

DRAWS, LEAST_DRAWS = 256, 64
"""Draws of all labels: over 1,000 queries the mean then varies by some 0.0005; more queries need fewer."""
_CELLS = 1 << 21
"""Labels held at once: some 50 MB with what is made of them."""
_STEP = np.uint64(0x9E3779B97F4A7C15)
_BITS = 53


@dataclass(frozen=True, slots=True, eq=False)
class Worlds:
    """Draws of all labels at once."""

    labels: PartialLabels
    seed: int
    matches: Counts
    """(Q, B) of each query in each draw."""
    unlisted: Counts
    """(Q, B) those among the pairs that are not listed."""

    @classmethod
    def draw(cls, labels: PartialLabels, draws: int = DRAWS, seed: int = 0) -> Worlds:
        """So many draws; one where all is known."""
        doubtful = (labels.chances > 0) & (labels.chances < 1)
        if not doubtful.any() and labels.remainder in (0, 1):
            draws = 1
        sure = np.bincount(labels.rows[labels.chances >= 1], minlength=len(labels))
        rng = np.random.default_rng([seed, 8])
        unlisted = rng.binomial(labels.unlisted[:, None], labels.remainder, (len(labels), draws))
        matches = sure[:, None] + unlisted
        listed = np.flatnonzero(doubtful)
        for start in range(0, len(listed), max(1, _CELLS // draws)):
            some = listed[start : start + max(1, _CELLS // draws)]
            rows = labels.rows[some]
            keys = _keys(seed, labels.query_ids[rows], labels.items[some])
            drawn = _drawn(keys, labels.chances[some, None], draws)
            firsts = np.flatnonzero(np.append(True, rows[1:] != rows[:-1]))
            matches[rows[firsts]] += np.add.reduceat(drawn, firsts, axis=0, dtype=np.int64)
        return cls(labels, seed, matches, unlisted)

    @property
    def draws(self) -> int:
        """B."""
        return int(self.matches.shape[1])


@dataclass(frozen=True, slots=True, eq=False)
class Cases:
    """Queries to be scored: ``rows`` (N,) their places, each as the labels say, or with one listed pair's label set."""

    rows: Ids
    items: Ids
    """(N,) the item whose label is set; NOTHING where none is."""
    values: Ids
    """(N,) 0 or 1: the label that it is set to."""

    @classmethod
    def plain(cls, queries: int) -> Cases:
        """Every query as it is."""
        return cls(np.arange(queries), np.full(queries, NOTHING), np.zeros(queries, np.int64))

    def take(self, some: Ids) -> Cases:
        """Those at these places."""
        return Cases(self.rows[some], self.items[some], self.values[some])


def expected_values(
    rankings: Rankings, worlds: Worlds, asked: Sequence[Asked], cases: Cases, *, short: Short = "raise"
) -> Floats:
    """(N, M) each metric of each case, in expectation over the labels; a query without a match scores 0.

    Args:
        cases: a pair whose label is set must be listed.

    Raises:
        MetricError: a metric has no expectation here; a query has no ranking, or one that ends before K or before the
            number of its matches in some draw, while ``short`` is "raise".
    """
    labels = worlds.labels
    exact, drawn = _split(asked)
    rows = rankings.rows_of(labels.query_ids)
    matches = worlds.matches[cases.rows] + _shift(worlds, cases)
    reach = np.full(len(cases.rows), max((request.k for request in asked), default=0))
    reach = np.maximum(reach, matches.max(axis=1)) if drawn else reach
    if short == "raise":
        _refuse_short(labels, rankings.lengths(rows)[cases.rows], cases, reach)
    values = np.zeros((len(cases.rows), len(asked)))
    for some in _blocks(reach, worlds.draws if drawn else 1):
        part, depth = cases.take(some), int(reach[some].max())
        items = np.asarray(rankings.block(rows[part.rows], 0, depth), np.int64)
        listed = labels.find(part.rows, items)
        chances = labels.chances_of(part.rows, items)
        is_set = (items == part.items[:, None]) & (items != NOTHING)
        chances = np.where(is_set, part.values[:, None], chances)
        for place, of in exact:
            values[some, place] = of(chances[:, : asked[place].k], asked[place].k)
        if drawn:
            hits = _labels(worlds, part.rows, items, chances, listed)
            for place, of in drawn:
                values[some, place] = of(hits, matches[some])
    return values


def draws_for(queries: int) -> int:
    """Draws that are enough for a mean over so many queries."""
    return max(LEAST_DRAWS, min(DRAWS, DRAWS * 1000 // max(queries, 1)))


def depth_needed(worlds: Sequence[Worlds], asked: Sequence[Asked]) -> int:
    """How deep rankings must be for these metrics, at most the gallery."""
    ks = [request.k for request in asked]
    if _split(asked)[1]:
        ks += [int(world.matches.max()) + 1 for world in worlds]  # a label may be set to a match
    return min(max(ks, default=0), worlds[0].labels.gallery)


def _split(asked: Sequence[Asked]) -> tuple[list[tuple[int, Callable[..., Floats]]], ...]:
    exact, drawn = [], []
    for place, request in enumerate(asked):
        if request.metric.of in _EXACT:
            exact.append((place, _EXACT[request.metric.of]))
        elif request.metric.of in _DRAWN:
            drawn.append((place, _DRAWN[request.metric.of]))
        else:
            raise MetricError(
                f"{request.name} is not known in expectation over labels; known: R@K, P@K, R-Precision, mAP@R"
            )
    return exact, drawn


def _shift(worlds: Worlds, cases: Cases) -> Counts:
    """(N, B or 1) how many matches more each draw has for the label that is set."""
    labels, set_ = worlds.labels, np.flatnonzero(cases.items != NOTHING)
    listed = labels.find(cases.rows[set_], cases.items[set_])
    assert (listed >= 0).all()
    chances = labels.chances[listed]
    shift = np.zeros((len(cases.rows), 1 if np.isin(chances, (0, 1)).all() else worlds.draws), np.int64)
    keys = _keys(worlds.seed, labels.query_ids[cases.rows[set_]], cases.items[set_])
    shift[set_] = cases.values[set_, None] - _drawn(keys, chances[:, None], shift.shape[1])
    return shift


def _refuse_short(labels: PartialLabels, lengths: Counts, cases: Cases, reach: Counts) -> None:
    lacking = np.minimum(reach, labels.gallery) - lengths
    worst = int(lacking.argmax())
    if lacking[worst] > 0:
        raise MetricError(
            f"the ranking of query {labels.query_ids[cases.rows[worst]]} ends at {lengths[worst]}, but with the "
            f"matches that the holes may hide it is read to {min(int(reach[worst]), labels.gallery)}; rank "
            f"{min(int(reach.max()), labels.gallery)} deep, or count the missing places as misses (short='zero')"
        )


def _blocks(reach: Counts, draws: int) -> Iterator[Ids]:
    """Cases that are scored together, those read equally deep beside each other."""
    order = np.argsort(reach, kind="stable")
    start = 0
    while start < len(order):
        depth = max(1, int(reach[order[min(start + _CELLS // draws, len(order) - 1)]]))
        stop = start + max(1, _CELLS // (draws * depth))
        yield order[start:stop]
        start = stop


def _labels(worlds: Worlds, rows: Ids, items: Ids, chances: Floats, listed: Ids) -> Flags:
    """(n, depth, B) the labels of ranked pairs in each draw."""
    hits = np.repeat((chances >= 1)[:, :, None], worlds.draws, axis=2)
    at, place = np.nonzero((chances > 0) & (chances < 1))
    if not len(at):
        return hits
    chance = np.broadcast_to(chances[at, place, None], (len(at), worlds.draws)).copy()
    rest = listed[at, place] < 0
    if rest.any():  # of the matches that a draw has among the unlisted pairs, each of these holds its share
        unlisted = worlds.labels.unlisted[rows[at[rest]]]
        chance[rest] = worlds.unlisted[rows[at[rest]]] / np.maximum(unlisted, 1)[:, None]
    keys = _keys(worlds.seed, worlds.labels.query_ids[rows[at]], items[at, place])
    hits[at, place] = _drawn(keys, chance, worlds.draws)
    return hits


def _keys(seed: int, queries: Ids, items: Ids) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        start = mixed(np.asarray(queries, np.int64).astype(np.uint64) + np.uint64(seed + 1) * _STEP)
        return mixed(start ^ (np.asarray(items, np.int64).astype(np.uint64) * _STEP))


def _drawn(keys: NDArray[np.uint64], chances: Floats, draws: int) -> Flags:
    """(n, B) a label for each key and draw.

    Source: Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, OOPSLA 2014 (SplitMix64).
    """
    with np.errstate(over="ignore"):
        bits = mixed(keys[:, None] + np.arange(1, draws + 1, dtype=np.uint64) * _STEP)
    return np.asarray((bits >> np.uint64(64 - _BITS)) < (chances * 2.0**_BITS).astype(np.uint64))


def _recall(chances: Floats, k: int) -> Floats:
    return np.asarray(1 - np.prod(1 - chances, axis=1))


def _precision(chances: Floats, k: int) -> Floats:
    return np.asarray(chances.sum(axis=1) / k)


def _r_precision(hits: Flags, matches: Counts) -> Floats:
    inside = np.arange(hits.shape[1])[:, None] < matches[:, None]
    return np.asarray(((hits & inside).sum(axis=1) / np.maximum(matches, 1)).mean(axis=1))


def _average_precision(hits: Flags, matches: Counts) -> Floats:
    ranks = np.arange(1, hits.shape[1] + 1)[:, None]
    earned = np.cumsum(hits, axis=1, dtype=np.int32) / ranks * (hits & (ranks <= matches[:, None]))
    return np.asarray((earned.sum(axis=1) / np.maximum(matches, 1)).mean(axis=1))


_EXACT: dict[object, Callable[..., Floats]] = {recall_at_k: _recall, precision_at_k: _precision}
_DRAWN: dict[object, Callable[..., Floats]] = {
    r_precisions: _r_precision,
    average_precisions_at_r: _average_precision,
}

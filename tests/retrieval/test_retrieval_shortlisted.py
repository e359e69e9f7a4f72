"""Shortlists of an annotator of pairs: their recall is measured rightly, and grows when it is asked to."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotators.base import Ranking
from mitl.core.statistics import clopper_pearson, mean_of_shares
from mitl.errors import RetrievalError
from mitl.records import CaptionItem, Direction, ImageItem
from mitl.retrieval.pair_scores import PairScores, ScoredItems, ScoredUnit
from mitl.retrieval.pair_search import PairSearch
from mitl.retrieval.shortlisted import (
    PairRanking,
    ShortlistAudit,
    Shortlisted,
    Shortlisting,
    Union,
    shortlisted_top_k,
)

K = 5


@dataclass
class Toy:
    """A matrix of true scores (Q, G), and other annotators' matrices that resemble it."""

    true: np.ndarray
    others: list[np.ndarray]
    asked: list[int] = field(default_factory=list)
    """Pairs of each call."""

    @property
    def query_ids(self) -> np.ndarray:
        return 10 + 3 * np.arange(len(self.true))

    @property
    def gallery_ids(self) -> np.ndarray:
        return 5 + 2 * np.arange(self.true.shape[1])

    def exhaustive(self, query_ids, k, advance) -> Ranking:
        everything = [np.arange(self.true.shape[1])] * len(query_ids)
        return self.among(query_ids, everything, k, advance)

    def among(self, query_ids, places, k, advance) -> Ranking:
        rows = (query_ids - 10) // 3
        best = [
            one[np.lexsort((one, -self.true[row, one]))[:k]] for row, one in zip(rows, places, strict=True)
        ]
        self.asked += [len(one) for one in places]
        advance(sum(len(one) for one in places))
        items = self.gallery_ids[np.stack(best)]
        return Ranking(query_ids, items, np.stack([self.true[r, b] for r, b in zip(rows, best, strict=True)]))

    def sources(self, depth: int) -> list[Ranking]:
        return [ranking_of(self.query_ids, self.gallery_ids, other, depth) for other in self.others]

    def run(self, shortlist: int, *, depth: int | None = None, **rest) -> Shortlisted:
        told = {name: rest.pop(name) for name in ("progress", "label") if name in rest}
        return shortlisted_top_k(
            self.query_ids,
            self.gallery_ids,
            K,
            self.sources(depth or shortlist),
            Shortlisting(shortlist, **rest),
            PairRanking(self.exhaustive, self.among, **told),
        )


def ranking_of(query_ids, gallery_ids, matrix: np.ndarray, depth: int) -> Ranking:
    best = np.argsort(-matrix, axis=1, kind="stable")[:, :depth]
    return Ranking(query_ids, gallery_ids[best], np.take_along_axis(matrix, best, axis=1))


def toy(seed: int, queries: int = 40, items: int = 120, noise: float = 1.0, others: int = 2) -> Toy:
    rng = np.random.default_rng(seed)
    true = rng.standard_normal((queries, items)).astype(np.float32)
    return Toy(
        true, [(true + noise * rng.standard_normal(true.shape)).astype(np.float32) for _ in range(others)]
    )


def true_recall(world: Toy, shortlist: int) -> float:
    """By brute force, over all queries."""
    shares = []
    for row, scores in enumerate(world.true):
        best = set(np.argsort(-scores, kind="stable")[:K].tolist())
        listed = set().union(*(np.argsort(-o[row], kind="stable")[:shortlist].tolist() for o in world.others))
        shares.append(len(best & listed) / K)
    return float(np.mean(shares))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), shortlist=st.integers(K, 60), noise=st.floats(0, 3))
def test_an_audit_of_all_queries_gives_the_true_recall(seed, shortlist, noise):
    """Scored in full, the recall is that of brute force and has no interval."""
    world = toy(seed, noise=noise)

    found = world.run(shortlist, audit=ShortlistAudit(queries=40))

    wanted = true_recall(world, shortlist)
    assert found.recall.share == pytest.approx(wanted)
    assert found.recall.low == found.recall.high == found.recall.share


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), shortlist=st.integers(K, 120), others=st.integers(1, 3))
def test_the_ranking_is_the_best_of_the_union(seed, shortlist, others):
    """Each query's order is that of the true scores among what the sources propose, and nothing else is scored."""
    world = toy(seed, queries=8, others=others)

    found = world.run(shortlist, audit=ShortlistAudit(queries=2))

    for row, scores in enumerate(world.true):
        listed = set().union(*(np.argsort(-o[row], kind="stable")[:shortlist].tolist() for o in world.others))
        best = sorted(listed, key=lambda place: (-scores[place], place))[:K]
        assert found.ranking.item_ids[row].tolist() == world.gallery_ids[best].tolist()
        assert found.ranking.similarities[row].tolist() == scores[best].tolist()
    assert found.ranking.query_ids.tolist() == world.query_ids.tolist()
    assert sum(world.asked) == found.pairs + 2 * 120


def test_the_interval_of_a_sample_holds_the_true_recall():
    """Of 60 samples of 15 of 200 queries, nearly all intervals hold it, and they are not all of (0, 1)."""
    world = toy(3, queries=200, noise=1.5)
    wanted = true_recall(world, 15)

    found = [world.run(15, audit=ShortlistAudit(queries=15), seed=seed).recall for seed in range(60)]

    assert sum(one.low <= wanted <= one.high for one in found) >= 55
    assert np.mean([one.high - one.low for one in found]) < 0.3
    assert np.mean([one.share for one in found]) == pytest.approx(wanted, abs=0.02)


def test_random_items_bound_the_recall_from_below():
    """With some of the gallery drawn, the estimate and the lower end stay below the true recall nearly always."""
    world = toy(4, queries=100, items=300, noise=0.8)
    wanted = true_recall(world, 30)

    found = [
        world.run(30, audit=ShortlistAudit(queries=40, items=100), seed=seed).recall for seed in range(40)
    ]

    assert sum(one.low <= wanted for one in found) >= 38
    assert np.mean([one.share for one in found]) <= wanted + 0.01
    assert np.mean([one.share for one in found]) > wanted - 0.05
    assert {one.high for one in found} == {1.0}
    assert "at least" in found[0].line and "100 random items beside" in found[0].line


def test_random_items_prove_no_more_than_the_whole_gallery():
    """Of queries that differ, how many were audited counts, not how many items were drawn for each."""
    world = toy(6, queries=200, noise=0.1)
    for other in world.others:
        other[:40] = np.random.default_rng(0).standard_normal((40, 120))
    for seed in range(20):
        drawn, whole = (
            world.run(30, audit=ShortlistAudit(queries=20, items=items), seed=seed).recall
            for items in (120, None)
        )
        assert drawn.low <= whole.low + 1e-9 and drawn.share == pytest.approx(whole.share)


def test_random_items_without_any_outside_say_so():
    """A shortlist of the whole gallery misses nothing, whatever is drawn."""
    world = toy(5, queries=6, items=20)

    found = world.run(20, audit=ShortlistAudit(queries=3, items=4))

    assert (found.recall.share, found.recall.low) == (1.0, 1.0)


def test_the_shortlist_grows_until_the_wished_recall_is_sure():
    """N is doubled on the audit's evidence; the gallery is scored once; a recall out of reach is an error."""
    world = toy(6, noise=1.0)

    found = world.run(K, depth=120, wished=0.9, audit=ShortlistAudit(queries=40))

    assert found.recall.low >= 0.9
    assert true_recall(world, found.recall.depth // 2) < 0.9
    assert found.recall.depth in (10, 20, 40, 80)
    assert f"shortlist of the best {found.recall.depth} of each source" in found.recall.line
    assert world.asked.count(120) == 40
    with pytest.raises(
        RetrievalError, match=r"no shortlist reaches a recall of 0\.999: .*; rank with the others deeper"
    ):
        world.run(K, depth=10, wished=0.999)


def test_progress_reaches_its_totals():
    """The audit and the shortlists each have a bar that ends where it said."""
    bars: dict[str, list[int]] = {}

    @contextmanager
    def progress(label: str, total: int):
        bars[label] = [total, 0]

        def advance(units: int) -> None:
            bars[label][1] += units

        yield advance

    toy(11).run(10, audit=ShortlistAudit(queries=3), progress=progress, label="score toy")
    toy(11).run(10, audit=ShortlistAudit(queries=3, items=9), progress=progress, label="sample")

    assert set(bars) == {"score toy: audit", "score toy", "sample: audit", "sample"}
    assert bars["score toy: audit"] == [360, 360]
    assert all(total == done for total, done in bars.values())


def test_the_same_seed_audits_the_same_queries():
    """The recall is a function of data and seed."""
    first, again, other = (
        toy(7).run(10, audit=ShortlistAudit(queries=5), seed=seed).recall for seed in (1, 1, 2)
    )

    assert first == again
    assert first.share != other.share


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shortlist": 4}, "has .* items, but the top 5 is wanted; make it longer than 4"),
        ({"shortlist": 30, "depth": 20}, "needs rankings as deep, but one has 20"),
        ({"shortlist": 0, "depth": 20}, "needs rankings as deep"),
        ({"others": []}, "at least one other annotator"),
    ],
)
def test_what_makes_no_shortlist_is_one_clear_line(change, message):
    """Too short, deeper than the sources, or without sources."""
    world = toy(8, others=1)
    world.others = change.pop("others", world.others)

    with pytest.raises(RetrievalError, match=message):
        world.run(**{"shortlist": 20, **change})


def test_rankings_of_other_data_are_refused():
    """A source that lacks a query, or names an item that is not in the gallery."""
    world = toy(9)
    (good, _) = world.sources(10)

    with pytest.raises(RetrievalError, match="lacks query 13"):
        Union(
            np.array([10, 13]),
            world.gallery_ids,
            [Ranking(good.query_ids[:1], good.item_ids[:1], good.similarities[:1])],
        )
    union = Union(world.query_ids, world.gallery_ids[::2], [good])
    with pytest.raises(RetrievalError, match="names item"):
        union.places(np.arange(40), 10, K)
    with pytest.raises(RetrievalError, match="measures nothing"):
        ShortlistAudit(queries=0)


def test_a_killed_run_goes_on_with_the_next_pair(tmp_path: Path):
    """The scorer dies amid a query; the next run scores no pair again and ranks as one that never died."""
    world = toy(10, queries=6, items=600)
    captions = [CaptionItem(place, str(place), 0, "") for place in world.gallery_ids.tolist()]
    images = [ImageItem(place, str(place)) for place in world.query_ids.tolist()]
    items = ScoredItems(images, captions, np.arange(6, dtype=np.uint64), np.arange(600, dtype=np.uint64))
    scored: list[tuple[int, int]] = []

    def scores(units, *, lives: float):
        for unit in units:
            if len(scored) + len(unit.images) > lives:
                raise KeyboardInterrupt
            scored.extend(zip(unit.images.tolist(), unit.captions.tolist(), strict=True))
            yield ScoredUnit(unit.number, world.true[unit.images, unit.captions], 100.0)

    def run(lives: float) -> Shortlisted:
        search = PairSearch("toy", items, PairScores(tmp_path, "toy", items, partial(scores, lives=lives)))
        return shortlisted_top_k(
            world.query_ids,
            world.gallery_ids,
            K,
            world.sources(100),
            Shortlisting(100, audit=ShortlistAudit(queries=5)),
            PairRanking(partial(search.exhaustive, Direction.I2T), partial(search.among, Direction.I2T)),
        )

    with pytest.raises(KeyboardInterrupt):
        run(lives=2700)
    before = len(scored)
    found = run(lives=np.inf)

    assert 2000 < before < 5 * 600
    assert before % 600, "it died within a query"
    assert len(scored) == len(set(scored))
    assert len(scored) < 6 * 600
    assert found.ranking.item_ids.tolist() == world.run(100).ranking.item_ids.tolist()


def test_known_intervals_of_shares():
    """Clopper and Pearson's intervals as tables give them, and their closed forms at the ends."""
    assert clopper_pearson(10, 20, 0.95) == pytest.approx((0.27196, 0.72804), abs=1e-5)
    assert clopper_pearson(1, 10, 0.95) == pytest.approx((0.00253, 0.44502), abs=1e-5)
    assert clopper_pearson(0, 20, 0.95) == pytest.approx((0.0, 1 - 0.025 ** (1 / 20)))
    assert clopper_pearson(20, 20, 0.9) == pytest.approx((0.05 ** (1 / 20), 1.0))
    low, high = clopper_pearson(3, 5_000_000, 0.95)
    assert (low * 5e6, high * 5e6) == pytest.approx((0.6187, 8.7673), rel=1e-3)


@given(hits=st.integers(0, 300), trials=st.integers(1, 300), confidence=st.floats(0.5, 0.999))
def test_intervals_hold_the_share_and_grow_with_confidence(hits, trials, confidence):
    """Whatever was seen lies inside, and more confidence never makes an interval narrower."""
    hits = min(hits, trials)
    low, high = clopper_pearson(hits, trials, confidence)
    wider = clopper_pearson(hits, trials, 1 - (1 - confidence) / 2)

    assert 0 <= wider[0] <= low + 1e-12 <= hits / trials + 1e-9
    assert hits / trials - 1e-9 <= high <= wider[1] + 1e-12 <= 1 + 1e-12


def test_a_perfect_sample_proves_less_than_a_large_one():
    """The lower end rises with the number of queries, and a miss lowers it."""
    lows = [mean_of_shares(np.ones(count), 25, 0.95)[0] for count in (1, 5, 20, 100)]
    missed = np.ones(20)
    missed[0] = 0.8

    assert lows == sorted(lows)
    assert 0.9 < lows[2] < lows[3] < 1
    assert mean_of_shares(missed, 25, 0.95)[0] < lows[2]

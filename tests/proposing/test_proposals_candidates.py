"""Candidate pairs: the union of the rankings' heads, against plain sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotators.base import Ranking
from mitl.core.arrays import contains, distinct, pack_ids, pack_pairs, unpack_ids, unpack_pairs
from mitl.errors import ProposalError
from mitl.proposals.candidates import (
    DIRECTIONS,
    NamedRanking,
    proposal_summary,
    propose,
    ranked_pairs,
)
from mitl.records import Direction, Pair


@st.composite
def named_rankings(draw: st.DrawFn) -> list[NamedRanking]:
    """Up to three annotators in one or both directions over six images and ten captions, depth 4."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    keys = draw(
        st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(DIRECTIONS)), unique=True, max_size=6)
    )
    rankings = []
    for name, direction in keys:
        queries, items = (6, 10) if direction is Direction.I2T else (10, 6)
        chosen = np.sort(rng.permutation(queries)[: rng.integers(0, 4)]).astype(np.int64)
        ranked = np.array([rng.permutation(items)[:4] for _ in chosen], np.int64).reshape(-1, 4)
        similarity = -np.sort(-rng.random((len(chosen), 4)), axis=1).astype(np.float32)
        rankings.append(NamedRanking(name, direction, Ranking(chosen, ranked, similarity)))
    return rankings


def rows(rankings: list[NamedRanking], k: int) -> list[tuple[object, ...]]:
    """Every proposal, written out one by one."""
    return [
        (
            *((query, item) if one.direction is Direction.I2T else (item, query)),
            one.annotator,
            one.direction,
            rank,
            float(s),
        )
        for one in rankings
        for query, items, similarities in zip(
            one.ranking.query_ids, one.ranking.item_ids, one.ranking.similarities, strict=True
        )
        for rank, (item, s) in enumerate(zip(items[:k], similarities[:k], strict=True), start=1)
    ]


@settings(max_examples=80)
@given(rankings=named_rankings(), k=st.integers(1, 4))
def test_proposals_are_the_first_k_of_every_ranking_with_their_provenance(rankings, k):
    """One row for each (pair, annotator, direction), with its rank and similarity."""
    table = propose(rankings, k)

    found = [
        (*map(int, unpack_ids(pair)), who, DIRECTIONS[way], rank, similarity)
        for pair, who, way, rank, similarity in table.itertuples(index=False)
    ]
    assert found == rows(rankings, k)
    assert len(table) == len(found)


@settings(max_examples=80)
@given(rankings=named_rankings(), k=st.integers(1, 4))
def test_the_summary_counts_what_sets_count(rankings, k):
    """Proposed, unique, new, exclusive and overlap agree with naive sets, and new adds up to the distinct pairs."""
    summary = proposal_summary(propose(rankings, k))

    names = list(dict.fromkeys(one.annotator for one in rankings))
    proposed = {name: [row[:2] for row in rows(rankings, k) if row[2] == name] for name in names}
    for place, share in enumerate(summary.shares):
        mine = set(proposed[share.annotator])
        before = set().union(*(proposed[name] for name in names[:place]))
        others = set().union(*(proposed[name] for name in names if name != share.annotator))
        assert share.proposed == len(proposed[share.annotator])
        assert share.unique == len(mine)
        assert share.new == len(mine - before)
        assert share.exclusive == len(mine - others)
        assert share.overlap_share == pytest.approx(len(mine & others) / len(mine) if mine else 0.0)
    assert [share.annotator for share in summary.shares] == names
    assert sum(share.new for share in summary.shares) == summary.distinct
    assert summary.distinct == len({row[:2] for row in rows(rankings, k)})
    assert summary.proposed == len(rows(rankings, k))


@settings(max_examples=40)
@given(rankings=named_rankings())
def test_ranked_pairs_reach_the_full_depth(rankings):
    """Everything any ranking holds counts as ranked, proposed or not."""
    expected = sorted({Pair(int(row[0]), int(row[1])) for row in rows(rankings, 4)})

    assert unpack_pairs(ranked_pairs(rankings)) == expected


def test_known_positives_stay_among_the_candidates():
    """A caption's own image, ranked first, is proposed like any other pair."""
    ranking = Ranking(np.array([3]), np.array([[3, 8]]), np.array([[0.9, 0.1]], np.float32))

    table = propose([NamedRanking("a", Direction.I2T, ranking)], 1)

    assert unpack_pairs(table["pair"].to_numpy()) == [Pair(3, 3)]


def test_rankings_too_shallow_or_given_twice_are_refused():
    """The message names the annotator, its depth and what to change."""
    ranking = Ranking(np.array([0]), np.array([[1, 2]]), np.array([[1, 0]], np.float32))
    named = NamedRanking("pvse", Direction.I2T, ranking)

    with pytest.raises(
        ProposalError, match=r"^top-k is 3, but the i2t ranking of 'pvse' is 2 deep; raise --depth"
    ):
        propose([named], 3)
    with pytest.raises(ProposalError, match=r"^two i2t rankings of annotator 'pvse'; give one$"):
        propose([named, named], 1)
    with pytest.raises(ProposalError, match=r"^top-k is 0"):
        propose([named], 0)


PAIRS = st.lists(st.builds(Pair, st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1)), max_size=40)


@given(pairs=PAIRS, others=PAIRS)
def test_packed_pairs_are_pairs(pairs, others):
    """Packing keeps pairs, their order and membership, up to the largest id."""
    packed = pack_pairs(pairs)

    assert unpack_pairs(packed) == sorted(set(pairs))
    assert np.array_equal(pack_ids(*unpack_ids(packed)), packed)
    asked = sorted(set(pairs + others))
    assert contains(packed, pack_pairs(asked)).tolist() == [pair in set(pairs) for pair in asked]
    assert np.array_equal(distinct(np.concatenate([packed, packed])), packed)

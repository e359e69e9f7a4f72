"""Pools as ranks, and samples drawn from them: each pair once, every pair as likely, the same seed the same sample."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mitl.audits.pool import Pool, RemainderOf, draw
from mitl.core.arrays import pack_ids
from mitl.errors import AuditError
from mitl.records import AuditPurpose
from mitl.records.audits import AuditDesign, Stratum

IDS = st.lists(st.integers(0, 40), max_size=8, unique=True).map(lambda ids: np.array(sorted(ids), np.int64))
POOL = Pool(np.arange(3), np.arange(4), np.arange(10), np.arange(12))
"""3 × 12 and 10 × 4 pairs, of which 3 × 4 are the same: 64."""


def design_of(*strata, seed=1):
    return AuditDesign(AuditPurpose.RECALL, seed, tuple(Stratum(*stratum) for stratum in strata))


@given(IDS, IDS, IDS, IDS, st.sets(st.tuples(st.integers(0, 40), st.integers(0, 40))))
@settings(max_examples=150, derandomize=True)
def test_ranks_and_pairs_of_a_pool_are_one_to_one(image_queries, caption_queries, images, captions, apart):
    """The pairs of all ranks are the union of both directions but those apart, each once; `ranks` inverts that."""
    union = {(i, c) for i in image_queries for c in captions} | {
        (i, c) for i in images for c in caption_queries
    }
    packed = np.array([i << 32 | c for i, c in apart], np.int64)
    union -= apart
    if not union:
        with pytest.raises(AuditError, match="the pool holds no pair"):
            Pool(image_queries, caption_queries, images, captions, packed)
        return
    pool = Pool(image_queries, caption_queries, images, captions, packed)

    pairs = pool.nth(np.arange(pool.size))

    assert sorted(pairs.tolist()) == sorted(i << 32 | c for i, c in union)
    assert pool.ranks(pairs).tolist() == list(range(pool.size))
    assert pool.holds(pairs).all()
    assert not pool.holds(packed).any() and (pool.ranks(packed) == -1).all()


def test_a_pool_knows_what_it_does_not_hold():
    """Image 5 was not asked, nor was caption 9."""
    pairs = pack_ids(np.array([5, 5, 0, 11]), np.array([9, 3, 9, 3]))

    assert POOL.size == 64
    assert POOL.holds(pairs).tolist() == [False, True, True, False]
    assert (POOL.ranks(pairs) >= 0).tolist() == [False, True, True, False]


@pytest.mark.parametrize("images", [[2, 1], [1, 1]])
def test_ids_of_a_pool_that_are_not_ascending_and_distinct_are_refused(images):
    """Ranks would not be the same from one run to the next, or a pair would stand twice."""
    with pytest.raises(AuditError, match="images of a pool must be ascending"):
        Pool(np.arange(2), np.arange(2), np.array(images), np.arange(3))


@given(st.sets(st.integers(0, 63), max_size=63), st.integers(0, 2**32 - 1))
@settings(max_examples=50, derandomize=True)
def test_a_remainder_is_the_pool_without_what_is_listed(ranks, seed):
    """In whatever order the listed pairs come, and with others outside the pool among them."""
    listed = POOL.nth(np.array(sorted(ranks), np.int64))
    mixed = np.random.default_rng(seed).permutation(
        np.append(listed, pack_ids(np.array([99]), np.array([99])))
    )
    rest = RemainderOf(POOL, mixed)

    pairs = rest.nth(np.arange(rest.size))

    assert sorted([*pairs.tolist(), *listed.tolist()]) == sorted(POOL.nth(np.arange(64)).tolist())


def test_a_pool_of_millions_is_never_listed():
    """38 million pairs: the sample of the remainder is in the pool, distinct, and not listed."""
    pool = Pool(np.arange(1300), np.arange(1300), np.arange(5000), np.arange(25000))
    listed = pool.nth(np.arange(0, pool.size, 500))
    rest = RemainderOf(pool, listed)
    design = design_of(("listed", len(listed), 100, 0.1, 0.01), ("remainder", rest.size, 2000, 0.1, 1e-5))

    drawn = draw(design, [listed, rest])

    others = drawn["pair"].to_numpy()[drawn["stratum"] == 1]
    assert pool.size > 37_000_000
    assert len(np.unique(others)) == 2000 and pool.holds(others).all() and not np.isin(others, listed).any()


LISTED = POOL.nth(np.arange(20))
DESIGN = design_of(("likely", 20, 5, 1.0, 0.3), ("remainder", 44, 10, 0.2, 0.01))


def test_the_same_seed_draws_the_same_sample():
    """Another seed draws another one; members in the same order belong to the seed."""
    members = [LISTED, RemainderOf(POOL, LISTED)]

    once, again, other = (
        draw(design, members)["pair"].tolist() for design in (DESIGN, DESIGN, replace(DESIGN, seed=2))
    )

    assert once == again != other


def test_a_pool_that_gained_what_a_sample_found_is_sampled_anew():
    """By the same seed too: what was drawn before holds no missing match any more."""
    pool = Pool(np.arange(200), np.arange(0), np.arange(200), np.arange(500))

    def sampled(held):
        rest = RemainderOf(pool, held)
        design = design_of(("positives", len(held), 1, 0.0, 0.9), ("rest", rest.size, 500, 0.0, 0.001))
        drawn = draw(design, (held, rest), positives=held)
        return drawn.loc[drawn["stratum"] == 1, "pair"].to_numpy()

    held = pool.nth(np.arange(0, pool.size, 9973))
    before = sampled(held)
    for more in (np.append(held, before[:2]), np.append(held[2:], before[:2])):
        again = sampled(np.sort(more))

        assert np.isin(again, before).mean() < 0.05


def test_a_sample_knows_its_chances():
    """Places rise from 1 over all strata mixed; inclusion is sample over size; what was known gets three answers."""
    drawn = draw(DESIGN, [LISTED, RemainderOf(POOL, LISTED)], positives=np.sort(POOL.nth(np.arange(64))[::2]))

    assert drawn["place"].tolist() == list(range(1, 16))
    assert drawn.groupby("stratum")["pair"].nunique().tolist() == [5, 10]
    assert drawn.groupby("stratum")["inclusion"].unique().tolist() == [[5 / 20], [10 / 44]]
    assert drawn["stratum"].tolist() != sorted(drawn["stratum"])
    assert drawn["recheck"][drawn["stratum"] == 0].all()
    assert drawn["recheck"][drawn["known"]].all() and 0 < drawn["known"].sum() < 15


def test_every_pair_is_drawn_as_often():
    """Over 300 seeds each of the remainder's 44 pairs comes in 10 of 44 samples, within five deviations."""
    rest = RemainderOf(POOL, LISTED)
    design = design_of(("remainder", 44, 10, 0.1, 0.01))
    draws = [draw(replace(design, seed=seed), [rest])["pair"].to_numpy() for seed in range(300)]

    pairs, times = np.unique(np.concatenate(draws), return_counts=True)

    assert len(pairs) == 44
    assert np.abs(times - 300 * 10 / 44).max() < 5 * np.sqrt(300 * 10 / 44 * 34 / 44)


@pytest.mark.parametrize(
    ("strata", "message"),
    [
        ([("likely", 20, 0, 1.0, 0.3)], "stratum 'likely' holds 20 pairs and none of them is drawn"),
        ([("likely", 20, 21, 1.0, 0.3)], "21 pairs are to be drawn from stratum 'likely', but it holds 20"),
        ([("likely", 19, 5, 1.0, 0.3)], "was designed with 19 pairs and holds 20"),
        ([("likely", 0, 0, 1.0, 0.3)], "the design draws no pair"),
    ],
)
def test_a_design_that_cannot_be_drawn_is_refused(strata, message):
    """One line says what is wrong."""
    with pytest.raises(AuditError, match=message):
        draw(design_of(*strata), [LISTED])

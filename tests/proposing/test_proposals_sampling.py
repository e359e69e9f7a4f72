"""Sampling of queries: seeded, the same everywhere, ascending."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitl.errors import ProposalError
from mitl.proposals.sampling import draw_below, sample, shuffled

IDS = st.lists(st.integers(0, 10**9), max_size=60)


@given(ids=IDS, seed=st.integers(0, 2**63), data=st.data())
def test_a_sample_is_ascending_distinct_and_drawn_from_the_ids(ids, seed, data):
    """Exactly n distinct ids, ascending, whatever the order they were given in."""
    n = data.draw(st.integers(0, len(set(ids))))

    drawn = sample(ids, n, seed, "queries")

    assert drawn == sorted(set(drawn))
    assert len(drawn) == n
    assert set(drawn) <= set(ids)
    assert drawn == sample(list(reversed(ids)), n, seed, "queries")


@given(ids=IDS, seed=st.integers(0, 1000), data=st.data())
def test_a_smaller_sample_is_part_of_a_larger_one(ids, seed, data):
    """Raising the number of queries keeps the ones already asked."""
    n = data.draw(st.integers(0, len(set(ids))))
    m = data.draw(st.integers(0, n))

    assert set(sample(ids, m, seed, "queries")) <= set(sample(ids, n, seed, "queries"))


def test_no_number_means_all():
    """Without a number every id is a query."""
    assert sample([3, 1, 2, 3], None, 0, "queries") == [1, 2, 3]


def test_the_draw_is_fixed_for_all_time():
    """The ids with the least BLAKE2b keys, on every platform; another method would change published samples."""
    drawn = sample(range(1000), 8, 0, "image queries")

    names = [f"0\x1fimage queries\x1f{one}".encode() for one in range(1000)]
    keys = [hashlib.blake2b(name, digest_size=16).hexdigest() for name in names]
    assert drawn == sorted(sorted(range(1000), key=keys.__getitem__)[:8])
    assert drawn[:2] == [28, 47]


def test_streams_and_seeds_draw_differently():
    """Another seed or another stream is another sample."""
    draws = [
        sample(range(500), 50, *key)
        for key in ((0, "image queries"), (1, "image queries"), (0, "caption queries"))
    ]

    assert len({tuple(draw) for draw in draws}) == 3


def test_every_id_is_drawn_about_equally_often():
    """Over 400 seeds each of 20 ids is drawn about 100 of 400 times (five standard deviations)."""
    counts = dict.fromkeys(range(20), 0)
    for seed in range(400):
        for drawn in sample(range(20), 5, seed, "queries"):
            counts[drawn] += 1

    assert all(abs(count - 100) < 5 * (400 * 0.25 * 0.75) ** 0.5 for count in counts.values())


@pytest.mark.parametrize(
    ("n", "message"),
    [(7, "^cannot sample 7 of 5 image queries; ask for 5 at most$"), (-1, "^cannot sample -1 image queries")],
)
def test_a_number_that_cannot_be_drawn_is_refused(n, message):
    """Too many or fewer than none: one line that names both numbers."""
    with pytest.raises(ProposalError, match=message):
        sample(range(5), n, 0, "image queries")


@given(things=st.sets(st.text(max_size=4), max_size=30), seed=st.integers(0, 99))
def test_shuffling_loses_nothing_and_forgets_the_order_given(things, seed):
    """A shuffle is a permutation that depends on the things and the seed alone."""
    mixed = shuffled(things, seed, "s")

    assert sorted(mixed) == sorted(things)
    assert mixed == shuffled(sorted(things), seed, "s")


@given(limit=st.integers(1, 10**12), seed=st.integers(0, 99), attempt=st.integers(0, 99))
def test_a_draw_below_a_limit_stays_below(limit, seed, attempt):
    """Draws are from 0 to the limit, exclusive."""
    assert 0 <= draw_below(limit, seed, "s", attempt) < limit

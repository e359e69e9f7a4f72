"""Gold controls: known answers, drawn without replacement, never a pair that may be otherwise."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mitl.core.arrays import pack_pairs
from mitl.errors import ProposalError
from mitl.proposals.sampling import gold_negatives, gold_positives
from mitl.records import Pair

SMALL = st.builds(Pair, st.integers(0, 5), st.integers(0, 12))
NONE = np.empty(0, np.int64)


@given(
    originals=st.lists(SMALL, max_size=30),
    excluded=st.sets(SMALL, max_size=10),
    ratings=st.dictionaries(SMALL, st.sampled_from([0.0, 2.9, 3.0, 4.4, 4.5, 5.0]), max_size=20),
    seed=st.integers(0, 99),
)
def test_gold_positives_are_distinct_trusted_originals(originals, excluded, ratings, seed):
    """Never one excluded or contradicted; the sure ones first; all there are."""
    usable = {p for p in originals if p not in excluded and ratings.get(p, 5.0) >= 3.0}
    if originals and not usable:
        with pytest.raises(ProposalError, match="may be a gold positive"):
            gold_positives(originals, excluded=excluded, ratings=ratings, seed=seed)
        return

    golds = gold_positives(originals, excluded=excluded, ratings=ratings, seed=seed)

    assert len(golds) == len(usable)
    assert set(golds) == usable
    sure = {p for p in usable if ratings.get(p, 0.0) >= 4.5}
    assert set(golds[: len(sure)]) == sure
    turned = gold_positives(originals[::-1], excluded=excluded, ratings=ratings, seed=seed)
    assert turned == golds


def test_gold_positives_take_each_image_once_before_any_twice():
    """Five captions an image, as many golds as images: all images differ."""
    originals = [Pair(image, 5 * image + k) for image in range(40) for k in range(5)]

    golds = gold_positives(originals, ratings={}, seed=3)[:40]

    assert len({gold.image_id for gold in golds}) == 40


def test_another_seed_draws_other_golds():
    """Golds depend on the seed, and on nothing else."""
    originals = [Pair(image, image) for image in range(100)]

    draws = [gold_positives(originals, ratings={}, seed=seed)[:10] for seed in (0, 1, 0)]

    assert draws[0] == draws[2] != draws[1]


@settings(max_examples=60)
@given(
    queries=st.tuples(st.sets(st.integers(0, 5), max_size=4), st.sets(st.integers(0, 12), max_size=6)),
    ranked=st.sets(SMALL, max_size=60),
    positives=st.sets(SMALL, max_size=12),
    n=st.integers(1, 80),
    seed=st.integers(0, 99),
)
def test_gold_negatives_are_outside_every_ranking_and_every_positive(queries, ranked, positives, n, seed):
    """Distinct query x gallery pairs in neither set; all that are left if fewer than asked for."""
    images, captions = range(6), range(13)
    space = {Pair(i, c) for i, c in product(images, captions) if i in queries[0] or c in queries[1]}
    left = space - ranked - positives
    call = {
        "queries": (sorted(queries[0]), sorted(queries[1])),
        "gallery": (images, captions),
        "ranked": pack_pairs(ranked),
        "known_positives": pack_pairs(positives),
        "n": n,
        "seed": seed,
    }
    if not left:
        with pytest.raises(ProposalError, match="so none is a gold negative"):
            gold_negatives(**call)
        return

    golds = gold_negatives(**call)

    assert len(golds) == len(set(golds)) == min(n, len(left))
    assert set(golds) <= left
    assert golds == gold_negatives(**call)


def test_gold_negatives_are_spread_over_the_whole_space():
    """Both directions are drawn, in the proportion of their pairs, and images evenly."""
    golds = gold_negatives(
        (range(100), range(0, 1000, 5)),
        (range(200), range(1000)),
        ranked=NONE,
        known_positives=NONE,
        n=2000,
        seed=0,
    )

    from_image_query = sum(gold.image_id < 100 for gold in golds) / len(golds)
    # Union of 100 x 1000 and 200 x 200 pairs: (100,000 + half of 40,000) of 140,000 draws.
    assert from_image_query == pytest.approx(120 / 140, abs=0.04)
    assert len({gold.image_id for gold in golds}) > 190


def test_no_golds_asked_for_are_no_golds():
    """A number of zero is not an error, whatever there is."""
    assert gold_positives([], ratings={}, seed=0) == []
    assert gold_negatives(([], []), ([], []), ranked=NONE, known_positives=NONE, n=0, seed=0) == []

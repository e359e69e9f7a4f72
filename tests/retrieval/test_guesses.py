"""Guessed floors: the same bytes however items are ordered, little searched again where chance rules."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from scipy.stats import binom
from topk_kit import Vectors, encoded, full_sort, same_bytes

from annotators.base import Encoded, Ranking
from mitl.retrieval import topk
from mitl.retrieval.guesses import Guesses, likely_rank
from mitl.retrieval.search import Search
from mitl.retrieval.topk import top_k_both


@functools.cache
def sides(ordered: bool) -> tuple[Encoded, Encoded, Ranking, Ranking]:
    """Images and captions with their rankings both ways; ordered, all captions like the first images best."""
    images, captions = (np.random.default_rng(n).standard_normal((n, 16), np.float32) for n in (1040, 1060))
    if ordered:
        captions = captions[0] + captions / 10
        images = images[np.argsort(images @ -captions[0])]
    left = encoded(images)
    right = encoded(captions, "caption")
    return left, right, full_sort(left, right, 5), full_sort(right, left, 25)


@pytest.mark.parametrize("backend", ["numpy", "int16", "int8"])
@pytest.mark.parametrize("ordered", [False, True])
def test_however_images_are_ordered_captions_find_their_best(ordered, backend, monkeypatch):
    """Where images that all captions like come first, every guess is too high, and all is searched again."""
    again: list[int] = []

    def counted(search, *words, once_more=Search._once_more):
        again.append(len(words[3]))
        once_more(search, *words)

    monkeypatch.setattr(Search, "_once_more", counted)
    monkeypatch.setattr(topk, "count", lambda: 1)  # another thread's tile may come before the guess
    left, right, expected, expected_back = sides(ordered)
    there, back = top_k_both(Vectors(), left, right, 5, 25, backend=backend, block_bytes=1 << 23)

    assert same_bytes(there, expected)
    assert same_bytes(back, expected_back)
    [count] = again
    few = 0.01 * len(right)
    assert count > few if ordered else count <= few


def test_where_guesses_fail_no_more_are_made():
    """One in a hundred finished searches is the limit; before any is finished, chance is trusted."""
    guesses = Guesses(10_000)
    assert guesses.rank(25, 1000) == likely_rank(25, 0.1) < 25
    guesses.check(200, np.array([7, 3]))
    assert guesses.rank(25, 1000) == likely_rank(25, 0.1)
    guesses.check(100, np.array([205, 201]))
    assert guesses.rank(25, 1000) == 0
    assert guesses.missed.tolist() == [3, 7, 201, 205]


def test_nothing_is_guessed_when_all_have_been_seen():
    """What is known needs no guess."""
    assert Guesses(1000).rank(25, 1000) == 0


@pytest.mark.parametrize("k", [1, 2, 5, 25, 400, 5000])
@pytest.mark.parametrize("share", [1e-6, 0.01, 1 / 3, 0.9, 0.999999])
def test_the_rank_is_that_of_the_binomial_tail(k, share):
    """As many of the k - 1 best of all are in the share with a chance of a thousandth at most; one fewer, with more."""
    rank = likely_rank(k, share)

    assert 1 <= rank <= k
    assert rank == k or binom.sf(rank - 1, k - 1, share) <= 1e-3 * (1 + 1e-9)
    assert rank == 1 or binom.sf(rank - 2, k - 1, share) > 1e-3 * (1 - 1e-9)

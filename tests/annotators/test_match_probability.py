"""The match probability as a product is the one of explicit differences; its shortlist is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from annotators import match_probability, match_shortlist
from annotators.match_probability import Odds, SampleSet, probabilities_of_one, squared_lengths
from annotators.match_shortlist import ShortlistSearch, shortlist
from mitl.errors import AnnotatorError

Floats = np.ndarray


def match_probabilities(left: Floats, right: Floats, scale: float, shift: float, **how: Any) -> Floats:
    """Of arrays of samples."""
    sides = SampleSet.of(left), SampleSet.of(right)
    return match_probability.match_probabilities(*sides, Odds(shift, scale), **how)


def closed_form_probabilities(*given: Any) -> Floats:
    """Of the means and spreads of both sides, scale and shift."""
    *sides, scale, shift = given
    return match_probability.closed_form_probabilities(*sides, Odds(shift, scale))


def explicit(left: Floats, right: Floats, scale: float, shift: float) -> Floats:
    """The definition: differences of all pairs of samples in float64, sigmoid of twice the logit, mean."""
    a, b = left.astype(np.float64), right.astype(np.float64)
    d = np.sqrt(((a[:, None, :, None] - b[None, :, None]) ** 2).sum(-1) + 1e-6)
    with np.errstate(over="ignore"):
        return (1 / (1 + np.exp(-2 * (shift - scale * d)))).mean((2, 3))


def within_float32(left: Floats, right: Floats, scale: float, shift: float) -> Floats:
    """How far rounding |a|^2 + |b|^2 - 2 ab, its root and the logit a few times each may move a probability."""
    a, b = left.astype(np.float64)[:, None, :, None], right.astype(np.float64)[None, :, None]
    d = np.sqrt(((a - b) ** 2).sum(-1) + 1e-6)
    p = 1 / (1 + np.exp(-2 * (shift - scale * d)))
    of_distance = 8 * ((a**2).sum(-1) + (b**2).sum(-1)) / (2 * d)
    logit = 2.0**-24 * (scale * of_distance + 4 * (scale * d + abs(shift)))
    return (2 * p * (1 - p) * logit).mean((2, 3)) + 3e-7


def samples(count: int, width: int, seed: int, *, size: int = 7, sigma: float = 0.02) -> Floats:
    """Samples around unit means that crowd about a few places, each item with a spread of its own."""
    rng = np.random.default_rng(seed)
    places = np.random.default_rng(99).normal(size=(10, width))
    mean = places[rng.integers(0, 10, count)] + 0.3 * rng.normal(size=(count, width))
    mean /= np.linalg.norm(mean, axis=1, keepdims=True)
    spread = sigma * np.exp(0.5 * rng.normal(size=(count, 1, 1)))
    return (mean[:, None] + spread * rng.normal(size=(count, size, width))).astype(np.float32)


@settings(max_examples=40)
@given(
    q=st.integers(1, 5),
    g=st.integers(1, 9),
    width=st.integers(1, 40),
    sizes=st.tuples(st.integers(1, 8), st.integers(1, 8)),
    scale=st.floats(0.1, 20),
    shift=st.floats(-5, 20),
    sigma=st.floats(0.001, 0.5),
)
def test_the_product_form_is_the_definition(q, g, width, sizes, scale, shift, sigma):
    """Any shapes, numbers of samples, odds and spreads: as near as inner products in float32 allow."""
    left = samples(q, width, 1, size=sizes[0], sigma=sigma)
    right = samples(g, width, 2, size=sizes[1], sigma=sigma)

    found = match_probabilities(left, right, scale, shift)

    assert found.dtype == np.float32
    assert found.shape == (q, g)
    error = np.abs(found - explicit(left, right, scale, shift))
    assert (error <= within_float32(left, right, scale, shift)).all()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    apart=st.lists(st.sampled_from([0.0, 1e-7, 1e-4, 1e-2, 0.1, 0.3, 1.0]), min_size=6, max_size=6),
    width=st.sampled_from([3, 64, 1024]),
    scale=st.floats(0.1, 20),
    shift=st.floats(-1, 16),
)
def test_samples_that_coincide_or_nearly_do_are_as_exact_as_others(seed, apart, width, scale, shift):
    """Where rounding |a|^2 + |b|^2 - 2 ab would leave nothing of a distance: 1e-5 on every path, at any odds."""
    left = samples(2, width, seed % 97, size=3)
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(6, 3, width)) * np.array(apart)[:, None, None] / width**0.5
    right = (left[rng.integers(0, 2, 6)][:, ::-1] + steps).astype(np.float32)
    squares = squared_lengths(left), squared_lengths(right)
    on_device = np.empty((2, 6), np.float32)

    on_cpu = match_probabilities(left, right, scale, shift, threads=1)
    match_probability._fill_on_device(
        torch.device("cpu"), on_device, SampleSet.of(left), SampleSet.of(right), Odds(shift, scale)
    )
    one = probabilities_of_one(left[0], squares[0][0], right, squares[1], Odds(shift, scale))

    expected = explicit(left, right, scale, shift)
    for found in (on_cpu, on_device):
        assert np.abs(found - expected).max() < 1e-5
    assert np.abs(one - expected[0]).max() < 1e-5


def test_at_the_paper_s_size_it_keeps_the_order():
    """Seven samples of 1024 numbers at scale and shift 15: equal to 1e-6, in the same order beyond 1e-5."""
    left, right = samples(8, 1024, 1, sigma=0.004), samples(60, 1024, 2, sigma=0.004)

    found, expected = match_probabilities(left, right, 15, 15), explicit(left, right, 15, 15)

    assert np.abs(found - expected).max() < 1e-6
    assert expected.std() > 0.05
    order = np.argsort(-expected, axis=1)
    falling = np.take_along_axis(expected, order, 1)
    clear = falling[:, :-1] - falling[:, 1:] > 1e-5
    assert (np.diff(np.take_along_axis(found, order, 1), axis=1)[clear] < 0).all()


@pytest.mark.parametrize(("rows", "piece"), [(1, 1), (3, 50), (64, 1 << 15)])
def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch, rows: int, piece: int):
    """The shape of blocks, threads and what else is compared leave every probability as it is, to 1e-6."""
    left, right = samples(6, 32, 1), samples(15, 32, 2)
    whole = match_probabilities(left, right, 15, 15)
    monkeypatch.setattr(match_probability, "_ROWS", rows)
    monkeypatch.setattr(match_probability, "_PIECE", piece)

    for threads in (1, 3):
        found = match_probabilities(left, right, 15, 15, threads=threads)
        assert np.abs(found - whole).max() < 1e-6
    part = match_probabilities(left[2:5], right[7:11], 15, 15)
    assert np.abs(part - whole[2:5, 7:11]).max() < 1e-6


def test_both_ways_round_are_alike():
    """Queries and gallery may change places."""
    left, right = samples(20, 32, 1), samples(50, 32, 2)

    found = match_probabilities(right, left, 15, 15)

    assert np.abs(found.T - match_probabilities(left, right, 15, 15)).max() < 1e-6


def test_extreme_distances_neither_overflow_nor_pass_the_ends():
    """Equal samples match with 1 and far ones with 0, where exponentials of the logits would overflow float32."""
    near = np.ones((2, 7, 16), np.float32)
    far = np.full((3, 7, 16), 500, np.float32)

    found = match_probabilities(near, np.concatenate([near, far]), 15, 15)

    assert found.max() == 1
    assert np.array_equal(found[:, :2], np.ones((2, 2), np.float32))
    assert np.array_equal(found[:, 2:], np.zeros((2, 3), np.float32))


def test_small_probabilities_keep_their_order():
    """Far below float32's resolution of 1 they are still told apart."""
    left = np.zeros((1, 1, 4), np.float32)
    right = np.zeros((3, 1, 4), np.float32)
    right[:, 0, 0] = 2.0, 2.01, 2.02

    found = match_probabilities(left, right, 15, 15)[0]

    assert found == pytest.approx(explicit(left, right, 15, 15)[0], rel=1e-3)
    assert found[0] < 1e-12
    assert (np.diff(found) < 0).all()


def test_memory_maps_other_floats_and_a_given_output_are_taken(tmp_path: Path):
    """Arrays may lie in files, in float16 or float64; ``out`` is filled and given back."""
    left, right = samples(5, 16, 1), samples(9, 16, 2)
    expected = match_probabilities(left, right, 15, 15)
    np.save(tmp_path / "right.npy", right)
    mapped = np.load(tmp_path / "right.npy", mmap_mode="r")
    out = np.empty((5, 9), np.float32)

    found = match_probabilities(left, mapped, 15, 15, out=out)

    assert found is out
    assert np.array_equal(out, expected)
    assert match_probabilities(left.astype(np.float64), right, 15, 15) == pytest.approx(expected, abs=1e-6)
    assert match_probabilities(left, right.astype(np.float16), 15, 15) == pytest.approx(expected, abs=0.02)


def test_one_query_with_a_few_items_is_the_same():
    """What a shortlist is scored with agrees with the whole block."""
    left, right = samples(3, 32, 1, size=5), samples(11, 32, 2)
    squares = squared_lengths(left), squared_lengths(right)

    found = [probabilities_of_one(left[q], squares[0][q], right, squares[1], Odds(15, 15)) for q in range(3)]

    assert np.abs(np.stack(found) - match_probabilities(left, right, 15, 15)).max() < 1e-6


@pytest.mark.parametrize(
    ("left", "right", "line"),
    [
        (np.zeros((2, 7, 4), np.float32), np.zeros((2, 7, 5), np.float32), "4 wide on one side and 5"),
        (np.zeros((2, 4), np.float32), np.zeros((2, 7, 4), np.float32), r"samples are float32 \(2, 4\)"),
        (np.zeros((2, 7, 4), np.int64), np.zeros((2, 7, 4), np.float32), "samples are int64"),
    ],
)
def test_arrays_that_are_no_samples_are_refused(left: Floats, right: Floats, line: str):
    """Another shape, type or width is one clear line."""
    with pytest.raises(AnnotatorError, match=line):
        match_probabilities(left, right, 15, 15)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
def test_a_gpu_gives_the_same_probabilities(monkeypatch: pytest.MonkeyPatch):
    """The product of torch on CUDA, in several blocks, agrees with the CPU's."""
    left, right = samples(40, 1024, 1), samples(90, 1024, 2)
    monkeypatch.setattr(match_probability, "_DEVICE_NUMBERS", 7 * 500)

    found = match_probabilities(left, right, 15, 15, device=torch.device("cuda"))

    assert np.abs(found - match_probabilities(left, right, 15, 15)).max() < 1e-6


def test_the_path_of_other_devices_runs_on_the_cpu_too(monkeypatch: pytest.MonkeyPatch):
    """What a GPU would do, done by torch on the CPU: blocks and their seams are right."""
    left, right = samples(40, 64, 1), samples(90, 64, 2)
    monkeypatch.setattr(match_probability, "_DEVICE_NUMBERS", 7 * 500)
    found = np.empty((40, 90), np.float32)

    match_probability._fill_on_device(
        torch.device("cpu"), found, SampleSet.of(left), SampleSet.of(right), Odds(15, 15)
    )

    assert np.abs(found - match_probabilities(left, right, 15, 15)).max() < 1e-6


def test_the_closed_form_is_the_probability_at_the_expected_distance():
    """Its distance is the mean over many samples; it is not the mean of their probabilities."""
    rng = np.random.default_rng(0)
    mean = rng.normal(size=(2, 3, 8))
    sigma = np.exp(rng.normal(-1, 0.3, size=(2, 3, 8)))
    drawn = mean[:, :, None] + sigma[:, :, None] * rng.normal(size=(2, 3, 4000, 8))
    squared = ((drawn[0][:, None] - drawn[1][None]) ** 2).sum(-1).mean(-1)

    spread = (sigma**2).sum(-1).astype(np.float32)
    found = closed_form_probabilities(
        mean[0].astype(np.float32), spread[0], mean[1].astype(np.float32), spread[1], 1.5, 5
    )

    assert found.dtype == np.float32
    assert found == pytest.approx(1 / (1 + np.exp(-2 * (5 - 1.5 * np.sqrt(squared + 1e-6)))), abs=0.02)


def test_the_closed_form_does_not_depend_on_its_block():
    """A part of the gallery gives the same bits."""
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(5, 64)).astype(np.float32), rng.normal(size=(40, 64)).astype(np.float32)
    spreads = np.ones(5, np.float32), np.linspace(0, 1, 40, dtype=np.float32)

    whole = closed_form_probabilities(left, spreads[0], right, spreads[1], 0.7, 8)
    part = closed_form_probabilities(left[2:3], spreads[0][2:3], right[7:9], spreads[1][7:9], 0.7, 8)

    assert np.array_equal(part, whole[2:3, 7:9])


@pytest.mark.parametrize("block_bytes", [1, 5000, 1 << 26])
@pytest.mark.parametrize("count", [1, 7, 60, 200])
def test_a_shortlist_has_the_smallest_mean_squared_distances(count: int, block_bytes: int):
    """Whatever the blocks: the items with the smallest mean over all pairs of samples, positions rising."""
    left, right = samples(6, 16, 1), samples(60, 16, 2)

    found = shortlist(SampleSet.of(left), SampleSet.of(right), count, block_bytes=block_bytes)

    squared = ((left[:, None, :, None].astype(np.float64) - right[None, :, None]) ** 2).sum(-1).mean((2, 3))
    expected = np.sort(np.argsort(squared, axis=1)[:, : min(count, 60)], axis=1)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_shortlist_that_is_long_enough_gives_the_exact_ranking(dtype: type):
    """Best first, equal ones by position, as a ranking of everything."""
    left, right = samples(9, 32, 1), samples(80, 32, 2)
    right[41] = right[3]

    sides = SampleSet.of(left.astype(dtype)), SampleSet.of(right.astype(dtype))
    positions, probabilities = ShortlistSearch(*sides, 10, Odds(15, 15)).exact(40, threads=2)

    exact = match_probabilities(left, right, 15, 15)
    order = np.argsort(-exact, axis=1, kind="stable")[:, :10]
    expected = np.take_along_axis(exact, order, 1)
    assert np.abs(probabilities - expected).max() < 1e-6
    assert (np.diff(probabilities, axis=1) <= 0).all()
    gaps = np.minimum(np.diff(-expected, prepend=-2, axis=1), np.diff(-expected, append=2, axis=1))
    assert np.array_equal(positions[gaps > 1e-5], order[gaps > 1e-5])


def test_a_shortlist_is_doubled_until_it_holds_enough():
    """Where the closed form ranks badly, the list grows; the recall that is reported is the one counted by hand."""
    left, right = samples(30, 6, 1, sigma=0.3), samples(400, 6, 2, sigma=0.3)
    a, b = SampleSet.of(left), SampleSet.of(right)
    exact = np.argsort(-match_probabilities(left, right, 15, 3), axis=1, kind="stable")[:, :5]

    def recall(count: int) -> float:
        places = shortlist(a, b, count)
        return float(np.mean([np.isin(top, place).mean() for top, place in zip(exact, places, strict=True)]))

    found = ShortlistSearch(a, b, 5, Odds(3, 15)).measured(count=6, recall=0.99, queries=30)

    assert recall(6) < 0.9
    assert found.count in {6 * 2**n for n in range(1, 7)}
    assert found.recall == pytest.approx(recall(found.count))
    assert found.recall >= 0.99 > recall(found.count // 2)
    assert str(found) == (
        f"a shortlist of {found.count} holds {found.recall:.4f} of the exact top 5 of 30 queries"
    )


def test_a_shortlist_of_everything_needs_no_doubling():
    """With no more items than the list is long, it holds all; with fewer places than k, it starts at k."""
    a, b = SampleSet.of(samples(4, 8, 1)), SampleSet.of(samples(30, 8, 2))

    assert ShortlistSearch(a, b, 5, Odds(15, 15)).measured(count=100).count == 30
    assert ShortlistSearch(a, b, 25, Odds(15, 15)).measured(count=2).count >= 25
    assert ShortlistSearch(a, b, 25, Odds(15, 15)).measured(count=100).recall == 1


def test_the_sample_of_queries_belongs_to_the_seed():
    """The same seed measures the same queries."""
    a, b = SampleSet.of(samples(50, 8, 1, sigma=0.3)), SampleSet.of(samples(200, 8, 2, sigma=0.3))

    found = [
        ShortlistSearch(a, b, 5, Odds(3, 15)).measured(count=5, recall=0.5, queries=5, seed=s)
        for s in (1, 1, 2)
    ]

    assert found[0] == found[1]
    assert found[0].queries == 5
    assert found[0] != found[2]


def test_progress_counts_the_queries(monkeypatch: pytest.MonkeyPatch):
    """A long search says how far it is, a block of queries at a time."""
    monkeypatch.setattr(match_shortlist, "_QUERIES", 4)
    advanced: list[int] = []

    class Bar:
        def __init__(self, label: str, total: int) -> None:
            self.total = total

        def __enter__(self):
            return advanced.append

        def __exit__(self, *_: object) -> None:
            pass

    sides = SampleSet.of(samples(9, 8, 1)), SampleSet.of(samples(30, 8, 2))
    ShortlistSearch(*sides, 3, Odds(15, 15)).exact(progress=Bar)

    assert advanced == [4, 4, 1]

"""Krippendorff's alpha: published worked examples, the package of that name, and where there is none."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from aggregation_kit import answers, as_table, count_alpha
from hypothesis import given
from hypothesis import strategies as st

from mitl.judgements.agreement import FEWEST_UNITS, Alpha, Scale, table_alpha
from mitl.judgements.answer_table import UNKNOWN, answer_table

X = np.nan
CANONICAL = np.array(
    [
        [X, X, X, X, X, 3, 4, 1, 2, 1, 1, 3, 3, X, 3],
        [1, X, 2, 1, 3, 3, 4, 3, X, X, X, X, X, X, X],
        [X, X, 2, 1, 3, 4, 4, X, 2, 1, 1, 3, 3, X, 4],
    ]
)
"""Three coders, fifteen units (Wikipedia's worked example: .691 nominal, .811 interval)."""
MANUAL = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, X, X, X],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, X, 3],
        [X, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, X],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, X],
    ]
)
"""Four observers, twelve units (Krippendorff 2011, C: .743 nominal, .815 ordinal, .849 interval)."""


def _counts(coders):
    values = np.unique(coders[~np.isnan(coders)])
    return (coders[:, :, None] == values).sum(axis=0)


@pytest.mark.parametrize(
    ("coders", "expected"),
    [
        # Of the package krippendorff 0.9.0: krippendorff.alpha(coders, level_of_measurement=...)
        (CANONICAL, (0.691358024691358, 0.8067214199413153, 0.8108448928121059)),
        (MANUAL, (0.743421052631579, 0.8153875037548814, 0.8491071428571428)),
    ],
)
def test_published_examples_come_out(coders, expected):
    """Nominal, ordinal and interval."""
    for scale, value in zip(Scale, expected, strict=True):
        assert count_alpha(_counts(coders), scale, replicates=10).alpha == pytest.approx(value, abs=1e-12)


@pytest.mark.shared
def test_the_experts_of_flickr8k_agree_as_the_package_says(shared_data):
    """Four levels, three raters, 5,822 pairs; values of krippendorff 0.9.0."""
    path = shared_data / "flickr8k_human_judgements" / "ExpertAnnotations.txt.gz"
    with gzip.open(path, "rt") as file:
        rows = np.array([line.split("\t")[2:] for line in file], dtype=np.int64)
    counts = (rows[:, :, None] == np.arange(1, 5)).sum(axis=1)

    expected = (0.5167602266278493, 0.6938946549025178, 0.7884890489503077)
    for scale, value in zip(Scale, expected, strict=True):
        found = count_alpha(counts, scale)
        assert found.alpha == pytest.approx(value, abs=1e-12)
        assert found.low < value < found.high
        assert found.high - found.low < 0.04
        assert (found.units, found.answers) == (5822, 17466)


@given(answers(max_rows=60))
def test_a_table_agrees_with_its_counts(rows):
    """One answer of each worker on each item, in the order given."""
    table = as_table(rows)
    counts = np.zeros((table.n_items, 4), dtype=np.int64)
    seen = set()
    for item, worker, label in rows:
        if (item, worker) not in seen:
            counts[item, label] += 1
        seen.add((item, worker))

    assert table_alpha(table, replicates=20) == count_alpha(counts, replicates=20)


@given(answers(max_rows=60), st.sampled_from(Scale), st.randoms(use_true_random=False))
def test_alpha_is_at_most_one_and_blind_to_names(rows, scale, random):
    """Renaming workers and reordering items changes nothing; an interval holds its estimate's bounds in order."""
    found = table_alpha(as_table(rows), scale, replicates=50)
    names, places = list(range(6)), list(range(8))
    random.shuffle(names)
    random.shuffle(places)
    order = {item: new for new, item in enumerate(sorted({r[0] for r in rows}, key=places.__getitem__))}
    again = table_alpha(as_table([(order[i], names[w], k) for i, w, k in rows]), scale, replicates=50)

    assert found == again
    if found.alpha is None:
        assert found.reason
    else:
        assert found.alpha <= 1 + 1e-12
        assert not found.reason
    if found.low is not None:
        assert found.low <= found.high <= 1 + 1e-12


@given(answers(max_rows=30, n_labels=2))
def test_two_labels_make_all_scales_one(rows):
    """With two values every distance is the same up to a factor."""
    table = as_table(rows, n_labels=2)
    found = [table_alpha(table, scale, replicates=1).alpha for scale in Scale]

    assert found[0] is None or found == pytest.approx([found[0]] * 3)


def test_perfect_and_random_answers_give_one_and_about_zero():
    """The two fixed points of the scale."""
    rng = np.random.default_rng(0)
    item, worker = np.repeat(np.arange(2000), 3), np.tile(np.arange(3), 2000)
    perfect = table_alpha(answer_table(item, worker, np.repeat(rng.integers(4, size=2000), 3)))
    blind = table_alpha(answer_table(item, worker, rng.integers(4, size=6000)))

    assert (perfect.alpha, perfect.low, perfect.high) == (1.0, 1.0, 1.0)
    assert abs(blind.alpha) < 0.05
    assert blind.low < blind.alpha < blind.high


def test_the_interval_holds_as_often_as_it_says():
    """Of 120 crowds of the same kind, about 95 in 100 intervals hold the value of a very large one."""
    rng = np.random.default_rng(1)

    def crowd(n, seed):
        truth = np.repeat(rng.integers(4, size=n), 2)
        label = np.where(rng.random(2 * n) < 0.7, truth, rng.integers(4, size=2 * n))
        table = answer_table(np.repeat(np.arange(n), 2), np.tile([0, 1], n), label)
        return table_alpha(table, replicates=200, seed=seed)

    value = crowd(100_000, 0).alpha
    held = [found.low <= value <= found.high for found in (crowd(150, seed) for seed in range(120))]
    assert 0.88 <= np.mean(held) <= 0.99


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (([], [], []), Alpha(None, None, None, 0, 0, "no item has answers of two people")),
        (([0, 1], [0, 0], [0, 3]), Alpha(None, None, None, 0, 0, "no item has answers of two people")),
        (([0, 0], [0, 0], [0, 3]), Alpha(None, None, None, 0, 0, "no item has answers of two people")),
        (
            ([0, 0, 1, 1], [0, 1, 0, 1], [2, 2, 2, 2]),
            Alpha(
                None,
                None,
                None,
                2,
                4,
                "all answers are the same, so nothing shows whether people could have disagreed",
            ),
        ),
    ],
)
def test_where_it_cannot_be_estimated_the_reason_is_given(rows, expected):
    """Nothing, one answer an item, one worker twice, one label."""
    assert table_alpha(answer_table(*rows)) == expected


@pytest.mark.parametrize("n", [1, FEWEST_UNITS - 1, FEWEST_UNITS])
def test_few_shared_items_give_an_estimate_without_an_interval(n):
    """A single unit cannot be resampled, and a handful says too little."""
    item = np.repeat(np.arange(n), 2)
    found = table_alpha(answer_table(item, np.tile([0, 1], n), np.tile([0, 3, 0, 0], n)[: 2 * n]))

    assert found.alpha is not None
    assert (found.low is None) == (found.high is None) == (n < FEWEST_UNITS)


def test_controls_are_left_out():
    """Everybody meets them, and they are easier."""
    table = answer_table([0, 0, 1, 1, 2, 2], [0, 1] * 3, [0, 3, 1, 1, 0, 0], known=[UNKNOWN, UNKNOWN, 0])

    assert table_alpha(table).units == 2

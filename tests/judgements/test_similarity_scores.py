"""Ratings of similarity: which count, what they come to by each method, and how much people agree."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from aggregation_kit import count_alpha
from hypothesis import given, settings
from hypothesis import strategies as st
from rating_kit import SKIPPED, plain_ratings, planted, rating_frame, shuffled_frame
from suite_kit import examples

from mitl.judgements.agreement import Scale, interval_alpha
from mitl.judgements.rater_model import fit_raters
from mitl.judgements.similarity import SCORES, Aggregation, aggregate, agreement, counting
from mitl.records.similarity import TASKS, Likeness, SimilarityRole

ROW = {"pair": 7, "worker": "A", "score": 3.0}


def test_only_answers_of_kept_work_to_what_was_asked_count():
    """No control, no skipped question, no excluded worker; a worker's first rating of a pair alone."""
    found = counting(
        rating_frame(
            [
                ROW,
                ROW | {"score": 5.0},
                ROW | {"worker": "B", "role": SimilarityRole.IDENTICAL},
                ROW | {"worker": "C", "role": SimilarityRole.RANDOM},
                ROW | {"worker": "D", "role": SimilarityRole.REPEATED},
                ROW | {"worker": "E", "outcome": SKIPPED, "score": np.nan},
                ROW | {"worker": "F", "usable": False},
                ROW | {"worker": "G", "score": 1.0},
            ]
        )
    )

    assert list(zip(found["worker"], found["score"], strict=True)) == [("A", 3.0), ("G", 1.0)]


def test_the_first_rating_is_the_first_that_came_in():
    """By submission and place, not by row."""
    rows = [ROW | {"assignment": 9}, ROW | {"assignment": 4, "place": 6, "score": 2.0}]

    assert counting(rating_frame(rows))["score"].tolist() == [2.0]


def test_methods_on_a_pair_by_hand():
    """Five ratings with one far off: the mean is drawn, the middle three are not."""
    counted = counting(plain_ratings(np.array([[4.0, 4.0, 4.3, 4.6, 0.1]])))

    [mean] = aggregate(counted).scores.to_dict("records")
    [trimmed] = aggregate(counted, Aggregation.TRIMMED).scores.to_dict("records")

    assert mean["score"] == pytest.approx(3.4) and mean["n_ratings"] == 5
    assert trimmed["score"] == pytest.approx(4.1)
    assert mean["sd"] == pytest.approx(np.std([4.0, 4.0, 4.3, 4.6, 0.1], ddof=1))


def test_a_mean_that_is_a_level_reaches_it():
    """These five sum to 15, and to a little less in binary: positives begin at 3."""
    counted = counting(plain_ratings(np.array([[0.7, 3.2, 3.8, 4.7, 2.6], [2.0, 2.2, 2.4, 4.8, 3.6]])))

    assert aggregate(counted).scores["score"].tolist() == [3.0, 3.0]


def test_a_single_rating_is_its_score_and_has_no_deviation():
    """And with no ratings there are no scores."""
    for method in Aggregation:
        [row] = aggregate(counting(rating_frame([ROW])), method).scores.to_dict("records")
        assert row["score"] == pytest.approx(3.0) and np.isnan(row["sd"])
        assert list(aggregate(counting(rating_frame([])), method).scores.columns) == list(SCORES)


def test_each_task_is_taken_by_itself():
    """A mild rater of texts is not for that a mild rater of images."""
    _, _, _, texts = planted(seed=1, n_pages=20)
    images = plain_ratings(texts[:, ::-1], Likeness.SIS)
    both = pd.concat([plain_ratings(texts), images.assign(pair=images["pair"] + 10_000)])
    for method in Aggregation:
        found = aggregate(counting(both), method).scores
        alone = aggregate(counting(plain_ratings(texts)), method).scores
        of_texts = found[found["task"] == TASKS.index(Likeness.STS)]
        assert np.allclose(of_texts["score"], alone["score"])


TABLES = st.integers(0, 2**32 - 1).map(lambda seed: planted(6, 8, seed=seed)[3])


@settings(max_examples=examples(15))
@given(TABLES, st.sampled_from(list(Aggregation)), st.integers(0, 99))
def test_scores_do_not_depend_on_order_or_names_and_stay_on_the_scale(table, method, seed):
    """Whatever the method."""
    ratings = plain_ratings(table)
    renamed = ratings.assign(worker=("Z" + ratings["worker"].astype(str).str[::-1]).astype("category"))

    found = aggregate(counting(ratings), method).scores
    again = aggregate(counting(shuffled_frame(renamed, seed)), method).scores

    assert again["pair"].tolist() == found["pair"].tolist()
    assert np.allclose(again["score"], found["score"], atol=1e-6)
    assert found["score"].between(0, 5).all()


@settings(max_examples=examples(15))
@given(st.integers(0, 2**32 - 1), st.sampled_from(list(Aggregation)))
def test_raters_who_agree_to_the_last_digit_are_believed(seed, method):
    """Where all give the same numbers, these are the scores."""
    said = np.round(np.random.default_rng(seed).uniform(0, 5, 30), 2)
    table = np.tile(said[:, None], 5)

    assert np.allclose(aggregate(counting(plain_ratings(table)), method).scores["score"], said, atol=0.02)


@pytest.mark.parametrize("seed", range(3))
def test_planted_offsets_and_scales_are_learned(seed):
    """And the scores come nearer to the truth than the plain mean does."""
    true, offsets, scales, table = planted(seed=seed)
    items, raters = np.nonzero(~np.isnan(table))

    fit = fit_raters(table[items, raters], items, raters)

    assert fit.converged
    assert np.corrcoef(fit.offsets, offsets)[0, 1] > 0.95
    assert np.corrcoef(fit.scales, scales)[0, 1] > 0.85
    weights = np.bincount(raters) * fit.scales
    weights = weights / weights.sum()
    assert weights @ fit.offsets == pytest.approx(0, abs=1e-9)
    assert weights @ fit.scales == pytest.approx(1, abs=1e-9)
    errors = {
        method: np.sqrt(
            ((aggregate(counting(plain_ratings(table)), method).scores["score"] - true) ** 2).mean()
        )
        for method in Aggregation
    }
    assert errors[Aggregation.MODEL] < 0.9 * errors[Aggregation.MEAN]
    assert errors[Aggregation.STANDARDISED] < errors[Aggregation.MEAN]


def test_people_with_few_answers_and_people_who_say_nothing_do_no_harm():
    """One who gives one number, one who guesses, and thirty with a single page."""
    true, _, _, table = planted(seed=4, n_pages=40, n_raters=12, raters_of_page=4)
    rng = np.random.default_rng(0)
    few = np.full((len(true), 30), np.nan)
    for rater in range(30):
        rows = slice(10 * rater, 10 * rater + 3)
        few[rows, rater] = np.clip(true[rows] + rng.normal(0.4, 0.5, 3), 0, 5)
    table = np.hstack([table, np.full((len(true), 1), 3.0), rng.uniform(0, 5, (len(true), 1)).round(2), few])
    counted = counting(plain_ratings(table))

    found = aggregate(counted, Aggregation.MODEL)
    fit = found.fits[Likeness.STS]
    error = np.sqrt(((found.scores["score"] - true) ** 2).mean())
    plain = np.sqrt(((aggregate(counted).scores["score"] - true) ** 2).mean())

    assert fit.converged and not found.warnings
    assert fit.scales[12] < 0.1 and fit.scales[13] < 0.2
    assert np.abs(fit.scales[14:] - 1).max() < 0.8
    assert error < 0.75 * plain


def test_a_fit_that_is_stopped_says_so():
    """Its warning names the remedy."""
    _, _, _, table = planted(seed=4)
    items, raters = np.nonzero(~np.isnan(table))

    fit = fit_raters(table[items, raters], items, raters, rounds=1)

    assert not fit.converged and fit.text.startswith("stopped before it converged after 1 rounds")


@given(st.integers(0, 2**32 - 1))
def test_alpha_of_numbers_is_the_one_of_counts(seed):
    """On whole numbers both ways give the same."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 3, (15, 6))
    units, values = np.nonzero(counts)
    scores = np.repeat(values, counts[units, values]).astype(np.float64)
    of = np.repeat(units, counts[units, values])

    by_counts = count_alpha(counts, Scale.INTERVAL, replicates=400, seed=1)
    by_numbers = interval_alpha(scores, of, replicates=400, seed=1)

    assert by_numbers.alpha == pytest.approx(by_counts.alpha, abs=1e-12)
    assert (by_numbers.units, by_numbers.answers) == (by_counts.units, by_counts.answers)
    if by_counts.low is not None:
        assert by_numbers.low == pytest.approx(by_counts.low, abs=0.1)
        assert by_numbers.high == pytest.approx(by_counts.high, abs=0.1)


def test_agreement_of_ratings_with_unequal_numbers():
    """All of it lies near the planted share, and its intervals hold it."""
    rng = np.random.default_rng(2)
    true = rng.normal(2.5, 0.8, (800, 1))
    table = true + rng.normal(0, 0.4, (800, 9))
    table[rng.random(table.shape) < 0.4] = np.nan
    share = 0.64 / 0.80

    found = agreement(counting(plain_ratings(table)))

    for value, low, high in (
        (found.one_way.single.value, found.one_way.single.low, found.one_way.single.high),
        (found.alpha.alpha, found.alpha.low, found.alpha.high),
    ):
        assert value == pytest.approx(share, abs=0.03)
        assert low < share < high
    assert found.one_way.of_mean.value > found.one_way.single.value
    assert (
        interval_alpha(np.array([1.0, 2.0]), np.array([1, 2])).reason == "no item has answers of two people"
    )
    assert interval_alpha(np.array([1.0, 1.0]), np.array([1, 1])).alpha is None
    apart = interval_alpha(np.array([2.0, 1.5] + 198 * [0.1]), np.repeat(np.arange(40), 5))
    assert apart.high <= 1, "a replicate without the one pair that differs tells nothing"

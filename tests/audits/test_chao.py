"""Chao's bound of the matches that no annotator found."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mitl.audits.chao import chao
from mitl.core.formats import percent_at_most
from mitl.errors import AuditError


def incidences(*counts: int) -> np.ndarray:
    """One entry for each match: so many found once, twice, ..."""
    return np.repeat(np.arange(1, len(counts) + 1), counts)


def test_a_worked_example() -> None:
    """5 annotators, 40 found once, 20 twice: 4/5 * 40^2 / 40 = 32 more."""
    of = chao(incidences(40, 20, 15, 10, 15), 5)
    assert (of.found, of.once, of.twice) == (100, 40, 20)
    assert of.missing == pytest.approx(32)
    assert of.at_most == pytest.approx(100 / 132)
    ratio, a = 2.0, 0.8
    assert of.standard_error == pytest.approx(
        math.sqrt(20 * (a / 2 * ratio**2 + a**2 * ratio**3 + a**2 / 4 * ratio**4))
    )
    assert of.found < of.low < of.total < of.high


def test_without_a_match_found_twice_the_corrected_form_stands_in() -> None:
    of = chao(incidences(10), 5)
    assert of.missing == pytest.approx(0.8 * 10 * 9 / 2)
    variance = 0.8 * 45 + 0.8**2 * (10 * 19**2 / 4 - 10**4 / (4 * 46))
    assert of.standard_error == pytest.approx(math.sqrt(variance))
    factor = math.exp(
        1.959964 * math.sqrt(math.log(1 + variance / 36**2))
    )  # of the number missing, log-normal
    assert (of.low, of.high) == pytest.approx((10 + 36 / factor, 10 + 36 * factor))


@pytest.mark.parametrize("counts", [(1,), (0, 3), (0, 0, 5)])
def test_where_nothing_is_missing_it_says_so(counts):
    """One match that one annotator found alone tells of no other."""
    of = chao(incidences(*counts), 3)
    found = sum(counts)
    assert (of.total, of.low, of.high, of.missing_whole) == (found, found, found, 0)


def test_where_all_matches_are_equally_easy_it_meets_the_truth() -> None:
    """The factor (T - 1) / T is what makes the expectations of the three counts fit exactly."""
    for annotators in (2, 3, 5, 10):
        for p in (0.1, 0.3, 0.6):
            chance = [
                math.comb(annotators, k) * p**k * (1 - p) ** (annotators - k) for k in range(annotators + 1)
            ]
            missing = (annotators - 1) / annotators * chance[1] ** 2 / (2 * chance[2])
            assert missing == pytest.approx(chance[0])


def test_it_stays_below_the_truth_where_matches_differ_and_holds_it_where_they_do_not() -> None:
    """2,000 matches: of unequal ease the mean bound is too low, of equal ease its interval holds the truth."""
    rng = np.random.default_rng(5)
    unequal, held = [], 0
    for _ in range(200):
        ease = rng.beta(0.8, 1.2, 2000)
        hits = rng.binomial(5, ease)
        unequal.append(chao(hits, 5).total)
        equal = chao(rng.binomial(5, 0.3, 2000), 5)
        held += equal.low <= 2000 <= equal.high
    assert np.mean(unequal) < 2000
    assert held >= 180


def test_what_is_said_never_claims_more_than_the_bound() -> None:
    """35 of 36.8 are 95.109 %, and 1.8 are missing."""
    of = chao(incidences(3, 2, 30), 5)
    assert percent_at_most(of.at_most) == "95.2 %"
    assert of.missing_whole == 1


def test_nothing_found_says_nothing() -> None:
    assert chao(np.zeros(3, np.int64), 2).at_most is None


def test_bad_input_is_one_line() -> None:
    with pytest.raises(AuditError, match="two or more"):
        chao(incidences(3), 1)
    with pytest.raises(AuditError, match="4 annotators of 3"):
        chao(np.array([4]), 3)

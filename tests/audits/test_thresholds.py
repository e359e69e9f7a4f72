"""Thresholds of machine labels: which labels stand, what is refused, and that the bound means what it says."""

from __future__ import annotations

import math
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import hypergeom

from mitl.audits.thresholds import (
    Drawn,
    Threshold,
    Tolerance,
    _shown,
    allowed_errors,
    find_threshold,
    find_threshold_of_loss,
    hypergeometric_cdf,
    remaining_upper,
    sample_wanted,
)
from mitl.errors import AuditError

TWO_PERCENT = Tolerance(0.02, 0.05)


@given(st.integers(1, 300), st.data())
@settings(max_examples=200, derandomize=True)
def test_the_distribution_of_marked_things_is_scipys(size: int, data: st.DataObject) -> None:
    """Drawing without replacement."""
    marked, sample = data.draw(st.integers(0, size)), data.draw(st.integers(0, size))
    seen = data.draw(st.integers(0, sample))
    assert hypergeometric_cdf(seen, size, marked, sample) == pytest.approx(
        hypergeom.cdf(seen, size, marked, sample), abs=1e-9
    )


@given(st.integers(2, 60), st.data())
@settings(max_examples=150, derandomize=True, deadline=None)
def test_the_bound_is_the_most_errors_whose_chance_of_so_few_exceeds_the_risk(
    size: int, data: st.DataObject
) -> None:
    """As a search over all numbers of errors finds it."""
    sample = data.draw(st.integers(1, size))
    errors = data.draw(st.integers(0, sample))
    possible = [
        total - errors
        for total in range(errors, size - sample + errors + 1)
        if hypergeom.cdf(errors, size, total, sample) > 0.05 * (1 - 1e-8)
    ]
    assert remaining_upper(size, sample, errors, 0.05) == max(possible)


@given(st.integers(3, 9), st.data())
@settings(max_examples=60, derandomize=True, deadline=None)
def test_over_all_samples_of_a_small_stratum_too_many_wrong_labels_are_no_likelier_than_the_risk(
    size: int, data: st.DataObject
) -> None:
    """Every sample of every small population, counted; ties among the uncertainties included."""
    uncertainty = np.array(data.draw(st.lists(st.integers(0, 4), min_size=size, max_size=size)), float)
    wrong = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    tolerance = Tolerance(
        data.draw(st.sampled_from([0.15, 0.3, 0.5])), data.draw(st.sampled_from([0.1, 0.3]))
    )
    sample = data.draw(st.integers(1, size))
    samples = [np.array(each) for each in combinations(range(size), sample)]
    over = 0
    for audited in samples:
        found = find_threshold(uncertainty, Drawn(len(uncertainty), audited), wrong[audited], tolerance)
        labelled = uncertainty < found.cut
        labelled[audited] = False
        assert labelled.sum() == found.labelled
        left = int((wrong & labelled).sum())
        over += left > found.bound * size + 1e-9
        assert found.bound <= tolerance.error + 1e-9
    assert over / len(samples) <= tolerance.risk


def test_the_first_audited_error_beyond_those_allowed_ends_it_and_its_ties_with_it() -> None:
    """Labels stand strictly below the error that fails."""
    uncertainty = np.repeat(np.arange(100) / 200, 10)  # 1,000 pairs, ten of each uncertainty
    audited = np.arange(0, 1000, 5)
    assert allowed_errors(1000, 200, TWO_PERCENT) == 1
    wrong = np.zeros(200, np.bool_)
    wrong[[50, 100, 150]] = True
    found = find_threshold(uncertainty, Drawn(len(uncertainty), audited), wrong, TWO_PERCENT)
    assert found.cut == uncertainty[audited[100]] == 0.25
    assert found.labelled == 500 - 100
    assert found.loss == 3
    assert 0 < found.bound <= 0.02
    assert found.bound_among_labelled == pytest.approx(found.bound * 1000 / 400)
    assert not found.refused


def test_the_bound_that_is_told_holds_where_scores_tie() -> None:
    """Errors in four groups of one score each; a bound by what happens to lie below the cut fails 7 % of draws."""
    rng = np.random.default_rng(0)
    groups = np.repeat([0.1, 0.2, 0.3, 0.4], [30, 39, 48, 200])
    uncertainty, tolerance = np.append(groups, np.full(2000 - len(groups), 0.05)), Tolerance(0.05, 0.05)
    wrong = np.arange(2000) < len(groups)
    broken = 0
    for _ in range(4000):
        audited = rng.choice(2000, 400, replace=False)
        found = find_threshold(uncertainty, Drawn(2000, audited), wrong[audited], tolerance)
        labelled = uncertainty < found.cut
        labelled[audited] = False
        broken += int((wrong & labelled).sum()) > round(found.bound * 2000)
    assert broken / 4000 <= tolerance.risk


def test_where_a_loss_ends_it_the_bound_of_the_mean_is_what_is_tolerated() -> None:
    """The cut was chosen by the losses below it; where nothing ends it, the bound is of all and may be lower."""
    rng = np.random.default_rng(1)
    uncertainty, audited = np.linspace(0, 0.5, 4000), rng.choice(4000, 800, replace=False)
    ended, whole = (
        find_threshold_of_loss(
            uncertainty,
            Drawn(4000, audited),
            np.where(uncertainty[audited] > 0.4, loss, 0.0),
            Tolerance(0.05, 0.05),
        )
        for loss in (0.9, 0.01)
    )
    assert (ended.cut < math.inf, ended.bound) == (True, 0.05)
    assert whole.cut == math.inf
    assert 0 < whole.bound < 0.05


def test_errors_of_unequal_chances_show_themselves_no_oftener_than_is_reckoned() -> None:
    """Of two errors with chances 1 and 0.998 both show with 0.998, though the binomial of their mean says more."""
    risk = 0.001999
    assert 1 - 0.999**2 <= risk < 1 - 0.998
    assert _shown(2, 0.999, risk) == 1


def test_without_an_error_every_label_stands() -> None:
    """All but the audited pairs, which people answered."""
    found = find_threshold(
        np.full(1000, 0.1), Drawn(1000, np.arange(300)), np.zeros(300, np.bool_), TWO_PERCENT
    )
    assert (found.cut, found.labelled) == (math.inf, 700)


def test_a_sample_too_small_for_any_threshold_says_how_many_answers_it_wants() -> None:
    """Sixty answers without an error leave 4.8 % possible; 144 of 4,000 leave 2 %."""
    found = find_threshold(
        np.linspace(0, 0.5, 4000), Drawn(4000, np.arange(60)), np.zeros(60, np.bool_), TWO_PERCENT
    )
    assert found.refused
    assert (found.labelled, found.wanted) == (0, 144)
    assert allowed_errors(4000, 143, TWO_PERCENT) == -1
    assert allowed_errors(4000, 144, TWO_PERCENT) == 0


def test_at_the_errors_seen_it_says_what_would_label_all_or_that_nothing_would() -> None:
    """One error in sixty is below 2 %, three are above."""
    uncertainty = np.linspace(0, 0.5, 4000)
    one, three = (np.arange(60) < errors for errors in (1, 3))
    wanted = find_threshold(uncertainty, Drawn(4000, np.arange(60)), one, TWO_PERCENT).wanted_for_all
    assert wanted is not None
    assert allowed_errors(4000, wanted, TWO_PERCENT) >= wanted / 60 - 1
    assert find_threshold(uncertainty, Drawn(4000, np.arange(60)), three, TWO_PERCENT).wanted_for_all is None


def test_drawing_without_replacement_wants_fewer_answers_than_drawing_with_it() -> None:
    """Of 400 pairs a third is enough where 149 are needed of very many; of 40 nearly all."""
    wanted = [sample_wanted(size, TWO_PERCENT) for size in (40, 400, 4000, 10**7)]
    assert wanted == sorted(wanted)  # type: ignore[type-var]
    assert wanted[0] == 39
    assert wanted[-1] == math.ceil(math.log(0.05) / math.log(0.98)) == 149


def test_workers_who_side_with_the_machine_make_it_want_more() -> None:
    """Errors that do not show themselves are reckoned with, and at most half of the workers can side."""
    wanted = [sample_wanted(4000, Tolerance(0.02, 0.05, siding)) for siding in (0.0, 0.05, 0.1, 0.5)]
    assert wanted == sorted(set(wanted))  # type: ignore[type-var]
    with pytest.raises(AuditError, match="between 0 and 1/2"):
        Tolerance(0.02, 0.05, 0.6)


@pytest.mark.parametrize(("error", "risk"), [(0, 0.05), (1, 0.05), (0.02, 0), (0.02, 1.2)])
def test_shares_outside_0_to_1_are_refused(error: float, risk: float) -> None:
    """One line."""
    with pytest.raises(AuditError, match="lies between 0 and 1"):
        Tolerance(error, risk)


def test_an_open_pair_without_a_score_is_refused() -> None:
    """NaN would be surer than nothing and less sure than nothing."""
    with pytest.raises(AuditError, match="no uncertainty"):
        find_threshold(np.array([0.1, math.nan]), Drawn(2, np.array([0])), np.array([False]), TWO_PERCENT)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30, derandomize=True, deadline=None)
def test_losses_of_none_and_all_bound_no_less_carefully_than_errors_do(seed: int) -> None:
    """The bets know less than the counts: what they let stand, the exact rule lets stand but for rare luck in order."""
    rng = np.random.default_rng(seed)
    uncertainty = rng.random(3000) / 2
    wrong = rng.random(3000) < uncertainty**2
    audited = rng.choice(3000, 500, replace=False)
    exact = find_threshold(uncertainty, Drawn(len(uncertainty), audited), wrong[audited], TWO_PERCENT)
    bets = find_threshold_of_loss(
        uncertainty, Drawn(len(uncertainty), audited), wrong[audited].astype(np.float64), TWO_PERCENT
    )
    assert bets.labelled <= 1.5 * exact.labelled + 100
    assert bets.bound <= 0.02


def test_small_losses_let_more_labels_stand_than_whole_errors() -> None:
    """A level that is off by one counts a third."""
    rng = np.random.default_rng(0)
    uncertainty = rng.random(4000) / 2
    off = rng.random(4000) < uncertainty
    audited = rng.choice(4000, 600, replace=False)
    whole, third = (
        find_threshold_of_loss(
            uncertainty, Drawn(len(uncertainty), audited), np.where(off[audited], loss, 0.0), TWO_PERCENT
        ).labelled
        for loss in (1.0, 1 / 3)
    )
    assert third > 1.5 * whole > 0


@pytest.mark.parametrize("thirds", [[0, 0, 0, 1, 2, 3], [1, 1, 1, 3, 3, 3], [0, 0, 0, 0, 3, 3]])
def test_over_all_orders_of_a_small_stratum_bets_on_its_true_mean_win_no_oftener_than_the_risk(
    thirds: list[int],
) -> None:
    """Each draw is expected from what is left by then."""
    loss, certain = np.array(thirds) / 3, np.zeros(6)
    orders = [np.array(order) for order in permutations(range(6), 5)]

    def passes(order: np.ndarray, risk: float) -> bool:
        found = find_threshold_of_loss(certain, Drawn(6, order), loss[order], Tolerance(loss.mean(), risk))
        return found.cut == np.inf

    for risk in (0.6, 0.9):
        assert 0 < np.mean([passes(order, risk) for order in orders]) <= risk


def test_the_mean_loss_that_is_told_is_the_least_that_passes() -> None:
    """So that it may be promised, and a little less may not."""
    rng = np.random.default_rng(2)
    uncertainty, sample = rng.random(3000), rng.choice(3000, 500, replace=False)
    loss = (rng.random(500) < 0.02) / 3

    def found(error: float) -> Threshold:
        return find_threshold_of_loss(uncertainty, Drawn(3000, sample), loss, Tolerance(error, 0.05))

    told = found(0.1).bound
    assert loss.mean() < told < 0.1
    assert found(told).cut == np.inf
    assert found(told - 2e-4).cut < np.inf


def test_bets_refuse_a_small_sample_and_losses_beyond_1() -> None:
    """With what they want to see."""
    uncertainty = np.linspace(0, 0.5, 4000)
    found = find_threshold_of_loss(uncertainty, Drawn(4000, np.arange(60)), np.zeros(60), TWO_PERCENT)
    assert found.refused
    assert found.wanted is not None
    assert 149 < found.wanted < 260
    enough = find_threshold_of_loss(
        uncertainty, Drawn(4000, np.arange(found.wanted)), np.zeros(found.wanted), TWO_PERCENT
    )
    assert enough.cut == math.inf
    with pytest.raises(AuditError, match="losses lie between 0 and 1"):
        find_threshold_of_loss(uncertainty, Drawn(4000, np.arange(2)), np.array([0.5, 1.5]), TWO_PERCENT)


@given(st.integers(4, 9), st.data())
@settings(max_examples=40, derandomize=True, deadline=None)
def test_a_threshold_for_some_of_the_pairs_keeps_its_promise_over_all_samples_of_all(
    size: int, data: st.DataObject
) -> None:
    """The sample was drawn from more pairs than the threshold is for, as from both sides of a score."""
    own = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    if not len(own):
        return
    wrong = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    uncertainty = np.arange(len(own), dtype=np.float64)
    tolerance = Tolerance(data.draw(st.sampled_from([0.3, 0.5])), 0.3)
    samples = [np.array(each) for each in combinations(range(size), data.draw(st.integers(1, size)))]
    place_of = {pair: place for place, pair in enumerate(own.tolist())}
    over = 0
    for audited in samples:
        places = np.array([place_of.get(pair, -1) for pair in audited.tolist()])
        found = find_threshold(uncertainty, Drawn(size, places), wrong[audited] & (places >= 0), tolerance)
        labelled = uncertainty < found.cut
        labelled[places[places >= 0]] = False
        over += int((wrong[own] & labelled).sum()) > found.bound * len(own) + 1e-9
    assert over / len(samples) <= tolerance.risk

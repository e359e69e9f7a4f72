"""Labels by workers who err at one rate: what the audit's own answers tell of it, and estimates that know it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mitl.metrics.incomplete import AuditSample, Evidence
from mitl.metrics.partial_labels import CorrectedLabels, PartialLabels, Rates
from mitl.metrics.ranks import ArrayRankings
from mitl.metrics.table import asked_metrics

RATES = st.floats(0.0, 0.3)


def asked_of(truth, held, rates, rng):
    """(3, n) answers as an audit gets them: two more after a first yes and on released pairs."""
    drawn = rng.random((3, len(truth)))
    yes = np.where(truth, drawn >= rates.false_no, drawn < rates.false_yes)
    yes[1:] &= yes[0] | held
    return yes


def labels_of(yes, held):
    return np.where(held, yes.sum(0) >= 2, yes[0] & (yes.sum(0) >= 2))


@settings(max_examples=50, deadline=None, derandomize=True)
@given(RATES, RATES, st.booleans(), st.booleans())
def test_a_reading_is_right_on_average(false_no, false_yes, truth, held):
    """Over all eight answers of three workers, each with its chance; its noise is their variance."""
    rates = Rates(false_no, false_yes)
    chance_of_yes = 1 - false_no if truth else false_yes
    answers = np.array(np.meshgrid(*[[False, True]] * 3)).reshape(3, 8)
    weights = np.where(answers, chance_of_yes, 1 - chance_of_yes).prod(axis=0)
    matches = np.where(held, answers.sum(0) >= 2, answers[0] & (answers[1] | answers[2]))

    reading = CorrectedLabels.of(matches, np.full(8, held), rates)
    assert weights @ reading.values == pytest.approx(float(truth))
    assert weights @ (reading.values - truth) ** 2 == pytest.approx(weights @ reading.noise, abs=1e-12)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.floats(0.01, 0.3), st.floats(0.01, 0.3), st.booleans())
def test_slopes_are_derivatives_by_both_rates(false_no, false_yes, held):
    """Against differences of two readings."""
    matches, of = np.array([True, False]), np.full(2, held)
    step = 1e-6
    own = CorrectedLabels.of(matches, of, Rates(false_no, false_yes)).slopes
    for column, more in enumerate((Rates(false_no + step, false_yes), Rates(false_no, false_yes + step))):
        less = Rates(2 * false_no - more.false_no, 2 * false_yes - more.false_yes)
        change = CorrectedLabels.of(matches, of, more).values - CorrectedLabels.of(matches, of, less).values
        assert own[:, column] == pytest.approx(change / (2 * step), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("false_yes", [0.02, 0.12])
def test_rates_are_told_by_the_audits_own_answers(false_yes):
    """On average over 200 audits, with errors as large as they are said to be."""
    rng, true = np.random.default_rng(1), Rates(0.08, false_yes)
    held = np.arange(1500) < 150
    truth = np.where(held, rng.random(1500) < 0.98, rng.random(1500) < 0.1)
    found = [Rates.measured(asked_of(truth, held, true, rng), held, held) for _ in range(200)]

    for name, variances in (
        ("false_no", [one.variance[0] for one in found]),
        ("false_yes", [one.variance[1] for one in found]),
    ):
        values = np.array([getattr(one, name) for one in found])
        assert values.mean() == pytest.approx(getattr(true, name), rel=0.1)
        assert np.mean(variances) == pytest.approx(values.var(), rel=0.4)


def test_too_few_released_pairs_tell_no_rates():
    """Then labels are taken as they are."""
    yes, few = np.ones((3, 30), bool), np.arange(30) < 19

    assert Rates.measured(yes, few, few) is None
    assert Rates.measured(yes, ~few, few) is None
    plain = CorrectedLabels.of(yes[0], few, None)
    assert (plain.values == 1).all()
    assert plain.variance(np.ones(30), np.full(30, 0.1)) == 0


def test_answers_by_chance_tell_rates_that_labels_can_be_read_with():
    """Half of all answers err; no label stands for more than ten."""
    rng = np.random.default_rng(2)
    held = np.arange(400) < 200
    yes = asked_of(rng.random(400) < 0.5, held, Rates(0.5, 0.5), rng)

    rates = Rates.measured(yes, held, held)
    assert rates is not None
    assert max(rates.false_no, rates.false_yes) < 0.5
    assert np.abs(CorrectedLabels.of(labels_of(yes, held), held, rates).values).max() < 10


def test_a_score_is_right_on_average_though_workers_err():
    """Precision@2 over 150 audits: the mean is the truth, and 95 % intervals hold it; labels as they are fall short."""
    rng, rates = np.random.default_rng(3), Rates(0.15, 0.03)
    truth = rng.random((60, 20)) < 0.3
    truth[:, 0] = True
    rows, items = np.arange(60), np.zeros(60, np.int64)
    released = PartialLabels.of(rows, 20, (rows, items), np.ones(60), np.ones(60, bool))
    ranking = ArrayRankings(rows, np.stack([rng.permutation(20) for _ in rows]))
    places = np.take_along_axis(truth, ranking.block(rows, 0, 2), axis=1).mean()
    strata = np.zeros(truth.shape, np.int64)
    strata[:, 0] = 1
    corrected, plain = [], []
    for _ in range(150):
        at = np.concatenate(
            [
                rng.choice(np.flatnonzero(strata.ravel() == one), size, replace=False)
                for one, size in ((0, 500), (1, 50))
            ]
        )
        held, inclusion = strata.ravel()[at] == 1, np.repeat([500 / 1140, 50 / 60], [500, 50])
        yes = asked_of(truth.ravel()[at], held, rates, rng)
        matches = labels_of(yes, held)
        for found, known in ((corrected, Rates.measured(yes, held, held)), (plain, None)):
            sample = AuditSample(
                *np.divmod(at, 20),
                matches,
                held.astype(int),
                inclusion,
                CorrectedLabels.of(matches, held, known),
            )
            (one,) = Evidence.of(released, sample, draws=2).fair(ranking, asked_metrics(["P@2"])).classical
            found.append((one.value, one.holds(places)))
    means, held_ = np.mean(corrected, axis=0), np.mean(plain, axis=0)
    error = np.std([value for value, _ in corrected]) / 150**0.5

    assert (
        abs(means[0] - places) < 4 * error + 0.01 * places
    )  # a ratio of estimates is right up to its own variance
    assert means[1] > 0.89
    assert held_[0] < 0.95 * places

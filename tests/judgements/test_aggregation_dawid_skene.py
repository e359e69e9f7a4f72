"""Dawid and Skene's model: against crowd-kit, and what the prior and known items change."""

from __future__ import annotations

import numpy as np
import pytest
from aggregation_kit import answers, as_table, draw_confused, read_set
from hypothesis import given, settings

from mitl.judgements.aggregators import DawidSkeneOptions, fit_dawid_skene
from mitl.judgements.answer_table import UNKNOWN, answer_table, majority_table
from mitl.judgements.calibration import calibration

BARE = DawidSkeneOptions(strength=0)
CROWD_KIT = {
    # Sum of the squared posteriors after 5 and after 40 passes, and the accuracy then, from crowd-kit 1.4.2:
    # DawidSkene(n, tol=-1e9).fit(labels).probas_
    "SpectralMethodsMeetEM__rte": (788.88479335, 789.98288607, 0.927500),
    "active-crowd-toolkit__CF": (285.35748648, 288.23225789, 0.780000),
    "active-crowd-toolkit__MS": (584.83725402, 634.70166799, 0.768571),
    "active-crowd-toolkit__SP": (4857.84953632, 4862.8809234, 0.914983),
    "crowd_truth_inference__d_jn-product": (7511.85487116, 7841.46854593, 0.939627),
    "crowd_truth_inference__s4_Face_Sentiment_Identification": (564.2250292, 568.64853477, 0.640411),
}
CLASSIC = (9.970161799, [0.01514858, 0.0, 0.98485142])
"""Sum of the squared posteriors, and the posterior of one item, of the example below."""


@pytest.mark.shared
@pytest.mark.parametrize("name", sorted(CROWD_KIT))
def test_without_a_prior_every_pass_equals_crowd_kits(shared_data, name):
    """Posteriors of real crowds after 5 and 40 passes."""
    real = read_set(shared_data / "crowd_labels_truth_inference", name)

    for passes, expected in zip((5, 40), CROWD_KIT[name], strict=False):
        model = fit_dawid_skene(real.table, DawidSkeneOptions(strength=0, limit=passes, tolerance=-1))
        assert float((model.posterior**2).sum()) == pytest.approx(expected, abs=2e-6)
    assert real.accuracy(model.label) == pytest.approx(CROWD_KIT[name][2], abs=1e-6)


def test_the_classic_example_comes_out_as_crowd_kits():
    """Ten items, three workers, the third of them contrary; numbers from crowd-kit 1.4.2 after 10 passes."""
    truth = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2, 0])
    first, second, third = truth.copy(), truth.copy(), (truth + 1) % 3
    first[2], second[5], second[6], third[0] = 1, 2, 0, 0
    label = np.concatenate([first, second, third])
    table = answer_table(np.tile(np.arange(10), 3), np.repeat(np.arange(3), 10), label, n_labels=3)

    model = fit_dawid_skene(table, DawidSkeneOptions(strength=0, limit=10, tolerance=-1))

    assert float((model.posterior**2).sum()) == pytest.approx(CLASSIC[0], abs=1e-7)
    assert model.posterior[6].tolist() == pytest.approx(CLASSIC[1], abs=1e-7)


@pytest.fixture(scope="module")
def crowd():
    """Thirty workers of three kinds, three answers an item."""
    careful = np.full((4, 4), 0.05) + 0.8 * np.eye(4)
    yes_sayer = np.full((4, 4), 0.05)
    yes_sayer[:, 0] = 0.85
    blind = np.full((4, 4), 0.25)
    return draw_confused(3000, np.stack([careful] * 18 + [yes_sayer] * 6 + [blind] * 6), 3)


def test_it_learns_whom_to_trust(crowd):
    """More labels right than the majority's, and the diagonals of careful workers are high."""
    table, truth = crowd
    model = fit_dawid_skene(table)

    assert (model.label == truth).mean() > (majority_table(table).label == truth).mean() + 0.08
    diagonal = model.confusion[:, np.arange(4), np.arange(4)].mean(axis=1)
    assert diagonal[:18].min() > 0.75
    assert diagonal[24:].max() < 0.4
    assert model.convergence.settled
    assert model.convergence.line.startswith("settled after")


def test_a_matrix_row_and_a_posterior_sum_to_one(crowd):
    """Probabilities, for workers without answers too."""
    table, _ = crowd
    wider = answer_table(table.item, table.worker, table.label, n_workers=table.n_workers + 2)
    model = fit_dawid_skene(wider)

    assert np.allclose(model.confusion.sum(axis=2), 1)
    assert np.allclose(model.posterior.sum(axis=1), 1)
    assert np.allclose(model.confusion[-1], model.confusion[-2])


def test_the_objective_rises_without_a_prior(crowd):
    """Expectation maximisation never loses likelihood."""
    trace = np.array(fit_dawid_skene(crowd[0], BARE).convergence.objective)

    assert np.diff(trace).min() > -1e-6


def test_a_worker_with_two_answers_stays_near_the_crowd(crowd):
    """Without a prior two right answers make a worker who cannot err; with it, a usual one."""
    table, truth = crowd
    newcomer = table.n_workers
    item = np.concatenate([table.item, [0, 1]])
    worker = np.concatenate([table.worker, [newcomer, newcomer]])
    label = np.concatenate([table.label, truth[:2]])
    joined = answer_table(item, worker, label)
    bare, smoothed = fit_dawid_skene(joined, BARE), fit_dawid_skene(joined)

    seen = truth[0]
    assert bare.confusion[newcomer, seen, seen] > 0.9
    mean = smoothed.confusion[:newcomer, seen].mean(axis=0)
    assert np.abs(smoothed.confusion[newcomer, seen] - mean).max() < 0.3


def test_the_prior_makes_the_posterior_better_calibrated():
    """Many workers of few answers: the error of calibration falls by half or more."""
    careful = np.full((4, 4), 0.08) + 0.68 * np.eye(4)
    table, truth = draw_confused(2000, np.stack([careful] * 400), 3, seed=1)
    errors = []
    for options in (BARE, DawidSkeneOptions()):
        positive = fit_dawid_skene(table, options).posterior[:, :2].sum(axis=1).clip(0, 1)
        errors.append(calibration(positive, truth < 2).error)

    assert errors[1] < errors[0] / 2


def test_known_items_keep_their_label_and_teach_about_workers(crowd):
    """A known item is certain; a hundred of them leave no more doubt about the rest than before."""
    table, truth = crowd
    known = np.full(table.n_items, UNKNOWN)
    known[:100] = truth[:100]
    model = fit_dawid_skene(table.with_known(known))

    assert np.array_equal(model.label[:100], truth[:100])
    assert np.allclose(model.posterior[:100].max(axis=1), 1)
    assert (model.label == truth)[100:].mean() >= (fit_dawid_skene(table).label == truth)[100:].mean() - 0.002


@settings(max_examples=25)
@given(answers())
def test_any_table_gives_finite_probabilities(rows):
    """One worker, one item, one label, repeats: with and without the prior."""
    for options in (BARE, DawidSkeneOptions()):
        model = fit_dawid_skene(as_table(rows), options)
        assert np.isfinite(model.posterior).all()
        assert np.allclose(model.posterior.sum(axis=1), 1)


@settings(max_examples=10)
@given(answers(max_rows=20))
def test_the_order_of_answers_does_not_matter(rows):
    """Rows backwards."""
    forth, back = fit_dawid_skene(as_table(rows)), fit_dawid_skene(as_table(rows[::-1]))

    assert np.allclose(forth.posterior, back.posterior, atol=1e-6)


def test_unanimous_answers_are_believed():
    """Five workers, every item twice the same label: the label, with little doubt."""
    truth = np.arange(40) % 4
    table = answer_table(np.repeat(np.arange(40), 5), np.tile(np.arange(5), 40), np.repeat(truth, 5))
    model = fit_dawid_skene(table)

    assert np.array_equal(model.label, truth)
    assert model.posterior.max(axis=1).min() > 0.95


def test_one_worker_is_taken_at_their_word():
    """Nobody contradicts them."""
    label = [0, 1, 2, 3, 3]

    assert fit_dawid_skene(answer_table(range(5), [0] * 5, label)).label.tolist() == label


def test_a_fit_that_ran_out_of_passes_says_so(crowd):
    """The limit and the last change are named."""
    convergence = fit_dawid_skene(crowd[0], DawidSkeneOptions(limit=2)).convergence

    assert not convergence.settled
    assert "stopped by the limit of 2 passes" in convergence.line


def test_a_crowd_that_knows_little_settles_without_a_warning():
    """Answers that are nearly blind: the last passes change a likelihood of thousands by thousandths."""
    nearly_blind = np.full((4, 4), 0.22) + 0.12 * np.eye(4)
    table, _ = draw_confused(1500, np.stack([nearly_blind] * 60), 3)

    assert fit_dawid_skene(table).convergence.settled


def test_without_answers_there_is_no_fit():
    """A clear refusal."""
    with pytest.raises(ValueError, match="no answers"):
        fit_dawid_skene(answer_table([], [], []))

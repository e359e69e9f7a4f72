"""The ordinal model: what was put into simulated crowds comes out, and its probabilities can be trusted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from aggregation_kit import (
    THRESHOLDS,
    answers,
    as_table,
    draw_confused,
    draw_ordinal,
    draw_scale,
    draw_uneven,
)
from hypothesis import given, settings
from scipy.special import ndtr

from mitl.errors import MetricError
from mitl.judgements.aggregators import fit_dawid_skene
from mitl.judgements.answer_table import UNKNOWN, answer_table, majority_table
from mitl.judgements.calibration import calibration, cross_fit
from mitl.judgements.ordinal import OrdinalOptions, fit_ordinal
from mitl.judgements.ordinal_parameters import curves, make_grid, starting_parameters
from mitl.judgements.ordinal_steps import common_bias

QUICK = OrdinalOptions(n_cells=17, limit=40)


@pytest.fixture(scope="module")
def drawn():
    """Five answers an item from eighty workers."""
    return draw_ordinal(4000, 80, 5)


@pytest.fixture(scope="module")
def fitted(drawn):
    """The model of those answers."""
    return fit_ordinal(drawn.table)


@pytest.fixture(scope="module")
def single():
    """One answer a pair, and gold controls: what a campaign gives without overlap."""
    return draw_ordinal(8000, 100, 1, golds=300)


@pytest.fixture(scope="module")
def single_fitted(single):
    """The model of those answers."""
    return fit_ordinal(single.table)


def test_what_the_crowd_was_made_of_comes_out(drawn, fitted):
    """Thresholds, spread, typical noise, and each worker's bias and noise."""
    found = fitted.parameters

    # Thresholds are the common standard's; with the mean bias they are free of where that one stands.
    assert found.thresholds + found.bias.mean() == pytest.approx(THRESHOLDS + drawn.bias.mean(), abs=0.12)
    assert found.bias_spread == pytest.approx(drawn.bias.std(), abs=0.1)
    # A part of the noise passes for blind answers, of which there are none here.
    assert found.typical_log_noise == pytest.approx(drawn.log_noise.mean(), abs=0.25)
    assert found.typical_blind.sum() < 0.1
    assert found.noise_spread == pytest.approx(drawn.log_noise.std(), abs=0.1)
    assert np.corrcoef(found.bias, drawn.bias)[0, 1] > 0.95
    assert np.corrcoef(found.log_noise, drawn.log_noise)[0, 1] > 0.85
    assert fitted.convergence.settled


def test_what_is_left_to_know_of_a_worker_is_as_large_as_the_error(drawn, fitted):
    """Errors of the biases, in units of what the model says is left: near 1, for busy and for idle workers."""
    found = fitted.parameters
    error = (found.bias - found.bias.mean()) - (drawn.bias - drawn.bias.mean())
    error /= np.sqrt(found.bias_variance)

    assert 0.7 < np.sqrt((error**2).mean()) < 1.6


def test_probabilities_are_calibrated_on_the_truth(drawn, fitted):
    """Stated and true shares of positive items agree, and the interval holds as often as it says."""
    positive = calibration(fitted.positive(), drawn.truth < 2)
    covered = (fitted.low <= drawn.match) & (drawn.match <= fitted.high)

    assert positive.error < 0.03
    assert covered.mean() == pytest.approx(0.9, abs=0.025)


def test_it_beats_models_without_degrees_on_answers_in_degrees(drawn, fitted):
    """More labels right than Dawid and Skene's model and the majority, and a better Brier score."""
    skene = fit_dawid_skene(drawn.table)
    theirs = calibration(skene.posterior[:, :2].sum(axis=1).clip(0, 1), drawn.truth < 2)

    right = [(label == drawn.truth).mean() for label in (skene.label, majority_table(drawn.table).label)]
    assert (fitted.label == drawn.truth).mean() > max(right) + 0.025
    assert calibration(fitted.positive(), drawn.truth < 2).brier < theirs.brier - 0.004


def test_one_answer_a_pair_and_controls_are_enough_to_know_the_workers(single, single_fitted):
    """Biases and noise are found, and the probabilities of the pairs are calibrated."""
    unknown = single.table.known == UNKNOWN
    found = calibration(single_fitted.positive()[unknown], single.truth[unknown] < 2)
    covered = (single_fitted.low <= single.match) & (single.match <= single_fitted.high)

    assert np.corrcoef(single_fitted.parameters.bias, single.bias)[0, 1] > 0.8
    assert np.corrcoef(single_fitted.parameters.log_noise, single.log_noise)[0, 1] > 0.45
    assert found.error < 0.045
    assert covered[unknown].mean() == pytest.approx(0.9, abs=0.03)


def test_controls_are_certain_and_lie_beyond_the_outer_thresholds(single, single_fitted):
    """P(yes or weak_yes) is 1 or 0, and the match within its stretch."""
    known = single.table.known
    thresholds = single_fitted.parameters.thresholds

    assert (single_fitted.positive()[known == 0] == 1).all()
    assert (single_fitted.positive()[known == 3] == 0).all()
    half_a_cell = make_grid(OrdinalOptions().n_cells).width / 2
    assert single_fitted.match[known == 0].min() > thresholds[-1] - half_a_cell
    assert single_fitted.match[known == 3].max() < thresholds[0] + half_a_cell


def test_hidden_controls_are_foretold_with_honest_doubt():
    """Cross-fitting: each control judged by a fit that did not know it; the error of calibration stays small."""
    drawn = draw_ordinal(3000, 60, 2, golds=200, seed=3)
    items, probability = cross_fit(drawn.table, lambda table: fit_ordinal(table, QUICK).positive(), folds=3)

    assert items.tolist() == list(range(200))
    found = calibration(probability, drawn.table.known[items] == 0)
    assert found.error < 0.1
    assert found.brier < 0.05


def test_cross_fitting_without_enough_controls_is_refused():
    """Two known items make no five folds."""
    with pytest.raises(MetricError, match="2 known items cannot be dealt to 5 folds"):
        cross_fit(answer_table([0, 1], [0, 0], [0, 3], known=[0, 3]), lambda table: np.zeros(2))


def test_clickers_are_found_out():
    """Workers who answer blindly: their share of blind answers is high, that of careful ones low."""
    careful = np.full((4, 4), 0.03) + 0.88 * np.eye(4)
    blind = np.full((4, 4), 0.25)
    table, truth = draw_confused(1500, np.stack([careful] * 24 + [blind] * 8), 4)
    model = fit_ordinal(table)

    lapse = model.parameters.blind.sum(axis=1)
    assert lapse[24:].min() > 0.4
    assert lapse[:24].max() < 0.3
    assert (model.label == truth).mean() > (majority_table(table).label == truth).mean() + 0.05


def test_workers_who_always_give_one_label_move_no_threshold():
    """A third of the crowd says yes to nearly everything: labels stay right, and more so than Dawid-Skene's Brier."""
    careful = np.full((4, 4), 0.05) + 0.8 * np.eye(4)
    always_yes = 0.1 * np.eye(4) + np.array([0.87, 0.01, 0.01, 0.01])
    table, truth = draw_confused(1500, np.stack([careful] * 40 + [always_yes] * 20), 6)
    model, skene = fit_ordinal(table), fit_dawid_skene(table)

    assert (model.label == truth).mean() > (skene.label == truth).mean() - 0.02
    assert (model.label == truth).mean() > (majority_table(table).label == truth).mean()


def test_many_careless_workers_of_few_answers_do_not_set_the_scale():
    """Twelve careful workers give most answers and agree; a hundred others are late, noisy or blind.

    The scale is that of the twelve, not of the median worker: labels are righter than the majority's
    and than Dawid-Skene's, and the probabilities better.
    """
    rng = np.random.default_rng(0)
    truth, match, thresholds = draw_scale(1500, [0.12, 0.18, 0.26, 0.2, 0.24])
    careful = np.arange(120) < 12
    lapse = np.where(careful, 0.12, rng.beta(4, 6, 120))
    table = draw_uneven(
        truth,
        match,
        thresholds,
        6,
        bias=np.where(careful, 0.06, 0.4) * rng.standard_normal(120) + np.where(careful, 0, 0.4),
        noise=np.where(careful, 0.25, 0.6),
        blind=lapse[:, None] * rng.dirichlet([0.5, 0.5, 0.5, 0.5, 2], 120),
        busy=1.1,
    )
    model, skene = fit_ordinal(table), fit_dawid_skene(table)

    assert (model.label == truth).mean() > (majority_table(table).label == truth).mean() + 0.03
    assert (model.label == truth).mean() >= (skene.label == truth).mean()
    assert step_brier(model.level, truth) < step_brier(skene.posterior, truth)


def test_clickers_on_the_commonest_label_do_not_move_a_skewed_scale():
    """Two thirds of the items are the best there is, and a third of the workers click just that label."""
    rng = np.random.default_rng(0)
    truth, match, thresholds = draw_scale(1500, [0.65, 0.12, 0.08, 0.15], gathered=0.5)
    clicks = rng.random(200) < 0.35
    shares = np.where(clicks[:, None], [0.85, 0.05, 0.05, 0.05], [0.25] * 4)
    table = draw_uneven(
        truth,
        match,
        thresholds,
        8,
        bias=0.3 * rng.standard_normal(200),
        noise=np.exp(np.log(0.5) + 0.4 * rng.standard_normal(200)),
        blind=np.where(clicks, 0.8, 0.03)[:, None] * shares,
        busy=1.0,
    )
    model, skene = fit_ordinal(table), fit_dawid_skene(table)

    assert (model.label == truth).mean() > (majority_table(table).label == truth).mean() + 0.03
    assert step_brier(model.level, truth) < step_brier(skene.posterior, truth)


def step_brier(probability, truth):
    """Mean squared distance of P(at this step of the scale or better) and truth, over all steps but the last."""
    steps = np.arange(1, probability.shape[1])
    return float(np.mean((probability.astype(float).cumsum(axis=1)[:, :-1] - (truth[:, None] < steps)) ** 2))


@pytest.mark.parametrize(
    ("bias", "noise", "expected"),
    [
        (np.r_[np.full(20, -0.3), np.linspace(-1, 1.6, 60)], 1.0, (-0.32, -0.2)),
        (np.linspace(-0.6, 0.6, 61), 1.0, (-0.1, 0.1)),
        (
            np.r_[np.full(20, -0.3), np.full(40, 0.3)],
            np.r_[np.full(20, 0.5), np.full(40, 8.0)],
            (-0.32, -0.2),
        ),
    ],
)
def test_the_common_standard_is_that_of_the_workers_who_agree(bias, noise, expected):
    """Where many stand closely together; the middle where nobody does; never where the noisy gather."""
    crowd = starting_parameters(answer_table(range(len(bias)), range(len(bias)), np.zeros(len(bias), int)))
    crowd = replace(
        crowd,
        bias=bias,
        log_noise=crowd.log_noise + np.log(noise),
        mean_bias=float(bias.mean()),
        bias_spread=float(bias.std()),
        bias_variance=np.full(len(bias), 0.03**2),
    )

    assert expected[0] < common_bias(crowd) < expected[1]


def test_blind_answers_of_a_worker_seen_little_are_taken_for_the_crowds_habit():
    """Many workers click the worst label when they do not look: none of it passes for bias."""
    truth, match, thresholds = draw_scale(1200, [0.25] * 4)
    workers = np.ones(150)
    blind = 0.4 * workers[:, None] * np.array([0.0, 0.0, 0.0, 1.0])
    table = draw_uneven(
        truth, match, thresholds, 5, bias=0 * workers, noise=0.3 * workers, blind=blind, busy=0.8
    )
    found = fit_ordinal(table).parameters

    assert found.typical_blind[0] > 0.7 * found.typical_blind.sum()
    assert found.typical_blind.sum() == pytest.approx(0.4, abs=0.1)


def test_workers_with_few_answers_stay_near_the_crowd():
    """One contrary answer moves a newcomer less than a hundred move a regular."""
    drawn = draw_ordinal(600, 12, 4, seed=5)
    table = drawn.table
    item = np.concatenate([table.item, [0], np.arange(1, 101)])
    worker = np.concatenate([table.worker, [12], np.full(100, 13)])
    label = np.concatenate([table.label, [3], np.full(100, 3)])
    found = fit_ordinal(answer_table(item, worker, label)).parameters

    assert abs(found.bias[12]) < abs(found.bias[13]) / 3
    assert found.bias_variance[12] > 3 * found.bias_variance[13]


@pytest.mark.parametrize("n_labels", [2, 3, 5, 7])
def test_scales_of_any_length_are_fitted(n_labels):
    """Two labels to seven: probabilities sum to one and most labels are right."""
    level = np.arange(n_labels)
    near = np.exp(-1.5 * np.abs(level[:, None] - level))
    matrices = np.stack([near / near.sum(axis=1, keepdims=True)] * 20)
    table, truth = draw_confused(800, matrices, 5, shares=np.full(n_labels, 1 / n_labels))
    model = fit_ordinal(table)

    assert model.level.shape == (800, n_labels)
    assert np.allclose(model.level.sum(axis=1), 1, atol=1e-5)
    assert (np.abs(model.label - truth) <= 1).mean() > 0.95


@settings(max_examples=12)
@given(answers())
def test_any_table_gives_finite_probabilities(rows):
    """One worker, one item, one label, repeats, a known item."""
    table = as_table(rows)
    known = np.full(table.n_items, UNKNOWN)
    known[0] = 3
    model = fit_ordinal(table.with_known(known), QUICK)

    assert np.isfinite(model.level).all()
    assert np.allclose(model.level.sum(axis=1), 1, atol=1e-5)
    assert (model.low <= model.high).all()
    assert (np.diff(model.parameters.thresholds) > 0).all()


@settings(max_examples=8)
@given(answers(max_rows=20))
def test_the_order_of_answers_does_not_matter(rows):
    """Rows backwards."""
    forth, back = fit_ordinal(as_table(rows), QUICK), fit_ordinal(as_table(rows[::-1]), QUICK)

    assert np.allclose(forth.level, back.level, atol=1e-5)


def test_the_same_table_gives_the_same_bytes(drawn):
    """Nothing is random."""
    short = OrdinalOptions(n_cells=17, limit=5)
    first, second = fit_ordinal(drawn.table, short), fit_ordinal(drawn.table, short)

    assert first.level.tobytes() == second.level.tobytes()


def test_better_answers_make_a_better_posterior():
    """Raising one answer of an item raises its match; more equal answers make its interval narrower."""
    drawn = draw_ordinal(500, 10, 3, seed=7)
    item, worker, label = drawn.table.item, drawn.table.worker, drawn.table.label
    extra_item = np.array([500, 501, 502, 502, 502, 502])
    extra_worker = np.array([0, 0, 0, 1, 2, 3])
    extra_label = np.array([1, 2, 1, 1, 1, 1])
    model = fit_ordinal(
        answer_table(
            np.concatenate([item, extra_item]),
            np.concatenate([worker, extra_worker]),
            np.concatenate([label, extra_label]),
        )
    )

    width = model.high - model.low
    assert model.match[500] > model.match[501]
    assert model.positive()[500] > model.positive()[501]
    assert width[502] < width[500]


def test_unanimous_answers_are_believed():
    """Five workers who always agree."""
    truth = np.arange(40) % 4
    table = answer_table(np.repeat(np.arange(40), 5), np.tile(np.arange(5), 40), np.repeat(truth, 5))

    assert np.array_equal(fit_ordinal(table).label, truth)


def test_curves_are_the_models_formula():
    """P(at least level k) = Φ((z - t_k - b) / s), with a share of blind answers; also far out in the tails."""
    nodes = np.array([-30.0, -1.0, 0.2, 30.0])
    at = curves(nodes, THRESHOLDS, np.array([0.3]), np.array([0.5]), np.full((1, 4), 0.1 / 4))

    at_least = ndtr((nodes - THRESHOLDS[:, None] - 0.3) / 0.5)
    expected = 0.9 * -np.diff(np.concatenate([np.ones((1, 4)), at_least, np.zeros((1, 4))]), axis=0) + 0.1 / 4
    assert at.probability[0] == pytest.approx(expected, abs=1e-12)
    assert (at.probability > 0).all()


def test_the_grid_holds_the_whole_normal_distribution():
    """Masses sum to one, within thresholds and in all."""
    grid = make_grid(33)

    assert grid.mass.sum() == pytest.approx(1)
    assert grid.within(THRESHOLDS).sum(axis=0) == pytest.approx(grid.mass)
    assert grid.within(THRESHOLDS)[0].sum() == pytest.approx(ndtr(THRESHOLDS[0]))


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        (answer_table([], [], []), None, "no answers"),
        (answer_table([0], [0], [0], n_labels=1), None, "1 label makes no scale"),
        (answer_table([0], [0], [0]), OrdinalOptions(n_cells=2), "2 cells make no grid"),
    ],
)
def test_what_cannot_be_fitted_is_refused(table, options, message):
    """Nothing to fit, nothing to order, nothing to integrate over."""
    with pytest.raises(ValueError, match=message):
        fit_ordinal(table, options)

"""Chances that the compared models' ranks of judged pairs, and an audit, teach."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mitl.core.statistics import logistic
from mitl.metrics.incomplete import AuditSample, Evidence
from mitl.metrics.partial_labels import PartialLabels
from mitl.metrics.positives import Positives
from mitl.metrics.rank_groups import with_rank_chances
from mitl.metrics.ranks import ArrayRankings
from mitl.metrics.retrieval import score_metrics
from mitl.metrics.table import asked_metrics

ASKED = asked_metrics(["R@1", "R@3", "P@3", "R-Precision", "mAP@R"])


def a_pool(seed, queries=60, gallery=40, rates=0.08):
    """A sharp model and a blind one; the first 5 of both are judged, rightly, and each query has a released match."""
    rng = np.random.default_rng(seed)
    labels = rng.random((queries, gallery)) < rates
    labels[:, 0] = True
    models = [np.argsort(-(share * labels + rng.normal(0, 1, labels.shape)), axis=1) for share in (2.5, 0.0)]
    judged = np.zeros(labels.shape, bool)
    for ranked in models:
        np.put_along_axis(judged, ranked[:, :5], True, axis=1)
    judged[:, 0] = True
    return labels, models, judged, rng


def known_of(labels, judged):
    rows, items = np.nonzero(judged)
    said = labels[rows, items].astype(float)
    return PartialLabels.of(
        np.arange(len(labels)), labels.shape[1], (rows, items), said, np.ones(len(rows), bool)
    )


def drawn(labels, size, rng):
    places = rng.choice(labels.size, size, replace=False)
    rows, items = np.divmod(places, labels.shape[1])
    strata = np.zeros(size, np.int64)
    return AuditSample(rows, items, labels[rows, items], strata, np.full(size, size / labels.size))


def rankings_of(models):
    return [ArrayRankings(np.arange(len(ranked)), ranked) for ranked in models]


def chances_of(found, shape):
    return found.chances_of(np.arange(shape[0]), np.tile(np.arange(shape[1]), (shape[0], 1)))


def corrected(labels, models, judged, audit, asked, draws=8):
    """Each model's prediction-powered estimates."""
    known = known_of(labels, judged)
    chances = with_rank_chances(known, rankings_of(models), audit)
    evidence = Evidence.of(known, audit, chances=chances, draws=draws)
    return [[one.value for one in evidence.fair(each, asked).powered] for each in rankings_of(models)]


def test_the_model_that_judged_pairs_speak_for_is_believed():
    """What the sharp model ranks sixth is likelier a match than what the blind one does."""
    labels, models, judged, rng = a_pool(1)
    found = with_rank_chances(known_of(labels, judged), rankings_of(models), drawn(labels, 300, rng))

    chances = np.where(judged, np.nan, chances_of(found, labels.shape))
    at_six = [np.take_along_axis(chances, ranked[:, 5:8], axis=1) for ranked in models]
    assert np.nanmean(at_six[0]) > 1.5 * np.nanmean(at_six[1])


def test_queries_with_many_matches_hold_more_of_them_where_nobody_looked():
    """Half of the queries match a third of all items, the others hardly any; ranks do not tell which."""
    rates = np.repeat([0.35, 0.02], 40)[:, None]
    labels, models, judged, rng = a_pool(2, queries=80, rates=rates)
    found = with_rank_chances(known_of(labels, judged), rankings_of(models), drawn(labels, 400, rng))

    chances = np.where(judged, np.nan, chances_of(found, labels.shape))
    assert np.nanmean(chances[:40]) > 2 * np.nanmean(chances[40:])


def test_what_was_said_is_believed_as_far_as_the_audit_bears_it_out():
    """A quarter of the refused pairs are matches: their chances say so, and released ones stay nearly sure."""
    labels, models, judged, rng = a_pool(3, queries=150, rates=0.2)
    said = labels & (rng.random(labels.shape) > 0.5)
    said[:, 0] = True
    found = with_rank_chances(known_of(said, judged), rankings_of(models), drawn(labels, 2000, rng))

    chances = chances_of(found, labels.shape)
    refused = judged & ~said
    assert chances[refused].mean() == pytest.approx(labels[refused].mean(), abs=0.05)
    assert chances[said & judged].mean() > 0.95


def test_what_is_linear_in_the_labels_stays_without_bias():
    """Recall@1 and P@3, corrected by the audit that taught the chances: right on average over 60 audits."""
    labels, models, judged, rng = a_pool(2)
    asked = asked_metrics(["R@1", "P@3"])
    values = np.array(
        [corrected(labels, models, judged, drawn(labels, 300, rng), asked, draws=2) for _ in range(60)]
    )
    positives = Positives.from_pairs(*np.nonzero(labels))
    truth = [[one.estimate for one in score_metrics(each, positives, asked)] for each in rankings_of(models)]
    errors = values.std(axis=0, ddof=1) / len(values) ** 0.5
    assert (np.abs(values.mean(axis=0) - truth) < 4 * errors + 1e-12).all()


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.integers(0, 1000))
def test_with_every_pair_audited_the_estimate_is_the_metric(seed):
    """Whatever the chances are that were learnt."""
    labels, models, judged, rng = a_pool(seed, queries=8, gallery=12)
    found = corrected(labels, models, judged, drawn(labels, labels.size, rng), ASKED)

    positives = Positives.from_pairs(*np.nonzero(labels))
    for ranking, values in zip(rankings_of(models), found, strict=True):
        truth = [one.estimate for one in score_metrics(ranking, positives, ASKED)]
        assert values == pytest.approx(truth, abs=1e-12)


@pytest.mark.parametrize("all_match", [True, False])
def test_pairs_of_one_kind_teach_chances_all_the_same(all_match):
    """All judged pairs are matches, or all but each query's own one are none; nobody audits anything else."""
    labels, models, judged, rng = a_pool(3, queries=8, gallery=12)
    labels[:] = all_match
    labels[:, 0] = True
    found = with_rank_chances(known_of(labels, judged), rankings_of(models), drawn(labels, 10, rng))

    chances = chances_of(found, labels.shape)
    assert np.isfinite(chances).all()
    assert (chances[~judged].mean() > 0.5) == all_match


def test_without_an_audited_pair_the_judged_ones_speak_alone():
    """Chances follow, and what is not listed has none."""
    labels, models, judged, _ = a_pool(4)
    nothing = AuditSample(
        *(np.empty(0, kind) for kind in (np.int64, np.int64, np.bool_, np.int64, np.float64))
    )
    found = with_rank_chances(known_of(labels, judged), rankings_of(models), nothing)

    assert found.remainder == 0
    assert ((found.chances > 0) & (found.chances < 1)).all()


def test_the_curve_is_the_likeliest():
    """Its slope vanishes: labels and chances have the same weighted sum and the same product with a feature."""
    rng = np.random.default_rng(4)
    features = np.stack([np.ones(500), rng.normal(size=500)], axis=1)
    labels = (rng.random(500) < 1 / (1 + np.exp(1 - 2 * features[:, 1]))).astype(float)
    weights = rng.uniform(0.5, 2, 500)

    found = logistic(features, labels, weights, np.zeros(500), np.zeros(2))
    chances = 1 / (1 + np.exp(-features @ found))
    assert features.T @ (weights * (labels - chances)) == pytest.approx(np.zeros(2), abs=1e-6)
    assert found == pytest.approx([-1, 2], abs=0.5)


def test_the_likeliest_curve_is_found_where_whole_steps_lead_away():
    """Features on which Newton's whole steps grow without end; no curve near the found one is likelier."""
    score = np.linspace(0.01, 0.99, 40)
    features = np.stack([np.ones(40), np.log(score), -np.log1p(-score)], axis=1)
    labels, weights = (np.arange(40) % 3 == 0).astype(float), np.full(40, 30.0)
    offset = features @ np.array([0.0, 4.0, 4.0])

    found = logistic(features, labels, weights, offset, np.ones(3))
    chances = 1 / (1 + np.exp(-offset - features @ found))
    assert features.T @ (weights * (labels - chances)) == pytest.approx(found, abs=1e-5)

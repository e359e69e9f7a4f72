"""The aggregators on real crowds with worker ids and truth, beside crowd-kit's accuracy on the same sets."""

from __future__ import annotations

import numpy as np
import pytest
from aggregation_kit import RealSet, draw_confused, read_set
from numpy.typing import NDArray

from mitl.crowd.populations import CHARACTERS, parse_population
from mitl.judgements.aggregators import DawidSkeneOptions, fit_dawid_skene
from mitl.judgements.answer_table import UNKNOWN, majority_table
from mitl.judgements.calibration import Calibration, calibration
from mitl.judgements.ordinal import fit_ordinal

CROWD_KIT = {
    # Accuracy of crowd-kit 1.4.2: MajorityVote().fit_predict(labels), DawidSkene(100).fit_predict(labels).
    "SpectralMethodsMeetEM__bluebird": (0.7593, 0.8889),
    "SpectralMethodsMeetEM__rte": (0.8750, 0.9275),
    "SpectralMethodsMeetEM__trec": (0.6611, 0.7015),
    "SpectralMethodsMeetEM__web": (0.6883, 0.8292),
    "active-crowd-toolkit__CF": (0.8800, 0.8300),
    "active-crowd-toolkit__CF_amt": (0.8467, 0.8400),
    "active-crowd-toolkit__MS": (0.7071, 0.7686),
    "active-crowd-toolkit__SP": (0.8822, 0.9152),
    "active-crowd-toolkit__SP_amt": (0.9440, 0.9440),
    "active-crowd-toolkit__ZenCrowd_all": (0.8255, 0.8025),
    "active-crowd-toolkit__ZenCrowd_in": (0.7368, 0.7564),
    "active-crowd-toolkit__ZenCrowd_us": (0.8676, 0.8294),
    "crowd_truth_inference__d_jn-product": (0.8966, 0.9397),
    "crowd_truth_inference__d_sentiment": (0.9320, 0.9600),
    "crowd_truth_inference__s4_Face_Sentiment_Identification": (0.6353, 0.6404),
    "crowd_truth_inference__s4_Relevance": (0.5357, 0.6173),
    "crowdscale2013__fact_eval": (0.9028, 0.8924),
}
EARLY = {
    # crowd-kit stopped here after two to five passes, its bound having fallen.
    "SpectralMethodsMeetEM__bluebird",
    "SpectralMethodsMeetEM__trec",
    "active-crowd-toolkit__CF",
    "active-crowd-toolkit__CF_amt",
    "active-crowd-toolkit__ZenCrowd_all",
    "active-crowd-toolkit__ZenCrowd_us",
    "crowdscale2013__fact_eval",
}
ORDERED = {
    # Three degrees; beyond them stand a broken link, and tweets that are not about weather or cannot be told.
    "crowd_truth_inference__s4_Relevance": 3,
    "active-crowd-toolkit__CF": 3,
    "active-crowd-toolkit__CF_amt": 3,
    # Five grades of a web page, most workers careless.
    "SpectralMethodsMeetEM__web": 5,
}
TWO_LABELS = (
    "SpectralMethodsMeetEM__rte",
    "active-crowd-toolkit__SP_amt",
    "active-crowd-toolkit__ZenCrowd_us",
)


@pytest.mark.shared
@pytest.mark.parametrize("name", sorted(CROWD_KIT))
def test_majority_and_dawid_skene_are_as_right_as_crowd_kits(shared_data, name):
    """Majority: equal but for tied items, which crowd-kit gives to the first label. Dawid-Skene: within 1 %.

    crowd-kit stops when its bound falls, which can happen after two passes; so a set may differ by more where
    that stop is early, and there ours must be fitted further, not worse in likelihood.
    """
    real = read_set(shared_data / "crowd_labels_truth_inference", name)
    majority, skene = CROWD_KIT[name]
    found = majority_table(real.table)
    model = fit_dawid_skene(real.table, DawidSkeneOptions(strength=0))

    doubtful = found.tied[real.judged].mean()
    assert abs(real.accuracy(found.label) - majority) <= doubtful + 1e-4
    assert np.diff(model.convergence.objective).min() > -1e-6 * len(real.table)
    if name not in EARLY:
        assert real.accuracy(model.label) == pytest.approx(skene, abs=0.0101)


@pytest.mark.shared
@pytest.mark.parametrize("name", TWO_LABELS)
def test_the_ordinal_model_is_as_right_and_better_calibrated_on_real_crowds(shared_data, name):
    """Two labels are the shortest scale: accuracy within half a percent of Dawid-Skene's or better, Brier better."""
    real = read_set(shared_data / "crowd_labels_truth_inference", name)
    ordinal, skene = fit_ordinal(real.table), fit_dawid_skene(real.table)
    best = real.truth == 0
    ours = calibration(ordinal.positive(1)[real.judged], best)
    theirs = calibration(skene.posterior[real.judged, 0], best)

    assert real.accuracy(ordinal.label) >= real.accuracy(skene.label) - 0.005
    assert ours.brier < theirs.brier
    assert ours.error < theirs.error


@pytest.mark.shared
@pytest.mark.parametrize("name", ORDERED)
@pytest.mark.thorough(but=("*CF_amt", "*web"))
def test_on_labels_in_order_the_ordinal_model_is_as_right_and_has_the_best_probabilities(shared_data, name):
    """As right as the majority and Dawid-Skene or more, with a prior and without; its Brier score is the lowest.

    An item counts once for each step of the scale: is its label at that step or better?
    """
    real = read_set(shared_data / "crowd_labels_truth_inference", name, scale=ORDERED[name])
    ordinal, skene = fit_ordinal(real.table), fit_dawid_skene(real.table)
    bare = fit_dawid_skene(real.table, DawidSkeneOptions(strength=0))

    for label in (majority_table(real.table).label, skene.label, bare.label):
        assert real.accuracy(ordinal.label) >= real.accuracy(label)
    counts = real.table.counts()
    shares = counts / counts.sum(axis=1, keepdims=True)
    for probability in (shares, skene.posterior):
        assert steps(real, ordinal.level).brier < steps(real, probability).brier


def steps(real: RealSet, probability: NDArray[np.floating]) -> Calibration:
    """The reliability of P(at this step of the scale or better), over all steps but the last."""
    known = probability[real.judged].astype(float)
    best = range(1, known.shape[1])
    return calibration(
        np.concatenate([known[:, :n].sum(axis=1).clip(0, 1) for n in best]),
        np.concatenate([real.truth < n for n in best]),
    )


@pytest.mark.parametrize("per_pair", [1, 3])
def test_scripted_workers_are_seen_through(per_pair):
    """The usual mixture: the ordinal model is as right as the others, and better calibrated on match or no match."""
    crowd = parse_population("mixed").characters(40, seed=1)
    matrices = np.array([CHARACTERS[name].confusion for name in crowd])
    table, truth = draw_confused(2400, matrices, per_pair, shares=(0.25,) * 4, seed=1)
    known = np.full(table.n_items, UNKNOWN)
    golds = np.flatnonzero((truth == 0) | (truth == 3))[:240]
    known[golds] = truth[golds]
    table, asked = table.with_known(known), known == UNKNOWN
    ordinal, skene, majority = fit_ordinal(table), fit_dawid_skene(table), majority_table(table)

    assert (ordinal.label == truth)[asked].mean() >= (skene.label == truth)[asked].mean() - 0.005
    assert (ordinal.label == truth)[asked].mean() >= (majority.label == truth)[asked].mean()
    match = (truth < 2)[asked]
    scores = [
        calibration(probability[asked].clip(0, 1), match).brier
        for probability in (ordinal.positive(), skene.posterior[:, :2].sum(axis=1), majority.positive)
    ]
    assert scores[0] == min(scores)

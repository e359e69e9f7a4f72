"""Machine labels by strata: sides, disputes, levels, how many workers side with the machine, refusals in one line."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from mitl.audits.machine_labels import (
    FEW_REPEATS,
    Loss,
    Promise,
    label_pairs,
    level_cuts,
    refusal,
    siding_upper,
)
from mitl.errors import AuditError
from mitl.records import AuditPurpose, Label
from mitl.records.audits import AUDITED, AuditDesign, Stratum
from mitl.records.frames import LABELS, NONE, frame

YES, WEAK_YES, WEAK_NO, NO = range(4)
N, M = 4000, 600


def design(size: int = N, sample: int = M) -> AuditDesign:
    """One stratum of all open pairs."""
    return AuditDesign(AuditPurpose.LABELS, 0, (Stratum("open", size, sample, 0.0, 0.5),))


def scored(probability: np.ndarray) -> pd.DataFrame:
    """Pairs 10, 20, … with these probabilities."""
    pairs = 10 * np.arange(1, len(probability) + 1)
    return pd.DataFrame({"pair": pairs, "probability": probability, "stratum": 0})


def audited(places: np.ndarray, answers: np.ndarray) -> pd.DataFrame:
    """The pairs at these places, drawn in this order, with (m, 3) answers."""
    columns = dict(zip(("first", "second", "third"), answers.T, strict=True))
    count = len(places)
    return frame(
        AUDITED,
        {
            "pair": 10 * (places + 1),
            "place": np.arange(1, count + 1),
            "stratum": np.zeros(count),
            "inclusion": np.full(count, 0.1),
            "recheck": np.zeros(count, bool),
            "known": np.zeros(count, bool),
            **columns,
        },
    )


@pytest.fixture(scope="module")
def world() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Calibrated probabilities, the truth by them, and a sample."""
    rng = np.random.default_rng(1)
    probability = rng.beta(0.3, 0.3, N)
    return probability, rng.random(N) < probability, rng.choice(N, M, replace=False)


def answers_of(match: np.ndarray, *further: np.ndarray) -> np.ndarray:
    """First answers by the truth; two further ones where they are given."""
    found = np.full((len(match), 3), NONE, np.int8)
    for column, said in enumerate((match, *further)):
        found[:, column] = np.where(said, YES, NO)
    return found


def test_each_side_has_a_threshold_and_what_stands_is_beyond_it_and_was_not_sampled(world) -> None:
    """Labels carry the side of their probability and the name of their stratum."""
    probability, match, sample = world
    found = label_pairs(
        scored(probability), audited(sample, answers_of(match[sample])), design(), Promise(0.05), siding=0.0
    )
    assert [part.name for part in found.strata] == ["match", "no match"]
    labels = found.labels
    assert labels["pair"].is_monotonic_increasing
    assert not set(labels["pair"]) & set(10 * (sample + 1))
    assert ((labels["label"] <= WEAK_YES) == (labels["probability"] >= 0.5)).all()
    assert ((labels["stratum"] == "match") == (labels["probability"] >= 0.5)).all()
    for part in found.strata:
        own = labels[labels["stratum"] == part.name]["probability"]
        assert (np.minimum(own, 1 - own) < part.threshold.cut).all()
        assert 0 < part.threshold.bound <= 0.05
    wrong = (labels["label"] <= WEAK_YES).to_numpy() != match[labels["pair"].to_numpy() // 10 - 1]
    assert wrong.sum() <= 0.05 * N


def test_pairs_as_sure_as_the_error_that_ends_it_get_no_label(world) -> None:
    """What is labelled is what was bounded, ties too."""
    probability, match, sample = world
    coarse = probability.round(2)
    given = scored(coarse), audited(sample, answers_of(match[sample])), design()
    found = label_pairs(*given, Promise(0.05), siding=0.0)
    assert all(np.isfinite(part.threshold.cut) for part in found.strata)
    labels = found.labels["stratum"].value_counts()
    assert [labels[part.name] for part in found.strata] == [part.threshold.labelled for part in found.strata]


def test_measuring_who_sides_with_the_machine_has_its_share_of_the_risk(world) -> None:
    """A share that is given costs none."""
    probability, match, sample = world
    given = scored(probability), audited(sample, answers_of(match[sample])), design()
    measured = label_pairs(*given, Promise(0.1, confidence=0.95), siding=0.1)
    same = label_pairs(*given, Promise(0.1, confidence=0.955, siding=0.1), siding=0.1)
    less = label_pairs(*given, Promise(0.1, confidence=0.95, siding=0.1), siding=0.1)
    assert measured.strata == same.strata != less.strata


def test_more_may_be_lost_than_wrongly_matched_where_that_is_said(world) -> None:
    """The side of no match has its own tolerance."""
    probability, match, sample = world
    given = scored(probability), audited(sample, answers_of(match[sample])), design()
    same, more = (label_pairs(*given, Promise(0.04, lost=lost), siding=0.0) for lost in (None, 0.08))
    (match_same, no_same), (match_more, no_more) = (
        [part.threshold.labelled for part in found.strata] for found in (same, more)
    )
    assert match_same == match_more
    assert no_more > no_same


def test_a_majority_of_three_decides_disputes_and_an_open_dispute_counts_as_an_error(world) -> None:
    """So that an answer that is missing never lowers the bound."""
    probability, _, sample = world
    machine = probability[sample] >= 0.5
    slips = np.zeros(M, bool)
    slips[:30] = True
    first = machine ^ slips

    def seen(answers: np.ndarray) -> tuple[float, int]:
        found = label_pairs(scored(probability), audited(sample, answers), design(), Promise(), siding=0.0)
        return sum(part.threshold.loss for part in found.strata), len(found.disputed)

    assert seen(answers_of(first)) == (30, 30)
    assert seen(answers_of(first, machine)) == (30, 30)
    assert seen(answers_of(first, ~machine)) == (30, 0)
    assert seen(answers_of(first, machine, machine)) == (0, 0)
    assert seen(answers_of(first, machine, ~machine)) == (30, 0)


def test_levels_are_measured_in_thirds_against_the_middle_answer(world) -> None:
    """A weak yes for a yes costs a third; the middle of three answers counts."""
    probability, _, sample = world
    label = (probability[sample, None] < np.array([0.75, 0.5, 0.25])).sum(axis=1)
    near = np.clip(label + 1, 0, 3)
    answers = np.full((M, 3), NONE, np.int8)
    answers[:, 0] = np.where(np.arange(M) < 30, near, label)
    found = label_pairs(
        scored(probability), audited(sample, answers), design(), Promise(loss=Loss.ORDINAL), siding=0.0
    )
    assert sum(part.threshold.loss for part in found.strata) == pytest.approx((near - label)[:30].sum() / 3)
    answers[:30, 1:] = label[:30, None]
    found = label_pairs(
        scored(probability), audited(sample, answers), design(), Promise(loss=Loss.ORDINAL), siding=0.0
    )
    assert sum(part.threshold.loss for part in found.strata) == 0


def test_strata_of_the_design_are_told_apart(world) -> None:
    """Each with the sample that was drawn from it; one without pairs has no threshold."""
    probability, match, sample = world
    low = np.arange(N) < N // 2
    strata = (
        Stratum("first", N // 2, int(low[sample].sum()), 0.0, 0.5),
        Stratum("second", N // 2, M - int(low[sample].sum()), 0.0, 0.5),
    )
    drawn = audited(sample, answers_of(match[sample]))
    drawn["stratum"] = (~low[sample]).astype(np.int16)
    table = scored(probability)
    table["stratum"] = (~low).astype(np.int16)
    found = label_pairs(table, drawn, AuditDesign(AuditPurpose.LABELS, 0, strata), Promise(0.1), siding=0.0)
    assert [part.name for part in found.strata] == [
        "first, match",
        "first, no match",
        "second, match",
        "second, no match",
    ]
    assert sum(part.threshold.pairs for part in found.strata) == N


def test_what_cannot_be_said_is_refused_in_one_line(world) -> None:
    """Answers that are missing, pairs without a score, a score that tells nothing apart, a sample that is too small."""
    probability, match, sample = world
    answers = answers_of(match[sample])
    open_ = answers.copy()
    open_[:7, 0] = NONE
    with pytest.raises(AuditError, match=r"no usable answer yet on 7 of the 600 sampled pairs"):
        label_pairs(scored(probability), audited(sample, open_), design(), Promise(), siding=0.0)
    with pytest.raises(AuditError, match="no score for 588 of the 600 sampled pairs"):
        label_pairs(scored(probability[:100]), audited(sample, answers), design(), Promise(), siding=0.0)
    with pytest.raises(AuditError, match="same probability"):
        label_pairs(scored(np.full(N, 0.3)), audited(sample, answers), design(), Promise(), siding=0.0)
    few = label_pairs(
        scored(probability), audited(sample[:60], answers[:60]), design(sample=60), Promise(), siding=0.0
    )
    line = refusal(few, Promise(), design(sample=60))
    assert line is not None
    assert "at least" in line and "pairs are open" not in line
    exact = replace(Promise(), error=0.01234, lost=0.01234, confidence=0.999)
    line = refusal(few, exact, design(sample=60))
    assert line is not None and "at most 1.234% wrong labels" in line and "with confidence 99.9%" in line
    assert "\n" not in line
    assert not len(few.labels)
    left = scored(probability).iloc[np.union1d(sample[:60], np.arange(50))]
    late = label_pairs(left, audited(sample[:60], answers[:60]), design(sample=60), Promise(), siding=0.0)
    line = refusal(late, Promise(), design(sample=60))
    assert line is not None and f"but only {len(left) - 60} pairs are open" in line


def test_a_refusal_wants_as_much_of_the_whole_sample_as_its_nearest_stratum_wants_of_its_own(world) -> None:
    """Two halves of the pairs, a third of the sample in one of them: with what it says, a stratum passes."""
    probability, match, _ = world
    first = np.arange(N) < N // 2

    def labelled(sample: int):
        counts = sample // 3, sample - sample // 3
        drawn = np.concatenate([np.arange(counts[0]), N // 2 + np.arange(counts[1])])
        strata = tuple(Stratum(name, N // 2, n, 0.0, 0.5) for name, n in zip("ab", counts, strict=True))
        parts = AuditDesign(AuditPurpose.LABELS, 0, strata)
        pairs = scored(probability).assign(stratum=np.where(first, 0, 1))
        answers = audited(drawn, answers_of(match[drawn])).assign(stratum=np.where(first[drawn], 0, 1))
        agreeing = pairs.assign(probability=np.where(match, 0.6 + probability / 3, probability / 3))
        found = label_pairs(agreeing, answers, parts, Promise(error=0.05), siding=0.0)
        return refusal(found, Promise(error=0.05), parts), found

    line, few = labelled(60)
    assert line is not None and not len(few.labels)
    more = int(re.search(r"at least (\d+) more", line)[1])
    assert more > 0
    assert labelled(60 + more - 6)[0] is not None
    line, enough = labelled(60 + more + 3)
    assert line is None and len(enough.labels)


def test_siding_is_measured_on_weak_pairs_then_on_all_and_is_half_where_nothing_is_known() -> None:
    """The upper end of the share on which two workers disagree."""
    weak = np.full(FEW_REPEATS, WEAK_YES, np.int8)
    sure = np.full(200, YES, np.int8)
    assert siding_upper(weak[:5], weak[:5], 0.05) == 0.5
    agreed = siding_upper(weak, weak, 0.05)
    assert agreed == pytest.approx(1 - 0.05 ** (1 / FEW_REPEATS))
    assert siding_upper(sure, sure, 0.05) < 0.02
    both = np.concatenate([sure, weak]), np.concatenate([sure, np.full(FEW_REPEATS, WEAK_NO, np.int8)])
    assert siding_upper(*both, 0.05) == 0.5


def test_levels_part_where_answers_are_least_far() -> None:
    """Each step of the scale on its own; the sides at one half."""
    rng = np.random.default_rng(0)
    probability = rng.random(3000)
    label = (probability[:, None] < np.array([0.8, 0.5, 0.3])).sum(axis=1).astype(np.int8)
    yes, middle, weak_no = level_cuts(probability, label)
    assert middle == 0.5
    assert yes == pytest.approx(0.8, abs=0.01)
    assert weak_no == pytest.approx(0.3, abs=0.01)
    assert LABELS[int(label[probability.argmax()])] is Label.YES

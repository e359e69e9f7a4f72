"""The answer of a pair from the answers of its workers."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_kit import answers_by_pair, majority, most_positive

from mitl.positives.pair_answers import PairAnswer, judgement_frame, majority_answers
from mitl.records import Judgement, Label, Outcome, Pair, PairRole

YES, WEAK_YES, WEAK_NO, NO = Label
LABELS = st.lists(st.sampled_from(Label), min_size=1, max_size=9)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([YES], YES),
        ([YES, YES, NO], YES),
        ([YES, NO], NO),
        ([WEAK_YES, WEAK_NO], WEAK_NO),
        ([YES, WEAK_YES, NO], WEAK_YES),
        ([YES, YES, WEAK_NO, NO, NO], NO),
        ([YES, YES, WEAK_YES, NO, NO], YES),
        ([YES, YES, WEAK_NO, WEAK_NO, NO], WEAK_NO),
    ],
)
def test_ties_go_to_the_label_nearer_the_median_then_towards_no(labels, expected):
    """Worked by hand."""
    assert majority(labels) is expected


@settings(deadline=None)
@given(LABELS, st.randoms(use_true_random=False))
def test_majority_does_not_depend_on_order(labels, random):
    """Any order of the same answers gives the same label."""
    shuffled = list(labels)
    random.shuffle(shuffled)

    assert majority(shuffled) is majority(labels)


@settings(deadline=None)
@given(LABELS)
def test_majority_is_a_most_frequent_label_and_none_as_frequent_is_nearer_the_median(labels):
    """The definition, checked from its outcome."""
    chosen = majority(labels)
    middle = statistics.median(label.code for label in labels)
    rivals = [label for label in Label if labels.count(label) == labels.count(chosen)]

    assert labels.count(chosen) == max(labels.count(label) for label in Label)
    assert all(
        (abs(chosen.code - middle), -chosen.code) <= (abs(rival.code - middle), -rival.code)
        for rival in rivals
    )


@settings(deadline=None)
@given(LABELS)
def test_a_strict_majority_always_wins(labels):
    """More than half of the answers decide alone."""
    frequent = [label for label in Label if 2 * labels.count(label) > len(labels)]

    assert [majority(labels)] == frequent or not frequent


def test_no_answers_have_no_majority():
    """Nothing is made up for a pair that nobody answered."""
    with pytest.raises(ValueError, match="no labels"):
        majority([])


@settings(deadline=None)
@given(LABELS)
def test_the_most_positive_answer_is_positive_if_any_is(labels):
    """The rule of the official merge."""
    assert most_positive(labels).is_positive == any(label.is_positive for label in labels)


def test_candidates_repeats_and_overlaps_count_and_golds_never():
    """One pair asked in every role, and once in vain."""
    pair = Pair(1, 2)
    judgements = [Judgement(pair, f"A{n}", YES, role=role) for n, role in enumerate(PairRole)]
    judgements += [
        Judgement(pair, "A7", NO),
        Judgement(pair, "A8", NO, usable=False),
        Judgement(pair, "A9", None, outcome=Outcome.SKIPPED),
        Judgement(Pair(0, 0), "A9", None, outcome=Outcome.SKIPPED),
    ]

    assert majority_answers(judgement_frame(judgements)) == {pair: PairAnswer(YES, 4, 0.75)}
    assert answers_by_pair(judgements) == {pair: PairAnswer(YES, 4, 0.75)}

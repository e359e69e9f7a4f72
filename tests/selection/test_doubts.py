"""Which calls are in doubt, by the fused probability, the answers and who gave them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from mitl.records.frames import NONE, PROPOSALS, frame
from mitl.selection.choice import GivenAnswers, SelectionProblem, called_pairs, match_probability
from mitl.selection.strategies import FALSE_MATCH, select

YES, NO = 0, 3


def _answers(*given_: tuple[int, int, int]) -> GivenAnswers:
    """Of (pair, label, worker)."""
    rows, labels, workers = np.array(given_, np.int64).reshape(-1, 3).T
    return GivenAnswers(rows, labels.astype(np.int8), workers)


def _pool(probability: list[float], answers: GivenAnswers, machine: dict[int, int] | None = None):
    labels = np.full(len(probability), NONE, np.int8)
    for row, label in (machine or {}).items():
        labels[row] = label
    return called_pairs(np.arange(len(probability)), np.array(probability), answers, labels)


def test_a_call_is_peoples_majority_else_the_machines_and_none_where_they_are_divided():
    """What has neither an answer nor a label is left out; two who agree, or three, close a pair."""
    answers = _answers(
        (0, YES, 1),
        (1, NO, 1),
        (2, YES, 1),
        (2, YES, 2),
        (3, YES, 1),
        (3, NO, 2),
        (4, YES, 1),
        (4, NO, 2),
        (4, YES, 3),
    )

    pool = _pool([0.5] * 8, answers, {5: YES, 6: NO, 1: YES}).set_index("pair")

    assert pool.index.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert pool.index[pool["positive"]].tolist() == [0, 2, 4, 5]
    assert pool.index[pool["negative"]].tolist() == [1, 3, 6]
    assert pool.index[pool["open"]].tolist() == [0, 1, 3, 5, 6]


def test_answers_that_the_probability_contradicts_come_first_and_a_lost_match_before_a_false_one():
    """The order is that of the expected loss, after the answers."""
    probability = [0.97, 0.03, 0.97, 0.03, 0.5]
    answers = _answers((0, NO, 0), (1, YES, 1), (2, YES, 2), (3, NO, 3), (4, YES, 4))
    pool = _pool(probability, answers)
    nobody = frame(PROPOSALS, dict.fromkeys(PROPOSALS, ()))

    chosen = select("doubts", SelectionProblem(pool, nobody, 4, seed=0))

    match = match_probability(np.array(probability), answers)
    loss = np.where(pool["positive"], FALSE_MATCH * (1 - match), match)
    assert chosen["pair"].tolist()[:2] == [0, 1]
    assert chosen["score"].tolist() == pytest.approx(np.sort(loss)[::-1][:4].tolist())


def test_the_answer_of_a_worker_who_clicks_anything_weighs_less():
    """Learnt from the answers and the probabilities alone."""
    rng = np.random.default_rng(0)
    truth = rng.random(600) < 0.5
    probability = np.where(truth, 0.9, 0.1)
    careful = [(row, YES if truth[row] else NO, row % 3) for row in range(300)]
    careless = [(row, YES if rng.random() < 0.5 else NO, 3 + row % 3) for row in range(300, 600)]
    # Both say of a pair that is likely none that it is a match.
    probability[[0, 300]] = 0.1
    careful[0], careless[0] = (0, YES, 0), (300, YES, 3)

    match = match_probability(probability, _answers(*careful, *careless))

    assert match[0] > 0.5 > 0.2 > match[300]


@given(
    given_=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, 4)), max_size=40),
    probability=st.lists(st.floats(0, 1), min_size=10, max_size=10),
)
@limits(max_examples=40)
def test_a_probability_whatever_is_answered(given_, probability):
    """Between 0 and 1, the same for any order of the answers, and the fused one where nobody answered."""
    answers, other = _answers(*given_), _answers(*given_[::-1])
    match = match_probability(np.array(probability), answers)

    assert ((match > 0) & (match < 1)).all()
    np.testing.assert_allclose(match, match_probability(np.array(probability), other), rtol=1e-6)
    alone = np.setdiff1d(np.arange(10), answers.rows)
    np.testing.assert_allclose(match[alone], np.array(probability)[alone].clip(2e-3, 1 - 2e-3))

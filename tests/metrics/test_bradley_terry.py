"""Bradley-Terry strengths: the paper's figures, closed forms, symmetries, and tables without a maximum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mitl.analysis.bradley_terry import TieRule, bootstrap, strengths
from mitl.errors import MetricError

TABLE_D1 = np.array(
    [
        [0, 231, 66, 111, 316],
        [89, 0, 21, 79, 328],
        [254, 299, 0, 273, 343],
        [185, 217, 23, 0, 287],
        [28, 16, 1, 9, 24],
    ],
    float,
)
"""Table D.1 as printed; what its rows are called there is permuted, see the errata in docs/preference.md."""


def test_the_counts_of_table_d1_give_the_scores_of_its_text():
    """In the printed order: 10.66, 4.89, 70.85, 13.15, 0.44, which the text gives to C, D, A, B, E."""
    assert np.round(strengths(TABLE_D1).scores, 2).tolist() == [10.66, 4.89, 70.85, 13.15, 0.44]


def counts(low: int = 1) -> st.SearchStrategy[np.ndarray]:
    """Tables of 2 to 6 things in which everybody has won against everybody, so that a maximum exists."""
    return st.integers(2, 6).flatmap(
        lambda n: arrays.arrays(np.float64, (n, n), elements=st.integers(low, 30).map(float))
    )


@settings(max_examples=30, deadline=None)
@given(wins=counts(), factor=st.integers(2, 50))
def test_strengths_do_not_depend_on_how_often_all_was_asked(wins, factor):
    """Every count times the same number gives the same strengths."""
    assert strengths(wins * factor).scores == pytest.approx(strengths(wins).scores, rel=1e-6)


@settings(max_examples=30, deadline=None)
@given(wins=counts(), data=st.data(), rule=st.sampled_from(TieRule))
def test_strengths_follow_their_things_through_any_order(wins, data, rule):
    """Permuted rows and columns give permuted strengths, with ties too."""
    order = data.draw(st.permutations(range(len(wins))))
    ties = np.triu(wins, 1) + np.triu(wins, 1).T
    moved = np.ix_(order, order)

    found = strengths(wins[moved], ties[moved], rule=rule).scores

    assert found == pytest.approx(strengths(wins, ties, rule=rule).scores[order], rel=1e-5)


@settings(max_examples=30, deadline=None)
@given(first=st.integers(1, 1000), second=st.integers(1, 1000), tied=st.integers(0, 200))
def test_two_things_have_a_closed_form(first, second, tied):
    """Half wins: the share of wins. Davidson: the share of wins too, and ν = ties / √(wins × wins)."""
    wins, ties = np.array([[0, first], [second, 0.0]]), np.array([[0, tied], [tied, 0.0]])

    half, davidson = strengths(wins, ties), strengths(wins, ties, rule=TieRule.DAVIDSON)

    total = first + second + tied
    assert half.scores[0] == pytest.approx(100 * (first + tied / 2) / total, rel=1e-6)
    assert davidson.scores[0] == pytest.approx(100 * first / (first + second), rel=1e-4)
    assert davidson.tie == pytest.approx(tied / np.sqrt(first * second), rel=1e-4)


@settings(max_examples=30, deadline=None)
@given(wins=counts(), rule=st.sampled_from(TieRule))
def test_no_small_step_from_the_maximum_is_likelier(wins, rule):
    """The log-likelihood, written out, falls in every direction."""
    ties = np.triu(wins, 1) + np.triu(wins, 1).T if rule is TieRule.DAVIDSON else np.zeros_like(wins)
    found = strengths(wins, ties, rule=rule)

    best = _log_likelihood(wins, ties, found.scores, found.tie)

    for place in range(len(wins)):
        for factor in (0.99, 1.01):
            moved = found.scores.copy()
            moved[place] *= factor
            assert _log_likelihood(wins, ties, moved, found.tie) <= best + 1e-9
    if rule is TieRule.DAVIDSON:
        assert _log_likelihood(wins, ties, found.scores, found.tie * 1.01) <= best + 1e-9


def _log_likelihood(wins, ties, p, tie):
    total = 0.0
    for i in range(len(p)):
        for j in range(i + 1, len(p)):
            whole = p[i] + p[j] + tie * np.sqrt(p[i] * p[j])
            total += wins[i, j] * np.log(p[i] / whole) + wins[j, i] * np.log(p[j] / whole)
            if ties[i, j]:
                total += ties[i, j] * np.log(tie * np.sqrt(p[i] * p[j]) / whole)
    return total


@pytest.mark.parametrize("rule", TieRule)
def test_known_strengths_are_recovered(rule):
    """Counts in the very proportions of the model give back its strengths and its ν."""
    p = np.array([50.0, 25.0, 15.0, 8.0, 2.0])
    tie = 0.7 if rule is TieRule.DAVIDSON else 0.0
    root = np.sqrt(np.outer(p, p))
    whole = p[:, None] + p[None, :] + tie * root

    found = strengths(1000 * p[:, None] / whole, 1000 * tie * root / whole, rule=rule)

    assert found.scores == pytest.approx(p, rel=1e-6)
    assert found.tie == pytest.approx(tie, rel=1e-6)


@pytest.mark.parametrize(("workers", "each"), [(300, 1), (8, 40)])
def test_intervals_hold_the_truth_about_as_often_as_they_say(workers, each):
    """Over 60 worlds 90 % intervals miss the true strength about one time in ten, also where few workers answer."""
    rng = np.random.default_rng(1)
    p = np.array([60.0, 30.0, 10.0])
    held = []
    for _ in range(60):
        wins = np.zeros((workers, 3, 3))
        for of_worker in wins:
            for _ in range(each):
                one, other = rng.permutation(3)[:2]
                first = rng.random() < p[one] / (p[one] + p[other])
                of_worker[(one, other) if first else (other, one)] += 1
        bounds = bootstrap(wins, np.zeros_like(wins), samples=200, confidence=0.9)
        held += ((bounds.low <= p) & (p <= bounds.high)).tolist()

    assert 0.82 <= np.mean(held) <= 0.97


def test_intervals_are_the_same_for_the_same_seed_and_wider_where_few_were_asked():
    """Ten times the answers give an interval about a third as wide."""
    one = np.array([[0, 1.0], [0, 0]])
    units = np.stack([one] * 12 + [one.T] * 8)
    many = np.tile(units, (10, 1, 1))

    few = bootstrap(units, np.zeros_like(units), seed=3)
    again = bootstrap(units, np.zeros_like(units), seed=3)
    more = bootstrap(many, np.zeros_like(many), seed=3)

    assert few.low.tolist() == again.low.tolist()
    assert (more.high - more.low)[0] == pytest.approx((few.high - few.low)[0] / np.sqrt(10), rel=0.25)


@pytest.mark.parametrize("rule", TieRule)
def test_single_answers_are_resampled_from_their_counts_however_many_there_are(rule):
    """As one unit for each answer gives them, but for the draw; a billion answers take no more room than 60."""
    wins, ties = np.array([[0, 9.0, 5], [6, 0, 8], [4, 3, 0]]), np.ones((3, 3)) * 5 - 5 * np.eye(3)
    places = np.concatenate(
        [np.repeat(np.arange(18), np.concatenate([wins.ravel(), np.triu(ties).ravel()]).astype(int))]
    )
    units = np.eye(18)[places].reshape(-1, 2, 3, 3)
    tied = units[:, 1] + units[:, 1].transpose(0, 2, 1)

    single = bootstrap(wins, ties, rule=rule)
    one_by_one = bootstrap(units[:, 0], tied, rule=rule)
    many = bootstrap(wins * 2e7, ties * 2e7, samples=50, rule=rule)

    assert single.low == pytest.approx(one_by_one.low, rel=0.2)
    assert single.high == pytest.approx(one_by_one.high, rel=0.1)
    assert many.low == pytest.approx(strengths(wins, ties, rule=rule).scores, rel=0.01)


def test_resamples_in_which_somebody_won_nothing_are_counted_and_not_lost():
    """One win of five: a third of the resamples lack it."""
    one = np.array([[0, 1.0], [0, 0]])
    units = np.stack([one] * 4 + [one.T])

    bounds = bootstrap(units, np.zeros_like(units), samples=400)

    assert 80 <= bounds.without_maximum <= 190
    assert bounds.high[0] > 95


@pytest.mark.parametrize(
    ("wins", "message"),
    [
        ([[0, 3, 1], [2, 0, 1], [0, 0, 0]], "'c' was never preferred to any of 'a', 'b', so"),
        ([[0, 3, 0], [2, 0, 0], [0, 0, 0]], "'c' was never compared with any of 'a', 'b', so .* --batch"),
        ([[0, 3, 1], [2, 0, -1], [0, 0, 0]], "a count is below 0 or not finite"),
        ([[0, 3, 1], [2, 0, np.nan], [0, 0, 0]], "a count is below 0 or not finite"),
    ],
)
def test_what_has_no_strengths_is_said_in_one_line(wins, message):
    """Who is never preferred to the rest, or never met it, has no finite strength."""
    with pytest.raises(MetricError, match=message):
        strengths(np.array(wins, float), names=["a", "b", "c"])


def test_ties_alone_have_no_strength_of_ties():
    """Ever more of them is ever likelier; as half wins they are all alike."""
    none, ties = np.zeros((2, 2)), np.array([[0, 4.0], [4, 0]])

    assert strengths(none, ties).scores == pytest.approx([50, 50])
    with pytest.raises(
        MetricError, match="all answers are ties, so Davidson's strength of ties has no maximum"
    ):
        strengths(none, ties, rule=TieRule.DAVIDSON)


@pytest.mark.parametrize(
    ("wins", "ties", "has"),
    [
        ([[0, 5], [0, 0]], [[0, 3], [3, 0]], False),
        ([[0, 5], [1, 0]], [[0, 3], [3, 0]], True),
        ([[0, 5, 4], [0, 0, 3], [0, 0, 0]], [[0, 3, 1], [3, 0, 2], [1, 2, 0]], True),
        ([[0, 0, 4], [0, 0, 3], [0, 0, 0]], [[0, 0, 1], [0, 0, 2], [1, 2, 0]], False),
    ],
)
def test_wins_over_those_who_only_tie_have_no_strength_of_ties(wins, ties, has):
    """The farther two are apart the stronger ties must be, unless two steps apart are tied as one step is."""
    wins, ties = np.array(wins, float), np.array(ties, float)
    if has:
        assert strengths(wins, ties, rule=TieRule.DAVIDSON).tie > 0
    else:
        with pytest.raises(MetricError, match="no wins speak against ever stronger ties"):
            strengths(wins, ties, rule=TieRule.DAVIDSON)


def test_resamples_in_which_davidsons_ties_run_away_are_counted():
    """Of two with one win against five, the one is not drawn in a third of the resamples."""
    wins, ties = np.array([[0, 5.0], [1, 0]]), np.array([[0, 3.0], [3, 0]])

    bounds = bootstrap(wins, ties, samples=500, rule=TieRule.DAVIDSON)

    expected = 500 * (1 - 1 / 9) ** 9  # a few lack ties or the five as well
    assert bounds.without_maximum == pytest.approx(expected, rel=0.2)


def test_a_prior_gives_a_maximum_where_there_was_none():
    """Half a win each way: 3 wins of 3 become 3.5 of 4."""
    assert strengths(np.array([[0, 3.0], [0, 0]]), prior=0.5).scores == pytest.approx([87.5, 12.5])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"wins": np.ones((2, 3))}, "must be square"),
        ({"wins": np.ones((1, 1))}, "there is 1 to compare"),
        ({"wins": np.ones((2, 2)), "names": ["a"]}, "1 names were given for 2 rows"),
        ({"wins": np.ones((2, 2)), "ties": np.array([[0, 1.0], [2, 0]])}, "the same both ways"),
        ({"wins": np.ones((2, 2)), "prior": -1.0}, "the prior is -1.0"),
    ],
)
def test_what_is_no_table_of_preferences_is_said_in_one_line(arguments, message):
    """Shapes, names, ties and priors that cannot be meant."""
    with pytest.raises(MetricError, match=message):
        strengths(**arguments)

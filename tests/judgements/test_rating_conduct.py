"""How raters go about it: one number, straight lines, drift, controls; honest raters are left alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suite_kit import examples

from mitl.judgements.gold_records import GoldRecord
from mitl.judgements.rating_conduct import (
    CONTROLS,
    DRIFTS,
    MIN_SCORES,
    NEAR,
    ONE_NUMBER,
    STRAIGHT_LINE,
    rating_conduct,
)
from mitl.judgements.rating_tests import chance_of_at_least, drift, rows
from mitl.records import Outcome
from mitl.records.frames import frame
from mitl.records.similarity import RATINGS, SIMILARITY_ROLES, SimilarityRole

PER_PAGE = 10


def crowd(styles, pages=6, seed=1, truth=None):
    """Ratings of raters of these styles, who all rate the same pages: seven pairs and the three controls on each.

    Args:
        styles: rater → (true score, number of the answer, generator) → score.
        truth: generator, pairs → their true scores; by default anywhere on the scale.
    """
    rng = np.random.default_rng(seed)
    n = 7 * pages
    scores = (truth or (lambda rng, n: rng.uniform(0, 5, n)))(rng, n)
    columns = {name: [] for name in RATINGS}
    roles = [SimilarityRole.ASKED] * 7 + [
        SimilarityRole.IDENTICAL,
        SimilarityRole.RANDOM,
        SimilarityRole.REPEATED,
    ]
    orders = [rng.permutation(PER_PAGE) for _ in range(pages)]
    for number, (name, style) in enumerate(styles.items()):
        at = 0
        for page, order in enumerate(orders):
            for place, slot in enumerate(order, 1):
                role = roles[slot]
                pair = 7 * page + (slot if slot < 7 else 0)
                known = {SimilarityRole.IDENTICAL: 5.0, SimilarityRole.RANDOM: 0.0}.get(role, scores[pair])
                given_score = np.clip(np.round(style(known, at, rng), 2), 0, 5)
                at += 1
                row = {
                    "pair": pair
                    if role in (SimilarityRole.ASKED, SimilarityRole.REPEATED)
                    else 10_000 + 10 * page + slot,
                    "task": 0,
                    "worker": name,
                    "score": given_score,
                    "outcome": tuple(Outcome).index(Outcome.ANSWERED),
                    "role": SIMILARITY_ROLES.index(role),
                    "swapped": False,
                    "hit": page,
                    "assignment": 100 * page + number,
                    "place": place,
                    "active_ms": 1000 * (3 + number),
                    "usable": True,
                }
                for column, value in row.items():
                    columns[column].append(value)
    return frame(RATINGS, columns)


def honest(truth, at, rng):
    """Follows the pair, half a level off."""
    return truth + rng.normal(0, 0.5)


def coarse(truth, at, rng):
    """The same by whole levels, as who answers by digits."""
    return np.round(truth + rng.normal(0, 0.4))


OTHERS = {"a": honest, "b": honest, "c": coarse, "d": honest}


def codes(conduct):
    """What was noticed."""
    return [finding.code for finding in conduct.findings]


def beside(style, **wish):
    """What is said of a rater of this style among four honest ones."""
    return rating_conduct(crowd({**OTHERS, "x": style}, **wish))["x"]


@pytest.mark.parametrize("value", [0.0, 2.5, 5.0])
def test_one_number_for_all_is_noticed(value):
    """With the share, the value and what others gave; the controls tell too."""
    conduct = beside(lambda truth, at, rng: value + rng.uniform(-0.05, 0.05))

    assert {ONE_NUMBER, CONTROLS} <= set(codes(conduct))
    assert conduct.one_number.share == 1 and conduct.one_number.value == pytest.approx(value, abs=NEAR)
    assert conduct.one_number.spread < 0.05 and conduct.one_number.others < 0.4
    assert "100 % of 42 scores lie within 0.05 of" in conduct.findings[0].detail


def test_one_number_for_most_is_noticed():
    """Who looks at some pairs and gives the rest one number."""
    conduct = beside(lambda truth, at, rng: truth if at % 3 == 0 else 3.0)

    assert codes(conduct)[0] == ONE_NUMBER and 0.6 < conduct.one_number.share < 0.8


def test_pairs_that_are_all_alike_accuse_nobody():
    """Images with their own captions: one rater gives 5 to all, others nearly that."""
    conduct = beside(
        lambda truth, at, rng: np.round(truth),
        truth=lambda rng, n: rng.uniform(4.8, 5, n),
    )

    assert conduct.one_number.share == 1 and conduct.one_number.others > 0.3
    alike = rating_conduct(
        crowd(
            {name: lambda truth, at, rng: 5 * np.round(truth / 5) for name in "abcde"},
            truth=lambda rng, n: np.full(n, 5.0),
        )
    )
    assert all(codes(one) == [] for one in alike.values())


def test_a_straight_line_on_each_page_is_noticed():
    """All answers of a page alike, though pages differ: no one number, and the variety is large."""
    conduct = beside(lambda truth, at, rng: at // PER_PAGE % 5 + 0.5)

    assert STRAIGHT_LINE in codes(conduct) and ONE_NUMBER not in codes(conduct)
    assert (conduct.line.lag, conduct.line.longest) == (1, PER_PAGE)
    assert "the longest row is 10 ×" in conduct.line.text


@pytest.mark.parametrize("lag", [2, 3, 4])
def test_a_sequence_that_comes_round_is_noticed(lag):
    """1, 3, 1, 3, … or a longer one."""
    conduct = beside(lambda truth, at, rng: 1 + at % PER_PAGE % lag)

    assert STRAIGHT_LINE in codes(conduct) and conduct.line.lag in (0, lag)


def test_the_same_sequence_on_every_page_is_noticed():
    """Also where no answer of a page equals another."""
    conduct = beside(lambda truth, at, rng: [0.3, 4, 1, 3.2, 2, 5, 0, 4.4, 2.2, 3][at % PER_PAGE])

    assert STRAIGHT_LINE in codes(conduct) and conduct.line.lag == 0
    assert "at the same place of the page before" in conduct.line.text


@pytest.mark.parametrize("way", [-1, 1])
def test_a_drift_is_noticed_with_its_size(way):
    """A level and a half over all answers, in either direction."""
    conduct = beside(
        lambda truth, at, rng: 1 + 0.6 * truth + way * 1.5 * at / 120 + rng.normal(0, 0.2),
        pages=12,
        truth=lambda rng, n: rng.uniform(2, 3, n),
    )

    assert DRIFTS in codes(conduct)
    assert conduct.drift.change == pytest.approx(way * 1.5, abs=0.4)
    assert conduct.drift.low < conduct.drift.change < conduct.drift.high
    assert ("rise" if way > 0 else "fall") in conduct.drift.text


def test_who_scores_high_all_along_does_not_drift():
    """An offset is another thing, and is told as one."""
    conduct = beside(lambda truth, at, rng: 0.6 * truth + 1.6 + rng.normal(0, 0.3))

    assert codes(conduct) == []
    assert conduct.offset == pytest.approx(0.6, abs=0.3)


def test_what_others_give_is_their_median():
    """By hand for each rating, first scores alone; nobody beside is nothing."""
    rng = np.random.default_rng(5)
    table = crowd(dict.fromkeys("abcd", honest), pages=3, seed=5)
    table = table[(table["role"] == 0).to_numpy() & (rng.random(len(table)) < 0.6)]
    by_hand = [
        own["score"] - np.median(others)
        for _, own in table[table["worker"] == "b"].iterrows()
        if len(others := table[(table["pair"] == own["pair"]) & (table["worker"] != "b")]["score"])
    ]

    assert rating_conduct(table)["b"].residuals == pytest.approx(by_hand)


def test_one_who_drifts_does_not_carry_the_others_along():
    """Two levels from the first answer to the last; the four beside are honest and stay unmarked."""
    found = rating_conduct(
        crowd({**OTHERS, "x": lambda truth, at, rng: 0.5 * truth + 2 * at / 120}, pages=12)
    )

    assert DRIFTS in codes(found["x"])
    assert [codes(found[name]) for name in OTHERS] == [[]] * 4


def test_controls_are_counted_by_kind():
    """Identical at least 4, random at most 2, repeated within 1 of the first: the bounds themselves pass."""
    table = crowd({"x": lambda truth, at, rng: 3.0, "y": honest}, pages=2)
    role = table["role"].to_numpy()
    is_own = (table["worker"] == "x").to_numpy()
    for kind, score in (
        (SimilarityRole.IDENTICAL, 4.0),
        (SimilarityRole.RANDOM, 2.01),
        (SimilarityRole.REPEATED, 4.0),
    ):
        table.loc[is_own & (role == SIMILARITY_ROLES.index(kind)), "score"] = score

    controls = rating_conduct(table)["x"].controls

    assert controls.identical == GoldRecord(2, 2)
    assert controls.random == GoldRecord(0, 2)
    assert controls.repeated == GoldRecord(2, 2)
    assert controls.text == "passed 4 of 6 controls (identical 2 of 2, random 0 of 2, repeated 2 of 2)"


def test_times_are_compared_with_the_usual_one_of_the_task():
    """The median of all answers to it is 1."""
    conduct = rating_conduct(crowd({"a": honest, "b": honest, "c": honest}))

    assert [one.median_s for one in conduct.values()] == [3, 4, 5]
    assert [one.speed for one in conduct.values()] == [0.75, 1, 1.25]


def test_the_first_rater_has_nobody_to_be_compared_with():
    """No offset, no drift; one number is told only where not even a random pair gets another."""
    alone = rating_conduct(crowd({"x": honest}))["x"]
    always = rating_conduct(crowd({"x": lambda truth, at, rng: 5.0}))["x"]

    assert (alone.offset, alone.drift, alone.one_number.others, codes(alone)) == (None, None, None, [])
    assert ONE_NUMBER in codes(always)


def test_who_rated_nothing_is_left_out():
    """Skipped pairs and controls alone say nothing."""
    table = crowd({"x": honest, "y": honest}, pages=1)
    is_own = table["worker"] == "x"
    table.loc[is_own & (table["role"] == SIMILARITY_ROLES.index(SimilarityRole.ASKED)), "score"] = np.nan

    assert list(rating_conduct(table)) == ["y"]
    assert rating_conduct(table.iloc[:0]) == {}


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
@pytest.mark.thorough
def test_honest_raters_are_left_alone(seed):
    """Continuous or by whole levels, on pairs of any kind: a finding in a thousand, so none but by luck."""
    truths = {
        "any": None,
        "low": lambda rng, n: rng.choice([0.0, 0.0, 0.0, 1.0, 3.0], n),
        "own captions": lambda rng, n: np.clip(rng.normal(4.85, 0.2, n), 0, 5),
    }
    for truth in truths.values():
        found = rating_conduct(crowd({**OTHERS, "e": coarse}, seed=seed, truth=truth, pages=8))
        marks = [code for one in found.values() for code in codes(one)]
        assert len(marks) <= 1, marks


@settings(max_examples=examples(12), deadline=None)
@given(data=st.data())
def test_any_table_of_ratings_gives_shares_and_bounds(data):
    """Whatever raters do: shares from 0 to 1, an interval around the drift, counts that add up, in any order."""
    n = data.draw(st.integers(1, 40))
    number = st.integers(0, 3)
    table = frame(
        RATINGS,
        {
            "pair": data.draw(st.lists(number, min_size=n, max_size=n)),
            "task": [0] * n,
            "worker": data.draw(st.lists(st.sampled_from("abc"), min_size=n, max_size=n)),
            "score": [
                np.nan if cents is None else cents / 100
                for cents in data.draw(st.lists(st.none() | st.integers(0, 500), min_size=n, max_size=n))
            ],
            "outcome": [0] * n,
            "role": data.draw(st.lists(number, min_size=n, max_size=n)),
            "swapped": [False] * n,
            "hit": [0] * n,
            "assignment": data.draw(st.lists(number, min_size=n, max_size=n)),
            "place": list(range(1, n + 1)),
            "active_ms": data.draw(st.lists(st.integers(0, 9999), min_size=n, max_size=n)),
            "usable": [True] * n,
        },
    )

    conduct = rating_conduct(table)

    assert rating_conduct(table.sample(frac=1, random_state=1)) == conduct
    asked = table[(table["role"] == 0) & table["score"].notna()]
    assert {worker: one.n for worker, one in conduct.items()} == asked["worker"].astype(
        str
    ).value_counts().to_dict()
    for worker, one in conduct.items():
        scores = asked.loc[asked["worker"] == worker, "score"]
        # Beside others where they rated enough of the same pairs, else over all.
        n_scores = one.one_number.n_scores
        assert n_scores == one.n or MIN_SCORES <= n_scores < one.n
        assert 1 <= one.one_number.n_near <= n_scores
        if len(scores.unique()) == 1:
            assert one.one_number.share == 1 and one.one_number.spread == pytest.approx(0)
        assert sum(one.shares) == pytest.approx(1)
        if one.drift is not None:
            assert one.drift.low <= one.drift.change <= one.drift.high
        assert one.text and 0 <= one.controls.all.passes <= one.controls.all.golds


@given(
    cents=st.lists(st.integers(0, 3), min_size=2, max_size=30),
    size=st.integers(1, 10),
)
def test_rows_are_counted_as_one_would_by_hand(cents, size):
    """Within a page only; the same for every distance."""
    n = len(cents)
    page, place = np.arange(n) // size, np.arange(n) % size + 1
    found = {row.lag: row for row in rows(np.array(cents) / 1.0, np.arange(n), page, place)}

    for lag in range(1, 6):
        both = [(i, i - lag) for i in range(lag, n) if page[i] == page[i - lag]]
        if not both:
            assert lag not in found
            continue
        assert found[lag].n == len(both)
        assert found[lag].matches == sum(cents[i] == cents[j] for i, j in both)
        assert 0 <= found[lag].p <= 1
    if n > size:
        assert found[0].matches == sum(cents[i] == cents[i - size] for i in range(size, n))


@given(data=st.data(), n=st.integers(4, 30), step=st.floats(-0.1, 0.1), share=st.floats(0, 2))
def test_a_steady_trend_adds_to_the_drift_and_leaves_its_width(data, n, step, share):
    """What the slope of least squares promises; how much of the scale is used moves nothing."""
    score = st.integers(0, 50).map(lambda tenths: tenths / 10)
    scores, others = (np.array(data.draw(st.lists(score, min_size=n, max_size=n))) for _ in range(2))
    before = drift(scores, others)
    after = drift(scores + step * np.arange(n) + share * others, others)

    assert (before is None) == (after is None)
    if before is not None:
        assert after.change == pytest.approx(before.change + step * (n - 1), abs=1e-4)
        assert after.high - after.low == pytest.approx(before.high - before.low, abs=1e-4)


def test_the_drift_is_that_of_two_slopes():
    """As numpy's least squares has them."""
    rng = np.random.default_rng(2)
    scores, others = rng.uniform(0, 5, (2, 40))
    design = np.column_stack([np.ones(40), np.arange(40), others])

    (_, slope, _), *_ = np.linalg.lstsq(design, scores, rcond=None)

    assert drift(scores, others).change == pytest.approx(39 * slope)


def test_who_ignores_the_pairs_does_not_drift_where_high_ones_come_late():
    """One number beside others whose scores rise."""
    rng = np.random.default_rng(1)
    others = np.linspace(0, 5, 60) + rng.normal(0, 0.3, 60)

    assert not drift(3 + rng.uniform(-0.05, 0.05, 60), others).is_marked


def test_the_interval_of_a_drift_holds_as_often_as_it_says():
    """99.9 %, over 5,000 sequences of noise."""
    rng = np.random.default_rng(3)
    found = [drift(*rng.normal(0, 1, (2, 25))) for _ in range(5000)]

    held = np.mean([one.low <= 0 <= one.high for one in found])
    assert 0.997 < held < 1


@given(n=st.integers(1, 60), k=st.integers(0, 60), p=st.floats(0.01, 0.99))
def test_the_tail_is_that_of_the_binomial(n, k, p):
    """Summed by hand."""
    from math import comb

    by_hand = sum(comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))
    assert chance_of_at_least(k, n, p) == pytest.approx(by_hand, abs=1e-9)

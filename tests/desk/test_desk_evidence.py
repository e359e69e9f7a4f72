"""What speaks for and against a worker: intervals, runs, variety, agreement, and the order of the table."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_kit import agreements, consistency, entropy_bits, longest_run, median_seconds

from mitl.desk.words import findings, percent
from mitl.desk.worker_pages import COLUMNS, in_order
from mitl.judgements.conduct import Agreement, AnswerRun, Haste, gold_interval, haste
from mitl.judgements.gold_records import GoldRecord
from mitl.records import Finding, Label, Pair
from mitl.stages.reviewing.evidence import WorkerEvidence

YES, WEAK_YES, WEAK_NO, NO = Label
labels = st.sampled_from(list(Label))


@pytest.fixture(scope="module")
def beta():
    """The beta distribution as others compute it; importing it takes longer than a test may."""
    return pytest.importorskip("scipy.stats", reason="scipy is missing").beta


@settings(deadline=None, max_examples=40)
@given(golds=st.integers(0, 60), data=st.data())
def test_the_interval_of_a_record_is_the_posteriors(beta, golds, data):
    """The quantiles of Beta(passes + 1/2, failures + 1/2) at 5 and 95 %, as scipy has them."""
    passes = data.draw(st.integers(0, golds))

    low, high = gold_interval(GoldRecord(passes, golds))

    posterior = beta(passes + 0.5, golds - passes + 0.5)
    assert (low, high) == (
        pytest.approx(posterior.ppf(0.05), abs=1e-6),
        pytest.approx(posterior.ppf(0.95), abs=1e-6),
    )


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 200), st.integers(0, 200))
def test_an_interval_lies_within_bounds_around_the_mean(passes, failures):
    """0 ≤ low ≤ mean ≤ high ≤ 1, and more controls make it narrower."""
    record = GoldRecord(passes, passes + failures)
    low, high = gold_interval(record)
    wider = gold_interval(GoldRecord())

    assert 0 <= low <= float(record.mean) <= high <= 1
    assert high - low <= wider[1] - wider[0] + 1e-9


def test_the_longest_run_stays_within_a_page():
    """Two pages that end and begin alike make no run together."""
    assert longest_run([[YES, NO, NO], [NO, NO, NO, YES]]) == AnswerRun(3, NO)
    assert longest_run([[YES, YES], [NO, NO]]) == AnswerRun(2, YES)
    assert longest_run([[], []]) is None


@given(st.lists(st.lists(labels, max_size=20), max_size=6))
def test_a_run_is_as_long_as_the_longest_row_of_one_answer(pages):
    """Against a count by hand: the answer stands that often in a row on some page, and no answer stands longer."""
    found = longest_run(pages)
    texts = ["".join(str(label.code) for label in page) for page in pages]

    if found is None:
        assert not any(pages)
    else:
        assert any(str(found.label.code) * found.length in page for page in texts)
        assert not any(str(label.code) * (found.length + 1) in page for page in texts for label in Label)


def test_variety_is_the_entropy_of_the_answers():
    """One answer only: 0 bits; all four alike: 2; three to one: 0.811."""
    assert entropy_bits([NO] * 9) == 0
    assert entropy_bits(list(Label) * 3) == pytest.approx(2)
    assert entropy_bits([YES, NO, NO, NO]) == pytest.approx(0.25 * 2 + 0.75 * math.log2(4 / 3))
    assert entropy_bits([]) is None


def test_pairs_whose_time_was_not_measured_do_not_make_a_worker_fast():
    """None and 0 are not times."""
    assert median_seconds([None, 0, 3000, 1000, 8000]) == 3
    assert median_seconds([None, 0]) is None


def test_haste_is_told_by_an_absolute_floor_though_everybody_hurries():
    """Half of the measured pairs under it; no floor, no measured time, or a median at the floor tell nothing."""
    found = haste([0.4, None, 0.5, 0.6, 9.0, 0], 2)

    assert found == Haste(0.55, 2, under=3, timed=4)
    assert found.text == "0.5 s a pair (median), under the floor of 2 s; 3 of 4 pairs took less"
    just_under = haste([1.97], 2)
    assert just_under is not None
    assert "1.9 s a pair (median), under the floor of 2 s" in just_under.text
    assert haste([0.1, 0.1], 0) is None
    assert haste([None, 0], 2) is None
    assert haste([2.0], 2) is None


def test_findings_are_grouped_by_kind_the_weightiest_first():
    """One of a kind is a sentence; of several the number is told, and their details are kept in order."""
    noted = [
        Finding("missing_answer", "place 2"),
        Finding("missing_answer", "place 10"),
        Finding("bad_record", "1 of 9"),
        Finding("gold_negative_failed", "7,8"),
        Finding("gold_negative_failed", "7,9"),
        Finding("news", "x"),
    ]

    assert findings(noted) == [
        ("Failed a control that does not fit: 2 times.", []),
        ("The worker's record on controls is poor: 1 of 9.", []),
        ("A pair has no answer: 2 times.", ["place 2", "place 10"]),
        ("news", []),
    ]


def test_standings_sort_by_what_they_mean():
    """The poor first, then the unproven and the good, the excluded last; a record without controls is unknown."""
    people = tuple(
        replace(evidence(number, 1, 1, None), standing=name)
        for number, name in enumerate(("good", "excluded", "poor", "unproven"))
    )
    by_key = {column.key: column for column in COLUMNS}

    rows = in_order(people, by_key["standing"], turned=False)

    assert [row.standing for row in rows] == ["poor", "unproven", "good", "excluded"]
    unknown = evidence(9, 0, 0, None)
    assert in_order((unknown, evidence(1, 9, 9, None)), by_key["record"], turned=False)[-1] == unknown


def test_agreement_is_about_the_side_and_leaves_the_distrusted_out():
    """`yes` and `weak yes` agree; nobody is compared with a worker whose record is bad, who is compared with all."""
    pair, other = Pair(1, 1), Pair(2, 2)
    given_answers = [
        ("a", pair, YES),
        ("b", pair, WEAK_YES),
        ("bad", pair, NO),
        ("a", other, NO),
        ("a", Pair(3, 3), NO),
    ]

    found = agreements(given_answers, {"bad"})

    assert found == {"a": Agreement(1, 1), "b": Agreement(1, 1), "bad": Agreement(0, 2)}
    assert found["bad"].share == 0


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 3), labels), max_size=30))
def test_agreement_is_mutual(answers):
    """Over all workers, what one shares with another is counted on both sides; a pair answered twice counts once."""
    found = agreements([(worker, Pair(number, number), label) for worker, number, label in answers])

    assert sum(one.comparisons for one in found.values()) % 2 == 0
    assert sum(one.same for one in found.values()) % 2 == 0
    assert all(0 <= one.same <= one.comparisons <= 9 for one in found.values())


def test_a_worker_is_held_against_their_own_first_answer_where_a_pair_came_again():
    """Sides count, not shades; a worker who met no pair twice is left out."""
    pair, other = Pair(1, 1), Pair(2, 2)
    given_answers = [
        ("a", pair, YES),
        ("b", pair, NO),
        ("a", other, NO),
        ("a", pair, WEAK_YES),
        ("a", pair, NO),
        ("a", other, WEAK_NO),
    ]

    assert consistency(given_answers) == {"a": Agreement(2, 3)}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3), labels), max_size=30))
def test_every_later_answer_to_a_pair_is_compared_once(answers):
    """With the first one of the same worker, whatever stands between them."""
    found = consistency([(worker, Pair(number, number), label) for worker, number, label in answers])

    pairs = {(worker, number) for worker, number, _ in answers}
    assert sum(one.comparisons for one in found.values()) == len(answers) - len(pairs)
    assert all(0 <= one.same <= one.comparisons for one in found.values())


def evidence(number: int, passes: int, golds: int, median_s: float | None) -> WorkerEvidence:
    """A worker of whom little is known."""
    record = GoldRecord(passes, golds)
    return WorkerEvidence(
        id=number,
        worker=f"A{number}",
        standing="unproven",
        capped=False,
        submissions=1,
        approved=0,
        used=0,
        queued=0,
        rejected=0,
        record=record,
        low=0.0,
        high=1.0,
        speed=None,
        earned_cents=0,
        median_s=median_s,
    )


@given(
    st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), st.floats(0.1, 90))), max_size=8), st.data()
)
def test_any_column_keeps_everyone_and_puts_the_unknown_last(known, data):
    """Either way round nobody is lost, and those of whom nothing is known stand at the end."""
    workers = tuple(evidence(number, passes, 5, time) for number, (passes, time) in enumerate(known))
    column, turned = data.draw(st.sampled_from(COLUMNS)), data.draw(st.booleans())

    rows = in_order(workers, column, turned=turned)

    values = [column.value(row) for row in rows]
    told = [value for value in values if value is not None]
    assert sorted(rows, key=lambda row: row.id) == list(workers)
    assert values[len(told) :] == [None] * (len(values) - len(told))
    assert told == sorted(told, reverse=column.falling != turned)


def test_the_poorest_record_stands_first_and_the_longer_one_before_its_equal():
    """That is the table's own order: who fails most, on most evidence."""
    rows = in_order(
        (evidence(1, 4, 4, None), evidence(2, 0, 2, None), evidence(3, 1, 9, None)), COLUMNS[1], turned=False
    )

    assert [row.id for row in rows] == [3, 2, 1]


def test_one_control_of_many_that_failed_is_not_rounded_away():
    assert [percent(share) for share in (249 / 250, 1.0, 1 / 250, 0.0)] == ["> 99 %", "100 %", "< 1 %", "0 %"]

"""The paper's tables: what counts, what the shares are shares of, and that they add up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_kit import proposal_frame

from mitl.analysis.answer_tables import (
    AnswerCount,
    RationaleCount,
    answer_counts,
    answer_shares,
    rationale_counts,
    rationale_shares,
)
from mitl.analysis.report.inputs import FunnelCounts
from mitl.analysis.report.views import funnel_steps, histogram
from mitl.core.formats import duration, money, percent, times
from mitl.positives import markdown
from mitl.positives.pair_answers import judgement_frame
from mitl.records import (
    Concept,
    Direction,
    Judgement,
    Label,
    Outcome,
    Pair,
    PairRole,
    Proposal,
    Shortcoming,
)
from mitl.records.questions import CONCEPT, SHORTCOMING

I2T, T2I = Direction.I2T, Direction.T2I
PAIR = Pair(1, 2)
FOUND = proposal_frame(
    [
        Proposal(PAIR, "clip", I2T, 1, 0.9),
        Proposal(PAIR, "clip", T2I, 3, 0.8),
        Proposal(PAIR, "pvse", I2T, 2, 0.7),
    ]
)

counts = st.lists(
    st.builds(
        AnswerCount,
        annotator=st.sampled_from(["a", "b", "c"]),
        direction=st.sampled_from(Direction),
        rank=st.integers(1, 5),
        label=st.sampled_from(Label),
        count=st.integers(0, 50),
    ),
    max_size=60,
)


def test_an_answer_counts_once_for_each_annotator_direction_and_rank() -> None:
    """One judgement of a pair that was found three times gives three counts, as three rows of the CSV."""
    rows = answer_counts(judgement_frame([Judgement(PAIR, "w", Label.YES)]), FOUND)

    assert rows == (
        AnswerCount("clip", I2T, 1, Label.YES, 1),
        AnswerCount("clip", T2I, 3, Label.YES, 1),
        AnswerCount("pvse", I2T, 2, Label.YES, 1),
    )


@pytest.mark.parametrize(
    "left_out",
    [
        Judgement(PAIR, "w", Label.YES, role=PairRole.GOLD_POSITIVE),
        Judgement(PAIR, "w", Label.NO, role=PairRole.GOLD_NEGATIVE),
        Judgement(PAIR, "w", Label.YES, role=PairRole.REPEAT),
        Judgement(PAIR, "w", Label.YES, usable=False),
        Judgement(PAIR, "w", None, outcome=Outcome.SKIPPED),
        Judgement(Pair(9, 9), "w", Label.YES),
    ],
    ids=["gold_positive", "gold_negative", "repeat", "unusable", "skipped", "not_proposed"],
)
def test_what_says_nothing_of_an_annotator_is_left_out(left_out: Judgement) -> None:
    """Golds, repeats, unusable and missing answers and pairs of no annotator are in neither table."""
    ticked = Judgement(
        left_out.pair,
        "w",
        left_out.label,
        outcome=left_out.outcome,
        role=left_out.role,
        usable=left_out.usable,
        given={"shortcoming": (Shortcoming.GRAMMAR,)},
    )

    assert answer_counts(judgement_frame([left_out]), FOUND) == ()
    assert rationale_counts(judgement_frame([ticked]), FOUND) == ()


def test_a_second_workers_answer_on_purpose_counts() -> None:
    """An overlap pair is a candidate with two judgements, and both count."""
    judgements = [Judgement(PAIR, "v", Label.YES), Judgement(PAIR, "w", Label.NO, role=PairRole.OVERLAP)]

    assert sum(row.count for row in answer_counts(judgement_frame(judgements), FOUND)) == 6


def test_ranks_are_rows_and_the_average_pools_their_answers() -> None:
    """Rank 1 has 3 yes of 4, rank 2 has 0 of 1: pooled 3 of 5, not the mean of 75 % and 0 %."""
    rows = [
        AnswerCount("clip", I2T, 1, Label.YES, 2),
        AnswerCount("clip", T2I, 1, Label.YES, 1),
        AnswerCount("clip", I2T, 1, Label.NO, 1),
        AnswerCount("clip", I2T, 2, Label.NO, 1),
    ]

    table = answer_shares(rows)

    assert table.ranks == (1, 2)
    assert [row.shares for row in table.cells["clip"]] == [(75.0, 0.0, 0.0, 25.0), (0.0, 0.0, 0.0, 100.0)]
    assert table.average["clip"].shares == pytest.approx((60.0, 0.0, 0.0, 40.0))
    assert answer_shares(rows, direction=T2I).average["clip"].total == 1


@given(rows=counts)
def test_every_row_of_answers_adds_up_to_100_or_is_empty(rows: list[AnswerCount]) -> None:
    """No answer is lost: shares add up, and the totals of the ranks add up to the pooled total."""
    table = answer_shares(rows)

    for name in table.annotators:
        for row in (*table.cells[name], table.average[name]):
            assert (row.shares is None) == (row.total == 0)
            assert row.shares is None or sum(row.shares) == pytest.approx(100)
        assert sum(row.total for row in table.cells[name]) == table.average[name].total
    assert sum(row.total for row in table.average.values()) == sum(row.count for row in rows)


@given(rows=counts)
def test_the_two_directions_add_up_to_both(rows: list[AnswerCount]) -> None:
    """Each annotator's answers are those of i2t and those of t2i."""
    both, parts = answer_shares(rows), [answer_shares(rows, direction=direction) for direction in Direction]

    for name in both.annotators:
        split = sum(part.average[name].total for part in parts if name in part.average)
        assert split == both.average[name].total


def test_annotators_stand_in_the_order_of_the_run() -> None:
    """Named ones first, in that order; the rest by name; absent ones do not appear."""
    rows = [AnswerCount(name, I2T, 1, Label.YES, 1) for name in ("z", "b", "a", "m")]

    assert answer_shares(rows, order=["m", "gone", "z"]).annotators == ("m", "z", "a", "b")


def test_a_tick_counts_once_for_an_annotator_that_found_the_pair_twice() -> None:
    """clip found the pair from both directions; its shortcomings and concepts count once."""
    judgement = Judgement(
        PAIR,
        "w",
        Label.WEAK_NO,
        given={"shortcoming": (Shortcoming.DESCRIBED_WRONGLY,), "concept": (Concept.COLOR, Concept.AGE)},
    )

    rows = rationale_counts(judgement_frame([judgement]), FOUND)

    assert {(row.annotator, row.value, row.count) for row in rows} == {
        (name, value, 1) for name in ("clip", "pvse") for value in ("described_wrongly", "color", "age")
    }


def test_the_average_of_rationales_is_the_mean_of_the_rows() -> None:
    """One annotator 1 of 1 grammar, the other 0 of 9: the mean is 50 %, not 10 %; all columns are present."""
    rows = [
        RationaleCount("a", SHORTCOMING.name, Shortcoming.GRAMMAR, 1),
        RationaleCount("b", SHORTCOMING.name, Shortcoming.NOT_IN_IMAGE, 9),
        RationaleCount("a", CONCEPT.name, Concept.COLOR, 4),
    ]

    table = rationale_shares(rows, SHORTCOMING)

    assert table.columns == ("not_in_image", "not_described", "described_wrongly", "grammar")
    assert table.average == pytest.approx((50.0, 0.0, 0.0, 50.0))
    assert len(rationale_shares(rows, CONCEPT).columns) == 10
    assert rationale_shares([], CONCEPT).average is None


@given(
    ticks=st.dictionaries(
        st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from(Concept)), st.integers(0, 30), max_size=20
    )
)
def test_rationale_rows_and_their_average_add_up_to_100(ticks: dict[tuple[str, Concept], int]) -> None:
    """Whatever was ticked, each row with ticks and the average add up."""
    rows = [RationaleCount(name, CONCEPT.name, concept, n) for (name, concept), n in ticks.items()]

    table = rationale_shares(rows, CONCEPT)

    for shares in (table.average, *(row.shares for _, row in table.rows)):
        assert shares is None or sum(shares) == pytest.approx(100)


@given(values=st.lists(st.integers(0, 40)), tail=st.integers(0, 25))
def test_a_histogram_holds_every_value_once(values: list[int], tail: int) -> None:
    """The bins add up, the last holds its number and more, each other exactly its number."""
    bins = histogram(values, tail=tail)

    assert sum(bins) == len(values)
    assert bins[-1] == sum(value >= tail for value in values)
    assert list(bins[:-1]) == [values.count(number) for number in range(tail)]


def test_the_funnel_skips_steps_that_are_not_reached() -> None:
    """Shares are of the last known step and of the first; nothing follows a step of zero as a share."""
    steps = funnel_steps(FunnelCounts(possible=1000, distinct=100, asked=50, positive=0, beyond_originals=0))

    assert [(step.key, step.count) for step in steps] == [
        ("possible", 1000),
        ("distinct", 100),
        ("asked", 50),
        ("positive", 0),
        ("beyond_originals", 0),
    ]
    assert [step.of_previous for step in steps] == [None, 0.1, 0.5, 0.0, None]
    assert steps[2].of_first == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (None, "–"),
        (0.0, "0.0 %"),
        (1.0, "100.0 %"),
        (0.12345, "12.3 %"),
        (0.0001, "< 0.1 %"),
        (0.9999, "> 99.9 %"),
    ],
)
def test_a_share_never_reads_as_all_or_nothing_when_it_is_not(share: float | None, text: str) -> None:
    """0.01 % is not 0 %, and 99.99 % is not 100 %, in the report and in what comes with a release."""
    assert percent(share) == text
    assert share is None or markdown.percent(10_000 * share, 10_000) == text


def test_money_time_and_factors_read_as_people_write_them() -> None:
    """Cents as dollars, seconds as minutes, a factor with its sign."""
    assert [money(123456), money(5), money(-150), money(None)] == ["$1,234.56", "$0.05", "−$1.50", "–"]
    assert [duration(252.4), duration(59.6), duration(7)] == ["4 min 12 s", "1 min 00 s", "7 s"]
    assert [times(36, 10), times(100, 1), times(3, 0)] == ["×3.60", "×100.0", "–"]

"""The table of answers that every aggregator reads."""

from __future__ import annotations

import numpy as np
import pytest
from aggregation_kit import answers, as_table
from hypothesis import given
from hypothesis import strategies as st

from mitl.core.arrays import unpack_pairs
from mitl.judgements.answer_table import UNKNOWN, AnswerTable, answer_table, codes
from mitl.positives.pair_answers import judgement_frame, table_with_controls
from mitl.records import GoldControl, Judgement, Label, Outcome, Pair, PairRole

YES, WEAK_YES, WEAK_NO, NO = Label


@given(answers())
def test_no_answer_is_lost_and_items_stand_together(rows):
    """The same rows come out, items ascending, each item's between its starts."""
    table = as_table(rows)

    kept = sorted(zip(table.item.tolist(), table.worker.tolist(), table.label.tolist(), strict=True))
    assert kept == sorted(rows)
    for item in range(table.n_items):
        assert set(table.item[table.starts[item] : table.starts[item + 1]].tolist()) == {item}


@given(answers())
def test_counts_of_a_part_are_a_part_of_the_counts(rows):
    """Counting items from the middle gives those rows of the whole count, each summing to the item's answers."""
    table = as_table(rows)
    middle = table.n_items // 2

    assert np.array_equal(table.counts(middle), table.counts()[middle:])
    assert np.array_equal(table.counts().sum(axis=1), table.answers_per_item)


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (([0, 1], [0], [0, 1]), {}, "2, 1, 2 rows"),
        (([0, 2], [0, 0], [0, 1]), {}, "without gaps"),
        (([0, -1], [0, 0], [0, 1]), {}, "item -1 is out of range"),
        (([0], [0], [4]), {}, "label 4 is out of range: 0 to 3"),
        (([0], [3], [0]), {"n_workers": 2}, "worker 3 is out of range"),
        (([0], [0], [0]), {"known": [0, 1]}, "known has 2 rows, but there are 1 items"),
        (([0], [0], [0]), {"known": [300]}, "known label 300 is out of range"),
        (([0], [0], [0.5]), {}, "label column is float64"),
    ],
)
def test_impossible_columns_are_refused_with_what_would_be_right(columns, options, message):
    """Lengths, gaps, codes and kinds are checked before anything is narrowed to fewer bits."""
    with pytest.raises(ValueError, match=message):
        answer_table(*columns, **options)


def test_columns_out_of_order_are_refused_by_the_table_itself():
    """Only ``answer_table`` sorts."""
    column = np.array([1, 0], dtype=np.int32)

    with pytest.raises(ValueError, match="ascend"):
        AnswerTable(column, column, np.zeros(2, dtype=np.int8), 2)


def test_an_empty_table_is_a_table():
    """No answers, no items, no workers."""
    table = answer_table([], [], [])

    assert (len(table), table.n_items, table.n_workers) == (0, 0, 0)


@given(
    st.lists(
        st.text(st.characters(exclude_characters=chr(0), exclude_categories=["Cs"]), max_size=3), min_size=1
    )
)
def test_ids_of_any_kind_get_codes_in_their_own_order(ids):
    """Decoding gives the ids back."""
    coded, distinct = codes(ids)

    assert [distinct[code] for code in coded] == ids
    assert list(distinct) == sorted(set(ids))


def test_a_control_and_a_candidate_of_one_pair_are_two_items():
    """The control is known, the candidate is not; what does not count is left out."""
    pair, other = Pair(1, 2), Pair(3, 4)
    judgements = [
        Judgement(pair, "B", YES),
        Judgement(pair, "A", NO, role=PairRole.GOLD_POSITIVE),
        Judgement(pair, "A", WEAK_NO, role=PairRole.OVERLAP),
        Judgement(other, "A", NO, role=PairRole.GOLD_NEGATIVE),
        Judgement(other, "C", NO, usable=False),
        Judgement(other, "C", None, outcome=Outcome.SKIPPED),
    ]

    pairs, table = table_with_controls(judgement_frame(judgements), (), ["pair", "gold"])

    assert unpack_pairs(pairs) == [pair]
    assert table.known.tolist() == [UNKNOWN, 0, 3]
    assert table.label.tolist() == [2, 0, 3, 3]
    assert table.worker.tolist() == [0, 1, 0, 0]


def test_withdrawn_controls_are_not_read():
    """Without the only control the pairs are left alone."""
    judgements = [
        Judgement(Pair(1, 2), "A", YES),
        Judgement(Pair(1, 2), "A", NO, role=PairRole.GOLD_POSITIVE),
    ]
    withdrawn = {GoldControl(Pair(1, 2), PairRole.GOLD_POSITIVE)}

    pairs, table = table_with_controls(judgement_frame(judgements), withdrawn, ["gold", "pair"])

    assert (unpack_pairs(pairs), table.known.tolist(), table.label.tolist()) == ([Pair(1, 2)], [UNKNOWN], [0])

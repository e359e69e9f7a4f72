"""The majority of a whole table, against the rule for one pair."""

from __future__ import annotations

import numpy as np
from aggregation_kit import answers, as_table
from hypothesis import given
from hypothesis import strategies as st
from record_kit import majority, most_positive

from mitl.judgements import answer_table as module
from mitl.judgements.answer_table import answer_table, majority_table, most_positive_table
from mitl.records import Label


def _labels(table):
    return [
        [Label.from_code(code + 1) for code in table.label[table.item == item]]
        for item in range(table.n_items)
    ]


@given(answers(max_rows=60))
def test_each_item_gets_what_the_rule_for_one_pair_gives(rows):
    """Label, number of answers and share of positive ones."""
    table = as_table(rows)
    found = majority_table(table)

    expected = _labels(table)
    assert [Label.from_code(code + 1) for code in found.label] == [majority(labels) for labels in expected]
    assert found.n_answers.tolist() == [len(labels) for labels in expected]
    shares = [sum(label.is_positive for label in labels) / len(labels) for labels in expected]
    assert np.allclose(found.positive, shares)


@given(answers())
def test_the_margin_is_the_lead_over_the_next_label(rows):
    """It is 0 exactly where the tie rule decided."""
    table = as_table(rows)
    found = majority_table(table)

    for item, labels in enumerate(_labels(table)):
        counts = sorted((labels.count(label) for label in Label), reverse=True)
        assert np.isclose(found.margin[item], (counts[0] - counts[1]) / len(labels))
        assert found.tied[item] == (counts[0] == counts[1])


@given(answers(), st.randoms(use_true_random=False))
def test_order_and_doubling_change_no_label(rows, random):
    """Any order, and every answer given twice."""
    before = majority_table(as_table(rows))
    doubled = rows + rows
    random.shuffle(doubled)
    after = majority_table(as_table(doubled))

    assert np.array_equal(before.label, after.label)
    assert np.allclose(before.margin, after.margin)


def test_chunks_change_nothing(monkeypatch):
    """A thousand items, seven at a time."""
    rng = np.random.default_rng(0)
    rows = [(i, int(rng.integers(6)), int(rng.integers(4))) for i in range(1000) for _ in range(1 + i % 5)]
    whole = majority_table(as_table(rows))
    monkeypatch.setattr(module, "_CHUNK", 7)
    parts = majority_table(as_table(rows))

    for name in ("label", "margin", "tied", "n_answers", "positive"):
        assert np.array_equal(getattr(whole, name), getattr(parts, name))


def test_no_items_have_no_majorities():
    """An empty table gives empty arrays."""
    assert majority_table(answer_table([], [], [])).label.size == 0


@given(answers())
def test_the_most_positive_answer_of_each_item(rows):
    """The rule of the official merge, for a whole table."""
    table = as_table(rows)

    found = [Label.from_code(code + 1) for code in most_positive_table(table)]
    assert found == [most_positive(labels) for labels in _labels(table)]

"""One answer of several, by the name of the way."""

from __future__ import annotations

import numpy as np
import pytest
from aggregation_kit import draw_ordinal

from mitl.judgements.aggregators import Aggregator, aggregate
from mitl.judgements.answer_table import answer_table, majority_table
from mitl.records import Label


@pytest.mark.parametrize("method", Aggregator)
@pytest.mark.parametrize("per_item", [1, 3])
def test_every_way_gives_each_item_a_label_a_probability_and_its_number_of_answers(method, per_item):
    """Within their bounds, and a model's label stands on the side that its probability says."""
    table = draw_ordinal(300, 8, per_item, golds=20).table

    found = aggregate(table, method)

    assert found.n_answers.tolist() == table.answers_per_item.tolist()
    assert ((found.probability >= 0) & (found.probability <= 1)).all()
    assert ((found.label >= 0) & (found.label < 4)).all()
    if method is not Aggregator.MAJORITY:
        assert np.array_equal(found.label < 2, found.probability > 0.5)
        assert found.label[table.known >= 0].tolist() == table.known[table.known >= 0].tolist()


def test_the_default_is_the_majority():
    """Label and share, as everywhere else."""
    table = answer_table([0, 0, 0, 1], [0, 1, 2, 0], [0, 1, 3, 2])
    found, majority = aggregate(table), majority_table(table)

    assert np.array_equal(found.label, majority.label)
    assert np.allclose(found.probability, majority.positive)
    assert found.convergence is None
    assert Label.from_code(int(found.label[0]) + 1) is Label.WEAK_YES


@pytest.mark.parametrize("method", Aggregator)
def test_nothing_gives_nothing(method):
    """No answers, no items, whatever the way."""
    assert aggregate(answer_table([], [], []), method).label.size == 0


def test_too_little_overlap_is_said():
    """One answer a pair: Dawid-Skene always warns, the ordinal model where there are no controls either."""
    with_golds = draw_ordinal(400, 10, 1, golds=40).table
    without = draw_ordinal(400, 10, 1).table
    enough = draw_ordinal(400, 10, 3).table

    assert "1.00 answers on average" in aggregate(with_golds, Aggregator.DAWID_SKENE).warnings[0]
    assert not any("answers" in line for line in aggregate(with_golds, Aggregator.ORDINAL).warnings)
    assert "no gold controls" in aggregate(without, Aggregator.ORDINAL).warnings[0]
    assert not any("answers" in line for line in aggregate(enough, Aggregator.DAWID_SKENE).warnings)

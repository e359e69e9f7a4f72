"""Withdrawn controls and workers' records over columns are those over records."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from record_kit import GoldAnswer, withdrawn_golds
from record_kit import gold_records as records_of

from mitl.judgements import gold_records
from mitl.judgements.gold_records import GoldRecord, gold_state
from mitl.positives.pair_answers import judgement_frame
from mitl.records import GoldControl, Judgement, Label, Pair, PairRole
from mitl.records.questions import GoldRule

RULE = GoldRule()
GOLD = st.builds(
    GoldControl,
    st.builds(Pair, st.integers(1, 3), st.just(7)),
    st.sampled_from([PairRole.GOLD_POSITIVE, PairRole.GOLD_NEGATIVE]),
)
LABEL = st.sampled_from([None, *[Label.YES] * 3, *[Label.NO] * 3, Label.WEAK_NO])
ANSWERS = st.lists(st.tuples(st.sampled_from("ABCD"), GOLD, LABEL), max_size=60)


def careful(n: int) -> list[tuple[str, GoldControl, Label | None]]:
    """Two workers whose record is good."""
    golds = [GoldControl(Pair(100 + place, 7), PairRole.GOLD_POSITIVE) for place in range(n)]
    return [(worker, gold, Label.YES) for worker in "AB" for gold in golds]


FAIR = [
    (who, GoldControl(Pair(int(image), 7), PairRole.GOLD_POSITIVE), Label.NO)
    for who, image in ("A1", "A2", "B1", "B3")
]
"""Beside six passes: both fail one control and one more each, so that neither record is good."""


@given(ANSWERS, st.integers(0, 12))
@example(FAIR, 6)
def test_columns_and_records_withdraw_the_same_controls_and_count_the_same(drawn, n):
    """Whatever was answered, unanswered controls and answers on candidates included."""
    answers = [*drawn, *careful(n)]
    records = [GoldAnswer(who, gold, RULE.passed(gold.role, label)) for who, gold, label in answers]
    judged = [Judgement(gold.pair, who, label, role=gold.role, usable=False) for who, gold, label in answers]
    judged.append(Judgement(Pair(1, 7), "A", Label.NO))

    found = gold_state(judgement_frame(judged), RULE)

    assert found.withdrawn == withdrawn_golds(records)
    assert [*found.records.items()] == [*records_of(records, found.withdrawn).items()]
    assert found.by_role.keys() == {role for role in PairRole if role.is_gold}
    for role, over_all in found.by_role.items():
        own = records_of((one for one in records if one.gold.role is role), found.withdrawn).values()
        assert over_all == GoldRecord(sum(one.passes for one in own), sum(one.golds for one in own))


def test_a_control_that_two_good_workers_fail_is_withdrawn():
    """By hand: both know ten others; the third worker, who clicks, has no say."""
    failed = GoldControl(Pair(1, 7), PairRole.GOLD_POSITIVE)
    answers = [*careful(10), ("A", failed, Label.NO), ("B", failed, Label.WEAK_NO), ("C", failed, Label.YES)]
    judged = [Judgement(gold.pair, who, label, role=gold.role) for who, gold, label in answers]

    assert gold_state(judgement_frame(judged), RULE).withdrawn == {failed}


def test_without_controls_nothing_is_withdrawn():
    """Empty columns are columns."""
    empty = np.empty(0, np.int64)

    assert gold_records.withdrawn_golds(empty, empty, np.empty(0, np.bool_), n_controls=0).tolist() == []
    assert gold_state(judgement_frame([]), RULE).withdrawn == frozenset()

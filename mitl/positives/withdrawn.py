"""The controls of a release that workers of good record failed, and which say nothing about anybody."""

from __future__ import annotations

import numpy as np

from mitl.judgements.gold_columns import withdrawn_columns
from mitl.positives.judgement_columns import JudgementColumns
from mitl.positives.merge_columns import UNANSWERED
from mitl.proposals.packed import distinct, unpack_pairs
from mitl.records import GoldControl, Label, PairRole
from mitl.records.gold_rule import GoldRule

_ROLES = (PairRole.GOLD_POSITIVE, PairRole.GOLD_NEGATIVE)


def withdrawn_controls(judgements: JudgementColumns, rule: GoldRule) -> frozenset[GoldControl]:
    """The withdrawn controls; every answer on a control counts, usable or not, as when work is judged."""
    answers = judgements.take(judgements.gold & (judgements.label != UNANSWERED))
    pairs = distinct(answers.pairs)
    place = {role: list(PairRole).index(role) for role in _ROLES}
    negative = answers.role == place[PairRole.GOLD_NEGATIVE]
    passed = np.zeros(len(answers), np.bool_)
    for role in _ROLES:
        expected = [list(Label).index(label) for label in rule.passes(role)]
        passed |= (answers.role == place[role]) & np.isin(answers.label, expected)
    keys, control = np.unique(2 * np.searchsorted(pairs, answers.pairs) + negative, return_inverse=True)
    out = keys[withdrawn_columns(answers.worker.astype(np.int64), control, passed)]
    return frozenset(
        GoldControl(pair, _ROLES[key % 2])
        for pair, key in zip(unpack_pairs(pairs[out // 2]), out.tolist(), strict=True)
    )

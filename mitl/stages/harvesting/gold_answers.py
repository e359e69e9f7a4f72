"""The workers' gold records and the controls on trial from columns: what `gold_state` says, of every answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from mitl.db.store.answer_columns import LABELS, NO_LABEL, ROLES, AnswerColumns
from mitl.db.store.pair_rows import pairs_of_rows
from mitl.judgements.gold_columns import gold_columns
from mitl.judgements.gold_records import GoldRecord
from mitl.proposals.packed import distinct
from mitl.records import GoldControl, PairRole
from mitl.records.gold_rule import GoldRule
from mitl.stages.harvesting.golds import GoldState


@dataclass(frozen=True, slots=True)
class GoldAnswers:
    """What the answers on controls say."""

    state: GoldState
    by_role: Mapping[PairRole, GoldRecord]
    """Over all workers; withdrawn controls count for nothing."""


def gold_answers(
    session: Session, every: AnswerColumns, rule: GoldRule, names: Mapping[int, str]
) -> GoldAnswers:
    """Records and withdrawn controls over these answers.

    Args:
        names: worker's row → id on the requester API.
    """
    met = distinct(every.worker[every.is_gold])  # whoever met a control has a record, if an empty one
    answered = every.is_gold & (every.label != NO_LABEL)
    worker, role = np.searchsorted(met, every.worker[answered]), every.role[answered]
    passed = _passes(rule)[role, every.label[answered]]
    golds, gold = np.unique(every.pair[answered] * len(ROLES) + role, return_inverse=True)
    found = gold_columns(worker, gold, passed, n_workers=len(met), n_golds=len(golds))
    trusted = ~found.withdrawn[gold]
    records = {
        names[row]: GoldRecord(n_passed, n_golds)
        for row, n_passed, n_golds in zip(
            met.tolist(), found.passes.tolist(), found.golds.tolist(), strict=True
        )
    }
    by_role = {
        kind: GoldRecord(int((passed & of).sum()), int(of.sum()))
        for code, kind in enumerate(ROLES)
        if kind.is_gold
        for of in [trusted & (role == code)]
    }
    return GoldAnswers(
        GoldState(dict(sorted(records.items())), _controls(session, golds[found.withdrawn])), by_role
    )


def _passes(rule: GoldRule) -> NDArray[np.bool_]:
    """(roles, labels): whether a control of this role passes with this label."""
    return np.array(
        [[kind.is_gold and label in rule.passes(kind) for label in LABELS] for kind in ROLES], np.bool_
    )


def _controls(session: Session, codes: NDArray[np.int64]) -> frozenset[GoldControl]:
    rows, roles = (codes // len(ROLES)).tolist(), (codes % len(ROLES)).tolist()
    pairs = pairs_of_rows(session, rows)
    return frozenset(GoldControl(pairs[row], ROLES[role]) for row, role in zip(rows, roles, strict=True))

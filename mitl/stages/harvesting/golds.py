"""The workers' gold records and the controls on trial, as the stored answers have them now."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from mitl.db.store.judgements import StoredJudgement
from mitl.judgements.gold_records import GoldAnswer, GoldRecord, gold_records, withdrawn_golds
from mitl.records import GoldControl
from mitl.records.gold_rule import GoldRule


@dataclass(frozen=True, slots=True)
class GoldState:
    """What the gold controls say at this moment."""

    records: Mapping[str, GoldRecord]
    """By the worker's id on the requester API."""
    withdrawn: frozenset[GoldControl]

    def record(self, worker: str) -> GoldRecord:
        """A worker's record; empty for one who has met no control."""
        return self.records.get(worker, GoldRecord())


def gold_state(judgements: Sequence[StoredJudgement], rule: GoldRule) -> GoldState:
    """Records and withdrawn controls over all stored answers of one environment."""
    records = (row.record for row in judgements if row.record.role.is_gold)
    return state_of(
        [
            GoldAnswer(row.worker, GoldControl(row.pair, row.role), rule.passed(row.role, row.label))
            for row in records
        ]
    )


def state_of(answers: Collection[GoldAnswer]) -> GoldState:
    """Records and withdrawn controls over these answers."""
    withdrawn = withdrawn_golds(answers)
    return GoldState(gold_records(answers, withdrawn), withdrawn)

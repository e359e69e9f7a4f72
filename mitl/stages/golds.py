"""The workers' gold records and the controls on trial, as the stored answers have them now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mitl.db.store.judgements import StoredJudgement
from mitl.judgements.gold_records import GoldAnswer, GoldRecord, gold_records, withdrawn_golds
from mitl.records import GoldControl


@dataclass(frozen=True, slots=True)
class GoldState:
    """What the gold controls say at this moment."""

    records: Mapping[str, GoldRecord]
    """By the worker's id on the requester API."""
    withdrawn: frozenset[GoldControl]

    def record(self, worker: str) -> GoldRecord:
        """A worker's record; empty for one who has met no control."""
        return self.records.get(worker, GoldRecord())


def gold_state(judgements: Sequence[StoredJudgement]) -> GoldState:
    """Records and withdrawn controls over all stored answers of one environment."""
    answers = [
        GoldAnswer(row.record.worker, GoldControl(row.record.pair, row.record.role), row.record.label)
        for row in judgements
        if row.record.role.is_gold
    ]
    withdrawn = withdrawn_golds(answers)
    return GoldState(gold_records(answers, withdrawn), withdrawn)

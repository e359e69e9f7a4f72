"""Which judgements may count."""

from __future__ import annotations

from mitl.judgements.gold_records import GoldRecord
from mitl.records import Decision, Judgement, Outcome


def is_usable(
    judgement: Judgement,
    decision: Decision,
    record: GoldRecord | None = None,
    *,
    excluded: bool = False,
    same_worker: bool = False,
) -> bool:
    """Whether a judgement may count: answered, on a page whose answers are kept, from a trusted worker.

    Args:
        decision: what was decided about the judgement's assignment.
        record: the worker's gold record; None leaves it out, which is the rule of the page's own controls
            alone. A bad record sets aside pages that passed by rule. A page that a person looked at and
            approved stays.
        excluded: whether the worker is excluded.
        same_worker: whether the pair was asked of this worker before, so that the answer is not a second
            opinion.
    """
    if judgement.outcome is not Outcome.ANSWERED or judgement.label is None:
        return False
    if not decision.keeps_answers or excluded or same_worker:
        return False
    return decision is not Decision.PASS or record is None or not record.is_bad

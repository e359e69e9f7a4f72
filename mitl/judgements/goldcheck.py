"""Whether a submitted page got its gold controls right, and what follows for the page.

Nothing here rejects work: a page passes by rule or goes to a person.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from mitl.judgements.gold_records import GoldRecord
from mitl.records import Decision, Finding, GoldControl, Judgement, Outcome, PairRole
from mitl.records.gold_rule import GoldRule

GOLD_POSITIVE_FAILED = "gold_positive_failed"
GOLD_NEGATIVE_FAILED = "gold_negative_failed"
GOLD_MISSING = "gold_missing"
BAD_RECORD = "bad_record"
EXCLUDED_WORKER = "excluded_worker"

_FAILED = {
    PairRole.GOLD_POSITIVE: GOLD_POSITIVE_FAILED,
    PairRole.GOLD_NEGATIVE: GOLD_NEGATIVE_FAILED,
}


@dataclass(frozen=True, slots=True)
class GoldCheck:
    """How the gold controls of one assignment were answered, each list in order of (pair, role)."""

    passed: tuple[GoldControl, ...] = ()
    failed: tuple[GoldControl, ...] = ()
    unanswered: tuple[GoldControl, ...] = ()
    """Skipped, or the image did not load: neither passed nor failed."""
    withdrawn: tuple[GoldControl, ...] = ()
    """Controls that are no longer trusted; what was answered there is forgiven."""

    def has(self, role: PairRole) -> bool:
        """Whether a control of this role was answered, or was withdrawn and so cannot be asked for."""
        return any(gold.role is role for gold in (*self.passed, *self.failed, *self.withdrawn))


@dataclass(frozen=True, slots=True)
class GoldVerdict:
    """What follows for the assignment: ``Decision.PASS``, or ``Decision.QUEUED`` with the reasons."""

    decision: Decision
    findings: tuple[Finding, ...] = ()


def check_assignment(
    judgements: Iterable[Judgement], rule: GoldRule, withdrawn: Collection[GoldControl] = ()
) -> GoldCheck:
    """How the gold controls among one assignment's judgements were answered; other roles are passed over."""
    sides: dict[str, list[GoldControl]] = {"passed": [], "failed": [], "unanswered": [], "withdrawn": []}
    for judgement in judgements:
        if not judgement.role.is_gold:
            continue
        gold = GoldControl(judgement.pair, judgement.role)
        if gold in withdrawn:
            sides["withdrawn"].append(gold)
            continue
        passed = rule.passed(judgement.role, judgement.label)
        sides["unanswered" if passed is None else "passed" if passed else "failed"].append(gold)
    ordered = {side: tuple(sorted(golds, key=_place)) for side, golds in sides.items()}
    return GoldCheck(**ordered)


def decide(check: GoldCheck, record: GoldRecord | None = None, *, excluded: bool = False) -> GoldVerdict:
    """Pass the assignment, or queue it for a person with every reason.

    Queued where a control failed, where a role has no answered control (skipped, image failed, or none on
    the page), where the worker's gold record is bad, and where the worker is excluded.

    Args:
        record: the worker's record; None applies the page's own controls alone.
    """
    findings = [Finding(_FAILED[gold.role], _pair_text(gold)) for gold in check.failed]
    for role in (PairRole.GOLD_POSITIVE, PairRole.GOLD_NEGATIVE):
        if not check.has(role):
            findings.append(Finding(GOLD_MISSING, f"no answered {role.value}"))
    if record is not None and record.is_bad:
        findings.append(Finding(BAD_RECORD, record.text))
    if excluded:
        findings.append(Finding(EXCLUDED_WORKER))
    return GoldVerdict(Decision.QUEUED if findings else Decision.PASS, tuple(findings))


def _place(gold: GoldControl) -> tuple[int, int, str]:
    return gold.pair.image_id, gold.pair.caption_id, gold.role.value


def _pair_text(gold: GoldControl) -> str:
    return f"image {gold.pair.image_id}, caption {gold.pair.caption_id}"


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

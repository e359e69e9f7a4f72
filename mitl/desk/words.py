"""The desk's plain words for labels, roles, findings, decisions, times and money."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence

from mitl.core import formats
from mitl.core.pricing import format_dollars
from mitl.db.store.answers import StoredAssignment
from mitl.judgements.gold_records import GoldRecord, keeps_page
from mitl.protocol.media import NOUNS
from mitl.records import Decision, Environment, Finding, Label, Outcome, PairRole, PartKind
from mitl.records.questions import RATIONALE

LABELS = {Label.YES: "yes", Label.WEAK_YES: "weak yes", Label.WEAK_NO: "weak no", Label.NO: "no"}
LETTERS = {Label.YES: "Y", Label.WEAK_YES: "y", Label.WEAK_NO: "n", Label.NO: "N"}
OUTCOMES = {Outcome.ANSWERED: "no answer", Outcome.SKIPPED: "skipped", Outcome.IMAGE_FAILED: "image failed"}
OUTCOME_LETTERS = {Outcome.ANSWERED: "–", Outcome.SKIPPED: "·", Outcome.IMAGE_FAILED: "!"}
ROLES = {
    PairRole.CANDIDATE: "",
    PairRole.GOLD_POSITIVE: "control: fits",
    PairRole.GOLD_NEGATIVE: "control: does not fit",
    PairRole.REPEAT: "repeat",
    PairRole.OVERLAP: "second opinion",
    PairRole.AUDIT: "audit",
}
DECISIONS = {
    Decision.NONE: "not looked at yet",
    Decision.PASS: "passed by rule: paid and used",
    Decision.QUEUED: "waits for a person",
    Decision.APPROVE: "approved: paid and used",
    Decision.APPROVE_EXCLUDE: "paid, not used, worker excluded",
    Decision.DROP: "paid, not used",
    Decision.REJECT: "rejected: not paid",
}
FINDINGS = {
    "gold_positive_failed": "Failed a control that fits.",
    "gold_negative_failed": "Failed a control that does not fit.",
    "gold_missing": "A control was not answered.",
    "comparison_control_failed": "Failed a control: the better list was not preferred.",
    "comparison_control_missing": "A control was not answered.",
    "no_preference": "No comparison was answered.",
    "similarity_control_failed": "Failed a control: the score is not what its pair must have.",
    "similarity_control_missing": "A control was not rated.",
    "one_number": "All pairs were rated with one number.",
    "no_rating": "No pair was rated.",
    "text_too_short": "A text is too short.",
    "text_too_long": "A text is too long.",
    "text_language": "A text is not in the language that was asked for.",
    "text_start": "A text begins as none should.",
    "text_copy": "A text is an example of the instructions.",
    "text_duplicate": "A text was given before.",
    "review_control_failed": "Failed a control: the review is not what its text must have.",
    "review_control_missing": "A control was not reviewed.",
    "no_text": "Nothing was written, picked or reviewed.",
    "one_number_rater": "The rater gives one number.",
    "straight_line": "The rater's answers repeat.",
    "drift": "The rater drifts.",
    "rating_controls": "The rater's record on controls is poor.",
    "bad_record": "The worker's record on controls is poor.",
    "too_fast": "Faster than a person can look.",
    "excluded_worker": "The worker is excluded already.",
    "bad_record_after_approval": "The record turned poor after this was approved.",
    "same_worker": "The worker had answered a pair before.",
    "rejection_stands": "Its rejection could not be reversed: the server takes it back no more.",
    "approved_before_rejection": "The work had been approved by itself before it could be rejected.",
    "unreadable": "The answers could not be read.",
    "missing_answer": "A pair has no answer.",
    "missing_rationale": "A reason was asked for and not given.",
    "unasked_rationale": "A reason was given where none was asked.",
    "label_ignored": "An answer stood beside “skipped” or “image failed”; it does not count.",
    "duplicate_field": "An answer came more than once.",
    "unknown_field": "The form brought a field that the page does not have.",
    "unknown_place": "The form answered a place that the page does not have.",
    "bad_value": "The form brought a value that the page does not offer.",
    "more_findings": "There is more of the same kind.",
}
RATER_MARKS = {
    "one_number_rater": "one number",
    "straight_line": "answers repeat",
    "drift": "drift",
    "rating_controls": "poor on controls",
}
"""What is odd about a rater, in the table of all."""
_ON_CARDS = frozenset({"gold_positive_failed", "gold_negative_failed"})
"""Their details are rows; the page shows those pairs in full."""
_WITH_DETAIL = {
    "bad_record",
    "too_fast",
    "one_number",
    "similarity_control_failed",
    "comparison_control_failed",
    "review_control_failed",
    *(code for code in FINDINGS if code.startswith("text_")),
}
_REASONS = {choice.value: choice.said for question in RATIONALE for choice in question.choices if choice.said}
STANDINGS = {
    "good": "good record",
    "poor": "poor record",
    "unproven": "unproven",
    "excluded": "excluded",
}
ENVIRONMENTS = {Environment.SANDBOX: "sandbox · practice money", Environment.LIVE: "live · real money"}


def findings(noted: Iterable[Finding]) -> list[tuple[str, list[str]]]:
    """What was noticed, weightiest first: for each kind a sentence, and the details of one that came several times."""
    by_code: dict[str, list[Finding]] = {}
    for note in noted:
        by_code.setdefault(note.code, []).append(note)
    weights = {code: place for place, code in enumerate(FINDINGS)}
    lines: list[tuple[str, list[str]]] = []
    for code in sorted(by_code, key=lambda code: weights.get(code, len(weights))):
        notes = by_code[code]
        if len(notes) == 1:
            lines.append((_finding(notes[0]), []))
        else:
            details = [note.detail for note in notes if note.detail and code not in _ON_CARDS]
            lines.append((f"{_said(code).rstrip('.')}: {len(notes):,} times.", details))
    return lines


def _said(code: str) -> str:
    return FINDINGS.get(code, code.replace("_", " "))


def _finding(one: Finding) -> str:
    """What was noticed, in a sentence; the detail only where it says more than numbers of rows."""
    said = _said(one.code)
    if one.code in _WITH_DETAIL and one.detail:
        return f"{said.rstrip('.')}: {one.detail}."
    if one.code in ("unreadable", "bad_value", "missing_answer", "same_worker") and one.detail:
        return f"{said.rstrip('.')} ({one.detail})."
    return said


def fate(row: StoredAssignment, record: GoldRecord | None = None) -> str:
    """What was decided, and why its answers are not used where that alone would not tell.

    Args:
        record: the worker's on the controls of pairs; None for pages that asked something else.
    """
    said = DECISIONS[row.decision]
    if not row.decision.keeps_answers or keeps_page(row.decision, record, excluded=row.excluded):
        return said
    why = "worker is excluded" if row.excluded else "worker's record is poor"
    return said.replace(" and used", f", not used because the {why}")


def either(labels: Sequence[Label]) -> str:
    """Answers of which any will do."""
    return " or ".join(LABELS[label] for label in labels)


def reason(code: str) -> str:
    """A ticked reason; an answer to a template's own question says which, and stays as it is."""
    return code if ": " in code else _REASONS.get(code, code.replace("_", " "))


money = format_dollars
"""As the pages write it."""


def seconds(value: float | None) -> str:
    """A time in seconds, or minutes where it is long."""
    if value is None:
        return "–"
    if value < 10:
        return f"{value:.1f} s"
    return f"{value:.0f} s" if value < 120 else f"{value / 60:.0f} min"


def day(time: dt.datetime) -> str:
    """A date."""
    return f"{time.day} {time:%B %Y}"


def when(time: dt.datetime | None) -> str:
    """A moment."""
    return "–" if time is None else f"{time:%Y-%m-%d %H:%M} UTC"


def ago(time: dt.datetime, now: dt.datetime) -> str:
    """How long before now."""
    minutes = max(0, int((now - time).total_seconds() // 60))
    if minutes < 2:
        return "just now" if minutes < 1 else "1 minute ago"
    if minutes < 120:
        return f"{minutes} minutes ago"
    hours = minutes // 60
    return f"{hours} hours ago" if hours < 48 else f"{hours // 24} days ago"


def part(kind: PartKind) -> str:
    """What stands beside a text, in a heading."""
    return NOUNS[kind].capitalize()


def percent(share: float | None) -> str:
    """A share as whole percent."""
    return formats.percent(share, 0)

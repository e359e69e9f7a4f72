"""Rows as the API's JSON structures. Times are seconds since 1970; money is a string."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

from mitl.crowd_server.models import AssignmentState
from mitl.crowd_server.store.assignments import AssignmentRow, BonusRow
from mitl.crowd_server.store.hits import HitRow

STATUS = {
    AssignmentState.SUBMITTED: "Submitted",
    AssignmentState.APPROVED: "Approved",
    AssignmentState.REJECTED: "Rejected",
}


def dollars(cents: int) -> str:
    """A CurrencyAmount."""
    return f"{cents // 100}.{cents % 100:02d}"


def seconds(time: dt.datetime) -> float:
    """A timestamp on the wire, to the millisecond."""
    return round(time.timestamp(), 3)


def hit(row: HitRow, now: dt.datetime, question: str | None = None) -> dict[str, Any]:
    """A HIT; its question only where one HIT was asked for, because a page of a hundred would weigh megabytes."""
    values = row.type.values
    shape: dict[str, Any] = {
        "HITId": row.mturk_id,
        "HITTypeId": row.type.mturk_id,
        "HITGroupId": row.type.group_id,
        "CreationTime": seconds(row.created_at),
        "Title": values.title,
        "Description": values.description,
        "Keywords": values.keywords,
        "HITStatus": row.status(now),
        "MaxAssignments": row.max_assignments,
        "Reward": dollars(values.reward_cents),
        "AutoApprovalDelayInSeconds": values.auto_approval_s,
        "Expiration": seconds(row.expires_at),
        "AssignmentDurationInSeconds": values.duration_s,
        "QualificationRequirements": json.loads(values.requirements),
        "HITReviewStatus": "NotReviewed",
        "NumberOfAssignmentsPending": row.pending,
        "NumberOfAssignmentsAvailable": max(0, row.slots_left - row.pending),
        "NumberOfAssignmentsCompleted": row.completed,
    }
    if row.annotation:
        shape["RequesterAnnotation"] = row.annotation
    if row.reviewing:
        shape["HITReviewStatus"] = "MarkedForReview"
    if question is not None:
        shape["Question"] = question
    return shape


def assignment(row: AssignmentRow) -> dict[str, Any]:
    """A submitted assignment."""
    shape: dict[str, Any] = {
        "AssignmentId": row.mturk_id,
        "WorkerId": row.worker,
        "HITId": row.hit,
        "AssignmentStatus": STATUS[row.state],
        "AutoApprovalTime": seconds(row.auto_approve_at),
        "AcceptTime": seconds(row.accepted_at),
        "SubmitTime": seconds(row.submitted_at),
        "Deadline": seconds(row.deadline_at),
        "Answer": row.answer,
    }
    if row.decided_at is not None:
        name = "ApprovalTime" if row.state is AssignmentState.APPROVED else "RejectionTime"
        shape[name] = seconds(row.decided_at)
    if row.feedback:
        shape["RequesterFeedback"] = row.feedback
    return shape


def bonus(row: BonusRow) -> dict[str, Any]:
    """A bonus payment."""
    return {
        "WorkerId": row.worker,
        "BonusAmount": dollars(row.cents),
        "AssignmentId": row.assignment,
        "Reason": row.reason,
        "GrantTime": seconds(row.granted_at),
    }

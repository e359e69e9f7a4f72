"""Rows as the API's JSON structures. Times are seconds since 1970; money is a string."""

from __future__ import annotations

import datetime as dt
import json

from mitl.core.pricing import amount
from mitl.crowd_server.api.registry import Reply
from mitl.crowd_server.store.assignments import AssignmentRow, BonusRow
from mitl.crowd_server.store.hits import HitRow
from mitl.crowd_server.store.models import AssignmentState
from mitl.crowd_server.store.qualifications import QualificationRow, QualificationTypeRow, RequestRow
from mitl.crowd_server.store.workers import BlockRow

STATUS = {
    AssignmentState.SUBMITTED: "Submitted",
    AssignmentState.APPROVED: "Approved",
    AssignmentState.REJECTED: "Rejected",
}


def seconds(time: dt.datetime) -> float:
    """A timestamp on the wire, to the millisecond."""
    return round(time.timestamp(), 3)


def _with(shape: Reply, **optional: object) -> Reply:
    """A structure with those of these members that have a value; an empty text is none."""
    return shape | {name: value for name, value in optional.items() if value not in (None, "")}


def hit(row: HitRow, now: dt.datetime, question: str | None = None) -> Reply:
    """A HIT; its question only where one HIT was asked for, because a page of a hundred would weigh megabytes."""
    shape = {
        "HITId": row.mturk_id,
        "HITTypeId": row.type.mturk_id,
        "HITGroupId": row.type.group_id,
        "CreationTime": seconds(row.created_at),
        "Title": row.type.title,
        "Description": row.type.description,
        "Keywords": row.type.keywords,
        "HITStatus": row.status(now),
        "MaxAssignments": row.max_assignments,
        "Reward": amount(row.type.reward_cents),
        "AutoApprovalDelayInSeconds": row.type.auto_approval_s,
        "Expiration": seconds(row.expires_at),
        "AssignmentDurationInSeconds": row.type.duration_s,
        "QualificationRequirements": json.loads(row.type.requirements),
        "HITReviewStatus": "MarkedForReview" if row.reviewing else "NotReviewed",
        "NumberOfAssignmentsPending": row.pending,
        "NumberOfAssignmentsAvailable": max(0, row.slots_left - row.pending),
        "NumberOfAssignmentsCompleted": row.completed,
    }
    return _with(shape, RequesterAnnotation=row.annotation, Question=question)


def assignment(row: AssignmentRow) -> Reply:
    """A submitted assignment."""
    shape = {
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
    return _with(shape, RequesterFeedback=row.feedback)


def bonus(row: BonusRow) -> Reply:
    """A bonus payment."""
    return {
        "WorkerId": row.worker,
        "BonusAmount": amount(row.cents),
        "AssignmentId": row.assignment,
        "Reason": row.reason,
        "GrantTime": seconds(row.granted_at),
    }


def qualification_type(row: QualificationTypeRow) -> Reply:
    """A qualification type; workers may ask for it while it is active."""
    terms = row.terms
    shape = {
        "QualificationTypeId": row.mturk_id,
        "CreationTime": seconds(row.created_at),
        "Name": row.name,
        "Description": row.description,
        "Keywords": row.keywords,
        "QualificationTypeStatus": "Active" if row.active else "Inactive",
        "IsRequestable": row.active,
        "AutoGranted": terms.auto_granted_value is not None,
    }
    return _with(
        shape,
        Test=terms.test,
        TestDurationInSeconds=terms.test_duration_s,
        AnswerKey=terms.answer_key,
        RetryDelayInSeconds=terms.retry_delay_s,
        AutoGrantedValue=terms.auto_granted_value,
    )


def qualification(row: QualificationRow) -> Reply:
    """A qualification that a worker holds or held."""
    shape = {
        "QualificationTypeId": row.type,
        "WorkerId": row.worker,
        "GrantTime": seconds(row.granted_at),
        "Status": "Granted" if row.revoked_at is None else "Revoked",
    }
    return _with(shape, IntegerValue=row.value)


def qualification_request(row: RequestRow) -> Reply:
    """A request that waits, with the answers to its test where it has one."""
    assert row.submitted_at is not None
    shape = {
        "QualificationRequestId": row.mturk_id,
        "QualificationTypeId": row.type,
        "WorkerId": row.worker,
        "SubmitTime": seconds(row.submitted_at),
    }
    return _with(shape, Test=row.test if row.answer else None, Answer=row.answer)


def worker_block(row: BlockRow) -> Reply:
    """A block with its reason."""
    return {"WorkerId": row.worker, "Reason": row.reason}

"""Qualification types, qualifications, requests and blocks as the API's JSON structures."""

from __future__ import annotations

from typing import Any

from mitl.crowd_server.api.shapes import seconds
from mitl.crowd_server.store.blocks import BlockRow
from mitl.crowd_server.store.qualifications import QualificationRow, QualificationTypeRow
from mitl.crowd_server.store.requests import RequestRow


def qualification_type(row: QualificationTypeRow) -> dict[str, Any]:
    """A qualification type; workers may ask for it while it is active."""
    terms = row.terms
    shape: dict[str, Any] = {
        "QualificationTypeId": row.mturk_id,
        "CreationTime": seconds(row.created_at),
        "Name": row.name,
        "Description": row.description,
        "Keywords": row.keywords,
        "QualificationTypeStatus": "Active" if row.active else "Inactive",
        "IsRequestable": row.active,
        "AutoGranted": terms.auto_granted_value is not None,
    }
    optional = {
        "Test": terms.test,
        "TestDurationInSeconds": terms.test_duration_s,
        "AnswerKey": terms.answer_key,
        "RetryDelayInSeconds": terms.retry_delay_s,
        "AutoGrantedValue": terms.auto_granted_value,
    }
    return shape | {name: value for name, value in optional.items() if value is not None}


def qualification(row: QualificationRow) -> dict[str, Any]:
    """A qualification that a worker holds or held."""
    shape: dict[str, Any] = {
        "QualificationTypeId": row.type,
        "WorkerId": row.worker,
        "GrantTime": seconds(row.granted_at),
        "Status": "Granted" if row.revoked_at is None else "Revoked",
    }
    if row.value is not None:
        shape["IntegerValue"] = row.value
    return shape


def qualification_request(row: RequestRow, test: str | None) -> dict[str, Any]:
    """A request that waits, with the answers to its test where it has one."""
    assert row.submitted_at is not None
    shape: dict[str, Any] = {
        "QualificationRequestId": row.mturk_id,
        "QualificationTypeId": row.type,
        "WorkerId": row.worker,
        "SubmitTime": seconds(row.submitted_at),
    }
    if row.answer and test is not None:
        shape["Test"] = test
    if row.answer:
        shape["Answer"] = row.answer
    return shape


def worker_block(row: BlockRow) -> dict[str, Any]:
    """A block with its reason."""
    return {"WorkerId": row.worker, "Reason": row.reason}

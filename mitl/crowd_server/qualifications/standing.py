"""Where a worker stands with a qualification: what may be asked for, what waits, and when to try again; pure."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from mitl.crowd_server.models import RequestState
from mitl.crowd_server.store.qualifications import QualificationRow, QualificationTypeRow
from mitl.crowd_server.store.requests import RequestRow

GRACE = dt.timedelta(seconds=5)
"""How long after a test's time its answers are still taken: the way to the server is not the worker's fault."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One worker's standing with one qualification type."""

    type: QualificationTypeRow
    held: QualificationRow | None
    last: RequestRow | None
    state: str
    """none, testing, overdue (the test's time ran out), pending, granted or rejected: of the last request."""
    may_request: bool
    retry_at: dt.datetime | None
    """When a finished request may be followed by another; None where it never may, or none was made."""

    @property
    def is_undecided(self) -> bool:
        """Whether a request is on its way."""
        return self.state in ("testing", "pending")


def is_testing(request: RequestRow, now: dt.datetime) -> bool:
    """Whether a test is in hand and its answers would be taken."""
    return request.state is RequestState.TESTING and now <= request.deadline + GRACE


def standing(
    own: QualificationTypeRow, held: QualificationRow | None, last: RequestRow | None, now: dt.datetime
) -> Standing:
    """Where a worker stands who holds ``held`` and whose last request is ``last``.

    As on MTurk, a type without a retry delay can be asked for once, whatever came of it. The delay counts from
    when the request was sent, or from the start of a test that never was.
    """
    if last is None:
        return Standing(own, held, None, "none", own.active, None)
    if is_testing(last, now):
        return Standing(own, held, last, "testing", False, None)
    if last.state is RequestState.PENDING:
        return Standing(own, held, last, "pending", False, None)
    state = "overdue" if last.state is RequestState.TESTING else last.state.value
    delay = own.terms.retry_delay_s
    if delay is None:
        return Standing(own, held, last, state, False, None)
    retry_at = (last.submitted_at or last.started_at) + dt.timedelta(seconds=delay)
    return Standing(own, held, last, state, own.active and now >= retry_at, retry_at)


def is_shown(own: Standing, asked_for: set[str]) -> bool:
    """Whether a worker's page offers or shows this type.

    A qualification that nobody grants by test or by itself, and that no open HIT asks for, is a requester's own
    mark on workers; asking for it would lead nowhere.
    """
    if own.held is not None or own.last is not None:
        return True
    terms = own.type.terms
    grants = terms.test is not None or terms.auto_granted_value is not None
    return own.type.active and (grants or own.type.mturk_id in asked_for)

"""Until when something about a submission can still be changed."""

from __future__ import annotations

import datetime as dt

from mitl.crowd.paying import SUBMITTED
from mitl.db.store.answers import AssignmentRow
from mitl.settings import AUTO_APPROVAL_S

REVERSIBLE_FOR = dt.timedelta(days=30)
"""From submission on; MTurk's rule, and this server's."""


def reversible_until(row: AssignmentRow) -> dt.datetime | None:
    """The last moment at which a rejection of this submission can be reversed; None where its time is unknown."""
    return None if row.submitted_at is None else row.submitted_at + REVERSIBLE_FOR


def approves_itself_at(row: AssignmentRow) -> dt.datetime | None:
    """When the server pays a submission that waits for a decision; None where it does not, or nobody knows when."""
    if row.status != SUBMITTED or row.submitted_at is None:
        return None
    return row.submitted_at + dt.timedelta(seconds=AUTO_APPROVAL_S)


def utc(moment: dt.datetime | None) -> str:
    """A moment to the minute, in words."""
    return "an unknown time" if moment is None else f"{moment.astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC"

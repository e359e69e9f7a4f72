"""How long a HIT takes: as people took it, or, until enough of them did, as its own page says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from mitl.crowd_server.store import work_history
from mitl.crowd_server.store.leases import GroupRow

_STATED = re.compile(r"\babout (?:(an?|one)|([0-9]{1,3})) minutes?\b")
_BY_PEOPLE_S = 20
_LOOKED_AT = 20
"""Groups whose page is read for what it says; more are never on one list."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The time of one HIT."""

    seconds: int
    is_measured: bool
    """Whether half of the latest submissions took no longer; else the requester says so."""

    def cents_an_hour(self, reward_cents: int) -> int:
        """What an hour of such HITs pays, rounded down."""
        return reward_cents * 3600 // max(1, self.seconds)


def of_groups(connection: Connection, groups: Sequence[GroupRow]) -> Mapping[int, Estimate]:
    """The estimates of listed groups by the row of their type, where there is one."""
    usual = work_history.usual_seconds(connection) if groups else {}
    found = {}
    for group in groups[:_LOOKED_AT]:
        measured = _measured(usual, group.hit_type_id)
        if measured is not None:
            found[group.hit_type_id] = measured
        elif (stated := _stated(work_history.sample_question(connection, group.sample))) is not None:
            found[group.hit_type_id] = stated
    return found


def of_hit(connection: Connection, hit_type_id: int, question_xml: str) -> Estimate | None:
    """The estimate of one HIT, whose question is at hand."""
    measured = _measured(work_history.usual_seconds(connection), hit_type_id)
    return _stated(question_xml) if measured is None else measured


def _measured(usual: Mapping[int, int], hit_type_id: int) -> Estimate | None:
    """What people took; times that only scripts have tell a person nothing."""
    seconds = usual.get(hit_type_id, 0)
    return Estimate(seconds, True) if seconds >= _BY_PEOPLE_S else None


def _stated(question_xml: str) -> Estimate | None:
    match = _STATED.search(question_xml)
    if match is None:
        return None
    minutes = 1 if match[1] else int(match[2])
    return Estimate(60 * minutes, False) if minutes else None

"""What the operator does to a whole HIT type: pause, resume, expire."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from sqlalchemy import Connection, select, update

from mitl.crowd_server.models import Hit, HitType
from mitl.crowd_server.store import settling
from mitl.records import Environment


@dataclass(frozen=True, slots=True)
class Group:
    """A HIT type to act on."""

    id: int
    environment: Environment
    title: str


def find(connection: Connection, mturk_id: str) -> Group | None:
    """The HIT type of this id, of either environment."""
    row = connection.execute(
        select(HitType.id, HitType.environment, HitType.title).where(HitType.mturk_id == mturk_id)
    ).one_or_none()
    return None if row is None else Group(*row)


def pause(connection: Connection, group: Group, now: dt.datetime) -> bool:
    """Give out no more of its HITs; False where that was so already."""
    result = connection.execute(
        update(HitType).where(HitType.id == group.id, HitType.paused_at.is_(None)).values(paused_at=now)
    )
    return result.rowcount == 1


def resume(connection: Connection, group: Group) -> bool:
    """Give out its HITs again; False where they were not paused."""
    result = connection.execute(
        update(HitType).where(HitType.id == group.id, HitType.paused_at.is_not(None)).values(paused_at=None)
    )
    return result.rowcount == 1


def expire_some(connection: Connection, group: Group, now: dt.datetime, *, limit: int) -> int:
    """Expire the first ``limit`` of its open HITs and settle their money; how many there were.

    Few at a time, because one writes at a time: workers who submit meanwhile wait for one portion alone. What a
    portion did stands, so an interruption costs nothing but another call.
    """
    ids = (
        connection.execute(
            select(Hit.id)
            .where(
                Hit.environment == group.environment,
                Hit.hit_type_id == group.id,
                Hit.deleted_at.is_(None),
                Hit.expires_at > now,
            )
            .order_by(Hit.id)
            .limit(limit)
        )
        .scalars()
        .all()
    )
    if ids:
        connection.execute(update(Hit).where(Hit.id.in_(ids)).values(expires_at=now))
    for hit_id in ids:
        settling.settle_hit(connection, group.environment, hit_id, now)
    return len(ids)

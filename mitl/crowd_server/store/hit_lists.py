"""HITs of one requester that have something in common, oldest first."""

from __future__ import annotations

import datetime as dt

from sqlalchemy import Connection, exists, or_

from mitl.crowd_server.models import Assignment, AssignmentState, Hit, HitType
from mitl.crowd_server.store.hits import SELECT, HitRow, rows
from mitl.records import Environment


def list_hits(
    connection: Connection, environment: Environment, *, after: int, limit: int, now: dt.datetime
) -> list[HitRow]:
    """HITs that are not deleted, oldest first, from the one after id ``after``."""
    wanted = SELECT.where(Hit.environment == environment, Hit.id > after, Hit.deleted_at.is_(None))
    return rows(connection, wanted.order_by(Hit.id).limit(limit), now)


def list_of_type(
    connection: Connection, hit_type_id: int, *, after: int, limit: int, now: dt.datetime
) -> list[HitRow]:
    """HITs of a HIT type, deleted ones too, oldest first."""
    wanted = SELECT.where(Hit.hit_type_id == hit_type_id, Hit.id > after)
    return rows(connection, wanted.order_by(Hit.id).limit(limit), now)


def list_reviewable(
    connection: Connection,
    environment: Environment,
    *,
    hit_type_id: int | None,
    reviewing: bool,
    after: int,
    limit: int,
    now: dt.datetime,
) -> list[HitRow]:
    """HITs on which no further work will come, marked as being reviewed or not."""
    lease = exists().where(
        Assignment.hit_id == Hit.id,
        Assignment.state == AssignmentState.ACCEPTED,
        Assignment.deadline_at > now,
    )
    wanted = SELECT.where(
        Hit.environment == environment,
        Hit.id > after,
        Hit.deleted_at.is_(None),
        Hit.reviewing.is_(reviewing),
        or_(Hit.slots_left == 0, Hit.expires_at <= now),
        ~lease,
    )
    if hit_type_id is not None:
        wanted = wanted.where(Hit.hit_type_id == hit_type_id)
    return rows(connection, wanted.order_by(Hit.id).limit(limit), now)


def list_requiring(
    connection: Connection,
    environment: Environment,
    mention: str,
    *,
    after: int,
    limit: int,
    now: dt.datetime,
) -> list[HitRow]:
    """HITs that are not deleted and whose type's requirements hold this text."""
    wanted = SELECT.where(
        Hit.environment == environment,
        Hit.id > after,
        Hit.deleted_at.is_(None),
        HitType.requirements.contains(mention, autoescape=True),
    )
    return rows(connection, wanted.order_by(Hit.id).limit(limit), now)

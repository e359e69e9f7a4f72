"""HIT types."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select

from mitl.crowd_server.protocol.ids import entity_id
from mitl.crowd_server.store.database import Wide, columns, new_id
from mitl.crowd_server.store.models import HitType
from mitl.records import Environment


@dataclass(frozen=True, slots=True)
class TypeValues:
    """What makes one HIT type differ from another."""

    title: str
    description: str
    keywords: str
    reward_cents: int
    duration_s: int
    auto_approval_s: int
    requirements: str


@dataclass(frozen=True, slots=True)
class TypeRow:
    """A HIT type as kept."""

    id: int
    mturk_id: str
    group_id: str
    values: TypeValues


COLUMNS = (HitType.id, HitType.mturk_id, HitType.group_id, *columns(TypeValues, HitType))
_FIND: Wide = select(*COLUMNS).where(
    HitType.mturk_id == bindparam("mturk_id"), HitType.environment == bindparam("environment")
)


def add(
    connection: Connection, environment: Environment, digest: str, values: TypeValues, now: dt.datetime
) -> TypeRow:
    """The HIT type of these values, made at its first use."""
    row = connection.execute(
        select(*COLUMNS).where(HitType.environment == environment, HitType.digest == digest)
    ).one_or_none()
    if row is not None:
        return type_row(tuple(row))
    mturk_id, group_id = entity_id(), entity_id()
    result = connection.execute(
        insert(HitType).values(
            environment=environment,
            mturk_id=mturk_id,
            group_id=group_id,
            digest=digest,
            created_at=now,
            **asdict(values),
        )
    )
    return TypeRow(new_id(result), mturk_id, group_id, values)


def find(connection: Connection, environment: Environment, mturk_id: str) -> TypeRow | None:
    """The HIT type of this id."""
    row = connection.execute(_FIND, {"mturk_id": mturk_id, "environment": environment}).one_or_none()
    return None if row is None else type_row(tuple(row))


def type_row(row: tuple[Any, ...]) -> TypeRow:
    """A HIT type from the values of ``COLUMNS``."""
    own_id, mturk_id, group_id, *values = row
    return TypeRow(own_id, mturk_id, group_id, TypeValues(*values))

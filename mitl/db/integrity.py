"""What must hold of any of mitl's databases: a sound file, no reference to a missing row, no unknown enum value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, Enum, MetaData, and_, bindparam, func, or_, select, text

from mitl.db.tables import reflected


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that must not be; it names tables and numbers, never what a row says."""

    what: str
    rows: int


def general_faults(connection: Connection, metadata: MetaData) -> Iterator[Fault]:
    """Faults that need no knowledge of what the tables mean; ``metadata`` is that of the newest revision."""
    yield from _damage(connection)
    yield from _lost_references(connection)
    yield from _unknown_values(connection, metadata)


def rule_faults(connection: Connection, rules: Mapping[str, str]) -> Iterator[Fault]:
    """The rules that are broken; each is a query that counts the rows that break it, under what it says of them."""
    for what, query in rules.items():
        count = connection.execute(text(query)).scalar_one()
        if count:
            yield Fault(what, count)


def _damage(connection: Connection) -> Iterator[Fault]:
    if connection.dialect.name != "sqlite":
        return
    said = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
    if said != "ok":
        yield Fault(f"the file is damaged: {said}", 1)


def _lost_references(connection: Connection) -> Iterator[Fault]:
    for table in reflected(connection):
        for key in table.foreign_key_constraints:
            there = key.referred_table.alias()
            pairs = [(element.parent, there.c[element.column.name]) for element in key.elements]
            lost = (
                select(func.count())
                .select_from(table.outerjoin(there, and_(*(own == other for own, other in pairs))))
                .where(*(own.is_not(None) for own, _ in pairs), or_(*(other.is_(None) for _, other in pairs)))
            )
            count = connection.execute(lost).scalar_one()
            if count:
                yield Fault(
                    f"{table.name} points to rows of {key.referred_table.name} that are not there", count
                )


def _unknown_values(connection: Connection, metadata: MetaData) -> Iterator[Fault]:
    for table in metadata.sorted_tables:
        for column in table.columns:
            if not isinstance(column.type, Enum):
                continue
            # As text, since the type itself would refuse to read them.
            plain = text(f"SELECT count(*) FROM {table.name} WHERE {column.name} NOT IN :known")
            known = tuple(column.type.enums)
            count = connection.execute(
                plain.bindparams(bindparam("known", known, expanding=True))
            ).scalar_one()
            if count:
                yield Fault(f"{table.name}.{column.name} holds values that mitl does not know", count)

"""A database's tables as they are now, whatever its revision: their columns' types in a dump, and what must hold.

A dump holds what is stored, not what the models make of it: times as microseconds since 1970, enums as their values.
So it needs no model of an older revision, and the same rows give the same files from either engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Boolean, Column, Connection, Float, Integer, LargeBinary, MetaData, String, Table

from mitl.db.migrate import VERSION_TABLE
from mitl.errors import StoreError

if TYPE_CHECKING:
    import pyarrow as pa
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sqlalchemy import Enum, and_, bindparam, func, or_, select, text

LEFT_OUT = ("answer_sheet", "control_sheet", "worker_tally", "standing", "allowance")
"""Tables that say only what others say and are written again from them, or what holds for a minute."""


def reflected(connection: Connection) -> list[Table]:
    """All tables, each after those that its rows point to; without `LEFT_OUT` and the one that holds the revision."""
    metadata = MetaData()
    metadata.reflect(connection)
    return [table for table in metadata.sorted_tables if table.name not in (VERSION_TABLE, *LEFT_OUT)]


def schema_of(columns: Iterable[Column[Any]]) -> pa.Schema:
    """A table's columns as a dump holds them.

    Raises:
        StoreError: a column of a type that mitl's tables do not have.
    """
    import pyarrow as pa

    return pa.schema([pa.field(column.name, _type(column)) for column in columns])


def _type(column: Column[object]) -> pa.DataType:
    import pyarrow as pa

    kinds = (
        (Boolean, pa.bool_()),
        (Integer, pa.int64()),
        (Float, pa.float64()),
        (String, pa.string()),
        (LargeBinary, pa.binary()),
    )
    for kind, stored_as in kinds:
        if isinstance(column.type, kind):
            return stored_as
    raise StoreError(
        f"{column.table.name}.{column.name} is of type {column.type}, which a dump cannot hold; mitl did not make "
        "that column"
    )


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
            referred = key.referred_table.alias()
            pairs = [(element.parent, referred.c[element.column.name]) for element in key.elements]
            lost = (
                select(func.count())
                .select_from(table.outerjoin(referred, and_(*(column == other for column, other in pairs))))
                .where(
                    *(column.is_not(None) for column, _ in pairs),
                    or_(*(other.is_(None) for _, other in pairs)),
                )
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
            values = tuple(column.type.enums)
            count = connection.execute(
                plain.bindparams(bindparam("known", values, expanding=True))
            ).scalar_one()
            if count:
                yield Fault(f"{table.name}.{column.name} holds values that mitl does not know", count)


RULES: dict[str, str] = {
    "queries search with an item that is not there": """
        SELECT count(*) FROM query q WHERE NOT EXISTS (
            SELECT 1 FROM direction d JOIN item i ON i.side_id = d.query_side_id
            WHERE (d.query_side_id < d.gallery_side_id) = (q.direction = 'i2t') AND i.id = q.item_id)""",
    "comparisons are of a query that is not there": """
        SELECT count(*) FROM comparison c WHERE NOT EXISTS (
            SELECT 1 FROM direction d JOIN item i ON i.side_id = d.query_side_id
            WHERE d.name = c.direction AND i.id = c.query_id)""",
    "items have no part": """
        SELECT count(*) FROM item i WHERE NOT EXISTS (
            SELECT 1 FROM part p WHERE p.side_id = i.side_id AND p.item_id = i.id)""",
    "captions are of no image": """
        SELECT count(*) FROM item i JOIN side s ON s.id = i.side_id WHERE s.name = 'caption' AND i.group_id IS NULL""",
    "pairs are marked as proposed and nothing proposed them, or the other way round": """
        SELECT count(*) FROM pair p
        WHERE p.proposed <> EXISTS (
            SELECT 1 FROM proposal r JOIN annotator a ON a.id = r.annotator_id WHERE r.pair_id = p.id
            AND NOT EXISTS (SELECT 1 FROM trained_annotator t WHERE t.name = a.name AND t.withdrawn_at IS NOT NULL))""",
    "pairs join items of two data sets": """
        SELECT count(*) FROM pair p JOIN side l ON l.id = p.left_side_id JOIN side r ON r.id = p.right_side_id
        WHERE l.dataset_id <> r.dataset_id""",
    "captions belong to an image of another data set": """
        SELECT count(*) FROM item i JOIN side s ON s.id = i.side_id JOIN side g ON g.id = i.group_side_id
        WHERE s.dataset_id <> g.dataset_id""",
    "HITs are posted and have no id of the server": """
        SELECT count(*) FROM hit WHERE state = 'posted' AND mturk_hit_id IS NULL""",
    "HITs replace one of another batch, at the same reward or in other words": """
        SELECT count(*) FROM hit h JOIN hit r ON r.id = h.replaces_id
        JOIN batch b ON b.id = h.batch_id JOIN batch o ON o.id = r.batch_id WHERE b.id <> o.id AND (
            b.reward_cents = o.reward_cents OR b.environment <> o.environment OR b.kind <> o.kind
            OR b.template <> o.template)""",
    "judgements are about another pair than stands at their place": """
        SELECT count(*) FROM judgement j JOIN assignment a ON a.id = j.assignment_id
        JOIN hit_item p ON p.hit_id = a.hit_id AND p.place = j.place WHERE p.pair_id <> j.pair_id""",
    "judgements have a label although nothing was answered, or none although it was": """
        SELECT count(*) FROM judgement WHERE (outcome = 'answered') <> (label IS NOT NULL)""",
    "ratings of similarity are of a place that their page does not have": """
        SELECT count(*) FROM similarity_answer r JOIN assignment a ON a.id = r.assignment_id
        WHERE NOT EXISTS (SELECT 1 FROM similarity_item i WHERE i.hit_id = a.hit_id AND i.place = r.place)""",
    "ratings of similarity have a score although nothing was answered, or none from 0 to 5 although it was": """
        SELECT count(*) FROM similarity_answer
        WHERE (outcome = 'answered') <> (score IS NOT NULL) OR score < 0 OR score > 5""",
    "workers of one environment have submissions in the other": """
        SELECT count(*) FROM assignment a JOIN worker w ON w.id = a.worker_id JOIN hit h ON h.id = a.hit_id
        JOIN batch b ON b.id = h.batch_id WHERE b.environment <> w.environment""",
    "ledger rows book less than nothing, or something unknown": """
        SELECT count(*) FROM ledger WHERE cents < 0 OR kind NOT IN ('reward', 'fee', 'bonus')""",
    "rewards are booked for work that is not approved": """
        SELECT count(*) FROM ledger l JOIN assignment a ON a.id = l.assignment_id
        WHERE l.kind = 'reward' AND a.status <> 'Approved'""",
    "rewards are booked at another price than their batch's": """
        SELECT count(*) FROM ledger l JOIN assignment a ON a.id = l.assignment_id JOIN hit h ON h.id = a.hit_id
        JOIN batch b ON b.id = h.batch_id WHERE l.kind = 'reward' AND l.cents <> b.reward_cents""",
    "submissions have more than one reward booked": """
        SELECT count(*) FROM (
            SELECT assignment_id FROM ledger WHERE kind = 'reward' GROUP BY assignment_id HAVING count(*) > 1
        ) AS twice""",
    "bonuses are booked and the journal knows no call that granted them": """
        SELECT count(*) FROM ledger l WHERE l.kind = 'bonus' AND NOT EXISTS (
            SELECT 1 FROM journal j WHERE j.kind = 'bonus' AND j.state = 'done' AND 'bonus:' || j.key = l.key)""",
    "bonuses were granted and are not booked": """
        SELECT count(*) FROM journal j WHERE j.kind = 'bonus' AND j.state = 'done' AND NOT EXISTS (
            SELECT 1 FROM ledger l WHERE l.key = 'bonus:' || j.key)""",
    "audited pairs have an inclusion probability that is none": """
        SELECT count(*) FROM audit_pair WHERE inclusion <= 0 OR inclusion > 1""",
    "pairs stand on audit places and no audit drew them": """
        SELECT count(*) FROM hit_item i WHERE i.role = 'audit'
        AND NOT EXISTS (SELECT 1 FROM audit_pair p WHERE p.pair_id = i.pair_id)""",
    "machine labels have a probability that is none": """
        SELECT count(*) FROM machine_label WHERE probability < 0 OR probability > 1""",
    "labellings rest on an audit of another environment": """
        SELECT count(*) FROM labelling l JOIN audit a ON a.id = l.audit_id WHERE a.environment <> l.environment""",
    "calls are under way or planned and have a reply": """
        SELECT count(*) FROM journal WHERE state = 'planned' AND reply IS NOT NULL""",
}

"""The answers of a submission in one value, so that what all of them say is read at once

The database drops a sheet when what it was made of changes; commands that judge write those that are missing.

Revision ID: p0006
Revises: p0005
"""

import sqlalchemy as sa
from alembic import op

revision = "p0006"
down_revision = "p0005"
branch_labels = None
depends_on = None

_PARTIAL = {
    "ix_pair_unproposed": ("pair", "id", sa.text("NOT proposed")),
    "ix_hit_item_overlap": ("hit_item", "hit_id", sa.text("role = 'overlap'")),
}
_KEYS = {"judgement": "assignment_id", "hit_item": "hit_id"}
_SIDES = {"INSERT": ("NEW",), "UPDATE": ("OLD", "NEW"), "DELETE": ("OLD",)}
_TRIGGERS = [(table, event) for table in _KEYS for event in _SIDES]
_MOVED = ("assignment", "UPDATE")
"""A submission that is put on another page is asked about other roles; other updates of it change no sheet."""
_TRUNCATED = [(table, "TRUNCATE") for table in _KEYS]
"""PostgreSQL's alone."""
_WRITING = "1835627628, 1"
"""The advisory lock under which mitl writes."""


def upgrade() -> None:
    op.create_table(
        "answer_sheet",
        sa.Column("assignment_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["assignment_id"],
            ["assignment.id"],
            name="fk_answer_sheet_assignment_id_assignment",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("assignment_id", name="pk_answer_sheet"),
    )
    op.drop_index("ix_assignment_worker_id", "assignment")
    op.create_index(
        "ix_assignment_worker", "assignment", ["worker_id", "decision", "status", "submitted_at", "hit_id"]
    )
    for name, (table, column, only) in _PARTIAL.items():
        op.create_index(name, table, [column], sqlite_where=only, postgresql_where=only)
    if op.get_bind().dialect.name == "postgresql":
        _postgresql_triggers()
    else:
        _sqlite_triggers()


def downgrade() -> None:
    on_postgresql = op.get_bind().dialect.name == "postgresql"
    for table, event in [*_TRIGGERS, _MOVED, *(_TRUNCATED if on_postgresql else ())]:
        op.execute(
            f"DROP TRIGGER IF EXISTS {_name(table, event)}" + (f" ON {table}" if on_postgresql else "")
        )
        if on_postgresql:
            op.execute(f"DROP FUNCTION IF EXISTS {_name(table, event)}()")
    for name, (table, *_) in _PARTIAL.items():
        op.drop_index(name, table)
    op.drop_index("ix_assignment_worker", "assignment")
    op.create_index("ix_assignment_worker_id", "assignment", ["worker_id"])
    op.drop_table("answer_sheet")


def _name(table: str, event: str) -> str:
    return f"forget_sheet_on_{table}_{event.lower()}"


def _sqlite_triggers() -> None:
    for table, event in _TRIGGERS:
        changed = ", ".join(f"{side}.{_KEYS[table]}" for side in _SIDES[event])
        op.execute(
            f"CREATE TRIGGER {_name(table, event)} AFTER {event} ON {table} "
            f"BEGIN DELETE FROM answer_sheet WHERE {_of(table, changed)}; END"
        )
    op.execute(
        f"CREATE TRIGGER {_name(*_MOVED)} AFTER UPDATE OF hit_id ON assignment "
        "BEGIN DELETE FROM answer_sheet WHERE assignment_id = OLD.id; END"
    )


def _postgresql_triggers() -> None:
    """Once for a statement, however many rows it changes, but for the one that looks at a column."""
    for table, event in _TRIGGERS:
        changed = " UNION ALL ".join(
            f"SELECT {_KEYS[table]} FROM {side.lower()}_rows" for side in _SIDES[event]
        )
        _function(table, event, f" WHERE {_of(table, changed, schema='%1$I.')}")
        rows = " ".join(f"{side} TABLE AS {side.lower()}_rows" for side in _SIDES[event])
        _trigger(table, event, f"REFERENCING {rows} FOR EACH STATEMENT")
    for table, event in _TRUNCATED:
        _function(table, event, "")
        _trigger(table, event, "FOR EACH STATEMENT")
    _function(*_MOVED, " WHERE assignment_id = $1", " USING OLD.id")
    _trigger(*_MOVED, "FOR EACH ROW WHEN (OLD.hit_id <> NEW.hit_id)")


def _function(table: str, event: str, where: str, using: str = "") -> None:
    """One that drops sheets of the schema in which the changed table is, whatever the search path of who changed it.

    It waits until nobody else writes, as mitl's own commands do: a sheet that another transaction is writing from the
    rows as they were would be seen by nobody and stay. A restore may find the function of tables that it dropped.
    """
    op.execute(
        f"CREATE OR REPLACE FUNCTION {_name(table, event)}() RETURNS trigger LANGUAGE plpgsql AS $$ "
        f"BEGIN PERFORM pg_advisory_xact_lock({_WRITING}); "
        f"EXECUTE format('DELETE FROM %1$I.answer_sheet{where}', TG_TABLE_SCHEMA){using}; RETURN NULL; END $$"
    )


def _trigger(table: str, event: str, how: str) -> None:
    name = _name(table, event)
    op.execute(f"CREATE TRIGGER {name} AFTER {event} ON {table} {how} EXECUTE FUNCTION {name}()")


def _of(table: str, changed: str, schema: str = "") -> str:
    if table == "hit_item":
        changed = f"SELECT id FROM {schema}assignment WHERE hit_id IN ({changed})"
    return f"assignment_id IN ({changed})"

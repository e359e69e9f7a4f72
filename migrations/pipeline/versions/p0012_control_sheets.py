"""Each worker's answers on controls in one value, so that judging looks only at workers of whom something changed

The database drops a worker's sheet when a submission of theirs or what was decided about it changes, or they are
excluded; commands that judge write those that are missing.

Revision ID: p0012
Revises: p0011
"""

import sqlalchemy as sa
from alembic import op

revision = "p0012"
down_revision = "p0011"
branch_labels = None
depends_on = None

_WRITING = "1835627628, 1"
"""The advisory lock under which mitl writes."""
_JUDGED_BY = ("worker_id", "hit_id", "decision", "submitted_at")
"""Columns of a submission by which answers are judged; what the server says of it is none."""
_OF_WORKER = ("environment", "excluded_at")
_BY_SUBMISSION = "SELECT a.worker_id FROM {schema}assignment a WHERE a.id IN ({changed})"
_TRIGGERS = (
    ("answer_sheet", "DELETE"),
    ("assignment", "INSERT"),
    ("assignment", "UPDATE"),
    ("assignment", "DELETE"),
    ("worker", "UPDATE"),
)
_TRUNCATED = ("answer_sheet", "assignment")
"""PostgreSQL's alone."""


def upgrade() -> None:
    op.create_table(
        "control_sheet",
        sa.Column("worker_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("is_bad", sa.Boolean(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["worker_id"], ["worker.id"], name="fk_control_sheet_worker_id_worker", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("worker_id", name="pk_control_sheet"),
    )
    if op.get_bind().dialect.name == "postgresql":
        _postgresql_triggers()
    else:
        _sqlite_triggers()


def downgrade() -> None:
    on_postgresql = op.get_bind().dialect.name == "postgresql"
    truncated = [(table, "TRUNCATE") for table in _TRUNCATED] if on_postgresql else []
    for table, event in [*_TRIGGERS, *truncated]:
        op.execute(
            f"DROP TRIGGER IF EXISTS {_name(table, event)}" + (f" ON {table}" if on_postgresql else "")
        )
        if on_postgresql:
            op.execute(f"DROP FUNCTION IF EXISTS {_name(table, event)}()")
    op.drop_table("control_sheet")


def _name(table: str, event: str) -> str:
    return f"forget_controls_on_{table}_{event.lower()}"


def _sqlite_triggers() -> None:
    workers = {
        ("answer_sheet", "DELETE"): _BY_SUBMISSION.format(schema="", changed="OLD.assignment_id"),
        ("assignment", "INSERT"): "NEW.worker_id",
        ("assignment", "UPDATE"): "OLD.worker_id, NEW.worker_id",
        ("assignment", "DELETE"): "OLD.worker_id",
        ("worker", "UPDATE"): "OLD.id",
    }
    columns = {"assignment": _JUDGED_BY, "worker": _OF_WORKER}
    for (table, event), changed in workers.items():
        of = f" OF {', '.join(columns[table])}" if event == "UPDATE" else ""
        op.execute(
            f"CREATE TRIGGER {_name(table, event)} AFTER {event}{of} ON {table} "
            f"BEGIN DELETE FROM control_sheet WHERE worker_id IN ({changed}); END"
        )


def _postgresql_triggers() -> None:
    """Once for a statement, however many rows it changes, but for those that look at columns."""
    sheets = _BY_SUBMISSION.format(schema="%1$I.", changed="SELECT assignment_id FROM old_rows")
    _function("answer_sheet", "DELETE", f" WHERE worker_id IN ({sheets})")
    _trigger("answer_sheet", "DELETE", "REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT")
    for event, side in (("INSERT", "NEW"), ("DELETE", "OLD")):
        rows = f"{side.lower()}_rows"
        _function("assignment", event, f" WHERE worker_id IN (SELECT worker_id FROM {rows})")
        _trigger("assignment", event, f"REFERENCING {side} TABLE AS {rows} FOR EACH STATEMENT")
    for table, columns, changed in (
        ("assignment", _JUDGED_BY, "OLD.worker_id, NEW.worker_id"),
        ("worker", _OF_WORKER, "OLD.id, NEW.id"),
    ):
        before, after = (", ".join(f"{side}.{column}" for column in columns) for side in ("OLD", "NEW"))
        _function(table, "UPDATE", " WHERE worker_id IN ($1, $2)", f" USING {changed}")
        _trigger(table, "UPDATE", f"FOR EACH ROW WHEN (({before}) IS DISTINCT FROM ({after}))")
    for table in _TRUNCATED:
        _function(table, "TRUNCATE", "")
        _trigger(table, "TRUNCATE", "FOR EACH STATEMENT")


def _function(table: str, event: str, where: str, using: str = "") -> None:
    """One that drops sheets of the schema in which the changed table is; it waits until nobody else writes, as for
    answer sheets (revision p0006)."""
    op.execute(
        f"CREATE OR REPLACE FUNCTION {_name(table, event)}() RETURNS trigger LANGUAGE plpgsql AS $$ "
        f"BEGIN PERFORM pg_advisory_xact_lock({_WRITING}); "
        f"EXECUTE format('DELETE FROM %1$I.control_sheet{where}', TG_TABLE_SCHEMA){using}; RETURN NULL; END $$"
    )


def _trigger(table: str, event: str, how: str) -> None:
    name = _name(table, event)
    op.execute(f"CREATE TRIGGER {name} AFTER {event} ON {table} {how} EXECUTE FUNCTION {name}()")

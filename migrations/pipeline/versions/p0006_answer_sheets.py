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
_TRIGGERS = (
    ("judgement", "INSERT"),
    ("judgement", "UPDATE"),
    ("judgement", "DELETE"),
    ("hit_item", "UPDATE"),
    ("hit_item", "DELETE"),
)


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
    for table, event in _TRIGGERS:
        op.execute(f"DROP TRIGGER {_name(table, event)}" + (f" ON {table}" if on_postgresql else ""))
        if on_postgresql:
            op.execute(f"DROP FUNCTION {_name(table, event)}()")
    for name, (table, *_) in _PARTIAL.items():
        op.drop_index(name, table)
    op.drop_index("ix_assignment_worker", "assignment")
    op.create_index("ix_assignment_worker_id", "assignment", ["worker_id"])
    op.drop_table("answer_sheet")


def _name(table: str, event: str) -> str:
    return f"forget_sheet_on_{table}_{event.lower()}"


def _sqlite_triggers() -> None:
    for table, event in _TRIGGERS:
        sides = {"INSERT": ("NEW",), "UPDATE": ("OLD", "NEW"), "DELETE": ("OLD",)}[event]
        key = "assignment_id" if table == "judgement" else "hit_id"
        changed = ", ".join(f"{side}.{key}" for side in sides)
        op.execute(
            f"CREATE TRIGGER {_name(table, event)} AFTER {event} ON {table} BEGIN {_forget(table, changed)}; END"
        )


def _postgresql_triggers() -> None:
    """Once for a statement, however many rows it changes."""
    for table, event in _TRIGGERS:
        sides = {"INSERT": ("NEW",), "UPDATE": ("OLD", "NEW"), "DELETE": ("OLD",)}[event]
        key = "assignment_id" if table == "judgement" else "hit_id"
        changed = " UNION ALL ".join(f"SELECT {key} FROM {side.lower()}_rows" for side in sides)
        # A restore may find the function of tables that it dropped.
        op.execute(
            f"CREATE OR REPLACE FUNCTION {_name(table, event)}() RETURNS trigger LANGUAGE plpgsql AS $$ "
            f"BEGIN {_forget(table, changed)}; RETURN NULL; END $$"
        )
        rows = " ".join(f"{side} TABLE AS {side.lower()}_rows" for side in sides)
        op.execute(
            f"CREATE TRIGGER {_name(table, event)} AFTER {event} ON {table} REFERENCING {rows} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {_name(table, event)}()"
        )


def _forget(table: str, changed: str) -> str:
    if table == "hit_item":
        changed = f"SELECT id FROM assignment WHERE hit_id IN ({changed})"
    return f"DELETE FROM answer_sheet WHERE assignment_id IN ({changed})"

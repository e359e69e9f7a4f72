"""Where the project stands, counted once for as long as nothing changes

Commands that write count it at their end; the database forgets what was counted when a row that it rests on changes.

Revision ID: p0011
Revises: p0010
"""

import sqlalchemy as sa
from alembic import op

revision = "p0011"
down_revision = "p0010"
branch_labels = None
depends_on = None

_TABLES = (
    *("annotator", "assignment", "audit", "audit_pair", "batch", "chosen_pair", "collection_answer"),
    *("collection_choice", "collection_item", "collection_terms", "comparison", "dataset", "direction"),
    *("exclusion", "hit", "hit_item", "import_file", "item", "journal", "judgement", "labelling", "ledger"),
    *("machine_label", "original_verdict", "pair", "preference", "query", "ranking_system", "rating"),
    *("rationale", "release", "round", "round_step", "run", "side", "similarity_answer", "similarity_item"),
    *("similarity_sample", "trained_annotator", "worker"),
)
"""All but those that nothing is counted from: proposals, findings, parts of items, sheets."""
_EVENTS = ("INSERT", "UPDATE", "DELETE")
_WRITING = "1835627628, 1"
"""The advisory lock under which mitl writes."""


def upgrade() -> None:
    op.create_table(
        "standing",
        sa.Column("environment", sa.String(32), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("environment", name="pk_standing"),
    )
    if op.get_bind().dialect.name == "postgresql":
        # As for answer sheets: it waits until nobody else writes, or it would miss what another is counting just now.
        op.execute(
            "CREATE OR REPLACE FUNCTION forget_standings() RETURNS trigger LANGUAGE plpgsql AS $$ "
            f"BEGIN PERFORM pg_advisory_xact_lock({_WRITING}); "
            "EXECUTE format('DELETE FROM %1$I.standing', TG_TABLE_SCHEMA); RETURN NULL; END $$"
        )
        for table in _TABLES:
            op.execute(
                f"CREATE TRIGGER forget_standings AFTER {' OR '.join(_EVENTS)} OR TRUNCATE ON {table} "
                "FOR EACH STATEMENT EXECUTE FUNCTION forget_standings()"
            )
        return
    for table in _TABLES:
        for event in _EVENTS:
            op.execute(
                f"CREATE TRIGGER forget_standings_on_{table}_{event.lower()} AFTER {event} ON {table} "
                "WHEN EXISTS (SELECT 1 FROM standing) BEGIN DELETE FROM standing; END"
            )


def downgrade() -> None:
    on_postgresql = op.get_bind().dialect.name == "postgresql"
    for table in _TABLES:
        if on_postgresql:
            op.execute(f"DROP TRIGGER IF EXISTS forget_standings ON {table}")
            continue
        for event in _EVENTS:
            op.execute(f"DROP TRIGGER IF EXISTS forget_standings_on_{table}_{event.lower()}")
    if on_postgresql:
        op.execute("DROP FUNCTION IF EXISTS forget_standings()")
    op.drop_table("standing")

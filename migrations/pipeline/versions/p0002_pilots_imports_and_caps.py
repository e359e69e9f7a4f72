"""Estimates of batches, past work from files, caps on workers, first sending of calls

Revision ID: p0002
Revises: p0001
"""

import sqlalchemy as sa
from alembic import op

revision = "p0002"
down_revision = "p0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("batch", schema=None) as batch_op:
        batch_op.add_column(sa.Column("source", sa.String(32), nullable=False, server_default="crowd"))
        batch_op.add_column(sa.Column("estimate_s", sa.Integer(), nullable=True))
    with op.batch_alter_table("batch", schema=None) as batch_op:
        batch_op.alter_column("source", server_default=None)
    with op.batch_alter_table("worker", schema=None) as batch_op:
        batch_op.add_column(sa.Column("capped_at", sa.BigInteger(), nullable=True))
    with op.batch_alter_table("journal", schema=None) as batch_op:
        batch_op.add_column(sa.Column("first_sent_at", sa.BigInteger(), nullable=True))
    # The calls of an older version: the latest state is the best that is known.
    op.execute("UPDATE journal SET first_sent_at = at WHERE state <> 'planned'")
    op.create_table(
        "import_file",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("columns", sa.Text(), nullable=True),
        sa.Column("batch_id", sa.Integer(), nullable=False),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("imported_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.id"], name="fk_import_file_batch_id_batch"),
        sa.PrimaryKeyConstraint("id", name="pk_import_file"),
        sa.UniqueConstraint("sha256", name="uq_import_file_sha256"),
    )
    with op.batch_alter_table("import_file", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_import_file_batch_id"), ["batch_id"], unique=False)


def downgrade() -> None:
    op.drop_table("import_file")
    with op.batch_alter_table("journal", schema=None) as batch_op:
        batch_op.drop_column("first_sent_at")
    with op.batch_alter_table("worker", schema=None) as batch_op:
        batch_op.drop_column("capped_at")
    with op.batch_alter_table("batch", schema=None) as batch_op:
        batch_op.drop_column("estimate_s")
        batch_op.drop_column("source")

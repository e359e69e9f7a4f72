"""Wrong tokens and ended sessions of operators, and allowances of callers, which the processes of a server share

Revision ID: c0003
Revises: c0002
"""

import sqlalchemy as sa
from alembic import op

revision = "c0003"
down_revision = "c0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sign_in",
        sa.Column("caller", sa.Text(), nullable=False),
        sa.Column("failed", sa.Integer(), nullable=False),
        sa.Column("last_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("caller", name="pk_sign_in"),
    )
    op.create_table(
        "ended_session",
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("ends_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("session", name="pk_ended_session"),
    )
    # Changed by every few requests and worth nothing after a minute, so no commit waits for the disk.
    unlogged = ["UNLOGGED"] if op.get_context().dialect.name == "postgresql" else []
    op.create_table(
        "allowance",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("caller", sa.Text(), nullable=False),
        sa.Column("tokens", sa.Float(53), nullable=False),
        sa.Column("drawn", sa.Integer(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "caller", name="pk_allowance"),
        prefixes=unlogged,
    )


def downgrade() -> None:
    op.drop_table("allowance")
    op.drop_table("ended_session")
    op.drop_table("sign_in")

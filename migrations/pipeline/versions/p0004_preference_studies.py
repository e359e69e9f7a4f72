"""Preference studies: what a batch asks, the rankings that stand side by side, what people prefer

Revision ID: p0004
Revises: p0003
"""

import sqlalchemy as sa
from alembic import op

revision = "p0004"
down_revision = "p0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("batch", schema=None) as batch_op:
        batch_op.add_column(sa.Column("kind", sa.String(32), nullable=False, server_default="pairs"))
    with op.batch_alter_table("batch", schema=None) as batch_op:
        batch_op.alter_column("kind", server_default=None)
    op.create_table(
        "ranking_system",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("batch_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.id"], name="fk_ranking_system_batch_id_batch"),
        sa.PrimaryKeyConstraint("id", name="pk_ranking_system"),
        sa.UniqueConstraint("batch_id", "name", name="uq_ranking_system_batch_id_name"),
    )
    op.create_table(
        "comparison",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("hit_id", sa.Integer(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("role", sa.String(32), nullable=False),
        sa.Column("direction", sa.String(32), nullable=False),
        sa.Column("query_id", sa.Integer(), nullable=False),
        sa.Column("left_system", sa.Text(), nullable=False),
        sa.Column("right_system", sa.Text(), nullable=False),
        sa.Column("left_items", sa.Text(), nullable=False),
        sa.Column("right_items", sa.Text(), nullable=False),
        sa.Column("expected", sa.String(32), nullable=True),
        sa.ForeignKeyConstraint(["hit_id"], ["hit.id"], name="fk_comparison_hit_id_hit"),
        sa.PrimaryKeyConstraint("id", name="pk_comparison"),
        sa.UniqueConstraint("hit_id", "place", name="uq_comparison_hit_id_place"),
    )
    op.create_table(
        "preference",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.String(32), nullable=False),
        sa.Column("answer", sa.String(32), nullable=True),
        sa.Column("text", sa.Text(), nullable=True),
        sa.Column("active_ms", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["assignment_id"], ["assignment.id"], name="fk_preference_assignment_id_assignment"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_preference"),
        sa.UniqueConstraint("assignment_id", "place", name="uq_preference_assignment_id_place"),
    )


def downgrade() -> None:
    # Their HITs and submissions would read as pages of pairs without a pair; the older version knows no others.
    op.drop_table("preference")
    op.drop_table("comparison")
    op.drop_table("ranking_system")
    with op.batch_alter_table("batch", schema=None) as batch_op:
        batch_op.drop_column("kind")

"""Pairs whose likeness people rate from 0 to 5, within a side and across

Revision ID: p0008
Revises: p0007
"""

import sqlalchemy as sa
from alembic import op

revision = "p0008"
down_revision = "p0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "similarity_sample",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("pair_id", sa.Integer(), nullable=False),
        sa.Column("swapped", sa.Boolean(), nullable=False),
        sa.Column("method", sa.String(32), nullable=False),
        sa.Column("encoder", sa.String(200), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=True),
        sa.Column("similarity", sa.Float(53), nullable=True),
        sa.ForeignKeyConstraint(["pair_id"], ["pair.id"], name="fk_similarity_sample_pair_id_pair"),
        sa.PrimaryKeyConstraint("id", name="pk_similarity_sample"),
        sa.UniqueConstraint(
            "pair_id",
            "swapped",
            "method",
            "encoder",
            name="uq_similarity_sample_pair_id_swapped_method_encoder",
        ),
    )
    op.create_table(
        "similarity_item",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("hit_id", sa.Integer(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("task", sa.String(32), nullable=False),
        sa.Column("role", sa.String(32), nullable=False),
        sa.Column("pair_id", sa.Integer(), nullable=False),
        sa.Column("swapped", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["hit_id"], ["hit.id"], name="fk_similarity_item_hit_id_hit"),
        sa.ForeignKeyConstraint(["pair_id"], ["pair.id"], name="fk_similarity_item_pair_id_pair"),
        sa.PrimaryKeyConstraint("id", name="pk_similarity_item"),
        sa.UniqueConstraint("hit_id", "place", name="uq_similarity_item_hit_id_place"),
    )
    op.create_index("ix_similarity_item_pair_id", "similarity_item", ["pair_id"])
    op.create_table(
        "similarity_answer",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.String(32), nullable=False),
        sa.Column("score", sa.Float(53), nullable=True),
        sa.Column("text", sa.Text(), nullable=True),
        sa.Column("active_ms", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["assignment_id"], ["assignment.id"], name="fk_similarity_answer_assignment_id_assignment"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_similarity_answer"),
        sa.UniqueConstraint("assignment_id", "place", name="uq_similarity_answer_assignment_id_place"),
    )


def downgrade() -> None:
    # Their HITs and submissions would read as pages without questions; the older version knows no others.
    op.drop_table("similarity_answer")
    op.drop_table("similarity_item")
    op.drop_table("similarity_sample")

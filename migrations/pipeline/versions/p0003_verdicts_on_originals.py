"""What a person said of originals that people or CxC refused

Revision ID: p0003
Revises: p0002
"""

import sqlalchemy as sa
from alembic import op

revision = "p0003"
down_revision = "p0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "original_verdict",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("caption_id", sa.Integer(), nullable=False),
        sa.Column("verdict", sa.String(32), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["caption_id"], ["caption.id"], name="fk_original_verdict_caption_id_caption"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_original_verdict"),
        sa.UniqueConstraint("caption_id", name="uq_original_verdict_caption_id"),
    )


def downgrade() -> None:
    op.drop_table("original_verdict")

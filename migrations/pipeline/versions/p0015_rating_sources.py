"""Which files ratings were read from, so that a release names them; nothing is counted from them

Revision ID: p0015
Revises: p0014
"""

import sqlalchemy as sa
from alembic import op

revision = "p0015"
down_revision = "p0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "rating_source",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("ratings", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_rating_source"),
        sa.UniqueConstraint("sha256", name="uq_rating_source_sha256"),
    )


def downgrade() -> None:
    op.drop_table("rating_source")

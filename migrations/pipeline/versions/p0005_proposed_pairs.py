"""Which pairs were proposed, so that candidates are counted without a look at millions of proposals

Revision ID: p0005
Revises: p0004
"""

import sqlalchemy as sa
from alembic import op

revision = "p0005"
down_revision = "p0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("pair", sa.Column("proposed", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.execute("UPDATE pair SET proposed = true WHERE id IN (SELECT pair_id FROM proposal)")


def downgrade() -> None:
    with op.batch_alter_table("pair", schema=None) as batch_op:
        batch_op.drop_column("proposed")

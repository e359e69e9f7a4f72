"""What is compared between workers in each worker's one row, so that the desk's page of workers reads no answer twice

Sheets of controls stay, since they say nothing else than before; the upgrade itself writes the rows again.

Revision ID: p0014
Revises: p0013
"""

import sqlalchemy as sa
from alembic import op

revision = "p0014"
down_revision = "p0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _make(
        sa.Column("conduct", sa.LargeBinary(), nullable=False),
        sa.Column("first", sa.LargeBinary(), nullable=False),
    )


def downgrade() -> None:
    op.execute("DELETE FROM control_sheet")  # an earlier version writes tallies with these alone
    _make()


def _make(*further: sa.Column) -> None:
    op.drop_table("worker_tally")
    op.create_table(
        "worker_tally",
        sa.Column("worker_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("answers", sa.Integer(), nullable=False),
        sa.Column("median_s", sa.Float(), nullable=True),
        sa.Column("judged", sa.LargeBinary(), nullable=False),
        sa.Column("hits", sa.LargeBinary(), nullable=False),
        *further,
        sa.ForeignKeyConstraint(
            ["worker_id"],
            ["control_sheet.worker_id"],
            name="fk_worker_tally_worker_id_control_sheet",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("worker_id", name="pk_worker_tally"),
    )

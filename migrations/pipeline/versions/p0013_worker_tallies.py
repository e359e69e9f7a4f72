"""What each worker's answers come to in one row, so that counting and the desk's overview read no answer twice

The row goes with the worker's sheet of controls, by its foreign key; so all sheets go now, and the next command that
judges writes both. Submissions are found by when they came.

Revision ID: p0013
Revises: p0012
"""

import sqlalchemy as sa
from alembic import op

revision = "p0013"
down_revision = "p0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("DELETE FROM control_sheet")
    op.create_table(
        "worker_tally",
        sa.Column("worker_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("answers", sa.Integer(), nullable=False),
        sa.Column("median_s", sa.Float(), nullable=True),
        sa.Column("judged", sa.LargeBinary(), nullable=False),
        sa.Column("hits", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["worker_id"],
            ["control_sheet.worker_id"],
            name="fk_worker_tally_worker_id_control_sheet",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("worker_id", name="pk_worker_tally"),
    )
    op.create_index("ix_assignment_submitted_at", "assignment", ["submitted_at"])


def downgrade() -> None:
    op.drop_index("ix_assignment_submitted_at", "assignment")
    op.drop_table("worker_tally")

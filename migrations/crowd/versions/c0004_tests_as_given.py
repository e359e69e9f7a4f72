"""The test that a qualification request was given, and the time for it

Revision ID: c0004
Revises: c0003
"""

import sqlalchemy as sa
from alembic import op

revision = "c0004"
down_revision = "c0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for column in (sa.Column("test", sa.Text()), sa.Column("test_duration_s", sa.Integer())):
        op.add_column("qualification_request", column)
        op.execute(
            f"UPDATE qualification_request SET {column.name} = (SELECT {column.name} FROM qualification_type "
            "WHERE qualification_type.id = type_id) WHERE state = 'testing' OR answer <> ''"
        )


def downgrade() -> None:
    op.drop_column("qualification_request", "test_duration_s")
    op.drop_column("qualification_request", "test")

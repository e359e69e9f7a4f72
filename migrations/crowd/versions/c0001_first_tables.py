"""The crowd server's first tables: accounts, HITs, workers, assignments, qualifications, ledger

Revision ID: c0001
Revises:
"""

import sqlalchemy as sa
from alembic import op

revision = "c0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "account",
        sa.Column("environment", sa.String(32), nullable=False),
        sa.Column("access_key", sa.Text(), nullable=False),
        sa.Column("secret_key", sa.Text(), nullable=False),
        sa.Column("budget_cents", sa.BigInteger(), nullable=False),
        sa.Column("held_cents", sa.BigInteger(), nullable=False),
        sa.Column("spent_cents", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("environment", name="pk_account"),
        sa.UniqueConstraint("access_key", name="uq_account_access_key"),
    )
    op.create_table(
        "hit_type",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("environment", sa.String(32), nullable=False),
        sa.Column("mturk_id", sa.Text(), nullable=False),
        sa.Column("group_id", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("keywords", sa.Text(), nullable=False),
        sa.Column("reward_cents", sa.BigInteger(), nullable=False),
        sa.Column("duration_s", sa.Integer(), nullable=False),
        sa.Column("auto_approval_s", sa.Integer(), nullable=False),
        sa.Column("requirements", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_hit_type"),
        sa.UniqueConstraint("environment", "digest", name="uq_hit_type_environment_digest"),
        sa.UniqueConstraint("mturk_id", name="uq_hit_type_mturk_id"),
    )
    op.create_table(
        "invitation",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("environment", sa.String(32), nullable=False),
        sa.Column("token_sha256", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("personal", sa.Boolean(), nullable=False),
        sa.Column("max_uses", sa.Integer(), nullable=True),
        sa.Column("uses", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_invitation"),
        sa.UniqueConstraint("token_sha256", name="uq_invitation_token_sha256"),
    )
    op.create_table(
        "qualification_type",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("environment", sa.String(32), nullable=False),
        sa.Column("mturk_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("keywords", sa.Text(), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_qualification_type"),
        sa.UniqueConstraint("environment", "name", name="uq_qualification_type_environment_name"),
        sa.UniqueConstraint("mturk_id", name="uq_qualification_type_mturk_id"),
    )
    op.create_table(
        "request_token",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("environment", sa.String(32), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
        sa.Column("used_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_request_token"),
        sa.UniqueConstraint("environment", "kind", "token", name="uq_request_token_environment_kind_token"),
    )
    op.create_table(
        "setting",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_setting"),
    )
    op.create_table(
        "hit",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("environment", sa.String(32), nullable=False),
        sa.Column("mturk_id", sa.Text(), nullable=False),
        sa.Column("hit_type_id", sa.Integer(), nullable=False),
        sa.Column("annotation", sa.Text(), nullable=False),
        sa.Column("max_assignments", sa.Integer(), nullable=False),
        sa.Column("slots_left", sa.Integer(), nullable=False),
        sa.Column("held_slots", sa.Integer(), nullable=False),
        sa.Column("reviewing", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("settle_at", sa.BigInteger(), nullable=True),
        sa.Column("deleted_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["hit_type_id"], ["hit_type.id"], name="fk_hit_hit_type_id_hit_type"),
        sa.PrimaryKeyConstraint("id", name="pk_hit"),
        sa.UniqueConstraint("mturk_id", name="uq_hit_mturk_id"),
    )
    op.create_index("ix_hit_listing", "hit", ["environment", "id"], unique=False)
    op.create_index(
        "ix_hit_open",
        "hit",
        ["hit_type_id", "id"],
        unique=False,
        sqlite_where=sa.text("slots_left > 0"),
        postgresql_where=sa.text("slots_left > 0"),
    )
    op.create_index("ix_hit_settling", "hit", ["environment", "settle_at"], unique=False)
    op.create_table(
        "worker",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("environment", sa.String(32), nullable=False),
        sa.Column("mturk_id", sa.Text(), nullable=False),
        sa.Column("invitation_id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["invitation_id"], ["invitation.id"], name="fk_worker_invitation_id_invitation"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_worker"),
        sa.UniqueConstraint("mturk_id", name="uq_worker_mturk_id"),
    )
    op.create_index("ix_worker_invitation_id", "worker", ["invitation_id"], unique=False)
    op.create_table(
        "assignment",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("environment", sa.String(32), nullable=False),
        sa.Column("hit_id", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.Integer(), nullable=False),
        sa.Column("mturk_id", sa.Text(), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("accepted_at", sa.BigInteger(), nullable=False),
        sa.Column("deadline_at", sa.BigInteger(), nullable=False),
        sa.Column("submitted_at", sa.BigInteger(), nullable=True),
        sa.Column("auto_approve_at", sa.BigInteger(), nullable=True),
        sa.Column("decided_at", sa.BigInteger(), nullable=True),
        sa.Column("feedback", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["hit_id"], ["hit.id"], name="fk_assignment_hit_id_hit"),
        sa.ForeignKeyConstraint(["worker_id"], ["worker.id"], name="fk_assignment_worker_id_worker"),
        sa.PrimaryKeyConstraint("id", name="pk_assignment"),
        sa.UniqueConstraint("hit_id", "worker_id", name="uq_assignment_hit_id_worker_id"),
        sa.UniqueConstraint("mturk_id", "worker_id", name="uq_assignment_mturk_id_worker_id"),
    )
    op.create_index(
        "ix_assignment_auto_approval", "assignment", ["environment", "state", "auto_approve_at"], unique=False
    )
    op.create_index("ix_assignment_worker", "assignment", ["worker_id", "state"], unique=False)
    op.create_table(
        "hit_question",
        sa.Column("hit_id", sa.Integer(), nullable=False),
        sa.Column("xml", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["hit_id"], ["hit.id"], name="fk_hit_question_hit_id_hit"),
        sa.PrimaryKeyConstraint("hit_id", name="pk_hit_question"),
    )
    op.create_table(
        "qualification",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("qualification_type_id", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.Integer(), nullable=False),
        sa.Column("value", sa.Integer(), nullable=True),
        sa.Column("granted_at", sa.BigInteger(), nullable=False),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["qualification_type_id"],
            ["qualification_type.id"],
            name="fk_qualification_qualification_type_id_qualification_type",
        ),
        sa.ForeignKeyConstraint(["worker_id"], ["worker.id"], name="fk_qualification_worker_id_worker"),
        sa.PrimaryKeyConstraint("id", name="pk_qualification"),
        sa.UniqueConstraint(
            "worker_id", "qualification_type_id", name="uq_qualification_worker_id_qualification_type_id"
        ),
    )
    op.create_index(
        "ix_qualification_qualification_type_id", "qualification", ["qualification_type_id"], unique=False
    )
    op.create_table(
        "bonus",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("environment", sa.String(32), nullable=False),
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("cents", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("granted_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["assignment_id"], ["assignment.id"], name="fk_bonus_assignment_id_assignment"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_bonus"),
    )
    op.create_index("ix_bonus_assignment_id", "bonus", ["assignment_id"], unique=False)
    op.create_table(
        "ledger",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("environment", sa.String(32), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("hit_id", sa.Integer(), nullable=True),
        sa.Column("assignment_id", sa.Integer(), nullable=True),
        sa.Column("cents", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["assignment_id"], ["assignment.id"], name="fk_ledger_assignment_id_assignment"
        ),
        sa.ForeignKeyConstraint(["hit_id"], ["hit.id"], name="fk_ledger_hit_id_hit"),
        sa.PrimaryKeyConstraint("id", name="pk_ledger"),
    )


def downgrade() -> None:
    op.drop_table("ledger")
    op.drop_table("bonus")
    op.drop_table("qualification")
    op.drop_table("hit_question")
    op.drop_table("assignment")
    op.drop_table("worker")
    op.drop_table("hit")
    op.drop_table("setting")
    op.drop_table("request_token")
    op.drop_table("qualification_type")
    op.drop_table("invitation")
    op.drop_table("hit_type")
    op.drop_table("account")

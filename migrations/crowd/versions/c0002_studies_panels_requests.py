"""Studies and consent, panels, blocks, messages, qualification requests, late answers, paused groups

Revision ID: c0002
Revises: c0001
"""

import sqlalchemy as sa
from alembic import op

revision = "c0002"
down_revision = "c0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "study",
        sa.Column("environment", sa.String(32), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("information", sa.Text(), nullable=False),
        sa.Column("contact", sa.Text(), nullable=False),
        sa.Column("warning", sa.Text(), nullable=False),
        sa.Column("consent", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("environment", name="pk_study"),
    )
    op.create_table(
        "panel",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("environment", sa.String(32), nullable=False),
        sa.Column("slug", sa.Text(), nullable=False),
        sa.Column("profile", sa.Text(), nullable=False),
        sa.Column("invitation_id", sa.Integer(), nullable=False),
        sa.Column("worker_parameter", sa.Text(), nullable=False),
        sa.Column("study_parameter", sa.Text(), nullable=False),
        sa.Column("session_parameter", sa.Text(), nullable=False),
        sa.Column("hits_per_visit", sa.Integer(), nullable=False),
        sa.Column("ends", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("closed_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["invitation_id"], ["invitation.id"], name="fk_panel_invitation_id_invitation"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_panel"),
        sa.UniqueConstraint("slug", name="uq_panel_slug"),
    )
    op.create_table(
        "consent",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("given", sa.Boolean(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["worker_id"], ["worker.id"], name="fk_consent_worker_id_worker"),
        sa.PrimaryKeyConstraint("id", name="pk_consent"),
        sa.UniqueConstraint("worker_id", "version", name="uq_consent_worker_id_version"),
    )
    op.create_table(
        "message",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("environment", sa.String(32), nullable=False),
        sa.Column("worker_id", sa.Integer(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("sent_at", sa.BigInteger(), nullable=False),
        sa.Column("read_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["worker_id"], ["worker.id"], name="fk_message_worker_id_worker"),
        sa.PrimaryKeyConstraint("id", name="pk_message"),
    )
    op.create_index("ix_message_worker_id", "message", ["worker_id"], unique=False)
    op.create_table(
        "panel_identity",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("environment", sa.String(32), nullable=False),
        sa.Column("profile", sa.Text(), nullable=False),
        sa.Column("external_id", sa.Text(), nullable=False),
        sa.Column("worker_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["worker_id"], ["worker.id"], name="fk_panel_identity_worker_id_worker"),
        sa.PrimaryKeyConstraint("id", name="pk_panel_identity"),
        sa.UniqueConstraint(
            "environment", "profile", "external_id", name="uq_panel_identity_environment_profile_external_id"
        ),
    )
    op.create_index("ix_panel_identity_worker_id", "panel_identity", ["worker_id"], unique=False)
    op.create_table(
        "panel_visit",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("panel_id", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.Integer(), nullable=False),
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("study", sa.Text(), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("hits_done", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["panel_id"], ["panel.id"], name="fk_panel_visit_panel_id_panel"),
        sa.ForeignKeyConstraint(["worker_id"], ["worker.id"], name="fk_panel_visit_worker_id_worker"),
        sa.PrimaryKeyConstraint("id", name="pk_panel_visit"),
        sa.UniqueConstraint("panel_id", "session", name="uq_panel_visit_panel_id_session"),
    )
    op.create_index("ix_panel_visit_worker_id", "panel_visit", ["worker_id"], unique=False)
    op.create_table(
        "qualification_request",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("mturk_id", sa.Text(), nullable=False),
        sa.Column("environment", sa.String(32), nullable=False),
        sa.Column("type_id", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("submitted_at", sa.BigInteger(), nullable=True),
        sa.Column("decided_at", sa.BigInteger(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["type_id"], ["qualification_type.id"], name="fk_qualification_request_type_id_qualification_type"
        ),
        sa.ForeignKeyConstraint(
            ["worker_id"], ["worker.id"], name="fk_qualification_request_worker_id_worker"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_qualification_request"),
        sa.UniqueConstraint("mturk_id", name="uq_qualification_request_mturk_id"),
    )
    op.create_index("ix_qualification_request_type_id", "qualification_request", ["type_id"], unique=False)
    op.create_index(
        "ix_qualification_request_worker_id", "qualification_request", ["worker_id"], unique=False
    )
    op.create_table(
        "worker_block",
        sa.Column("worker_id", sa.Integer(), nullable=False),
        sa.Column("environment", sa.String(32), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("blocked_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["worker_id"], ["worker.id"], name="fk_worker_block_worker_id_worker"),
        sa.PrimaryKeyConstraint("worker_id", name="pk_worker_block"),
    )
    op.create_table(
        "late_answer",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["assignment_id"], ["assignment.id"], name="fk_late_answer_assignment_id_assignment"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_late_answer"),
    )
    op.create_index("ix_late_answer_assignment_id", "late_answer", ["assignment_id"], unique=False)
    op.add_column("hit_type", sa.Column("paused_at", sa.BigInteger(), nullable=True))
    op.add_column("qualification_type", sa.Column("test", sa.Text(), nullable=True))
    op.add_column("qualification_type", sa.Column("answer_key", sa.Text(), nullable=True))
    op.add_column("qualification_type", sa.Column("test_duration_s", sa.Integer(), nullable=True))
    op.add_column("qualification_type", sa.Column("retry_delay_s", sa.Integer(), nullable=True))
    op.add_column("qualification_type", sa.Column("auto_granted_value", sa.Integer(), nullable=True))


def downgrade() -> None:
    op.drop_column("qualification_type", "auto_granted_value")
    op.drop_column("qualification_type", "retry_delay_s")
    op.drop_column("qualification_type", "test_duration_s")
    op.drop_column("qualification_type", "answer_key")
    op.drop_column("qualification_type", "test")
    op.drop_column("hit_type", "paused_at")
    op.drop_index("ix_late_answer_assignment_id", table_name="late_answer")
    op.drop_table("late_answer")
    op.drop_table("worker_block")
    op.drop_index("ix_qualification_request_worker_id", table_name="qualification_request")
    op.drop_index("ix_qualification_request_type_id", table_name="qualification_request")
    op.drop_table("qualification_request")
    op.drop_index("ix_panel_visit_worker_id", table_name="panel_visit")
    op.drop_table("panel_visit")
    op.drop_index("ix_panel_identity_worker_id", table_name="panel_identity")
    op.drop_table("panel_identity")
    op.drop_index("ix_message_worker_id", table_name="message")
    op.drop_table("message")
    op.drop_table("consent")
    op.drop_table("panel")
    op.drop_table("study")

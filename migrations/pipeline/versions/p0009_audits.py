"""Audits with known inclusion probabilities, and labels that a machine gave under a bound

Revision ID: p0009
Revises: p0008
"""

import sqlalchemy as sa
from alembic import op

revision = "p0009"
down_revision = "p0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("environment", sa.String(32), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("purpose", sa.String(32), nullable=False),
        sa.Column("design", sa.Text(), nullable=False),
        sa.Column("pool_sha256", sa.String(64), nullable=False),
        sa.Column("listed", sa.LargeBinary(), nullable=False),
        sa.Column("drawn_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
        sa.UniqueConstraint("environment", "number", name="uq_audit_environment_number"),
    )
    op.create_table(
        "audit_pair",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("audit_id", sa.Integer(), nullable=False),
        sa.Column("pair_id", sa.Integer(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("stratum", sa.Integer(), nullable=False),
        sa.Column("inclusion", sa.Float(53), nullable=False),
        sa.Column("recheck", sa.Boolean(), nullable=False),
        sa.Column("known", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["audit_id"], ["audit.id"], name="fk_audit_pair_audit_id_audit"),
        sa.ForeignKeyConstraint(["pair_id"], ["pair.id"], name="fk_audit_pair_pair_id_pair"),
        sa.PrimaryKeyConstraint("id", name="pk_audit_pair"),
        sa.UniqueConstraint("audit_id", "pair_id", name="uq_audit_pair_audit_id_pair_id"),
        sa.UniqueConstraint("audit_id", "place", name="uq_audit_pair_audit_id_place"),
    )
    op.create_index("ix_audit_pair_pair_id", "audit_pair", ["pair_id"])
    op.create_table(
        "labelling",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("environment", sa.String(32), nullable=False),
        sa.Column("audit_id", sa.Integer(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.Column("withdrawn_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["audit_id"], ["audit.id"], name="fk_labelling_audit_id_audit"),
        sa.PrimaryKeyConstraint("id", name="pk_labelling"),
    )
    op.create_table(
        "machine_label",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("labelling_id", sa.Integer(), nullable=False),
        sa.Column("pair_id", sa.Integer(), nullable=False),
        sa.Column("label", sa.String(32), nullable=False),
        sa.Column("probability", sa.Float(53), nullable=False),
        sa.Column("stratum", sa.String(64), nullable=False),
        sa.ForeignKeyConstraint(
            ["labelling_id"], ["labelling.id"], name="fk_machine_label_labelling_id_labelling"
        ),
        sa.ForeignKeyConstraint(["pair_id"], ["pair.id"], name="fk_machine_label_pair_id_pair"),
        sa.PrimaryKeyConstraint("id", name="pk_machine_label"),
        sa.UniqueConstraint("labelling_id", "pair_id", name="uq_machine_label_labelling_id_pair_id"),
    )
    op.create_index("ix_machine_label_pair_id", "machine_label", ["pair_id"])


def downgrade() -> None:
    # Older versions do not know the role and would take its answers for ones on the pair: they stay and do not count.
    op.execute(
        """UPDATE judgement SET usable = FALSE WHERE id IN (
            SELECT j.id FROM judgement j JOIN assignment a ON a.id = j.assignment_id
            JOIN hit_item i ON i.hit_id = a.hit_id AND i.place = j.place WHERE i.role = 'audit')"""
    )
    op.execute("UPDATE hit_item SET role = 'repeat' WHERE role = 'audit'")
    op.drop_table("machine_label")
    op.drop_table("labelling")
    op.drop_table("audit_pair")
    op.drop_table("audit")

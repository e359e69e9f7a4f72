"""Rounds that choose what they ask, annotators that learnt from answers, and texts that people write for items

Revision ID: p0010
Revises: p0009
"""

import sqlalchemy as sa
from alembic import op

revision = "p0010"
down_revision = "p0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("round") as table:
        table.add_column(sa.Column("environment", sa.String(32), nullable=True))
        table.add_column(sa.Column("config", sa.Text(), nullable=True))
        table.add_column(sa.Column("rolled_back_at", sa.BigInteger(), nullable=True))
    op.create_table(
        "round_step",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("round_id", sa.Integer(), nullable=False),
        sa.Column("step", sa.String(32), nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["round_id"], ["round.id"], name="fk_round_step_round_id_round"),
        sa.PrimaryKeyConstraint("id", name="pk_round_step"),
        sa.UniqueConstraint("round_id", "step", name="uq_round_step_round_id_step"),
    )
    op.create_table(
        "chosen_pair",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("round_id", sa.Integer(), nullable=False),
        sa.Column("pair_id", sa.Integer(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("score", sa.Float(53), nullable=False),
        sa.Column("strategy", sa.String(64), nullable=False),
        sa.ForeignKeyConstraint(["round_id"], ["round.id"], name="fk_chosen_pair_round_id_round"),
        sa.ForeignKeyConstraint(["pair_id"], ["pair.id"], name="fk_chosen_pair_pair_id_pair"),
        sa.PrimaryKeyConstraint("id", name="pk_chosen_pair"),
        sa.UniqueConstraint("round_id", "pair_id", name="uq_chosen_pair_round_id_pair_id"),
        sa.UniqueConstraint("round_id", "place", name="uq_chosen_pair_round_id_place"),
    )
    op.create_index("ix_chosen_pair_pair_id", "chosen_pair", ["pair_id"])
    op.create_table(
        "trained_annotator",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("round_id", sa.Integer(), nullable=True),
        sa.Column("base", sa.Text(), nullable=False),
        sa.Column("base_fingerprint", sa.String(64), nullable=False),
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("weights_sha256", sa.String(64), nullable=False),
        sa.Column("recipe", sa.Text(), nullable=False),
        sa.Column("taught", sa.LargeBinary(), nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.Column("withdrawn_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["round_id"], ["round.id"], name="fk_trained_annotator_round_id_round"),
        sa.PrimaryKeyConstraint("id", name="pk_trained_annotator"),
        sa.UniqueConstraint("name", name="uq_trained_annotator_name"),
    )
    op.create_table(
        "collection_choice",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("environment", sa.String(32), nullable=False),
        sa.Column("side_id", sa.Integer(), nullable=False),
        sa.Column("item_id", sa.Integer(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("score", sa.Float(53), nullable=False),
        sa.Column("strategy", sa.String(64), nullable=False),
        sa.Column("chosen_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["side_id", "item_id"],
            ["item.side_id", "item.id"],
            name="fk_collection_choice_side_id_item_id_item",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_collection_choice"),
        sa.UniqueConstraint(
            "environment", "side_id", "item_id", name="uq_collection_choice_environment_side_id_item_id"
        ),
    )
    op.create_table(
        "collection_terms",
        sa.Column("batch_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("terms", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.id"], name="fk_collection_terms_batch_id_batch"),
        sa.PrimaryKeyConstraint("batch_id", name="pk_collection_terms"),
    )
    op.create_table(
        "collection_answer",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.String(32), nullable=False),
        sa.Column("text", sa.Text(), nullable=True),
        sa.Column("picked_id", sa.Integer(), nullable=True),
        sa.Column("label", sa.String(32), nullable=True),
        sa.Column("active_ms", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["assignment_id"], ["assignment.id"], name="fk_collection_answer_assignment_id_assignment"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_collection_answer"),
        sa.UniqueConstraint("assignment_id", "place", name="uq_collection_answer_assignment_id_place"),
    )
    op.create_table(
        "collection_item",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("hit_id", sa.Integer(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("role", sa.String(32), nullable=False),
        sa.Column("side_id", sa.Integer(), nullable=False),
        sa.Column("item_id", sa.Integer(), nullable=False),
        sa.Column("offered", sa.Text(), nullable=True),
        sa.Column("reviewed_id", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["hit_id"], ["hit.id"], name="fk_collection_item_hit_id_hit"),
        sa.ForeignKeyConstraint(
            ["side_id", "item_id"],
            ["item.side_id", "item.id"],
            name="fk_collection_item_side_id_item_id_item",
        ),
        sa.ForeignKeyConstraint(
            ["reviewed_id"], ["collection_answer.id"], name="fk_collection_item_reviewed_id_collection_answer"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_collection_item"),
        sa.UniqueConstraint("hit_id", "place", name="uq_collection_item_hit_id_place"),
    )
    op.create_index("ix_collection_item_reviewed_id", "collection_item", ["reviewed_id"])


def downgrade() -> None:
    for table in (
        "collection_item",
        "collection_answer",
        "collection_terms",
        "collection_choice",
        "trained_annotator",
        "chosen_pair",
        "round_step",
    ):
        op.drop_table(table)
    with op.batch_alter_table("round") as table:
        for column in ("rolled_back_at", "config", "environment"):
            table.drop_column(column)

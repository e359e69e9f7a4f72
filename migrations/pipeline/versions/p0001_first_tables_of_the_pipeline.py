"""first tables of the pipeline

Revision ID: p0001
Revises:
"""

import sqlalchemy as sa
from alembic import op

revision = "p0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "annotator",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_annotator")),
        sa.UniqueConstraint("name", name=op.f("uq_annotator_name")),
    )
    op.create_table(
        "dataset",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("id_kind", sa.String(length=32), nullable=False),
        sa.Column("content_sha256", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dataset")),
        sa.UniqueConstraint("name", name=op.f("uq_dataset_name")),
    )
    op.create_table(
        "journal",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("token", sa.Text(), nullable=True),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("reply", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_journal")),
        sa.UniqueConstraint("kind", "key", name=op.f("uq_journal_kind_key")),
    )
    op.create_table(
        "release",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("manifest_sha256", sa.Text(), nullable=True),
        sa.Column("rules", sa.Text(), nullable=True),
        sa.Column("salt", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_release")),
        sa.UniqueConstraint("name", name=op.f("uq_release_name")),
    )
    op.create_table(
        "run",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run")),
        sa.UniqueConstraint("hash", name=op.f("uq_run_hash")),
    )
    op.create_table(
        "worker",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("environment", sa.String(length=32), nullable=False),
        sa.Column("mturk_worker_id", sa.Text(), nullable=False),
        sa.Column("excluded_at", sa.BigInteger(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_worker")),
        sa.UniqueConstraint(
            "environment", "mturk_worker_id", name=op.f("uq_worker_environment_mturk_worker_id")
        ),
    )
    op.create_table(
        "image",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("dataset_id", sa.Integer(), nullable=False),
        sa.Column("external_id", sa.Text(), nullable=False),
        sa.Column("file", sa.Text(), nullable=True),
        sa.Column("url", sa.Text(), nullable=True),
        sa.Column("width", sa.Integer(), nullable=True),
        sa.Column("height", sa.Integer(), nullable=True),
        sa.Column("sha256", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["dataset_id"], ["dataset.id"], name=op.f("fk_image_dataset_id_dataset")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_image")),
        sa.UniqueConstraint("dataset_id", "external_id", name=op.f("uq_image_dataset_id_external_id")),
    )
    op.create_table(
        "query",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("direction", sa.String(length=32), nullable=False),
        sa.Column("item_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_query_run_id_run")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_query")),
        sa.UniqueConstraint("run_id", "direction", "item_id", name=op.f("uq_query_run_id_direction_item_id")),
    )
    op.create_table(
        "round",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("dataset_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("strategy", sa.Text(), nullable=False),
        sa.Column("opened_at", sa.BigInteger(), nullable=False),
        sa.Column("closed_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["dataset_id"], ["dataset.id"], name=op.f("fk_round_dataset_id_dataset")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_round")),
        sa.UniqueConstraint("dataset_id", "number", name=op.f("uq_round_dataset_id_number")),
    )
    op.create_table(
        "batch",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("round_id", sa.Integer(), nullable=False),
        sa.Column("environment", sa.String(length=32), nullable=False),
        sa.Column("direction", sa.Text(), nullable=False),
        sa.Column("template", sa.Text(), nullable=False),
        sa.Column("reward_cents", sa.Integer(), nullable=False),
        sa.Column("assignments", sa.Integer(), nullable=False),
        sa.Column("seed", sa.Integer(), nullable=False),
        sa.Column("pilot", sa.Boolean(), nullable=False),
        sa.Column("server_id", sa.Text(), nullable=True),
        sa.Column("planned_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["round_id"], ["round.id"], name=op.f("fk_batch_round_id_round")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_batch")),
        sa.UniqueConstraint("name", name=op.f("uq_batch_name")),
    )
    op.create_table(
        "caption",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("dataset_id", sa.Integer(), nullable=False),
        sa.Column("external_id", sa.Text(), nullable=False),
        sa.Column("image_id", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["dataset_id"], ["dataset.id"], name=op.f("fk_caption_dataset_id_dataset")),
        sa.ForeignKeyConstraint(["image_id"], ["image.id"], name=op.f("fk_caption_image_id_image")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_caption")),
        sa.UniqueConstraint("dataset_id", "external_id", name=op.f("uq_caption_dataset_id_external_id")),
    )
    with op.batch_alter_table("caption", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_caption_image_id"), ["image_id"], unique=False)

    op.create_table(
        "exclusion",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("image_id", sa.Integer(), nullable=True),
        sa.Column("caption_id", sa.Integer(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["caption_id"], ["caption.id"], name=op.f("fk_exclusion_caption_id_caption")),
        sa.ForeignKeyConstraint(["image_id"], ["image.id"], name=op.f("fk_exclusion_image_id_image")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_exclusion")),
    )
    op.create_table(
        "hit",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("batch_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("replaces_id", sa.Integer(), nullable=True),
        sa.Column("assignments", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("mturk_hit_id", sa.Text(), nullable=True),
        sa.Column("token", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.id"], name=op.f("fk_hit_batch_id_batch")),
        sa.ForeignKeyConstraint(["replaces_id"], ["hit.id"], name=op.f("fk_hit_replaces_id_hit")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_hit")),
        sa.UniqueConstraint("batch_id", "number", "attempt", name=op.f("uq_hit_batch_id_number_attempt")),
        sa.UniqueConstraint("mturk_hit_id", name=op.f("uq_hit_mturk_hit_id")),
        sa.UniqueConstraint("token", name=op.f("uq_hit_token")),
    )
    with op.batch_alter_table("hit", schema=None) as batch_op:
        batch_op.create_index("ix_hit_state", ["state"], unique=False)

    op.create_table(
        "pair",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("image_id", sa.Integer(), nullable=False),
        sa.Column("caption_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["caption_id"], ["caption.id"], name=op.f("fk_pair_caption_id_caption")),
        sa.ForeignKeyConstraint(["image_id"], ["image.id"], name=op.f("fk_pair_image_id_image")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pair")),
        sa.UniqueConstraint("image_id", "caption_id", name=op.f("uq_pair_image_id_caption_id")),
    )
    with op.batch_alter_table("pair", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_pair_caption_id"), ["caption_id"], unique=False)

    op.create_table(
        "rating",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("image_id", sa.Integer(), nullable=False),
        sa.Column("caption_id", sa.Integer(), nullable=False),
        sa.Column("score", sa.Float(precision=53), nullable=False),
        sa.Column("sampling_method", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["caption_id"], ["caption.id"], name=op.f("fk_rating_caption_id_caption")),
        sa.ForeignKeyConstraint(["image_id"], ["image.id"], name=op.f("fk_rating_image_id_image")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rating")),
        sa.UniqueConstraint("image_id", "caption_id", name=op.f("uq_rating_image_id_caption_id")),
    )
    op.create_table(
        "assignment",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("hit_id", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.Integer(), nullable=False),
        sa.Column("mturk_assignment_id", sa.Text(), nullable=False),
        sa.Column("accepted_at", sa.BigInteger(), nullable=True),
        sa.Column("submitted_at", sa.BigInteger(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("decision", sa.String(length=32), nullable=False),
        sa.Column("raw_xml", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["hit_id"], ["hit.id"], name=op.f("fk_assignment_hit_id_hit")),
        sa.ForeignKeyConstraint(["worker_id"], ["worker.id"], name=op.f("fk_assignment_worker_id_worker")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_assignment")),
        sa.UniqueConstraint(
            "mturk_assignment_id", "worker_id", name=op.f("uq_assignment_mturk_assignment_id_worker_id")
        ),
    )
    with op.batch_alter_table("assignment", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_assignment_decision"), ["decision"], unique=False)
        batch_op.create_index(batch_op.f("ix_assignment_hit_id"), ["hit_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_assignment_worker_id"), ["worker_id"], unique=False)

    op.create_table(
        "hit_item",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("hit_id", sa.Integer(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("pair_id", sa.Integer(), nullable=False),
        sa.Column("role", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(["hit_id"], ["hit.id"], name=op.f("fk_hit_item_hit_id_hit")),
        sa.ForeignKeyConstraint(["pair_id"], ["pair.id"], name=op.f("fk_hit_item_pair_id_pair")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_hit_item")),
        sa.UniqueConstraint("hit_id", "place", name=op.f("uq_hit_item_hit_id_place")),
    )
    with op.batch_alter_table("hit_item", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_hit_item_pair_id"), ["pair_id"], unique=False)

    op.create_table(
        "proposal",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("pair_id", sa.Integer(), nullable=False),
        sa.Column("annotator_id", sa.Integer(), nullable=False),
        sa.Column("direction", sa.String(length=32), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("similarity", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(
            ["annotator_id"], ["annotator.id"], name=op.f("fk_proposal_annotator_id_annotator")
        ),
        sa.ForeignKeyConstraint(["pair_id"], ["pair.id"], name=op.f("fk_proposal_pair_id_pair")),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_proposal_run_id_run")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_proposal")),
        sa.UniqueConstraint(
            "run_id",
            "pair_id",
            "annotator_id",
            "direction",
            name=op.f("uq_proposal_run_id_pair_id_annotator_id_direction"),
        ),
    )
    with op.batch_alter_table("proposal", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_proposal_pair_id"), ["pair_id"], unique=False)

    op.create_table(
        "finding",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["assignment_id"], ["assignment.id"], name=op.f("fk_finding_assignment_id_assignment")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_finding")),
    )
    with op.batch_alter_table("finding", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_finding_assignment_id"), ["assignment_id"], unique=False)

    op.create_table(
        "judgement",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("pair_id", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.String(length=32), nullable=False),
        sa.Column("label", sa.String(length=32), nullable=True),
        sa.Column("active_ms", sa.Integer(), nullable=True),
        sa.Column("usable", sa.Boolean(), nullable=False),
        sa.Column("source", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(
            ["assignment_id"], ["assignment.id"], name=op.f("fk_judgement_assignment_id_assignment")
        ),
        sa.ForeignKeyConstraint(["pair_id"], ["pair.id"], name=op.f("fk_judgement_pair_id_pair")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_judgement")),
        sa.UniqueConstraint("assignment_id", "place", name=op.f("uq_judgement_assignment_id_place")),
    )
    with op.batch_alter_table("judgement", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_judgement_pair_id"), ["pair_id"], unique=False)

    op.create_table(
        "ledger",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("cents", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["assignment_id"], ["assignment.id"], name=op.f("fk_ledger_assignment_id_assignment")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger")),
        sa.UniqueConstraint("key", name=op.f("uq_ledger_key")),
    )
    with op.batch_alter_table("ledger", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_ledger_assignment_id"), ["assignment_id"], unique=False)

    op.create_table(
        "rationale",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("judgement_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["judgement_id"], ["judgement.id"], name=op.f("fk_rationale_judgement_id_judgement")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rationale")),
    )
    with op.batch_alter_table("rationale", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_rationale_judgement_id"), ["judgement_id"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("rationale", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_rationale_judgement_id"))

    op.drop_table("rationale")
    with op.batch_alter_table("ledger", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_ledger_assignment_id"))

    op.drop_table("ledger")
    with op.batch_alter_table("judgement", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_judgement_pair_id"))

    op.drop_table("judgement")
    with op.batch_alter_table("finding", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_finding_assignment_id"))

    op.drop_table("finding")
    with op.batch_alter_table("proposal", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_proposal_pair_id"))

    op.drop_table("proposal")
    with op.batch_alter_table("hit_item", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_hit_item_pair_id"))

    op.drop_table("hit_item")
    with op.batch_alter_table("assignment", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_assignment_worker_id"))
        batch_op.drop_index(batch_op.f("ix_assignment_hit_id"))
        batch_op.drop_index(batch_op.f("ix_assignment_decision"))

    op.drop_table("assignment")
    op.drop_table("rating")
    with op.batch_alter_table("pair", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_pair_caption_id"))

    op.drop_table("pair")
    with op.batch_alter_table("hit", schema=None) as batch_op:
        batch_op.drop_index("ix_hit_state")

    op.drop_table("hit")
    op.drop_table("exclusion")
    with op.batch_alter_table("caption", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_caption_image_id"))

    op.drop_table("caption")
    op.drop_table("batch")
    op.drop_table("round")
    op.drop_table("query")
    op.drop_table("image")
    op.drop_table("worker")
    op.drop_table("run")
    op.drop_table("release")
    op.drop_table("journal")
    op.drop_table("dataset")
    op.drop_table("annotator")

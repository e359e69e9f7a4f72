"""Items of any kind: sides and directions by name, items with parts, pairs of any two items

An image's or a caption's number stays what it was, within its side; so does every order.

Revision ID: p0007
Revises: p0006
"""

import sqlalchemy as sa
from alembic import op

revision = "p0007"
down_revision = "p0006"
branch_labels = None
depends_on = None

_UNPROPOSED = sa.text("NOT proposed")
_PAIRED = ("pair", "rating", "exclusion")
_COLUMNS = {"image": "left", "caption": "right"}
_UNIQUE = ("pair", "rating")


def upgrade() -> None:
    _make_tables()
    _fill_tables()
    op.drop_index("ix_pair_unproposed", "pair")
    op.drop_index("ix_pair_caption_id", "pair")
    for table in _PAIRED:
        _pair_items(table)
    op.create_index("ix_pair_right_id", "pair", ["right_id"])
    op.create_index(
        "ix_pair_unproposed", "pair", ["id"], sqlite_where=_UNPROPOSED, postgresql_where=_UNPROPOSED
    )
    op.add_column("original_verdict", sa.Column("side_id", sa.Integer(), nullable=True))
    op.execute(f"UPDATE original_verdict SET side_id = {_side_of('caption')}")
    with op.batch_alter_table("original_verdict") as batch:
        batch.drop_constraint("fk_original_verdict_caption_id_caption", type_="foreignkey")
        batch.drop_constraint("uq_original_verdict_caption_id", type_="unique")
        batch.create_unique_constraint("uq_original_verdict_side_id_item_id", ["side_id", "caption_id"])
        batch.create_foreign_key(
            "fk_original_verdict_side_id_item_id_item", "item", ["side_id", "caption_id"], ["side_id", "id"]
        )
        batch.alter_column("caption_id", new_column_name="item_id", existing_type=sa.Integer())
        batch.alter_column("side_id", nullable=False, existing_type=sa.Integer())
    op.drop_table("caption")
    op.drop_table("image")


def downgrade() -> None:
    """What is not of an image and a caption goes: the older version has no place for it."""
    _make_old_tables()
    op.drop_index("ix_pair_unproposed", "pair")
    op.drop_index("ix_pair_right_id", "pair")
    for table in _PAIRED:
        _pair_images_and_captions(table)
    op.create_index("ix_pair_caption_id", "pair", ["caption_id"])
    op.create_index(
        "ix_pair_unproposed", "pair", ["id"], sqlite_where=_UNPROPOSED, postgresql_where=_UNPROPOSED
    )
    op.execute(
        "DELETE FROM original_verdict WHERE side_id NOT IN (SELECT id FROM side WHERE name = 'caption')"
    )
    with op.batch_alter_table("original_verdict") as batch:
        batch.drop_constraint("fk_original_verdict_side_id_item_id_item", type_="foreignkey")
        batch.drop_constraint("uq_original_verdict_side_id_item_id", type_="unique")
        batch.create_unique_constraint("uq_original_verdict_caption_id", ["item_id"])
        batch.create_foreign_key("fk_original_verdict_caption_id_caption", "caption", ["item_id"], ["id"])
        batch.alter_column("item_id", new_column_name="caption_id", existing_type=sa.Integer())
        batch.drop_column("side_id")
    for table in ("part", "item", "direction", "side"):
        op.drop_table(table)


def _make_tables() -> None:
    op.create_table(
        "side",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("dataset_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(32), nullable=False),
        sa.ForeignKeyConstraint(["dataset_id"], ["dataset.id"], name="fk_side_dataset_id_dataset"),
        sa.PrimaryKeyConstraint("id", name="pk_side"),
        sa.UniqueConstraint("dataset_id", "name", name="uq_side_dataset_id_name"),
    )
    op.create_table(
        "direction",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("dataset_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(32), nullable=False),
        sa.Column("query_side_id", sa.Integer(), nullable=False),
        sa.Column("gallery_side_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["dataset_id"], ["dataset.id"], name="fk_direction_dataset_id_dataset"),
        sa.ForeignKeyConstraint(["gallery_side_id"], ["side.id"], name="fk_direction_gallery_side_id_side"),
        sa.ForeignKeyConstraint(["query_side_id"], ["side.id"], name="fk_direction_query_side_id_side"),
        sa.PrimaryKeyConstraint("id", name="pk_direction"),
        sa.UniqueConstraint("dataset_id", "name", name="uq_direction_dataset_id_name"),
    )
    op.create_table(
        "item",
        sa.Column("side_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("external_id", sa.Text(), nullable=False),
        sa.Column("group_side_id", sa.Integer(), nullable=True),
        sa.Column("group_id", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["group_side_id", "group_id"],
            ["item.side_id", "item.id"],
            name="fk_item_group_side_id_group_id_item",
        ),
        sa.ForeignKeyConstraint(["side_id"], ["side.id"], name="fk_item_side_id_side"),
        sa.PrimaryKeyConstraint("side_id", "id", name="pk_item"),
        sa.UniqueConstraint("side_id", "external_id", name="uq_item_side_id_external_id"),
    )
    op.create_table(
        "part",
        sa.Column("side_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("item_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("place", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("text", sa.Text(), nullable=True),
        sa.Column("file", sa.Text(), nullable=True),
        sa.Column("url", sa.Text(), nullable=True),
        sa.Column("width", sa.Integer(), nullable=True),
        sa.Column("height", sa.Integer(), nullable=True),
        sa.Column("sha256", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["side_id", "item_id"], ["item.side_id", "item.id"], name="fk_part_side_id_item_id_item"
        ),
        sa.PrimaryKeyConstraint("side_id", "item_id", "place", name="pk_part"),
    )


def _fill_tables() -> None:
    op.execute(
        "INSERT INTO side (id, dataset_id, name) "
        "SELECT 2 * id - 1, id, 'image' FROM dataset UNION ALL SELECT 2 * id, id, 'caption' FROM dataset"
    )
    op.execute(
        "INSERT INTO direction (id, dataset_id, name, query_side_id, gallery_side_id) "
        "SELECT 2 * id - 1, id, 'i2t', 2 * id - 1, 2 * id FROM dataset "
        "UNION ALL SELECT 2 * id, id, 't2i', 2 * id, 2 * id - 1 FROM dataset"
    )
    if op.get_bind().dialect.name == "postgresql":
        for table in ("side", "direction"):
            op.execute(
                f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), max(id)) FROM {table} HAVING max(id) > 0"
            )
    op.execute(
        "INSERT INTO item (side_id, id, external_id) "
        "SELECT 2 * dataset_id - 1, id, external_id FROM image ORDER BY dataset_id, id"
    )
    op.execute(
        "INSERT INTO item (side_id, id, external_id, group_side_id, group_id) "
        "SELECT 2 * c.dataset_id, c.id, c.external_id, 2 * i.dataset_id - 1, i.id "
        "FROM caption c JOIN image i ON i.id = c.image_id ORDER BY c.dataset_id, c.id"
    )
    op.create_index("ix_item_group", "item", ["group_side_id", "group_id"])
    op.execute(
        "INSERT INTO part (side_id, item_id, place, kind, file, url, width, height, sha256) "
        "SELECT 2 * dataset_id - 1, id, 1, 'image', file, url, width, height, sha256 FROM image "
        "ORDER BY dataset_id, id"
    )
    op.execute(
        "INSERT INTO part (side_id, item_id, place, kind, text) "
        "SELECT 2 * dataset_id, id, 1, 'text', text FROM caption ORDER BY dataset_id, id"
    )


def _side_of(old: str) -> str:
    """The side of the image or caption in a row."""
    number = "2 * dataset_id - 1" if old == "image" else "2 * dataset_id"
    return f"(SELECT {number} FROM {old} WHERE {old}.id = {old}_id)"


def _pair_items(table: str) -> None:
    for side in _COLUMNS.values():
        op.add_column(table, sa.Column(f"{side}_side_id", sa.Integer(), nullable=True))
    op.execute(
        f"UPDATE {table} SET "
        + ", ".join(f"{side}_side_id = {_side_of(old)}" for old, side in _COLUMNS.items())
    )
    # Constraints before names: SQLite's copy of a table knows its columns by the old ones.
    with op.batch_alter_table(table) as batch:
        if table in _UNIQUE:
            batch.drop_constraint(f"uq_{table}_image_id_caption_id", type_="unique")
            batch.create_unique_constraint(
                f"uq_{table}_left_id_right_id_left_side_id_right_side_id",
                ["image_id", "caption_id", "left_side_id", "right_side_id"],
            )
        for old, side in _COLUMNS.items():
            batch.drop_constraint(f"fk_{table}_{old}_id_{old}", type_="foreignkey")
            batch.create_foreign_key(
                f"fk_{table}_{side}_side_id_{side}_id_item",
                "item",
                [f"{side}_side_id", f"{old}_id"],
                ["side_id", "id"],
            )
            batch.alter_column(f"{old}_id", new_column_name=f"{side}_id", existing_type=sa.Integer())
            if table in _UNIQUE:
                batch.alter_column(f"{side}_side_id", nullable=False, existing_type=sa.Integer())


def _make_old_tables() -> None:
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
        sa.ForeignKeyConstraint(["dataset_id"], ["dataset.id"], name="fk_image_dataset_id_dataset"),
        sa.PrimaryKeyConstraint("id", name="pk_image"),
        sa.UniqueConstraint("dataset_id", "external_id", name="uq_image_dataset_id_external_id"),
    )
    op.create_table(
        "caption",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("dataset_id", sa.Integer(), nullable=False),
        sa.Column("external_id", sa.Text(), nullable=False),
        sa.Column("image_id", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["dataset_id"], ["dataset.id"], name="fk_caption_dataset_id_dataset"),
        sa.ForeignKeyConstraint(["image_id"], ["image.id"], name="fk_caption_image_id_image"),
        sa.PrimaryKeyConstraint("id", name="pk_caption"),
        sa.UniqueConstraint("dataset_id", "external_id", name="uq_caption_dataset_id_external_id"),
    )
    op.execute(
        "INSERT INTO image (id, dataset_id, external_id, file, url, width, height, sha256) "
        "SELECT i.id, s.dataset_id, i.external_id, p.file, p.url, p.width, p.height, p.sha256 "
        "FROM item i JOIN side s ON s.id = i.side_id "
        "JOIN part p ON p.side_id = i.side_id AND p.item_id = i.id AND p.place = 1 WHERE s.name = 'image'"
    )
    op.execute(
        "INSERT INTO caption (id, dataset_id, external_id, image_id, text) "
        "SELECT i.id, s.dataset_id, i.external_id, i.group_id, p.text "
        "FROM item i JOIN side s ON s.id = i.side_id "
        "JOIN part p ON p.side_id = i.side_id AND p.item_id = i.id AND p.place = 1 WHERE s.name = 'caption'"
    )
    op.create_index("ix_caption_image_id", "caption", ["image_id"])


def _pair_images_and_captions(table: str) -> None:
    others = " OR ".join(
        f"{side}_side_id NOT IN (SELECT id FROM side WHERE name = '{old}')" for old, side in _COLUMNS.items()
    )
    op.execute(f"DELETE FROM {table} WHERE {others}")
    with op.batch_alter_table(table) as batch:
        if table in _UNIQUE:
            batch.drop_constraint(f"uq_{table}_left_id_right_id_left_side_id_right_side_id", type_="unique")
            batch.create_unique_constraint(f"uq_{table}_image_id_caption_id", ["left_id", "right_id"])
        for old, side in _COLUMNS.items():
            batch.drop_constraint(f"fk_{table}_{side}_side_id_{side}_id_item", type_="foreignkey")
            batch.create_foreign_key(f"fk_{table}_{old}_id_{old}", old, [f"{side}_id"], ["id"])
            batch.alter_column(f"{side}_id", new_column_name=f"{old}_id", existing_type=sa.Integer())
            batch.drop_column(f"{side}_side_id")

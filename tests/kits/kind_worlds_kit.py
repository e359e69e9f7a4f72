"""Generated worlds of sounds, videos, texts and composed queries, small and made once a run."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from mitl.datasets.scenes.files import write_world
from mitl.datasets.scenes.world import World, generate
from mitl.records import CaptionItem, ImageItem

KINDS = ("texts", "sounds", "videos", "composed")
WITH_FILES = KINDS[1:]


@cache
def world_of(kind: str, n: int = 40) -> tuple[World, Path]:
    """(the world, the project folder that its files lie in)."""
    project = Path(mkdtemp(prefix=f"mitl-{kind}-"))
    world = generate(n, seed=0, kind=kind)
    write_world(world, project / "dataset")
    return world, project


def items_of(kind: str, n: int = 40) -> tuple[list[ImageItem], list[CaptionItem]]:
    """Both sides as annotators see them; ids are the external ones."""
    world, project = world_of(kind, n)
    data = world.retrieval_set
    left = [
        ImageItem(
            int(i.external_id), i.external_id, i.file and project / i.file, None, i.texts, data.form.left_part
        )
        for i in data.images
    ]
    right = [
        CaptionItem(
            int(c.external_id),
            c.external_id,
            int(c.image_external_id),
            c.text,
            c.reference and int(c.reference),
        )
        for c in data.captions
    ]
    return left, right

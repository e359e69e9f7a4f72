"""A small project with three ranking systems, of which one is far worse: two annotators and a file of random items."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from world_kit import SANDBOX, copied_once, make_world, run_propose

from mitl.campaign.kinds.rankings.systems import PreferenceStudy
from mitl.campaign.publish import publish
from mitl.db.session import open_database
from mitl.db.store import items
from mitl.records import Direction, StageResult
from mitl.settings import Settings
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.simulate import simulate


def prepared(folder: Path) -> Settings:
    """A project of its own in ``folder``, with ``guess.t2i.parquet`` and ``guess.i2t.parquet`` beside it."""

    def make(new: Path) -> None:
        made = make_world(new, n_images=30)
        run_propose(made, image_queries=8, caption_queries=12)
        for direction in Direction:
            write_guesses(made, direction)

    return copied_once("prepared", make, folder)


def asked(folder: Path) -> Settings:
    """The same with a study posted."""
    return copied_once("asked to compare", lambda new: run_study(prepared(new)), folder)


def answered(folder: Path) -> Settings:
    """The same with a study that careful workers have answered, harvested."""

    def make(new: Path) -> None:
        made = asked(new)
        simulate(made, SANDBOX)
        harvest(made, SANDBOX)

    return copied_once("compared", make, folder)


def guesses(settings: Settings, direction: Direction = Direction.T2I) -> Path:
    """The file of random rankings."""
    return settings.project / f"guess.{direction}.parquet"


def write_guesses(settings: Settings, direction: Direction, depth: int = 5) -> None:
    """Every query with random items, in the layout that annotators' rankings from files have."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_database(settings.db_url, read_only=True) as session:
        images, captions = items.id_maps(session, items.dataset(session).id)
    queries, gallery = (images, captions) if direction is Direction.I2T else (captions, images)
    rng = np.random.default_rng(5)
    rows = [
        (int(query), rank, int(item), 1.0 / rank)
        for query in sorted(queries, key=int)
        for rank, item in enumerate(rng.choice(sorted(gallery, key=int), depth, replace=False), 1)
    ]
    columns = dict(zip(("query_id", "rank", "item_id", "similarity"), zip(*rows, strict=True), strict=True))
    pq.write_table(
        pa.table({name: list(values) for name, values in columns.items()}), guesses(settings, direction)
    )


def study(settings: Settings, **wish: object) -> PreferenceStudy:
    """Both annotators and the guesses on twelve captions."""
    wish = {"queries": 12, "systems": ("near", "far"), "files": (("guess", guesses(settings)),), **wish}
    return PreferenceStudy(SANDBOX, **wish)  # type: ignore[arg-type]


def run_study(settings: Settings, **wish: object) -> StageResult:
    """Post to the sandbox, no questions asked."""
    return publish(settings, study(settings, **wish), confirm=lambda total: True)

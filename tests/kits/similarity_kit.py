"""A small project whose pairs wait to be rated, and people who rate them over HTTP with known scores."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from crowd_kit import Crowd, ManualClock, Worker
from sqlalchemy import text
from world_kit import SANDBOX, copied_once, make_world

from mitl.campaign.kinds.similarity.planning import RatePairs
from mitl.campaign.publish import publish
from mitl.crowd.endpoint import open_endpoint
from mitl.db.engine import make_engine
from mitl.db.session import open_database
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store import rating_pages
from mitl.db.store import similarity as similarity_store
from mitl.records import Environment, StageResult
from mitl.records.frames import frame
from mitl.records.similarity import (
    METHODS,
    SAMPLES,
    TASKS,
    Likeness,
    SamplingMethod,
    SimilarityQuestion,
    SimilarityRole,
)
from mitl.settings import Settings
from mitl.stages.harvesting.harvest import harvest

Rater = Callable[[int, SimilarityQuestion], float | None]
"""The number of a worker and a question → the score; None leaves the slider alone, NaN skips the pair."""
_METHOD_OF = {
    Likeness.STS: SamplingMethod.C2C_ISIM,
    Likeness.SIS: SamplingMethod.I2I_CSIM,
    Likeness.SITS: SamplingMethod.C2I_INTRASIM,
}
_TYPES = text("SELECT mturk_id FROM hit_type WHERE title LIKE 'How %' ORDER BY id")
"""Those of the three wordings; pages of pairs are for others."""


def sampled(folder: Path) -> Settings:
    """A project of its own in ``folder`` with 16 pairs of each task sampled."""
    return copied_once("sampled", lambda new: sample_pairs(make_world(new, n_images=30)), folder)


def asked(folder: Path) -> Settings:
    """The same with its pairs of texts posted, on three HITs."""
    return copied_once("asked for ratings", lambda new: run_rate(sampled(new)), folder)


def rated(folder: Path, fifth: Rater | None = None) -> Settings:
    """The same with the work of five raters harvested; all are careful but for the ``fifth``, if one is given."""

    def make(new: Path) -> None:
        settings = asked(new)
        rate(settings, [*[likeness] * 4, fifth or likeness])
        harvest(settings, SANDBOX)

    return copied_once(f"rated {fifth.__name__ if fifth else ''}", make, folder)


def sample_pairs(settings: Settings, n: int = 16, *, all_images: bool = False) -> None:
    """Write ``n`` pairs of each task down as sampled, the first of them in both orders.

    Args:
        all_images: sample every image with every other one.
    """
    with open_database(settings.db_url) as session:
        captions = item_store.captions(session, item_store.dataset(session).id)
        images = sorted({caption.image_id for caption in captions})
        of_side = {"image": images, "caption": [caption.id for caption in captions]}
        for task in TASKS:
            first, second = (of_side[side] for side in task.sides)
            # Neighbours in tie order; an image with a caption of the next image.
            pairs = [(first[i], second[(i + 6) % len(second)]) for i in range(n)]
            if task is Likeness.SIS and all_images:
                pairs = list(combinations(images, 2))
            if task is not Likeness.SITS:
                pairs.append(pairs[0][::-1])
            numbers = np.array(pairs, np.int64)
            similarity_store.add_samples(
                session,
                frame(
                    {name: kind for name, kind in SAMPLES.items() if name != "pair"},
                    {
                        "task": np.full(len(pairs), TASKS.index(task)),
                        "first": numbers[:, 0],
                        "second": numbers[:, 1],
                        "method": np.full(len(pairs), METHODS.index(_METHOD_OF[task])),
                        "encoder": ["words"] * len(pairs),
                        "rank": np.ones(len(pairs)),
                        "similarity": np.linspace(0.1, 0.9, len(pairs)),
                    },
                ),
            )
        session.commit()


def run_rate(settings: Settings, task: str = "sts", **wish: Any) -> StageResult:
    """Post to the sandbox, no questions asked."""
    return publish(settings, RatePairs(SANDBOX, task, **wish), confirm=lambda total: True)


def pages_of(settings: Settings, environment: Environment = SANDBOX) -> dict[str, list[SimilarityQuestion]]:
    """What stands on every HIT that asks for ratings, by the HIT's key."""
    with open_database(settings.db_url, read_only=True) as session:
        rows = hit_store.hits(session, environment, kind="similarity")
        pages = rating_pages.questions(session, [hit.id for hit in rows])
    return {hit.key: pages[hit.id] for hit in rows}


def likeness(worker: int, item: SimilarityQuestion) -> float:
    """A careful rater: identical is alike, random is not, and each pair has a score of its own, near for all raters."""
    if item.role is SimilarityRole.IDENTICAL:
        return 4.8
    if item.role is SimilarityRole.RANDOM:
        return 0.3
    return round(1.0 + (7 * item.left + 3 * item.right) % 30 / 10 + worker / 20, 2)


def rate(
    settings: Settings,
    raters: Sequence[Rater] = (likeness,) * 5,
    *,
    environment: Environment = SANDBOX,
    ms: int = 15_000,
    hits_each: int | None = None,
) -> int:
    """Each rater is a new worker who takes every open HIT, over HTTP; returns how many submissions were made."""
    with open_database(settings.db_url, read_only=True) as session:
        rows = hit_store.hits(session, environment, kind="similarity")
        pages = rating_pages.questions(session, [hit.id for hit in rows])
    by_id = {hit.mturk_hit_id: pages[hit.id] for hit in rows}
    submitted = 0
    with open_endpoint(settings, environment) as endpoint, contextlib.ExitStack() as stack:
        engine = make_engine(settings.crowd_db_url)
        stack.callback(engine.dispose)
        with engine.connect() as connection:
            types = list(connection.scalars(_TYPES))
        crowd = Crowd(endpoint.url, engine, ManualClock(), stack)
        for number, (link, rater) in enumerate(zip(endpoint.invite(len(raters)), raters, strict=True)):
            worker = Worker(crowd, crowd.browser())
            assert worker.get(str(httpx.URL(link).raw_path, "ascii")).status_code == 200
            done = 0
            for hit_type in types:
                while hits_each is None or done < hits_each:
                    task = worker.accept(hit_type)
                    if task is None:
                        break
                    fields: dict[str, str] = {}
                    for item in by_id[task.query["hitId"]]:
                        score = rater(number, item)
                        at = f"p{item.place:02d}"
                        fields[f"{at}_score"] = "" if score is None or math.isnan(score) else f"{score:.2f}"
                        fields[f"{at}_ms"] = str(ms)
                        if score is not None:
                            fields[f"{at}_outcome"] = "skipped" if math.isnan(score) else "answered"
                    assert task.submit(**fields).status_code == 200
                    done += 1
            submitted += done
    return submitted

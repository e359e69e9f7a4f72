"""A small generated world with annotators from files, so that the loop's tests need neither torch nor training."""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np

from mitl.campaign.kinds.pairs.planning import Campaign
from mitl.campaign.publish import publish
from mitl.datasets.scenes.files import read_world
from mitl.datasets.scenes.world import truth_matrix
from mitl.progress import Advance, no_progress
from mitl.records import Environment, StageResult
from mitl.settings import WORLD_FOLDER, Settings
from mitl.settings import load as load_settings
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.simulate import simulate
from mitl.stages.proposing.propose import ProposeRequest, QueryChoice, propose
from mitl.stages.releasing.build_dataset import build_dataset
from mitl.stages.reviewing.review import settle
from mitl.stages.setup.init import ensure_config, init
from mitl.stages.setup.loading import DatasetSources, Loaded, load

ANNOTATORS = ("near", "far")
SANDBOX = Environment.SANDBOX
_KEPT: dict[tuple[str, str], Path] = {}


def make_world(
    folder: Path,
    *,
    n_images: int = 40,
    db_url: str | None = None,
    crowd_url: str | None = None,
    draw: bool = False,
) -> Settings:
    """A project on ``scenes`` whose two annotators are noisy views of the truth, written as embedding files.

    Args:
        draw: draw the world's pictures in place, as ``mitl init`` does, and do not copy them; safe to run again.
    """
    if not draw and db_url is None and crowd_url is None:
        return copy_of(_world(n_images), folder)
    if not draw:
        shutil.copytree(_world(n_images).project / WORLD_FOLDER, folder / WORLD_FOLDER)
    return _made(folder, n_images, db_url, crowd_url)


def _made(folder: Path, n_images: int, db_url: str | None = None, crowd_url: str | None = None) -> Settings:
    loaded = load(DatasetSources("scenes", n_images=n_images), folder)
    tables = {
        "dataset": {"kind": "scenes"},
        "propose": {"annotators": list(ANNOTATORS)},
        "annotators": {
            name: {"embeddings": {"images": f"{name}-images.npz", "captions": f"{name}-captions.npz"}}
            for name in ANNOTATORS
        },
    }
    ensure_config(folder, "test", 0, tables)
    write_embeddings(folder)
    settings = replace(load_settings(folder, db=db_url, crowd_db=crowd_url, environ={}), endpoint=None)
    init(settings, Loaded(loaded.data))
    return settings


def copy_of(settings: Settings, folder: Path) -> Settings:
    """The same project in another folder, to be changed."""
    shutil.copytree(settings.project, folder, dirs_exist_ok=True)
    return replace(load_settings(folder, environ={}), endpoint=None)


def spoil(file: Path, content: bytes) -> None:
    """Give a file of a project other content; copies of the project, which may share the file, keep theirs."""
    file.unlink()
    file.write_bytes(content)


def copied_once(name: str, make: Callable[[Path], object], folder: Path) -> Settings:
    """A copy in ``folder`` of the project that ``make`` writes into a folder of its own, once in this process.

    Args:
        name: of the project; other modules may have others of that name.
    """
    key = make.__module__, name
    if key not in _KEPT:
        made = _template() / "p"
        make(made)
        _KEPT[key] = made
    shutil.copytree(_KEPT[key], folder, dirs_exist_ok=True)
    return replace(load_settings(folder, environ={}), endpoint=None)


def killed_at_posting(label: str, total: int) -> AbstractContextManager[Advance]:
    """The progress of a run that is killed when it begins to post."""
    if label == "post":
        raise KeyboardInterrupt
    return no_progress(label, total)


def _template() -> Path:
    return Path(tempfile.mkdtemp(prefix="mitl-world-"))


@functools.cache
def _world(n_images: int) -> Settings:
    """A project on a world of this size, made once by this process and copied for each test."""
    return _made(_template(), n_images)


def write_embeddings(folder: Path) -> None:
    world = read_world(folder / WORLD_FOLDER)
    images, captions = list(world.scenes), list(world.captions)
    relevance = (4.0 - truth_matrix(world, images, captions)) / 3
    left, scale, right = np.linalg.svd(relevance, full_matrices=False)
    for place, name in enumerate(ANNOTATORS):
        noise = np.random.default_rng(place)
        width = min(24, len(scale))
        sides = {"images": (images, left[:, :width]), "captions": (captions, right[:width].T)}
        for side, (ids, vectors) in sides.items():
            values = vectors * np.sqrt(scale[:width]) + noise.normal(size=vectors.shape) * 0.05 * place
            # A wrong caption is relevant to no image; a direction of its own keeps it from being all zeros.
            values = np.column_stack([values, ~values.any(axis=1)])
            np.savez(
                folder / f"{name}-{side}.npz",
                ids=np.array(ids, dtype=np.int64),
                embedding=values.astype(np.float32),
            )


def run_propose(settings: Settings, *, image_queries: int = 6, caption_queries: int = 8) -> StageResult:
    """Propose with both annotators."""
    return propose(
        settings,
        ProposeRequest(
            annotators=ANNOTATORS,
            top_k=5,
            depth=10,
            images=QueryChoice(image_queries),
            captions=QueryChoice(caption_queries),
        ),
        progress=no_progress,
    )


def run_publish(settings: Settings, **campaign: object) -> StageResult:
    """Post to the sandbox, no questions asked."""
    return publish(settings, Campaign(SANDBOX, **campaign), confirm=lambda total: True)  # type: ignore[arg-type]


def make_released(folder: Path, *, n_images: int, image_queries: int, caption_queries: int) -> Settings:
    """A project whose proposed pairs were answered once, with its release in ``release``; made once and copied."""
    return copy_of(_released(n_images, image_queries, caption_queries), folder)


@functools.cache
def _released(n_images: int, image_queries: int, caption_queries: int) -> Settings:
    settings = make_world(_template(), n_images=n_images)
    run_propose(settings, image_queries=image_queries, caption_queries=caption_queries)
    run_publish(settings)
    simulate(settings, SANDBOX, population="careful")
    harvest(settings, SANDBOX)
    build_dataset(settings, settings.project / "release", SANDBOX)
    return settings


def work_until_done(settings: Settings, population: str = "careful", rounds: int = 6) -> None:
    """Post, answer, harvest and settle until nothing is left to ask."""
    for _ in range(rounds):
        run_publish(settings)
        answered = simulate(settings, SANDBOX, population=population)
        harvest(settings, SANDBOX)
        settled = settle(settings, SANDBOX)
        if answered.status == settled.status == "nothing_to_do":
            return
    raise AssertionError(f"still work left after {rounds} rounds")


def run_build(settings: Settings, name: str = "release") -> StageResult:
    """Build a release in the project."""
    return build_dataset(settings, settings.project / name, SANDBOX)

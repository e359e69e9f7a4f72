"""Reading whatever `mitl init` names into one in-memory form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mitl.datasets.assembling import require_same
from mitl.datasets.exclusions import paper_exclusions, read_exclusions, resolve
from mitl.errors import UsageError
from mitl.progress import Progress, no_progress
from mitl.records import Exclusion, Rating, RetrievalSet
from mitl.settings import SEED, WORLD_FOLDER

KINDS = ("scenes", "coco", "flickr30k", "table")
PAPER = "paper"


@dataclass(frozen=True, slots=True)
class Sources:
    """The files and sizes that a data set is read from; which are needed depends on the kind."""

    kind: str
    captions: tuple[Path, ...] = ()
    split_file: Path | None = None
    split: str = "test"
    caption_ids: Path | None = None
    images: Path | None = None
    image_url: str | None = None
    n_images: int = 300
    """Of ``scenes``."""
    defect_share: float | None = None
    cxc: Path | None = None
    exclusions: tuple[str, ...] = ()
    """Files, or ``paper`` for the lists of ECCV Caption's appendix C.1."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A data set with what is known about it."""

    data: RetrievalSet
    ratings: tuple[Rating, ...]
    exclusions: tuple[Exclusion, ...]


def load(
    sources: Sources,
    project: Path,
    *,
    seed: int = SEED,
    expected: str | None = None,
    progress: Progress = no_progress,
) -> Loaded:
    """Read a data set, CxC's ratings and exclusion lists; ``scenes`` writes its pictures into the project.

    Args:
        expected: content hash of the data set that the project holds already; nothing else may take its place.

    Raises:
        UsageError: a file that this kind needs is not named.
        DatasetError: a file is missing, malformed or contradicts another.
    """
    # What can be missing or malformed is read first: a generated world writes its pictures.
    ratings: tuple[Rating, ...] = ()
    if sources.cxc is not None:
        from mitl.datasets.cxc import read_sits

        ratings = tuple(read_sits(sources.cxc))
    lists = [
        (paper_exclusions(), False) if source == PAPER else (read_exclusions(Path(source)), True)
        for source in sources.exclusions
    ]
    data = _read(sources, project, seed, expected, progress)
    exclusions = [entry for rows, strict in lists for entry in resolve(rows, data, strict=strict)]
    return Loaded(data, ratings, tuple(exclusions))


def _read(
    sources: Sources, project: Path, seed: int, expected: str | None, progress: Progress
) -> RetrievalSet:
    if sources.kind == "scenes":
        return _scenes(sources, project, seed, expected, progress)
    if sources.kind == "coco":
        return _coco(sources)
    if sources.kind == "flickr30k":
        from mitl.datasets.flickr30k import read_flickr30k

        if sources.split_file is None:
            raise UsageError(
                "flickr30k is read from its Karpathy file; give --split-file dataset_flickr30k.json"
            )
        return read_flickr30k(
            sources.split_file, split=sources.split, images=sources.images, url_template=sources.image_url
        )
    if sources.kind == "table":
        from mitl.datasets.table import read_table

        return read_table(
            _one(sources.captions, "a table of pairs", "--captions pairs.csv"),
            images=sources.images,
            url_template=sources.image_url,
            unpack=project / WORLD_FOLDER,
        )
    raise UsageError(f"no data set kind called {sources.kind!r}; known: {', '.join(KINDS)}")


def _coco(sources: Sources) -> RetrievalSet:
    if any(path.suffix in (".parquet", ".csv") for path in sources.captions):
        from mitl.datasets.compact import read_compact

        return read_compact(
            _one(sources.captions, "a compact captions file", "--captions captions.parquet"),
            caption_ids=sources.caption_ids,
            images=sources.images,
            url_template=sources.image_url,
        )
    from mitl.datasets.coco import read_coco

    if not sources.captions and sources.split_file is None:
        raise UsageError(
            "coco needs its captions; give --captions captions_val2014.json with --split-file dataset_coco.json "
            "or --caption-ids FILE, or a compact captions file"
        )
    return read_coco(
        sources.captions,
        karpathy=sources.split_file,
        split=sources.split,
        caption_ids=sources.caption_ids,
        images=sources.images,
        url_template=sources.image_url,
    )


def _scenes(
    sources: Sources, project: Path, seed: int, expected: str | None, progress: Progress
) -> RetrievalSet:
    from mitl.datasets.scenes.files import write_world
    from mitl.datasets.scenes.world import DEFECT_SHARE, generate

    share = DEFECT_SHARE if sources.defect_share is None else sources.defect_share
    world = generate(sources.n_images, seed=seed, defect_share=share)
    if expected is not None:
        require_same(expected, world.retrieval_set)  # before another world is drawn over the project's own
    write_world(world, project / WORLD_FOLDER, progress)
    return world.retrieval_set


def _one(paths: Sequence[Path], what: str, example: str) -> Path:
    if len(paths) != 1:
        raise UsageError(f"{len(paths) or 'no'} files were given, but this needs one, {what}; give {example}")
    return paths[0]

"""Finding images of the data set that a training set holds too, and taking them out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mitl.datasets.duplicates import (
    MAX_DISTANCE,
    Duplicate,
    nearest,
    picture_files,
    picture_hashes,
    same_set,
)
from mitl.db.session import open_database
from mitl.db.store import items as item_store
from mitl.db.store import originals as original_store
from mitl.errors import DatasetError, StoreError
from mitl.progress import Progress, no_progress
from mitl.records import ImageItem, StageResult, Table, several
from mitl.settings import Settings

SOURCE = "duplicates by perceptual hash"


def duplicates(
    settings: Settings,
    folder: Path,
    *,
    max_distance: int = MAX_DISTANCE,
    progress: Progress = no_progress,
) -> StageResult:
    """List the project's images that have a near copy in a folder of pictures; a person looks and decides.

    Source: Chun et al., ECCV Caption, appendix C.1: one image of the test split was found in the training set.

    Raises:
        DatasetError: pictures are missing or cannot be read, or both sets are the same files.
    """
    with open_database(settings.db_url, read_only=True) as session:
        dataset = item_store.dataset(session)
        images = item_store.images(session, dataset.id, settings.project)
    here = [(image, image.path) for image in images if image.path is not None and image.path.exists()]
    if not here:
        raise DatasetError(
            "no image of this project has a picture file here; say where they are with `mitl init --images`"
        )
    paths, others = [path for _, path in here], picture_files(folder)
    both = same_set(paths, others)
    if both is not None:
        raise DatasetError(f"{str(both)!r} is the project's own picture; name the folder of another set")
    with progress("hash pictures", len(paths) + len(others)) as advance:
        found = nearest(
            picture_hashes(paths, advance), picture_hashes(others, advance), max_distance=max_distance
        )
    missing = len(images) - len(here)
    return _result([image for image, _ in here], others, found, missing)


def exclude(settings: Settings, external_ids: Sequence[str]) -> StageResult:
    """Take these images, which a person found to be duplicates, out of all releases.

    Raises:
        StoreError: an image is unknown; nothing is stored then.
    """
    with open_database(settings.db_url) as session:
        dataset = item_store.dataset(session)
        ids, _ = item_store.id_maps(session, dataset.id)
        strange = [name for name in external_ids if name not in ids]
        if strange:
            raise StoreError(
                f"there is no image {strange[0]!r} in this data set; name images by their own ids"
            )
        new = original_store.exclude_images(
            session, [ids[name] for name in external_ids], "also in a training set", SOURCE
        )
        session.commit()
    return StageResult(
        status="done" if new else "nothing_to_do",
        counts={"excluded": new},
        lines=(
            f"{several(new, 'image')} excluded from every pair"
            if new
            else "nothing to do: they are excluded already",
        ),
        next="mitl build-dataset --out DIR",
    )


def _result(
    images: Sequence[ImageItem], others: Sequence[Path], found: Sequence[Duplicate], missing: int
) -> StageResult:
    rows = tuple(
        (images[one.place].external_id, one.distance, str(images[one.place].path), str(others[one.other]))
        for one in sorted(found, key=lambda one: (one.distance, one.place))
    )
    looked = f"{several(len(images), 'image')} against {several(len(others), 'picture')}"
    warnings = (f"not looked at for want of a picture file: {several(missing, 'image')}",) if missing else ()
    if not rows:
        return StageResult(
            counts={"duplicates": [], "images": len(images), "others": len(others)},
            warnings=warnings,
            lines=(f"no near copy: {looked}",),
        )
    return StageResult(
        counts={
            "duplicates": [{"image": row[0], "distance": row[1], "other": row[3]} for row in rows],
            "images": len(images),
            "others": len(others),
        },
        warnings=warnings,
        tables=(
            Table(
                f"{several(len(rows), 'near copy', 'near copies')}: {looked}",
                ("image", "bits", "picture", "copy"),
                rows,
            ),
        ),
        lines=("look at each: other views of one scene may be near as well",),
        next="mitl review duplicates --exclude IMAGE…",
    )

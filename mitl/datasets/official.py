"""The official positives of the COCO test split, as the package ``eccv_caption`` carries them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mitl.datasets.assembling import by_id
from mitl.datasets.coco import coco_id, read_caption_ids
from mitl.datasets.files import read_json
from mitl.errors import DatasetError

PACKAGE = "eccv_caption"
OFFICIAL_COLUMNS = ("model", "ranking", "score", "cid", "iid", "annotation", "shortcoming", "shortcoming2")
"""Of its CSV of raw answers."""
OfficialSet = Literal["original", "cxc", "eccv"]
Positives = dict[str, tuple[str, ...]]
WHAT = "lists of item ids by query id"


@dataclass(frozen=True, slots=True)
class OfficialPositives:
    """Positives by external id, in both directions: query id → ids of its positives, in the file's order."""

    image_to_caption: Positives
    caption_to_image: Positives

    def pairs(self) -> set[tuple[str, str]]:
        """(image id, caption id) of the positives of either direction."""
        forward = {
            (image, caption) for image, captions in self.image_to_caption.items() for caption in captions
        }
        backward = {(image, caption) for caption, images in self.caption_to_image.items() for image in images}
        return forward | backward


def official_positives(which: OfficialSet) -> OfficialPositives:
    """COCO's original, CxC's or ECCV Caption's positives.

    Raises:
        DatasetError: the package is not installed, or its files are damaged.
    """
    if which not in ("original", "cxc", "eccv"):
        raise DatasetError(f"no official positives called {which!r}; known: original, cxc, eccv")
    return _read(_data_folder(), which)


@cache
def _read(folder: Path, which: OfficialSet) -> OfficialPositives:
    """A command asks for the same set several times, and reading one takes longer than most of what it does."""
    tables = (
        read_positives(folder / f"{which}_{side}.json") for side in ("image_to_caption", "caption_to_image")
    )
    return OfficialPositives(
        *({str(query): tuple(map(str, items)) for query, items in table.items()} for table in tables)
    )


def coco_test_ids() -> list[str]:
    """The 25,000 caption ids of the official COCO test split, in the official order.

    Raises:
        DatasetError: the package is not installed, or its file is damaged.
    """
    return read_caption_ids(coco_test_ids_file())


def coco_test_ids_file() -> Path:
    """The package's list of caption ids, for readers that take such a file."""
    return _data_folder() / "coco_test_ids.npy"


def by_query(pairs: Iterable[tuple[str, str]]) -> OfficialPositives:
    """(image id, caption id) pairs as positives of both directions, in the order of the pairs."""
    forward: dict[str, list[str]] = {}
    backward: dict[str, list[str]] = {}
    for image, caption in pairs:
        forward.setdefault(image, []).append(caption)
        backward.setdefault(caption, []).append(image)
    return OfficialPositives(
        {image: tuple(captions) for image, captions in forward.items()},
        {caption: tuple(images) for caption, images in backward.items()},
    )


def _data_folder() -> Path:
    # The package's own import pulls its metrics and warns; its place on disk is all that is needed.
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise DatasetError(
            "the official COCO positives need the package eccv_caption; "
            "install it with `pip install 'mitl[official]'`"
        )
    return Path(spec.submodule_search_locations[0]) / "data"


def read_positives(path: Path) -> dict[int, tuple[int, ...]]:
    """A JSON of positives by query id, as ``eccv_caption`` and releases keep them.

    Raises:
        DatasetError: the file cannot be read, is not an object of lists of integers, or lists a query twice.
    """
    value = read_json(path, WHAT)
    try:
        lists = [(coco_id(query), tuple(listed_ids(items).tolist())) for query, items in value.items()]
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise DatasetError(f"{str(path)!r} is malformed ({error}); it should hold {WHAT}") from error
    return {int(query): items for query, items in by_id("query", lists, path).items()}


def listed_ids(items: object) -> NDArray[np.int64]:
    """A JSON list of ids as an array; TypeError or ValueError where it is none."""
    if not isinstance(items, list):
        raise TypeError(f"{items!r} stands where a list of ids should be")
    ids = np.array(items) if items else np.empty(0, dtype=np.int64)
    if ids.ndim != 1 or ids.dtype.kind not in "iU":
        raise ValueError(f"{items[0]!r} stands where an id should be")
    return ids.astype(np.int64)

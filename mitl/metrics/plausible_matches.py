"""Plausible matches as sets: by the objects of images, or the lists of ECCV Caption's library (``extra_file_dir``)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mitl.datasets.files import read_json
from mitl.datasets.objects import ImageObjects
from mitl.datasets.official import OfficialPositives
from mitl.errors import DatasetError
from mitl.metrics.positives import Ids, Positives
from mitl.records import Direction

FILES = {Direction.I2T: "pm_image_to_caption.json", Direction.T2I: "pm_caption_to_image.json"}
WHAT = "plausible matches: lists of item ids by query id"


def matches_by_objects(objects: ImageObjects, image_of: Mapping[str, str]) -> OfficialPositives:
    """The captions that match an image plausibly, and the images that match a caption, with zeta = 0.

    They match if the caption's own image shows exactly the same classes of objects. Images without any object match
    nothing, nor do their captions. Items of equal objects share one list.

    Args:
        image_of: caption id -> its own image's; no other image or caption is in the set.

    Raises:
        DatasetError: the objects of an image are not told.
    Source: Chun et al., PCME, CVPR 2021, section 4.1; a row of ECCV Caption's Table 2.
    """
    row_of = {image: row for row, image in enumerate(objects.image_ids)}
    images = list(dict.fromkeys(image_of.values()))
    unknown = [image for image in images if image not in row_of]
    if unknown:
        raise DatasetError(
            f"the objects are not told of {len(unknown):,} of {len(images):,} images; first: {unknown[0]!r}"
        )
    kinds: defaultdict[bytes, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    kind_of = {
        image: objects.vectors[row_of[image]].tobytes()
        for image in images
        if objects.vectors[row_of[image]].any()
    }
    for image, kind in kind_of.items():
        kinds[kind][0].append(image)
    for caption, image in image_of.items():
        if image in kind_of:
            kinds[kind_of[image]][1].append(caption)
    shared = {kind: (tuple(same), tuple(captions)) for kind, (same, captions) in kinds.items()}
    return OfficialPositives(
        {image: shared[kind][1] for image, kind in kind_of.items()},
        {caption: shared[kind_of[image]][0] for caption, image in image_of.items() if image in kind_of},
    )


def listed_matches(folder: Path) -> OfficialPositives:
    """The plausible matches of the library's two files, by external id.

    Raises:
        DatasetError: as ``read_plausible_matches``.
    """
    tables = []
    for positives in read_plausible_matches(folder).values():
        # A list of thousands of items comes again and again: each id is one text, however often it is listed.
        texts = {item: str(item) for item in np.unique(positives.item_ids).tolist()}
        lists = np.split(positives.item_ids, positives.offsets[1:-1])
        tables.append(
            {
                str(query): tuple(texts[item] for item in items.tolist())
                for query, items in zip(positives.query_ids.tolist(), lists, strict=True)
            }
        )
    return OfficialPositives(*tables)


def read_plausible_matches(folder: Path) -> dict[Direction, Positives]:
    """The plausible matches of each query, both directions, under COCO's ids.

    Raises:
        DatasetError: a file is missing or malformed, or an id is no whole number.
    """
    return {direction: _read(folder / name) for direction, name in FILES.items()}


def _read(path: Path) -> Positives:
    value = read_json(path, WHAT)
    if not isinstance(value, dict):
        raise DatasetError(f"{str(path)!r} holds no object of queries; it should hold {WHAT}")
    try:
        queries = np.array([int(query) for query in value], dtype=np.int64)
        # Each list is let go as it becomes an array: the official ones hold millions of ids.
        lists = [_ids(value.pop(query)) for query in list(value)]
    except (TypeError, ValueError, OverflowError) as error:
        raise DatasetError(f"{str(path)!r} is malformed ({error}); it should hold {WHAT}") from error
    items = np.concatenate(lists) if lists else np.empty(0, dtype=np.int64)
    return Positives.from_pairs(np.repeat(queries, [len(part) for part in lists]), items, queries=queries)


def _ids(items: object) -> Ids:
    if not isinstance(items, list):
        raise TypeError(f"{items!r} stands where a list of ids should be")
    ids = np.array(items) if items else np.empty(0, dtype=np.int64)
    if ids.ndim != 1 or ids.dtype.kind not in "iuU":
        raise ValueError(f"{items[0]!r} stands where an id should be")
    return ids.astype(np.int64)

"""ECCV Caption's lists of plausible matches: two JSON files that its reference library takes as ``extra_file_dir``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mitl.datasets.files import read_json
from mitl.errors import DatasetError
from mitl.metrics.positives import Ids, Positives
from mitl.records import Direction

FILES = {Direction.I2T: "pm_image_to_caption.json", Direction.T2I: "pm_caption_to_image.json"}
WHAT = "plausible matches: lists of item ids by query id"


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

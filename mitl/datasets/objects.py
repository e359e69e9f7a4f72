"""Which objects each image shows: COCO's instance annotations, or a table of class names by image id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.datasets.coco import coco_id
from mitl.datasets.files import read_entries, read_json
from mitl.errors import DatasetError

WHAT = "COCO instance annotations, or lists of object names by image id"


@dataclass(frozen=True, slots=True, eq=False)
class ImageObjects:
    """``vectors`` (N, C), true where an object of class c is in image n; ids as the file writes them."""

    image_ids: tuple[str, ...]
    classes: tuple[str, ...]
    vectors: NDArray[np.bool_]


def read_image_objects(path: Path) -> ImageObjects:
    """The objects of each image, from a JSON file, also compressed (``.gz``).

    ``instances_val2014.json`` and its like give every image that they list, those without an object too, and all
    of their classes. A table ``{"42": ["dog"], "359": ["car", "traffic light"]}`` gives the classes that it names.

    Raises:
        DatasetError: the file is missing or malformed, or an annotation names an unknown image or class.
    """
    value = read_json(path, WHAT)
    if isinstance(value, dict) and "annotations" in value:
        return _from_instances(value, path)
    if isinstance(value, dict) and value and all(_is_names(names) for names in value.values()):
        classes = sorted({name for names in value.values() for name in names})
        return _vectors(value, classes)
    raise DatasetError(f"{str(path)!r} has another form; it should hold {WHAT}")


def _from_instances(value: Mapping[str, Any], path: Path) -> ImageObjects:
    names = dict(
        read_entries(value, "categories", lambda of: (coco_id(of["id"]), str(of["name"])), path, WHAT)
    )
    images = read_entries(value, "images", lambda image: coco_id(image["id"]), path, WHAT)
    kinds: dict[str, set[str]] = {image: set() for image in images}

    def note(annotation: Any) -> None:
        image, category = coco_id(annotation["image_id"]), coco_id(annotation["category_id"])
        if image not in kinds or category not in names:
            unknown = f"category {category}" if image in kinds else f"image {image}"
            raise ValueError(f"the file lists no {unknown}")
        kinds[image].add(names[category])

    read_entries(value, "annotations", note, path, WHAT)
    return _vectors(kinds, list(names.values()))


def _vectors(kinds: Mapping[str, Iterable[str]], classes: list[str]) -> ImageObjects:
    place_of = {name: place for place, name in enumerate(classes)}
    vectors = np.zeros((len(kinds), len(classes)), dtype=np.bool_)
    for row, names in zip(vectors, kinds.values(), strict=True):
        row[[place_of[name] for name in names]] = True
    return ImageObjects(tuple(kinds), tuple(classes), vectors)


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)

"""Karpathy's split files, ``dataset_coco.json`` and ``dataset_flickr30k.json``, and Flickr30k as its file has it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mitl.datasets.assembling import assemble
from mitl.datasets.files import read_json
from mitl.datasets.images import Picture, locate
from mitl.errors import DatasetError
from mitl.records import Caption, IdKind, RetrievalSet


def read_flickr30k(
    karpathy: Path,
    *,
    split: str = "test",
    images: Path | None = None,
    url_template: str | None = None,
    name: str = "flickr30k",
) -> RetrievalSet:
    """One split of Flickr30k; caption ids are ``<file name>#<k>``, k from 0 as in the official token file.

    Raises:
        DatasetError: the file is missing or malformed, or has no such split.
    """
    entries = read_split(karpathy, split)
    captions = [
        Caption(f"{entry.file_name}#{k}", entry.file_name, text.strip())
        for entry in entries
        for k, (_, text) in enumerate(entry.sentences)
    ]
    pictures = [Picture(entry.file_name, entry.file_name, entry.folder) for entry in entries]
    found = locate(pictures, folder=images, url_template=url_template)
    return assemble(name, "flickr30k", found, captions, source=karpathy, ids=IdKind.STRING)


WHAT = "a Karpathy split (an object with 'images', each with 'split', 'filename' and 'sentences')"


@dataclass(frozen=True, slots=True)
class SplitImage:
    """One image of a split file; ``cocoid`` and the sentence ids are None where the data set has none."""

    file_name: str
    folder: str | None
    split: str
    cocoid: int | None
    sentences: tuple[tuple[int | None, str], ...]
    """(sentence id, raw text) in the file's order."""


def read_split(path: Path, split: str) -> list[SplitImage]:
    """The images of one split, in the file's order.

    Raises:
        DatasetError: the file is missing or malformed, or no image is of that split.
    """
    value = read_json(path, WHAT)
    try:
        images = [_image(entry) for entry in value["images"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DatasetError(f"{str(path)!r} is malformed ({error!r}); it should hold {WHAT}") from error
    chosen = [image for image in images if image.split == split]
    if not chosen:
        known = ", ".join(sorted({image.split for image in images})) or "none"
        raise DatasetError(f"no image of {str(path)!r} is of the split {split!r}; its splits: {known}")
    return chosen


def _image(entry: dict[str, Any]) -> SplitImage:
    sentences = tuple(
        (None if sentence.get("sentid") is None else int(sentence["sentid"]), str(sentence["raw"]))
        for sentence in entry["sentences"]
    )
    cocoid = entry.get("cocoid")
    return SplitImage(
        file_name=str(entry["filename"]),
        folder=None if entry.get("filepath") is None else str(entry["filepath"]),
        split=str(entry["split"]),
        cocoid=None if cocoid is None else int(cocoid),
        sentences=sentences,
    )

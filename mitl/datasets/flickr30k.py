"""Flickr30k by Karpathy's ``dataset_flickr30k.json``: file names are the image ids."""

from __future__ import annotations

from pathlib import Path

from mitl.datasets.assembling import assemble
from mitl.datasets.images import Picture, locate
from mitl.datasets.karpathy import read_split
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

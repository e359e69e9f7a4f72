"""Whether two readings hold the same data set, whatever their files were called."""

from __future__ import annotations

import hashlib

from mitl.errors import DatasetError
from mitl.records import RetrievalSet


def content_hash(data: RetrievalSet) -> str:
    """SHA-256 over ids and texts: the same data give the same hash whatever their files were called."""
    digest = hashlib.sha256()
    for image in data.images:
        digest.update(f"i\x1f{image.external_id}\n".encode())
    for caption in data.captions:
        line = f"c\x1f{caption.external_id}\x1f{caption.image_external_id}\x1f{caption.text}\n"
        digest.update(line.encode())
    return digest.hexdigest()


def require_same(expected: str, data: RetrievalSet) -> None:
    """DatasetError where the data are not those whose hash is expected."""
    if content_hash(data) != expected:
        raise DatasetError(
            f"this project holds other data than this {data.name!r} of {len(data.images):,} images and "
            f"{len(data.captions):,} captions: ids or texts differ; make another project folder for it"
        )

"""Images and captions as read, made into a checked data set in tie order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from mitl.datasets.ids import id_kind, tie_key
from mitl.errors import DatasetError
from mitl.records import Caption, IdKind, Image, RetrievalSet


def assemble(
    name: str,
    kind: str,
    images: Iterable[Image],
    captions: Iterable[Caption],
    *,
    source: object,
    ids: IdKind | None = None,
) -> RetrievalSet:
    """The data set in tie order; ids are integers if all are, unless ``ids`` says which kind they are.

    Raises:
        DatasetError: no images or captions, an id that comes twice, a caption of an unknown image. The
            message names ``source``, the file that was read.
    """
    images, captions = list(images), list(captions)
    if not images or not captions:
        missing = "images" if not images else "captions"
        raise DatasetError(
            f"{source} gives no {missing}; a data set needs at least one image and one caption"
        )
    image_ids = [image.external_id for image in images]
    caption_ids = [caption.external_id for caption in captions]
    kind_of_ids = ids or id_kind([*image_ids, *caption_ids])
    key = tie_key(kind_of_ids)
    check_unique("image", image_ids, source)
    check_unique("caption", caption_ids, source)
    known = set(image_ids)
    for caption in captions:
        if caption.image_external_id not in known:
            raise DatasetError(
                f"caption {caption.external_id!r} in {source} belongs to image "
                f"{caption.image_external_id!r}, which is not among the images"
            )
    return RetrievalSet(
        name,
        kind,
        kind_of_ids,
        tuple(sorted(images, key=lambda image: key(image.external_id))),
        tuple(sorted(captions, key=lambda caption: key(caption.external_id))),
    )


def check_unique(what: str, ids: Sequence[str], source: object) -> None:
    """DatasetError naming the first id that comes twice."""
    twice = next((a for a, b in pairwise(sorted(ids)) if a == b), None)
    if twice is not None:
        raise DatasetError(f"{what} id {twice!r} comes twice in {source}; ids must be unique")

"""Image files as small squares of pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mitl.errors import AnnotatorError
from mitl.records import ImageItem

if TYPE_CHECKING:
    from PIL.Image import Image

VERSION = 1
"""Raised when the same file gives other pixels."""


def square(image: Image, size: int) -> NDArray[np.uint8]:
    """(size, size, 3): the whole image, squeezed to a square by averaging."""
    from PIL.Image import Resampling

    rgb = image.convert("RGB").resize((size, size), Resampling.BOX)
    return np.asarray(rgb, dtype=np.uint8)


def read_square(item: ImageItem, size: int) -> NDArray[np.uint8]:
    """The pixels of an image's file; AnnotatorError where there is none or it is no image."""
    from PIL import Image, UnidentifiedImageError

    if item.path is None:
        raise AnnotatorError(f"image {item.external_id!r} has no file; this annotator looks at pixels")
    try:
        with Image.open(item.path) as image:
            return square(image, size)
    except FileNotFoundError as error:
        raise AnnotatorError(
            f"image {item.external_id!r} should be in {str(item.path)!r}, which is missing"
        ) from error
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError) as error:
        raise AnnotatorError(f"{str(item.path)!r} is not readable as an image: {error}") from error

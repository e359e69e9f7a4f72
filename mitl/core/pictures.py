"""Pictures as people see them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image


def upright(picture: Image) -> Image:
    """In RGB, turned as a camera's EXIF data say, on white where it is transparent.

    Raises:
        OSError: the file is cut off.
    """
    from PIL import Image, ImageOps

    try:
        picture = ImageOps.exif_transpose(picture)
    except (struct.error, ValueError, SyntaxError):
        picture.load()  # EXIF data that cannot be read say nothing, but pixels must be there
    if not picture.has_transparency_data:
        return picture.convert("RGB")
    clear = picture.convert("RGBA")
    flat = Image.new("RGB", clear.size, "white")
    flat.paste(clear, mask=clear.getchannel("A"))
    return flat

"""Pictures as people see them."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF")
"""What Pillow opens as a picture. Left to itself it has Ghostscript run what is PostScript, whatever its name."""
SPOILED = (
    *(SyntaxError, ValueError, LookupError, TypeError, ArithmeticError, RuntimeError),
    *(struct.error, zlib.error),
)
"""What Pillow's readers raise, beside OSError and of bombs their own, where a file contradicts itself."""
MAX_SIDE = 640
"""Pixels; what a person needs to see, and no more to load on a phone."""
_QUALITY = 88


def page_jpeg(path: Path) -> bytes:
    """A picture of any format as browsers show it: a JPEG of at most ``MAX_SIDE`` pixels a side, without metadata.

    Raises:
        OSError: no picture, or one that is cut off or too large to be opened.
    """
    from PIL import Image

    try:
        with Image.open(path, formats=FORMATS) as picture:
            small = upright(picture)
    except (*SPOILED, Image.DecompressionBombError) as error:
        raise OSError(str(error)) from error
    small.thumbnail((MAX_SIDE, MAX_SIDE))
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=_QUALITY)
    return buffer.getvalue()


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
    picture = in_8_bits(picture)
    if not picture.has_transparency_data:
        return picture.convert("RGB")
    clear = picture.convert("RGBA")
    flat = Image.new("RGB", clear.size, "white")
    flat.paste(clear, mask=clear.getchannel("A"))
    return flat


def in_8_bits(picture: Image) -> Image:
    """Grey of 16 bits as browsers show it; Pillow's own conversions make all that is above 255 white."""
    if not picture.mode.startswith("I") or picture.getextrema()[1] <= 255:  # type: ignore[operator]  # one band
        return picture
    grey = picture.convert("I").point(lambda value: value / 256).convert("L")
    grey.info.pop("transparency", None)  # a grey of 16 bits
    return grey

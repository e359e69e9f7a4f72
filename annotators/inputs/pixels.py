"""Image files as the arrays that the papers' networks take, with Pillow and NumPy alone.

Each function follows the transform of one official evaluation, bit for bit: Pillow's own resampling, crop offsets
rounded half to even, numbers scaled and normalised in float32. As there, an orientation in the EXIF data is not
applied; grey of 16 bits, which turns white there, is read as 8. Arrays are (3, H, W) float32, channels red, green,
blue.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.Image import DecompressionBombError, DecompressionBombWarning, Resampling

from mitl.core.pictures import FORMATS, SPOILED, in_8_bits
from mitl.errors import AnnotatorError
from mitl.records import ImageItem, PartKind

VERSION = 1
"""Raised when the same file gives other numbers."""

IMAGENET_MEAN: Final = (0.485, 0.456, 0.406)
IMAGENET_STD: Final = (0.229, 0.224, 0.225)
CLIP_MEAN: Final = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD: Final = (0.26862954, 0.26130258, 0.27577711)
HALF: Final = (0.5, 0.5, 0.5)

LARGEST = 1 << 27
"""Pixels that an image may be resized to; only a strip thousands of times longer than wide has more."""

Source = ImageItem | Path | Image.Image
"""An item of a data set, an image file or an open image."""


def read_rgb(source: Source) -> Image.Image:
    """The decoded image in RGB, converted by Pillow's own rules.

    Raises:
        AnnotatorError: there is no file, it is not an image, it is cut off, or it is too large to be opened.
    """
    if isinstance(source, Image.Image) and source.mode == "RGB":
        return source
    with _decoding(source):
        return read_image(source).convert("RGB")


def read_image(source: Source) -> Image.Image:
    """The decoded image in its own mode; AnnotatorError as for ``read_rgb``."""
    if isinstance(source, Image.Image):
        return source
    path = _path(source)
    with _decoding(source), Image.open(path, formats=FORMATS) as image:
        image.load()
        return in_8_bits(image.copy())


def imagenet_pixels(source: Source, size: int = 224) -> NDArray[np.float32]:
    """(3, size, size): shorter side to 256 for 224 (bilinear), centre crop, ImageNet's mean and deviation.

    Source: the evaluation transforms of PVSE (Song and Soleymani, CVPR 2019) and PCME (Chun et al., CVPR 2021).
    """
    image = _shorter_side(read_rgb(source), round(256 / 224 * size), Resampling.BILINEAR, source)
    return _normalised(_centre(image, size), IMAGENET_MEAN, IMAGENET_STD)


def clip_pixels(source: Source, size: int = 224) -> NDArray[np.float32]:
    """(3, size, size): shorter side to ``size`` (bicubic), centre crop, then RGB, CLIP's mean and deviation.

    Resizing comes before the conversion, as in CLIP's own code: it matters for palettes and CMYK alone. The image
    processors of ``transformers`` round the crop's offset down and are one pixel off for every fourth length.
    Source: Radford et al., CLIP, ICML 2021.
    """
    with _decoding(source):
        image = _shorter_side(read_image(source), size, Resampling.BICUBIC, source)
        return _normalised(_centre(image, size).convert("RGB"), CLIP_MEAN, CLIP_STD)


def vilt_pixels(source: Source, shorter: int = 384, patch: int = 32) -> NDArray[np.float32]:
    """(3, H, W), both multiples of ``patch``: the whole image at ``vilt_size`` (bicubic), from -1 to 1.

    Source: Kim et al., ViLT, ICML 2021.
    """
    image = read_rgb(source)
    width, height = vilt_size(*image.size, shorter, patch)
    if not width or not height:
        raise AnnotatorError(
            f"{_name(source)} is {image.width} x {image.height} pixels, too long and narrow a strip for ViLT; "
            "crop the file, then run the command again"
        )
    return _normalised(image.resize((width, height), Resampling.BICUBIC), HALF, HALF)


def vilt_size(width: int, height: int, shorter: int = 384, patch: int = 32) -> tuple[int, int]:
    """ViLT's (width, height): shorter side to ``shorter`` unless the longer one then exceeds 1333/800 of it, both
    rounded and then cut to multiples of ``patch``."""
    longer = int(1333 / 800 * shorter)
    scale = shorter / min(width, height)
    wide, high = (scale * width, float(shorter)) if height < width else (float(shorter), scale * height)
    if max(wide, high) > longer:
        scale = longer / max(wide, high)
        wide, high = wide * scale, high * scale
    return int(wide + 0.5) // patch * patch, int(high + 0.5) // patch * patch


def _shorter_side(image: Image.Image, to: int, resample: Resampling, source: Source) -> Image.Image:
    width, height = image.size
    longer = int(to * max(width, height) / min(width, height))
    if longer * to > LARGEST:
        raise AnnotatorError(
            f"{_name(source)} is {width} x {height} pixels, too long and narrow a strip; "
            "crop the file, then run the command again"
        )
    return image.resize((to, longer) if width <= height else (longer, to), resample)


def _centre(image: Image.Image, size: int) -> Image.Image:
    # Python rounds half to even, as the official crop does.
    left, top = round((image.width - size) / 2), round((image.height - size) / 2)
    return image.crop((left, top, left + size, top + size))


def _normalised(
    image: Image.Image, mean: tuple[float, ...], deviation: tuple[float, ...]
) -> NDArray[np.float32]:
    numbers = np.ascontiguousarray(np.asarray(image, dtype=np.uint8).transpose(2, 0, 1)).astype(np.float32)
    numbers /= np.float32(255)
    numbers -= np.array(mean, dtype=np.float32)[:, None, None]
    numbers /= np.array(deviation, dtype=np.float32)[:, None, None]
    return numbers


def _path(source: ImageItem | Path) -> Path:
    if isinstance(source, Path):
        return source
    if source.kind is not PartKind.IMAGE:
        raise AnnotatorError(
            f"item {source.external_id!r} is of kind {source.kind.value!r}, and this annotator looks at pictures; "
            "`mitl annotators` says what the others read"
        )
    if source.path is None:
        raise AnnotatorError(f"image {source.external_id!r} has no file; this annotator looks at pixels")
    return source.path


def _name(source: Source) -> str:
    if isinstance(source, Image.Image):
        return "the image"
    return repr(str(_path(source)))


_lock = threading.Lock()
_decoders = 0
_filters = ExitStack()


@contextmanager
def _bombs_alone() -> Iterator[None]:
    """Pillow warns of odd metadata, which does not matter, and of bombs, which do and raise here.

    Filters are the process's: they are set for the first of several threads and come back with the last.
    """
    global _decoders
    with _lock:
        if _decoders == 0:
            _filters.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", DecompressionBombWarning)
        _decoders += 1
    try:
        yield
    finally:
        with _lock:
            _decoders -= 1
            if _decoders == 0:
                _filters.close()


@contextmanager
def _decoding(source: Source) -> Iterator[None]:
    """One line for all the ways in which an image file can be wrong."""
    try:
        with _bombs_alone():
            yield
    except FileNotFoundError as error:
        what = f"image {source.external_id!r}" if isinstance(source, ImageItem) else "an image"
        raise AnnotatorError(f"{what} should be in {_name(source)}, which is missing") from error
    except (DecompressionBombWarning, DecompressionBombError) as error:
        raise AnnotatorError(
            f"{_name(source)} is too large an image to be opened; make it smaller"
        ) from error
    except (OSError, *SPOILED) as error:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise AnnotatorError(
            f"{_name(source)} is not readable as an image: {line}; put a whole picture there "
            "(`mitl init --check-items` names all that are not)"
        ) from error

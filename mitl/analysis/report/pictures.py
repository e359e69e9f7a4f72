"""Pictures of files as small JPEG ``data:`` URIs that fit a budget together."""

from __future__ import annotations

import base64
import io
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

LADDER = ((240, 75), (200, 65), (160, 55), (120, 45))
"""(width in pixels, JPEG quality), tried in turn until all pictures fit."""


def data_uri(path: Path, *, width: int, quality: int) -> str | None:
    """The picture at most ``width`` pixels wide as a JPEG ``data:`` URI; None where it cannot be read.

    Metadata stays behind, transparency becomes white, a camera's turn is applied.
    """
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            # A picture that is too large to open safely is one that cannot be shown.
            warnings.simplefilter("error")
            with Image.open(path) as source:
                source.draft("RGB", (2 * width, 2 * width))
                upright = ImageOps.exif_transpose(source).convert("RGBA")
    except (OSError, ValueError, SyntaxError, Warning, Image.DecompressionBombError):
        return None
    picture = Image.new("RGB", upright.size, "white")
    picture.paste(upright, mask=upright.getchannel("A"))
    if picture.width > width:
        height = max(1, round(picture.height * width / picture.width))
        picture = picture.resize((width, height), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    picture.save(buffer, format="JPEG", quality=quality, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def picture_uris(uses: Sequence[Path], *, budget_bytes: int) -> dict[Path, str]:
    """A ``data:`` URI for each file that can be read, all uses together within the budget.

    All pictures get smaller before any is left out; then those come first that are used first.

    Args:
        uses: the files in the order of the page, one entry for each time that a file is shown.
    """
    times = Counter(uses)
    files = list(times)
    uris: dict[Path, str] = {}
    for width, quality in LADDER:
        uris = {}
        for file in files:
            uri = data_uri(file, width=width, quality=quality)
            if uri is not None:
                uris[file] = uri
        files = list(uris)
        if sum(len(uri) * times[file] for file, uri in uris.items()) <= budget_bytes:
            return uris
    kept: dict[Path, str] = {}
    left = budget_bytes
    for file, uri in uris.items():
        cost = len(uri) * times[file]
        if cost <= left:
            kept[file] = uri
            left -= cost
    return kept

"""The pictures that HIT pages show, under names that tell nothing."""

from __future__ import annotations

import hashlib
import hmac
import io
import os
from collections.abc import Sequence
from pathlib import Path

from mitl.addresses import is_loopback
from mitl.errors import DatasetError, SettingsError
from mitl.progress import Progress
from mitl.records import ImageItem
from mitl.settings import Settings

MAX_SIDE = 640
"""Pixels; what a worker needs to see, and no more to load on a phone."""
_QUALITY = 88
NAMED = 5
"""Images named one by one where many cannot be shown."""


def picture_sources(
    settings: Settings, images: Sequence[ImageItem], progress: Progress, *, write: bool = True
) -> dict[int, str]:
    """Image id → the address that pages use.

    Pictures at hand are written once to ``public/i/`` as JPEG and addressed root-relative, as a crowd server serves
    them: mitl's own, and any on this machine, whatever its port. On another endpoint they need ``image_base_url``.
    Without a picture, the image's own https address is used.

    Raises:
        DatasetError: images have neither a picture nor an https address, or files are no pictures; the first are named.
        SettingsError: another endpoint is used and nothing says where the pictures can be fetched.
    """
    secret = settings.secret()
    base = _base(settings, images)
    sources = {image.id: _source(settings, image, secret, base) for image in images}
    _refuse(
        [_missing(image) for image in images if sources[image.id] is None],
        len(images),
        "give `mitl init` an image folder or an https URL template",
    )
    unreadable = []
    with progress("pictures", len(images)) as advance:
        for image in images:
            source = sources[image.id] or ""
            target = settings.public / "i" / source.rpartition("/")[2]
            if (
                write
                and image.path is not None
                and source == f"{base}/i/{target.name}"
                and not target.exists()
            ):
                try:
                    _write_jpeg(image.path, target)
                except DatasetError as error:
                    unreadable.append(f"image {image.external_id!r}: {error}")
            advance(1)
    _refuse(unreadable, len(images), "mend these files")
    return {id_: source for id_, source in sources.items() if source is not None}


def _refuse(faults: Sequence[str], n_images: int, remedy: str) -> None:
    """DatasetError that counts the images that cannot be shown and names the first of them."""
    if faults:
        more = f"; and {len(faults) - NAMED:,} more" if len(faults) > NAMED else ""
        raise DatasetError(
            f"{len(faults):,} of {n_images:,} images cannot be shown: {'; '.join(faults[:NAMED])}{more}; {remedy}"
        )


def _base(settings: Settings, images: Sequence[ImageItem]) -> str | None:
    """Where ``public/`` is served: "" for the root of the page's own server; None where nothing says."""
    if settings.endpoint is None or (is_loopback(settings.endpoint) and settings.image_base_url is None):
        return ""
    if settings.image_base_url is None and any(image.url is None for image in images):
        raise SettingsError(
            "another endpoint cannot fetch pictures from here; set image_base_url in [crowd] of mitl.toml to the "
            "https address where the folder public/ is served"
        )
    if settings.image_base_url is None:
        return None
    base = settings.image_base_url.rstrip("/")
    if not base.startswith("https://"):
        raise SettingsError(f"image_base_url is {base!r}, but pages need https; give an https address")
    return base


def _source(settings: Settings, image: ImageItem, secret: bytes, base: str | None) -> str | None:
    """The image's address on pages; None where it has neither a file nor an https address."""
    has_file = image.path is not None and image.path.is_file()
    if has_file and image.path is not None and base is not None:
        digest = hmac.new(secret, image.external_id.encode(), hashlib.sha256).hexdigest()[:32]
        return f"{base}/i/{digest}.jpg"
    return image.url if image.url is not None and image.url.startswith("https://") else None


def _missing(image: ImageItem) -> str:
    where = f"file {image.path} is missing" if image.path is not None else "no file is known"
    return f"image {image.external_id!r}: {where} and it has no https address"


def _write_jpeg(source: Path, target: Path) -> None:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(source) as picture:
            small = picture.convert("RGB")
    except (UnidentifiedImageError, OSError, Image.DecompressionBombError) as error:
        raise DatasetError(f"{source} cannot be read as a picture: {error}") from error
    small.thumbnail((MAX_SIDE, MAX_SIDE))
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=_QUALITY)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(f".{os.getpid()}.part")
    part.write_bytes(buffer.getvalue())
    part.replace(target)

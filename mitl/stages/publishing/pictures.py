"""The pictures that HIT pages show, under names that tell nothing."""

from __future__ import annotations

import hashlib
import hmac
import io
import os
from collections.abc import Sequence
from pathlib import Path

from mitl.crowd.transport import is_loopback
from mitl.errors import DatasetError, SettingsError
from mitl.progress import Progress
from mitl.records import ImageItem
from mitl.settings import Settings

MAX_SIDE = 640
"""Pixels; what a worker needs to see, and no more to load on a phone."""
_QUALITY = 88


def picture_sources(
    settings: Settings, images: Sequence[ImageItem], progress: Progress, *, write: bool = True
) -> dict[int, str]:
    """Image id → the address that pages use.

    Pictures at hand are written once to ``public/i/`` as JPEG and addressed root-relative, as a crowd server serves
    them: mitl's own, and any on this machine, whatever its port. On another endpoint they need ``image_base_url``.
    Without a picture, the image's own https address is used.

    Raises:
        DatasetError: an image has neither a picture nor an https address.
        SettingsError: another endpoint is used and nothing says where the pictures can be fetched.
    """
    secret = settings.secret()
    base = _base(settings, images)
    sources: dict[int, str] = {}
    with progress("pictures", len(images)) as advance:
        for image in images:
            sources[image.id] = _source(settings, image, secret, base, write=write)
            advance(1)
    return sources


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


def _source(settings: Settings, image: ImageItem, secret: bytes, base: str | None, *, write: bool) -> str:
    has_file = image.path is not None and image.path.is_file()
    if has_file and image.path is not None and base is not None:
        digest = hmac.new(secret, image.external_id.encode(), hashlib.sha256).hexdigest()[:32]
        target = settings.public / "i" / f"{digest}.jpg"
        if write and not target.exists():
            _write_jpeg(image.path, target)
        return f"{base}/i/{target.name}"
    if image.url is not None and image.url.startswith("https://"):
        return image.url
    where = f"file {image.path} is missing" if image.path is not None else "no file is known"
    raise DatasetError(
        f"image {image.external_id!r} cannot be shown: {where} and it has no https address; "
        "give `mitl init` an image folder or an https URL template"
    )


def _write_jpeg(source: Path, target: Path) -> None:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(source) as picture:
            small = picture.convert("RGB")
    except (UnidentifiedImageError, OSError) as error:
        raise DatasetError(f"{source} cannot be read as a picture: {error}") from error
    small.thumbnail((MAX_SIDE, MAX_SIDE))
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=_QUALITY)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(f".{os.getpid()}.part")
    part.write_bytes(buffer.getvalue())
    part.replace(target)

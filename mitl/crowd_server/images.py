"""``/i/<name>``: images from the folders that the operator made public, and nothing else from them."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

MAX_BYTES = 32 * 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}\.(jpg|jpeg|png|webp|gif)", re.ASCII)
_BEGINNINGS = (
    ("image/jpeg", re.compile(rb"\xff\xd8")),
    ("image/png", re.compile(rb"\x89PNG")),
    ("image/webp", re.compile(rb"RIFF.{4}WEBP", re.DOTALL)),
    ("image/gif", re.compile(rb"GIF8[79]a")),
)


def image(public: Sequence[Path], request: Request) -> Response:
    """An image by its bare name, from the first folder that has it (or has it in its ``i`` folder)."""
    for path in _places(public, request.path_params["name"]):
        found = _read(path)
        if found is None:
            continue
        content, modified_ns = found
        headers = {
            "Cache-Control": "public, max-age=604800",
            "X-Content-Type-Options": "nosniff",
            "ETag": f'"{modified_ns:x}-{len(content):x}"',
        }
        if headers["ETag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=_kind(content))
    return Response("no such image", 404, media_type="text/plain")


def _places(public: Sequence[Path], name: str) -> Iterator[Path]:
    if _NAME.fullmatch(name):
        for folder in public:
            yield folder / name
            yield folder / "i" / name


def _read(path: Path) -> tuple[bytes, int] | None:
    """An image's bytes and time; None for anything but a plain file (a link leads anywhere) that is an image."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
            return None
        content = os.read(file, status.st_size)
    finally:
        os.close(file)
    return None if _kind(content) is None else (content, status.st_mtime_ns)


def _kind(content: bytes) -> str | None:
    """The media type by the first bytes: a name says nothing about what a file holds."""
    return next((kind for kind, beginning in _BEGINNINGS if beginning.match(content)), None)

"""Pictures, sounds and videos under ``/i/``: plain files of the public folders, known by their first bytes.

A small picture is read whole; a large one, a sound or a video is streamed, whole or the range that a player asks for.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response

from mitl.protocol.media import FORMATS, HEAD, MAX_MEDIA_BYTES, MediaFormat, format_of
from mitl.records.enums import PartKind

MAX_BYTES = 32 * 1024 * 1024
"""Of a picture."""
WHOLE = 512 * 1024
"""Bytes of a picture that is held in memory until who asked has taken it."""
_SUFFIXES = "|".join(["jpeg", *(known.suffix for known in FORMATS)])
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,127}}\.({_SUFFIXES})", re.ASCII)


def serve(public: Sequence[Path], request: Request) -> Response:
    """A file by its bare name, from the first folder that has it (or has it in its ``i`` folder)."""
    for path in _places(public, request.path_params["name"]):
        answer = _answer(path)
        if answer is not None:
            return unless_kept(request, answer)
    return Response("no such file", 404, media_type="text/plain")


def unless_kept(request: Request, answer: Response) -> Response:
    """The answer, which has an ETag; without its bytes (304) where the browser says that it has just these."""
    if answer.headers["etag"] not in request.headers.get("if-none-match", ""):
        return answer
    about = {"content-length", "content-type"}  # of bytes that are not sent
    return Response(
        status_code=304, headers={name: text for name, text in answer.headers.items() if name not in about}
    )


def _places(public: Sequence[Path], name: str) -> Iterator[Path]:
    if _NAME.fullmatch(name):
        for folder in public:
            yield folder / name
            yield folder / "i" / name


def _answer(path: Path) -> Response | None:
    """None for anything but a plain file (a link leads anywhere) of a format that is served."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            return None
        head = os.read(file, HEAD)
        media_format = format_of(head)
        if media_format is None or status.st_size > _most(media_format):
            return None
        headers = {
            "Cache-Control": "public, max-age=604800",
            "X-Content-Type-Options": "nosniff",
            "ETag": f'"{status.st_mtime_ns:x}-{status.st_size:x}"',
        }
        if media_format.kind is PartKind.IMAGE and status.st_size <= WHOLE:
            content = head + os.read(file, status.st_size - len(head))
            return Response(content, headers=headers, media_type=media_format.media_type)
    finally:
        os.close(file)
    return FileResponse(path, headers=headers, media_type=media_format.media_type, stat_result=status)


def _most(found: MediaFormat) -> int:
    return MAX_BYTES if found.kind is PartKind.IMAGE else MAX_MEDIA_BYTES

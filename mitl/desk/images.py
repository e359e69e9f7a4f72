"""The project's pictures, asked for by the number of their row, so that no address names a file."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response

from mitl.db.base import MOST_ROW
from mitl.db.store import desk as desk_store
from mitl.desk.desk import Desk

_KINDS = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF8", "image/gif"),
)
"""How pictures begin that a browser shows and that hold no script."""


def image(desk: Desk, request: Request) -> Response:
    """``/image/{id}``: the picture of this row; nothing where the file is missing or is no picture."""
    image_id = request.path_params["image_id"]
    if image_id > MOST_ROW:
        return _none()  # which no database would even compare
    with desk.reading() as session:
        place = desk_store.image_place(session, image_id)
    if place is None or place[0] is None:
        return _none()
    path = desk.settings.project / place[0]
    kind = _kind(path)
    if kind is None:
        return _none()
    headers = {"Cache-Control": "private, max-age=3600"}
    return FileResponse(path, media_type=kind, headers=headers)


def _kind(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            start = file.read(12)
    except OSError:
        return None
    if start[:4] == b"RIFF" and start[8:] == b"WEBP":
        return "image/webp"
    return next((kind for mark, kind in _KINDS if start.startswith(mark)), None)


def _none() -> Response:
    return Response("no such picture", 404, media_type="text/plain")


ROUTES = (("/image/{image_id:int}", image),)
FORMS = ()

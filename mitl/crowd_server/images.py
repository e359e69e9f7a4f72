"""``/i/<name>``: images from the folders that the operator made public."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}\.(jpg|jpeg|png|webp|gif)")
_TYPES = {
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "png": "image/png",
    "webp": "image/webp",
    "gif": "image/gif",
}


def image(public: Sequence[Path], request: Request) -> Response:
    """An image by its bare name, from the first folder that has it (or has it in its ``i`` folder)."""
    name = request.path_params["name"]
    match = _NAME.fullmatch(name)
    if match is not None:
        for folder in public:
            for path in (folder / name, folder / "i" / name):
                if path.is_file():
                    return FileResponse(
                        path,
                        headers={
                            "Cache-Control": "public, max-age=604800",
                            "X-Content-Type-Options": "nosniff",
                        },
                        media_type=_TYPES[match[1]],
                    )
    return Response("no such image", 404, media_type="text/plain")

"""The review desk as a Starlette application."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from mitl.desk import guard, images, overview_page, queue_pages, worker_pages
from mitl.desk.desk import PAGES, Desk
from mitl.desk.guard import Guard

STATIC = ("desk.css", "desk.js")
MODULES: tuple[Any, ...] = (overview_page, worker_pages, queue_pages, images)
"""Each names its pages in ``ROUTES`` (path, handler(desk, request)) and the forms that it takes in ``FORMS``
(path, handler(desk, request, fields))."""


def create_app(desk: Desk) -> Starlette:
    """The desk's pages behind its guard."""
    routes = [Route("/static/{name}", _static)]
    for module in MODULES:
        routes += [Route(path, partial(guard.page, desk, handler)) for path, handler in module.ROUTES]
        routes += [
            Route(path, partial(guard.form, desk, handler), methods=["POST"])
            for path, handler in module.FORMS
        ]

    def unknown(request: Request, error: Exception) -> Response:
        return desk.notice(404, "No such page", "The desk has no page of this address.")

    def wrong_method(request: Request, error: Exception) -> Response:
        return desk.notice(405, "Not here", "This address takes no such request.")

    app = Starlette(routes=routes, exception_handlers={404: unknown, 405: wrong_method})
    app.add_middleware(Guard, desk=desk)
    return app


def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        return Response("no such file", 404, media_type="text/plain")
    return FileResponse(PAGES / name, headers={"Cache-Control": "no-cache"})

"""A bare server on the same framework: what the load costs when no question is asked of a database.

python benchmarks/crowd_bare.py PORT PAGE    (PAGE: a file with the page of a HIT)
"""

from __future__ import annotations

import sys
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from mitl.crowd_server.serving import serve

LISTING = '<form method="post" action="/w/accept"><input name="hit_type_id" value="T"></form>' + "." * 2000
AROUND = '<iframe src="/w/a/t/frame"></iframe>' + "." * 2000
PICTURE = b"\x89PNG" + bytes(9000)


def main() -> None:
    """Serve until killed."""
    port, page = int(sys.argv[1]), Path(sys.argv[2]).read_text()

    async def take(request: Request) -> Response:
        await request.body()
        return HTMLResponse("mitl-submitted")

    async def accept(request: Request) -> Response:
        await request.body()
        return RedirectResponse("/w/a/t", 303)

    async def create(request: Request) -> Response:
        await request.body()
        return JSONResponse({"HIT": {"HITId": "H"}}, media_type="application/x-amz-json-1.1")

    def constant(text: str) -> object:
        async def answer(request: Request) -> Response:
            return HTMLResponse(text)

        return answer

    async def picture(request: Request) -> Response:
        return Response(PICTURE, media_type="image/png")

    routes = [
        Route("/", create, methods=["POST"]),
        Route("/w/join/{token}", constant(LISTING)),
        Route("/w", constant(LISTING)),
        Route("/w/accept", accept, methods=["POST"]),
        Route("/w/a/t", constant(AROUND)),
        Route("/w/a/t/frame", constant(page)),
        Route("/s/t/mturk/externalSubmit", take, methods=["POST"]),
        Route("/i/{name}", picture),
    ]
    serve(Starlette(routes=routes), port=port, ready=lambda url: print("ready", flush=True))


if __name__ == "__main__":
    main()

"""The submission that a HIT's frame posts: its fields are kept, and a note in the frame says what became of them."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import Response

from mitl.crowd_server.pages import questions
from mitl.crowd_server.pages.site import Site, parse_form
from mitl.crowd_server.store import hits, leases, panels, work_history
from mitl.crowd_server.store.leases import LeaseRow
from mitl.crowd_server.work.hit_frame import frame_address, note_page
from mitl.crowd_server.work.visitor import lease_behind, token_of
from mitl.protocol.answer_xml import answers_xml

MAX_SUBMISSION = 500_000
MAX_FIELDS = 2000
_ASSIGNMENT = re.compile(r"[A-Z0-9]{20,64}")
_NOT_TAKEN = {"large": 413, "empty": 422, "no-form": 415, "files": 415}
"""Notes after which the worker still has the HIT, with their status."""


async def submit(site: Site, request: Request) -> Response:
    """``POST /s/<token>/mturk/externalSubmit``: keep the fields of a form; the token alone says whose."""
    fields = await _fields(request)
    return await run_in_threadpool(_submit, site, request, fields)


def _submit(site: Site, request: Request, fields: list[tuple[str, str]] | str) -> Response:
    token = request.path_params["token"]
    with site.database.read() as connection:
        sealed = lease_behind(site, connection, token)
    if sealed is None:
        return note_page("not-found", 404)
    if isinstance(fields, str):
        return _not_taken(site, request, sealed, fields)
    answers = [(name, value) for name, value in fields if name != "assignmentId"]
    if not any(name for name, _ in answers):
        return _not_taken(site, request, sealed, "empty")
    answer = answers_xml(answers)
    with site.database.write(sealed.environment) as connection:
        now = site.clock()
        lease = leases.find(connection, sealed.id)
        assert lease is not None
        if lease.submitted_at is not None:
            return note_page("again", 200)
        # Under an old token the same worker took the HIT anew; what they entered before is kept all the same.
        if token_of(site, lease) != token or not lease.is_live(now):
            work_history.keep_late(connection, lease.id, answer, now)
            return note_page("late", 410)
        if _is_of_another(lease, fields):
            return note_page("other", 409)
        leases.submit(connection, lease, answer, now)
        panels.count_hit(connection, lease.id, now)
    return note_page("thanks", 200)


def _not_taken(site: Site, request: Request, lease: LeaseRow, note: str) -> Response:
    """Say why what was sent is no answer; whoever holds the HIT keeps it and has a way back to its page."""
    token = request.path_params["token"]
    if lease.submitted_at is not None:
        return note_page("again", 200)
    if token_of(site, lease) != token or not lease.is_live(site.clock()):
        return note_page("over", 410)
    with site.database.read() as connection:
        question = questions.read(hits.question(connection, lease.hit_id))
    return note_page(note, _NOT_TAKEN[note], frame_address(request, question, lease, token))


def _is_of_another(lease: LeaseRow, fields: list[tuple[str, str]]) -> bool:
    """Whether the form names another assignment than the one whose address it was sent to."""
    named = {value for name, value in fields if name == "assignmentId" and _ASSIGNMENT.fullmatch(value)}
    return bool(named - {lease.mturk_id})


async def _fields(request: Request) -> list[tuple[str, str]] | str:
    """The form's fields in their order, repeated names included; or the note that says why there are none."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_SUBMISSION:
            return "large"
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return await _parts(request, bytes(body))
    if kind not in ("", "application/x-www-form-urlencoded") or not _is_form(bytes(body)):
        return "no-form"
    fields = parse_form(bytes(body), MAX_FIELDS)
    return "large" if fields is None else fields


def _is_form(body: bytes) -> bool:
    """Whether this could be a form's fields: clients that send JSON often name its type as a form's."""
    if any(b"=" not in field for field in body.split(b"&") if field):
        return False
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return True
    return False


async def _parts(request: Request, body: bytes) -> list[tuple[str, str]] | str:
    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    parser = MultiPartParser(request.headers, stream(), max_files=MAX_FIELDS, max_fields=MAX_FIELDS)
    try:
        form = await parser.parse()
    except MultiPartException as error:
        return "large" if "Too many" in error.message else "no-form"
    except KeyError:
        return "no-form"  # a Content-Type without its boundary
    fields = form.multi_items()
    has_files = any(isinstance(value, UploadFile) and (value.filename or value.size) for _, value in fields)
    texts = [(name, "" if isinstance(value, UploadFile) else value) for name, value in fields]
    await form.close()
    return "files" if has_files else texts


ROUTES = (("/s/{token}/mturk/externalSubmit", submit, "POST"),)

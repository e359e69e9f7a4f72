"""POST / of the requester API: authenticate, settle what is due, run one operation in one transaction."""

from __future__ import annotations

import json
import logging
import uuid
from typing import Any

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from mitl.core.clock import Clock
from mitl.crowd_server.api import assignments, hits, qualification_types, workers
from mitl.crowd_server.api.registry import OPERATIONS, ApiCall, Params, Reply
from mitl.crowd_server.pages.site import Site
from mitl.crowd_server.protocol.errors import TurkError, aws
from mitl.crowd_server.protocol.sigv4 import SignedRequest, verify
from mitl.crowd_server.store import accounts
from mitl.crowd_server.store.database import in_thread
from mitl.db.explain import is_outage, reason
from mitl.records import Environment

TARGET_PREFIX = "MTurkRequesterServiceV20170117."
MAX_BODY = 1_048_576
MAX_NESTING = 32
"""Levels of lists and structures in a request; the model needs six."""
MAX_DRAINED = 16 * MAX_BODY
GROUPS = (assignments, hits, qualification_types, workers)
"""Importing these files enters their operations in the table."""

log = logging.getLogger(__name__)


class RequesterApi:
    """The requester API of one server."""

    def __init__(self, site: Site, signing_clock: Clock) -> None:
        """The API; ``signing_clock`` judges the age of signatures: clients sign with the machine's time."""
        self._site = site
        self._signing_clock = signing_clock
        self._keys: dict[str, tuple[Environment, str]] = {}

    async def answer(self, request: Request) -> Response:
        """Answer one request of any operation."""
        body = await _read(request)
        return await in_thread(self._answer, request, body)

    def _answer(self, request: Request, body: bytes | None) -> Response:
        request_id = str(uuid.uuid4())
        status = 200
        try:
            if body is None:
                raise aws("RequestEntityTooLargeException", f"The body is over {MAX_BODY} bytes.")
            content = json.dumps(self._perform(request, body, request_id)).encode()
        except TurkError as error:
            status, content = error.status, error.body(self._site.clock())
        except Exception as error:
            if is_outage(error):
                said = reason(error, self._site.database.engine.url)
                log.error("request %s failed: the database does not answer: %s", request_id, said)
            else:
                log.exception("request %s failed", request_id)
            message = "The server failed; its log says why."
            fault = TurkError("AWS.ServiceUnavailable", message, type="ServiceFault", status=500)
            status, content = fault.status, fault.body(self._site.clock())
        return Response(
            content, status, {"x-amzn-RequestId": request_id}, media_type="application/x-amz-json-1.1"
        )

    def _perform(self, request: Request, body: bytes, request_id: str) -> Reply:
        signed = SignedRequest(
            request.method,
            request.scope["raw_path"].decode("latin-1"),
            request.url.query,
            request.headers,
            body,
        )
        access_key = verify(signed, self._secret_key, self._signing_clock())
        environment = self._keys[access_key][0]
        name = _operation(request.headers.get("x-amz-target", ""))
        operation = OPERATIONS[name]
        params = _params(body)
        now = self._site.clock()

        def run(connection: Connection, *, may_settle: bool) -> Reply | None:
            """The answer; None if something has to be settled first: more than one transaction may do."""
            sealing, sources = self._site.secret, self._site.sources
            call = ApiCall(connection, environment, now, params, request_id, name, sealing, sources)
            if accounts.is_due(call) and (not may_settle or accounts.settle(call)):
                return None
            return operation.handler(call) or {}

        reply = None
        if not operation.writes:
            with self._site.database.read() as connection:
                reply = run(connection, may_settle=False)
        while reply is None:
            with self._site.database.write(environment) as connection:
                reply = run(connection, may_settle=True)
        return reply

    def _secret_key(self, access_key: str) -> str | None:
        if access_key not in self._keys:
            with self._site.database.read() as connection:
                pairs = accounts.key_pairs(connection)
            self._keys = {access: (environment, secret) for environment, (access, secret) in pairs.items()}
        account = self._keys.get(access_key)
        return None if account is None else account[1]


async def _read(request: Request) -> bytes | None:
    """The body; None where it is larger than any request can be.

    Most of what is too large is read all the same: a client that is cut off while it sends never sees the answer.
    """
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= MAX_BODY:
            chunks.append(chunk)
        elif size > MAX_DRAINED:
            break
    return b"".join(chunks) if size <= MAX_BODY else None


def _operation(target: str) -> str:
    name = target.removeprefix(TARGET_PREFIX)
    if name == target or name not in OPERATIONS:
        raise aws("UnknownOperationException", "The X-Amz-Target names no operation of MTurk.")
    return name


def _params(body: bytes) -> Params:
    try:
        values = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise aws("SerializationException", "The body is not JSON.") from error
    if not isinstance(values, dict):
        raise aws("SerializationException", "The body is not a JSON object.")
    level: list[Any] = [values]
    for _ in range(MAX_NESTING):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
    if level:  # the reader of JSON goes deeper than its writer, which NextTokens need
        raise aws("SerializationException", f"The body nests more than {MAX_NESTING} levels deep.")
    return Params(values)

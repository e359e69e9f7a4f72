"""POST / of the requester API: authenticate, settle what is due, run one operation in one transaction."""

from __future__ import annotations

import json
import logging
import uuid
from typing import Any

from sqlalchemy import Connection
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from mitl.crowd_server.api import assignments, hits, qualification_types, qualifications, unsupported, workers
from mitl.crowd_server.api.params import Params
from mitl.crowd_server.api.registry import OPERATIONS, Call
from mitl.crowd_server.protocol.errors import TurkError
from mitl.crowd_server.protocol.html_page import Sources
from mitl.crowd_server.protocol.sigv4 import SignedRequest, verify
from mitl.crowd_server.store import accounts, settling
from mitl.crowd_server.store.database import Clock, Database
from mitl.records import Environment

TARGET_PREFIX = "MTurkRequesterServiceV20170117."
MAX_BODY = 1_048_576
MAX_NESTING = 32
"""Levels of lists and structures in a request; the model needs six."""
MAX_DRAINED = 16 * MAX_BODY
GROUPS = (assignments, hits, qualification_types, qualifications, unsupported, workers)
"""Importing these files enters their operations in the table."""

log = logging.getLogger(__name__)


class RequesterApi:
    """The requester API over one database."""

    def __init__(
        self, database: Database, clock: Clock, signing_clock: Clock, secret: str, sources: Sources
    ) -> None:
        """The API.

        Args:
            signing_clock: judges the age of signatures: clients sign with the machine's time.
            secret: the server's own, which seals NextTokens.
            sources: where scripts and styles of pages may come from.
        """
        self._database = database
        self._clock = clock
        self._signing_clock = signing_clock
        self._secret = secret
        self._sources = sources
        self._keys: dict[str, tuple[Environment, str]] = {}

    async def answer(self, request: Request) -> Response:
        """Answer one request of any operation."""
        body = await _read(request)
        return await run_in_threadpool(self._answer, request, body)

    def _answer(self, request: Request, body: bytes | None) -> Response:
        request_id = str(uuid.uuid4())
        status = 200
        try:
            if body is None:
                raise TurkError(
                    None, f"The body is over {MAX_BODY} bytes.", type="RequestEntityTooLargeException"
                )
            content = json.dumps(self._perform(request, body, request_id)).encode()
        except TurkError as error:
            status, content = error.status, error.body(self._clock())
        except Exception:
            log.exception("request %s failed", request_id)
            fault = TurkError(
                "AWS.ServiceUnavailable",
                "The server failed; its log says why.",
                type="ServiceFault",
                status=500,
            )
            status, content = fault.status, fault.body(self._clock())
        return Response(
            content, status, {"x-amzn-RequestId": request_id}, media_type="application/x-amz-json-1.1"
        )

    def _perform(self, request: Request, body: bytes, request_id: str) -> dict[str, Any]:
        environment = self._authenticate(request, body)
        name = _operation(request.headers.get("x-amz-target", ""))
        operation = OPERATIONS[name]
        params = _params(body)
        now = self._clock()

        def run(connection: Connection) -> dict[str, Any]:
            return operation.handler(
                Call(connection, environment, now, params, request_id, name, self._secret, self._sources)
            )

        if operation.writes:
            with self._database.write(environment) as connection:
                if settling.is_due(connection, environment, now):
                    settling.settle(connection, environment, now)
                return run(connection)
        with self._database.read() as connection:
            if not settling.is_due(connection, environment, now):
                return run(connection)
        with self._database.write(environment) as connection:
            settling.settle(connection, environment, now)
            return run(connection)

    def _authenticate(self, request: Request, body: bytes) -> Environment:
        signed = SignedRequest(
            request.method,
            request.scope["raw_path"].decode("latin-1"),
            request.url.query,
            request.headers,
            body,
        )
        access_key = verify(signed, self._secret_key, self._signing_clock())
        return self._keys[access_key][0]

    def _secret_key(self, access_key: str) -> str | None:
        if access_key not in self._keys:
            with self._database.read() as connection:
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
        raise TurkError(
            None, "The X-Amz-Target names no operation of MTurk.", type="UnknownOperationException"
        )
    return name


def _params(body: bytes) -> Params:
    try:
        values = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise TurkError(None, "The body is no JSON.", type="SerializationException") from error
    if not isinstance(values, dict):
        raise TurkError(None, "The body is no JSON object.", type="SerializationException")
    level: list[Any] = [values]
    for _ in range(MAX_NESTING):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
    if level:  # the reader of JSON goes deeper than its writer, which NextTokens need
        raise TurkError(
            None, f"The body nests more than {MAX_NESTING} levels deep.", type="SerializationException"
        )
    return Params(values)

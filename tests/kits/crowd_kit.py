"""A crowd server for one test, with boto3 clients, workers' browsers and a clock that can be moved."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from html import unescape
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.model import Shape
from sqlalchemy import Engine

from mitl.core.clock import utc_now
from mitl.crowd_server import admin
from mitl.crowd_server.api.registry import OPERATIONS, ApiCall, Params
from mitl.crowd_server.app import create_app
from mitl.crowd_server.protocol.html_page import AllowedSources
from mitl.crowd_server.serving import RunningServer
from mitl.crowd_server.store.database import Database
from mitl.crowd_server.work.visitor import COOKIE
from mitl.db.engine import make_engine
from mitl.records import Environment

HTML = """<!doctype html><html><body><form id="mturk_form" data-mitl-submit method="post" action="about:blank">
<input type="hidden" data-mitl-assignment name="assignmentId" value="">
<label>yes <input type="radio" name="p01_label" value="yes"></label>
<input type="text" name="p01_text" value=""><button>Send</button></form></body></html>"""

TYPE = {
    "Title": "Does the caption fit?",
    "Description": "Look at a picture and a caption.",
    "Keywords": "image, caption",
    "Reward": "1.00",
    "AssignmentDurationInSeconds": 3600,
    "AutoApprovalDelayInSeconds": 7 * 86400,
}


class ManualClock:
    """A clock that stands still until it is told to advance."""

    def __init__(self, start: dt.datetime | None = None) -> None:
        self._now = start or utc_now()

    def __call__(self) -> dt.datetime:
        """The time it stands at."""
        return self._now

    def advance(self, **delta: float) -> None:
        """Move forward by ``timedelta(**delta)``."""
        self._now += dt.timedelta(**delta)


def question(html: str = HTML) -> str:
    """HTMLQuestion XML around a page."""
    space = "http://mechanicalturk.amazonaws.com/AWSMechanicalTurkDataSchemas/2011-11-11/HTMLQuestion.xsd"
    return (
        f'<HTMLQuestion xmlns="{space}"><HTMLContent><![CDATA[{html}]]></HTMLContent>'
        "<FrameHeight>0</FrameHeight></HTMLQuestion>"
    )


HIT = {"LifetimeInSeconds": 7 * 86400, "Question": question(), "RequesterAnnotation": "mitl1:p:b:1:1"}


def conforms(value: Any, shape: Shape, where: str = "reply") -> None:
    """Fail where a JSON value is not what botocore's service model says of this shape."""
    kind = shape.type_name
    if kind == "structure":
        assert isinstance(value, dict), f"{where} is not a structure"
        unknown = set(value) - set(shape.members)
        assert not unknown, f"{where} has members that the model does not know: {unknown}"
        for name, member in value.items():
            conforms(member, shape.members[name], f"{where}.{name}")
    elif kind == "list":
        assert isinstance(value, list), f"{where} is not a list"
        for member in value:
            conforms(member, shape.member, f"{where}[]")
    elif kind == "string":
        assert isinstance(value, str), f"{where} is not a string"
        assert not shape.enum or value in shape.enum, f"{where} is {value!r}"
        pattern = shape.metadata.get("pattern")
        assert pattern is None or re.search(pattern, value), f"{where} is {value!r}, not {pattern}"
        assert len(value) <= shape.metadata.get("max", len(value)), f"{where} is too long"
    elif kind in ("integer", "long"):
        assert type(value) is int, f"{where} is not an integer"
    elif kind == "boolean":
        assert type(value) is bool, f"{where} is not a boolean"
    elif kind == "timestamp":
        assert type(value) in (int, float), f"{where} is no time"
    else:
        raise AssertionError(f"{where} has the unforeseen type {kind}")


def _check_reply(http_response: Any, model: Any, **rest: Any) -> None:
    if http_response.status_code == 200 and model.output_shape is not None:
        conforms(json.loads(http_response.content), model.output_shape, model.name)


@dataclass
class Worker:
    """A worker's browser without scripts."""

    server: Crowd
    browser: httpx.Client

    def get(self, path: str) -> httpx.Response:
        """Open a page."""
        return self.browser.get(self.server.url + path)

    def post(self, path: str, fields: dict[str, str] | None = None, **headers: str) -> httpx.Response:
        """Send a form from a page of the server's own."""
        headers = {"Origin": self.server.url} | headers
        return self.browser.post(self.server.url + path, data=fields or {}, headers=headers)

    def accept(self, hit_type: str) -> Task | None:
        """Accept a HIT; None where the server led back to the list."""
        reply = self.post("/w/accept", {"hit_type_id": hit_type})
        assert reply.status_code == 200, reply.text
        return self.task(reply)

    def task(self, reply: httpx.Response) -> Task | None:
        """The HIT that a page shows."""
        found = re.search(r'src="([^"]*/w/a/([^/"]+)/frame[^"]*)"', reply.text)
        if found is None:
            return None
        url = httpx.URL(unescape(found[1]))
        return Task(self.server, found[2], str(url), dict(url.params))

    def do(self, hit_type: str, **fields: str) -> Task:
        """Accept and submit one HIT."""
        task = self.accept(hit_type)
        assert task is not None, "no HIT was left"
        reply = task.submit(**(fields or {"p01_label": "yes"}))
        assert reply.status_code == 200, reply.text
        return task

    @property
    def id(self) -> str:
        """The worker's id, from their session."""
        found = re.match(r"A[A-Z0-9]{13}(?=\.)", self.browser.cookies[COOKIE])
        assert found is not None
        return found[0]


@dataclass
class Task:
    """An accepted HIT."""

    server: Crowd
    token: str
    frame: str
    query: dict[str, str]

    def page(self) -> httpx.Response:
        """The HIT's own page, asked for without a cookie."""
        return self.server.stranger.get(self.server.url + self.frame)

    def submit(self, **fields: str) -> httpx.Response:
        """Send the form, as from a frame of opaque origin: without a cookie."""
        return self.server.stranger.post(
            f"{self.server.url}/s/{self.token}/mturk/externalSubmit",
            data={"assignmentId": self.query["assignmentId"], **fields},
            headers={"Origin": "null"},
        )


@dataclass
class Crowd:
    """A running crowd server."""

    url: str
    engine: Engine
    clock: ManualClock
    _open: contextlib.ExitStack = field(repr=False)

    def boto(self, environment: Environment = Environment.SANDBOX, **options: Any) -> Any:
        """Unmodified boto3; every reply is compared with botocore's service model."""
        access, secret = admin.keys(self.engine)[environment]
        keys = {"aws_access_key_id": access, "aws_secret_access_key": secret} | options
        config = Config(retries={"total_max_attempts": 1}, proxies={})
        client = boto3.client("mturk", region_name="us-east-1", endpoint_url=self.url, config=config, **keys)
        client.meta.events.register("after-call.mturk.*", _check_reply)
        self._open.callback(client.close)
        return client

    def worker(self, environment: Environment = Environment.SANDBOX) -> Worker:
        """A new worker by a personal invitation."""
        [invitation] = admin.invite(self.engine, environment, clock=self.clock)
        worker = Worker(self, self.browser())
        joined = worker.browser.get(self.url + invitation.path, follow_redirects=False)
        assert (joined.status_code, joined.headers["Location"]) == (303, "/w")
        return worker

    @cached_property
    def stranger(self) -> httpx.Client:
        """A browser that keeps no session."""
        return self._open.enter_context(httpx.Client(trust_env=False))

    def browser(self) -> httpx.Client:
        """A browser without a session."""
        return self._open.enter_context(httpx.Client(follow_redirects=True, trust_env=False))


@contextlib.contextmanager
def running_crowd(engine: Engine, public: Path | None = None) -> Iterator[Crowd]:
    """A crowd server over this database."""
    clock = ManualClock()
    with contextlib.ExitStack() as stack:
        app = create_app(engine, clock=clock, public=[] if public is None else [public])
        server = stack.enter_context(RunningServer(app))
        clients = stack.enter_context(contextlib.ExitStack())
        yield Crowd(server.url, engine, clock, clients)


@contextlib.contextmanager
def engine_of(template: Path, folder: Path) -> Iterator[Engine]:
    """A copy of this database in a folder, as ``crowd.db``."""
    shutil.copy(template, folder / "crowd.db")
    engine = make_engine(f"sqlite:///{folder / 'crowd.db'}")
    yield engine
    engine.dispose()


def give_keys(
    engine: Engine, patch: pytest.MonkeyPatch, environment: Environment = Environment.SANDBOX
) -> tuple[str, str]:
    """Let commands find a server's keys in the environment; the keys."""
    access, secret = admin.keys(engine)[environment]
    patch.setenv("AWS_ACCESS_KEY_ID", access)
    patch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    return access, secret


def accept_one(crowd: Crowd, page: Any) -> Any:
    """A new worker opens a link in a real browser and accepts a HIT; the frame in which it is shown."""
    [link] = admin.invite(crowd.engine, Environment.SANDBOX, clock=crowd.clock)
    page.goto(crowd.url + link.path)
    page.get_by_role("button", name="Accept one").click()
    page.wait_for_load_state()  # a click before the page's style came would land beside what it is for
    return page.frame_locator("#hit")


def refusal(call: Callable[..., Any], **parameters: Any) -> tuple[str, str]:
    """The TurkErrorCode of a refused call, without MTurk's prefix, and its message."""
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    reply = caught.value.response
    return str(reply.get("TurkErrorCode")).removeprefix("AWS.MechanicalTurk."), reply["Error"]["Message"]


def post_hit(client: Any, hit_type: str | None = None, **changes: Any) -> dict[str, Any]:
    """A HIT of the usual kind."""
    values = HIT | {"HITTypeId": hit_type or client.create_hit_type(**TYPE)["HITTypeId"]}
    hit: dict[str, Any] = client.create_hit_with_hit_type(**(values | changes))["HIT"]
    return hit


def posted(crowd: Crowd, hits: int) -> str:
    """A type with so many HITs of one assignment each, as the operations of the API post them; its id."""
    with Database(crowd.engine).write(Environment.SANDBOX) as connection:

        def call(operation: str, **params: Any) -> Any:
            own = ApiCall(
                connection,
                Environment.SANDBOX,
                crowd.clock(),
                Params(params),
                "",
                operation,
                "",
                AllowedSources(),
            )
            return OPERATIONS[operation].handler(own)

        hit_type: str = call("CreateHITType", **TYPE)["HITTypeId"]
        for _ in range(hits):
            call("CreateHITWithHITType", **HIT, HITTypeId=hit_type)
    return hit_type

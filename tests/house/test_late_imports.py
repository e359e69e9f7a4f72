"""A server that runs imports no more of mitl's code, which an upgrade may exchange meanwhile."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from desk_kit import REASON
from starlette.routing import Route

from mitl.crowd_server import admin
from mitl.crowd_server.app import create_app
from mitl.db.engine import make_engine
from mitl.db.session import open_database
from mitl.db.store import answers
from mitl.desk.app import MODULES
from mitl.records import Decision, Environment
from mitl.settings import Settings

pytest_plugins = ("desk_fixtures",)


@dataclass
class Serving:
    """A command that serves, in a process of its own that notes what it imports."""

    counts: dict[str, Any]
    """What it printed once it could be reached."""
    notes: Path
    begins: int
    """Bytes of the notes by then."""

    @property
    def late(self) -> list[str]:
        """Modules of mitl that it imported since."""
        lines = self.notes.read_text(encoding="utf-8")[self.begins :].splitlines()
        names = [line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")]
        return [name for name in names if name.partition(".")[0] in ("mitl", "annotators")]


@pytest.fixture
def serve(start_program: Callable[..., Any], project: Settings, tmp_path: Path) -> Callable[..., Serving]:
    """Starts such a command on the project."""

    def started(*words: str) -> Serving:
        notes = tmp_path / "stderr"
        command = [sys.executable, "-X", "importtime", "-m", "mitl", *words, "--json", "--port", "0"]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        with notes.open("w") as file:
            process = start_program(command, cwd=project.project, stdout=-1, stderr=file, env=environment)
        counts = json.loads(process.stdout.readline())["counts"]
        return Serving(counts, notes, notes.stat().st_size)

    return started


@pytest.fixture
def browser() -> Any:
    """Keeps cookies and follows where it is led."""
    with httpx.Client(follow_redirects=True, trust_env=False, timeout=60) as client:
        yield client


def test_a_desk_imports_nothing_once_it_is_open(serve, browser, project):
    """Each page and each form, the calls to the server within its own process too."""
    desk = serve("desk", "--no-browser")
    url = desk.counts["url"]
    browser.get(desk.counts["link"]).raise_for_status()
    with open_database(project.db_url, read_only=True) as session:
        queued = answers.assignments(session, Environment.SANDBOX, [Decision.QUEUED])
    first, second = (f"/queue/{row.id}" for row in queued[:2])
    token = re.search(r'name="form_token" value="([^"]+)"', browser.get(url + first).text)[1]
    forms = {
        f"{first}/decide": {"decision": "approve"},
        f"{second}/decide": {"decision": "reject", "reason": REASON},
        "/send": {},
        f"{second}/reverse": {"decision": "approve"},
        "/workers/1/message": {"subject": "Thanks", "text": "For your work.", "message_token": "m"},
    }
    for path in ("/", "/workers", "/workers/1", "/queue", first, "/state?item=1", "/image/1"):
        assert browser.get(url + path).status_code == 200, path
    for path, fields in forms.items():
        reply = browser.post(url + path, data={"form_token": token} | fields, headers={"Origin": url})
        assert reply.status_code == 200, (path, reply.text)
        browser.post(
            f"{url}/send", data={"form_token": token}, headers={"Origin": url}
        )  # waits for the calls

    known = {path for module in MODULES for path, _ in (*module.ROUTES, *module.FORMS)}
    assert known == {
        "/",
        "/state",
        "/send",
        "/workers",
        "/workers/{worker_id:int}",
        "/workers/{worker_id:int}/message",
        "/queue",
        "/queue/{number:int}",
        "/queue/{number:int}/decide",
        "/queue/{number:int}/reverse",
        "/image/{image_id:int}",
    }, "ask for the new page above"
    assert desk.late == []


def test_a_crowd_server_imports_nothing_once_it_runs(serve, browser, project):
    """Each address, of whom works and of the operator."""
    server = serve("serve")
    engine = make_engine(project.crowd_db_url)
    [invitation] = admin.invite(engine, Environment.SANDBOX)
    routes = [route for route in create_app(engine).routes if isinstance(route, Route)]
    engine.dispose()
    url = server.counts["url"]
    browser.get(url + invitation.path).raise_for_status()
    browser.get(server.counts["operator_url"]).raise_for_status()
    for route in routes:
        path = re.sub(r"\{\w+(:\w+)?\}", "1", route.path)
        for method in sorted(route.methods - {"HEAD"}):
            assert browser.request(method, url + path).status_code < 500, (method, path)

    assert server.late == []


def test_an_explorer_imports_nothing_once_it_is_open(serve, browser):
    """The list, an item, a picture."""
    explorer = serve("explore", "--no-browser")
    for path in ("/", "/image/0", "/caption/0", "/picture/0"):
        browser.get(explorer.counts["url"] + path).raise_for_status()

    assert explorer.late == []

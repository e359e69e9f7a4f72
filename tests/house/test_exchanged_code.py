"""A server that runs needs none of mitl's code or templates any more, which an upgrade may exchange meanwhile."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
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

ROOT = Path(__file__).parents[2]

being_written = shutil.ignore_patterns("*.pyc.*", "*.tmp.*")
"""Names under which other processes write what they compile; such a file is gone before it can be copied."""


@pytest.fixture
def serve(start_program: Callable[..., Any], project: Settings, tmp_path: Path) -> Callable[..., Any]:
    """Starts such a command on the project, from code of its own, which is gone once it has said where it is."""

    def started(*words: str) -> dict[str, Any]:
        code = tmp_path / "code"
        for name in ("mitl", "annotators", "hit_templates", "migrations"):
            shutil.copytree(ROOT / name, code / name, ignore=being_written)
        command = [sys.executable, "-m", "mitl", *words, "--json", "--port", "0"]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(code)}
        process = start_program(command, cwd=project.project, stdout=-1, env=environment)
        counts: dict[str, Any] = json.loads(process.stdout.readline())["counts"]
        for path in [*code.rglob("*.py"), *code.rglob("*.pyc"), *code.rglob("*.j2")]:
            path.unlink()
        return counts

    return started


@pytest.fixture
def browser() -> Any:
    """Keeps cookies and follows where it is led."""
    with httpx.Client(follow_redirects=True, trust_env=False, timeout=60) as client:
        yield client


def test_an_open_desk_goes_on(serve, browser, project):
    """Each page and each form, the calls to the server within its own process too."""
    desk = serve("desk", "--no-browser")
    url = desk["url"]
    browser.get(desk["link"]).raise_for_status()
    with open_database(project.db_url, read_only=True) as session:
        queued = answers.assignments(session, Environment.SANDBOX, [Decision.QUEUED])
    first, second = (f"/queue/{row.id}" for row in queued[:2])
    token = re.search(r'name="form_token" value="([^"]+)"', browser.get(url + first).text)[1]
    pages = {
        "/": "/",
        "/state": "/state?item=1",
        "/workers": "/workers",
        "/workers/{worker_id:row}": "/workers/1",
        "/queue": "/queue",
        "/queue/{number:row}": first,
        "/image/{image_id:row}": "/image/1",
    }
    forms = {
        "/queue/{number:row}/decide": (f"{second}/decide", {"decision": "reject", "reason": REASON}),
        "/send": ("/send", {}),
        "/queue/{number:row}/reverse": (f"{second}/reverse", {"decision": "approve"}),
        "/workers/{worker_id:row}/message": ("/workers/1/message", {"subject": "x", "text": "y"}),
    }
    for path in pages.values():
        assert browser.get(url + path).status_code == 200, path
    for path, fields in forms.values():
        given = {"form_token": token} | fields
        assert browser.post(url + path, data=given, headers={"Origin": url}).status_code in (200, 422), path
        told = browser.post(f"{url}/send", data=given, headers={"Origin": url})  # waits for the calls
        assert told.status_code == 200 and "Try again" not in told.text, told.text

    known = {path for module in MODULES for path, _ in (*module.ROUTES, *module.FORMS)}
    assert known == pages.keys() | forms.keys(), "ask for the new page too"


def test_a_crowd_server_goes_on(serve, browser, project):
    """Each address, of whom works and of the operator."""
    server = serve("serve")
    engine = make_engine(project.crowd_db_url)
    [invitation] = admin.invite(engine, Environment.SANDBOX)
    routes = [route for route in create_app(engine).routes if isinstance(route, Route)]
    engine.dispose()
    browser.get(server["url"] + invitation.path).raise_for_status()
    browser.get(server["operator_url"]).raise_for_status()
    for route in routes:
        path = re.sub(r"\{\w+(:\w+)?\}", "1", route.path)
        for method in sorted(route.methods - {"HEAD"}):
            assert browser.request(method, server["url"] + path).status_code < 500, (method, path)


@pytest.mark.thorough
def test_an_open_explorer_goes_on(serve, browser):
    """The list, an item, a picture."""
    explorer = serve("explore", "--no-browser")
    for path in ("/", "/image/0", "/caption/0", "/picture/0"):
        browser.get(explorer["url"] + path).raise_for_status()

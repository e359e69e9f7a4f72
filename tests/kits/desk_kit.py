"""A project with work to review, and its review desk over HTTP."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import text
from world_kit import SANDBOX, make_world, run_propose, run_publish

from mitl.crowd_server.serving import RunningServer
from mitl.db.session import open_database
from mitl.db.store import answers
from mitl.db.store.answers import StoredAssignment
from mitl.desk.app import create_app, make_desk
from mitl.desk.desk import Clock, Desk, utc_now
from mitl.records import Decision
from mitl.settings import Settings
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.simulate import simulate

REASON = "Nearly every pair was answered within a second, against what the pictures plainly show."


def make_reviewed_project(
    folder: Path, *, db_url: str | None = None, image_queries: int = 6, caption_queries: int = 8
) -> Settings:
    """A project that workers answered at random; what they sent is fetched, and some of it waits for a person."""
    settings = make_world(folder, n_images=40, db_url=db_url)
    run_propose(settings, image_queries=image_queries, caption_queries=caption_queries)
    run_publish(settings)
    simulate(settings, SANDBOX, population="random", hits_per_worker=2)
    harvest(settings, SANDBOX)
    return settings


@dataclass
class OpenDesk:
    """A running desk and a browser that has followed its link."""

    url: str
    desk: Desk
    settings: Settings
    browser: httpx.Client

    def get(self, path: str) -> httpx.Response:
        """Open a page."""
        return self.browser.get(self.url + path)

    def post(self, path: str, fields: dict[str, str] | None = None, **headers: str) -> httpx.Response:
        """Send a form from one of the desk's own pages."""
        given = {"form_token": self.desk.access.form} | (fields or {})
        return self.browser.post(self.url + path, data=given, headers={"Origin": self.url} | headers)

    def settle(self) -> None:
        """Wait until the crowd server has been told, or could not be."""
        assert self.desk.sender.wait(60)

    def rows(self, *decisions: Decision) -> list[StoredAssignment]:
        """Stored submissions of these decisions, of all without any."""
        with open_database(self.settings.db_url, read_only=True) as session:
            return answers.assignments(session, SANDBOX, decisions or tuple(Decision))

    def row(self, number: int) -> StoredAssignment:
        """One submission as stored."""
        return next(row for row in self.rows() if row.id == number)

    def sql(self, statement: str, **values: Any) -> None:
        """Change the database behind the desk's back."""
        with open_database(self.settings.db_url) as session:
            session.execute(text(statement), values)
            session.commit()


@contextlib.contextmanager
def open_desk(settings: Settings, *, clock: Clock = utc_now) -> Iterator[OpenDesk]:
    """The desk over a project, in this process."""
    made = replace(make_desk(settings, SANDBOX, port=0), clock=clock)
    try:
        with (
            RunningServer(create_app(made)) as server,
            httpx.Client(follow_redirects=True, trust_env=False, timeout=60) as browser,
        ):
            browser.get(f"{server.url}/?token={made.access.token}").raise_for_status()
            yield OpenDesk(server.url, made, settings, browser)
    finally:
        made.sender.close()


def written(page: httpx.Response) -> str:
    """A page's text without its tags, for reading."""
    plain = re.sub(r"<[^>]+>", " ", page.text)
    return re.sub(r"\s+", " ", plain)

"""A small project with HITs out, made once and copied, and what the harvest tests do to it behind mitl's back."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import text
from world_kit import SANDBOX, copied_once, make_world, run_propose, run_publish

from mitl.crowd.client import MTurkClient
from mitl.crowd.endpoint import open_endpoint
from mitl.db.engine import make_engine
from mitl.db.session import open_database
from mitl.db.store import answers, hits
from mitl.db.store.answers import StoredAssignment
from mitl.db.store.hits import StoredHit
from mitl.records import Decision, HitState
from mitl.settings import Settings
from mitl.stages.hits.simulate import simulate


def make_asked(folder: Path) -> Path:
    """A project with three HITs of two assignments each out on the sandbox."""
    settings = make_world(folder, n_images=12)
    run_propose(settings, image_queries=4, caption_queries=4)
    run_publish(settings, assignments=2)
    return folder


def asked_project(folder: Path) -> Settings:
    """A copy of it in ``folder``."""
    return copied_once("asked of two", make_asked, folder)


def answered_project(folder: Path) -> Settings:
    """The same, answered by careful people and not yet harvested."""
    return copied_once("answered by two", lambda new: simulate(asked_project(new), SANDBOX), folder)


@contextmanager
def client_of(settings: Settings) -> Iterator[MTurkClient]:
    """A client of the project's own server."""
    with open_endpoint(settings, SANDBOX) as endpoint:
        yield endpoint.client()


def posted(settings: Settings) -> list[StoredHit]:
    """The HITs that are out."""
    with open_database(settings.db_url, read_only=True) as session:
        return hits.hits(session, SANDBOX, (HitState.POSTED,))


def submissions(settings: Settings, *decisions: Decision) -> list[StoredAssignment]:
    """The stored submissions, those with one of these decisions where any is given."""
    with open_database(settings.db_url, read_only=True) as session:
        return answers.assignments(session, SANDBOX, decisions or tuple(Decision))


def queued(settings: Settings) -> list[int]:
    """The submissions that wait for a person."""
    return [row.id for row in submissions(settings, Decision.QUEUED)]


def in_pipeline(settings: Settings, *statements: str, **values: Any) -> None:
    """Change the project's database by hand."""
    _change(settings.db_url, statements, values)


def on_server(settings: Settings, *statements: str, **values: Any) -> None:
    """Change the crowd server's database by hand."""
    _change(settings.crowd_db_url, statements, values)


def _change(url: str, statements: tuple[str, ...], values: dict[str, Any]) -> None:
    engine = make_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement), values)
    engine.dispose()


def add_live_batch(settings: Settings) -> None:
    """Let the project have work on live beside what is on the sandbox; a copy of its first batch, without HITs."""
    in_pipeline(
        settings,
        "CREATE TEMP TABLE other AS SELECT * FROM batch WHERE name = 'b1'",
        "UPDATE other SET id = 999, name = 'b999', environment = 'live'",
        "INSERT INTO batch SELECT * FROM other",
        "DROP TABLE other",
    )


def fail_controls(settings: Settings) -> None:
    """Turn the controls around, so that careful answers fail them and wait for a person."""
    in_pipeline(settings, "UPDATE hit_item SET role = 'gold_negative' WHERE role = 'gold_positive'")


def submitted_ago(settings: Settings, age: dt.timedelta) -> None:
    """Let all stored submissions be this old."""
    with open_database(settings.db_url) as session:
        from sqlalchemy import update

        from mitl.db.models import Assignment

        session.execute(update(Assignment).values(submitted_at=dt.datetime.now(dt.UTC) - age))
        session.commit()

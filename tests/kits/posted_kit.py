"""A project with posted HITs, made once for a module's tests and copied for each."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path

from harvest_kit import in_pipeline
from sqlalchemy.orm import Session
from world_kit import SANDBOX, make_world, run_propose, run_publish

from mitl.crowd.client import MTurkClient
from mitl.crowd.endpoint import open_endpoint
from mitl.db.session import open_database
from mitl.db.store import hits as hit_store
from mitl.records import HitState
from mitl.settings import Settings


def make_posted(folder: Path, *, db_url: str | None = None, **campaign: object) -> Settings:
    """A small project whose pairs are on posted HITs in the sandbox."""
    settings = make_world(folder, n_images=20, db_url=db_url)
    run_propose(settings, image_queries=3, caption_queries=4)
    run_publish(settings, **campaign)
    return settings


def copy_project(settings: Settings, folder: Path) -> Settings:
    """A copy of a project with its databases, and its settings."""
    shutil.copytree(settings.project, folder)
    old = str(settings.project)
    moved: dict[str, object] = {}
    for field in fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, Path) and value.is_relative_to(settings.project):
            moved[field.name] = folder / value.relative_to(settings.project)
        elif isinstance(value, str) and old in value:
            moved[field.name] = value.replace(old, str(folder))
    return replace(settings, **moved)  # type: ignore[arg-type]


@contextmanager
def talking(settings: Settings) -> Iterator[tuple[Session, MTurkClient]]:
    """A session and a client."""
    with open_database(settings.db_url) as session, open_endpoint(settings, SANDBOX) as endpoint:
        yield session, endpoint.client()


def keys(settings: Settings, *states: HitState) -> dict[str, str | None]:
    """HIT → its id on the server, of those in these states, or of all."""
    with open_database(settings.db_url, read_only=True) as session:
        found = hit_store.hits(session, SANDBOX, states or tuple(HitState))
        return {hit.key: hit.mturk_hit_id for hit in found}


def forget(settings: Settings, sql: str) -> None:
    """Change the database behind everybody's back."""
    in_pipeline(settings, sql)

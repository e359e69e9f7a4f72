"""A live project whose three workers are paid for work of known times; copied for each test."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx
import pytest
from books import server_rows
from crowd_kit import Crowd, ManualClock, Worker
from harvest_kit import in_pipeline
from process_kit import project_settings
from world_kit import copied_once, make_world, run_propose

from mitl.campaign.kinds.pairs.planning import Campaign
from mitl.campaign.publish import publish
from mitl.crowd.endpoint import open_endpoint
from mitl.crowd_server import admin
from mitl.crowd_server.store.models import HitType
from mitl.db.engine import make_engine
from mitl.db.session import open_database
from mitl.db.store import hits as hit_store
from mitl.records import Environment, PairRole
from mitl.settings import Settings
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.paying.top_up import TopUpTerms, top_up

LIVE = Environment.LIVE
BUDGET_CENTS = 10_000
REWARD_CENTS = 100
TIMES: Mapping[str, Sequence[int | None]] = {
    "fair": (300_000, 300_000),
    "slow": (600_000, 450_000),
    "untimed": (400_000, None),
}
"""Worker → what their two pages claim, in milliseconds. At $1.00 a HIT and a floor of $12.00 an hour the slow one is
$1.50 short; the median of what was measured is 400 s, so that the untimed one is 0.67 short."""


def paid_project(folder: Path, *, db_url: str | None = None) -> Settings:
    """Two HITs of three assignments each, posted on live, answered by three workers, harvested and paid."""
    settings = make_world(folder, n_images=12, db_url=db_url)
    run_propose(settings, image_queries=3, caption_queries=3)
    engine = make_engine(settings.crowd_db_url)
    admin.prepare(engine)
    admin.set_budget(engine, LIVE, BUDGET_CENTS)
    engine.dispose()
    publish(settings, Campaign(LIVE, assignments=3, reward_cents=REWARD_CENTS), confirm=lambda total: True)
    names = answer(settings, TIMES)
    harvest(settings, LIVE)
    take_long(settings)
    (folder / "workers").write_text("\n".join(f"{name} {worker}" for name, worker in names.items()))
    return settings


_KEPT: list[Path] = []


def kept_project(factory: pytest.TempPathFactory) -> Path:
    """A paid project that is made once for all modules and never changed."""
    if not _KEPT:
        folder = factory.mktemp("paid") / "p"
        paid_project(folder)
        _KEPT.append(folder)
    return _KEPT[0]


def copy_of(project: Path, target: Path) -> Settings:
    """The project in another folder."""
    shutil.copytree(project, target)
    return project_settings(target)


def topped_up(factory: pytest.TempPathFactory, folder: Path) -> Settings:
    """A copy in ``folder`` of the paid project after a top-up to the floor."""

    def make(new: Path) -> None:
        settings = copy_of(kept_project(factory), new)
        top_up(settings, LIVE, TopUpTerms(), confirm=lambda environment, total: True)

    return copied_once("topped up", make, folder)


def workers(settings: Settings) -> dict[str, str]:
    """Name → id on the requester API."""
    lines = (settings.project / "workers").read_text().splitlines()
    return dict(line.split() for line in lines)


def answer(settings: Settings, times: Mapping[str, Sequence[int | None]]) -> dict[str, str]:
    """Each worker answers a HIT for each of their times, controls as expected; returns their ids."""
    pages = _pages(settings)
    ids = {}
    with open_endpoint(settings, LIVE) as endpoint, contextlib.ExitStack() as stack:
        engine = make_engine(settings.crowd_db_url)
        stack.callback(engine.dispose)
        crowd = Crowd(endpoint.url, engine, ManualClock(), stack)
        with engine.connect() as connection:
            [hit_type] = connection.scalars(HitType.__table__.select().with_only_columns(HitType.mturk_id))
        for (name, claims), link in zip(times.items(), endpoint.invite(len(times)), strict=True):
            worker = _join(crowd, link)
            for claim in claims:
                task = worker.accept(hit_type)
                assert task is not None
                fields = {f"p{place:02d}_label": label for place, label in pages[task.query["hitId"]].items()}
                fields["p01_ms"] = "" if claim is None else str(claim)
                assert task.submit(**fields).status_code == 200
            ids[name] = worker.id
    return ids


def _join(crowd: Crowd, link: str) -> Worker:
    worker = Worker(crowd, crowd.browser())
    assert worker.get(str(httpx.URL(link).raw_path, "ascii")).status_code == 200
    return worker


def _pages(settings: Settings) -> dict[str, dict[int, str]]:
    """HIT → place → the answer: no on the negative control, yes elsewhere."""
    with open_database(settings.db_url, read_only=True) as session:
        posted = hit_store.hits(session, LIVE)
        items = hit_store.hit_items(session, [hit.id for hit in posted])
    return {
        str(hit.mturk_hit_id): {
            item.place: "no" if item.role is PairRole.GOLD_NEGATIVE else "yes" for item in items[hit.id]
        }
        for hit in posted
    }


def granted(settings: Settings) -> dict[str, list[int]]:
    """Worker's name → the bonuses that the server has."""
    names = {worker: name for name, worker in workers(settings).items()}
    found: dict[str, list[int]] = {}
    query = """SELECT w.mturk_id, b.cents FROM bonus b JOIN assignment a ON a.id = b.assignment_id
        JOIN worker w ON w.id = a.worker_id ORDER BY b.id"""
    for worker, cents in server_rows(settings, query):
        found.setdefault(names[worker], []).append(cents)
    return found


def take_long(settings: Settings, seconds: int = 3000) -> None:
    """Let so much time have passed between acceptance and submission; a test does not wait for it."""
    in_pipeline(settings, f"UPDATE assignment SET accepted_at = submitted_at - {seconds * 1_000_000}")

"""A third kind of campaign in one folder: posted to a server over HTTP, answered, harvested, judged, paid."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

import httpx
import pytest
from crowd_kit import Crowd, ManualClock, Worker
from publish_kit import proposed
from sqlalchemy import text

from mitl.campaign import kinds
from mitl.campaign.kinds.pairs.planning import Campaign
from mitl.campaign.kinds.protocol import Request
from mitl.campaign.publish import publish
from mitl.crowd.endpoint import open_endpoint
from mitl.crowd_server import admin
from mitl.db.engine import make_engine
from mitl.db.session import open_database
from mitl.db.store import hits as hit_store
from mitl.db.store import journal
from mitl.records import Decision, Environment, HitState
from mitl.settings import Settings
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.simulate import simulate
from mitl.stages.reviewing.decisions import Ruling
from mitl.stages.reviewing.review import rule
from mitl.stages.reviewing.show import show

LIVE = Environment.LIVE
TOYS = Path(__file__).parents[1] / "toy_kinds"


@pytest.fixture
def ratings(monkeypatch):
    """The kind's folder among the others, as if it lay there."""
    monkeypatch.setattr(kinds, "__path__", [*kinds.__path__, str(TOYS)])
    yield kinds.kind_of("ratings")
    for name in [name for name in sys.modules if name.startswith("mitl.campaign.kinds.ratings")]:
        del sys.modules[name]


@pytest.fixture
def project(tmp_path):
    made = proposed(tmp_path / "p")
    engine = make_engine(made.crowd_db_url)
    admin.prepare(engine)
    admin.set_budget(engine, LIVE, 1000)
    engine.dispose()
    return made


def request(**wish: object) -> Request:
    """Captions to rate on live."""
    from mitl.campaign.kinds.ratings.kind import RateCaptions  # type: ignore[import-not-found]

    asked: Request = RateCaptions(**{"environment": LIVE, "reward_cents": 20, **wish})
    return asked


def answer(settings: Settings, *stars: str) -> None:
    """One worker answers a HIT for each rating of the control, over HTTP, and gives one star to what is asked."""
    with open_endpoint(settings, LIVE) as endpoint, contextlib.ExitStack() as stack:
        engine = make_engine(settings.crowd_db_url)
        stack.callback(engine.dispose)
        with engine.connect() as connection:
            hit_type = connection.scalar(text("SELECT mturk_id FROM hit_type"))
        crowd = Crowd(endpoint.url, engine, ManualClock(), stack)
        worker = Worker(crowd, crowd.browser())
        (link,) = endpoint.invite(1)
        assert worker.get(str(httpx.URL(link).raw_path, "ascii")).status_code == 200
        for given in stars:
            task = worker.accept(str(hit_type))
            assert task is not None
            assert "How well is this sentence written?" in task.page().text
            assert task.submit(p01_stars=given, p02_stars="1", p03_stars="1").status_code == 200


def test_all_folders_of_kinds_are_registered(ratings):
    """A folder is enough: nothing names the kinds one by one."""
    assert kinds.kind_names() == ["pairs", "rankings", "ratings", "similarity", "texts"]
    assert [kinds.kind_of(name).name for name in kinds.kind_names()] == kinds.kind_names()


def test_a_third_kind_runs_through_the_whole_campaign(ratings, project, tmp_path):
    """Dry run, bill, posting, answers, control, queue, a person's decision, payment; only its folder knows it."""
    bill: list[str] = []
    dry = publish(
        project,
        request(limit=4),
        confirm=lambda total: False,
        dry_run=True,
        to=tmp_path / "dry",
        announce=bill.append,
    )
    assert (dry.counts["hits"], dry.counts["captions"]) == (2, 4)
    assert bill[0].startswith("live · ratings · template ratings-plain · seed 0")
    assert any("$0.20" in line for line in bill)
    requests = [json.loads(file.read_text()) for file in sorted((tmp_path / "dry" / "requests").iterdir())]
    assert sum("Question" in sent for sent in requests) == 2
    posted = publish(project, request(limit=4), confirm=lambda total: total == 40)
    assert posted.counts == {
        "batch": "b1",
        "environment": "live",
        "captions": 4,
        "hits_posted": 2,
        "hits_again": 0,
        "total_cents": 40,
    }
    answer(project, "3", "1")
    harvested = harvest(project, LIVE)
    assert {key: harvested.counts[key] for key in ("fetched", "approved", "queued")} == {
        "fetched": 2,
        "approved": 1,
        "queued": 1,
    }
    held = publish(project, request(limit=2), confirm=lambda total: True)
    assert "run `mitl review` first" in held.lines[0] and held.next == "mitl review"
    seen = show(project, 2, LIVE)
    assert seen.tables[0].rows[0] == (1, "1", "3")
    assert "rule: three stars" in seen.lines
    ruled = rule(project, [Ruling(2, Decision.DROP)], LIVE)
    assert ruled.next == "mitl rate publish --live, which asks again what could not be used"
    with open_database(project.db_url, read_only=True) as session:
        assert sum(journal.spent(session, LIVE).values()) == 40
    again = publish(project, request(limit=2), confirm=lambda total: True)
    assert (again.counts["hits_posted"], again.counts["hits_again"]) == (2, 1)
    answer(project, "3", "3")
    assert harvest(project, LIVE).counts["approved"] == 2
    with open_database(project.db_url, read_only=True) as session:
        assert [hit.state for hit in hit_store.hits(session, LIVE)] == [HitState.CLOSED] * 4
        assert sum(journal.spent(session, LIVE).values()) == 80


def test_scripted_workers_leave_a_third_kind_to_people(ratings, project):
    """They return its HITs and do the others."""
    publish(project, request(environment=Environment.SANDBOX, limit=2), confirm=lambda total: True)
    assert simulate(project).lines == ("nothing to do: no HIT on sandbox waits for a scripted worker",)
    publish(project, Campaign(Environment.SANDBOX, limit=18), confirm=lambda total: True)
    assert simulate(project).counts["submitted"] == 1
    assert harvest(project, Environment.SANDBOX).counts["fetched"] == 1


def test_an_interrupted_run_of_a_third_kind_is_completed_alone(ratings, project):
    """Its plan ends when its command has told its end, as for every kind; a limit counts what is out."""

    def die(result: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publish(project, request(limit=2), confirm=lambda total: True, tell=die)
    completed = publish(project, request(limit=2), confirm=lambda total: False)
    assert completed.lines == (
        "1 HIT of b1, $0.20, all posted; that completes an interrupted run, and nothing was planned beside it",
    )
    held = publish(project, request(limit=2), confirm=lambda total: False)
    assert held.lines[0].startswith("nothing to do: 2 captions of b1 are out, and --limit 2 counts them")
    with open_database(project.db_url, read_only=True) as session:
        assert [hit.key for hit in hit_store.hits(session, LIVE, kind="ratings")] == ["b1:1:1"]
    answer(project, "3")
    assert harvest(project, LIVE, reparse=True).counts["reparsed"] == 0
    assert harvest(project, LIVE).counts["approved"] == 1
    assert harvest(project, LIVE, reparse=True).counts["reparsed"] == 1

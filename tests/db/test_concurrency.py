"""Several commands at once on one project, on SQLite and on PostgreSQL: nothing twice, nothing lost, no traceback."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import process_work as work
import pytest
from books import (
    assert_answers_are_kept_once,
    assert_hits_are_neither_lost_nor_doubled,
    pipeline_state,
    server_rows,
)
from db_kit import pair_rows, postgres_database
from harvest_kit import in_pipeline
from process_kit import Child, Outcome, fork_server, project_settings, side_by_side
from sqlalchemy import text

from mitl.db import engine as engines
from mitl.db import locks
from mitl.db.engine import make_engine
from mitl.db.locks import PUBLISH, only_one
from mitl.db.models import Dataset
from mitl.db.session import describe, open_database
from mitl.db.store import answers, hits, items, proposals
from mitl.db.store.submissions import NewSubmission, add_submissions
from mitl.errors import SettingsError, StoreError
from mitl.records import (
    Caption,
    Decision,
    Direction,
    Environment,
    HitItem,
    IdKind,
    Image,
    Page,
    Pair,
    PairRole,
    RetrievalSet,
)
from mitl.settings import Settings

SANDBOX = Environment.SANDBOX


@pytest.fixture(scope="module")
def context() -> Iterator[Any]:
    """Where child processes come from."""
    with fork_server() as made:
        yield made


@dataclass
class Project:
    """A project on one engine, its stages run in processes of their own."""

    context: Any
    folder: Path
    db_url: str

    @property
    def settings(self) -> Settings:
        """As the stages see them."""
        return project_settings(self.folder, db_url=self.db_url)

    def run(self, *works: tuple[Any, ...] | Any) -> list[Any]:
        """What these works return, one after the other."""
        steps = [step if isinstance(step, tuple) else (step,) for step in works]
        return [
            Child(self.context, step, self.folder, *args, db_url=self.db_url).value() for step, *args in steps
        ]

    def at_once(self, *works: tuple[Any, ...] | Any) -> list[Outcome]:
        """How these works end, started together."""
        steps = [step if isinstance(step, tuple) else (step,) for step in works]
        return side_by_side(self.context, self.folder, *steps, db_url=self.db_url)


@pytest.fixture(scope="module")
def made(context, tmp_path_factory) -> Path:
    """One project after each stage, on SQLite, to be copied: ``proposed``, and ``answered`` by careful people."""
    folder = tmp_path_factory.mktemp("made")
    current = Project(context, folder / "current", f"sqlite:///{folder / 'current' / 'mitl.db'}")
    current.run(work.init, (work.propose, 8, 8))
    shutil.copytree(current.folder, folder / "proposed")
    current.run(work.publish, (work.work, "careful", 2))
    shutil.copytree(current.folder, folder / "answered")
    return folder


@pytest.fixture(scope="module")
def on_postgres(made, context, postgres_server, new_on_postgres, tmp_path_factory) -> Iterator[str]:
    """URL of a database that PostgreSQL made by the same stages as ``proposed``, to be copied."""
    folder = Path(shutil.copytree(made / "proposed", tmp_path_factory.mktemp("postgres") / "p"))
    (folder / "mitl.db").unlink()
    with postgres_database(postgres_server, new_on_postgres["pipeline"]) as url:
        Project(context, folder, url).run(work.init, (work.propose, 8, 8))
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def project(request, made, context, tmp_path) -> Iterator[Project]:
    """A project with candidate pairs for some HITs, once on each engine."""
    copied = Path(shutil.copytree(made / "proposed", tmp_path / "p"))
    if request.param == "sqlite":
        yield Project(context, copied, f"sqlite:///{copied / 'mitl.db'}")
        return
    (copied / "mitl.db").unlink()
    like = request.getfixturevalue("on_postgres")
    with postgres_database(request.getfixturevalue("postgres_server"), like) as url:
        yield Project(context, copied, url)


@pytest.fixture
def answered(made, context, tmp_path) -> Project:
    """A project on SQLite whose HITs careful people have answered, and nobody has harvested."""
    copied = Path(shutil.copytree(made / "answered", tmp_path / "p"))
    return Project(context, copied, f"sqlite:///{copied / 'mitl.db'}")


@pytest.fixture
def database(project_url) -> str:
    """URL of a pipeline database with a data set in it, once on each engine."""
    with open_database(project_url, create=True) as session:
        session.add(Dataset(name="scenes", kind="scenes", id_kind=IdKind.INTEGER, content_sha256="0"))
        session.commit()
    return project_url


def errors(outcomes: list[Outcome]) -> list[str]:
    """The tracebacks of those that raised."""
    return [outcome.error for outcome in outcomes if outcome.error is not None]


@pytest.mark.thorough(but=("postgresql",))
def test_two_harvests_at_once_store_and_pay_everything_once(project):
    """All succeed; each answer is kept once, each submission paid once and told once, however the work fell out."""
    project.run(work.publish, (work.work, "careful:0.5,random:0.5", 3))

    outcomes = project.at_once(work.harvest, work.harvest, work.harvest)

    assert errors(outcomes) == []
    submissions = pipeline_state(project.settings)["submissions"]
    approved = sum(status == "Approved" for _, status, *_ in submissions)
    assert sum(outcome.value.counts["fetched"] for outcome in outcomes) == len(submissions) > 3
    assert sum(outcome.value.counts["approved"] for outcome in outcomes) == approved > 0
    assert_answers_are_kept_once(project.settings)


@pytest.mark.thorough(but=("postgresql",))
def test_two_publishes_at_once_ask_each_pair_once(project):
    """One posts; the others end with one line that says what to do, or find nothing left to do."""
    outcomes = project.at_once(work.publish, work.publish, work.publish)

    refused = [outcome for outcome in outcomes if outcome.error is not None]
    posted = [outcome.value.counts["hits_posted"] for outcome in outcomes if outcome.error is None]
    assert [outcome.error_type for outcome in refused] == ["StoreError"] * len(refused)
    assert all("another `mitl publish` is at work" in str(outcome.message) for outcome in refused)
    assert sorted(posted)[:-1] == [0] * (len(posted) - 1) and max(posted) > 3
    assert_hits_are_neither_lost_nor_doubled(project.settings)


@pytest.mark.thorough
def test_a_publish_that_dies_gives_its_turn_back(project):
    """The lock of a killed process does not outlive it."""
    killed = Child(project.context, work.publish, project.folder, kill_at=40, db_url=project.db_url).outcome()

    (result,) = project.run(work.publish)

    assert killed.exit_status == 137
    assert result.status == "done"
    assert_hits_are_neither_lost_nor_doubled(project.settings)


@pytest.mark.thorough
def test_two_inits_at_once_load_the_data_once(context, tmp_path, engine_url):
    """The tables are made once and the images loaded once, whoever comes first."""
    made = Project(context, tmp_path / "p", engine_url)
    work.init(project_settings(tmp_path / "other"), 12)  # in the same world every file is the same
    Path(tmp_path / "p").mkdir()

    outcomes = made.at_once((load_world, tmp_path / "other"), (load_world, tmp_path / "other"))

    assert errors(outcomes) == []
    assert sorted(outcome.value for outcome in outcomes) == ["done", "nothing_to_do"]
    assert pipeline_state(made.settings)["dataset"]["n_images"] == 12


def load_world(settings: Settings, world: Path) -> str:
    """Load a data set that lies ready into the project's database; how it ended."""
    from mitl.datasets.scenes.files import read_world
    from mitl.settings import WORLD_FOLDER
    from mitl.stages.setup.init import init
    from mitl.stages.setup.loading import Loaded

    return init(settings, Loaded(read_world(world / WORLD_FOLDER).retrieval_set)).status


@pytest.mark.thorough
def test_two_proposes_at_once_store_the_union_once(project):
    """The same run twice is stored once; another run that finds the same pairs shares them."""
    outcomes = project.at_once((work.propose, 9, 10), (work.propose, 9, 10), (work.propose, 6, 12))

    assert errors(outcomes) == []
    with open_database(project.db_url, read_only=True) as session:
        assert len(proposals.runs(session)) == 3
        assert set(pair_rows(session)) == set(proposals.candidate_pairs(session, tuple(Direction)))


def test_a_lock_is_free_before_the_server_has_noticed_that_its_connection_is_gone(database, monkeypatch):
    """The next command may be faster than a busy server."""
    held = make_engine(database)
    with monkeypatch.context() as patch:
        patch.setattr(locks, "make_engine", lambda url: held)
        patch.setattr(held, "dispose", lambda: None)
        with only_one(database, PUBLISH):
            pass

    with only_one(database, PUBLISH), pytest.raises(StoreError, match="another `mitl publish`"):
        held.dispose()
        with only_one(database, PUBLISH):
            pass


def test_where_there_is_no_database_a_lock_makes_no_file(tmp_path):
    """The command goes on to say that nothing is there; the folder may be a wrong one, or missing."""
    for folder in (tmp_path, tmp_path / "missing"):
        with only_one(f"sqlite:///{folder / 'mitl.db'}", PUBLISH):
            assert list(tmp_path.iterdir()) == []


def test_a_reader_does_not_wait_for_a_writer(database):
    """`mitl status` answers while a harvest holds the database."""
    with open_database(database) as writer, only_one(database, PUBLISH):
        hits.open_round(writer, 1, SANDBOX, dt.datetime.now(dt.UTC))
        writer.execute(text("UPDATE dataset SET name = 'changed'"))

        with open_database(database, read_only=True) as reader:
            names = reader.execute(text("SELECT name FROM dataset")).scalars().all()

    assert names == ["scenes"]


def test_a_database_that_stays_busy_is_one_line(database, monkeypatch):
    """Whoever waited in vain for its turn reads what happened, not the driver's words."""
    monkeypatch.setattr(engines, "BUSY_TIMEOUT_S", 1.0)
    with open_database(database) as first:
        first.execute(text("UPDATE dataset SET name = 'changed'"))

        with (
            pytest.raises(
                StoreError, match=r"stayed busy .* another command is writing to it; run the command again"
            ),
            open_database(database) as second,
        ):
            second.execute(text("UPDATE dataset SET name = 'changed too'"))


def test_a_row_that_was_there_before_is_one_line(database):
    """A uniqueness that the database refuses is told in one line too."""
    with (
        pytest.raises(StoreError, match="was changed by another command meanwhile") as raised,
        open_database(database) as session,
    ):
        session.add(Dataset(name="scenes", kind="scenes", id_kind=IdKind.INTEGER, content_sha256="0"))
        session.commit()

    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://reader:hunter2@127.0.0.1:1/mitl",
        "postgresql://127.0.0.1:1/mitl?user=reader&password=hunter2",
        "postgresql+psycopg://reader:hunter2@no-such-host.invalid/mitl",
    ],
)
def test_an_unreachable_postgresql_is_one_line_without_the_password(url):
    """The message names the database as the user did, and no secret."""
    with pytest.raises(StoreError, match="cannot use postgresql://") as raised, open_database(url):
        pass

    assert "hunter2" not in str(raised.value) + describe(url)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "pg/me:hunter2@host",
        "postgresql://me:hunter2/@host:port/mitl",
        "postgresql://me@host:port/mitl?password=hunter2&sslmode=require",
    ],
)
def test_a_malformed_database_url_hides_its_password(url):
    """Even what cannot be read as a URL does not show what may be a password."""
    with pytest.raises(SettingsError, match="is not a database URL") as raised, open_database(url):
        pass

    assert "hunter2" not in str(raised.value)


def test_a_file_that_is_no_database_is_one_line(tmp_path):
    """A text file in place of mitl.db is refused, not met with a traceback."""
    (tmp_path / "mitl.db").write_text("these are my notes, which I would like to keep\n" * 100)

    with (
        pytest.raises(StoreError, match=r"cannot use mitl\.db: file is not a database"),
        open_database(f"sqlite:///{tmp_path / 'mitl.db'}"),
    ):
        pass


def test_a_read_only_session_refuses_to_write_on_postgresql(postgres_project_url):
    """What must not write cannot."""
    with (
        pytest.raises(StoreError, match="read-only transaction"),
        open_database(postgres_project_url, read_only=True) as session,
    ):
        session.add(Dataset(name="x", kind="scenes", id_kind=IdKind.INTEGER, content_sha256="0"))
        session.commit()


@pytest.fixture
def far_away(monkeypatch) -> Iterator[None]:
    """The process runs in another time zone."""
    before = os.environ.get("TZ")
    monkeypatch.setenv("TZ", "Pacific/Chatham")
    time.tzset()
    yield
    if before is None:
        monkeypatch.delenv("TZ")
    else:
        monkeypatch.setenv("TZ", before)
    time.tzset()


def test_times_are_utc_and_order_alike_on_both_engines(project_url, far_away):
    """Times keep their microseconds and their order whatever zone they were given in or the process runs in."""
    east, west = dt.timezone(dt.timedelta(hours=14)), dt.timezone(dt.timedelta(hours=-11))
    moment = dt.datetime(2026, 3, 29, 1, 30, 0, 1, tzinfo=dt.UTC)
    given = [
        moment.astimezone(east) + dt.timedelta(microseconds=2),
        moment.astimezone(west),
        moment - dt.timedelta(hours=5),
        (moment + dt.timedelta(microseconds=1)).astimezone(dt.timezone(dt.timedelta(hours=5, minutes=45))),
    ]
    with open_database(project_url, create=True) as session:
        submit(session, given)

    with open_database(project_url, read_only=True) as session:
        found = [row.submitted_at for row in answers.assignments(session, SANDBOX)]

    assert found == sorted(given)
    assert all(time is not None and time.tzinfo is dt.UTC for time in found)


def submit(session: Any, times: list[dt.datetime]) -> None:
    """One submission at each of these times, on one HIT."""
    data = RetrievalSet("d", "table", IdKind.STRING, (Image("i"),), (Caption("c", "i", "t"),))
    items.add_dataset(session, data, "0")
    batch = hits.add_batch(
        session,
        hits.NewBatch(
            round_id=hits.open_round(session, 1, SANDBOX, times[0]),
            environment=SANDBOX,
            direction="both",
            template="pairs-plain",
            reward_cents=100,
            assignments=9,
            seed=0,
            planned_at=times[0],
        ),
    )
    page = Page(1, (HitItem(1, Pair(1, 1), PairRole.CANDIDATE),))
    hits.add_items(session, hits.insert_hits(session, batch.id, [hits.NewHit(page, 1, None, 9, "token")]))
    (hit,) = hits.hits(session, SANDBOX)
    submitted = [
        NewSubmission(hit.id, f"A{number}", f"ASSIGNMENT{number}", moment, moment, "Submitted", "<x/>")
        for number, moment in enumerate(times)
    ]
    add_submissions(session, SANDBOX, submitted)
    session.commit()


def test_an_answer_that_was_approved_by_itself_is_booked(answered):
    """Nobody harvested for a week: the server has paid, and the project's ledger says so once."""
    let_a_week_pass(answered.settings)

    answered.run(work.harvest, work.harvest)

    assert set(server_rows(answered.settings, "SELECT state FROM assignment")) == {("approved",)}
    assert_answers_are_kept_once(answered.settings)


def test_a_rejection_that_comes_too_late_pays_and_uses_nothing(answered):
    """What the server has approved cannot be rejected: the run says so, and the project is not stuck with the call."""
    from mitl.stages.reviewing.review import Ruling, rule

    in_pipeline(answered, "UPDATE hit_item SET role = 'gold_negative' WHERE role = 'gold_positive'")
    answered.run(work.harvest)
    with open_database(answered.db_url, read_only=True) as session:
        (number, *_) = [row.id for row in answers.assignments(session, SANDBOX, (Decision.QUEUED,))]
    let_a_week_pass(answered.settings)

    result = rule(
        answered.settings, [Ruling(number, Decision.REJECT, "both controls were answered wrongly")], SANDBOX
    )

    with open_database(answered.db_url, read_only=True) as session:
        (row,) = [row for row in answers.assignments(session, SANDBOX) if row.id == number]
    assert "came too late" in result.warnings[0]
    assert (result.counts["reject"], result.counts["drop"], result.counts["reversible_until"]) == (0, 1, {})
    assert not any("can undo that" in line for line in result.lines)
    assert (row.status, row.decision) == ("Approved", Decision.DROP)
    answered.run(work.settle, work.harvest)
    assert_answers_are_kept_once(answered.settings)


def let_a_week_pass(settings: Settings) -> None:
    """Bring every submission to the moment of its approval by itself."""
    engine = make_engine(settings.crowd_db_url)
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE assignment SET auto_approve_at = 1 WHERE auto_approve_at IS NOT NULL")
        )
        connection.execute(text("UPDATE hit SET settle_at = 1"))
    engine.dispose()


def test_answers_to_a_hit_whose_publishing_died_are_harvested(answered):
    """The server had it, people did it: harvest recognises it without waiting for the next publish."""
    in_pipeline(answered, "UPDATE hit SET state = 'sending', mturk_hit_id = NULL")

    (result,) = answered.run(work.harvest)

    assert result.counts["fetched"] > 3
    assert_answers_are_kept_once(answered.settings)

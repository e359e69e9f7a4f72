"""What is kept of where a project stands is what its rows say, on both engines, whoever changes the rows."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from cli_kit import ok
from harvest_kit import in_pipeline
from sqlalchemy import text
from world_kit import SANDBOX, copy_of

from mitl.campaign.standing import keep_standing, keep_standings
from mitl.db.models import Base
from mitl.db.session import connectable, open_database
from mitl.db.store import standings
from mitl.desk.app import make_desk
from mitl.records import Decision, Environment, Label
from mitl.settings import Settings
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.harvesting.watching import watch
from mitl.stages.operating.backup import verify
from mitl.stages.operating.databases import upgrade
from mitl.stages.reporting.status import status
from mitl.stages.reviewing import decisions, review

pytest_plugins = ("desk_fixtures",)

NOT_COUNTED = {
    *(
        "answer_sheet",
        "control_sheet",
        "finding",
        "part",
        "proposal",
        "rating_source",
        "standing",
        "worker_tally",
    )
}


@pytest.fixture
def project(restored: Settings) -> Settings:
    """A project with a review queue, on either engine, that was counted."""
    with open_database(restored.db_url) as session:
        keep_standing(session, SANDBOX, restored.gold_rule)
    return restored


def known(settings: Settings) -> set[Environment]:
    """The environments of which it is known where they stand."""
    with connectable(settings.db_url, read_only=True) as engine, engine.connect() as connection:
        return set(standings.kept(connection))


def test_each_look_of_a_watch_leaves_known_where_the_project_stands(reviewed, tmp_path):
    """So that `mitl status` beside it need not count."""
    settings = copy_of(reviewed, tmp_path / "p")
    in_pipeline(settings, "DELETE FROM standing")

    watch(settings, SANDBOX)

    assert known(settings) == {SANDBOX}


@pytest.mark.parametrize(
    "words",
    [
        ["harvest", "--sandbox"],
        ["propose", "--image-queries", "2", "--caption-queries", "2", "--seed", "7"],
        ["build-dataset", "--sandbox", "--out", "{folder}/release"],
        ["review", "originals", "wrong", "{caption}"],
    ],
    ids=lambda words: words[0],
)
def test_a_command_that_writes_leaves_it_known(reviewed, tmp_path, words):
    """Whatever it is about; the next `mitl status` finds what the rows say."""
    settings = copy_of(reviewed, tmp_path / "p")
    with open_database(settings.db_url, read_only=True) as session:
        caption = session.scalar(text("SELECT external_id FROM item ORDER BY side_id DESC, id LIMIT 1"))
    in_pipeline(settings, "DELETE FROM standing")

    ok(*(word.format(folder=tmp_path, caption=caption) for word in words), "--project", settings.project)

    assert known(settings) == {SANDBOX}
    after = status(settings)
    in_pipeline(settings, "DELETE FROM standing")
    assert after == status(settings)


def test_what_the_desk_carries_out_leaves_it_known(reviewed, tmp_path):
    """So that nobody who looks beside it has to wait."""
    settings = copy_of(reviewed, tmp_path / "p")
    queued = review.queue(settings, SANDBOX).counts["submissions"]
    decisions.keep(settings, decisions.Ruling(queued[0], Decision.DROP), SANDBOX)
    assert known(settings) == set()

    desk = make_desk(settings, SANDBOX, port=0)
    desk.sender.wake()

    assert desk.sender.wait(60)
    desk.sender.close()
    assert known(settings) == {SANDBOX}
    assert status(settings).counts["queued"] == len(queued) - 1


def test_a_command_that_only_reads_counts_nothing(reviewed, tmp_path):
    """Whoever may not write can ask, and a person at a prompt finds what was there."""
    settings = copy_of(reviewed, tmp_path / "p")
    in_pipeline(settings, "DELETE FROM standing")

    ok("status", "--project", settings.project)
    ok("review", "--project", settings.project)

    assert known(settings) == set()


def test_a_harvest_with_nothing_new_takes_from_it_what_is_to_be_asked_again(reviewed, tmp_path, monkeypatch):
    """It looks through no page and no answer for that."""
    settings = copy_of(reviewed, tmp_path / "p")
    in_pipeline(settings, "UPDATE assignment SET decision = 'drop'", "UPDATE judgement SET usable = false")
    counted = harvest(settings, SANDBOX).next
    assert counted.endswith("which asks again what could not be used")
    keep_standings(settings)
    monkeypatch.delattr("mitl.stages.harvesting.harvest.to_ask_again")

    assert harvest(settings, SANDBOX).next == counted


@pytest.mark.thorough(but=("sqlite",))
def test_what_is_kept_is_what_is_counted(project):
    """Every line and number of `mitl status`, its environment named or not."""
    kept = status(project), status(project, SANDBOX)
    in_pipeline(project, "DELETE FROM standing")

    assert kept == (status(project), status(project, SANDBOX))
    assert kept[0].counts["submissions"] == 6


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE judgement SET usable = NOT usable WHERE id = (SELECT max(id) FROM judgement WHERE usable)",
        "UPDATE assignment SET decision = 'pass' WHERE decision = 'queued'",
        "DELETE FROM ledger",
        "UPDATE dataset SET name = 'other'",
    ],
)
@pytest.mark.thorough(but=("sqlite-*",))
def test_whoever_changes_a_row_makes_it_unknown(project, statement):
    """What follows is counted again, and is what the rows say now."""
    before = status(project)
    in_pipeline(project, statement)

    assert known(project) == set()
    after = status(project)
    assert after != before
    with open_database(project.db_url) as session:
        keep_standing(session, SANDBOX, project.gold_rule)
    assert status(project) == after


@pytest.mark.thorough(but=("sqlite",))
def test_a_change_that_is_taken_back_leaves_it_known(project):
    """What a killed command had not committed never was."""
    with open_database(project.db_url) as session:
        session.execute(text("DELETE FROM ledger"))
        session.rollback()

    assert known(project) == {SANDBOX}


def test_every_table_that_something_is_counted_from_makes_it_unknown(project):
    """A new table, or one that a revision makes again, needs its triggers."""
    on_sqlite = project.db_url.startswith("sqlite")
    wanted = {
        (table.name, event)
        for table in Base.metadata.sorted_tables
        if table.name not in NOT_COUNTED
        for event in ("INSERT", "UPDATE", "DELETE", *(() if on_sqlite else ("TRUNCATE",)))
    }
    if on_sqlite:
        query = (
            "SELECT tbl_name, sql FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'forget_standings%'"
        )
    else:
        query = (
            "SELECT relname, pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid "
            "WHERE tgname = 'forget_standings'"
        )
    with open_database(project.db_url, read_only=True) as session:
        found = {
            (table, event)
            for table, made in session.execute(text(query))
            for event in ("INSERT", "UPDATE", "DELETE", "TRUNCATE")
            if event in made.partition(" ON ")[0]
        }

    assert found == wanted


@pytest.mark.thorough(but=("sqlite",))
def test_another_rule_for_controls_counts_again(project):
    """The rule stands in mitl.toml, which the database does not see."""
    other = replace(project, gold_positive_passes=(Label.NO,), gold_negative_passes=(Label.YES,))

    assert status(other).counts["golds_passed"] != status(project).counts["golds_passed"]


@pytest.mark.thorough(but=("sqlite",))
def test_verify_finds_a_number_that_the_rows_do_not_give(project):
    """And names neither the number nor the environment."""
    assert verify(project).refusal is None
    with open_database(project.db_url) as session:
        ours = standings.kept(session.connection())[SANDBOX]
        counts = {**ours["counts"], "paid_cents": ours["counts"]["paid_cents"] + 1}
        standings.keep(session, SANDBOX, {**ours, "counts": counts})
        session.commit()

    found = verify(project)

    assert found.result.counts["faults"] == [
        {
            "database": found.result.counts["faults"][0]["database"],
            "what": "what `mitl status` says is not what the rows say",
            "rows": 1,
        }
    ]


@pytest.mark.thorough(but=("sqlite",))
def test_what_another_version_counted_is_counted_again(project):
    """It lacks what is counted now, which is no fault of the rows; and what an upgrade finds may follow old rules."""
    was = status(project)
    with open_database(project.db_url) as session:
        ours = standings.kept(session.connection())[SANDBOX]
        older = {key: value for key, value in ours.items() if key != "ended"}
        standings.keep(session, SANDBOX, {**older, "counts": {**ours["counts"], "pairs": 0}})
        session.commit()

    assert verify(project).refusal is None
    assert status(project) == was

    with open_database(project.db_url) as session:
        standings.keep(session, SANDBOX, {**ours, "counts": {**ours["counts"], "pairs": 0}})
        session.commit()
    upgrade(project)
    assert status(project) == was


def test_status_loads_neither_models_nor_numpy_where_it_is_known(reviewed, tmp_path):
    """Which take longer to load than all that it does."""
    settings = copy_of(reviewed, tmp_path / "p")
    keep_standings(settings)
    script = (
        "import sys; from mitl.settings import load; from mitl.stages.reporting.status import status; "
        f"status(load({str(settings.project)!r}, environ={{}})); "
        "print([name for name in ('numpy', 'sqlalchemy.orm', 'mitl.db.models') if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"

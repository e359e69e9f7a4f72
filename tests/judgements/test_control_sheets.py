"""Judging, counting and the desk's overview look only at workers of whom something changed, and come to what looking at
all would, on both engines."""

from __future__ import annotations

import datetime as dt
from functools import partial

import numpy as np
import pytest
from harvest_kit import in_pipeline
from sqlalchemy import text
from world_kit import SANDBOX

from mitl.campaign.standing import standing
from mitl.crowd.context import Context
from mitl.db.models import Base
from mitl.db.session import open_database
from mitl.db.store import control_sheets, worker_tallies
from mitl.db.store import desk as desk_store
from mitl.db.store.answer_sheets import answers_of
from mitl.db.store.control_sheets import gold_state
from mitl.db.store.proposals import pairs_of_rows
from mitl.desk.overview_page import overview
from mitl.judgements import gold_records
from mitl.settings import Settings
from mitl.stages.harvesting import judging
from mitl.stages.operating.backup import verify
from mitl.stages.operating.databases import upgrade
from mitl.stages.reviewing.evidence import habits

pytest_plugins = ("desk_fixtures",)

NOON = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)
OF_ONE = "(SELECT hit_id FROM assignment WHERE id = {one})"
CHANGES = (
    "UPDATE judgement SET label = 'no' WHERE assignment_id = {one} AND label IN ('yes', 'weak_yes')",
    "UPDATE assignment SET decision = 'approve' WHERE id = {one}",
    "UPDATE worker SET excluded_at = 1 WHERE id = (SELECT worker_id FROM assignment WHERE id = {one})",
    "UPDATE worker SET excluded_at = NULL WHERE id = (SELECT worker_id FROM assignment WHERE id = {one})",
    "UPDATE hit_item SET role = 'gold_positive' WHERE place = 3 AND hit_id = " + OF_ONE,
    "UPDATE assignment SET submitted_at = submitted_at - 1 WHERE id = {one}",
    "UPDATE assignment SET hit_id = (SELECT hit_id FROM assignment WHERE id = {other}) WHERE id = {one}",
    "UPDATE assignment SET worker_id = (SELECT worker_id FROM assignment WHERE id = {other}) WHERE id = {one}",
    "UPDATE assignment SET decision = 'none' WHERE id = {one}",
    "DELETE FROM rationale; DELETE FROM judgement WHERE assignment_id = {one}",
    "DELETE FROM answer_sheet WHERE assignment_id = {other}",
)
JUDGED = (
    "SELECT assignment_id, place, usable FROM judgement ORDER BY 1, 2",
    "SELECT id, decision FROM assignment ORDER BY 1",
    "SELECT DISTINCT assignment_id, code, detail FROM finding ORDER BY 1, 2, 3",
    "SELECT id, state FROM hit ORDER BY 1",
)


@pytest.fixture
def project(restored: Settings) -> Settings:
    """A project with a review queue, on either engine, that was judged."""
    judge(restored)
    return restored


def judge(settings: Settings) -> list[list[tuple[object, ...]]]:
    """As at the end of a harvest; everything that judging decides."""
    with open_database(settings.db_url) as session:
        judging.judge(session, SANDBOX, settings.gold_rule)
        session.commit()
        return [[tuple(row) for row in session.execute(text(query))] for query in JUDGED]


def sheets(settings: Settings) -> set[int]:
    """The workers of whom nothing has changed."""
    with open_database(settings.db_url, read_only=True) as session:
        return set(session.scalars(text("SELECT worker_id FROM control_sheet")))


def records_are_those_of_all_answers(settings: Settings) -> bool:
    """Records and withdrawn controls against those that every answer gives."""
    with open_database(settings.db_url, read_only=True) as session:
        every = gold_records.gold_state(
            answers_of(session, SANDBOX),
            settings.gold_rule,
            names=desk_store.worker_names(session, SANDBOX),
            pairs_of=partial(pairs_of_rows, session),
        )
        found = gold_state(session, SANDBOX, settings.gold_rule)
    said = {name: record for name, record in found.records.items() if record.golds}
    return said == {name: record for name, record in every.records.items() if record.golds} and (
        (found.withdrawn, found.by_role) == (every.withdrawn, every.by_role)
    )


def counted(settings: Settings) -> tuple[object, ...]:
    """What `mitl status` and the desk's overview and workers say."""
    with open_database(settings.db_url, read_only=True) as session:
        groups = desk_store.submission_groups(session, SANDBOX)
        said = overview(Context(session, settings, SANDBOX, now=lambda: NOON), groups)
        people = habits(session, SANDBOX, settings.gold_rule)
        return standing(session, SANDBOX, settings.gold_rule), said, people


@pytest.mark.thorough(but=("sqlite",))
def test_whatever_changes_is_judged_as_if_all_were(project):
    """One change after the other, by whoever makes it; each drops the worker's sheet, and the next judging heals it.
    What is counted from the sheets is what is counted without any."""
    with open_database(project.db_url, read_only=True) as session:
        of = dict(session.execute(text("SELECT id, worker_id FROM assignment ORDER BY id")).all())
    one = min(of)
    other = next(id_ for id_ in sorted(of, reverse=True) if of[id_] != of[one])
    everybody = sheets(project)
    for change in CHANGES:
        in_pipeline(project, *change.format(one=one, other=other).split("; "))
        assert not {of[one], of[other]} <= sheets(project), change
        assert records_are_those_of_all_answers(project)

        little = judge(project)

        assert sheets(project) == everybody
        with open_database(project.db_url, read_only=True) as session:
            assert (control_sheets.stale(session), worker_tallies.stale(session)) == (0, 0)
        whole = counted(project)
        in_pipeline(project, "DELETE FROM control_sheet")
        assert counted(project) == whole, change
        assert judge(project) == little, change


def test_a_record_that_others_turn_bad_is_judged_again(project, monkeypatch):
    """A control that is trusted again, say, speaks against a worker who did nothing."""
    before = judge(project)
    with open_database(project.db_url, read_only=True) as session:
        names = desk_store.worker_names(session, SANDBOX)
        passed = session.execute(
            text(
                "SELECT a.worker_id, a.id FROM assignment a JOIN judgement j ON j.assignment_id = a.id "
                "WHERE a.decision = 'pass' AND j.usable LIMIT 1"
            )
        ).one()
    true_state = judging.gold_state

    def turned(session, environment, rule):
        state = true_state(session, environment, rule)
        bad = gold_records.GoldRecord(passes=0, golds=9)
        return gold_records.GoldState(
            {**state.records, names[passed[0]]: bad}, state.withdrawn, state.by_role
        )

    monkeypatch.setattr(judging, "gold_state", turned)
    now = judge(project)

    usable = {row[:2]: row[2] for row in now[0]}
    assert not any(kept for (submission, _), kept in usable.items() if submission == passed[1])
    assert (passed[1], "bad_record_after_approval", gold_records.BAD_RECORD) in now[2]
    monkeypatch.undo()
    assert judge(project)[0] == before[0]


def test_nothing_is_read_of_workers_who_did_nothing(project, monkeypatch):
    """However many answers they gave."""
    asked: list[list[int]] = []

    def watched(session, environment, workers=None):
        asked.append(workers)
        return answers_of(session, environment, workers)

    monkeypatch.setattr(judging, "answers_of", watched)
    monkeypatch.setattr(control_sheets, "answers_of", watched)
    monkeypatch.setattr(worker_tallies, "answers_of", watched)
    judge(project)
    counted(project)
    assert asked == []
    with open_database(project.db_url, read_only=True) as session:
        id_, worker = session.execute(text("SELECT id, worker_id FROM assignment ORDER BY id")).first()
    in_pipeline(project, f"UPDATE assignment SET decision = 'drop' WHERE id = {id_}")

    counted(project)
    assert asked == [[worker]] * 6  # controls and all of it, thrice
    judge(project)

    assert asked == [[worker]] * 8


@pytest.mark.parametrize(
    ("table", "values", "said"),
    [
        ("control_sheet", {"content": np.array([1 << 8], "<i8").tobytes()}, "sheets of controls"),
        ("worker_tally", {"judged": np.array([1], "<i4").tobytes()}, "tallies of workers"),
        ("worker_tally", {"median_s": 0.5}, "tallies of workers"),
        ("worker_tally", {"first": np.array([3], "<u4").tobytes()}, "tallies of workers"),
    ],
)
@pytest.mark.thorough(but=("sqlite-*",))
def test_verify_finds_a_sheet_that_the_rows_do_not_give(project, table, values, said):
    """Which only somebody who writes into the table itself can make."""
    assert verify(project).refusal is None
    with open_database(project.db_url) as session:
        session.execute(Base.metadata.tables[table].update().values(**values))
        session.commit()

    assert said in str(verify(project).refusal)


def test_an_upgrade_writes_the_tallies_that_a_revision_emptied(project):
    """Of everybody who was judged, so that no page has to read the answers first."""
    in_pipeline(project, "DELETE FROM worker_tally")

    upgrade(project)

    with open_database(project.db_url, read_only=True) as session:
        assert set(session.scalars(text("SELECT worker_id FROM worker_tally"))) == sheets(project)
        assert worker_tallies.stale(session) == 0


@pytest.mark.postgres
def test_emptied_tables_leave_no_sheet(restored_on_postgres):
    """PostgreSQL has a statement for that which is not a DELETE."""
    judge(restored_on_postgres)

    in_pipeline(restored_on_postgres, "TRUNCATE judgement CASCADE")

    assert sheets(restored_on_postgres) == set()

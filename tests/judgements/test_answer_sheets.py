"""The copies of judgements that fast reads use say what the rows say, on both engines, whoever changes the rows."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from harvest_kit import in_pipeline
from sqlalchemy import NullPool, create_engine, text
from world_kit import SANDBOX

from mitl.db.engine import parse_url
from mitl.db.session import open_database
from mitl.db.store import answer_sheets
from mitl.db.store import judgements as judgement_store
from mitl.db.store.columns import answer_columns
from mitl.records.frames import ANSWERS, LABELS, OUTCOMES, ROLES
from mitl.settings import Settings, load
from mitl.stages.harvesting.judging import judge
from mitl.stages.operating.restore import restore

pytest_plugins = ("desk_fixtures",)


CHANGE = "UPDATE judgement SET active_ms = 123456 WHERE assignment_id = {one} AND place = {place}"


def filled(settings: Settings) -> None:
    """As at the end of a harvest."""
    with open_database(settings.db_url) as session:
        answer_sheets.fill(session)
        session.commit()


def wait_for_a_waiting_one(url: str) -> None:
    """Until somebody waits for the turn to write."""
    engine = create_engine(parse_url(url), isolation_level="AUTOCOMMIT", poolclass=NullPool)
    waiting = (
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = "
        "(SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    with engine.connect() as connection:
        for _ in range(1200):
            if connection.scalar(text(waiting)):
                break
            time.sleep(0.05)
        else:
            pytest.fail("nobody waits")


def sheets(settings: Settings) -> set[int]:
    """The submissions whose answers are at hand in one value."""
    with open_database(settings.db_url, read_only=True) as session:
        return set(session.scalars(text("SELECT assignment_id FROM answer_sheet")))


def columns(settings: Settings) -> pd.DataFrame:
    """What is read."""
    with open_database(settings.db_url, read_only=True) as session:
        return answer_columns(session, SANDBOX)


def says_what_the_rows_say(settings: Settings) -> bool:
    """Every column against the records that joins of the rows give."""
    found = columns(settings)
    with open_database(settings.db_url, read_only=True) as session:
        stored = judgement_store.judgements(session, SANDBOX)
        pairs = session.execute(text("SELECT pair_id FROM judgement ORDER BY assignment_id, place")).all()
    records = [row.record for row in stored]
    assert found.assignment.tolist() == [row.assignment_id for row in stored]
    assert found.hit.tolist() == [row.hit_id for row in stored]
    assert found.worker.tolist() == [row.worker_id for row in stored]
    assert found.pair.tolist() == [pair for (pair,) in pairs]
    assert [ROLES[code] for code in found.role] == [one.role for one in records]
    assert [OUTCOMES[code] for code in found.outcome] == [one.outcome for one in records]
    assert [None if code < 0 else LABELS[code] for code in found.label] == [one.label for one in records]
    assert found.active_ms.tolist() == [one.active_ms or 0 for one in records]
    assert found.usable.tolist() == [one.usable for one in records]
    return len(records) > 50


def test_a_harvest_leaves_every_answer_at_hand(reviewed):
    """Whatever a run wrote is in one value for each submission when it ends."""
    assert sheets(reviewed) == set(columns(reviewed).assignment.tolist())
    assert says_what_the_rows_say(reviewed)


def test_a_restore_leaves_every_answer_at_hand(restored):
    """A dump holds no copies; they are written again."""
    assert sheets(restored) == set(columns(restored).assignment.tolist())
    assert says_what_the_rows_say(restored)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE judgement SET usable = NOT usable WHERE assignment_id = {one}",
        "UPDATE judgement SET label = 'weak_no', active_ms = NULL WHERE assignment_id = {one} AND label = 'yes'",
        "UPDATE hit_item SET role = 'repeat' WHERE place = 3 AND hit_id = "
        "(SELECT hit_id FROM assignment WHERE id = {one})",
        "UPDATE judgement SET place = 99 WHERE assignment_id = {one} AND place = 20; "
        "UPDATE judgement SET place = 20, assignment_id = {other} WHERE assignment_id = {one} AND place = 99",
        "DELETE FROM rationale; DELETE FROM judgement WHERE assignment_id = {one}",
        "UPDATE assignment SET hit_id = (SELECT hit_id FROM assignment WHERE id = {other}) WHERE id = {one}",
    ],
)
@pytest.mark.thorough(but=("sqlite-*",))
def test_a_change_of_rows_is_seen_at_once(restored, statement):
    """Also one that no command of mitl makes; the copy is written again by whoever judges next."""
    one, other = sorted(sheets(restored))[:2]
    if "{other}" in statement:  # a place of its own
        in_pipeline(
            restored,
            "DELETE FROM rationale",
            f"DELETE FROM judgement WHERE assignment_id = {other} AND place = 20",
        )
    in_pipeline(restored, *statement.format(one=one, other=other).split("; "))

    assert one not in sheets(restored)
    assert says_what_the_rows_say(restored)

    with open_database(restored.db_url) as session:
        judge(session, SANDBOX, restored.gold_rule)
        session.commit()
    assert one in sheets(restored)
    assert says_what_the_rows_say(restored)


def test_an_item_that_comes_late_is_seen(restored):
    """Its judgement was a candidate's until then."""
    one = min(sheets(restored))
    place = f"hit_id = (SELECT hit_id FROM assignment WHERE id = {one}) AND role LIKE 'gold%'"
    in_pipeline(
        restored,
        f"CREATE TABLE kept AS SELECT * FROM hit_item WHERE {place}",
        f"DELETE FROM hit_item WHERE {place}",
    )
    filled(restored)
    assert one in sheets(restored)
    in_pipeline(restored, "INSERT INTO hit_item SELECT * FROM kept", "DROP TABLE kept")

    assert one not in sheets(restored)
    assert says_what_the_rows_say(restored)


@pytest.mark.postgres
def test_emptied_tables_leave_no_copy(restored_on_postgres):
    """PostgreSQL has a statement for that which is not a DELETE."""
    in_pipeline(restored_on_postgres, "TRUNCATE judgement CASCADE")

    assert sheets(restored_on_postgres) == set()
    assert len(columns(restored_on_postgres)) == 0


@pytest.mark.postgres
@pytest.mark.parametrize("is_written", [False, True])
def test_a_person_at_a_prompt_and_a_harvest_take_turns(restored_on_postgres, is_written):
    """A copy that one transaction makes of rows that another one is changing would stay, and be wrong."""
    restored = restored_on_postgres
    one = min(sheets(restored))
    if not is_written:
        in_pipeline(restored, f"DELETE FROM answer_sheet WHERE assignment_id = {one}")
    prompt = create_engine(parse_url(restored.db_url), poolclass=NullPool)

    def by_hand() -> None:
        with prompt.begin() as connection:
            connection.execute(text(CHANGE.format(one=one, place=3)))
            changed.set()
            if not is_written:
                wait_for_a_waiting_one(restored.db_url)

    changed = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        if is_written:
            with open_database(restored.db_url) as session:
                session.execute(text(CHANGE.format(one=one, place=4)))
                answer_sheets.fill(session)
                done = pool.submit(by_hand)
                wait_for_a_waiting_one(restored.db_url)
                session.commit()
        else:
            done = pool.submit(by_hand)
            assert changed.wait(60)
            filled(restored)
        done.result(60)

    assert says_what_the_rows_say(restored)


@pytest.mark.postgres
def test_the_copies_of_another_schema_are_left_alone(restored_on_postgres, reviewed_dump, tmp_path):
    """Two projects in one database; the search path of who changes rows names the other one."""
    first = restored_on_postgres
    in_pipeline(first, "CREATE SCHEMA second")
    path = parse_url(first.db_url).update_query_dict({"options": "-csearch_path=second"})
    second = load(tmp_path / "q", db=path.render_as_string(hide_password=False), environ={})
    restore(second, reviewed_dump / "dump", only="pipeline")
    one = min(sheets(second))
    in_pipeline(first, CHANGE.replace("judgement", "second.judgement").format(one=one, place=3))

    assert one in sheets(first)
    assert one not in sheets(second)
    assert says_what_the_rows_say(second)


@pytest.mark.parametrize("few", [0, 5_000])
@pytest.mark.thorough(but=("sqlite-*",))
def test_answers_without_a_copy_are_read_from_their_rows(restored, few, monkeypatch):
    """Of some submissions or of all, whether they are looked for one by one or all together."""
    monkeypatch.setattr(answer_sheets, "_FEW", few)
    before = columns(restored)
    for which in ("assignment_id % 2 = 0", "1 = 1"):
        in_pipeline(restored, f"DELETE FROM answer_sheet WHERE {which}")
        after = columns(restored)
        for name in ANSWERS:
            assert np.array_equal(before[name], after[name]), name


def test_what_the_codes_on_sheets_mean_never_changes():
    """They lie in people's databases: who moves one has to empty the table in a revision."""
    assert [str(label) for label in LABELS] == ["yes", "weak_yes", "weak_no", "no"]
    assert [str(outcome) for outcome in OUTCOMES] == ["answered", "skipped", "image_failed"]
    assert [str(role) for role in ROLES] == [
        "candidate",
        "gold_positive",
        "gold_negative",
        "repeat",
        "overlap",
        "audit",
    ]


def test_a_submission_that_goes_takes_its_copy_along(restored):
    """Nothing keeps people from deleting what they may delete."""
    one = min(sheets(restored))
    in_pipeline(
        restored,
        "DELETE FROM rationale",
        f"DELETE FROM judgement WHERE assignment_id = {one}",
        f"DELETE FROM finding WHERE assignment_id = {one}",
        f"DELETE FROM ledger WHERE assignment_id = {one}",
        f"INSERT INTO answer_sheet (assignment_id, content) VALUES ({one}, '')",
        f"DELETE FROM assignment WHERE id = {one}",
    )
    assert one not in sheets(restored)
    assert says_what_the_rows_say(restored)

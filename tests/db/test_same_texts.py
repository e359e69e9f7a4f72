"""Names and keys mean the same on both engines, whatever the language in which PostgreSQL sorts texts."""

import datetime as dt
from contextlib import ExitStack

import pytest
from db_kit import postgres_database
from sqlalchemy import create_engine, text

from mitl.db.session import open_database
from mitl.db.store import answers, comparisons, hits, items, journal, parses, submissions
from mitl.db.store.hits import NewBatch, NewHit
from mitl.db.store.submissions import NewSubmission
from mitl.records import (
    Environment,
    Finding,
    IdKind,
    Item,
    ItemSet,
    JournalState,
    Page,
    Part,
    PartKind,
    Side,
    System,
)

LIVE = Environment.LIVE
NOW = dt.datetime(2026, 11, 20, tzinfo=dt.UTC)
NAMES = ["B", "a", "c", "_d"]


def language_of(server):
    """A locale that sorts texts as people of its language do."""
    engine = create_engine(server)
    with engine.connect() as connection:
        known = connection.execute(text("SELECT collname FROM pg_collation WHERE collname ~ '^.._...utf8$'"))
        names = sorted(known.scalars())
    engine.dispose()
    if not names:
        pytest.skip("this machine has no locale of a language: apt install locales-all")
    return "en_US.utf8" if "en_US.utf8" in names else names[0]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def session(request, tmp_path):
    """On an empty database; PostgreSQL's is one of English words."""
    with ExitStack() as stack:
        url = f"sqlite:///{tmp_path / 'test.db'}"
        if request.param == "postgresql":
            server = request.getfixturevalue("postgres_server")
            url = stack.enter_context(postgres_database(server, locale=language_of(server)))
        yield stack.enter_context(open_database(url, create=True))


def test_what_is_listed_by_name_is_in_the_order_of_code_points(session):
    """Systems of a study, workers and kinds of findings: `B` stands before `a`, as in Python."""
    picture = Item("1", (Part(PartKind.IMAGE),))
    data = ItemSet("d", "by hand", IdKind.STRING, (Side("image", (picture,)),), {})
    round_id = hits.open_round(session, items.add_dataset(session, data, "0"), LIVE, NOW)
    terms = {"direction": "i2t", "template": "plain", "reward_cents": 5, "assignments": 1, "seed": 0}
    new = NewBatch(round_id=round_id, environment=LIVE, planned_at=NOW, **terms)
    batch = hits.add_batch(session, new)
    comparisons.add_systems(session, batch.id, [System(name, "file") for name in NAMES])
    (hit,) = hits.insert_hits(session, batch.id, [NewHit(Page(1, ()), 1, None, 4, "t")])
    sent = [NewSubmission(hit, name, f"A{name}", NOW, NOW, "Submitted", "<x/>") for name in NAMES]
    first = min(submissions.add_submissions(session, LIVE, sent))
    parses.add_all_findings(session, {first: [Finding(name) for name in NAMES]})

    assert [one.name for one in comparisons.systems(session, LIVE)["b1"]] == sorted(NAMES)
    assert [one.worker for one in answers.worker_loads(session, LIVE)] == sorted(NAMES)
    assert list(answers.finding_counts(session, LIVE)) == sorted(NAMES)


def test_calls_are_found_by_the_letters_of_their_keys(session):
    """Two workers whose ids differ in case are two, and signs that stand for any letter elsewhere are themselves."""
    keys = ["W1:1", "w1:1", "W_:1", "W%:1"]
    journal.plan(session, "message", [(key, None, "{}") for key in keys], NOW)
    journal.mark(session, "message", ["w1:1"], JournalState.DONE, NOW)

    found = {key: [row.key for row in journal.starting_with(session, "message", key[:-1])] for key in keys}

    assert found == {key: [key] for key in keys}
    assert [call.key for call in journal.open_calls(session, "message")] == ["W1:1", "W_:1", "W%:1"]

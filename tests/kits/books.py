"""What a project's two databases say, for comparison: with each other, and with another run's."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import asdict
from typing import Any

from sqlalchemy import text

from mitl.campaign.posting import annotation
from mitl.db.engine import make_engine
from mitl.db.models import Journal
from mitl.db.session import open_database
from mitl.db.store import (
    answers,
    collection,
    columns,
    comparisons,
    hits,
    items,
    journal,
    judgements,
    open_work,
    parses,
    proposals,
    rating_pages,
)
from mitl.records import Direction, Environment, HitState
from mitl.settings import Settings

SANDBOX = Environment.SANDBOX


def server_rows(settings: Settings, query: str) -> list[tuple[Any, ...]]:
    """Rows of ``crowd.db``."""
    engine = make_engine(settings.crowd_db_url)
    try:
        with engine.execution_options(mitl_write=False).connect() as connection:
            return [tuple(row) for row in connection.execute(text(query))]
    finally:
        engine.dispose()


def pipeline_state(settings: Settings) -> dict[str, Any]:
    """Everything in the pipeline's database but clock times, row numbers and the server's random ids of HITs."""
    with open_database(settings.db_url, read_only=True) as session:
        rows = hits.hits(session, SANDBOX)
        keys = {hit.id: hit.key for hit in rows}
        submissions = answers.assignments(session, SANDBOX)
        names = {row.id: (keys[row.hit_id], row.worker) for row in submissions}
        pages = hits.hit_items(session, list(keys))
        return {
            "dataset": asdict(items.dataset(session)),
            "queries": proposals.queries(session),
            "proposals": [
                columns.proposal_columns(session, run_id=run.id).values.tolist()
                for run in proposals.runs(session)
            ],
            "batches": [batch.name for batch in hits.batches(session)],
            "hits": sorted((hit.key, hit.state, hit.token, pages[hit.id]) for hit in rows),
            "submissions": sorted(
                (names[row.id], row.status, row.decision, row.excluded) for row in submissions
            ),
            "judgements": sorted(
                (
                    names[row.assignment_id],
                    row.place,
                    row.record.pair,
                    str(row.record.label),
                    row.record.usable,
                )
                for row in judgements.judgements(session, SANDBOX)
            ),
            "findings": sorted(
                (names[id_], sorted((finding.code, finding.detail) for finding in found))
                for id_, found in answers.findings_of(session, list(names)).items()
            ),
            "spent": journal.spent(session, SANDBOX),
            "journal": sorted(session.query(Journal.kind, Journal.key, Journal.state).all()),
        }


def assert_books_agree(settings: Settings, where: str = "") -> None:
    """No HIT, answer or payment is lost or doubled, and the project's ledger is the server's."""
    try:
        assert_each_hit_is_there_once(settings)
        assert_answers_are_kept_once(settings)
        assert_bonuses_are_paid_once(settings)
    except AssertionError as error:
        error.add_note(where)
        raise


def assert_bonuses_are_paid_once(settings: Settings) -> None:
    """Each bonus that is booked here was granted there, once, and none besides."""
    query = """SELECT a.mturk_id || ':' || w.mturk_id, b.cents FROM bonus b
        JOIN assignment a ON a.id = b.assignment_id JOIN worker w ON w.id = a.worker_id"""
    granted = Counter(server_rows(settings, query))
    with open_database(settings.db_url, read_only=True) as session:
        booked = session.execute(
            text(
                """SELECT a.mturk_assignment_id, w.mturk_worker_id, l.cents FROM ledger l
                JOIN assignment a ON a.id = l.assignment_id JOIN worker w ON w.id = a.worker_id
                WHERE l.kind = 'bonus'"""
            )
        ).all()

    assert Counter((f"{a}:{w}", cents) for a, w, cents in booked) == granted


def assert_hits_are_neither_lost_nor_doubled(settings: Settings) -> None:
    """Each planned HIT is on the server once, under the id that the pipeline knows, and every pair is asked."""
    assert_each_hit_is_there_once(settings)
    with open_database(settings.db_url, read_only=True) as session:
        asked = open_work.asked_pairs(session, SANDBOX)
        candidates = proposals.candidate_pairs(session, tuple(Direction))

    assert set(candidates) == asked


def assert_each_hit_is_there_once(settings: Settings) -> None:
    """Each planned HIT is on the server once, under the id that the pipeline knows; each open pair is on one HIT."""
    on_server = dict(server_rows(settings, "SELECT mturk_id, annotation FROM hit"))
    with open_database(settings.db_url, read_only=True) as session:
        rows = hits.hits(session, SANDBOX)
        live = [hit.id for hit in rows if hit.state in hits.LIVE_STATES]
        pages = hits.hit_items(session, live)
    known = {hit.mturk_hit_id: annotation(settings.project_id, hit) for hit in rows}
    out = Counter(item.pair for page in pages.values() for item in page if item.role == "candidate")

    assert {hit.state for hit in rows} <= {HitState.POSTED, HitState.CLOSED}
    assert known == on_server
    assert len(set(on_server.values())) == len(on_server)
    assert not out or max(out.values()) == 1


def assert_answers_are_kept_once(settings: Settings) -> None:
    """Each submission is stored once, byte for byte, each answer once; money and decisions are the server's."""
    query = """SELECT a.mturk_id, w.mturk_id, a.answer, a.state, t.reward_cents FROM assignment a
        JOIN worker w ON w.id = a.worker_id JOIN hit h ON h.id = a.hit_id JOIN hit_type t ON t.id = h.hit_type_id
        WHERE a.state IN ('submitted', 'approved', 'rejected')"""
    there = {
        f"{a}:{w}": (_sha(answer), state, cents)
        for a, w, answer, state, cents in server_rows(settings, query)
    }
    with open_database(settings.db_url, read_only=True) as session:
        rows = answers.assignments(session, SANDBOX)
        here = {row.key: (_sha(parses.raw(session, [row.id])[0].raw_xml), row.status.lower()) for row in rows}
        places = Counter(row.assignment_id for row in judgements.judgements(session, SANDBOX))
        on_page = hits.hit_items(session, [row.hit_id for row in rows])
        # Of campaigns other than of pairs: what stands on their HITs, and what was answered.
        others = (
            (comparisons.comparisons, comparisons.answers),
            (rating_pages.questions, rating_pages.answers),
            (collection.questions, collection.STORED.rows),
        )
        pages = [there_is(session, [row.hit_id for row in rows]) for there_is, _ in others]
        given = [of(session, [row.id for row in rows]) for _, of in others]
        booked = session.execute(text("SELECT key, cents FROM ledger WHERE kind = 'reward'")).all()
        open_calls = session.execute(text("SELECT count(*) FROM journal WHERE state <> 'done'")).scalar_one()

    assert len(here) == len(rows)
    assert here == {key: (sha, state) for key, (sha, state, _) in there.items()}
    of_pairs = [row for row in rows if not any(page.get(row.hit_id) for page in pages)]
    assert places == {row.id: len(on_page[row.hit_id]) for row in of_pairs}
    for page, answered in zip(pages, given, strict=True):
        assert {id_: len(found) for id_, found in answered.items() if found} == {
            row.id: len(page[row.hit_id]) for row in rows if page.get(row.hit_id)
        }
    paid = {key: cents for key, (_, state, cents) in there.items() if state == "approved"}
    assert dict(booked) == {f"reward:{key}": cents for key, cents in paid.items()}
    assert server_rows(
        settings, "SELECT count(*), coalesce(sum(cents), 0) FROM ledger WHERE kind = 'reward'"
    ) == [(len(paid), sum(paid.values()))]
    assert open_calls == 0


def _sha(document: str) -> str:
    return hashlib.sha256(document.encode()).hexdigest()

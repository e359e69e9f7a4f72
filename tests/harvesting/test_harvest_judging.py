"""Judging in sets says of every judgement what the rule says of it alone, on both engines."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from record_kit import gold_state
from sqlalchemy import text
from sqlalchemy.orm import Session

from mitl.db.session import open_database
from mitl.db.store import answers, hits, items, judgements, parses
from mitl.db.store.submissions import NewSubmission, add_submissions
from mitl.judgements.gold_records import is_usable
from mitl.records import (
    Caption,
    Decision,
    Environment,
    Finding,
    HitItem,
    IdKind,
    Image,
    Label,
    Outcome,
    Page,
    Pair,
    PairRole,
    Parsed,
    PlaceAnswer,
    RetrievalSet,
    Shortcoming,
)
from mitl.records.questions import GoldRule
from mitl.stages.harvesting.judging import LATE_BAD_RECORD, SAME_WORKER, judge

SANDBOX = Environment.SANDBOX
START = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
ROLES = (PairRole.CANDIDATE, PairRole.CANDIDATE, PairRole.GOLD_POSITIVE, PairRole.GOLD_NEGATIVE)
PAGES = ((1, 2), (2, 3), (1, 3))
"""The candidates of three HITs: each pair stands on two of them, so that a worker may meet it again."""
WORKERS = ("A1", "A2", "A3")

FAILED = (Label.YES, Label.YES, Label.NO, Label.YES)
"""A page of which each control fails."""
LATE = (Decision.PASS, Decision.APPROVE, Decision.NONE)
"""Of one worker: the record takes back what the rule said of the first, not a person's word on the second."""

answer = st.sampled_from([*Label, Outcome.SKIPPED, None])
submission = st.tuples(
    st.integers(0, 2),
    st.sampled_from(WORKERS),
    st.integers(0, 9),
    st.none() | st.tuples(answer, answer, answer, answer),
    st.sampled_from(Decision),
)
work = st.lists(submission, max_size=8, unique_by=lambda row: (row[0], row[1]))


def prepare(session: Session) -> None:
    """Three posted HITs of two candidates and two controls."""
    images = tuple(Image(str(number)) for number in range(1, 6))
    captions = tuple(Caption(image.external_id, image.external_id, "t") for image in images)
    items.add_dataset(session, RetrievalSet("d", "table", IdKind.STRING, images, captions), "0")
    batch = hits.add_batch(
        session,
        hits.NewBatch(
            round_id=hits.open_round(session, 1, SANDBOX, START),
            environment=SANDBOX,
            direction="both",
            template="pairs-plain",
            reward_cents=100,
            assignments=3,
            seed=0,
            planned_at=START,
        ),
    )
    new = []
    for number, (first, second) in enumerate(PAGES, 1):
        pairs = (Pair(first, first), Pair(second, second), Pair(4, 4), Pair(5, 5))
        asked = tuple(
            HitItem(n, pair, role) for n, (pair, role) in enumerate(zip(pairs, ROLES, strict=True), 1)
        )
        new.append(hits.NewHit(Page(number, asked), 1, None, 3, f"token{number}"))
    hits.add_items(session, hits.insert_hits(session, batch.id, new))
    for hit in hits.hits(session, SANDBOX):
        hits.set_posted(session, {hit.id: f"HIT{hit.number}"})


def parsed(labels: tuple[Any, ...]) -> Parsed[PlaceAnswer]:
    """One page's answers; a place of None was left out."""
    found = []
    for place, said in enumerate(labels, 1):
        if said is not None:
            label = said if isinstance(said, Label) else None
            outcome = Outcome.ANSWERED if label else Outcome.SKIPPED
            why = {"shortcoming": (Shortcoming.GRAMMAR,)} if label is Label.WEAK_NO else {}
            found.append(PlaceAnswer(place, outcome, label, given=why))
    missing = () if found else (Finding(parses.MISSING_ANSWER, "nothing"),)
    return Parsed(tuple(found), missing)


def fill(session: Session, rows: list[Any]) -> None:
    """Exactly these submissions; those without answers are stored and not parsed yet."""
    for table in ("rationale", "finding", "judgement", "assignment", "worker"):
        session.execute(text(f"DELETE FROM {table}"))
    ids = [hit.id for hit in hits.hits(session, SANDBOX)]
    by_name = {}
    new = []
    for number, (page, worker, minute, labels, decision) in enumerate(rows):
        moment = START + dt.timedelta(minutes=minute)
        new.append(
            NewSubmission(ids[page], worker, f"ASSIGNMENT{number}", moment, moment, "Submitted", "<x/>")
        )
        by_name[f"ASSIGNMENT{number}"] = (labels, decision)
    added = {
        id_: by_name[one.mturk_assignment_id] for id_, one in add_submissions(session, SANDBOX, new).items()
    }
    parses.set_parses(session, {id_: parsed(labels) for id_, (labels, _) in added.items() if labels})
    for id_, (labels, decision) in added.items():
        answers.set_decision(session, [id_], decision if labels else Decision.NONE)
    session.commit()


def expected_usable(session: Session) -> dict[int, bool]:
    """Judgement → whether it counts, by the rule for one, in the order in which the work was submitted."""
    rows = judgements.judgements(session, SANDBOX)
    submissions = {row.id: row for row in answers.assignments(session, SANDBOX)}
    order = {id_: place for place, id_ in enumerate(submissions)}
    state = gold_state(rows, GoldRule())
    seen: set[Any] = set()
    found = {}
    for row in sorted(rows, key=lambda row: (order[row.assignment_id], row.place)):
        key = (row.record.worker, row.record.pair)
        again = not row.record.role.is_gold and key in seen
        found[row.id] = not again and is_usable(
            row.record,
            submissions[row.assignment_id].decision,
            state.record(row.record.worker),
            excluded=submissions[row.assignment_id].excluded,
        )
        seen |= {key} if found[row.id] and not row.record.role.is_gold else set()
    return found


def check(session: Session, rows: list[Any], *, excluded: str | None = None) -> None:
    """Judge these submissions twice; the outcome is the rule's, and the second time changes nothing."""
    fill(session, rows)
    for row in answers.assignments(session, SANDBOX):
        if row.worker == excluded:
            answers.exclude_worker(session, row.worker_id, "", START)
    judge(session, SANDBOX, GoldRule())
    session.commit()

    found = {row.id: row.record.usable for row in judgements.judgements(session, SANDBOX)}
    assert found == expected_usable(session)
    unread = parses.PAIRS.unparsed(session, SANDBOX)
    decisions = {row.id: row.decision for row in answers.assignments(session, SANDBOX)}
    assert {decisions[id_] for id_ in unread} <= {Decision.NONE}
    assert len(unread) == sum(labels is None for _, _, _, labels, _ in rows)
    notes = answers.finding_counts(session, SANDBOX)
    state = gold_state(judgements.judgements(session, SANDBOX), GoldRule())
    late = [
        row
        for row in answers.assignments(session, SANDBOX)
        if row.decision is Decision.PASS and state.record(row.worker).is_bad
    ]
    assert notes.get(LATE_BAD_RECORD, 0) == len(late)
    judge(session, SANDBOX, GoldRule())
    session.commit()
    assert answers.finding_counts(session, SANDBOX) == notes
    assert {row.id: row.record.usable for row in judgements.judgements(session, SANDBOX)} == found


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory) -> str:
    """A database with three posted HITs."""
    url = f"sqlite:///{Path(tmp_path_factory.mktemp('judging')) / 'mitl.db'}"
    with open_database(url, create=True) as session:
        prepare(session)
        session.commit()
    return url


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=work, excluded=st.none() | st.sampled_from(WORKERS))
@example(rows=[(n, "A1", n, FAILED, on) for n, on in enumerate(LATE)], excluded=None)
def test_judging_in_sets_is_the_rule_for_each_judgement(sqlite, rows, excluded):
    """Whatever was submitted, decided and excluded: what counts is what the rule says of each judgement alone."""
    with open_database(sqlite) as session:
        check(session, rows, excluded=excluded)


def test_judging_is_the_same_on_both_engines(project_url):
    """A worker who meets a pair again, one who fails the controls, one who is not parsed yet, and one whose page was
    dropped before they took the one that asked again; then the first worker's first page is dropped too."""
    good = (Label.YES, Label.WEAK_NO, Label.YES, Label.NO)
    rows = [
        (0, "A1", 1, good, Decision.NONE),
        (1, "A1", 2, good, Decision.NONE),
        (0, "A2", 3, (Label.NO, Label.NO, Label.NO, Label.YES), Decision.NONE),
        (2, "A3", 4, None, Decision.NONE),
        (0, "A4", 5, good, Decision.DROP),
        (0, "A4", 6, good, Decision.NONE),
    ]
    with open_database(project_url, create=True) as session:
        prepare(session)
        session.commit()
        check(session, rows)

        decided = [row.decision for row in answers.assignments(session, SANDBOX)]
        counts = [row.record.usable for row in judgements.judgements(session, SANDBOX)]
        again = answers.finding_counts(session, SANDBOX)

        answers.set_decision(session, [1], Decision.DROP)
        judge(session, SANDBOX, GoldRule())
        session.commit()
        counts_then = [row.record.usable for row in judgements.judgements(session, SANDBOX)]
        noted_then = answers.finding_counts(session, SANDBOX)
    assert decided == [
        Decision.PASS,
        Decision.PASS,
        Decision.QUEUED,
        Decision.NONE,
        Decision.DROP,
        Decision.PASS,
    ]
    assert counts == [True] * 4 + [False, True, True, True] + [False] * 4 + [False] * 4 + [True] * 4
    assert again[SAME_WORKER] == 1
    assert counts_then[:8] == [False] * 4 + [True] * 4
    assert SAME_WORKER not in noted_then, "what was answered before counts no more, so the second answer does"


def test_why_a_page_waited_is_not_noted_beside_it_once_it_passes(sqlite):
    """As when a control that it failed is withdrawn; what reading it noted stays."""
    read = Finding(parses.BAD_VALUE, "p01_ms is odd")
    with open_database(sqlite) as session:
        fill(session, [(0, "A1", 0, (Label.YES, Label.NO, Label.YES, Label.WEAK_YES), Decision.NONE)])
        (row,) = answers.assignments(session, SANDBOX)
        parses.add_all_findings(session, {row.id: [read]})
        judge(session, SANDBOX, GoldRule())
        assert len(answers.findings_of(session, [row.id])[row.id]) == 2

        judge(session, SANDBOX, GoldRule(negative=(Label.WEAK_YES, Label.WEAK_NO, Label.NO)))

        assert [one.decision for one in answers.assignments(session, SANDBOX)] == [Decision.PASS]
        assert answers.findings_of(session, [row.id])[row.id] == [read]

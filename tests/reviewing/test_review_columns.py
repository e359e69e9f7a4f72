"""Habits, gold records and counts from columns are those from records, whatever was answered, on both engines."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
import record_kit
from db_kit import pair_rows
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import update
from world_kit import SANDBOX

from mitl.core.arrays import pack_each
from mitl.db.models import Assignment
from mitl.db.session import open_database
from mitl.db.store import answers, ledger, open_work, proposals
from mitl.db.store import judgements as judgement_store
from mitl.db.store.columns import answer_columns
from mitl.db.store.control_sheets import gold_state
from mitl.judgements.conduct import (
    agreement,
    entropy_of_counts,
    first_answers,
    label_counts,
    longest_runs,
    medians_s,
)
from mitl.records import Direction, Outcome, Pair, PairRole
from mitl.records.frames import LABELS, PROPOSALS, frame
from mitl.stages.reviewing.evidence import habits

pytest_plugins = ("desk_fixtures",)

WORKERS = 4
ANSWERS = st.lists(
    st.tuples(
        st.integers(0, 9), st.integers(0, 4), st.integers(-1, 3), st.sampled_from([0, 1, 333, 4000, 4001])
    ),
    max_size=60,
).map(lambda rows: sorted(rows, key=lambda row: row[0]))
"""(page, pair, label, milliseconds), by page; a page is its worker's."""


@given(ANSWERS, st.lists(st.booleans(), min_size=WORKERS, max_size=WORKERS))
def test_columns_and_records_say_the_same_of_each_worker(rows, distrusted):
    """Time, rows of one answer, variety, agreement and consistency, to the last bit."""
    page, pair, label, ms = (np.array([row[at] for row in rows], np.int64) for at in range(4))
    worker, label = page % WORKERS, label.astype(np.int8)
    pages: dict[int, dict[int, list]] = defaultdict(lambda: defaultdict(list))
    times: dict[int, list] = defaultdict(list)
    for sheet, _, code, time in rows:
        times[sheet % WORKERS].append(time)
        if code >= 0:
            pages[sheet % WORKERS][sheet].append(LABELS[code])
    given_ = [(str(sheet % WORKERS), Pair(of, 1), LABELS[code]) for sheet, of, code, _ in rows if code >= 0]
    known = {str(who) for who in range(WORKERS) if distrusted[who]}

    medians, runs = medians_s(worker, ms), longest_runs(worker, page, label)
    counts = label_counts(worker, label, WORKERS)
    has = label >= 0
    first, own = first_answers(worker[has], pair[has], label[has])
    agreeing = agreement(first, np.array(distrusted))

    for who in range(WORKERS):
        labels = [one for sheet in pages[who].values() for one in sheet]
        assert medians.get(who) == record_kit.median_seconds(times[who])
        assert runs.get(who) == record_kit.longest_run(pages[who].values())
        assert counts[who].tolist() == [labels.count(one) for one in LABELS]
        assert entropy_of_counts(counts[who].tolist()) == pytest.approx(record_kit.entropy_bits(labels))
    assert {str(who): one for who, one in agreeing.items()} == record_kit.agreements(given_, known)
    assert {str(who): one for who, one in own.items()} == record_kit.consistency(given_)


def test_the_database_as_columns_says_what_its_records_say(restored):
    """Golds, withdrawn controls, habits, and how many pairs are open and judged."""
    with open_database(restored.db_url, read_only=True) as session:
        every = answer_columns(session, SANDBOX)
        stored = judgement_store.judgements(session, SANDBOX)
        met = gold_state(session, SANDBOX, restored.gold_rule)
        found = habits(session, SANDBOX, restored.gold_rule)
        counts = open_work.pair_counts(session, SANDBOX)
        candidates = set(proposals.candidate_pairs(session, list(Direction)))
        asked = open_work.asked_pairs(session, SANDBOX)
        judged = open_work.usable_workers(session, SANDBOX)
    records = [row.record for row in stored]
    given_ = [
        (one.worker, one.pair, one.label)
        for one in records
        if one.label is not None and one.outcome is Outcome.ANSWERED and not one.role.is_gold
    ]
    bad = {worker for worker, record in met.records.items() if record.is_bad}

    assert len(every) == len(stored) > 100
    assert every.assignment.tolist() == [row.assignment_id for row in stored]
    assert every.usable.tolist() == [one.usable for one in records]
    assert met == record_kit.gold_state(stored, restored.gold_rule)
    assert {name: one.agreement for name, one in found.of.items() if one.agreement} == record_kit.agreements(
        given_, bad
    )
    assert {
        name: one.consistency for name, one in found.of.items() if one.consistency
    } == record_kit.consistency(given_)
    assert (counts.candidates, counts.judged) == (len(candidates), len(judged))
    assert counts.open == len(candidates - asked)
    assert met.by_role[PairRole.GOLD_POSITIVE].golds > 0


def test_a_pair_that_was_there_before_it_was_proposed_becomes_a_candidate(restored):
    """Controls and past work are pairs that nothing proposed; a later run may propose them."""
    with open_database(restored.db_url) as session:
        candidates = set(proposals.candidate_pairs(session, list(Direction)))
        old = min(set(pair_rows(session)) - candidates)
        before = open_work.pair_counts(session, SANDBOX)
        name = proposals.annotators(session)[0]
        one = {"pair": pack_each([old]), "annotator": [name.name], "direction": [0], "rank": [1]}
        rows = frame(PROPOSALS, {**one, "similarity": [0.5]})
        n_new = proposals.add_run(session, "later", "{}", {}, [name], rows)
        session.flush()
        after = open_work.pair_counts(session, SANDBOX)

        assert n_new == 0
        assert after.candidates == before.candidates + 1
        assert after.candidates == len(proposals.candidate_pairs(session, list(Direction)))


def test_submissions_of_unknown_time_come_first_on_both_engines(restored):
    """Past work may come without times; where it stands among the rest hangs on no engine."""
    with open_database(restored.db_url) as session:
        *_, last = answers.assignments(session, SANDBOX)
        session.execute(update(Assignment).where(Assignment.id == last.id).values(submitted_at=None))

        assert answers.assignments(session, SANDBOX)[0].id == last.id
        assert answers.submission_columns(session, SANDBOX).id[0] == last.id

        *_, last = ledger.settled_work(session, SANDBOX)
        session.execute(update(Assignment).where(Assignment.id == last.id).values(submitted_at=None))
        assert last.id in {row.id for row in ledger.settled_work(session, SANDBOX)[:2]}

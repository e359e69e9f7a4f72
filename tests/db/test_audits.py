"""What the database keeps of audits and machine labels, and which answers of an audit count; on both engines."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest
from audit_kit import NOW, SANDBOX, add_audit, add_page, nothing_listed, some_pairs, submit
from sqlalchemy import text

from mitl.core.arrays import unpack_pairs
from mitl.db.session import open_database
from mitl.db.store import audits, open_work
from mitl.db.store.columns import judgement_columns
from mitl.records import AuditPurpose, Decision, Environment, HitState, Label, PairRole
from mitl.records.frames import LABELS, NONE, frame

YES, WEAK_YES, WEAK_NO, NO = (LABELS.index(label) for label in Label)
AUDIT, CANDIDATE = PairRole.AUDIT, PairRole.CANDIDATE


@pytest.fixture
def session(unasked_url):
    """Nothing of a test stays in the database."""
    with open_database(unasked_url) as opened:
        yield opened


def stands(session, audit) -> list[list[int]]:
    """The answers of each pair, in the order of drawing."""
    return audits.audited(session, audit.id)[["first", "second", "third"]].to_numpy().tolist()


def open_questions(session) -> list[tuple[int, int, int]]:
    """Place, wanted, out."""
    found = audits.wanted(session, SANDBOX)
    return list(found[["place", "wanted", "out"]].itertuples(index=False, name=None))


def test_a_sample_is_kept_as_it_was_drawn(session):
    """Pairs that nobody proposed get a row and stay unproposed; order, design and inclusion come back."""
    pairs = some_pairs(session, 4)[::-1].copy()
    audit = add_audit(session, pairs, recheck=[True, False, False, True])

    drawn = audits.drawn_pairs(session, audit.id)

    assert drawn["pair"].tolist() == pairs.tolist()
    assert drawn["place"].tolist() == [1, 2, 3, 4]
    assert drawn["recheck"].tolist() == [True, False, False, True]
    assert drawn["inclusion"].tolist() == [0.1] * 4
    assert audits.audits(session, SANDBOX) == [audit]
    assert audit.design.strata[0].size == 40
    assert session.execute(text("SELECT count(*) FROM pair WHERE proposed")).scalar_one() == 0
    assert audits.listed(session, audit.id).empty


def test_a_pair_is_one_row_however_often_it_is_drawn(session):
    """A further audit of the same pairs makes no further rows of pairs; each environment numbers its own."""
    pairs = some_pairs(session, 3)
    first, second = add_audit(session, pairs), add_audit(session, pairs, seed=1)
    drawn = audits.drawn_pairs(session, first.id)
    live = audits.add_audit(session, Environment.LIVE, first.design, nothing_listed(), drawn, NOW)

    assert (first.number, second.number, live.number) == (1, 2, 1)
    assert audits.audits(session, Environment.LIVE) == [live]
    assert audits.listed(session, first.id).empty
    assert session.execute(text("SELECT count(*) FROM pair")).scalar_one() == 3
    assert audits.current(session, SANDBOX, AuditPurpose.RECALL) == second


def test_a_yes_and_what_is_rechecked_want_three_answers(session):
    """A no that is not rechecked is done; a yes wants two more; a rechecked pair wants three from the start."""
    pairs = some_pairs(session, 3)
    audit = add_audit(session, pairs, recheck=[False, False, True])

    assert open_questions(session) == [(1, 1, 0), (2, 1, 0), (3, 3, 0)]

    page = add_page(session, dict.fromkeys(pairs.tolist(), AUDIT))
    submit(session, page, "w1", [Label.WEAK_YES, Label.NO, Label.NO])

    assert stands(session, audit) == [[WEAK_YES, NONE, NONE], [NO, NONE, NONE], [NO, NONE, NONE]]
    assert open_questions(session) == [(1, 2, 0), (3, 2, 0)]


def test_answers_come_in_the_order_of_submission(session):
    """Not in the order in which they were fetched; a fourth answer is not read."""
    (pair,) = some_pairs(session, 1).tolist()
    audit = add_audit(session, [pair], recheck=[True])
    for worker, minute, label in (
        ("c", 9, Label.NO),
        ("a", 1, Label.YES),
        ("b", 5, Label.WEAK_NO),
        ("d", 11, Label.NO),
    ):
        submit(session, add_page(session, {pair: AUDIT}), worker, [label], minute=minute)

    assert stands(session, audit) == [[YES, WEAK_NO, NO]]
    answers = audits.audit_answers(session, audit.id)
    assert answers["worker"].tolist() == ["a", "b", "c"]
    assert answers["number"].tolist() == [1, 2, 3]
    assert open_questions(session) == []


@pytest.mark.parametrize("decision", [Decision.DROP, Decision.REJECT, Decision.APPROVE_EXCLUDE])
def test_an_answer_that_cannot_be_used_is_asked_again(session, decision):
    """However its page was thrown away; nothing of the pair is dropped."""
    (pair,) = some_pairs(session, 1).tolist()
    audit = add_audit(session, [pair])
    submit(session, add_page(session, {pair: AUDIT}), "w1", [Label.YES], decision=decision)

    assert stands(session, audit) == [[NONE, NONE, NONE]]
    assert open_questions(session) == [(1, 1, 0)]


def test_a_skipped_pair_is_asked_again(session):
    """A page that passed and left the pair out answers nothing."""
    (pair,) = some_pairs(session, 1).tolist()
    add_audit(session, [pair])
    submit(session, add_page(session, {pair: AUDIT}), "w1", [None])

    assert open_questions(session) == [(1, 1, 0)]


def test_who_answered_the_pair_before_or_after_does_not_count(session):
    """One worker gives one answer, and none where the pair was asked of them as a candidate, whenever that was."""
    twice, known = some_pairs(session, 2).tolist()
    audit = add_audit(session, [twice, known], recheck=[True, False])
    submit(session, add_page(session, {twice: AUDIT}), "w1", [Label.YES], minute=1)
    submit(session, add_page(session, {twice: AUDIT}), "w1", [Label.NO], minute=2)
    submit(session, add_page(session, {known: AUDIT}), "w2", [Label.NO], minute=3)
    assert stands(session, audit) == [[YES, NONE, NONE], [NO, NONE, NONE]]

    submit(session, add_page(session, {known: CANDIDATE}), "w2", [Label.NO], minute=4, decision=Decision.DROP)

    assert stands(session, audit) == [[YES, NONE, NONE], [NONE, NONE, NONE]]
    assert open_questions(session) == [(1, 2, 0), (2, 1, 0)]


def test_an_answer_that_came_before_the_draw_is_none(session):
    """A sample that is drawn of pairs whose answers are known, as those of an audit that is void, asks them again."""
    (pair,) = some_pairs(session, 1).tolist()
    add_audit(session, [pair])
    submit(session, add_page(session, {pair: AUDIT}), "w1", [Label.YES], minute=1)

    audit = add_audit(session, [pair], seed=1, now=NOW + dt.timedelta(minutes=5))

    assert stands(session, audit) == [[NONE, NONE, NONE]]
    assert open_questions(session) == [(1, 1, 0)]
    assert not audits.has_answers(session, audit.id)
    submit(session, add_page(session, {pair: AUDIT}), "w1", [Label.NO], minute=6)
    assert stands(session, audit) == [[NO, NONE, NONE]]


def test_answers_to_a_sample_count_whatever_the_clock_said_when_it_was_drawn(session):
    """One that ran ahead was set right before people answered; an earlier audit asked about other pairs."""
    one, other = some_pairs(session, 2).tolist()
    add_audit(session, [other])
    audit = add_audit(session, [one], seed=1, now=NOW + dt.timedelta(days=1))
    submit(session, add_page(session, {one: AUDIT}), "w1", [Label.NO], minute=1)

    assert stands(session, audit) == [[NO, NONE, NONE]]
    assert audits.has_answers(session, audit.id)
    assert open_questions(session) == []


def test_what_is_out_is_told_from_what_is_to_be_posted(session):
    """A page that is out or waits for a person holds its answers; what was decided about does not."""
    (pair,) = some_pairs(session, 1).tolist()
    add_audit(session, [pair], recheck=[True])
    add_page(session, {pair: AUDIT}, state=HitState.PLANNED)
    queued = add_page(session, {pair: AUDIT}, state=HitState.POSTED)
    submit(session, queued, "w1", [Label.NO], decision=Decision.QUEUED)
    assert open_questions(session) == [(1, 3, 2)]

    dropped = add_page(session, {pair: AUDIT}, state=HitState.POSTED)
    submit(session, dropped, "w2", [Label.NO], decision=Decision.DROP)
    assert open_questions(session) == [(1, 3, 2)]


def test_a_control_or_another_role_answers_no_audit(session):
    """The label of a pair that stood as a control says nothing, and does not keep that worker from the audit."""
    (pair,) = some_pairs(session, 1).tolist()
    audit = add_audit(session, [pair])
    submit(session, add_page(session, {pair: PairRole.GOLD_POSITIVE}), "w1", [Label.YES])
    assert stands(session, audit) == [[NONE, NONE, NONE]]

    submit(session, add_page(session, {pair: AUDIT}), "w1", [Label.NO], minute=1)
    assert stands(session, audit) == [[NO, NONE, NONE]]


def test_a_sample_for_labels_reads_what_was_asked_as_a_candidate(session):
    """And wants nothing of the audit's own places."""
    (pair,) = some_pairs(session, 1).tolist()
    audit = add_audit(session, [pair], purpose=AuditPurpose.LABELS)
    submit(session, add_page(session, {pair: AUDIT}), "w1", [Label.YES])
    assert not audits.has_answers(session, audit.id)
    submit(session, add_page(session, {pair: CANDIDATE}), "w2", [Label.NO], minute=1)

    assert stands(session, audit) == [[NO, NONE, NONE]]
    assert audits.has_answers(session, audit.id)
    assert open_questions(session) == []
    assert len(audits.drawn_for_labels(session, SANDBOX)) == 1


def test_other_queries_make_another_pool(session):
    """An audit of the pool before is kept, and nothing of it is asked any more."""
    pairs = some_pairs(session, 2)
    audit = add_audit(session, pairs)
    assert audits.current(session, SANDBOX, AuditPurpose.RECALL) == audit

    session.execute(text("INSERT INTO run (hash, config) VALUES ('h', '{}')"))
    session.execute(text("INSERT INTO query (run_id, direction, item_id) SELECT id, 'i2t', 1 FROM run"))

    assert audits.current(session, SANDBOX, AuditPurpose.RECALL) is None
    assert audits.audits(session, SANDBOX) == [audit]
    assert open_questions(session) == []


def test_shares_of_workers_are_of_the_answers_that_count(session):
    """Largest first; what does not count makes nobody's share larger."""
    pairs = some_pairs(session, 3).tolist()
    audit = add_audit(session, pairs)
    submit(session, add_page(session, dict.fromkeys(pairs[:2], AUDIT)), "busy", [Label.NO, Label.NO])
    submit(session, add_page(session, dict.fromkeys(pairs[2:], AUDIT)), "other", [Label.NO])
    submit(session, add_page(session, dict.fromkeys(pairs[2:], AUDIT)), "late", [Label.NO], minute=5)

    # The late answer is a second one on a pair that wants one: it is stored, and no more than the first is read.
    shares = audits.worker_shares(session, audit.id)
    assert next(iter(shares)) == "busy"
    assert shares["busy"] == pytest.approx(2 / 3)


def test_machine_labels_stand_until_they_are_withdrawn(session):
    """The newest run alone is read; taken back, its labels are kept and not read."""
    pairs = np.sort(some_pairs(session, 3))
    audit = add_audit(session, pairs[:1], purpose=AuditPurpose.LABELS)

    def labels(values):
        given = {"pair": pairs[1:], "label": values, "probability": [0.9, 0.1], "stratum": ["a", "b"]}
        return frame(audits.MACHINE_LABELS, given)

    audits.add_labelling(session, SANDBOX, audit.id, "{}", labels([YES, NO]), NOW)
    audits.add_labelling(session, SANDBOX, audit.id, "{}", labels([YES, WEAK_NO]), NOW + dt.timedelta(1))
    found = audits.machine_labels(session, SANDBOX)

    assert found["pair"].tolist() == pairs[1:].tolist()
    assert found["label"].tolist() == [YES, WEAK_NO]
    assert found["stratum"].tolist() == ["a", "b"]
    assert audits.withdraw(session, SANDBOX, NOW) == 2
    assert audits.machine_labels(session, SANDBOX).empty
    assert [row.withdrawn_at for row in audits.labellings(session, SANDBOX)] == [NOW, NOW]
    assert session.execute(text("SELECT count(*) FROM machine_label")).scalar_one() == 4


def test_labels_that_were_replaced_stand_again_where_those_that_replaced_them_are_taken_back(session):
    """Not where a person took labels back, nor those of other times."""
    pairs = np.sort(some_pairs(session, 2))
    audit = add_audit(session, pairs[:1], purpose=AuditPurpose.LABELS)
    times = [NOW + dt.timedelta(hours=hour) for hour in range(6)]

    def give(label, at):
        audits.withdraw(session, SANDBOX, at)
        given = {"pair": pairs[1:], "label": [label], "probability": [0.9], "stratum": ["a"]}
        audits.add_labelling(session, SANDBOX, audit.id, "{}", frame(audits.MACHINE_LABELS, given), at)

    def stand():
        return audits.machine_labels(session, SANDBOX)["label"].tolist()

    give(YES, times[0])
    assert audits.take_back(session, SANDBOX, times[1], times[2], times[2]) == (0, 0)
    assert stand() == [YES]
    give(NO, times[2])
    give(WEAK_NO, times[4])
    assert audits.take_back(session, SANDBOX, times[1], times[3], times[5]) == (1, 1)
    assert stand() == [YES]
    give(NO, times[5])
    audits.withdraw(session, SANDBOX, times[5])
    assert audits.take_back(session, SANDBOX, times[5], times[5], times[5]) == (0, 0)
    assert stand() == []


def test_a_page_of_audit_questions_is_asked_again_as_far_as_they_are_wanted(session):
    """Its questions keep with the HIT that replaces it; those of a page that was fine are open by themselves."""
    pairs = some_pairs(session, 3).tolist()
    add_audit(session, pairs)
    failed = add_page(session, dict.fromkeys(pairs[:2], AUDIT))
    submit(session, failed, "w1", [Label.YES, Label.NO], decision=Decision.REJECT)
    fine = add_page(session, {pairs[2]: AUDIT})
    submit(session, fine, "w2", [Label.YES], minute=1)

    (again,) = open_work.hits_to_replace(session, SANDBOX)

    assert again.hit.id == failed
    assert (again.pairs, again.missing) == ((), 1)
    assert again.audits == tuple(unpack_pairs(np.array(pairs[:2])))
    assert audits.open_questions(session, SANDBOX) == dict(
        zip(unpack_pairs(np.array(pairs)), (1, 1, 2), strict=True)
    )
    assert open_work.asked_pairs(session, SANDBOX) == set()


def test_what_one_failed_page_asks_again_another_does_not(session):
    """A pair that wants one answer is asked again once, however many pages of it failed."""
    (pair,) = some_pairs(session, 1).tolist()
    add_audit(session, [pair])
    for worker in ("w1", "w2"):
        submit(session, add_page(session, {pair: AUDIT}), worker, [Label.YES], decision=Decision.DROP)

    assert len(open_work.hits_to_replace(session, SANDBOX)) == 1


def test_machine_labels_and_audits_leave_the_counts_of_pairs_as_they_are(session):
    """An audit's answer judges no pair; a machine's label closes one and judges none."""
    pairs = np.sort(some_pairs(session, 3))
    audit = add_audit(session, pairs)
    submit(session, add_page(session, {int(pairs[0]): AUDIT}), "w1", [Label.YES])
    session.execute(text("UPDATE pair SET proposed = true"))
    given = {"pair": pairs[2:], "label": [YES], "probability": [0.9], "stratum": ["a"]}
    audits.add_labelling(session, SANDBOX, audit.id, "{}", frame(audits.MACHINE_LABELS, given), NOW)

    counts = open_work.pair_counts(session, SANDBOX)

    assert (counts.candidates, counts.open, counts.judged) == (3, 2, 0)
    assert open_work.asked_pairs(session, SANDBOX) == set(unpack_pairs(pairs[2:]))
    assert judgement_columns(session, SANDBOX).empty


def test_a_sample_is_held_against_its_design(session):
    """What was drawn is as designed until somebody moves a pair, adds one or changes a probability."""
    add_audit(session, some_pairs(session, 3))
    assert audits.against_design(session) == 0

    session.execute(text("UPDATE audit_pair SET inclusion = 0.2 WHERE place = 2"))

    assert audits.against_design(session) == 1


def test_a_design_that_cannot_be_read_is_counted(session):
    """What somebody wrote into the database by hand is found, and nothing else stops."""
    add_audit(session, some_pairs(session, 3))
    session.execute(text("UPDATE audit SET design = 'no JSON'"))
    session.expire_all()

    assert audits.against_design(session) == 1

"""What is open: a page that was asked again counts with the pages that it replaced, whatever became of these since."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest
from audit_kit import NOW, SANDBOX, add_audit, add_page, some_pairs, submit
from sqlalchemy import text
from suite_kit import examples

from mitl.core.arrays import unpack_pairs
from mitl.db.session import open_database
from mitl.db.store import audits, hits, items, open_work
from mitl.records import AuditPurpose, Decision, Exclusion, ExclusionKind, HitState, Label, PairRole
from mitl.records.frames import frame

YES, NO = Label.YES, Label.NO


@pytest.fixture
def session(unasked_url):
    """Nothing of a test stays in the database."""
    with open_database(unasked_url) as opened:
        yield opened


def ask_again(session, replaced, roles):
    """A HIT of one worker that replaces another HIT."""
    hit = add_page(session, roles)
    session.execute(text(f"UPDATE hit SET replaces_id = {replaced}, attempt = 2 WHERE id = {hit}"))
    return hit


def lose(session, *submissions):
    """As if a person had dropped them, or excluded their workers."""
    for id_ in submissions:
        session.execute(text(f"UPDATE judgement SET usable = false WHERE assignment_id = {id_}"))


def wanted(session):
    """HIT, workers and pairs of what is to be asked again."""
    return [
        (again.hit.id, again.missing, again.pairs) for again in open_work.hits_to_replace(session, SANDBOX)
    ]


def test_who_is_lost_after_a_page_was_asked_again_is_replaced_too(session):
    """Of three workers one is dropped and replaced; then another one's answers stop to count, on the first page."""
    first, second = some_pairs(session, 2).tolist()
    pairs = tuple(unpack_pairs(some_pairs(session, 2)))
    page = add_page(session, dict.fromkeys((first, second), PairRole.CANDIDATE), assignments=3)
    session.execute(text("UPDATE batch SET assignments = 3"))
    submit(session, page, "w1", [YES, NO], decision=Decision.DROP)
    lost = submit(session, page, "w2", [YES, NO])
    submit(session, page, "w3", [YES, NO])
    assert wanted(session) == [(page, 1, pairs)]
    again = ask_again(session, page, dict.fromkeys((first, second), PairRole.CANDIDATE))
    submit(session, again, "w4", [YES, NO])
    assert wanted(session) == []

    lose(session, lost)

    assert wanted(session) == [(again, 1, pairs)]


def test_a_second_opinion_that_is_lost_after_its_page_was_asked_again_is_replaced_too(session):
    """The pair whose second opinion stood is not on the new page; when it stands no more, it is asked again as well."""
    first, second = some_pairs(session, 2).tolist()
    submit(session, add_page(session, dict.fromkeys((first, second), PairRole.CANDIDATE)), "w1", [YES, NO])
    page = add_page(session, dict.fromkeys((first, second), PairRole.OVERLAP))
    kept = submit(session, page, "w2", [None, NO])
    submit(session, ask_again(session, page, {first: PairRole.OVERLAP}), "w3", [YES])
    assert wanted(session) == []

    lose(session, kept)

    ((_, missing, pairs),) = wanted(session)
    assert (missing, pairs) == (1, tuple(unpack_pairs(some_pairs(session, 2)[1:])))


def test_a_page_for_fewer_workers_than_its_batch_wants_lacks_the_others(session):
    """Also where no page anywhere was for more."""
    pair = some_pairs(session, 1)
    page = add_page(session, dict.fromkeys(pair.tolist(), PairRole.CANDIDATE))
    submit(session, page, "w1", [YES])
    assert wanted(session) == []

    session.execute(text("UPDATE batch SET assignments = 2"))

    assert wanted(session) == [(page, 1, tuple(unpack_pairs(pair)))]


def draw_world(session, rng):
    """Pages in every role and state, some asked again, with answers, an audit, machine labels and exclusions."""
    pool = some_pairs(session, 14)
    roles = rng.permutation(
        [PairRole.CANDIDATE] * 8 + [PairRole.OVERLAP] * 2 + [PairRole.AUDIT, PairRole.REPEAT]
    )
    if rng.random() < 0.6:
        add_audit(session, np.sort(rng.choice(pool, 4, replace=False)))
    if rng.random() < 0.4:
        labelled = np.sort(rng.choice(pool, 4, replace=False))
        audit = add_audit(session, labelled[:2], purpose=AuditPurpose.LABELS)
        given = {"pair": labelled[2:], "label": [0, 3], "probability": [0.9, 0.1], "stratum": [0, 0]}
        audits.add_labelling(session, SANDBOX, audit.id, "{}", frame(audits.MACHINE_LABELS, given), NOW)
    again, enough = [], int(rng.integers(1, 4))
    for _ in range(rng.integers(4, 12)):
        kind = rng.choice(4, p=(0.6, 0.2, 0.1, 0.1))
        allowed = (
            [PairRole.CANDIDATE, PairRole.AUDIT],
            [PairRole.OVERLAP],
            [PairRole.AUDIT],
            roles.tolist(),
        )[kind]
        chosen = rng.choice(pool, rng.integers(1, 6), replace=False).tolist()
        page = {pair: allowed[rng.integers(len(allowed))] for pair in chosen}
        state = HitState.CLOSED if rng.random() < 0.8 else rng.choice([HitState.POSTED, HitState.PLANNED])
        replaced = again.pop(rng.integers(len(again))) if again and rng.random() < 0.3 else None
        wanted = enough if replaced is None else int(rng.integers(1, enough + 1))
        hit = add_page(session, page, state=HitState(state), assignments=wanted)
        session.execute(text(f"UPDATE hit SET replaces_id = {replaced or 'NULL'} WHERE id = {hit}"))
        again.append(hit)
        for worker in rng.choice(6, rng.integers(0, 4), replace=False).tolist():
            labels = [None if rng.random() < 0.2 else YES for _ in page]
            decision = Decision.PASS if rng.random() < 0.7 else Decision.DROP
            submit(session, hit, f"w{worker}", labels, decision=decision)
    session.execute(text(f"UPDATE batch SET assignments = {enough}"))
    if rng.random() < 0.3:
        images, captions = items.names(session, 1)
        wrong = unpack_pairs(pool[:1])[0]
        left = Exclusion(ExclusionKind.WRONG, images[wrong.image_id], captions[wrong.caption_id], "no", "us")
        items.add_exclusions(session, items.dataset(session).id, [left])


def plain_rule(session):
    """What `hits_to_replace` says, page by page, from every row."""
    enough = {row.id: row.assignments for row in hits.batches(session, SANDBOX)}
    before, pages = (
        hits.replaced_by(session),
        hits.hit_items(session, list(session.scalars(text("SELECT id FROM hit")))),
    )
    used, second, wants = defaultdict(set), set(), audits.open_questions(session, SANDBOX)
    usable = "SELECT a.hit_id, j.place, a.id FROM judgement j JOIN assignment a ON a.id = j.assignment_id WHERE usable"
    for hit, place, submission in session.execute(text(usable)):
        item = pages[hit][place - 1]
        if item.role in (PairRole.CANDIDATE, PairRole.AUDIT):
            used[hit].add(submission)
        if item.role is PairRole.OVERLAP:
            second.add(item.pair)
    workers, live = open_work.usable_workers(session, SANDBOX), open_work.live_pairs(session, SANDBOX)
    taken = set(unpack_pairs(audits.machine_labels(session, SANDBOX)["pair"].to_numpy()))
    found = []
    for hit in hits.latest_hits(session, SANDBOX, (HitState.CLOSED,)):
        tries, wanted = [hit.id, *before.get(hit.id, ())], enough[hit.batch_id]
        is_second = any(item.role is PairRole.OVERLAP for item in pages[hit.id])
        missing = max(hit.assignments - len(used[hit.id]), wanted - sum(len(used[id_]) for id_ in tries))
        asking = PairRole.OVERLAP if is_second else PairRole.CANDIDATE
        asked = dict.fromkeys(item.pair for id_ in tries for item in pages[id_] if item.role is asking)
        out = open_work.left_out_of(session, SANDBOX, asked)
        pairs = tuple(
            pair
            for pair in asked
            if pair not in out
            and (
                pair not in second
                if is_second
                else workers.get(pair, 0) - (pair in second) < wanted
                and pair not in live
                and pair not in taken
            )
        )
        questions = tuple(
            item.pair for item in pages[hit.id] if item.role is PairRole.AUDIT and wants[item.pair] > 0
        )
        missing = 1 if is_second else missing
        if (pairs or questions) and missing > 0:
            taken |= set(pairs)
            wants.subtract(dict.fromkeys(questions, missing))
            found.append(open_work.HitToReplace(hit, missing, pairs, questions))
    return found


def test_what_is_asked_again_is_what_page_after_page_lacks(session):
    """Random worlds: what is reckoned for all pages together is what a look at one after the other finds."""
    rng, met = np.random.default_rng(0), Counter()
    for _ in range(examples(8, 16)):
        draw_world(session, rng)
        found = open_work.hits_to_replace(session, SANDBOX)
        assert found == plain_rule(session)
        for again in found:
            met += Counter(pairs=bool(again.pairs), audits=bool(again.audits), more=again.missing > 1)
        session.rollback()
    assert min(met[what] for what in ("pairs", "audits", "more")) > 2

"""Audit questions on their way through a campaign: posted blind among candidates, asked again, read by nothing else."""

from __future__ import annotations

import filecmp
import hashlib
import shutil
import sqlite3
from collections import Counter, defaultdict
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from audit_kit import NOW
from audit_kit import add_audit as store_audit
from harvest_kit import in_pipeline
from publish_kit import SamePeople
from sqlalchemy import text
from world_kit import SANDBOX, make_world, run_propose, run_publish

from mitl.campaign.kinds.pairs.controls import draw_controls
from mitl.campaign.kinds.pairs.planning import Campaign, make_plan
from mitl.campaign.posting import HitTypes
from mitl.campaign.publish import publish
from mitl.campaign.validating import ValidatingClient, ValidatingTransport
from mitl.core.arrays import pack_pairs, unpack_pairs
from mitl.crowd.context import open_context
from mitl.db.session import open_database
from mitl.db.store import audits, open_work, proposals
from mitl.db.store import hits as hit_store
from mitl.db.store.answers import worker_loads
from mitl.errors import CrowdError
from mitl.hits.templates import load_template
from mitl.judgements.aggregators import Aggregator
from mitl.positives.merging import MergeRules
from mitl.records import AuditPurpose, Direction, HitState, PairRole
from mitl.records.frames import LABELS, MACHINE_LABELS, frame
from mitl.settings import Settings, load
from mitl.stages.analysing.analyse import analyse
from mitl.stages.fusing.gathering import answered
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.ending import expire
from mitl.stages.hits.simulate import simulate
from mitl.stages.releasing.build_dataset import ReleaseOptions, build_dataset
from mitl.stages.reporting.status import status
from mitl.stages.reviewing.review import settle

AUDIT, CANDIDATE = PairRole.AUDIT, PairRole.CANDIDATE
MET = ("met_questions", "met_hits", "hits_kept_off", "people_left")


@pytest.fixture(scope="module")
def proposed(tmp_path_factory) -> Path:
    """A project whose candidates nobody was asked yet."""
    settings = make_world(tmp_path_factory.mktemp("audited") / "p", n_images=20)
    run_propose(settings, image_queries=4, caption_queries=6)
    return settings.project


@pytest.fixture
def settings(proposed, tmp_path) -> Settings:
    """A copy of it."""
    shutil.copytree(proposed, tmp_path / "p")
    return replace(load(tmp_path / "p", environ={}), endpoint=None)


def candidates(settings: Settings) -> list[int]:
    with open_database(settings.db_url, read_only=True) as session:
        return pack_pairs(proposals.candidate_pairs(session, tuple(Direction))).tolist()


def drawn(settings: Settings, pairs, **given) -> None:
    """A sample of these pairs, as if it had been drawn."""
    with open_database(settings.db_url) as session:
        store_audit(session, pairs, **given)
        session.commit()


def pages(settings: Settings, batch: str = "b1") -> dict[int, list]:
    """What stands on the HITs of a batch, by number and attempt."""
    with open_database(settings.db_url, read_only=True) as session:
        hits = [hit for hit in hit_store.hits(session, SANDBOX, tuple(HitState)) if hit.batch == batch]
        items = hit_store.hit_items(session, [hit.id for hit in hits])
        return {(hit.number, hit.attempt): items[hit.id] for hit in hits}


def asked(settings: Settings, role: PairRole, batch: str = "b1") -> Counter:
    found = (item.pair for page in pages(settings, batch).values() for item in page if item.role is role)
    return Counter(pack_pairs([pair])[0] for pair in found)


def answer(settings: Settings, population: str = "careful", **given) -> None:
    simulate(settings, SANDBOX, population=population, **given)
    harvest(settings, SANDBOX)
    settle(settings, SANDBOX)


def wanted(settings: Settings) -> dict[int, int]:
    with open_database(settings.db_url, read_only=True) as session:
        found = audits.wanted(session, SANDBOX)
        return dict(zip(found["pair"].tolist(), found["wanted"].tolist(), strict=True))


def test_audit_questions_stand_among_candidates(settings):
    """On ordinary pages with their controls; a pair is asked as a candidate and for the audit, on two pages."""
    known = candidates(settings)
    drawn(settings, known[:20])

    posted = run_publish(settings)

    assert posted.counts["audit_questions"] == 20
    assert posted.counts["pairs"] == len(known)
    assert asked(settings, AUDIT) == Counter(known[:20])
    assert asked(settings, CANDIDATE) == Counter(known)
    for page in pages(settings).values():
        roles = Counter(item.role for item in page)
        assert roles[PairRole.GOLD_POSITIVE] == roles[PairRole.GOLD_NEGATIVE] == 1
        assert roles[AUDIT]
        assert len({item.pair for item in page}) == len(page)
    assert run_publish(settings).status == "nothing_to_do"


def test_a_dry_run_and_the_bill_say_how_many_questions_are_an_audits(settings, capsys):
    """Before a cent is spent; where there is none, neither says a word."""

    def bill(**given):
        lines: list[str] = []
        found = publish(
            settings,
            Campaign(SANDBOX, **given),
            confirm=lambda total: True,
            dry_run=True,
            announce=lines.append,
        )
        return found.counts["audit_questions"], [line for line in lines if "audit" in line]

    assert bill() == (0, [])
    drawn(settings, candidates(settings)[:7])
    count, (line,) = bill()
    assert count == 7
    assert line.split()[:2] == ["audit", "7"]
    assert bill(drawn=True)[0] == 7


def test_a_pair_that_wants_three_answers_stands_on_three_pages(settings):
    """Also where nothing else is posted beside it."""
    known = candidates(settings)
    drawn(settings, known[:5], recheck=[True] * 5)

    run_publish(settings, drawn=True)

    found = pages(settings)
    assert len(found) == 3
    assert asked(settings, AUDIT) == Counter(dict.fromkeys(known[:5], 3))
    assert not asked(settings, CANDIDATE)


def test_several_workers_of_one_page_are_several_answers(settings):
    """With three workers a page, a pair that wants three answers stands on one."""
    known = candidates(settings)
    drawn(settings, known[:5], recheck=[True] * 5)

    run_publish(settings, drawn=True, assignments=3)

    assert asked(settings, AUDIT) == Counter(known[:5])
    assert wanted(settings) == dict.fromkeys(known[:5], 3)
    assert run_publish(settings, drawn=True).status == "nothing_to_do"


def test_a_limit_keeps_the_proportion_and_the_order_of_drawing(settings):
    """Of what waits, audit questions are on the pages in their share, the first drawn first."""
    known = candidates(settings)
    sample = known[::-1][: len(known) // 2]
    drawn(settings, sample)

    run_publish(settings, limit=36)

    n_audit = asked(settings, AUDIT).total()
    assert n_audit + asked(settings, CANDIDATE).total() == 36
    assert n_audit == 12
    assert set(asked(settings, AUDIT)) == set(sample[:12])
    assert run_publish(settings, limit=36).status == "nothing_to_do"


def test_a_pilot_holds_as_many_hits_as_it_says(settings):
    """Audit questions among them."""
    drawn(settings, candidates(settings)[:30])

    run_publish(settings, pilot=2)

    assert len(pages(settings)) == 2
    assert asked(settings, AUDIT).total() + asked(settings, CANDIDATE).total() == 36
    assert asked(settings, AUDIT)


def test_pairs_that_nobody_proposed_are_asked_too(settings):
    """They get no proposal by that, and are no candidate afterwards."""
    known = set(candidates(settings))
    with open_database(settings.db_url, read_only=True) as session:
        images, captions = (
            [row[0] for row in session.execute(text(f"SELECT id FROM item WHERE side_id = {side}"))]
            for side in (1, 2)
        )
    rest = [pair for image in images for pair in [(image << 32) + captions[0]] if pair not in known][:6]
    drawn(settings, rest)

    run_publish(settings)
    answer(settings)

    assert asked(settings, AUDIT) == Counter(rest)
    assert set(candidates(settings)) == known
    assert status(settings, SANDBOX).counts["pairs"] == len(known)
    assert not wanted(settings).keys() & set(rest) or set(wanted(settings).values()) == {2}


def test_an_audit_page_that_fails_is_asked_again_in_its_role(settings):
    """With other controls, on the replacing HIT; and so until it is answered."""
    known = candidates(settings)
    drawn(settings, known[:9])
    run_publish(settings, drawn=True)
    before = pages(settings)
    answer(settings, "random", hits_per_worker=1)
    assert wanted(settings) == dict.fromkeys(known[:9], 1)

    again = run_publish(settings, drawn=True)

    assert again.counts["hits_again"] == 1
    page = pages(settings)[1, 2]
    assert {item.pair for item in page if item.role is AUDIT} == set(unpack_pairs(np.array(known[:9])))
    golds = {
        attempt: {item.pair for item in found if item.role.is_gold}
        for attempt, found in ((1, before[1, 1]), (2, page))
    }
    assert not golds[1] & golds[2]


def test_a_hit_that_is_asked_again_is_not_counted_to_the_new_batch(settings):
    """It stays in its own: the new batch has one HIT fewer than were posted."""
    drawn(settings, candidates(settings)[:9])
    run_publish(settings, drawn=True)
    answer(settings, "random", hits_per_worker=1)

    both = run_publish(settings)

    count = both.counts["hits_posted"]
    assert (both.counts["hits_again"], both.counts["batch"]) == (1, "b2") and count > 1
    assert both.lines[0] == f"posted {count} / {count} HITs, {count - 1} of them as batch b2"


def test_audit_questions_that_nobody_answered_are_asked_again_at_a_corrected_reward(settings):
    """In their role, on a page of a new batch; the audit wants the same answers, and gets them."""
    known = candidates(settings)
    drawn(settings, known[:12])
    run_publish(settings, drawn=True, reward_cents=2)
    expire(settings, [], SANDBOX)
    harvest(settings, SANDBOX)

    again = run_publish(settings, drawn=True, reward_cents=20)

    assert again.lines[1] == "what is asked again at another reward is of batch b2"
    assert asked(settings, AUDIT, "b2") == asked(settings, AUDIT) == Counter(known[:12])
    assert wanted(settings) == dict.fromkeys(known[:12], 1)
    answer(settings)
    assert set(wanted(settings).values()) == {2}  # where the answer is a match


def test_a_yes_goes_to_two_other_workers_until_the_audit_is_complete(settings):
    """Whoever answers: pages that fail are asked again, and one worker gives one answer on a pair."""
    known = candidates(settings)
    drawn(settings, known[:12])
    for _ in range(12):
        run_publish(settings, drawn=True)
        answer(settings, "mixed", hits_per_worker=2)
        if not wanted(settings):
            break

    with open_database(settings.db_url, read_only=True) as session:
        (audit,) = audits.audits(session, SANDBOX)
        stands = audits.audited(session, audit.id)
        by = audits.audit_answers(session, audit.id)
    matches = np.array([label.is_positive for label in LABELS])[stands["first"]]
    assert (stands["first"] >= 0).all()
    assert matches.any()
    assert ((stands["third"] >= 0) == matches).all()
    workers = defaultdict(list)
    for pair, worker in zip(by["pair"], by["worker"], strict=True):
        workers[pair].append(worker)
    assert all(len(set(names)) == len(names) for names in workers.values())


def test_nobody_is_offered_a_page_of_an_audit_on_which_no_answer_of_theirs_counts(settings):
    """The same two people are not paid again and again for what wants a third: a page waits for whoever may answer."""
    known = candidates(settings)[:5]
    drawn(settings, known, recheck=[True] * 5)
    first = run_publish(settings, drawn=True)
    crowd = SamePeople(settings)
    crowd.join(2)
    assert crowd.work() == 3
    assert set(wanted(settings).values()) == {1}

    tried = publish(settings, Campaign(SANDBOX, drawn=True), confirm=lambda total: True, dry_run=True)
    rest = run_publish(settings, drawn=True)

    assert ([first.counts[name] for name in MET], first.warnings) == ([0, 0, 0, None], ())
    assert [rest.counts[name] for name in MET] == [5, 1, 1, 0]
    assert [tried.counts[name] for name in MET] == [5, 1, 1, 0] and tried.warnings == rest.warnings
    (warning,) = rest.warnings
    assert "none of the 2 people so far" in warning and "mitl crowd invite" in warning
    with open_database(settings.db_url, read_only=True) as session:
        people = " ".join(sorted(load.worker for load in worker_loads(session, SANDBOX)))
    assert people
    with closing(sqlite3.connect(settings.project / "crowd.db")) as database:
        query = "SELECT name FROM qualification_type WHERE name LIKE '% met %'"
        ((name,),) = database.execute(query).fetchall()
    guesses = [people, f"{settings.project_id} {people}"]
    assert not any(hashlib.sha256(guess.encode()).hexdigest()[:16] in name for guess in guesses)
    assert crowd.work() == 0
    crowd.join(1)
    assert crowd.work() == 1
    assert not wanted(settings)


@pytest.mark.parametrize(
    ("code", "is_told"),
    [
        ("AWS.MechanicalTurk.InvalidParameterValue", False),
        ("ThrottlingException", True),
        ("AccessDeniedException", True),
        (None, True),
    ],
)
def test_a_page_is_posted_to_whom_the_server_cannot_keep_away_and_to_nobody_for_its_troubles(
    settings, code, is_told
):
    """Only its refusal of this very worker lets them be paid in vain."""

    class Refusing(ValidatingTransport):
        def call(self, operation, read, **parameters):
            if operation == "associate_qualification_with_worker":
                error = CrowdError("not this one")
                error.code = code
                raise error
            return super().call(operation, read, **parameters)

    with (
        pytest.raises(CrowdError, match="not this one") if is_told else nullcontext(),
        ValidatingClient(Refusing()) as client,
    ):
        HitTypes(client, settings).of(load_template("pairs-plain"), 50, frozenset({"w1"}))


def test_an_interrupted_run_is_completed_with_its_audit_questions(settings):
    """What it planned is posted, and nothing of it is planned twice."""
    known = candidates(settings)
    drawn(settings, known[:20])
    run_publish(settings)
    before = pages(settings)
    in_pipeline(settings, "UPDATE hit SET state = 'planned', mturk_hit_id = NULL WHERE number > 2")

    run_publish(settings)

    assert pages(settings) == before
    assert run_publish(settings).status == "nothing_to_do"
    assert asked(settings, AUDIT) == Counter(known[:20])


def test_what_is_drawn_for_labels_is_asked_first_and_as_candidates(settings):
    """Under a limit before all others; alone where that is asked for."""
    known = candidates(settings)
    sample = known[::-1][:10]
    drawn(settings, sample, purpose=AuditPurpose.LABELS)

    run_publish(settings, drawn=True)

    assert asked(settings, CANDIDATE) == Counter(sample)
    run_publish(settings, limit=18, template="pairs-plain")
    assert not asked(settings, CANDIDATE, "b2").keys() & set(sample)


def test_drawn_pairs_on_lost_pages_fill_new_pages_together(settings):
    """A page costs the same however few pairs stand on it; the rest of the lost pages is asked again later."""
    run_publish(settings, limit=54)
    answer(settings, "random")
    with open_database(settings.db_url, read_only=True) as session:
        lost = {hit.hit.id: hit.pairs for hit in open_work.hits_to_replace(session, SANDBOX)}
    sample = [pack_pairs([pair])[0] for pairs in lost.values() for pair in pairs[:4]]
    drawn(settings, sample, purpose=AuditPurpose.LABELS)

    posted = run_publish(settings, drawn=True).counts

    assert len(lost) > 1 and (posted["hits_posted"], posted["hits_again"]) == (1, 0)
    assert asked(settings, CANDIDATE, "b2") == Counter(sample)
    assert run_publish(settings).counts["hits_again"] == len(lost)


def test_a_limit_asks_first_what_is_drawn_for_labels(settings):
    """Among others that fill the page."""
    known = candidates(settings)
    sample = known[::-1][:10]
    drawn(settings, sample, purpose=AuditPurpose.LABELS)

    run_publish(settings, limit=18)

    assert set(sample) < set(asked(settings, CANDIDATE))


def test_a_machine_label_closes_a_candidate_until_it_is_withdrawn(settings):
    """It is neither asked nor counted as open."""
    known = candidates(settings)
    with open_database(settings.db_url) as session:
        audit = store_audit(session, known[:3], purpose=AuditPurpose.LABELS)
        n = len(known) - 5
        given = {"pair": known[5:], "label": [0] * n, "probability": [0.9] * n, "stratum": ["all"] * n}
        labels = frame(MACHINE_LABELS, given)
        audits.add_labelling(session, SANDBOX, audit.id, "{}", labels, NOW)
        session.commit()

    assert status(settings, SANDBOX).counts["pairs_open"] == 5
    run_publish(settings)
    assert set(asked(settings, CANDIDATE)) == set(known[:5])

    with open_database(settings.db_url) as session:
        audits.withdraw(session, SANDBOX, NOW)
        session.commit()
    assert status(settings, SANDBOX).counts["pairs_open"] == len(known) - 5


def test_nothing_that_chooses_learns_or_merges_reads_an_audit(settings, tmp_path):
    """With every audit answer turned round, candidates, controls, releases and analyses are the same to the byte."""
    known = candidates(settings)
    drawn(settings, known[::2], recheck=[True] * len(known[::2]))
    run_publish(settings, limit=len(known))
    answer(settings, "mixed", hits_per_worker=2)
    with open_database(settings.db_url, read_only=True) as session:
        (audit,) = audits.audits(session, SANDBOX)
        assert len(audits.audit_answers(session, audit.id)) >= 10
    before = _chosen(settings, tmp_path / "before")

    _turn_round(settings)

    assert _chosen(settings, tmp_path / "after") == before
    for aggregator in Aggregator:
        one, two = (tmp_path / side / aggregator.value for side in ("before", "after"))
        same, other, missing = filecmp.cmpfiles(
            one, two, sorted(file.name for file in one.iterdir()), shallow=False
        )
        assert (other, missing) == ([], [])
        assert same


def _chosen(settings: Settings, folder: Path) -> list[object]:
    """What is open, what would be asked again, controls, what fusion learns of, analyses; releases go to the folder."""
    for aggregator in Aggregator:
        build_dataset(
            settings,
            folder / aggregator.value,
            SANDBOX,
            options=ReleaseOptions(rules=MergeRules(aggregator=aggregator), name=aggregator.value),
        )
    with open_database(settings.db_url, read_only=True) as session:
        again = [(hit.hit.key, hit.pairs) for hit in open_work.hits_to_replace(session, SANDBOX)]
        plan = make_plan(session, settings, Campaign(SANDBOX))
        chosen = [
            sorted(open_work.asked_pairs(session, SANDBOX)),
            again,
            draw_controls(session, settings, SANDBOX, 9),
            sorted(item.pair for page in plan.pages for item in page if item.role is CANDIDATE),
        ]
    with open_context(settings, SANDBOX, read_only=True) as context:
        learnt = answered(context, np.empty(0, np.int64))
        assert len(learnt)
        chosen.append(learnt.to_dict())
    tables = analyse(settings, (), SANDBOX).tables
    assert tables
    counts = status(settings, SANDBOX).counts
    kept = ("pairs", "pairs_open", "pairs_judged", "golds_answered", "golds_passed", "golds_withdrawn")
    return [*chosen, tables, {name: counts[name] for name in kept}]


def _turn_round(settings: Settings) -> None:
    """Every yes on an audit's place becomes a no, and the other way round."""
    with open_database(settings.db_url) as session:
        changed = session.execute(
            text(
                """
                UPDATE judgement SET label = CASE label
                    WHEN 'yes' THEN 'no' WHEN 'weak_yes' THEN 'weak_no' WHEN 'no' THEN 'yes' ELSE 'weak_yes' END
                WHERE label IS NOT NULL AND EXISTS (
                    SELECT 1 FROM assignment a JOIN hit_item i ON i.hit_id = a.hit_id
                    WHERE a.id = judgement.assignment_id AND i.place = judgement.place AND i.role = 'audit')"""
            )
        )
        assert changed.rowcount
        session.commit()

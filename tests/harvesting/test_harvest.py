"""Harvesting: raw first, nothing lost by incomplete listings, deleted HITs or work that was settled elsewhere."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

import pytest
from books import assert_answers_are_kept_once, pipeline_state
from harvest_kit import (
    add_live_batch,
    answered_project,
    asked_project,
    client_of,
    fail_controls,
    in_pipeline,
    on_server,
    posted,
    queued,
    submissions,
    submitted_ago,
)
from sqlalchemy import text
from world_kit import SANDBOX, copied_once, make_world, run_propose, run_publish

from mitl.campaign.publish import reconcile
from mitl.crowd.client import MTurkClient
from mitl.db.session import open_database
from mitl.db.store import answers, hits, judgements, open_work, parses
from mitl.db.store.hits import StoredHit
from mitl.db.store.submissions import NewSubmission, add_submissions
from mitl.errors import CrowdError, EndpointError
from mitl.records import Decision, HitState, StageResult
from mitl.settings import Settings
from mitl.stages.harvesting.fetching import sweep
from mitl.stages.harvesting.harvest import harvest, harvest_once
from mitl.stages.harvesting.judging import judge
from mitl.stages.hits.ending import delete, expire
from mitl.stages.hits.extend import ExtensionWish, extend
from mitl.stages.hits.simulate import simulate
from mitl.stages.paying.bonuses import Gift, compensate
from mitl.stages.paying.check import check_pay
from mitl.stages.paying.report import pay_report
from mitl.stages.reporting.status import status
from mitl.stages.reviewing.decisions import Ruling, keep, reverse
from mitl.stages.reviewing.review import rule


@pytest.fixture
def asked(tmp_path) -> Settings:
    """A project whose HITs are out."""
    return asked_project(tmp_path / "p")


@pytest.fixture
def answered(tmp_path) -> Settings:
    """A project whose HITs were answered."""
    return answered_project(tmp_path / "p")


@pytest.fixture
def harvested(tmp_path) -> Settings:
    """A project whose answers were harvested."""
    return copied_once(
        "harvested", lambda new: harvest(answered_project(new), SANDBOX), tmp_path / "harvested"
    )


@pytest.fixture
def doubted(tmp_path) -> Settings:
    """A project of which all work waits for a person."""

    def make(new: Path) -> None:
        settings = answered_project(new)
        fail_controls(settings)
        harvest(settings, SANDBOX)

    return copied_once("doubted", make, tmp_path / "doubted")


@pytest.fixture
def calls(monkeypatch) -> list[str]:
    """The HITs whose submissions are listed, in order."""
    asked_for: list[str] = []
    listing = MTurkClient.list_assignments

    def list_assignments(self, hit_id):
        asked_for.append(hit_id)
        return listing(self, hit_id)

    monkeypatch.setattr(MTurkClient, "list_assignments", list_assignments)
    return asked_for


def test_what_a_run_stored_and_died_over_is_parsed_by_the_next(answered, harvested):
    """A kill after the raw documents were committed: nobody decides about them, the next run reads and pays them."""
    with client_of(answered) as client, open_database(answered.db_url) as session:
        for hit in posted(answered):
            found = client.list_assignments(str(hit.mturk_hit_id))
            add_submissions(
                session,
                SANDBOX,
                [
                    NewSubmission(
                        hit.id,
                        one.worker_id,
                        one.assignment_id,
                        one.accepted_at,
                        one.submitted_at,
                        one.status,
                        one.answer_xml,
                    )
                    for one in found
                ],
            )
        session.commit()
        judge(session, SANDBOX, answered.gold_rule)
        session.commit()
        assert len(parses.PAIRS.unparsed(session, SANDBOX)) == 6
    assert {row.decision for row in submissions(answered)} == {Decision.NONE}

    result = harvest(answered, SANDBOX)

    assert (result.status, result.counts["fetched"], result.counts["approved"]) == ("done", 0, 6)
    assert pipeline_state(answered) == pipeline_state(harvested)
    assert_answers_are_kept_once(answered)


def test_an_unreadable_document_is_parsed_once_and_waits_for_a_person(answered):
    """What cannot be read at all is kept, said as a finding, and not taken for unparsed for ever."""
    on_server(answered, "UPDATE assignment SET answer = '<no' WHERE id = 1")

    first, second = harvest(answered, SANDBOX), harvest(answered, SANDBOX)

    assert first.counts["findings"]["unreadable"] == 1
    assert first.counts["queued"] == second.counts["queued"] == 1
    assert second.status == "nothing_to_do"
    with open_database(answered.db_url, read_only=True) as session:
        assert not parses.PAIRS.unparsed(session, SANDBOX)


def test_a_submission_that_is_listed_twice_is_stored_once(answered):
    """A page may come again; the same assignment id of another worker is another submission."""
    with open_database(answered.db_url) as session:
        (hit, *_) = hits.hits(session, SANDBOX)
        one = NewSubmission(hit.id, "A1", "ASSIGNMENT", None, None, "Submitted", "<x/>")
        other = NewSubmission(hit.id, "A2", "ASSIGNMENT", None, None, "Submitted", "<x/>")

        added = add_submissions(session, SANDBOX, [one, other, one])
        again = add_submissions(session, SANDBOX, [other, one])

        assert sorted(new.worker for new in added.values()) == ["A1", "A2"]
        assert again == {}
        assert answers.stored_counts(session, SANDBOX) == {hit.id: 2}


def test_a_hit_that_a_listing_lacks_is_asked_for_by_its_id(asked):
    """A listing that is incomplete while it changes loses no HIT."""
    with client_of(asked) as client:
        listed = {hit.hit_id: hit for hit in client.list_hits()}
        first, *rest = posted(asked)
        del listed[str(first.mturk_hit_id)]

        found = sweep(client, [first, *rest], listed)

    assert set(found.found) == {hit.id for hit in (first, *rest)}
    assert found.deleted == ()


def test_a_server_that_knows_none_of_the_hits_changes_nothing(asked):
    """Wrong keys or another server: one line, and no HIT is closed."""
    in_pipeline(asked, "UPDATE hit SET mturk_hit_id = 'Z' || mturk_hit_id")

    with pytest.raises(EndpointError, match="knows none of the 3 HITs"):
        harvest(asked, SANDBOX)

    assert len(posted(asked)) == 3


def test_a_hit_deleted_behind_our_back_is_one_warning_and_open_again(asked):
    """Somebody deleted a HIT on the server: it is closed here once, and publish asks its pairs again."""
    gone, *_ = posted(asked)
    with client_of(asked) as client:
        client.expire(str(gone.mturk_hit_id))
        assert client.delete(str(gone.mturk_hit_id))

    first, second = harvest(asked, SANDBOX), harvest(asked, SANDBOX)
    published = run_publish(asked)

    assert [gone.key in warning for warning in first.warnings] == [True]
    assert second.warnings == ()
    assert [hit.key for hit in posted(asked)] == ["b1:1:2", "b1:2:1", "b1:3:1"]
    assert published.counts["hits_again"] == 1


def settled_and_deleted(settings: Settings) -> StoredHit:
    """The first HIT, after somebody has approved its work and deleted it on the server."""
    hit, *_ = posted(settings)
    with client_of(settings) as client:
        for one in client.list_assignments(str(hit.mturk_hit_id)):
            client.approve(one.assignment_id)
        assert client.delete(str(hit.mturk_hit_id))
    return hit


@pytest.mark.parametrize("code", ["AWS.MechanicalTurk.HITDoesNotExist", None])
def test_answers_of_a_deleted_hit_are_given_up_only_where_the_server_says_so(answered, monkeypatch, code):
    """It has them no longer: one warning. It cannot be reached, or fails: the next run asks again, and has them."""
    gone = settled_and_deleted(answered)
    list_assignments = MTurkClient.list_assignments

    def fails(client: MTurkClient, hit_id: str):
        if hit_id == gone.mturk_hit_id:
            error = CrowdError("the call failed")
            error.code = code
            raise error
        return list_assignments(client, hit_id)

    with monkeypatch.context() as patched:
        patched.setattr(MTurkClient, "list_assignments", fails)
        if code is None:
            with pytest.raises(CrowdError, match="the call failed"):
                harvest(answered, SANDBOX)
        else:
            warnings = harvest(answered, SANDBOX).warnings
            assert any(
                f"no longer gives the submissions of 1 deleted HIT: {gone.key}" in one for one in warnings
            )

    assert len(submissions(answered)) == 4
    assert harvest(answered, SANDBOX).counts["fetched"] == (2 if code is None else 0)


def test_a_hit_that_the_server_cannot_list_holds_up_no_pay(answered, monkeypatch):
    """All others are fetched, whichever windows they are in, and who passed is paid; then the failure is told."""
    import mitl.stages.harvesting.fetching as fetching

    monkeypatch.setattr(fetching, "WINDOW", 2)
    first, *_ = posted(answered)
    list_assignments = MTurkClient.list_assignments

    def fails(client: MTurkClient, hit_id: str):
        if hit_id == first.mturk_hit_id:
            raise CrowdError("the call failed")
        return list_assignments(client, hit_id)

    for _ in range(2):
        with monkeypatch.context() as patched, pytest.raises(CrowdError, match="the call failed"):
            patched.setattr(MTurkClient, "list_assignments", fails)
            harvest(answered, SANDBOX)
        assert [row.status for row in submissions(answered, Decision.PASS)] == ["Approved"] * 4

    assert harvest(answered, SANDBOX).counts["fetched"] == 2


def test_answers_of_a_deleted_hit_are_kept(answered):
    """A HIT that was settled and deleted on the server before we looked still gives its answers."""
    settled = settled_and_deleted(answered)

    swept = reconcile(answered, SANDBOX)  # which must not close it while its answers are on the server alone
    result = harvest(answered, SANDBOX)

    [warning] = swept.warnings
    assert f"not stored here yet ({settled.key}); run `mitl harvest`" in warning
    assert (swept.status, swept.counts["hits_gone"]) == ("done", 1)
    assert result.counts["fetched"] == 6
    assert result.warnings == ()
    assert posted(answered) == []
    assert_answers_are_kept_once(answered)


def test_work_that_was_approved_while_it_waited_is_booked_once_and_said(doubted):
    """The server paid queued work by itself: the ledger says so, the decision about its answers stays a person's."""
    on_server(
        doubted,
        "UPDATE assignment SET auto_approve_at = 1 WHERE auto_approve_at IS NOT NULL",
        "UPDATE hit SET settle_at = 1",
    )

    first, second = harvest(doubted, SANDBOX), harvest(doubted, SANDBOX)

    assert ["approved or rejected on the server" in warning for warning in first.warnings] == [True]
    assert (second.status, second.warnings) == ("nothing_to_do", ())
    assert {row.status for row in submissions(doubted, Decision.QUEUED)} == {"Approved"}
    assert_answers_are_kept_once(doubted)


@pytest.mark.parametrize("project", ["answered", "doubted"])
def test_work_that_a_colleague_rejected_is_a_rejection_here_too(project, request):
    """By hand, before it was fetched or while it waited: neither paid nor used, and to be reversed like any other."""
    settings = request.getfixturevalue(project)
    hit, *_ = posted(settings)
    with client_of(settings) as client:
        refused, *_ = client.list_assignments(str(hit.mturk_hit_id))
        client.reject(refused.assignment_id, "all of these answers are the same")
        for _ in range(2):
            harvest(settings, SANDBOX)
        now = {one.assignment_id: one.status for one in client.list_assignments(str(hit.mturk_hit_id))}

    assert now[refused.assignment_id] == "Rejected"
    [row] = submissions(settings, Decision.REJECT)
    with open_database(settings.db_url, read_only=True) as session:
        used = session.scalar(
            text("SELECT count(*) FROM judgement WHERE assignment_id = :id AND usable"), {"id": row.id}
        )
    assert (row.status, row.mturk_assignment_id, used) == ("Rejected", refused.assignment_id, 0)
    assert reverse(settings, [row.id], Decision.APPROVE, SANDBOX).counts["approved"] == 1
    assert_answers_are_kept_once(settings)


def test_a_rejection_that_somebody_made_before_us_is_said(doubted):
    """It was decided here and not yet sent, so the server's is not ours."""
    row, *_ = submissions(doubted, Decision.QUEUED)
    keep(doubted, Ruling(row.id, Decision.REJECT, "both controls were answered wrongly"), SANDBOX)
    with client_of(doubted) as client:
        client.reject(row.mturk_assignment_id, "all of these answers are the same")

    [warning] = harvest(doubted, SANDBOX).warnings

    assert warning.startswith("1 submission approved or rejected on the server without mitl's knowing")
    assert f"rejected: {row.id}; `mitl review reverse NUMBER`" in warning
    assert reverse(doubted, [row.id], Decision.APPROVE, SANDBOX).counts["approved"] == 1


def test_a_hit_is_not_closed_while_the_listing_lacks_one_of_its_answers(answered, monkeypatch):
    """Its pairs would be asked again, though they are answered."""
    listing = MTurkClient.list_assignments
    with monkeypatch.context() as patched:
        patched.setattr(MTurkClient, "list_assignments", lambda self, hit_id: list(listing(self, hit_id))[1:])
        lacking = harvest(answered, SANDBOX)

    assert (lacking.counts["fetched"], lacking.counts["ended"], len(posted(answered))) == (3, 0, 3)
    assert (harvest(answered, SANDBOX).counts["fetched"], posted(answered)) == (3, [])


def test_approvals_whose_booking_was_lost_are_booked_once_and_called_ours(harvested):
    """A kill after the calls and before their booking: the next run counts them as its own, without a warning."""
    in_pipeline(
        harvested,
        "UPDATE assignment SET status = 'Submitted'",
        "UPDATE journal SET state = 'sending' WHERE kind = 'approve'",
        "UPDATE hit SET state = 'posted'",
        "DELETE FROM ledger",
    )

    result = harvest(harvested, SANDBOX)

    assert (result.status, result.counts["approved"], result.warnings) == ("done", 6, ())
    assert_answers_are_kept_once(harvested)
    assert harvest(harvested, SANDBOX).status == "nothing_to_do"


def test_work_on_a_closed_hit_that_was_raised_elsewhere_is_fetched_and_paid_once(harvested, calls):
    """Somebody asked one more worker of a HIT by the API, after all its answers were in and it was closed here."""
    with open_database(harvested.db_url, read_only=True) as session:
        hit, *_ = hits.hits(session, SANDBOX, (HitState.CLOSED,))
    with client_of(harvested) as client:
        assert client.extend(str(hit.mturk_hit_id), 1, "by hand")
    in_pipeline(harvested, "UPDATE hit SET assignments = 3, state = 'posted' WHERE id = :id", id=hit.id)
    simulate(harvested, SANDBOX)
    in_pipeline(harvested, "UPDATE hit SET assignments = 2, state = 'closed' WHERE id = :id", id=hit.id)

    first = harvest(harvested, SANDBOX)
    listed = list(calls)
    second = harvest(harvested, SANDBOX)

    assert (first.status, first.counts["fetched"], first.counts["approved"]) == ("done", 1, 1)
    assert (second.status, second.warnings) == ("nothing_to_do", ())
    assert listed == calls == [hit.mturk_hit_id]  # nothing was asked of those on which nothing changed
    assert check_pay(harvested, SANDBOX).refusal is None
    assert_answers_are_kept_once(harvested)


@pytest.mark.parametrize("limit", [10, None])
def test_a_harvest_leads_to_the_release_only_where_every_pair_was_asked(tmp_path, limit):
    """Else to the pages that are left, as publishing and a harvest without news say it."""
    settings = make_world(tmp_path / "p")
    run_propose(settings)
    run_publish(settings, limit=limit)
    simulate(settings, SANDBOX)
    while (seen := harvest(settings, SANDBOX)).counts["queued"]:
        for row in submissions(settings):
            if row.decision is Decision.QUEUED:
                keep(settings, Ruling(row.id, Decision.APPROVE), SANDBOX)
    build, more = "mitl build-dataset --sandbox --out DIR", "mitl publish --sandbox"
    assert seen.next == ("mitl build-dataset --out DIR" if limit is None else f"{more}, or {build}")
    add_live_batch(settings)
    assert harvest(settings, SANDBOX).next == (build if limit is None else f"{more}, or {build}")
    assert status(settings, SANDBOX).next == (build if limit is None else more)
    if limit is None:
        assert run_publish(settings).next == build


def test_a_server_that_is_gone_does_not_fail_the_harvest_of_a_finished_project(harvested):
    """Its closed HITs are not asked about; that is said, and is no failure."""
    away = replace(harvested, endpoint="http://127.0.0.1:9", endpoint_environment=SANDBOX)

    result = harvest(away, SANDBOX)

    assert (result.status, result.counts["fetched"]) == ("nothing_to_do", 0)
    assert [warning for warning in result.warnings if "closed HITs" in warning and "mitl serve" in warning]


@pytest.mark.parametrize("are", ["deleted", "imported"])
def test_nothing_is_asked_of_the_server_where_it_has_no_hit_from_here(harvested, monkeypatch, are):
    """All were deleted, or were never posted from here."""
    if are == "deleted":
        assert delete(harvested, [], SANDBOX).counts["deleted"] == 3
    else:
        in_pipeline(harvested, "UPDATE batch SET source = 'import'")
    monkeypatch.setattr(MTurkClient, "list_hits", lambda client: pytest.fail("asked"))

    result = harvest(harvested, SANDBOX)

    assert (result.status, result.warnings) == ("nothing_to_do", ())


def test_a_rejection_that_the_server_overtook_pays_and_uses_nothing(doubted):
    """A person's rejection was not carried out before the work approved itself: it is paid, and dropped."""
    row, *_ = submissions(doubted, Decision.QUEUED)
    with client_of(doubted) as client:
        client.approve(row.mturk_assignment_id)
    in_pipeline(doubted, "UPDATE assignment SET decision = 'reject' WHERE id = :id", id=row.id)

    harvest(doubted, SANDBOX)

    (found,) = [one for one in submissions(doubted) if one.id == row.id]
    assert (found.status, found.decision) == ("Approved", Decision.DROP)
    assert_answers_are_kept_once(doubted)


def test_a_person_is_warned_before_waiting_work_approves_itself(doubted):
    """Within a day of its approval by itself, each harvest names the first deadline; earlier it does not."""
    assert harvest(doubted, SANDBOX).warnings == ()
    assert len(posted(doubted)) == 3  # closed, they would be asked again before anybody decided
    submitted_ago(doubted, dt.timedelta(days=6, hours=1))

    (warning,) = harvest(doubted, SANDBOX).warnings

    assert warning.startswith("6 submissions waiting for a person would be approved unseen within a day")
    assert warning.endswith("decide with `mitl review`")


def test_hits_on_which_nobody_can_work_are_not_awaited(asked):
    """What people may still do is counted by the server's word, not by ours."""
    before = harvest_once(asked, SANDBOX).awaited
    with client_of(asked) as client:
        for hit in posted(asked)[1:]:
            client.expire(str(hit.mturk_hit_id))

    assert (before, harvest_once(asked, SANDBOX).awaited) == (3, 1)


def test_past_work_from_a_file_is_never_asked_again(harvested):
    """A closed HIT of an imported batch that nobody harvested usably is not open work."""
    in_pipeline(harvested, "UPDATE judgement SET usable = false")
    with open_database(harvested.db_url, read_only=True) as session:
        assert len(open_work.hits_to_replace(session, SANDBOX)) == 3
    in_pipeline(harvested, "UPDATE batch SET source = 'import'")

    with open_database(harvested.db_url, read_only=True) as session:
        assert open_work.hits_to_replace(session, SANDBOX) == []
        assert {hit.state for hit in hits.hits(session, SANDBOX)} == {HitState.CLOSED}


def test_a_harvest_of_many_windows_keeps_every_place(answered, monkeypatch):
    """However HITs are cut into windows, the same judgements with the same reasons are stored."""
    import mitl.stages.harvesting.fetching as fetching

    monkeypatch.setattr(fetching, "WINDOW", 1)

    harvest(answered, SANDBOX)

    with open_database(answered.db_url, read_only=True) as session:
        rows = judgements.judgements(session, SANDBOX)
        pages = hits.hit_items(session, [hit.id for hit in hits.hits(session, SANDBOX)])
    assert len(rows) == 6 * 20
    assert all(row.record.pair == pages[row.hit_id][row.place - 1].pair for row in rows)
    assert_answers_are_kept_once(answered)


def test_what_comes_next_names_the_environment_where_the_commands_would_mean_the_other(asked):
    """Beside live work, commands that name no environment mean that: to follow the advice must not spend there."""
    add_live_batch(asked)
    assert harvest(asked, SANDBOX).next == "mitl harvest --sandbox again when people have worked"
    assert status(asked, SANDBOX).next == (
        "mitl serve for people (or mitl simulate --sandbox), then mitl harvest --sandbox"
    )
    assert "mitl harvest --sandbox" in expire(asked, ["b1"]).next
    assert "mitl harvest --sandbox" in extend_days(asked).next
    assert simulate(asked, SANDBOX).next == "mitl harvest --sandbox"
    fail_controls(asked)
    for seen in (harvest(asked, SANDBOX), status(asked, SANDBOX)):
        assert seen.next == "mitl review --sandbox"
    [first, *_] = queued(asked)
    assert rule(asked, [Ruling(first, Decision.APPROVE)], SANDBOX).next == "mitl review --sandbox"
    assert pay_report(asked, SANDBOX, floor=10**6).next == "mitl pay top-up --sandbox --floor 10000.00"
    gift = Gift(submissions(asked)[0].worker, 50, "Your page did not load on Friday; sorry.")
    assert compensate(asked, gift, SANDBOX, confirm=lambda *asked: True).next == "mitl pay --sandbox"


def extend_days(settings: Settings) -> StageResult:
    """Give the HITs two days from now."""
    return extend(settings, ExtensionWish("b1", days=2), confirm=lambda *asked: True)

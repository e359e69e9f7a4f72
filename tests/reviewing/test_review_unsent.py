"""Decisions that are stored and that the server has not heard of: every screen that would say nothing names them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cli_kit import ok
from db_kit import sqlite_url
from desk_kit import REASON, make_reviewed_project
from harvest_kit import add_live_batch, client_of, in_pipeline, on_server, queued
from sqlalchemy import text
from world_kit import SANDBOX

from mitl.crowd.paying import has_open_calls
from mitl.db.session import open_database
from mitl.db.store import desk
from mitl.db.store.answers import StoredAssignment
from mitl.errors import CrowdError, MitlError, StoreError, UsageError
from mitl.records import Decision
from mitl.settings import Settings
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.paying.bonuses import Gift, compensate
from mitl.stages.paying.check import check_pay
from mitl.stages.paying.top_up import TopUpTerms, top_up
from mitl.stages.reporting.status import status
from mitl.stages.reviewing.decisions import find_submission, keep, reverse
from mitl.stages.reviewing.review import Ruling, queue, rule, settle
from mitl.stages.reviewing.show import show

pytest_plugins = ("desk_fixtures",)


def unsent(settings: Settings) -> int:
    """The count; it must say that there is something wherever a harvest would do something."""
    with open_database(settings.db_url, read_only=True) as session:
        found = desk.unsent(session, SANDBOX)
        assert (found > 0) is has_open_calls(session, SANDBOX)
    return found


def submission(settings: Settings, number: int) -> StoredAssignment:
    """As the project knows it."""
    with open_database(settings.db_url, read_only=True) as session:
        return find_submission(session, SANDBOX, number)


def cut_off(settings: Settings, tmp_path) -> Settings:
    """The same project with another server's database, so that each decision is kept and no call is made."""
    return replace(settings, crowd_db_url=sqlite_url(tmp_path / "elsewhere.db"))


def calls_row(settings: Settings) -> str | None:
    """What the screen says of calls that are still to be made."""
    (table,) = status(settings, SANDBOX).tables
    return next((str(says) for what, says in table.rows if what == "calls"), None)


@pytest.mark.thorough(but=("sqlite",))
def test_a_settle_whose_calls_failed_is_named_until_a_harvest_makes_them(tmp_path, project_url):
    """On either engine: how many submissions, and what to run."""
    settings = make_reviewed_project(tmp_path / "p", db_url=project_url)
    n = len(queued(settings))
    assert (unsent(settings), calls_row(settings), status(settings).counts["calls_open"]) == (0, None, 0)

    with pytest.raises(MitlError):
        settle(cut_off(settings, tmp_path), SANDBOX)

    assert queued(settings) == [] and unsent(settings) == n > 1
    seen, waiting = status(settings, SANDBOX), queue(settings, SANDBOX)
    words = f"the server has not heard what was decided about {n} submissions"
    assert calls_row(settings) == f"{words}; `mitl harvest` carries that out"
    assert (seen.counts["calls_open"], seen.next) == (n, "mitl harvest")
    assert (waiting.status, waiting.counts["calls_open"], waiting.next) == ("done", n, "mitl harvest")
    assert f"{words}; `mitl harvest`, or `mitl review settle` again, carries that out" in waiting.lines

    harvest(settings, SANDBOX)

    assert (unsent(settings), calls_row(settings), status(settings).counts["calls_open"]) == (0, None, 0)
    assert queue(settings, SANDBOX).status == "nothing_to_do"
    assert settle(settings, SANDBOX).status == "nothing_to_do"


def test_the_same_settle_again_carries_it_out_too(project, tmp_path):
    """As the line says; nobody is paid twice."""
    n = len(queued(project))
    with pytest.raises(MitlError):
        settle(cut_off(project, tmp_path), SANDBOX)
    before = int(str(status(project, SANDBOX).counts["paid_cents"]))

    assert settle(project, SANDBOX).status == "done"

    paid = int(str(status(project, SANDBOX).counts["paid_cents"])) - before
    assert paid > 0 and paid % n == 0
    assert unsent(project) == 0


@pytest.mark.parametrize("decision", [Decision.APPROVE, Decision.APPROVE_EXCLUDE, Decision.REJECT])
def test_one_decision_is_named_beside_those_that_wait(project, tmp_path, decision):
    """The queue is listed as ever, and says besides what is owed."""
    first, *others = queued(project)

    with pytest.raises(MitlError):
        rule(cut_off(project, tmp_path), [Ruling(first, decision, REASON)], SANDBOX)

    waiting = queue(project, SANDBOX)
    assert waiting.counts["submissions"] == others and waiting.counts["calls_open"] == 1
    assert any("what was decided about 1 submission; `mitl harvest`" in line for line in waiting.lines)
    assert status(project, SANDBOX).next == "mitl harvest"
    rule(project, [Ruling(first, decision, f"{REASON} Sorry.")], SANDBOX)
    assert (unsent(project), queue(project, SANDBOX).lines) == (0, ())
    # Nobody had read the reason that was given first.
    is_rejected = decision is Decision.REJECT
    assert (f"rejected: {f'{REASON} Sorry.'!r}" in show(project, first).lines) is is_rejected


def test_a_rejection_that_the_server_refuses_is_made_for_another_reason(project, tmp_path):
    """No run can carry out the first one, which holds up no call of another kind; the worker reads the second."""
    first, second, *_ = queued(project)
    rulings = [Ruling(first, Decision.REJECT, REASON), Ruling(second, Decision.APPROVE_EXCLUDE)]
    with pytest.raises(MitlError):
        rule(cut_off(project, tmp_path), rulings, SANDBOX)
    in_pipeline(
        project,
        f"UPDATE journal SET request = replace(request, '{REASON}', '{'x' * 1025}') WHERE kind = 'reject'",
    )
    with pytest.raises(CrowdError, match="RequesterFeedback is 1025 characters long"):
        harvest(project, SANDBOX)
    assert unsent(project) == 1

    rule(project, [Ruling(first, Decision.REJECT, f"{REASON} Sorry.")], SANDBOX)

    assert unsent(project) == 0
    assert f"rejected: {f'{REASON} Sorry.'!r}" in show(project, first).lines


def test_an_approval_that_the_server_refuses_for_ever_holds_up_nothing_else(project):
    """As for a submission that a restored server lacks: each harvest warns of it, pays the others and ends well."""
    first, second, *_ = queued(project)
    on_server(
        project,
        "UPDATE assignment SET mturk_id = 'X' || mturk_id WHERE mturk_id = "
        f"'{submission(project, first).mturk_assignment_id}'",
    )

    told = rule(project, [Ruling(first, Decision.APPROVE), Ruling(second, Decision.APPROVE)], SANDBOX)

    assert [submission(project, number).status for number in (first, second)] == ["Submitted", "Approved"]
    (warning,) = told.warnings
    assert f"decided about submission {first} is refused; each harvest tries again: Assignment " in warning
    assert warning.endswith(" does not exist [AWS.MechanicalTurk.AssignmentDoesNotExist]")
    assert harvest(project, SANDBOX).warnings == told.warnings
    assert unsent(project) == 1


def test_a_worker_who_is_still_to_be_excluded_counts(project, tmp_path):
    """The work is paid already, so its status alone says nothing; the harvest that excludes uses no answer."""
    first = queued(project)[0]
    worker = submission(project, first).worker_id
    rule(project, [Ruling(first, Decision.APPROVE_EXCLUDE)], SANDBOX)
    assert unsent(project) == 0

    in_pipeline(
        project,
        "UPDATE worker SET excluded_at = NULL",
        "UPDATE assignment SET decision = 'approve', status = 'Approved' WHERE decision = 'queued'",
        "UPDATE journal SET state = 'sending' WHERE key LIKE 'exclude:%'",
    )

    assert unsent(project) == 1
    assert status(project, SANDBOX).next == "mitl harvest"
    assert (harvest(project, SANDBOX).status, unsent(project)) == ("done", 0)
    with open_database(project.db_url, read_only=True) as session:
        found = session.scalars(
            text(
                "SELECT usable FROM judgement JOIN assignment ON assignment.id = assignment_id WHERE worker_id = :id"
            ),
            {"id": worker},
        )
        assert set(found) == {False}


def test_a_worker_whom_the_server_does_not_keep_away_is_excluded_here(project):
    """A refusal is told once, and keeps no later harvest from its work."""
    first = queued(project)[0]
    on_server(project, "UPDATE worker SET mturk_id = 'X' || mturk_id")
    told = rule(project, [Ruling(first, Decision.APPROVE_EXCLUDE)], SANDBOX).warnings

    assert len(told) == 1 and "is excluded here, but may still be offered HITs" in told[0]
    assert unsent(project) == 0
    assert harvest(project, SANDBOX).warnings == ()
    with open_database(project.db_url, read_only=True) as session:
        assert session.scalar(text("SELECT count(*) FROM worker WHERE excluded_at IS NOT NULL")) == 1


def test_a_reversal_whose_call_failed_counts(project, tmp_path):
    """The submission is rejected on the server and is to be paid after all."""
    first = queued(project)[0]
    rule(project, [Ruling(first, Decision.REJECT, REASON)], SANDBOX)
    assert unsent(project) == 0

    with pytest.raises(MitlError):
        reverse(cut_off(project, tmp_path), [first], Decision.DROP, SANDBOX)

    assert unsent(project) == 1
    assert calls_row(project) is not None
    harvest(project, SANDBOX)
    assert unsent(project) == 0


def test_a_reversal_counts_what_it_reversed_itself(project):
    """Neither what an earlier call reversed, nor what others had decided and is carried out on the way."""
    first, second, third, *_ = queued(project)
    rule(project, [Ruling(number, Decision.REJECT, REASON) for number in (first, second)], SANDBOX)
    assert reverse(project, [first], Decision.DROP, SANDBOX).counts["reversed"] == 1

    assert reverse(project, [first, second], Decision.DROP, SANDBOX).counts["reversed"] == 1

    keep(project, Ruling(third, Decision.APPROVE), SANDBOX)
    found = reverse(project, [first], Decision.DROP, SANDBOX)
    assert (found.counts["reversed"], found.counts["approved"]) == (0, 1)
    assert found.lines == ("that is reversed already",)
    assert reverse(project, [first], Decision.DROP, SANDBOX).status == "nothing_to_do"


def test_a_rejection_that_the_server_takes_back_no_more_stands(project):
    """Its HIT was deleted elsewhere: the first try says so, what else was decided goes on, and nobody is told again."""
    first, second, *_ = queued(project)
    rule(project, [Ruling(first, Decision.REJECT, REASON)], SANDBOX)
    on_server(
        project,
        "UPDATE hit SET deleted_at = expires_at WHERE id IN (SELECT hit_id FROM assignment WHERE state = 'rejected')",
    )

    found = reverse(project, [first], Decision.APPROVE, SANDBOX)

    assert found.counts["reversed"] == 0
    said = "1 rejection cannot be reversed any more, so the server says; pay with `mitl pay compensate`"
    assert (found.warnings, found.lines) == ((said,), ())
    assert (unsent(project), show(project, first).counts["decision"]) == (0, "reject")
    with pytest.raises(StoreError, match="takes it back no more; pay its worker with `mitl pay compensate`"):
        reverse(project, [first], Decision.APPROVE, SANDBOX)
    assert rule(project, [Ruling(second, Decision.DROP)], SANDBOX).status == "done"


def test_rejected_work_that_was_approved_elsewhere_is_booked_by_a_reversal(project):
    """No count of the server tells a harvest of it; the check of the ledger finds it and says what to do."""
    first = queued(project)[0]
    rule(project, [Ruling(first, Decision.REJECT, REASON)], SANDBOX)
    assert check_pay(project, SANDBOX).refusal is None
    with client_of(project) as client:
        assert client.approve(submission(project, first).mturk_assignment_id, override_rejection=True)
    harvest(project, SANDBOX)
    assert "`mitl review reverse`" in str(check_pay(project, SANDBOX).refusal)

    reverse(project, [first], Decision.DROP, SANDBOX)

    assert check_pay(project, SANDBOX).refusal is None
    assert unsent(project) == 0


def test_hints_about_the_sandbox_name_it_once_there_is_live_work(project):
    """A command without an environment then means live, whose money is real."""
    first, second, *_ = queued(project)
    rule(project, [Ruling(first, Decision.REJECT, REASON)], SANDBOX)
    with client_of(project) as client:
        assert client.approve(submission(project, first).mturk_assignment_id, override_rejection=True)
    assert "`mitl pay check --adopt`" in str(check_pay(project, SANDBOX).refusal)
    add_live_batch(project)

    said = str(check_pay(project, SANDBOX).refusal)
    assert "`mitl harvest --sandbox`" in said and "`mitl review reverse --sandbox`" in said
    assert "`mitl pay check --adopt --sandbox`" in said
    with pytest.raises(StoreError, match="`mitl pay --sandbox` lists who has"):
        compensate(project, Gift("nobody", 50, REASON), SANDBOX, confirm=lambda *_: True)
    with pytest.raises(UsageError, match="see `mitl pay --sandbox`"):
        top_up(project, SANDBOX, TopUpTerms(skip=frozenset({"nobody"})), confirm=lambda *_: True)
    with pytest.raises(StoreError, match="`mitl review --sandbox` lists what waits"):
        show(project, 9999, SANDBOX)
    assert reverse(project, [first], Decision.DROP, SANDBOX).next == "mitl status --sandbox"
    undo = f"`mitl review reverse {second} --sandbox` can undo that until"
    assert undo in "\n".join(rule(project, [Ruling(second, Decision.REJECT, REASON)], SANDBOX).lines)
    assert undo in "\n".join(show(project, second, SANDBOX).lines)
    on_server(
        project,
        "UPDATE hit SET deleted_at = expires_at WHERE id IN (SELECT hit_id FROM assignment WHERE state = 'rejected')",
    )
    reverse(project, [second], Decision.APPROVE, SANDBOX)
    with pytest.raises(StoreError, match="pay its worker with `mitl pay compensate --sandbox`"):
        reverse(project, [second], Decision.APPROVE, SANDBOX)


def test_the_other_environments_calls_are_its_own(project, tmp_path):
    """What the sandbox owes is no business of the live screen."""
    from mitl.records import Environment

    with pytest.raises(MitlError):
        settle(cut_off(project, tmp_path), SANDBOX)

    assert status(project, Environment.LIVE).counts["calls_open"] == 0
    assert queue(project, Environment.LIVE).status == "nothing_to_do"


def test_the_commands_say_so(project, tmp_path):
    """In words and in JSON."""
    n = len(queued(project))
    with pytest.raises(MitlError):
        settle(cut_off(project, tmp_path), SANDBOX)

    seen, listed = (ok(*words, "--project", project.project) for words in (("status",), ("review",)))

    for said in (seen, listed):
        text = " ".join(said.out.split())
        assert f"has not heard what was decided about {n} submissions" in text
        assert f"next (with --project {project.project}): mitl harvest" in text
        assert "nothing to do" not in text
    assert ok("status", "--json", "--project", project.project).json["counts"]["calls_open"] == n
    assert ok("review", "--json", "--project", project.project).json["counts"]["calls_open"] == n

"""What a person sees before deciding about a submission, under whichever gold rule, and until when they can."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import replace

import pytest
from cli_kit import fails, mitl, ok
from desk_kit import REASON, open_desk, written
from harvest_kit import in_pipeline, submissions
from world_kit import SANDBOX

from mitl.cli.reference import COUNTS
from mitl.db.session import open_database
from mitl.db.store import answers, parses
from mitl.db.store.answers import StoredAssignment
from mitl.errors import StoreError, UsageError
from mitl.records import Decision, Environment, Finding, Label
from mitl.settings import AUTO_APPROVAL_S, Settings, load
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.reviewing.decisions import MAX_REASON, MIN_REASON, Ruling, check_reason, keep, reverse
from mitl.stages.reviewing.review import queue, rule
from mitl.stages.reviewing.show import show
from mitl.stages.reviewing.workers import workers

pytest_plugins = ("desk_fixtures",)

FAILED = {"gold_positive_failed", "gold_negative_failed"}


def row(settings: Settings, number: int) -> StoredAssignment:
    return next(one for one in submissions(settings) if one.id == number)


def failed_one(settings: Settings) -> StoredAssignment:
    """A submission that waits because it failed a control."""
    with open_database(settings.db_url, read_only=True) as session:
        findings = answers.findings_of(session, [one.id for one in submissions(settings)])
    return next(
        one
        for one in submissions(settings, Decision.QUEUED)
        if FAILED & {finding.code for finding in findings[one.id]}
    )


def minute(moment: dt.datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def test_a_submission_is_shown_with_the_controls_that_failed_and_its_worker(reviewed):
    """Expected against given answers, the record with its interval, conduct, other work, the rule, the deadlines."""
    waiting = failed_one(reviewed)

    found = show(reviewed, waiting.id)

    text_of = "\n".join(found.lines)
    failed = found.counts["failed_controls"]
    assert failed and len(found.tables[1].rows) == len(failed)
    for control in failed:
        assert control["answer"] not in control["expected"]
    assert "90 % interval" in text_of and "longest run" in text_of and "agrees with others" in text_of
    assert (
        "rule: a gold positive passes with yes or weak yes, a gold negative with weak no or no" in found.lines
    )
    itself = waiting.submitted_at + dt.timedelta(seconds=AUTO_APPROVAL_S)
    until = waiting.submitted_at + dt.timedelta(days=30)
    assert f"unless it is decided before, the server pays it by itself at {minute(itself)}" in found.lines
    assert f"a rejection could be reversed until {minute(until)}" in found.lines
    assert set(found.counts) == set(COUNTS["review show"])


def test_haste_is_told_in_words_by_the_projects_own_floor(reviewed):
    """`review show`, the workers' table and the desk name who is under it; without a floor nobody does."""
    slow = replace(reviewed, min_seconds_a_pair=0.0)
    fast = replace(reviewed, min_seconds_a_pair=3600.0)
    number = submissions(reviewed, Decision.QUEUED)[0].id

    shown, table = show(fast, number, SANDBOX), workers(fast, SANDBOX)
    with open_desk(fast) as desk:
        page, person = (
            written(desk.get(f"/queue/{number}")),
            written(desk.get(f"/workers/{row(fast, number).worker_id}")),
        )
        everyone, first = written(desk.get("/workers")), written(desk.get("/"))

    [hasty] = [one["detail"] for one in shown.counts["findings"] if one["code"] == "too_fast"]
    assert re.fullmatch(
        r"[0-9.]+ s a pair \(median\), under the floor of 3600 s; (\d+) of \1 pairs took less", hasty
    )
    assert f"finding: too_fast {hasty}" in shown.lines
    assert any(
        "under the floor of 3600 s;" in line for line in shown.lines if line.startswith("  a pair takes")
    )
    assert all(one["too_fast"] for one in table.counts["rows"])
    assert any(line.startswith("!: ") and "under 3600 s" in line for line in table.lines)
    assert f"Faster than a person can look: {hasty}." in page
    assert "under the floor of 3600 s, too short to look" in person
    assert "under 3600 s" in everyone and "workers take less than 3600 s" in first
    quiet, calm = show(slow, number, SANDBOX), workers(slow, SANDBOX)
    assert "too_fast" not in str(quiet.counts) and "floor" not in str(quiet.lines)
    assert not any(one["too_fast"] for one in calm.counts["rows"]) and "!: " not in str(calm.lines)


def test_what_was_paid_and_not_used_is_counted_of_its_worker(project):
    """Used, not used, waiting and rejected are all that was submitted."""
    number = submissions(project, Decision.QUEUED)[0].id
    rule(project, [Ruling(number, Decision.DROP, "a control failed")])

    told = "\n".join(show(project, number).lines)

    parts = re.search(
        r"(\d+) submissions?: (\d+) used, (\d+) not used, (\d+) waiting.*, (\d+) rejected", told
    )
    total, used, unused, waiting, rejected = map(int, parts.groups())
    assert unused >= 1 and total == used + unused + waiting + rejected


def test_findings_come_by_kind_and_their_numbers_by_size(project):
    """Place 2 before place 10, whatever the order in which they were noted."""
    first = submissions(project, Decision.QUEUED)[0]
    notes = [Finding("missing_answer", f"place {place} has no usable answer") for place in (10, 9, 2, 1, 11)]
    with open_database(project.db_url) as session:
        parses.add_all_findings(session, {first.id: notes})
        session.commit()

    found = [
        one for one in show(project, first.id, SANDBOX).counts["findings"] if one["code"] == "missing_answer"
    ]

    assert [one["detail"].split()[1] for one in found] == ["1", "2", "9", "10", "11"]


def test_the_evidence_shows_the_data_sets_own_ids(project):
    """Rows of the database are ours alone; a person looks pictures up by the data set's ids."""
    in_pipeline(project, "UPDATE item SET external_id = 'picture-' || external_id WHERE side_id = 1")

    found = show(project, failed_one(project).id)

    assert all(control["image"].startswith("picture-") for control in found.counts["failed_controls"])
    assert not any("image " in line for line in found.lines if line.startswith("finding: gold_"))


def test_the_queue_says_how_long_each_took_and_when_the_server_pays_by_itself(reviewed):
    """Minutes to a tenth; paid seven days after it was submitted."""
    [table] = queue(reviewed).tables

    assert table.columns[-1] == "pays itself at"
    by_number = {one.id: one for one in submissions(reviewed)}
    for line in table.rows:
        one = by_number[line[0]]
        assert line[-2] == f"{(one.submitted_at - one.accepted_at).total_seconds() / 60:.1f}"
        assert line[-1] == minute(one.submitted_at + dt.timedelta(seconds=AUTO_APPROVAL_S))


def test_a_clock_that_was_set_back_tells_no_minutes(project):
    """Work that came before it was accepted took no negative time, in the list as on the desk."""
    in_pipeline(project, "UPDATE assignment SET accepted_at = submitted_at, submitted_at = accepted_at")

    [table] = queue(project).tables

    assert {line[-2] for line in table.rows} == {None}
    with open_desk(project) as desk:
        assert "active, – open" in written(desk.get(f"/queue/{table.rows[0][0]}"))


ALL, NONE_OF_IT = tuple(Label), (Label.WEAK_NO,)


@pytest.mark.parametrize(
    ("positive", "negative", "queued"), [(ALL, ALL, False), (NONE_OF_IT, NONE_OF_IT, True)]
)
def test_another_gold_rule_judges_all_that_is_undecided_anew(project, positive, negative, queued):
    """A rule that takes every answer empties the queue; one that takes the odd one out fails nearly all."""
    settings = replace(project, gold_positive_passes=positive, gold_negative_passes=negative)
    before = {one.id for one in submissions(project, Decision.QUEUED)}

    harvest(settings, SANDBOX, reparse=True)

    after = {one.id for one in submissions(settings, Decision.QUEUED)}
    assert before and (after >= before if queued else not after)


def test_the_configured_rule_is_read_used_and_shown(project):
    """`[review]` in mitl.toml: a strict rule is what the evidence and the desk expect."""
    config = project.project / "mitl.toml"
    strict = '\n[review]\ngold_positive_passes = ["yes"]\ngold_negative_passes = ["no"]\n'
    config.write_text(config.read_text(encoding="utf-8") + strict, encoding="utf-8")
    settings = replace(load(project.project, environ={}), endpoint=None)

    number = failed_one(settings).id
    found = show(settings, number)

    assert {tuple(control["expected"]) for control in found.counts["failed_controls"]} <= {("yes",), ("no",)}
    assert "rule: a gold positive passes with yes, a gold negative with no" in found.lines
    with open_desk(settings) as desk:
        page = written(desk.get(f"/queue/{number}"))
    assert "expected yes ·" in page and "expected no ·" in page


def test_a_rejection_says_before_and_after_until_when_it_can_be_reversed(project):
    """Thirty days from submission, to the minute, in UTC; afterwards the submission's page says so too."""
    waiting = failed_one(project)
    until = waiting.submitted_at + dt.timedelta(days=30)

    words = (
        "review",
        "reject",
        waiting.id,
        "--reason",
        f" {REASON}{' ' * 1024}",
        "--project",
        project.project,
    )
    out = ok(*map(str, words)).out.splitlines()

    assert out[0] == (
        f"rejecting submission {waiting.id} of {waiting.worker}: it will not be paid; that can be reversed until "
        f"{minute(until)}"
    )
    undo = f"`mitl review reverse {waiting.id}` can undo that until {minute(until)}"
    assert f"submission {waiting.id} is rejected; {undo}" in out
    shown = show(project, waiting.id).lines
    assert f"rejected: {REASON!r}" in shown and undo in shown


def test_rejecting_live_work_wants_to_be_confirmed(project):
    """Where nobody is there to ask, one clear line, and nothing is stored; `--yes` says it beforehand."""
    number = failed_one(project).id
    in_pipeline(project, "UPDATE batch SET environment = 'live'", "UPDATE worker SET environment = 'live'")

    message = fails(2, "review", "reject", str(number), "--reason", REASON, "--project", project.project)

    assert message == (
        "rejecting 1 submission refuses real people their pay and nobody is here to confirm it; add --yes; nothing was "
        "rejected"
    )
    with open_database(project.db_url, read_only=True) as session:
        assert Decision.REJECT not in answers.decision_counts(session, Environment.LIVE)
    outcome = mitl("review", "reject", str(number), "--reason", REASON, "--yes", "--project", project.project)
    assert "rejecting submission" in outcome.out  # confirmed; this server holds it in the sandbox


def test_nothing_is_rejected_where_the_person_thinks_better_of_it(project):
    """The question comes before anything is stored."""
    number = failed_one(project).id

    found = rule(
        project, [Ruling(number, Decision.REJECT, REASON)], SANDBOX, confirm=lambda environment, count: False
    )

    assert (found.status, found.lines) == ("nothing_to_do", ("nothing to do: you did not confirm it",))
    assert row(project, number).decision is Decision.QUEUED


def test_what_somebody_else_decides_while_the_question_stands_is_not_overruled(project):
    """Another person drops it meanwhile: the rejection is refused in one line, the drop stands."""
    number = failed_one(project).id

    def confirm(environment: Environment, count: int) -> bool:
        keep(project, Ruling(number, Decision.DROP), environment)
        return True

    with pytest.raises(StoreError, match="decided already: it was paid and is not used"):
        rule(project, [Ruling(number, Decision.REJECT, REASON)], SANDBOX, confirm=confirm)

    assert row(project, number).decision is Decision.DROP


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("Two wrong controls. " * 60, "has 1,199 characters; 20 to 1,024 are right"),
        (f"{REASON} \0", "a control character"),
        (f"{REASON} \udcff", "a control character"),
    ],
    ids=["long", "zero", "bytes"],
)
def test_a_reason_that_no_server_takes_is_refused_before_it_is_kept(project, reason, said):
    """Kept, it would stop every later run."""
    number = failed_one(project).id

    with pytest.raises(UsageError, match=said):
        rule(project, [Ruling(number, Decision.REJECT, reason)], SANDBOX)

    assert row(project, number).decision is Decision.QUEUED


def test_reasons_of_the_shortest_and_the_longest_length_are_taken():
    """And none beyond."""
    for length in (MIN_REASON, MAX_REASON):
        check_reason("x" * length, MAX_REASON, "it")
    for length in (MIN_REASON - 1, MAX_REASON + 1):
        with pytest.raises(UsageError, match="20 to 1,024 are right"):
            check_reason("x" * length, MAX_REASON, "it")


def test_what_was_not_rejected_cannot_be_reversed(project):
    """It still waits for a person, and no call is planned."""
    number = failed_one(project).id

    with pytest.raises(StoreError, match="is not rejected, so there is nothing to reverse"):
        reverse(project, [number], Decision.APPROVE, SANDBOX)

    assert row(project, number).decision is Decision.QUEUED


def test_no_submission_is_decided_where_one_of_them_does_not_exist(project):
    """The numbers are looked at together, before anything is stored."""
    number = failed_one(project).id

    with pytest.raises(StoreError, match="there is no submission 999"):
        rule(project, [Ruling(number, Decision.DROP), Ruling(999, Decision.DROP)], SANDBOX)

    assert row(project, number).decision is Decision.QUEUED


def test_a_rejection_of_past_work_cannot_be_reversed_from_here(project):
    """No server of this project knows it: one clear line, nothing is planned, and no deadline is shown."""
    number = failed_one(project).id
    rule(project, [Ruling(number, Decision.REJECT, REASON)], SANDBOX)
    in_pipeline(project, "UPDATE batch SET source = 'import'")

    with pytest.raises(StoreError, match="came from a file of past work"):
        reverse(project, [number], Decision.DROP, SANDBOX)

    assert row(project, number).decision is Decision.REJECT
    found = show(project, number)
    assert found.counts["reversible_until"] is None
    assert "decision: reject; it came from a file of past work" in found.lines

"""What `mitl pay` says of money and wages, and whether the ledger is the server's."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from cli_kit import fails, mitl, ok
from db_kit import sqlite_url
from docs_kit import mitl_lines
from harvest_kit import in_pipeline, on_server
from pay_kit import (
    LIVE,
    copy_of,
    granted,
    kept_project,
    take_long,
    topped_up,
    workers,
)

from mitl.crowd.endpoint import open_endpoint
from mitl.crowd.paying import paid_work
from mitl.db.locks import PAY, only_one
from mitl.db.session import open_database
from mitl.db.store import ledger
from mitl.errors import StoreError
from mitl.judgements.wages import wage_figures
from mitl.records import Environment
from mitl.settings import Settings
from mitl.stages.paying.bonuses import Gift, compensate
from mitl.stages.paying.check import check_pay
from mitl.stages.paying.report import pay_report
from mitl.stages.paying.top_up import TopUpTerms, top_up
from mitl.stages.releasing.origins import pay


@pytest.fixture
def settings(tmp_path_factory, tmp_path, monkeypatch) -> Settings:
    """A copy of a project whose workers are paid, as the current folder."""
    found = copy_of(kept_project(tmp_path_factory), tmp_path / "p")
    monkeypatch.chdir(found.project)
    return found


@pytest.fixture
def topped(tmp_path_factory, tmp_path, monkeypatch) -> Settings:
    """The same after a top-up."""
    found = topped_up(tmp_path_factory, tmp_path / "topped")
    monkeypatch.chdir(found.project)
    return found


def test_the_report_by_batch_and_by_worker_by_hand(settings):
    """Six submissions of $1.00; 1,050 s for $2.00 are $6.85 an hour; two workers are short of $12.00."""
    counts = pay_report(settings, LIVE).counts
    by_worker = {row["worker"]: row for row in counts["by_worker"]}
    slow = by_worker[workers(settings)["slow"]]

    assert counts["by_batch"] == [
        {
            "batch": "b1",
            "wording": "pairs-plain",
            "submitted": 6,
            "approved": 6,
            "rewards_cents": 600,
            "fees_cents": 0,
            "bonuses_cents": 0,
            "total_cents": 600,
        }
    ]
    assert (counts["workers"], counts["workers_under_floor"], counts["shortfall_cents"]) == (3, 2, 217)
    assert (slow["active_ms"], slow["hourly_cents"], slow["short_cents"]) == (1_050_000, 685, 150)
    assert by_worker[workers(settings)["untimed"]]["without_time"] == 1
    assert counts["wages"]["pairs-plain"] == {
        "submissions": 6,
        "timed": 5,
        "doubtful": 0,
        "median_active_ms": 400_000,
        "hourly_p10_cents": 680,
        "hourly_median_cents": 900,
        "hourly_p90_cents": 1200,
        "under_floor_share": 0.6,
    }


def test_the_report_after_a_top_up_counts_the_bonuses(topped):
    """Nobody is short any more; the wages by wording are those of the rewards alone."""
    result = pay_report(topped, LIVE)

    assert (result.counts["bonuses_cents"], result.counts["total_cents"]) == (217, 817)
    assert result.counts["shortfall_cents"] == 0
    assert result.counts["wages"]["pairs-plain"]["under_floor_share"] == 0.6
    assert result.next == ""


def test_the_datasheet_tells_the_time_of_pages_as_the_report_does(settings):
    """Also between two of them: 90.5005 s were 91 s here and 90 s there."""
    with open_database(settings.db_url, read_only=True) as session:
        settled = ledger.settled_work(session, LIVE)[:2]
    settled = [replace(row, active_ms=ms) for row, ms in zip(settled, (90_499, 90_502), strict=True)]

    [wages] = wage_figures(paid_work(settled, Environment.SANDBOX), 0)
    paid = pay(settings, Environment.SANDBOX, settled)

    assert paid is not None and wages.median_ms is not None
    assert (paid.median_page_s, paid.timed_pages) == (wages.median_ms / 1000, wages.measured)


def test_the_csv_sums_to_the_report(topped):
    """One row for each batch and worker, money in dollars, time in seconds."""
    counts = ok("pay", "--csv", "out/pay.csv", "--json").json["counts"]
    assert Path("out/pay.csv").stat().st_mode & 0o777 == 0o600  # it names workers
    with Path("out/pay.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))

    assert {row["worker"] for row in rows} == set(workers(topped).values())
    for column, key in (("rewards", "rewards_cents"), ("bonuses", "bonuses_cents"), ("total", "total_cents")):
        assert round(sum(float(row[column]) for row in rows) * 100) == counts[key]
    assert sum(float(row["active_seconds"]) for row in rows) == 2050
    assert sum(int(row["without_time"]) for row in rows) == 1


def test_a_project_without_submissions_has_nothing_to_show(settings):
    """The sandbox of a project that worked on live only."""
    result = pay_report(settings, Environment.SANDBOX)

    assert result.status == "nothing_to_do"
    assert top_up(
        settings, Environment.SANDBOX, TopUpTerms(floor_cents=1200), confirm=lambda environment, total: False
    ).status == ("nothing_to_do")


def test_the_sandbox_takes_claims_as_they_are_and_says_so(settings):
    """Scripted workers answer in no time: their claims show in practice what people would be paid."""
    in_pipeline(
        settings, "UPDATE batch SET environment = 'sandbox'", "UPDATE worker SET environment = 'sandbox'"
    )
    take_long(settings, seconds=1)
    result = pay_report(settings, Environment.SANDBOX, floor=1200)

    assert result.counts["shortfall_cents"] == 217
    assert any("on live it would be cut" in line for line in result.lines)


def test_past_work_from_files_is_no_part_of_pay(settings):
    """It was paid elsewhere: neither its time nor its reward is reckoned with."""
    in_pipeline(settings, "UPDATE batch SET source = 'import'")
    with open_database(settings.db_url, read_only=True) as session:
        assert ledger.settled_work(session, LIVE) == []


def test_a_page_that_claims_no_time_measured_nothing(settings):
    """As one that says nothing: 0 ms for twenty pairs would make its hour infinitely well paid."""
    in_pipeline(settings, "UPDATE judgement SET active_ms = 0")
    with open_database(settings.db_url, read_only=True) as session:
        rows = ledger.settled_work(session, LIVE)
        assert {row.active_ms for row in rows} == {ledger.active_ms(session, rows[0].id)} == {None}


def test_the_ledger_is_the_servers_or_the_check_says_where_not(settings):
    """A reward that is not booked, a bonus that nobody sent, and a bonus sent by hand: a row and exit status 1."""
    assert ok("pay", "check", "--json").json["counts"]["differences"] == []
    slow, fair = workers(settings)["slow"], workers(settings)["fair"]
    own = "(SELECT min(a.id) FROM assignment a JOIN worker w ON w.id = a.worker_id WHERE w.mturk_worker_id = '{}')"
    in_pipeline(
        settings,
        f"DELETE FROM ledger WHERE assignment_id = {own.format(slow)}",
        f"INSERT INTO ledger (assignment_id, kind, key, cents) VALUES ({own.format(fair)}, 'bonus', 'x', 5)",
    )
    outcome = mitl("pay", "check", "--json")
    found = {(row["here"], row["there"]) for row in outcome.json["counts"]["differences"]}

    assert outcome.status == 1
    assert found == {("reward $0.00", "Approved, $1.00"), ("bonus $0.05", "no such bonus")}
    assert "differ on 2 submissions" in fails(1, "pay", "check")


def test_work_that_waits_for_a_decision_is_no_difference(settings):
    """Nothing is booked for it here, and the server owes nothing for it yet."""
    with open_database(settings.db_url, read_only=True) as session:
        row = ledger.settled_work(session, LIVE)[0]
    ids = {"own": row.id, "there": row.mturk_assignment_id, "worker": row.worker}
    on_server(
        settings,
        "UPDATE assignment SET state = 'submitted', decided_at = NULL WHERE mturk_id = :there "
        "AND worker_id = (SELECT id FROM worker WHERE mturk_id = :worker)",
        **ids,
    )
    in_pipeline(
        settings,
        "UPDATE assignment SET status = 'Submitted', decision = 'queued' WHERE id = :own",
        "DELETE FROM ledger WHERE assignment_id = :own",
        **ids,
    )

    verdict = check_pay(settings, LIVE)
    assert (verdict.refusal, verdict.result.counts["differences"]) == (None, [])


def test_work_that_the_server_does_not_list_differs_though_nothing_was_paid_for_it(settings):
    """As where the server was restored from before it came in."""
    with open_database(settings.db_url, read_only=True) as session:
        row = ledger.settled_work(session, LIVE)[0]
    in_pipeline(
        settings,
        f"UPDATE assignment SET status = 'Submitted', decision = 'queued' WHERE id = {row.id}",
        f"DELETE FROM ledger WHERE assignment_id = {row.id}",
    )
    on_server(settings, f"UPDATE assignment SET mturk_id = 'X' WHERE mturk_id = '{row.mturk_assignment_id}'")

    differences = check_pay(settings, LIVE).result.counts["differences"]

    assert {"submission": row.key, "here": "reward $0.00", "there": "not listed"} in differences


def test_bonuses_from_elsewhere_are_adopted_once_and_counted(topped):
    """Sent by hand, or before a backup was restored: booked, and the next top-up counts them."""
    with open_database(topped.db_url, read_only=True) as session:
        rows = {row.worker: row for row in ledger.settled_work(session, LIVE)}
    slow = rows[workers(topped)["slow"]]
    with open_endpoint(topped, LIVE) as endpoint:
        endpoint.client().bonus(slow.mturk_assignment_id, slow.worker, 40, "Thank you.", token="by hand")
    in_pipeline(topped, "DELETE FROM journal WHERE kind = 'bonus'", "DELETE FROM ledger WHERE kind = 'bonus'")
    on_server(topped, "DELETE FROM request_token")

    first, second = check_pay(topped, LIVE, adopt=True), check_pay(topped, LIVE, adopt=True)
    assert (first.refusal, first.result.counts["adopted"]) == (None, 3)
    assert (second.refusal, second.result.counts["adopted"]) == (None, 0)
    counts = pay_report(topped, LIVE).counts
    assert (counts["bonuses_cents"], counts["fees_cents"]) == (217 + 40, 0)  # this endpoint charges none

    top_up(topped, LIVE, TopUpTerms(floor_cents=2400), confirm=lambda environment, total: True)
    assert sorted(granted(topped)["slow"]) == [40, 150, 310]


def test_an_adopted_bonus_whose_reply_was_lost_is_not_booked_again(topped):
    """It is booked under the key by which the next top-up knows it."""
    in_pipeline(
        topped,
        "UPDATE journal SET state = 'sending' WHERE kind = 'bonus'",
        "DELETE FROM ledger WHERE kind = 'bonus'",
    )

    assert check_pay(topped, LIVE, adopt=True).result.counts["adopted"] == 2
    assert top_up(topped, LIVE, confirm=lambda environment, total: True).status == "nothing_to_do"
    assert pay_report(topped, LIVE).counts["bonuses_cents"] == 217


def test_hits_that_the_server_lost_cannot_be_compared_and_are_counted(settings):
    """It says how many submissions that leaves out."""
    on_server(settings, "UPDATE hit SET mturk_id = 'X' || id")
    verdict = check_pay(settings, LIVE)

    assert verdict.refusal is None
    assert verdict.result.counts["unchecked"] == 6
    assert verdict.result.warnings


def test_bonuses_are_not_adopted_while_another_command_may_send_some(settings):
    """It would book what that one is about to book; a mere comparison writes nothing and goes ahead."""
    with only_one(settings.db_url, PAY):
        assert check_pay(settings, LIVE).refusal is None
        with pytest.raises(StoreError, match="another `mitl pay`"):
            check_pay(settings, LIVE, adopt=True)


def test_another_server_is_asked_for_nothing_that_is_on_the_first(settings, tmp_path):
    """Whatever the command: one line, and nobody is asked to confirm anything."""
    (settings.project / "credentials.toml").unlink()  # or the project would know the other one by that
    elsewhere = ("--crowd-db", sqlite_url(tmp_path / "elsewhere.db"))
    fair = workers(settings)["fair"]
    for words in (
        ("pay", "check"),
        ("pay", "top-up", "--yes-total", "2.17"),
        ("pay", "compensate", fair, "--amount", "1", "--reason", "Your page did not load on Friday."),
        ("publish", "--live", "--reconcile"),
        ("hits", "expire", "b1"),
        ("publish", "--live"),
    ):
        outcome = mitl(*words, *elsewhere)
        assert (outcome.status, "was posted to server" in outcome.error) == (1, True), words


def test_real_money_wants_the_exact_total(settings):
    """Given or typed; another amount, or nobody to type it, sends nothing."""
    assert "confirm it with --yes-total 2.17" in fails(2, "pay", "top-up")
    assert "--yes-total is $2.00, but the total of the bonuses is $2.17" in fails(
        2, "pay", "top-up", "--yes-total", "2.00"
    )
    assert granted(settings) == {}

    outcome = ok("pay", "top-up", "--yes-total", "2.17")
    assert "sent 2 bonuses of $2.17 in all" in outcome.out
    assert ok("pay", "top-up", "--yes-total", "2.17", "--json").json["status"] == "nothing_to_do"


def test_wrong_amounts_are_one_clear_line(settings):
    """An amount that is none, a worker whom nobody knows, a file in a file."""
    assert "'lots'" in fails(2, "pay", "top-up", "--floor", "lots")
    assert "'1.234'" in fails(2, "pay", "--floor", "1.234")
    assert "nobody of id 'A9'" in fails(2, "pay", "top-up", "--skip", "A9")
    assert "cannot write to 'mitl.toml/x.csv'" in fails(1, "pay", "--csv", "mitl.toml/x.csv")


def test_a_compensation_is_sent_once_and_is_no_pay_for_the_submitted_work(settings):
    """The same amount for the same reason again is nothing to do; a top-up pays the whole shortfall all the same."""
    slow = workers(settings)["slow"]
    words = ("pay", "compensate", slow, "--amount", "0.40", "--reason", "Your page did not load on Friday.")

    assert "confirm it with --yes-total 0.40" in fails(2, *words)
    sent, again = (ok(*words, "--yes-total", "0.40", "--json").json for _ in range(2))
    assert sent["counts"] == {
        "environment": "live",
        "worker": slow,
        "sent": 1,
        "bonuses_cents": 40,
        "fees_cents": 0,
        "total_cents": 40,
    }
    assert again["status"] == "nothing_to_do"
    assert not any(again["counts"][key] for key in ("sent", "bonuses_cents", "fees_cents", "total_cents"))
    ok("pay", "top-up", "--yes-total", "2.17")

    assert granted(settings)["slow"] == [40, 150]
    assert ok("pay", "--json").json["counts"]["bonuses_cents"] == 257
    assert ok("pay", "check", "--json").json["counts"]["differences"] == []


def test_a_bonus_that_was_granted_twice_is_booked_twice(topped):
    """Sent again by hand, its reason copied: the key of the first is taken."""
    with open_database(topped.db_url, read_only=True) as session:
        rows = {row.worker: row for row in ledger.settled_work(session, LIVE)}
    slow = rows[workers(topped)["slow"]]
    with open_endpoint(topped, LIVE) as endpoint:
        client = endpoint.client()
        [sent] = client.list_bonuses(assignment_id=slow.mturk_assignment_id)
        client.bonus(sent.assignment_id, sent.worker_id, sent.cents, sent.reason, token="by hand")

    adopting = check_pay(topped, LIVE, adopt=True)

    assert (adopting.refusal, adopting.result.counts["adopted"]) == (None, 1)
    assert pay_report(topped, LIVE).counts["bonuses_cents"] == 217 + 150


def test_a_compensation_that_is_adopted_stays_one(settings):
    """After a backup was restored: it is no pay for the submitted work, and the same words send nothing more."""
    slow = workers(settings)["slow"]
    gift = Gift(slow, 40, "Your page did not load on Friday.")
    compensate(settings, gift, LIVE, confirm=lambda environment, total: True)
    in_pipeline(
        settings, "DELETE FROM journal WHERE kind = 'bonus'", "DELETE FROM ledger WHERE kind = 'bonus'"
    )
    on_server(settings, "DELETE FROM request_token")

    assert check_pay(settings, LIVE, adopt=True).result.counts["adopted"] == 1
    again = compensate(settings, gift, LIVE, confirm=lambda environment, total: pytest.fail("it was sent"))
    top_up(settings, LIVE, confirm=lambda environment, total: True)

    assert again.status == "nothing_to_do"
    assert granted(settings)["slow"] == [40, 150]


def test_a_compensation_that_only_the_server_knows_on_other_work_is_not_sent_again(settings):
    """A database restored from before it, whose worker's latest work is another one by now."""
    slow = workers(settings)["slow"]
    gift = Gift(slow, 40, "Your page did not load on Friday.")
    compensate(settings, gift, LIVE, confirm=lambda environment, total: True)
    with open_database(settings.db_url, read_only=True) as session:
        *_, latest = [row for row in ledger.settled_work(session, LIVE) if row.worker == slow]
    in_pipeline(
        settings,
        "DELETE FROM journal WHERE kind = 'bonus'",
        "DELETE FROM ledger WHERE kind = 'bonus'",
        f"UPDATE assignment SET submitted_at = submitted_at - 3600000000 WHERE id = {latest.id}",
    )
    on_server(settings, "DELETE FROM request_token")

    with pytest.raises(StoreError, match="`mitl pay check --adopt`"):
        compensate(settings, gift, LIVE, confirm=lambda environment, total: True)
    assert granted(settings) == {"slow": [40]}
    assert check_pay(settings, LIVE, adopt=True).refusal is None
    assert compensate(settings, gift, LIVE, confirm=lambda environment, total: True).status == "nothing_to_do"


@pytest.mark.parametrize("by", ["compensate", "top-up"])
def test_a_compensation_that_was_confirmed_and_not_sent_is_sent_by_the_next_command(settings, by):
    """Both a top-up and the same command again go on with it, without asking once more; one cent is an amount."""
    gift = Gift(workers(settings)["fair"], 1, "Your page did not load on Friday.")

    def interrupted(label: str, total: int):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compensate(settings, gift, LIVE, confirm=lambda environment, total: True, progress=interrupted)
    if by == "compensate":
        result = compensate(settings, gift, LIVE, confirm=lambda environment, total: False)
    else:
        result = top_up(settings, LIVE, TopUpTerms(600), confirm=lambda environment, total: False)

    assert result.counts["sent"] == 1
    assert granted(settings) == {"fair": [1]}


def test_a_compensation_leaves_one_that_waits_to_its_own_command(settings):
    """It sends what was confirmed for its own worker; the other goes to its worker later, once."""
    known = workers(settings)
    waiting, other = (Gift(known[name], 40, "Your page did not load on Friday.") for name in ("fair", "slow"))

    def interrupted(label: str, total: int):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compensate(settings, waiting, LIVE, confirm=lambda environment, total: True, progress=interrupted)
    compensate(settings, other, LIVE, confirm=lambda environment, total: True)
    assert granted(settings) == {"slow": [40]}

    compensate(settings, waiting, LIVE, confirm=lambda environment, total: False)
    assert granted(settings) == {"slow": [40], "fair": [40]}


def test_whom_a_compensation_cannot_reach_is_one_clear_line(settings):
    """A bonus needs a submission, an amount and a reason that the worker understands."""
    words = ("pay", "compensate", workers(settings)["fair"], "--reason", "Your page did not load on Friday.")

    assert "a bonus needs a submission" in fails(1, *words[:2], "A9", *words[3:], "--amount", "1")
    assert "at least 0.01" in fails(2, *words, "--amount", "0")
    assert "20 to 1,900" in fails(2, *words[:3], "--amount", "1", "--reason", "sorry")


def test_the_commands_of_the_page_on_paying_run(settings):
    """Each `mitl pay` line of docs/paying.md, in order."""
    lines = [words for words in mitl_lines("docs/paying.md") if words[0] == "pay"]

    assert len(lines) >= 5
    for words in lines:
        ok(*words, *(("--yes-total", "2.17") if words == ["pay", "top-up"] else ()))

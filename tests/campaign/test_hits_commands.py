"""``mitl hits``: posted HITs are listed, ended, extended and deleted; a repeat is a success, a kill loses nothing."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
from contextlib import contextmanager
from dataclasses import replace

import pytest
from cli_kit import mitl, ok
from docs_kit import mitl_lines
from harvest_kit import on_server as on_crowd
from harvest_kit import queued
from posted_kit import copy_project, forget, keys, make_posted, talking
from sqlalchemy import text
from world_kit import SANDBOX, killed_at_posting, make_world, run_propose, run_publish

from mitl.campaign.bill import committed_cents
from mitl.campaign.kinds.pairs.planning import Campaign
from mitl.campaign.publish import publish
from mitl.crowd import calls
from mitl.crowd.context import open_context
from mitl.db.session import open_database
from mitl.db.store import answers, commitments, journal
from mitl.db.store.commitments import StoredPlan
from mitl.errors import CrowdError, FundsError, StoreError, UsageError
from mitl.records import Decision, HitState, JournalState
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.ending import delete, expire
from mitl.stages.hits.extend import ExtensionWish, extend
from mitl.stages.hits.scope import list_hits
from mitl.stages.hits.simulate import simulate
from mitl.stages.reporting.status import status
from mitl.stages.reviewing.review import Ruling, rule
from mitl.stages.rounds.asking import committed_cents as round_cents


@pytest.fixture(scope="module")
def posted_template(tmp_path_factory):
    """A project with posted HITs, made once."""
    return make_posted(tmp_path_factory.mktemp("posted") / "p")


@pytest.fixture(scope="module")
def worked_template(posted_template, tmp_path_factory):
    """The same when people have answered and everything is decided."""
    settings = copy_project(posted_template, tmp_path_factory.mktemp("worked") / "p")
    simulate(settings, SANDBOX, population="careful")
    harvest(settings, SANDBOX)
    rulings = [Ruling(number, Decision.APPROVE) for number in queued(settings)]
    if rulings:
        rule(settings, rulings, SANDBOX)
    return settings


@pytest.fixture
def asked(posted_template, tmp_path):
    """A copy of the project with HITs out."""
    return copy_project(posted_template, tmp_path / "p")


@pytest.fixture
def worked(worked_template, tmp_path):
    """A copy of the project whose work is decided."""
    return copy_project(worked_template, tmp_path / "p")


def more(settings, assignments=None, days=None, *, confirm=True, **wish):
    """Extend b1; returns the result and the lines of the bill."""
    lines = []
    result = extend(
        settings,
        ExtensionWish("b1", assignments, days, **wish),
        confirm=lambda environment, total: confirm,
        announce=lines.append,
    )
    return result, lines


def interrupted(label, total):
    """A bar at which Ctrl-C is pressed: what is planned is not carried out."""
    raise KeyboardInterrupt


def on_server(settings):
    """The HITs as the server lists them."""
    with talking(settings) as (_, client):
        return list(client.list_hits())


def promised(settings) -> int:
    """Cents spent and promised."""
    with open_database(settings.db_url, read_only=True) as session:
        return committed_cents(session, SANDBOX, charges_fee=False)


def test_batches_and_hits_are_listed(asked):
    """One row a batch; with its name one row a HIT, with the id that the server gave it."""
    ids = keys(asked)

    [batch] = list_hits(asked).counts["rows"]
    rows = list_hits(asked, "b1").counts["rows"]

    assert (batch["batch"], batch["hits"], batch["posted"], batch["closed"]) == ("b1", len(ids), len(ids), 0)
    assert {row["hit"]: row["mturk_hit_id"] for row in rows} == ids
    with pytest.raises(UsageError, match=r"no batch 'b9'.*known: b1"):
        list_hits(asked, "b9")


def test_ended_hits_can_no_longer_be_taken_and_a_repeat_is_a_success(asked):
    """All are over on the server, each call is in the journal, and the second time nothing is left to end."""
    n_hits = len(keys(asked))

    results = [expire(asked, []), expire(asked, ["b1"])]

    assert [one.counts["expired"] for one in results] == [n_hits, 0]
    assert [one.status for one in results] == ["done", "nothing_to_do"]
    now = dt.datetime.now(dt.UTC)
    assert all(hit.expires_at <= now for hit in on_server(asked))
    with open_database(asked.db_url, read_only=True) as session:
        assert set(journal.states(session, "expire").values()) == {JournalState.DONE}


def test_where_all_hits_ended_harvest_comes_next_until_they_have_time_again(asked):
    """Nobody can work on them, so there is nothing to serve."""
    expire(asked, [])
    assert status(asked).next == "mitl harvest"

    more(asked, days=2)
    assert status(asked).next.startswith("mitl serve")
    expire(asked, [])
    assert status(asked).next == "mitl harvest"


def test_an_end_whose_reply_was_lost_is_booked_by_the_next_run(asked):
    """A kill after the call leaves `sending`; nothing is left open in the end."""
    expire(asked, [])
    forget(asked, "UPDATE journal SET state = 'sending' WHERE kind = 'expire' AND key LIKE 'b1:1:%'")

    result = expire(asked, [])

    assert result.counts["expired"] == 1
    with open_database(asked.db_url, read_only=True) as session:
        assert set(journal.states(session, "expire").values()) == {JournalState.DONE}


def test_hits_may_be_ended_extended_and_ended_again(asked):
    """Each turn is a call of its own."""
    n_hits = len(keys(asked))
    expire(asked, [])

    result, _ = more(asked, days=3)

    assert result.counts["hits_prolonged"] == n_hits
    assert all(hit.status == "Assignable" for hit in on_server(asked))
    assert more(asked, days=3)[0].status == "nothing_to_do"
    assert expire(asked, []).counts["expired"] == n_hits


def test_what_was_ended_is_asked_again_after_a_harvest(asked):
    """The pairs of a HIT that nobody answered are open again, with one HIT each."""
    n_hits = len(keys(asked))
    expire(asked, [])

    found, again = harvest(asked, SANDBOX), harvest(asked, SANDBOX)

    assert (found.status, found.counts["ended"]) == ("done", n_hits)
    assert f"{n_hits} HITs ended before all answers came; what they lack is open again" in found.lines
    assert again.status == "nothing_to_do"
    assert len(keys(asked, HitState.CLOSED)) == n_hits
    assert run_publish(asked).counts["hits_again"] == n_hits


def test_more_workers_are_asked_once_and_the_promise_is_exact(asked):
    """The bill, the promise, the server and the database agree; a repeat has nothing to do."""
    n_hits, before = len(keys(asked)), promised(asked)

    result, lines = more(asked, 3)
    again, silent = more(asked, 3)

    assert (result.counts["hits_extended"], result.counts["total_cents"]) == (n_hits, n_hits * 200)
    assert f"{2 * n_hits} more assignments at $1.00" in "\n".join(lines)
    assert {hit.max_assignments for hit in on_server(asked)} == {3}
    assert promised(asked) == before + n_hits * 200 == n_hits * 300
    assert (again.status, again.counts["total_cents"], silent) == ("nothing_to_do", 0, [])


def test_finished_hits_are_out_again_when_more_workers_are_asked(worked):
    """A second opinion of everything: the HITs come back, are answered by others, and are paid."""
    n_hits, before = len(keys(worked, HitState.CLOSED)), promised(worked)

    result, _ = more(worked, 2)

    assert result.counts["total_cents"] == n_hits * 100
    assert len(keys(worked, HitState.POSTED)) == n_hits
    assert promised(worked) == before + n_hits * 100
    simulate(worked, SANDBOX, population="careful")
    assert harvest(worked, SANDBOX).counts["fetched"] == n_hits
    assert run_publish(worked).status == "nothing_to_do"


@pytest.mark.parametrize("lost", ["planned", "sending"])
def test_an_extension_that_was_cut_short_is_completed_and_never_doubled(asked, lost):
    """Killed before a call or after it: the same command again, without another bill, asks each worker once."""
    more(asked, 2)
    forget(asked, f"UPDATE journal SET state = '{lost}' WHERE kind = 'extend'")
    forget(asked, "UPDATE hit SET assignments = 1")
    assert "was cut short" in list_hits(asked).warnings[0]

    result, lines = more(asked, 2)

    assert (result.counts["total_cents"], lines) == (0, [])
    assert {hit.max_assignments for hit in on_server(asked)} == {2}
    assert promised(asked) == len(keys(asked)) * 200
    assert list_hits(asked).warnings == ()


def test_an_extension_that_was_cut_short_is_completed_alone(asked):
    """Its maximum was meant for what it planned; HITs that ask too few since then come with the next run."""
    more(asked, 2, max_cost_cents=len(keys(asked)) * 100)
    forget(
        asked,
        "UPDATE journal SET state = 'sending' WHERE kind = 'extend' AND id = (SELECT max(id) FROM journal)",
    )
    forget(asked, "DELETE FROM journal WHERE kind = 'extend' AND state = 'done'")
    forget(asked, "UPDATE hit SET assignments = 1")
    forget(asked, "UPDATE batch SET assignments = 1")

    result, lines = more(asked, 2, max_cost_cents=0)

    assert (result.counts["hits_extended"], result.counts["total_cents"], lines) == (1, 0, [])
    assert result.lines == (
        "more workers are asked on 1 HIT of batch b1",
        "that completes an interrupted run, and nothing was planned beside it",
    )
    result, lines = more(asked, 2)
    assert result.counts["hits_extended"] == len(keys(asked)) - 1
    assert "with 2 workers each instead of 1" in lines[0]  # the batch is not raised before all of it is
    assert len(result.lines) == 1


def journalled(settings, *, state="failed", **hit):
    """Leave all extensions as an interrupted run would, and what they booked on the HITs undone."""
    forget(settings, f"UPDATE journal SET state = '{state}' WHERE kind = 'extend'")
    for name, value in hit.items():
        forget(settings, f"UPDATE hit SET {name} = {value!r}")


def test_more_time_that_was_cut_short_is_not_given_to_closed_hits(asked):
    """They were ended and harvested since; a publish would ask their pairs twice at once."""
    more(asked, days=30)
    journalled(asked)
    assert "was cut short" in list_hits(asked).warnings[0]
    expire(asked, [])
    harvest(asked, SANDBOX)

    result, _ = more(asked, days=30)

    assert (result.status, list_hits(asked).warnings) == ("nothing_to_do", ())
    assert "closed ones are given no time" in result.lines[0]
    assert {hit.status for hit in on_server(asked)} == {"Reviewable"}


@pytest.mark.parametrize("state", ["failed", "sending", "planned"])
def test_a_time_that_an_interrupted_run_wished_gives_way_to_a_later_one(asked, state):
    """The journal's has passed, or is too early for what is wished now; the row keeps what was sent."""
    more(asked, days=30)
    journalled(asked, state=state)
    past = "2020-01-01T00:00:00+00:00"
    forget(
        asked, f"UPDATE journal SET request = json_set(request, '$.until', '{past}') WHERE kind = 'extend'"
    )

    result, _ = more(asked, days=40)

    assert result.counts["hits_prolonged"] == len(keys(asked))
    late = dt.datetime.now(dt.UTC) + dt.timedelta(days=39)
    assert all(hit.status == "Assignable" and hit.expires_at > late for hit in on_server(asked))
    with open_database(asked.db_url, read_only=True) as session:
        rows = journal.starting_with(session, "extend", "")
        assert all(json.loads(row.request)["until"] > late.isoformat() for row in rows)
    assert more(asked, days=40)[0].status == "nothing_to_do"


def test_a_round_pays_for_as_many_hits_asked_again_as_there_are(asked):
    """Where their number is above that of the values that a statement takes; none is of the round that planned it."""
    n_hits, columns = len(keys(asked)), "number, attempt, assignments, state, token"
    forget(
        asked,
        f"""WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60)
        INSERT INTO hit (batch_id, {columns}) SELECT 1, i, 2, 1, 'planned', 't' || i FROM n""",
    )
    with open_database(asked.db_url) as session:
        [(round_id, name)] = session.execute(text("SELECT round_id, name FROM batch"))
        again = [f"{name}:{number}:2" for number in range(1, 61)]
        plan = StoredPlan(SANDBOX, {}, False, None, again, 60, 60, 6000, round_id + 1)
        commitments.add_plan(session, plan, dt.datetime.now(dt.UTC))
        session.connection().connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 50)
        found = [
            sum(promise.count for promise in commitments.promises(session, SANDBOX, round_id=of))
            for of in (round_id, round_id + 1)
        ]
    assert found == [n_hits, 60]


@pytest.mark.parametrize("state", ["failed", "planned"])
def test_an_extension_that_a_larger_one_overtook_promises_nothing(asked, state):
    """Each HIT may cost its workers' pay once, also where the ceiling just covers that."""
    n_hits = len(keys(asked))
    with pytest.raises(KeyboardInterrupt):
        extend(asked, ExtensionWish("b1", 3), confirm=lambda *_: True, progress=interrupted)
    forget(asked, f"UPDATE journal SET state = '{state}' WHERE kind = 'extend'")
    assert promised(asked) == n_hits * 300
    with open_context(asked, SANDBOX, read_only=True) as context:
        ((row,),) = context.session.execute(text("SELECT DISTINCT round_id FROM batch"))
        assert [round_cents(context, of) for of in (row, row + 1)] == [n_hits * 300, 0]

    result, _ = more(replace(asked, ceiling_cents=n_hits * 400), 4)

    assert result.counts["total_cents"] == n_hits * 300
    assert promised(asked) == n_hits * 400
    assert list_hits(asked).warnings == ()


def test_an_extension_of_deleted_hits_promises_nothing_and_one_of_closed_hits_does(worked):
    """The same command carries it out on HITs that are closed, without another bill; on deleted ones nobody can."""
    n_hits, before = len(keys(worked)), promised(worked)
    with pytest.raises(KeyboardInterrupt):
        extend(worked, ExtensionWish("b1", 3), confirm=lambda *_: True, progress=interrupted)
    assert promised(worked) == before + n_hits * 200

    assert delete(worked, []).counts["deleted"] == n_hits

    assert promised(worked) == before
    assert list_hits(worked).warnings == ()


def test_a_replaced_hit_promises_an_extension_only_where_its_call_was_sent(asked):
    """What was sent may have had its effect before the HIT was closed."""
    n_hits = len(keys(asked))
    more(asked, 3)
    journalled(asked, state="planned", assignments=1)
    expire(asked, [])
    harvest(asked, SANDBOX)
    forget(asked, "UPDATE batch SET assignments = 1")
    run_publish(asked)

    assert promised(asked) == n_hits * 100
    assert list_hits(asked).warnings == ()
    forget(asked, "UPDATE journal SET state = 'sending' WHERE kind = 'extend'")
    assert promised(asked) == n_hits * 400


def test_hits_that_ask_again_are_raised_by_as_many_workers_as_the_batch(asked):
    """Two of three answers are used, so the next attempt asks one worker; of four, two; however often it is run."""
    n_hits = len(keys(asked))
    # As if others had answered each page already, on HITs that these replace.
    forget(asked, "UPDATE hit SET attempt = 2 WHERE number = 1")
    forget(asked, "UPDATE hit SET assignments = 3 WHERE number <> 1")
    forget(asked, "UPDATE batch SET assignments = 3")
    with talking(asked) as (_, client):
        for name, hit_id in keys(asked).items():
            assert name == "b1:1:2" or client.extend(hit_id, 2, f"raised-{hit_id}")

    result, lines = more(asked, 4)

    assert (result.counts["hits_extended"], result.counts["total_cents"]) == (n_hits, n_hits * 100)
    assert "with 4 workers each instead of 3" in lines[0]
    assert sorted(hit.max_assignments for hit in on_server(asked)) == [2, *[4] * (n_hits - 1)]
    assert promised(asked) == 200 + (n_hits - 1) * 400
    assert more(asked, 4)[0].status == "nothing_to_do"
    # Killed before the batch's own number was raised, or before the calls were booked.
    forget(asked, "UPDATE batch SET assignments = 3")
    assert more(asked, 4)[0].status == "nothing_to_do"
    forget(asked, "UPDATE batch SET assignments = 3")
    forget(asked, "UPDATE hit SET assignments = assignments - 1")
    forget(asked, "UPDATE journal SET state = 'sending' WHERE kind = 'extend'")
    more(asked, 4)
    more(asked, 5)
    assert sorted(hit.max_assignments for hit in on_server(asked)) == [3, *[5] * (n_hits - 1)]
    assert promised(asked) == 300 + (n_hits - 1) * 500


def test_ten_workers_are_refused_with_mturks_reason(asked):
    """Nothing is planned, called or promised."""
    before = promised(asked)

    with pytest.raises(UsageError, match="refuses to raise such a HIT to 10 or more"):
        more(asked, 10)

    assert promised(asked) == before
    assert {hit.max_assignments for hit in on_server(asked)} == {1}


def test_an_extension_asks_for_money_first(asked):
    """Above the maximum, above the ceiling, or not confirmed: refused, and nothing is written."""
    n_hits = len(keys(asked))
    poor = replace(asked, ceiling_cents=n_hits * 200 - 1)

    with pytest.raises(UsageError, match="above --max-cost"):
        more(asked, 2, max_cost_cents=n_hits * 100 - 1)
    with pytest.raises(FundsError, match="ceiling"):
        more(poor, 2)
    with pytest.raises(UsageError, match="not confirmed; nothing was extended"):
        more(asked, 2, confirm=False)

    assert promised(asked) == n_hits * 100
    assert {hit.max_assignments for hit in on_server(asked)} == {1}


def test_the_ceiling_is_asked_again_after_the_question_and_before_the_calls(asked):
    """Others promise money meanwhile, or a run is cut short and the ceiling lowered: no worker more is asked."""
    n_hits, wish = len(keys(asked)), ExtensionWish("b1", 2)

    def spend(environment, total):
        forget(asked, "UPDATE batch SET reward_cents = reward_cents + 1")
        return True

    with pytest.raises(FundsError, match="ceiling"):
        extend(replace(asked, ceiling_cents=n_hits * 200), wish, confirm=spend)
    assert promised(asked) == n_hits * 101
    with pytest.raises(KeyboardInterrupt):
        extend(asked, wish, confirm=lambda environment, total: True, progress=interrupted)
    with pytest.raises(FundsError, match="above the ceiling"):
        more(replace(asked, ceiling_cents=n_hits * 202 - 1), 2)
    assert {hit.max_assignments for hit in on_server(asked)} == {1}


def test_more_workers_for_hits_whose_time_is_over_need_days(asked):
    """Nobody could take them; with both, they can. A HIT that was closed promises both workers' pay anew."""
    expire(asked, [])
    harvest(asked, SANDBOX)
    with pytest.raises(UsageError, match="add --days"):
        more(asked, 2)

    result, _ = more(asked, 2, days=5)

    assert result.counts["total_cents"] == promised(asked) == len(keys(asked)) * 200
    assert result.counts["hits_extended"] == result.counts["hits_prolonged"] == len(keys(asked))
    assert all(hit.n_available == 2 and hit.status == "Assignable" for hit in on_server(asked))


def test_a_batch_that_is_not_posted_whole_is_not_extended(asked):
    """Its planned HITs would keep the old number of workers."""
    with talking(asked) as (_, client):
        client.expire(keys(asked)["b1:1:1"])
        client.delete(keys(asked)["b1:1:1"])
    forget(asked, "UPDATE hit SET state = 'planned', mturk_hit_id = NULL WHERE number = 1")

    with pytest.raises(StoreError, match="batch b1 has 1 HIT planned and not posted"):
        more(asked, 2)


def test_only_hits_whose_work_is_decided_are_deleted(asked):
    """What is out stays, ended or not, until a harvest has closed it here."""
    expire(asked, ["b1"])
    assert delete(asked, []).counts == {
        "environment": "sandbox",
        "deleted": 0,
        "left_undecided": len(keys(asked)),
        "left_reversible": 0,
    }
    harvest(asked, SANDBOX)
    assert delete(asked, []).counts["deleted"] == len(keys(asked))


def test_deleting_is_repeatable_and_loses_nothing(worked):
    """The server has them no longer; a publish afterwards finds nothing gone and nothing to ask."""
    n_hits = len(keys(worked))

    results = [delete(worked, ["b1"]), delete(worked, ["b1"])]

    assert [one.counts["deleted"] for one in results] == [n_hits, 0]
    assert on_server(worked) == []
    assert harvest(worked, SANDBOX).status == "nothing_to_do"
    again = run_publish(worked)
    assert (again.status, again.warnings) == ("nothing_to_do", ())


def test_what_was_asked_again_is_deleted_and_ended_too(asked):
    """A HIT that another replaces is on the server as before, and may even be open to workers there."""
    first = next(iter(keys(asked).values()))
    expire(asked, ())
    harvest(asked, SANDBOX)
    run_publish(asked)
    with talking(asked) as (_, client):
        client.set_expiry(first, dt.datetime.now(dt.UTC) + dt.timedelta(days=1))

    assert expire(asked, ["b1"]).counts["expired"] == len(keys(asked)) // 2 + 1
    harvest(asked, SANDBOX)
    assert delete(asked, ["b1"]).counts["deleted"] == len(keys(asked))
    assert on_server(asked) == []


def test_a_hit_stays_while_one_of_its_answers_is_on_the_server_alone(worked):
    """Nothing here would give it back."""
    forget(
        worked,
        "UPDATE assignment SET hit_id = (SELECT max(id) FROM hit) WHERE hit_id = (SELECT min(id) FROM hit)",
    )

    result = delete(worked, [])

    assert (result.counts["deleted"], result.counts["left_undecided"]) == (len(keys(worked)) - 1, 1)
    assert [hit.annotation for hit in on_server(worked)] == [f"mitl1:{worked.project_id}:b1:1:1"]


def test_a_deletion_whose_reply_was_lost_is_booked_by_the_next_run(worked):
    """The HIT is gone from the listing, and its call is closed all the same."""
    delete(worked, [])
    forget(worked, "UPDATE journal SET state = 'sending' WHERE kind = 'delete' AND key = 'b1:1:1'")

    delete(worked, [])

    with open_database(worked.db_url, read_only=True) as session:
        assert set(journal.states(session, "delete").values()) == {JournalState.DONE}


def test_a_rejection_that_can_be_reversed_keeps_its_hit(asked):
    """After deletion the worker could not be paid after all."""
    simulate(asked, SANDBOX, population="random")
    harvest(asked, SANDBOX)
    first, *others = queued(asked)
    reason = "all answers are the same, also on the two controls"
    rule(asked, [Ruling(first, Decision.REJECT, reason)], SANDBOX)
    rule(asked, [Ruling(number, Decision.DROP) for number in others], SANDBOX)
    with open_database(asked.db_url, read_only=True) as session:
        [refused] = answers.assignments(session, SANDBOX, (Decision.REJECT,))
    with open_database(asked.db_url) as session:
        # A run died before it made this call, when the HIT was done with; more was asked of it since.
        key = f"{refused.batch}:{refused.number}:{refused.attempt}"
        journal.announce(session, "delete", [(key, None, "{}")], dt.datetime.now(dt.UTC))
        session.commit()

    result = delete(asked, [])

    assert result.counts["left_reversible"] == 1
    assert [hit.annotation for hit in on_server(asked)] == [f"mitl1:{asked.project_id}:b1:{refused.number}:1"]
    # Also where the call was made and its booking lost.
    forget(asked, "UPDATE assignment SET status = 'Submitted' WHERE decision = 'reject'")
    assert delete(asked, []).counts["left_reversible"] == 1


@pytest.mark.parametrize("what", ["expire", "more workers", "more time", "delete"])
def test_a_hit_whose_call_is_refused_holds_up_no_other(request, monkeypatch, what):
    """One line names it, and the calls of later windows are made; the next run tries it again."""
    monkeypatch.setattr(calls, "WINDOW", 1)
    monkeypatch.setattr(calls, "_IN_FLIGHT", 0)
    settings = request.getfixturevalue("worked" if what == "delete" else "asked")
    [first, *others] = keys(settings).items()
    lost = []

    @contextmanager
    def refusing(label, total):
        if not lost:
            lost.append(label)
            on_crowd(settings, f"UPDATE hit SET mturk_id = 'X' WHERE mturk_id = '{first[1]}'")
        yield lambda n: None

    run = {
        "expire": lambda: expire(settings, ["b1"], progress=refusing),
        "delete": lambda: delete(settings, ["b1"], progress=refusing),
        "more workers": lambda: extend(
            settings, ExtensionWish("b1", 3, 9), confirm=lambda *_: True, progress=refusing
        ),
        "more time": lambda: extend(
            settings, ExtensionWish("b1", days=9), confirm=lambda *_: True, progress=refusing
        ),
    }[what]
    before = {hit.hit_id: hit for hit in on_server(settings)}

    with pytest.raises(CrowdError, match=f"refused, all others made; first {first[0]}.*HITDoesNotExist"):
        run()

    after = {hit.hit_id: hit for hit in on_server(settings)}
    changed = {hit_id for hit_id, hit in before.items() if after.get(hit_id) != hit}
    assert changed == {hit_id for _, hit_id in [first, *others]}
    if what != "delete":
        assert after["X"] == replace(before[first[1]], hit_id="X")


def test_the_commands_speak_as_a_person_expects(asked, monkeypatch):
    """List, extend, expire, delete by the command line; bad words are one line that says what would be right."""
    monkeypatch.chdir(asked.project)

    assert "b1" in ok("hits", "list").out
    assert "b1:1:1" in ok("hits", "list", "b1").out
    extended = json.loads(ok("hits", "extend", "b1", "--assignments", "2", "--json").out)
    assert extended["counts"]["hits_extended"] == len(keys(asked))
    assert "can no longer be taken" in ok("hits", "expire", "b1").out
    assert "nothing to do" in ok("hits", "expire", "--all").out
    kept = ok("hits", "delete", "--all").out
    assert "left: 3 HITs" in kept and "mitl hits expire --all --sandbox, then" in kept
    assert "batches by name" in mitl("hits", "expire").error
    assert "batches by name" in mitl("hits", "delete", "b1", "--all").error
    assert "no batch 'b2'" in mitl("hits", "expire", "b2").error
    assert "--assignments N" in mitl("hits", "extend", "b1").error
    assert "is on sandbox, not on live" in mitl("hits", "expire", "b1", "--live").error
    assert "no batch was posted on live yet" in mitl("hits", "expire", "--all", "--live").error


def test_the_commands_of_the_page_run_as_written(asked, monkeypatch):
    """docs/publishing.md, in order, on a posted batch whose answers are fetched before its HITs are deleted."""
    monkeypatch.chdir(asked.project)
    lines = [words for words in mitl_lines("docs/publishing.md") if words[0] == "hits"]

    for words in lines:
        if words[1] == "delete":
            ok("harvest")
        ok(*words)

    assert [words[1] for words in lines] == ["list", "extend", "expire", "delete"]
    assert on_server(asked) == []


def test_on_postgresql_it_is_the_same(tmp_path, postgres_project_url):
    """Extended, answered, ended and deleted, on the other database engine."""
    settings = make_posted(tmp_path / "p", db_url=postgres_project_url)
    n_hits = len(keys(settings))

    assert more(settings, 2, days=9)[0].counts["total_cents"] == n_hits * 100
    assert more(settings, 2, days=9)[0].status == "nothing_to_do"
    assert promised(settings) == n_hits * 200
    assert [expire(settings, []).counts["expired"] for _ in range(2)] == [n_hits, 0]
    harvest(settings, SANDBOX)
    assert delete(settings, ["b1"]).counts["deleted"] == n_hits
    [row] = list_hits(settings).counts["rows"]
    assert (row["closed"], row["submitted"]) == (n_hits, 0)


def test_nothing_was_posted_yet(tmp_path):
    """One line says what comes first."""
    settings = make_world(tmp_path / "p", n_images=6)

    assert list_hits(settings).status == "nothing_to_do"
    with pytest.raises(StoreError, match="`mitl status` says what comes first"):
        expire(settings, [])


@pytest.mark.parametrize("state", ["planned", "sending"])
def test_hits_that_were_planned_and_not_posted_are_dropped(asked, state):
    """A plan under a ceiling that was lowered since, or for which the server had no money, is not a promise for ever;
    its pairs are asked on new HITs."""
    name, never_sent = next(iter(keys(asked).items()))
    with talking(asked) as (_, client):
        client.expire(never_sent)
        client.delete(never_sent)
    forget(
        asked, f"UPDATE hit SET state = '{state}', mturk_hit_id = NULL WHERE mturk_hit_id = '{never_sent}'"
    )
    forget(asked, f"UPDATE journal SET state = 'failed' WHERE kind = 'create' AND key = '{name}'")
    before = promised(asked)

    result = expire(asked, ())

    assert (result.counts["dropped"], result.counts["hits_planned"]) == (1, 0)
    assert promised(asked) == before - 100
    assert expire(asked, ()).status == "nothing_to_do"
    again = run_publish(asked)
    assert again.counts["hits_again"] == 1
    assert {hit.removesuffix("1") + "2" for hit in [name]} <= set(keys(asked, HitState.POSTED))


def test_a_plan_that_was_dropped_is_not_called_posted(tmp_path):
    """Publishing that died before its first HIT, and then ended: the next run asks all of it again."""
    settings = make_world(tmp_path, n_images=20)
    run_propose(settings, image_queries=3, caption_queries=4)
    with pytest.raises(KeyboardInterrupt):
        publish(settings, Campaign(SANDBOX), confirm=lambda total: True, progress=killed_at_posting)

    dropped = expire(settings, ()).counts["dropped"]

    assert dropped > 0
    assert run_publish(settings).counts["hits_posted"] == dropped

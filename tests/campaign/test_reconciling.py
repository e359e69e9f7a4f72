"""What the server has against what the database knows: lost replies, deleted HITs, HITs that nobody here knows."""

from __future__ import annotations

import datetime as dt

import pytest
from harvest_kit import fail_controls, on_server, queued
from posted_kit import copy_project, forget, keys, make_posted, talking
from publish_kit import proposed
from sqlalchemy import text
from world_kit import SANDBOX, run_publish

from mitl.campaign import jobs
from mitl.campaign.posting import require_safe_repeat, sweep_server
from mitl.campaign.publish import reconcile
from mitl.crowd.client import Keys, MTurkClient
from mitl.crowd.context import Context
from mitl.crowd.endpoint import open_endpoint
from mitl.crowd_server import admin
from mitl.db.session import open_database
from mitl.db.store import hits as hit_store
from mitl.errors import CrowdError, EndpointError
from mitl.records import Decision, Environment, HitState
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.ending import delete, expire
from mitl.stages.hits.simulate import simulate
from mitl.stages.reviewing.decisions import Ruling
from mitl.stages.reviewing.review import rule


@pytest.fixture(scope="module")
def posted_template(tmp_path_factory):
    """A project with posted HITs, made once."""
    return make_posted(tmp_path_factory.mktemp("posted") / "p")


@pytest.fixture
def asked(posted_template, tmp_path):
    """A copy of the project, its crowd server's database included."""
    return copy_project(posted_template, tmp_path / "p")


LOSE = "UPDATE hit SET state = 'sending', mturk_hit_id = NULL WHERE number = 1"


def test_where_all_is_well_there_is_nothing_to_do(asked):
    """The server has what is posted here and nothing else of this project."""
    result = reconcile(asked, SANDBOX)

    assert result.status == "nothing_to_do"
    assert not result.warnings


@pytest.mark.parametrize("state", ["sending", "planned"])
def test_lost_hits_are_adopted_without_posting_anything(asked, state):
    """Lost in the call, or unknown to a database that was restored: found by their annotation."""
    before = keys(asked, HitState.POSTED)
    forget(asked, f"UPDATE hit SET state = '{state}', mturk_hit_id = NULL")
    forget(asked, "DELETE FROM journal" if state == "planned" else "UPDATE journal SET state = 'sending'")

    result = reconcile(asked, SANDBOX)

    assert result.counts["hits_adopted"] == len(before)
    assert result.counts["hits_unposted"] == result.counts["hits_orphaned"] == 0
    assert keys(asked, HitState.POSTED) == before
    with open_database(asked.db_url, read_only=True) as session:
        states = set(session.scalars(text("SELECT state FROM journal WHERE kind = 'create'")))
    assert states == {"done"}


def test_a_harvest_beside_publish_may_book_what_was_posted_first(tmp_path, monkeypatch):
    """Publish counts what is out, whoever saw it there first."""
    settings = proposed(tmp_path / "p")
    create, looks = jobs.create_hit, []

    def seen_at_once(*words):
        made = create(*words)
        looks.append(harvest(settings, SANDBOX))
        return made

    monkeypatch.setattr(jobs, "create_hit", seen_at_once)
    result = run_publish(settings)

    assert len(looks) > 1
    assert result.counts["hits_posted"] == len(looks) == len(keys(settings, HitState.POSTED))
    assert reconcile(settings, SANDBOX).status == "nothing_to_do"


def test_a_harvest_fetches_the_work_on_a_hit_whose_reply_was_lost(asked):
    """Nobody has to publish again first."""
    n_hits = len(keys(asked))
    simulate(asked, SANDBOX)
    forget(asked, LOSE)

    assert harvest(asked, SANDBOX).counts["fetched"] == n_hits


def test_hits_deleted_behind_our_back_are_closed_and_asked_again(asked):
    """One warning names them; the next publish posts their pairs again."""
    first = keys(asked, HitState.POSTED)["b1:1:1"]
    with talking(asked) as (_, client):
        client.expire(first)
        client.delete(first)

    result = reconcile(asked, SANDBOX)

    [warning] = result.warnings
    assert "b1:1:1" in warning and "deleted on the server" in warning
    assert result.counts["hits_gone"] == 1
    assert "b1:1:1" in keys(asked, HitState.CLOSED)
    again = run_publish(asked)
    assert again.counts["hits_again"] == 1 and not again.warnings
    assert "b1:1:2" in keys(asked, HitState.POSTED)


def test_a_hit_deleted_after_all_its_work_came_in_is_closed_without_a_word(asked):
    """Nothing of it is lost, and nothing asked again."""
    simulate(asked, SANDBOX)
    harvest(asked, SANDBOX)
    forget(asked, "UPDATE hit SET state = 'posted' WHERE number = 1")
    first = keys(asked, HitState.POSTED)["b1:1:1"]
    with talking(asked) as (_, client):
        for submission in client.list_assignments(first):
            client.approve(submission.assignment_id)
        client.delete(first)

    result = reconcile(asked, SANDBOX)

    assert (result.counts["hits_gone"], result.warnings) == (0, ())
    assert "b1:1:1" in keys(asked, HitState.CLOSED)


def test_a_deleted_hit_whose_work_waits_for_a_person_is_not_asked_again(asked):
    """Its answers count once they are accepted; asked again before, its pairs would be paid twice."""
    simulate(asked, SANDBOX)
    fail_controls(asked)
    harvest(asked, SANDBOX)
    n_queued, first = len(queued(asked)), keys(asked, HitState.POSTED)["b1:1:1"]
    with talking(asked) as (_, client):
        [submission] = client.list_assignments(first)
        client.approve(submission.assignment_id)
        client.delete(first)

    assert run_publish(asked).status == "nothing_to_do"
    rule(asked, [Ruling(number, Decision.APPROVE) for number in queued(asked)], SANDBOX)
    harvest(asked, SANDBOX)
    assert len(keys(asked, HitState.CLOSED)) == n_queued
    assert run_publish(asked).status == "nothing_to_do"


def test_a_hit_that_the_server_has_forgotten_is_gone(asked):
    """As after its own backup was restored; that it knows the others says that it is no other server."""
    on_server(asked, "UPDATE hit SET mturk_id = 'X', annotation = '' WHERE id = (SELECT min(id) FROM hit)")

    assert reconcile(asked, SANDBOX).counts["hits_gone"] == 1
    assert len(keys(asked, HitState.CLOSED)) == 1


def test_a_hit_that_a_listing_lacks_is_not_gone(asked):
    """Pages move while they are read: GetHIT has the last word, and the sweep is known to be incomplete."""
    with talking(asked) as (session, client):
        listed = list(client.list_hits())
        found = sweep_server(Context(session, asked, SANDBOX), client, listed[1:])

    assert (found.gone, found.overlooked) == ((), 1)
    assert not keys(asked, HitState.CLOSED)


def test_a_listing_of_pages_repeated_and_reordered_changes_nothing(asked):
    """Each HIT counts once, in whatever order it comes."""
    with talking(asked) as (session, client):
        listed = list(client.list_hits())
        found = sweep_server(Context(session, asked, SANDBOX), client, [*reversed(listed), *listed])

    assert (found.adopted, found.gone, found.orphans, found.overlooked) == (0, (), (), 0)


def test_another_account_closes_nothing(asked):
    """A server that knows none of the posted HITs is the wrong one: refused, the state is kept."""
    with open_endpoint(asked, SANDBOX) as endpoint, open_database(asked.db_url) as session:
        other = MTurkClient(endpoint.url, keys=Keys(*admin.keys(endpoint._engine)[Environment.LIVE]))
        with other, pytest.raises(EndpointError, match="knows none of the"):
            sweep_server(Context(session, asked, SANDBOX), other)

    assert not keys(asked, HitState.CLOSED)


def orphaned(settings):
    """The project after a backup of an empty database was restored: the server's HITs are not known."""
    forget(settings, "DELETE FROM hit_item")
    for table in ("hit", "batch", "journal"):
        forget(settings, f"DELETE FROM {table}")
    return settings


def test_orphans_are_reported_and_ended_and_their_names_are_not_used_again(asked):
    """Pages of another content must never be taken for these: the new batch has the next free name."""
    n_hits = len(keys(asked, HitState.POSTED))
    orphaned(asked)

    result = reconcile(asked, SANDBOX)
    posted = run_publish(asked)

    assert result.counts["hits_orphaned"] == n_hits
    assert "mitl hits expire --orphans" in result.warnings[0]
    assert posted.counts["batch"] == "b2" and posted.counts["hits_posted"] == n_hits
    ended = [expire(asked, [], SANDBOX, orphans=True) for _ in range(2)]
    assert [one.counts["expired"] for one in ended] == [n_hits, 0]
    with talking(asked) as (_, client):
        open_now = [hit for hit in client.list_hits() if hit.status == "Assignable"]
    assert len(open_now) == n_hits
    assert all(":b2:" in (hit.annotation or "") for hit in open_now)
    assert delete(asked, [], SANDBOX, orphans=True).counts["deleted"] == n_hits
    assert reconcile(asked, SANDBOX).warnings == ()


def test_orphans_with_work_to_decide_or_to_come_are_left(asked):
    """Only the server has that work; it refuses to delete such a HIT, which would end the command."""
    n_hits = len(keys(asked))
    simulate(asked, SANDBOX, max_hits=1)
    run_publish(orphaned(asked))

    before = delete(asked, [], SANDBOX, orphans=True).counts
    expire(asked, [], SANDBOX, orphans=True)
    after = delete(asked, [], SANDBOX, orphans=True).counts

    assert (before["deleted"], before["left_undecided"]) == (0, n_hits)
    assert (after["deleted"], after["left_undecided"]) == (n_hits - 1, 1)


def test_a_name_that_the_server_knows_and_we_do_not_is_not_given_again(asked):
    """A page that was asked again after the backup may hold other pairs than the one that would be posted now."""
    first = keys(asked, HitState.POSTED)["b1:1:1"]
    with talking(asked) as (_, client):
        client.expire(first)
        client.delete(first)
    run_publish(asked)
    forget(asked, "DELETE FROM hit_item WHERE hit_id IN (SELECT id FROM hit WHERE attempt = 2)")
    forget(asked, "DELETE FROM hit WHERE attempt = 2")
    forget(asked, "DELETE FROM journal WHERE key = 'b1:1:2'")
    before = keys(asked)

    with pytest.raises(CrowdError, match=r"\(b1:1:2\).*restore the newer database"):
        run_publish(asked)

    assert keys(asked) == before


def test_a_hit_sent_long_ago_is_not_sent_again_on_an_incomplete_listing(asked):
    """After a day the token protects no longer, and a listing that lacks known HITs proves nothing."""
    forget(asked, LOSE)
    later = dt.datetime.now(dt.UTC) + dt.timedelta(hours=23, minutes=1)
    with talking(asked) as (session, client):
        in_a_day = Context(session, asked, SANDBOX, now=lambda: later)
        listed = list(client.list_hits())
        # The server's list lacks the lost HIT and one that is known.
        rest = [hit for hit in listed if not (hit.annotation or "").endswith((":1:1", ":2:1"))]
        found = sweep_server(Context(session, asked, SANDBOX), client, rest)

        assert (found.adopted, found.overlooked) == (0, 1)
        require_safe_repeat(Context(session, asked, SANDBOX), found)
        with pytest.raises(
            CrowdError, match=r"1 HIT was sent more than 23 hours ago.*b1:1:1.*nothing was posted"
        ):
            require_safe_repeat(in_a_day, found)
        complete = sweep_server(Context(session, asked, SANDBOX), client)
        require_safe_repeat(in_a_day, complete)
    assert complete.adopted == 1


def test_batches_are_named_past_what_the_server_knows(project_url):
    """b1 where nothing is known, then one more than the highest of both sides."""
    with open_database(project_url, create=True) as session:
        assert hit_store.next_batch_name(session) == "b1"
        assert hit_store.next_batch_name(session, 12) == "b13"

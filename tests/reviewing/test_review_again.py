"""Work that is paid and not used is asked again, as far as the money goes that was allowed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from harvest_kit import queued
from world_kit import SANDBOX, run_publish

from mitl.campaign.bill import committed_cents, expects_fee
from mitl.db.session import open_database
from mitl.db.store import hits, open_work
from mitl.errors import FundsError, UsageError
from mitl.records import Decision, Environment, HitState
from mitl.settings import Settings
from mitl.stages.reviewing.review import Ruling, rule

pytest_plugins = ("desk_fixtures",)


def committed(settings: Settings) -> int:
    with open_database(settings.db_url, read_only=True) as session:
        return committed_cents(session, SANDBOX, charges_fee=False)


def n_hits(settings: Settings) -> dict[HitState, int]:
    with open_database(settings.db_url, read_only=True) as session:
        return hits.state_counts(session, SANDBOX)


def n_again(settings: Settings) -> int:
    with open_database(settings.db_url, read_only=True) as session:
        return len(open_work.hits_to_replace(session, SANDBOX))


def drop_all(settings: Settings):
    return rule(settings, [Ruling(number, Decision.DROP) for number in queued(settings)], SANDBOX)


def test_dropping_says_what_asking_again_costs_and_publishing_asks_it_once(project):
    """The cost is a reward for each HIT; after the next publish nothing is left to ask again."""
    found = drop_all(project)

    again = found.counts["hits_to_ask_again"]
    assert again == n_again(project) > 0
    cost = f"${found.counts['again_cents'] / 100:,.2f} at most at the reward of before"
    assert f"HITs to ask again: {again}, for {cost}" in found.lines
    assert found.warnings == ()
    before = committed(project)
    assert run_publish(project).counts["hits_again"] == again
    assert committed(project) == before + found.counts["again_cents"]
    assert n_again(project) == 0
    assert run_publish(project).status == "nothing_to_do"


def test_the_ceiling_is_not_passed_by_asking_again(project):
    """The decision warns, publishing refuses in one line and posts nothing; a raised ceiling lets it be asked."""
    room = 150
    poor = replace(project, ceiling_cents=committed(project) + room)
    found = drop_all(poor)
    cents = found.counts["again_cents"]
    assert cents > room
    [warning] = found.warnings
    assert "raise ceiling_cents" in warning and "leaves $1.50" in warning
    before = n_hits(poor)

    with pytest.raises(FundsError, match="ceiling"):
        run_publish(poor)

    assert n_hits(poor) == before and n_again(poor) == found.counts["hits_to_ask_again"]
    enough = replace(poor, ceiling_cents=committed(poor) + cents)
    assert run_publish(enough).counts["hits_again"] == found.counts["hits_to_ask_again"]


def test_a_bill_above_the_cost_that_was_allowed_asks_nothing_again(project):
    """`--max-cost` holds for asking again too; a part of it that fits is asked with `--limit`."""
    found = drop_all(project)

    with pytest.raises(UsageError, match="above --max-cost"):
        run_publish(project, max_cost_cents=100)
    part = run_publish(project, max_cost_cents=100, limit=18)

    assert part.counts["hits_again"] == 1
    assert n_again(project) == found.counts["hits_to_ask_again"] - 1


def test_a_fee_is_reckoned_with_only_where_the_endpoint_may_take_one(project):
    """mitl's server takes none under its public name either, as the ids of batches tell, or [crowd] server_id does."""
    there = replace(project, endpoint="https://crowd.example")
    known = replace(there, endpoint_server_id="ours")
    with open_database(project.db_url, read_only=True) as session:
        assert not expects_fee(session, there, SANDBOX)
        assert expects_fee(session, there, Environment.LIVE)
        assert not expects_fee(session, known, Environment.LIVE)

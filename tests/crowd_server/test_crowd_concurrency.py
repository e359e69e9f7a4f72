"""Many at once, on both engines: no assignment is given twice, no cent is spent twice, no token works twice."""

from __future__ import annotations

from at_once_kit import at_once
from botocore.exceptions import ClientError
from crowd_kit import TYPE, post_hit

from mitl.crowd_server import admin
from mitl.records import Environment

pytest_plugins = ("crowd_fixtures",)

LIVE = Environment.LIVE


def test_the_last_hits_are_given_once(either_crowd):
    """Eight workers reach for five assignments: five get one each."""
    client = either_crowd.boto()
    hit_type = client.create_hit_type(**TYPE)["HITTypeId"]
    for _ in range(5):
        post_hit(client, hit_type)
    workers = [either_crowd.worker() for _ in range(8)]

    tasks = [task for task in at_once(lambda worker: worker.accept(hit_type), workers) if task is not None]

    assert len(tasks) == 5
    assert len({task.query["hitId"] for task in tasks}) == 5


def test_a_double_click_submits_once(either_crowd):
    """The same form sent eight times at once is kept once."""
    client = either_crowd.boto()
    hit = post_hit(client, MaxAssignments=3)
    task = either_crowd.worker().accept(hit["HITTypeId"])

    replies = at_once(lambda number: task.submit(p01_label=str(number)).status_code, range(8))

    assert replies == [200] * 8
    assert client.list_assignments_for_hit(HITId=hit["HITId"])["NumResults"] == 1
    assert client.get_hit(HITId=hit["HITId"])["HIT"]["NumberOfAssignmentsAvailable"] == 2


def test_money_for_three_hits_makes_three(either_crowd):
    """Eight calls at once against a budget of three rewards."""
    admin.set_budget(either_crowd.engine, LIVE, 300)
    client = either_crowd.boto(LIVE)
    hit_type = client.create_hit_type(**TYPE)["HITTypeId"]

    def create(number):
        try:
            return post_hit(client, hit_type)["HITId"]
        except ClientError as error:
            return error.response["TurkErrorCode"]

    results = at_once(create, range(8))

    assert results.count("AWS.MechanicalTurk.InsufficientFunds") == 5
    assert client.list_hits()["NumResults"] == 3
    assert client.get_account_balance()["AvailableBalance"] == "0.00"


def test_one_token_makes_one_hit(either_crowd):
    """Eight calls at once with one token: one creates, seven are told of it."""
    client = either_crowd.boto()
    hit_type = client.create_hit_type(**TYPE)["HITTypeId"]

    def create(number):
        try:
            return post_hit(client, hit_type, UniqueRequestToken="t")["HITId"]
        except ClientError as error:
            return error.response["TurkErrorCode"]

    results = at_once(create, range(8))

    assert results.count("AWS.MechanicalTurk.HitAlreadyExists") == 7
    assert client.list_hits()["NumResults"] == 1

"""The crowd server while its database is down, restarts, or is out of order."""

from __future__ import annotations

from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from crowd_kit import post_hit
from db_kit import cut_connections
from sqlalchemy.exc import OperationalError

from mitl.crowd_server import admin
from mitl.crowd_server.store import database
from mitl.db.engine import make_engine
from mitl.records import Environment

pytest_plugins = ("crowd_fixtures",)


def spoil(crowd):
    """What the file holds is no database any more."""
    crowd.engine.dispose()
    with Path(crowd.engine.url.database).open("r+b") as file:
        file.write(b"no database any more" * 10)


def test_a_worker_is_asked_to_come_again_when_the_database_is_gone(crowd, caplog):
    """A page that says that nothing is lost, and a line in the log, not a traceback for each request."""
    worker = crowd.worker()
    spoil(crowd)

    reply = worker.browser.get(crowd.url + "/w")

    assert reply.status_code == 503
    assert reply.headers["retry-after"] == "5"
    assert "reload this page. Nothing is lost" in " ".join(reply.text.split())
    (record,) = (one for one in caplog.records if one.name.startswith("mitl"))
    assert record.getMessage() == "the database does not answer: file is not a database"
    assert record.exc_info is None


def test_a_requester_is_told_that_the_server_is_unavailable(crowd, caplog):
    """As a fault of the server, which clients ask again."""
    client = crowd.boto()
    client.get_account_balance()
    spoil(crowd)

    with pytest.raises(ClientError) as caught:
        client.get_account_balance()

    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500
    assert caught.value.response["TurkErrorCode"] == "AWS.ServiceUnavailable"
    assert not [one for one in caplog.records if one.name.startswith("mitl") and one.exc_info]


@pytest.mark.postgres
@pytest.mark.parametrize("crowd_url", ["postgresql"], indirect=True)
def test_a_restart_of_the_database_is_over_with_one_request(either_crowd, crowd_url):
    """The connections that it cut are replaced at the first request that meets one; a check of health meets none."""
    client = either_crowd.boto()
    post_hit(client)
    cut_connections(crowd_url)

    healthy = either_crowd.browser().get(either_crowd.url + "/healthz").status_code
    balance = client.get_account_balance()

    assert healthy == 200
    assert balance["AvailableBalance"]


@pytest.mark.postgres
def test_a_commit_that_may_not_be_on_the_disk_is_an_outage(postgres_crowd_url, monkeypatch):
    """The database ends between a commit and the wait for it: whoever asked is told to ask again."""
    engine = make_engine(postgres_crowd_url)
    admin.prepare(engine)
    wait = database.wait_for_disk

    def cut_and_wait(driver):
        cut_connections(postgres_crowd_url)
        wait(driver)

    monkeypatch.setattr(database, "wait_for_disk", cut_and_wait)
    with pytest.raises(OperationalError), database.Database(engine).write(Environment.LIVE):
        pass

    engine.dispose()

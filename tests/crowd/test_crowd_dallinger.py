"""A client that others wrote for MTurk, dallinger's MTurk service, against this server.

dallinger needs packages at versions that do not fit ours, and a pytest plugin of its own that fails without them,
so it is not installed: its one module for MTurk is read from its wheel (``make peers`` fetches that), unchanged.
"""

from __future__ import annotations

import datetime as dt
import sys
import types
import zipfile
from pathlib import Path

import pytest
from crowd_kit import TYPE, post_hit, question, refusal

from mitl.crowd_server import admin
from mitl.records import Environment

pytest_plugins = ("crowd_fixtures",)

PEERS = Path(__file__).resolve().parents[2] / "build" / "peers"
MODULE = "dallinger/mturk.py"


@pytest.fixture(scope="module")
def dallinger():
    """dallinger's module for MTurk."""
    wheels = sorted(PEERS.glob("dallinger-*.whl"))
    if not wheels:
        pytest.skip("dallinger's wheel is not in build/peers; `make peers` fetches it")
    with zipfile.ZipFile(wheels[-1]) as wheel:
        source = wheel.read(MODULE).decode()
    module = types.ModuleType("dallinger_mturk")
    exec(compile(source, f"{wheels[-1].name}/{MODULE}", "exec"), module.__dict__)
    return module


def raise_error(error):
    """What the rest of dallinger does with an error outside a running experiment."""
    raise error


@pytest.fixture
def service(crowd, dallinger, monkeypatch):
    """Its service at our address: `host` is all that is overridden."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    recruiters = types.ModuleType("dallinger.recruiters")
    recruiters.handle_and_raise_recruitment_error = raise_error
    monkeypatch.setitem(sys.modules, "dallinger", types.ModuleType("dallinger"))
    monkeypatch.setitem(sys.modules, "dallinger.recruiters", recruiters)
    access, secret = admin.keys(crowd.engine)[Environment.SANDBOX]

    class Here(dallinger.MTurkService):
        host = crowd.url

    made = Here(access, secret, "us-east-1", sandbox=True)
    yield made
    made.mturk.close()


def create(service, **changes):
    """A HIT as dallinger's recruiter creates it."""
    values = {
        "experiment_id": "some-experiment",
        "title": "Fake Title",
        "description": "Fake Description",
        "keywords": ["testkw1", "testkw2"],
        "reward": 0.01,
        "duration_hours": 0.25,
        "lifetime_days": 1,
        "question": question(),
        "max_assignments": 2,
        "annotation": "some-experiment",
        "do_subscribe": False,
    }
    return service.create_hit(**values | changes)


def test_a_hit_is_created_listed_and_found(service, dallinger):
    """Its fields come back as dallinger reads them, for an external question too."""
    made = create(service)
    external = create(service, question=dallinger.MTurkQuestions.external("https://example.org/ad"))

    assert (made["status"], made["review_status"]) == ("Assignable", "NotReviewed")
    assert (made["max_assignments"], made["assignments_available"], made["reward"]) == (2, 2, 0.01)
    assert (made["keywords"], made["annotation"]) == (["testkw1", "testkw2"], "some-experiment")
    assert made["expiration"] - made["created"] == dt.timedelta(days=1)
    assert service.get_hit(made["id"]) == made
    assert [hit["id"] for hit in service.get_hits()] == [made["id"], external["id"]]
    assert list(service.get_hits(lambda hit: hit["id"] == "3NONE")) == []
    assert (service.check_credentials(), service.account_balance()) == (True, 10000.0)


def test_work_is_reviewed_and_paid(crowd, service, dallinger):
    """What dallinger approves is owed, bonus included; its own HIT types approve by themselves at once."""
    worker = crowd.worker()
    own_type = service.mturk.create_hit_type(**TYPE)["HITTypeId"]
    hit, at_once = post_hit(service.mturk, own_type)["HITId"], create(service, reward=0.05)
    own, other = (
        submit(service, worker, hit, own_type),
        submit(service, worker, at_once["id"], at_once["type_id"]),
    )

    found = service.get_assignment(own)
    assert found == {"id": own, "status": "Submitted", "hit_id": hit, "worker_id": worker.id}
    assert service.approve_assignment(own)
    assert service.grant_bonus(own, 0.5, "thanks for waiting")
    assert [service.get_assignment(one)["status"] for one in (own, other)] == ["Approved", "Approved"]
    assert [service.get_hit(one)["assignments_completed"] for one in (hit, at_once["id"])] == [1, 1]
    [owed] = admin.payments(crowd.engine, Environment.SANDBOX, clock=crowd.clock)
    assert (owed.worker, owed.reward_cents, owed.bonus_cents) == (worker.id, 105, 50)
    with pytest.raises(dallinger.MTurkServiceException, match="currently in the state 'Approved'"):
        service.approve_assignment(other)
    assert service.get_assignment("3NONE") is None


def submit(service, worker, hit, hit_type):
    """The assignment that a worker submits."""
    worker.do(hit_type)
    [found] = service.mturk.list_assignments_for_hit(HITId=hit)["Assignments"]
    return found["AssignmentId"]


def test_a_hit_is_extended_expired_and_deleted(service):
    """More assignments and more time; then expired, twice as recruiters do, and gone from the list."""
    made = create(service)

    longer = service.extend_hit(made["id"], number=1, duration_hours=1.0)
    assert longer["max_assignments"] == 3
    assert longer["expiration"] - made["expiration"] == dt.timedelta(hours=1)
    assert service.expire_hit(made["id"])
    assert service.expire_hit(made["id"])
    assert service.get_hit(made["id"])["status"] == "Reviewable"
    assert service._is_ok(service.mturk.delete_hit(HITId=made["id"]))
    assert list(service.get_hits()) == []
    code, message = refusal(service.mturk.delete_hit, HITId=made["id"])
    # dallinger takes this text for "already deleted".
    assert code == "InvalidHITState"
    assert "currently in the state 'Disposed'" in message


def test_repeaters_are_kept_out_by_a_qualification(crowd, service, dallinger):
    """Made once by its name, scored up per worker, and a requirement of the next HIT."""
    worker = crowd.worker()
    made = service.create_qualification_type("psy-done", "Took part.")

    with pytest.raises(dallinger.DuplicateQualificationNameError):
        service.create_qualification_type("psy-done", "Took part.")
    assert service.get_qualification_type_by_name("psy-done")["id"] == made["id"]
    with pytest.raises(dallinger.WorkerLacksQualification):
        service.current_qualification_score(made["id"], worker.id)
    assert service.increment_qualification_score(made["id"], worker.id)["score"] == 1
    assert service.increment_named_qualification_score("psy-done", worker.id)["score"] == 2
    assert list(service.get_workers_with_qualification(made["id"])) == [{"id": worker.id, "score": 2}]
    rules = dallinger.MTurkQualificationRequirements
    wanted = [rules.min_approval(95), rules.restrict_to_countries(["US"]), rules.must_not_have(made["id"])]
    hit = create(service, qualifications=wanted)
    assert hit["qualification_type_ids"] == ["000000000000000000L0", "00000000000000000071", made["id"]]
    assert worker.accept(hit["type_id"]) is None
    assert service.revoke_qualification(made["id"], worker.id, "done")
    assert list(service.get_workers_with_qualification(made["id"])) == []
    with pytest.raises(dallinger.RevokedQualification):
        service.current_qualification_score(made["id"], worker.id)
    assert worker.accept(hit["type_id"]) is not None


def test_notifications_are_refused_in_so_many_words(service):
    """dallinger would wait for them for ever; the error says to poll instead."""
    made = create(service)
    wanted = {
        "Destination": "arn:aws:sns:us-east-1:1:t",
        "Transport": "SNS",
        "Version": "2014-08-15",
        "EventTypes": ["AssignmentSubmitted"],
    }

    code, message = refusal(
        service.mturk.update_notification_settings,
        HITTypeId=made["type_id"],
        Notification=wanted,
        Active=True,
    )

    assert code == "OperationNotSupported"
    assert "poll ListHITs" in message

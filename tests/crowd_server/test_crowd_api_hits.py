"""Changing, extending, ending and deleting HITs as MTurk's documentation has it, by unmodified boto3."""

from __future__ import annotations

import datetime as dt

import pytest
from crowd_kit import TYPE, post_hit, question, refusal
from sqlalchemy import update

from mitl.crowd_server import admin
from mitl.crowd_server.store.models import CrowdHit
from mitl.records import Environment

pytest_plugins = ("crowd_fixtures",)

LIVE = Environment.LIVE
LONG_AGO = dt.datetime(2015, 1, 1, tzinfo=dt.UTC)


def state(client, hit):
    """HITStatus of a HIT."""
    return client.get_hit(HITId=hit["HITId"])["HIT"]["HITStatus"]


def end(client, hit):
    """Expire a HIT."""
    client.update_expiration_for_hit(HITId=hit["HITId"], ExpireAt=LONG_AGO)


def test_a_hit_takes_on_the_properties_of_another_type(crowd):
    """Title, group, reward and the money held for it follow; only what is held can be had."""
    admin.set_budget(crowd.engine, LIVE, 600)
    client = crowd.boto(LIVE)
    dear = client.create_hit_type(**TYPE | {"Title": "dear", "Reward": "3.00"})["HITTypeId"]
    too_dear = client.create_hit_type(**TYPE | {"Title": "too dear", "Reward": "3.01"})["HITTypeId"]
    hit = post_hit(client, MaxAssignments=2)

    client.update_hit_type_of_hit(HITId=hit["HITId"], HITTypeId=dear)
    client.update_hit_type_of_hit(HITId=hit["HITId"], HITTypeId=dear)
    found = client.get_hit(HITId=hit["HITId"])["HIT"]

    assert (found["HITTypeId"], found["Title"], found["Reward"]) == (dear, "dear", "3.00")
    assert found["HITGroupId"] != hit["HITGroupId"]
    assert client.get_account_balance()["AvailableBalance"] == "0.00"
    other = {"HITId": hit["HITId"], "HITTypeId": too_dear}
    assert refusal(client.update_hit_type_of_hit, **other)[0] == "InsufficientFunds"
    client.update_hit_type_of_hit(HITId=hit["HITId"], HITTypeId=hit["HITTypeId"])
    assert client.get_account_balance()["AvailableBalance"] == "4.00"
    unknown = {"HITId": hit["HITId"], "HITTypeId": "3NONE"}
    assert refusal(client.update_hit_type_of_hit, **unknown)[0] == "HITTypeDoesNotExist"
    end(client, hit)
    client.delete_hit(HITId=hit["HITId"])
    gone = {"HITId": hit["HITId"], "HITTypeId": dear}
    assert refusal(client.update_hit_type_of_hit, **gone)[0] == "InvalidHITState"


def test_a_reward_is_never_lowered_under_a_workers_hands(crowd):
    """Not while somebody has the HIT or waits to be paid; raised it may be, and then that is paid, and stays."""
    client, worker = crowd.boto(), crowd.worker()
    cheap = client.create_hit_type(**TYPE | {"Reward": "0.10"})["HITTypeId"]
    dear = client.create_hit_type(**TYPE | {"Reward": "2.00"})["HITTypeId"]
    hit = post_hit(client)
    task = worker.accept(hit["HITTypeId"])
    lower = {"HITId": hit["HITId"], "HITTypeId": cheap}

    code, message = refusal(client.update_hit_type_of_hit, **lower)
    assert (code, "0.10 instead of 1.00" in message) == ("InvalidHITState", True)
    client.update_hit_type_of_hit(HITId=hit["HITId"], HITTypeId=dear)
    assert task.submit(p01_label="yes").status_code == 200
    assert refusal(client.update_hit_type_of_hit, **lower)[0] == "InvalidHITState"
    [own] = client.list_assignments_for_hit(HITId=hit["HITId"])["Assignments"]
    client.approve_assignment(AssignmentId=own["AssignmentId"])
    for other in (cheap, hit["HITTypeId"]):
        moved = {"HITId": hit["HITId"], "HITTypeId": other}
        assert refusal(client.update_hit_type_of_hit, **moved)[0] == "InvalidHITState"
    as_dear = client.create_hit_type(**TYPE | {"Title": "dear", "Reward": "2.00"})["HITTypeId"]
    client.update_hit_type_of_hit(HITId=hit["HITId"], HITTypeId=as_dear)
    assert admin.payments(crowd.engine, Environment.SANDBOX, clock=crowd.clock)[0].reward_cents == 200


def test_ending_a_hit_again_changes_nothing(crowd):
    """Any past time will do, as often as one likes; the expiry shown stays that of the first."""
    client = crowd.boto()
    hit = post_hit(client)
    ended_at = crowd.clock()

    end(client, hit)
    crowd.clock.advance(hours=1)
    end(client, hit)
    client.update_expiration_for_hit(HITId=hit["HITId"], ExpireAt=0)
    client.update_expiration_for_hit(HITId=hit["HITId"], ExpireAt=crowd.clock() - dt.timedelta(minutes=1))

    found = client.get_hit(HITId=hit["HITId"])["HIT"]
    assert found["HITStatus"] == "Reviewable"
    assert abs(found["Expiration"] - ended_at) < dt.timedelta(milliseconds=1)


def test_the_same_later_expiry_is_a_repeat_for_24_hours(crowd):
    """MTurk names the idempotency token; another time, or a later day, is a new request."""
    client = crowd.boto()
    hit = post_hit(client)
    later, latest = (crowd.clock() + dt.timedelta(days=days) for days in (10, 20))

    def expire(when):
        return {"HITId": hit["HITId"], "ExpireAt": when}

    client.update_expiration_for_hit(**expire(later))
    _, message = refusal(client.update_expiration_for_hit, **expire(later))
    assert "has already been processed" in message
    assert hit["HITId"] in message
    client.update_expiration_for_hit(**expire(latest))
    client.update_expiration_for_hit(**expire(later))
    found = client.get_hit(HITId=hit["HITId"])["HIT"]["Expiration"]
    assert abs(found - later) < dt.timedelta(seconds=1)
    crowd.clock.advance(hours=24, seconds=1)
    client.update_expiration_for_hit(**expire(later))
    too_late = crowd.clock() + dt.timedelta(days=366)
    assert refusal(client.update_expiration_for_hit, **expire(too_late))[0] == "AWS.ParameterOutOfRange"


def test_an_extended_hit_is_open_again(crowd):
    """More assignments lift the Reviewing marker, so that the new answers come up for review."""
    client, worker, other = crowd.boto(), crowd.worker(), crowd.worker()
    hit = post_hit(client)
    worker.do(hit["HITTypeId"])
    client.update_hit_review_status(HITId=hit["HITId"])
    assert refusal(client.update_hit_review_status, HITId=hit["HITId"])[0] == "InvalidHITState"

    client.create_additional_assignments_for_hit(HITId=hit["HITId"], NumberOfAdditionalAssignments=1)

    assert state(client, hit) == "Assignable"
    other.do(hit["HITTypeId"])
    assert [found["HITId"] for found in client.list_reviewable_hits()["HITs"]] == [hit["HITId"]]


def test_hits_from_before_the_fees_of_2015_cannot_be_extended(crowd):
    """The one age that MTurk's reference names."""
    client = crowd.boto()
    hit, other = post_hit(client), post_hit(client)
    old = dt.datetime(2015, 7, 21, tzinfo=dt.UTC)
    with crowd.engine.begin() as connection:
        connection.execute(update(CrowdHit).where(CrowdHit.mturk_id == hit["HITId"]).values(created_at=old))
    grow = client.create_additional_assignments_for_hit

    code, _ = refusal(grow, HITId=hit["HITId"], NumberOfAdditionalAssignments=1)

    assert code == "HITTooOldForExtension"
    grow(HITId=other["HITId"], NumberOfAdditionalAssignments=1)


def test_extending_needs_the_money_and_a_hit_that_is_there(crowd):
    """Funds are held for the new assignments; a deleted HIT takes none."""
    admin.set_budget(crowd.engine, LIVE, 200)
    client = crowd.boto(LIVE)
    hit = post_hit(client)
    grow = client.create_additional_assignments_for_hit

    code, _ = refusal(grow, HITId=hit["HITId"], NumberOfAdditionalAssignments=2, UniqueRequestToken="t")
    grow(HITId=hit["HITId"], NumberOfAdditionalAssignments=1, UniqueRequestToken="t")
    again, message = refusal(
        grow, HITId=hit["HITId"], NumberOfAdditionalAssignments=1, UniqueRequestToken="t"
    )

    assert (code, again) == ("InsufficientFunds", "AdditionalAssignmentsAlreadyAdded")
    assert "request " in message
    assert client.get_account_balance()["AvailableBalance"] == "0.00"
    end(client, hit)
    client.delete_hit(HITId=hit["HITId"])
    assert refusal(grow, HITId=hit["HITId"], NumberOfAdditionalAssignments=1)[0] == "InvalidHITState"


def test_tokens_of_all_four_operations_last_24_hours(crowd):
    """CreateHIT and CreateHITWithHITType share theirs, because both make a HIT."""
    client, worker = crowd.boto(), crowd.worker()
    values = {**TYPE, "LifetimeInSeconds": 3600, "Question": question(), "UniqueRequestToken": "t"}
    hit = client.create_hit(**values | {"MaxAssignments": 2})["HIT"]
    worker.do(hit["HITTypeId"])
    [own] = client.list_assignments_for_hit(HITId=hit["HITId"])["Assignments"]
    calls = [
        (client.create_hit, values),
        (post_hit, {"client": client, "UniqueRequestToken": "t"}),
        (
            client.create_additional_assignments_for_hit,
            {"HITId": hit["HITId"], "NumberOfAdditionalAssignments": 1, "UniqueRequestToken": "t"},
        ),
        (
            client.send_bonus,
            {
                "AssignmentId": own["AssignmentId"],
                "WorkerId": worker.id,
                "BonusAmount": "0.01",
                "Reason": "r",
                "UniqueRequestToken": "t",
            },
        ),
    ]
    for call, parameters in calls[2:]:
        call(**parameters)

    assert [refusal(call, **parameters)[0] for call, parameters in calls] == [
        "HitAlreadyExists",
        "HitAlreadyExists",
        "AdditionalAssignmentsAlreadyAdded",
        "BonusAlreadyGranted",
    ]
    crowd.clock.advance(hours=23, minutes=59)
    assert refusal(client.create_hit, **values)[0] == "HitAlreadyExists"
    crowd.clock.advance(minutes=1)
    for call, parameters in calls[1:]:
        call(**parameters)


def test_hits_are_disposed_of_120_days_after_their_expiry(crowd):
    """By then all is decided; the HIT leaves the list, and its rejections stand."""
    client, worker = crowd.boto(), crowd.worker()
    hit = post_hit(client, MaxAssignments=2)
    worker.do(hit["HITTypeId"])
    [own] = client.list_assignments_for_hit(HITId=hit["HITId"])["Assignments"]
    end(client, hit)

    crowd.clock.advance(days=119)
    assert [found["HITStatus"] for found in client.list_hits()["HITs"]] == ["Reviewable"]
    crowd.clock.advance(days=1, seconds=1)
    assert client.list_hits()["HITs"] == []
    assert state(client, hit) == "Disposed"
    assert client.get_assignment(AssignmentId=own["AssignmentId"])["HIT"]["HITStatus"] == "Disposed"
    assert refusal(client.delete_hit, HITId=hit["HITId"])[0] == "InvalidHITState"


def test_hits_are_found_by_the_qualification_they_ask_for(crowd):
    """Own types and MTurk's; deleted HITs are left out, and pages are of ten."""
    client = crowd.boto()
    made = client.create_qualification_type(Name="q", Description="d", QualificationTypeStatus="Active")
    own = made["QualificationType"]["QualificationTypeId"]
    needs = [
        {"QualificationTypeId": own, "Comparator": "DoesNotExist"},
        {"QualificationTypeId": "00000000000000000040", "Comparator": "GreaterThan", "IntegerValues": [5]},
    ]
    hit_type = client.create_hit_type(**TYPE, QualificationRequirements=needs)["HITTypeId"]
    guarded = [post_hit(client, hit_type)["HITId"] for _ in range(12)]
    post_hit(client)
    client.update_expiration_for_hit(HITId=guarded[0], ExpireAt=LONG_AGO)
    client.delete_hit(HITId=guarded[0])

    def found(qualification):
        pages = client.get_paginator("list_hits_for_qualification_type").paginate(
            QualificationTypeId=qualification
        )
        return [[hit["HITId"] for hit in page["HITs"]] for page in pages]

    assert found(own) == [guarded[1:11], guarded[11:]]
    assert found("00000000000000000040") == found(own)
    assert found("00000000000000000060") == [[]]
    unknown = {"QualificationTypeId": "3NONE"}
    assert refusal(client.list_hits_for_qualification_type, **unknown)[0] == "QualificationTypeDoesNotExist"


def test_bonuses_are_listed_by_hit_or_assignment(crowd):
    """Both narrow it down; neither is an error, and so is an assignment that does not exist."""
    client, workers = crowd.boto(), [crowd.worker(), crowd.worker()]
    hit = post_hit(client, MaxAssignments=2)
    for worker in workers:
        worker.do(hit["HITTypeId"])
    own = [one["AssignmentId"] for one in client.list_assignments_for_hit(HITId=hit["HITId"])["Assignments"]]
    for worker, assignment in zip(workers, own, strict=True):
        client.send_bonus(WorkerId=worker.id, AssignmentId=assignment, BonusAmount="0.5", Reason="r")

    def listed(**wanted):
        return [one["AssignmentId"] for one in client.list_bonus_payments(**wanted)["BonusPayments"]]

    assert listed(HITId=hit["HITId"]) == own
    assert listed(AssignmentId=own[1]) == listed(HITId=hit["HITId"], AssignmentId=own[1]) == own[1:]
    assert refusal(client.list_bonus_payments)[0] == "AWS.MissingParameters"
    assert refusal(client.list_bonus_payments, AssignmentId="3NONE")[0] == "AssignmentDoesNotExist"


def test_a_bonus_goes_to_who_did_the_work(crowd):
    """Not to another worker, not of nothing, not without a reason, not beyond the money."""
    admin.set_budget(crowd.engine, LIVE, 150)
    client, worker, other = crowd.boto(LIVE), crowd.worker(LIVE), crowd.worker(LIVE)
    hit = post_hit(client)
    worker.do(hit["HITTypeId"])
    [own] = client.list_assignments_for_hit(HITId=hit["HITId"])["Assignments"]
    bonus = {"WorkerId": worker.id, "AssignmentId": own["AssignmentId"], "BonusAmount": "0.5", "Reason": "r"}

    def code(**changes):
        return refusal(client.send_bonus, **bonus | changes)[0]

    assert code(WorkerId=other.id) == "InvalidParameterValue"
    assert code(BonusAmount="0") == "AWS.ParameterOutOfRange"
    assert code(BonusAmount="0.51") == "InsufficientFunds"
    assert code(BonusAmount="half") == "InvalidParameterValue"
    assert code(Reason="") == "AWS.MissingParameters"
    assert code(AssignmentId="3NONE") == "AssignmentDoesNotExist"
    client.send_bonus(**bonus)
    assert client.get_account_balance()["AvailableBalance"] == "0.00"


def test_practice_money_has_an_end_too(crowd):
    """A sandbox HIT of more than 10,000.00 is refused, as on MTurk's sandbox."""
    client = crowd.boto()

    assert refusal(post_hit, client=client, MaxAssignments=10_001)[0] == "InsufficientFunds"
    post_hit(client, MaxAssignments=10_000)
    assert client.get_account_balance()["AvailableBalance"] == "10000.00"
    assert admin.balance(crowd.engine, Environment.SANDBOX).available == 1_000_000


@pytest.mark.parametrize(
    ("requirement", "code"),
    [
        ({"Comparator": "EqualTo"}, "AWS.MissingParameters"),
        ({"Comparator": "EqualTo", "IntegerValues": [1, 2]}, "InvalidParameterValue"),
        ({"Comparator": "In", "IntegerValues": list(range(16))}, "AWS.ParameterOutOfRange"),
        ({"Comparator": "Exists", "IntegerValues": [1]}, "InvalidParameterValue"),
        ({"Comparator": "Exists", "LocaleValues": [{"Country": "US"}]}, "InvalidParameterValue"),
        (
            {"Comparator": "Exists", "RequiredToPreview": True, "ActionsGuarded": "Accept"},
            "InvalidParameterValue",
        ),
        (
            {
                "QualificationTypeId": "00000000000000000071",
                "Comparator": "EqualTo",
                "LocaleValues": [{"Country": "US"}, {"Country": "CA"}],
            },
            "InvalidParameterValue",
        ),
        (
            {
                "QualificationTypeId": "00000000000000000071",
                "Comparator": "In",
                "LocaleValues": [{"Country": "US"}] * 31,
            },
            "AWS.ParameterOutOfRange",
        ),
        (
            {"QualificationTypeId": "00000000000000000071", "Comparator": "In", "IntegerValues": [1]},
            "InvalidParameterValue",
        ),
        (
            {
                "QualificationTypeId": "00000000000000000071",
                "Comparator": "GreaterThan",
                "LocaleValues": [{"Country": "US"}],
            },
            "InvalidParameterValue",
        ),
    ],
)
def test_requirements_keep_to_the_rules(shared_crowd, requirement, code):
    """Comparators, counts and kinds of values fit each other."""
    client = shared_crowd.boto()
    wanted = {"QualificationTypeId": "00000000000000000040"} | requirement

    assert refusal(client.create_hit_type, **TYPE, QualificationRequirements=[wanted])[0] == code


def test_a_hit_type_asks_at_most_ten_things(shared_crowd):
    """Ten requirements pass, eleven do not; sets and locales pass as they are."""
    client = shared_crowd.boto()
    locale = {
        "QualificationTypeId": "00000000000000000071",
        "Comparator": "NotIn",
        "LocaleValues": [{"Country": "US", "Subdivision": "NY"}, {"Country": "CA"}],
        "ActionsGuarded": "PreviewAndAccept",
    }

    hit = post_hit(
        client, client.create_hit_type(**TYPE, QualificationRequirements=[locale] * 10)["HITTypeId"]
    )

    assert hit["QualificationRequirements"] == [locale] * 10
    code, _ = refusal(client.create_hit_type, **TYPE, QualificationRequirements=[locale] * 11)
    assert code == "AWS.ParameterOutOfRange"


def test_a_rejection_is_overridden_within_30_days_and_not_after_deletion(crowd):
    """To the second of the thirtieth day; a deleted HIT's rejections stand."""
    client, worker, other = crowd.boto(), crowd.worker(), crowd.worker()
    hit, gone = (
        post_hit(client),
        post_hit(client, client.create_hit_type(**TYPE | {"Title": "2"})["HITTypeId"]),
    )
    own = []
    for one, who in ((hit, worker), (gone, other)):
        who.do(one["HITTypeId"])
        [found] = client.list_assignments_for_hit(HITId=one["HITId"])["Assignments"]
        client.reject_assignment(AssignmentId=found["AssignmentId"], RequesterFeedback="no")
        own.append({"AssignmentId": found["AssignmentId"], "OverrideRejection": True})
    client.delete_hit(HITId=gone["HITId"])

    code, message = refusal(client.approve_assignment, **own[1])
    crowd.clock.advance(days=30)
    client.approve_assignment(**own[0], RequesterFeedback="after all")

    assert (code, "while the HIT exists" in message) == ("InvalidAssignmentState", True)
    [found] = client.list_assignments_for_hit(HITId=hit["HITId"])["Assignments"]
    assert (found["AssignmentStatus"], found["RequesterFeedback"]) == ("Approved", "after all")
    assert "RejectionTime" not in found


@pytest.mark.parametrize(
    ("given", "shown"), [("5", "5.00"), ("1.", "1.00"), ("0.5", "0.50"), ("007.10", "7.10"), ("0", "0.00")]
)
def test_amounts_are_read_as_mturk_wrote_them(crowd, given, shown):
    """Digits, and a point with up to two decimals."""
    hit = post_hit(crowd.boto(), crowd.boto().create_hit_type(**TYPE | {"Reward": given})["HITTypeId"])

    assert hit["Reward"] == shown


@pytest.mark.parametrize("given", [".5", "1.234", " 1", "1 ", "1e2", "1,00", "+1", "١", "1\n", "NaN"])
def test_anything_else_is_no_amount(shared_crowd, given):
    """botocore lets these through; MTurk did not."""
    code, _ = refusal(shared_crowd.boto().create_hit_type, **TYPE | {"Reward": given})

    assert code == "InvalidParameterValue"


def test_values_of_just_the_limits_are_taken(crowd):
    """The longest texts, the longest and the shortest times."""
    values = {
        "Title": "é" * 128,
        "Description": "x" * 2000,
        "Keywords": "k" * 1000,
        "Reward": "0.01",
        "AssignmentDurationInSeconds": 31_536_000,
        "AutoApprovalDelayInSeconds": 2_592_000,
        "LifetimeInSeconds": 30,
        "RequesterAnnotation": "a" * 255,
        "UniqueRequestToken": "t" * 64,
        "Question": question(),
    }
    client = crowd.boto()

    hit = client.create_hit(**values)["HIT"]

    found = client.get_hit(HITId=hit["HITId"])["HIT"]
    assert {name: found[name] for name in values if name in found} == {
        name: value
        for name, value in values.items()
        if name not in ("LifetimeInSeconds", "UniqueRequestToken")
    }
    assert found["Expiration"] - found["CreationTime"] == dt.timedelta(seconds=30)

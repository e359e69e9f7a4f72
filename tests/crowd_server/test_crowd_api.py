"""The requester API as unmodified boto3 sees it, over HTTP; every reply fits botocore's service model."""

from __future__ import annotations

import datetime as dt

import pytest
from crowd_kit import TYPE, post_hit, question, refusal

from mitl.crowd_server import admin
from mitl.records import Environment

pytest_plugins = ("crowd_fixtures",)

LIVE = Environment.LIVE
SCHEMAS = "http://mechanicalturk.amazonaws.com/AWSMechanicalTurkDataSchemas/"
FORM = f'<QuestionForm xmlns="{SCHEMAS}2017-11-06/QuestionForm.xsd">%s</QuestionForm>'
UPLOAD = (
    "<Question><QuestionIdentifier>q</QuestionIdentifier><QuestionContent><Text>t</Text></QuestionContent>"
    "<AnswerSpecification><FileUploadAnswer/></AnswerSpecification></Question>"
)


def external(url):
    """ExternalQuestion XML of an address."""
    return (
        f'<ExternalQuestion xmlns="{SCHEMAS}2006-07-14/ExternalQuestion.xsd"><ExternalURL>{url}</ExternalURL>'
        "<FrameHeight>600</FrameHeight></ExternalQuestion>"
    )


def test_a_hit_goes_from_creation_to_payment_on_both_engines(either_crowd):
    """Create, accept, submit, list, approve, bonus, delete: each step shows in the next reply."""
    admin.set_budget(either_crowd.engine, LIVE, 1000)
    client, worker = either_crowd.boto(LIVE), either_crowd.worker(LIVE)
    hit = post_hit(client, MaxAssignments=2)

    assert (hit["HITStatus"], hit["NumberOfAssignmentsAvailable"]) == ("Assignable", 2)
    assert client.get_account_balance()["AvailableBalance"] == "8.00"
    task = worker.accept(hit["HITTypeId"])
    assert client.get_hit(HITId=hit["HITId"])["HIT"]["NumberOfAssignmentsPending"] == 1
    assert task.submit(p01_label="weak_yes", p01_text="é <&>").status_code == 200
    [submitted] = client.list_assignments_for_hit(HITId=hit["HITId"])["Assignments"]
    assert (submitted["AssignmentStatus"], submitted["WorkerId"]) == ("Submitted", worker.id)
    assert "<FreeText>&#233; &lt;&amp;&gt;</FreeText>" in submitted["Answer"]
    client.approve_assignment(AssignmentId=submitted["AssignmentId"], RequesterFeedback="thanks")
    client.send_bonus(
        WorkerId=worker.id, AssignmentId=submitted["AssignmentId"], BonusAmount="0.5", Reason="quick"
    )
    assert client.get_account_balance() | {"ResponseMetadata": 0} == {
        "AvailableBalance": "7.50",
        "OnHoldBalance": "1.00",
        "ResponseMetadata": 0,
    }
    client.update_expiration_for_hit(HITId=hit["HITId"], ExpireAt=dt.datetime(2015, 1, 1, tzinfo=dt.UTC))
    assert client.get_account_balance()["AvailableBalance"] == "8.50"
    client.delete_hit(HITId=hit["HITId"])
    assert client.get_hit(HITId=hit["HITId"])["HIT"]["HITStatus"] == "Disposed"
    assert client.list_hits()["HITs"] == []
    [bonus] = client.list_bonus_payments(AssignmentId=submitted["AssignmentId"])["BonusPayments"]
    assert (bonus["BonusAmount"], bonus["Reason"]) == ("0.50", "quick")
    [owed] = admin.payments(either_crowd.engine)
    assert (owed.worker, owed.reward_cents, owed.bonus_cents) == (worker.id, 100, 50)


def test_the_same_values_give_the_same_hit_type(crowd):
    """CreateHITType is idempotent; another reward is another type."""
    client = crowd.boto()

    first = client.create_hit_type(**TYPE)["HITTypeId"]
    again = client.create_hit_type(**TYPE)["HITTypeId"]
    other = client.create_hit_type(**TYPE | {"Reward": "1.01"})["HITTypeId"]

    assert first == again != other


def test_create_hit_makes_its_type_on_the_way(crowd):
    """CreateHIT with the values of a type gives a HIT of that type, its question readable by GetHIT alone."""
    client = crowd.boto()
    hit_type = client.create_hit_type(**TYPE)["HITTypeId"]

    hit = client.create_hit(**TYPE, LifetimeInSeconds=60, Question=question(), RequesterAnnotation="a")["HIT"]

    assert hit["HITTypeId"] == hit_type
    assert client.get_hit(HITId=hit["HITId"])["HIT"]["Question"] == question()
    assert "Question" not in client.list_hits()["HITs"][0]


def test_environments_do_not_see_each_other(crowd):
    """A HIT belongs to the environment of the key that made it."""
    hit = post_hit(crowd.boto())

    code, _ = refusal(crowd.boto(LIVE).get_hit, HITId=hit["HITId"])

    assert code == "HITDoesNotExist"
    assert crowd.boto(LIVE).list_hits()["HITs"] == []
    assert crowd.worker(LIVE).accept(hit["HITTypeId"]) is None


def test_a_request_token_is_remembered_for_24_hours(crowd):
    """A repeat is refused with the HIT's id; a day later the same token alone makes a second HIT."""
    client = crowd.boto()
    hit = post_hit(client, UniqueRequestToken="token-1")

    def repeat(token):
        return refusal(
            client.create_hit_with_hit_type,
            HITTypeId=hit["HITTypeId"],
            LifetimeInSeconds=60,
            Question=question(),
            UniqueRequestToken=token,
        )

    code, message = repeat("token-1")
    crowd.clock.advance(hours=23)
    post_hit(client, UniqueRequestToken="token-2")
    crowd.clock.advance(hours=1, seconds=1)
    later = post_hit(client, UniqueRequestToken="token-1")

    assert code == "HitAlreadyExists"
    assert hit["HITId"] in message
    assert later["HITId"] != hit["HITId"]
    assert repeat("token-2")[0] == "HitAlreadyExists"


def test_a_token_of_a_failed_request_is_free(crowd):
    """Only what was made is remembered."""
    client = crowd.boto(LIVE)
    code, _ = refusal(post_hit, client=client, UniqueRequestToken="t")
    admin.set_budget(crowd.engine, LIVE, 100)

    hit = post_hit(client, UniqueRequestToken="t")

    assert code == "InsufficientFunds"
    assert hit["HITStatus"] == "Assignable"


def test_a_bonus_with_the_same_token_is_granted_once(crowd):
    """The repeat is refused and names the earlier request."""
    client, worker = crowd.boto(), crowd.worker()
    hit = post_hit(client)
    worker.do(hit["HITTypeId"])
    [own] = client.list_assignments_for_hit(HITId=hit["HITId"])["Assignments"]
    bonus = {
        "WorkerId": worker.id,
        "AssignmentId": own["AssignmentId"],
        "BonusAmount": "1",
        "Reason": "r",
        "UniqueRequestToken": "b",
    }
    client.send_bonus(**bonus)

    code, _ = refusal(client.send_bonus, **bonus)

    assert code == "BonusAlreadyGranted"
    assert client.list_bonus_payments(HITId=hit["HITId"])["NumResults"] == 1


def test_listing_is_paged_by_ten_unless_told(crowd):
    """25 HITs come as 10, 10 and 5 by default, in one page of 100, each once and oldest first."""
    client = crowd.boto()
    hit_type = client.create_hit_type(**TYPE)["HITTypeId"]
    made = [post_hit(client, hit_type)["HITId"] for _ in range(25)]

    pages = list(client.get_paginator("list_hits").paginate())

    assert [page["NumResults"] for page in pages] == [10, 10, 5]
    assert [hit["HITId"] for page in pages for hit in page["HITs"]] == made
    assert client.list_hits(MaxResults=100)["NumResults"] == 25


def test_a_page_token_is_good_for_its_own_listing_alone(crowd):
    """One that nobody gave, or that another operation, filter, HIT or account got, is refused and never read."""
    client, live = crowd.boto(), crowd.boto(Environment.LIVE)
    hit_type, other_type = (client.create_hit_type(**TYPE | {"Title": t})["HITTypeId"] for t in "ab")
    first, second = (post_hit(client, hit_type, MaxAssignments=3)["HITId"] for _ in range(2))
    for _ in range(3):
        worker = crowd.worker()
        for _ in range(2):
            worker.do(hit_type)
    for name in ("one", "two"):
        client.create_qualification_type(Name=name, Description="d", QualificationTypeStatus="Active")
    hits = client.list_hits(MaxResults=1)["NextToken"]
    reviewable = client.list_reviewable_hits(HITTypeId=hit_type, MaxResults=1)["NextToken"]
    work = client.list_assignments_for_hit(HITId=first, MaxResults=1)["NextToken"]
    types = client.list_qualification_types(MustBeRequestable=True, MaxResults=1)["NextToken"]
    elsewhere = [
        *(
            (client.list_hits, {"NextToken": token})
            for token in ("nonsense", "YWZ0ZXI6LTE=", "1.", reviewable)
        ),
        (client.list_hits, {"NextToken": f"9{hits}"}),
        (live.list_hits, {"NextToken": hits}),
        (client.list_reviewable_hits, {"NextToken": hits}),
        (client.list_reviewable_hits, {"NextToken": reviewable}),
        (client.list_reviewable_hits, {"HITTypeId": other_type, "NextToken": reviewable}),
        (
            client.list_reviewable_hits,
            {"HITTypeId": hit_type, "Status": "Reviewing", "NextToken": reviewable},
        ),
        (client.list_assignments_for_hit, {"HITId": second, "NextToken": work}),
        (
            client.list_assignments_for_hit,
            {"HITId": first, "AssignmentStatuses": ["Approved"], "NextToken": work},
        ),
        (client.list_bonus_payments, {"HITId": first, "NextToken": work}),
        (client.list_qualification_types, {"MustBeRequestable": False, "NextToken": types}),
        (client.list_qualification_types, {"MustBeRequestable": True, "Query": "o", "NextToken": types}),
        (client.list_worker_blocks, {"NextToken": hits}),
    ]

    refused = [refusal(call, **parameters) for call, parameters in elsewhere]

    assert {code for code, _ in refused} == {"InvalidParameterValue"}
    assert "this server gave it to no ListHITs of this account with these parameters" in refused[0][1]
    assert all(len(token) <= 255 for token in (hits, reviewable, work, types))
    assert client.list_assignments_for_hit(HITId=first, NextToken=work, MaxResults=2)["NumResults"] == 2


def test_every_listing_is_walked_to_its_end(crowd):
    """boto3's paginator, one row to a page, gives what one page of a hundred gives, in its order."""
    client, hit, own = listed(crowd)
    parameters = {
        "list_hits": {},
        "list_reviewable_hits": {"Status": "Reviewable"},
        "list_hits_for_qualification_type": {"QualificationTypeId": "00000000000000000071"},
        "list_assignments_for_hit": {"HITId": hit, "AssignmentStatuses": ["Approved", "Submitted"]},
        "list_bonus_payments": {"HITId": hit},
        "list_qualification_types": {"MustBeRequestable": True, "Query": "COLOUR"},
        "list_workers_with_qualification_type": {"QualificationTypeId": own},
        "list_worker_blocks": {},
    }

    def rows(reply):
        return next(value for value in reply.values() if isinstance(value, list))

    for operation, given in parameters.items():
        paged = client.get_paginator(operation).paginate(**given, PaginationConfig={"PageSize": 1})
        pages = [rows(page) for page in paged]
        assert len(pages) > 1, operation
        assert [row for page in pages for row in page] == rows(
            getattr(client, operation)(**given, MaxResults=100)
        )


def listed(crowd):
    """A client, the ids of a HIT and of a qualification; of each kind of row there are two or more."""
    client = crowd.boto()
    locale = {
        "QualificationTypeId": "00000000000000000071",
        "Comparator": "Exists",
        "ActionsGuarded": "Accept",
    }
    guarded = client.create_hit_type(**TYPE | {"Title": "guarded"}, QualificationRequirements=[locale])[
        "HITTypeId"
    ]
    for _ in range(2):
        post_hit(client, guarded)
    hit = post_hit(client, client.create_hit_type(**TYPE | {"Title": "free"})["HITTypeId"], MaxAssignments=2)
    post_hit(client, hit["HITTypeId"], MaxAssignments=2)
    made = [
        client.create_qualification_type(
            Name=f"colours {name}", Description="d", QualificationTypeStatus="Active"
        )["QualificationType"]["QualificationTypeId"]
        for name in "ab"
    ]
    for _ in range(2):
        worker = crowd.worker()
        for _ in range(2):
            worker.do(hit["HITTypeId"])
        client.associate_qualification_with_worker(QualificationTypeId=made[0], WorkerId=worker.id)
        client.create_worker_block(WorkerId=worker.id, Reason="r")
    for own in client.list_assignments_for_hit(HITId=hit["HITId"])["Assignments"]:
        client.send_bonus(
            WorkerId=own["WorkerId"], AssignmentId=own["AssignmentId"], BonusAmount="0.05", Reason="r"
        )
    return client, hit["HITId"], made[0]


def test_fewer_than_ten_assignments_never_grow_to_ten(crowd):
    """The 9-to-10 rule, within which a HIT may grow, and once for one token."""
    client = crowd.boto()
    hit = post_hit(client, MaxAssignments=3)
    grow = client.create_additional_assignments_for_hit

    code, _ = refusal(grow, HITId=hit["HITId"], NumberOfAdditionalAssignments=7)
    grow(HITId=hit["HITId"], NumberOfAdditionalAssignments=6, UniqueRequestToken="x")
    again, _ = refusal(grow, HITId=hit["HITId"], NumberOfAdditionalAssignments=6, UniqueRequestToken="x")

    assert code == "InvalidMaximumAssignmentsIncrease"
    assert "already" in again.lower()
    assert client.get_hit(HITId=hit["HITId"])["HIT"]["MaxAssignments"] == 9
    big = post_hit(client, MaxAssignments=10)
    grow(HITId=big["HITId"], NumberOfAdditionalAssignments=5)
    assert client.get_hit(HITId=big["HITId"])["HIT"]["MaxAssignments"] == 15


def test_a_hit_is_deleted_only_when_all_is_decided(crowd):
    """Each refusal names what stands in the way: still offered, still held, not decided, deleted already."""
    client, worker, other = crowd.boto(), crowd.worker(), crowd.worker()
    hit = post_hit(client, MaxAssignments=2)
    hit_id = hit["HITId"]

    def why():
        code, message = refusal(client.delete_hit, HITId=hit_id)
        assert code == "InvalidHITState"
        return message

    worker.do(hit["HITTypeId"])
    offered = why()
    task = other.accept(hit["HITTypeId"])
    client.update_expiration_for_hit(HITId=hit_id, ExpireAt=dt.datetime(2015, 1, 1, tzinfo=dt.UTC))
    held = why()
    task.submit(p01_label="no")
    undecided = why()
    assert "state 'Assignable'" in offered
    assert "Workers can still accept it; UpdateExpirationForHIT" in offered
    assert "decision" not in offered
    assert "state 'Unassignable'" in held
    assert "Workers hold 1 of its assignments" in held
    assert "2 of this HIT's submitted assignments are neither approved nor rejected" in undecided
    assert "state" not in undecided
    own, last = client.list_assignments_for_hit(HITId=hit_id)["Assignments"]
    client.approve_assignment(AssignmentId=own["AssignmentId"])
    client.update_hit_review_status(HITId=hit_id)
    assert "1 of this HIT's submitted assignments is neither" in why()
    client.reject_assignment(AssignmentId=last["AssignmentId"], RequesterFeedback="no")
    client.delete_hit(HITId=hit_id)
    assert "state 'Disposed'" in why()
    overriding = {"AssignmentId": last["AssignmentId"], "OverrideRejection": True}
    assert f"but the HIT {hit_id} was deleted" in refusal(client.approve_assignment, **overriding)[1]
    assert client.list_assignments_for_hit(HITId=hit_id)["NumResults"] == 2


def test_an_assignment_that_was_never_submitted_is_not_said_to_be_missing(crowd):
    """Whoever knows its id, as an ExternalQuestion's server does, is told that nobody submitted it."""
    client, worker = crowd.boto(), crowd.worker()
    task = worker.accept(post_hit(client)["HITTypeId"])
    own = {"AssignmentId": task.query["assignmentId"]}

    code, message = refusal(client.approve_assignment, **own)
    missing = refusal(client.approve_assignment, AssignmentId="3NONE")[0]

    assert (code, "Nobody has submitted" in message) == ("InvalidAssignmentState", True)
    assert refusal(client.get_assignment, **own)[0] == "InvalidAssignmentState"
    assert missing == "AssignmentDoesNotExist"


def test_a_mark_that_is_set_already_says_so_and_nothing_of_decisions(crowd):
    """UpdateHITReviewStatus asks for a state alone, so work that waits is no reason."""
    client, worker = crowd.boto(), crowd.worker()
    hit = post_hit(client)
    worker.do(hit["HITTypeId"])
    client.update_hit_review_status(HITId=hit["HITId"])

    message = refusal(client.update_hit_review_status, HITId=hit["HITId"])[1]

    assert "state 'Reviewing'" in message
    assert "UpdateHITReviewStatus marked it so" in message
    assert "approved" not in message


def test_states_follow_work_and_the_clock(crowd):
    """Assignable, Unassignable while taken, Reviewable when submitted, Reviewing by the requester's marker."""
    client, worker = crowd.boto(), crowd.worker()
    hit = post_hit(client)

    def state():
        return client.get_hit(HITId=hit["HITId"])["HIT"]["HITStatus"]

    task = worker.accept(hit["HITTypeId"])
    assert state() == "Unassignable"
    crowd.clock.advance(hours=1, seconds=1)
    assert state() == "Assignable"
    assert task.submit(p01_label="yes").status_code == 410
    worker.do(hit["HITTypeId"])
    assert state() == "Reviewable"
    assert client.list_reviewable_hits(HITTypeId=hit["HITTypeId"])["NumResults"] == 1
    client.update_hit_review_status(HITId=hit["HITId"])
    assert state() == "Reviewing"
    assert client.list_reviewable_hits()["NumResults"] == 0
    assert client.list_reviewable_hits(Status="Reviewing")["NumResults"] == 1
    client.update_hit_review_status(HITId=hit["HITId"], Revert=True)
    assert state() == "Reviewable"
    assert refusal(client.update_hit_review_status, HITId=hit["HITId"], Revert=True)[0] == "InvalidHITState"


def test_an_expired_hit_waits_for_a_running_lease(crowd):
    """Who had accepted may still submit; nobody else may accept; then the HIT is reviewable."""
    client, worker, other = crowd.boto(), crowd.worker(), crowd.worker()
    hit = post_hit(client, MaxAssignments=2)
    task = worker.accept(hit["HITTypeId"])
    client.update_expiration_for_hit(HITId=hit["HITId"], ExpireAt=dt.datetime(2015, 1, 1, tzinfo=dt.UTC))

    assert client.get_hit(HITId=hit["HITId"])["HIT"]["HITStatus"] == "Unassignable"
    assert other.accept(hit["HITTypeId"]) is None
    assert task.submit(p01_label="yes").status_code == 200
    found = client.get_hit(HITId=hit["HITId"])["HIT"]
    assert found["HITStatus"] == "Reviewable"
    # What was submitted and not decided is the rest, also after expiry.
    numbers = (found["NumberOfAssignments" + name] for name in ("Completed", "Pending", "Available"))
    assert found["MaxAssignments"] - sum(numbers) == 1


def test_work_is_approved_by_itself_after_the_delay(crowd):
    """A rejection comes too late then, and the reward is owed."""
    client, worker = crowd.boto(), crowd.worker()
    hit = post_hit(client)
    worker.do(hit["HITTypeId"])
    [own] = client.list_assignments_for_hit(HITId=hit["HITId"])["Assignments"]
    crowd.clock.advance(days=7)

    code, message = refusal(
        client.reject_assignment, AssignmentId=own["AssignmentId"], RequesterFeedback="too late"
    )

    assert (code, "'Approved'" in message) == ("InvalidAssignmentState", True)
    [now] = client.list_assignments_for_hit(HITId=hit["HITId"], AssignmentStatuses=["Approved"])[
        "Assignments"
    ]
    assert now["ApprovalTime"] == own["AutoApprovalTime"]
    assert admin.payments(crowd.engine, Environment.SANDBOX, clock=crowd.clock)[0].reward_cents == 100


def test_a_rejection_can_be_overridden_for_30_days(crowd):
    """Reject frees the money; the override needs it again; a plain approval of rejected work is refused."""
    admin.set_budget(crowd.engine, LIVE, 100)
    client, worker = crowd.boto(LIVE), crowd.worker(LIVE)
    hit = post_hit(client)
    worker.do(hit["HITTypeId"])
    [own] = client.list_assignments_for_hit(HITId=hit["HITId"])["Assignments"]
    own = {"AssignmentId": own["AssignmentId"]}
    client.reject_assignment(**own, RequesterFeedback="not what was asked")

    assert client.get_account_balance()["AvailableBalance"] == "1.00"
    assert refusal(client.approve_assignment, **own)[0] == "InvalidAssignmentState"
    blocker = post_hit(client)
    assert refusal(client.approve_assignment, **own, OverrideRejection=True)[0] == "InsufficientFunds"
    client.update_expiration_for_hit(HITId=blocker["HITId"], ExpireAt=dt.datetime(2015, 1, 1, tzinfo=dt.UTC))
    client.approve_assignment(**own, OverrideRejection=True)
    assert client.get_assignment(**own)["Assignment"]["AssignmentStatus"] == "Approved"
    assert client.get_account_balance()["AvailableBalance"] == "0.00"


def test_an_old_rejection_stays(crowd):
    """After 30 days OverrideRejection is refused."""
    client, worker = crowd.boto(), crowd.worker()
    hit = post_hit(client)
    worker.do(hit["HITTypeId"])
    [own] = client.list_assignments_for_hit(HITId=hit["HITId"])["Assignments"]
    client.reject_assignment(AssignmentId=own["AssignmentId"], RequesterFeedback="no")
    crowd.clock.advance(days=31)

    code, _ = refusal(client.approve_assignment, AssignmentId=own["AssignmentId"], OverrideRejection=True)

    assert code == "InvalidAssignmentState"


def test_live_money_is_there_before_it_is_promised(crowd):
    """A new server's live budget is nothing; the sandbox always shows 10,000.00."""
    client = crowd.boto(LIVE)

    code, message = refusal(post_hit, client=client)

    assert (code, "0.00" in message) == ("InsufficientFunds", True)
    assert client.get_account_balance()["AvailableBalance"] == "0.00"
    sandbox = crowd.boto()
    post_hit(sandbox, MaxAssignments=9)
    assert sandbox.get_account_balance()["AvailableBalance"] == "10000.00"


def test_extending_an_expired_hit_holds_its_money_again(crowd):
    """Expiry frees what nobody can earn; a later expiry needs it back."""
    admin.set_budget(crowd.engine, LIVE, 100)
    client = crowd.boto(LIVE)
    hit = post_hit(client)
    crowd.clock.advance(days=8)

    assert client.get_account_balance()["AvailableBalance"] == "1.00"
    later = crowd.clock() + dt.timedelta(days=1)
    client.update_expiration_for_hit(HITId=hit["HITId"], ExpireAt=later)
    assert client.get_account_balance()["AvailableBalance"] == "0.00"
    assert client.get_hit(HITId=hit["HITId"])["HIT"]["HITStatus"] == "Assignable"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"Title": "x" * 129}, "AWS.ParameterOutOfRange"),
        ({"Title": ""}, "AWS.MissingParameters"),
        ({"Description": "x" * 2001}, "AWS.ParameterOutOfRange"),
        ({"Keywords": "x" * 1001}, "AWS.ParameterOutOfRange"),
        ({"Reward": "1.234"}, "InvalidParameterValue"),
        ({"Reward": "-1"}, "InvalidParameterValue"),
        ({"Reward": "$1"}, "InvalidParameterValue"),
        ({"Reward": "9" * 30}, "AWS.ParameterOutOfRange"),
        ({"AssignmentDurationInSeconds": 29}, "AWS.ParameterOutOfRange"),
        ({"AutoApprovalDelayInSeconds": 2_592_001}, "AWS.ParameterOutOfRange"),
        (
            {"QualificationRequirements": [{"QualificationTypeId": "3NONE", "Comparator": "Exists"}]},
            "QualificationTypeDoesNotExist",
        ),
    ],
)
def test_a_hit_type_keeps_to_the_limits(shared_crowd, changes, code):
    """botocore checks none of these; the server does."""
    assert refusal(shared_crowd.boto().create_hit_type, **TYPE | changes)[0] == code


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"Question": question("x" * 65_535)}, "AWS.ParameterOutOfRange"),
        ({"Question": "<HTMLQuestion>"}, "XMLParseError"),
        ({"Question": "<a/>"}, "XMLParseError"),
        ({"Question": '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'}, "XMLParseError"),
        ({"Question": question().replace("<FrameHeight>0</FrameHeight>", "")}, "XMLParseError"),
        ({"Question": question(" ")}, "XMLParseError"),
        ({"Question": external("http://example.org/")}, "InvalidParameterValue"),
        ({"Question": external("https:///page")}, "InvalidParameterValue"),
        ({"Question": external("https://[example.org")}, "InvalidParameterValue"),
        ({"Question": external("https://example.org:x/")}, "InvalidParameterValue"),
        ({"Question": external("javascript:alert(1)")}, "InvalidParameterValue"),
        ({"Question": FORM % ""}, "XMLParseError"),
        ({"Question": FORM % UPLOAD}, "XMLParseError"),
        ({"LifetimeInSeconds": 29}, "AWS.ParameterOutOfRange"),
        ({"MaxAssignments": 0}, "AWS.ParameterOutOfRange"),
        ({"RequesterAnnotation": "x" * 256}, "AWS.ParameterOutOfRange"),
        ({"UniqueRequestToken": "x" * 65}, "AWS.ParameterOutOfRange"),
        ({"HITTypeId": "3NONE"}, "HITTypeDoesNotExist"),
        ({"HITLayoutId": "3LAYOUT"}, "OperationNotSupported"),
        ({"RequesterAnnotation": "half \ud800"}, "InvalidParameterValue"),
    ],
)
def test_a_hit_keeps_to_the_limits(shared_crowd, changes, code):
    """Nothing is stored of a refused HIT."""
    client = shared_crowd.boto()

    assert refusal(post_hit, client=client, **changes)[0] == code
    assert client.list_hits()["HITs"] == []


def test_a_question_of_just_the_limit_is_taken(crowd):
    """65,535 bytes fit; in UTF-8 bytes, not characters."""
    room = 65_535 - len(question("").encode())

    hit = post_hit(crowd.boto(), Question=question("é" * (room // 2) + "x" * (room % 2)))

    assert hit["HITStatus"] == "Assignable"


def test_unknown_ids_have_their_own_codes(shared_crowd):
    """Each noun's absence is told apart."""
    client = shared_crowd.boto()
    some = {"QualificationTypeId": "3NONE"}

    assert refusal(client.get_hit, HITId="3NONE")[0] == "HITDoesNotExist"
    assert refusal(client.list_assignments_for_hit, HITId="3NONE")[0] == "HITDoesNotExist"
    assert refusal(client.get_assignment, AssignmentId="3NONE")[0] == "AssignmentDoesNotExist"
    assert refusal(client.get_qualification_type, **some)[0] == "QualificationTypeDoesNotExist"
    assert refusal(client.list_bonus_payments)[0] == "AWS.MissingParameters"


def test_qualifications_are_granted_found_and_revoked(either_crowd):
    """Create, find by name, grant with a value, list holders, read the score, revoke."""
    client, worker = either_crowd.boto(), either_crowd.worker()
    made = client.create_qualification_type(
        Name="mitl p finished", Description="d", Keywords="k", QualificationTypeStatus="Active"
    )["QualificationType"]
    own = {"QualificationTypeId": made["QualificationTypeId"]}
    holder = own | {"WorkerId": worker.id}

    again, _ = refusal(
        client.create_qualification_type,
        Name="mitl p finished",
        Description="d",
        QualificationTypeStatus="Active",
    )
    assert again == "QualificationTypeAlreadyExists"
    listed = client.list_qualification_types(Query="P Fin", MustBeRequestable=False)["QualificationTypes"]
    assert [one["QualificationTypeId"] for one in listed] == [own["QualificationTypeId"]]
    assert client.list_qualification_types(Query="100%", MustBeRequestable=False)["NumResults"] == 0
    assert client.get_qualification_type(**own)["QualificationType"]["Name"] == "mitl p finished"
    assert refusal(client.get_qualification_score, **holder)[0] == "QualificationDoesNotExist"
    client.associate_qualification_with_worker(**holder, IntegerValue=7, SendNotification=False)
    assert client.get_qualification_score(**holder)["Qualification"]["IntegerValue"] == 7
    assert client.list_workers_with_qualification_type(**own)["NumResults"] == 1
    client.disassociate_qualification_from_worker(**holder)
    assert client.list_workers_with_qualification_type(**own)["NumResults"] == 0
    assert client.list_workers_with_qualification_type(**own, Status="Revoked")["NumResults"] == 1
    assert refusal(client.disassociate_qualification_from_worker, **holder)[0] == "InvalidQualificationState"
    stranger = own | {"WorkerId": "A00000000000000"}
    assert refusal(client.associate_qualification_with_worker, **stranger)[0] == "InvalidParameterValue"


def test_an_exclusion_qualification_shuts_a_worker_out(crowd):
    """DoesNotExist on discovery: the holder neither sees nor gets the HIT; others do."""
    client, excluded, other = crowd.boto(), crowd.worker(), crowd.worker()
    made = client.create_qualification_type(Name="q", Description="d", QualificationTypeStatus="Active")
    own = made["QualificationType"]["QualificationTypeId"]
    guard = {
        "QualificationTypeId": own,
        "Comparator": "DoesNotExist",
        "ActionsGuarded": "DiscoverPreviewAndAccept",
    }
    hit_type = client.create_hit_type(**TYPE, QualificationRequirements=[guard])["HITTypeId"]
    hit = post_hit(client, hit_type)
    client.associate_qualification_with_worker(QualificationTypeId=own, WorkerId=excluded.id)

    assert hit["QualificationRequirements"] == [guard]
    assert TYPE["Title"] not in excluded.get("/w").text
    assert excluded.accept(hit_type) is None
    assert TYPE["Title"] in other.get("/w").text
    assert other.accept(hit_type) is not None

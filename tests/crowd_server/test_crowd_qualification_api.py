"""Qualification types, requests and scores as unmodified boto3 sees them; every reply fits botocore's model."""

from __future__ import annotations

import re

import pytest
from crowd_kit import TYPE, post_hit, refusal
from qualification_kit import NEW, TWO, TWO_KEY, ask, choice, form, free, key, made, question

from mitl.records import Environment

pytest_plugins = ("crowd_fixtures",)

TESTED = {"Test": TWO, "AnswerKey": TWO_KEY, "TestDurationInSeconds": 600}


def pending(client, **filters):
    """The requests that wait."""
    return client.list_qualification_requests(**filters)["QualificationRequests"]


def test_a_type_keeps_all_that_it_was_made_with(client):
    """Test, key, times and delays come back as given; workers may ask for it."""
    own = client.create_qualification_type(**NEW, **TESTED, Keywords="k", RetryDelayInSeconds=60)[
        "QualificationType"
    ]

    again = client.get_qualification_type(QualificationTypeId=own["QualificationTypeId"])["QualificationType"]
    assert again == own
    assert {name: own[name] for name in TESTED} == TESTED
    assert (own["RetryDelayInSeconds"], own["AutoGranted"], own["IsRequestable"]) == (60, False, True)
    assert "AutoGrantedValue" not in own


def test_a_type_that_grants_itself_gives_one_unless_told(client):
    """AutoGrantedValue is 1 by default and counts only where AutoGranted is true."""
    plain = client.create_qualification_type(**NEW, AutoGranted=True)["QualificationType"]
    told = client.create_qualification_type(**NEW | {"Name": "b"}, AutoGranted=True, AutoGrantedValue=-4)
    never = client.create_qualification_type(**NEW | {"Name": "c"}, AutoGrantedValue=9)["QualificationType"]

    assert (plain["AutoGranted"], plain["AutoGrantedValue"]) == (True, 1)
    assert told["QualificationType"]["AutoGrantedValue"] == -4
    assert never["AutoGranted"] is False
    assert "AutoGrantedValue" not in never


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"Name": ""}, "AWS.MissingParameters"),
        ({"Name": "x" * 201}, "AWS.ParameterOutOfRange"),
        ({"Description": "x" * 2001}, "AWS.ParameterOutOfRange"),
        ({"QualificationTypeStatus": "Maybe"}, "InvalidParameterValue"),
        ({"Test": TWO}, "AWS.MissingParameters"),
        ({"AnswerKey": TWO_KEY}, "AWS.MissingParameters"),
        ({**TESTED, "AutoGranted": True}, "InvalidParameterValue"),
        ({**TESTED, "TestDurationInSeconds": 0}, "AWS.ParameterOutOfRange"),
        ({"RetryDelayInSeconds": -1}, "AWS.ParameterOutOfRange"),
        ({"AutoGranted": True, "AutoGrantedValue": 2**31}, "AWS.ParameterOutOfRange"),
        ({**TESTED, "Test": "<QuestionForm/>"}, "XMLParseError"),
        ({**TESTED, "Test": "x" * 65_536}, "AWS.ParameterOutOfRange"),
        ({**TESTED, "AnswerKey": key({"size": [(["red"], 1)]})}, "XMLParseError"),
        ({**TESTED, "Test": form(question("colour", free()))}, "XMLParseError"),
    ],
)
def test_what_excludes_or_misses_each_other_is_refused(shared_crowd, changes, code):
    """Nothing is made, and the name stays free."""
    client = shared_crowd.boto()
    assert refusal(client.create_qualification_type, **NEW | changes)[0] == code
    assert client.list_qualification_types(MustBeRequestable=False)["NumResults"] == 0


def test_a_time_without_a_test_counts_for_nothing(client):
    """As on MTurk, and whatever it is; on a type that has a test, an update changes the test's time."""
    own = client.create_qualification_type(**NEW, TestDurationInSeconds=0)["QualificationType"]
    tested = made(client, **TESTED, Name="tested")

    def updated(type_id):
        reply = client.update_qualification_type(QualificationTypeId=type_id, TestDurationInSeconds=90)
        return reply["QualificationType"]

    assert "TestDurationInSeconds" not in own
    assert "TestDurationInSeconds" not in updated(own["QualificationTypeId"])
    assert (updated(tested)["TestDurationInSeconds"], updated(tested)["Test"]) == (90, TESTED["Test"])


def test_a_query_of_any_length_is_answered(either_crowd):
    """Types hold it or they do not, in any case of letters; a longer text than any of them can hold is in none."""
    client = either_crowd.boto()
    made(client, Keywords="größe")

    for text, count in (
        ("COLOURS", 1),
        ("GRÖSSE", 1),
        ("%", 0),
        ("_", 0),
        ("A" * 50_000, 0),
        ("%" * 30_000, 0),
    ):
        found = client.list_qualification_types(MustBeRequestable=False, Query=text)
        assert found["NumResults"] == count, text[:9]


def test_xml_that_cannot_be_read_is_named_by_its_parameter(shared_crowd):
    """A HIT's Question, a type's Test and its AnswerKey share a reader, and are never taken for each other."""
    client = shared_crowd.boto()
    bad = {
        "form": "<QuestionForm/>",
        "words": "words",
        "none": form(""),
        "html": form(
            question("a", free()), overview="<FormattedContent><![CDATA[<script/>]]></FormattedContent>"
        ),
        "type": '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>',
    }
    hit_type = client.create_hit_type(**TYPE)["HITTypeId"]

    def named(call, parameter, **others):
        for xml in bad.values():
            code, message = refusal(call, **others, **{parameter: xml})
            assert code in ("XMLParseError", "XHTMLParseError")
            assert message.startswith(f"There was an error parsing the XML of {parameter}. "), message
            assert message.count("There was an error") == 1
        assert refusal(call, **others, **{parameter: "x" * 65_536})[1].startswith(
            f"{parameter} is 65536 bytes long"
        )

    post = {"HITTypeId": hit_type, "LifetimeInSeconds": 60}
    named(client.create_hit_with_hit_type, "Question", **post)
    named(client.create_qualification_type, "Test", **NEW, TestDurationInSeconds=60)
    named(client.create_qualification_type, "AnswerKey", **NEW, Test=TWO, TestDurationInSeconds=60)


def test_an_update_changes_what_it_names(client):
    """Description, status, delay and value; the rest stays."""
    own = {"QualificationTypeId": made(client, AutoGranted=True, AutoGrantedValue=3, Keywords="k")}

    client.update_qualification_type(**own, Description="new", QualificationTypeStatus="Inactive")
    reply = client.update_qualification_type(**own, RetryDelayInSeconds=5, AutoGrantedValue=8)

    kept = reply["QualificationType"]
    assert (kept["Name"], kept["Keywords"], kept["Description"]) == ("Colours", "k", "new")
    assert (kept["QualificationTypeStatus"], kept["IsRequestable"]) == ("Inactive", False)
    assert (kept["RetryDelayInSeconds"], kept["AutoGranted"], kept["AutoGrantedValue"]) == (5, True, 8)
    assert client.get_qualification_type(**own)["QualificationType"] == kept
    assert (
        client.update_qualification_type(**own, AutoGranted=False)["QualificationType"]["AutoGranted"]
        is False
    )


def test_a_new_test_replaces_the_old_one_with_its_key(client):
    """Without a key the requests are decided by hand from then on; a test cannot be taken away."""
    own = {"QualificationTypeId": made(client, **TESTED)}

    for changes, code in (
        ({"TestDurationInSeconds": 0}, "AWS.ParameterOutOfRange"),
        ({"AnswerKey": TWO_KEY}, "AWS.MissingParameters"),
        ({"Test": TWO}, "AWS.MissingParameters"),
        ({"AutoGranted": True}, "InvalidParameterValue"),
    ):
        assert refusal(client.update_qualification_type, **own, **changes)[0] == code
    reply = client.update_qualification_type(
        **own, Test=form(question("a", choice("x"))), TestDurationInSeconds=5
    )

    assert reply["QualificationType"]["TestDurationInSeconds"] == 5
    assert "AnswerKey" not in reply["QualificationType"]


def test_a_type_that_grants_itself_cannot_get_a_test(client):
    """Unless the same call makes it stop."""
    own = {"QualificationTypeId": made(client, AutoGranted=True)}

    assert refusal(client.update_qualification_type, **own, **TESTED)[0] == "InvalidParameterValue"
    reply = client.update_qualification_type(**own, **TESTED, AutoGranted=False)

    assert (reply["QualificationType"]["AutoGranted"], reply["QualificationType"]["Test"]) == (False, TWO)


def test_a_deleted_type_is_gone_and_its_name_free(crowd, client):
    """Who asked is told no; who holds it still meets the HITs that ask for it."""
    own = {"QualificationTypeId": made(client)}
    guard = own | {"Comparator": "Exists", "ActionsGuarded": "DiscoverPreviewAndAccept"}
    hit_type = client.create_hit_type(**TYPE, QualificationRequirements=[guard])["HITTypeId"]
    post_hit(client, hit_type)
    holder, asker = crowd.worker(), crowd.worker()
    client.associate_qualification_with_worker(**own, WorkerId=holder.id)
    ask(asker, own["QualificationTypeId"])

    client.delete_qualification_type(**own)

    for call in (
        client.get_qualification_type,
        client.delete_qualification_type,
        client.update_qualification_type,
        client.list_qualification_requests,
        client.list_workers_with_qualification_type,
    ):
        assert refusal(call, **own)[0] == "QualificationTypeDoesNotExist"
    assert client.list_qualification_types(MustBeRequestable=False)["NumResults"] == 0
    assert pending(client) == []
    assert "was rejected" in asker.get("/w/messages").text
    assert holder.accept(hit_type) is not None
    assert asker.accept(hit_type) is None
    other = TYPE | {"Title": "t", "QualificationRequirements": [guard]}
    assert refusal(client.create_hit_type, **other)[0] == "QualificationTypeDoesNotExist"
    assert made(client) != own["QualificationTypeId"]


def test_types_are_found_by_what_they_say(client):
    """Name, description and keywords; inactive ones are not requestable; pages follow each other."""
    first = made(client, Keywords="hue")
    second = made(client, Name="Shapes 100%", Description="Round things", QualificationTypeStatus="Inactive")

    def found(**filters):
        listed = client.list_qualification_types(**{"MustBeRequestable": False} | filters)
        return [one["QualificationTypeId"] for one in listed["QualificationTypes"]]

    assert found() == [first, second]
    assert found(MustBeRequestable=True) == [first]
    assert found(MustBeOwnedByCaller=True) == [first, second]
    assert found(Query="HUE") == [first]
    assert found(Query="round") == [second]
    assert found(Query="100%") == [second]
    assert found(Query="nothing") == []
    pages = client.get_paginator("list_qualification_types").paginate(
        MustBeRequestable=False, PaginationConfig={"PageSize": 1}
    )
    assert [page["NumResults"] for page in pages] == [1, 1]


def test_a_request_is_listed_accepted_and_scored(either_crowd):
    """From the worker's button to GetQualificationScore, on both engines; a second decision is refused."""
    client, worker = either_crowd.boto(), either_crowd.worker()
    own = {"QualificationTypeId": made(client)}
    other = made(client, Name="other")
    ask(worker, own["QualificationTypeId"])

    [request] = pending(client)
    assert (request["WorkerId"], request["QualificationTypeId"]) == (worker.id, own["QualificationTypeId"])
    assert "Test" not in request
    assert pending(client, QualificationTypeId=other) == []
    assert pending(client, **own) == [request]
    mine = {"QualificationRequestId": request["QualificationRequestId"]}
    client.accept_qualification_request(**mine, IntegerValue=42)

    score = client.get_qualification_score(**own, WorkerId=worker.id)["Qualification"]
    assert (score["IntegerValue"], score["Status"]) == (42, "Granted")
    assert pending(client) == []
    assert refusal(client.accept_qualification_request, **mine)[0] == "InvalidQualificationRequestState"
    assert refusal(client.reject_qualification_request, **mine)[0] == "InvalidQualificationRequestState"
    assert "value is 42" in worker.get("/w/messages").text


def test_a_granted_request_may_have_no_value(crowd, client):
    """Having it is what counts then."""
    worker, type_id = crowd.worker(), made(client)
    ask(worker, type_id)

    client.accept_qualification_request(QualificationRequestId=pending(client)[0]["QualificationRequestId"])

    score = client.get_qualification_score(QualificationTypeId=type_id, WorkerId=worker.id)["Qualification"]
    assert "IntegerValue" not in score


def test_a_rejected_request_tells_the_worker_why(crowd, client):
    """On the page of qualifications and among the messages; the reason is text, whatever it holds."""
    worker, type_id = crowd.worker(), made(client)
    ask(worker, type_id)
    mine = {"QualificationRequestId": pending(client)[0]["QualificationRequestId"]}
    assert (
        refusal(client.reject_qualification_request, **mine, Reason="x" * 1025)[0]
        == "AWS.ParameterOutOfRange"
    )

    client.reject_qualification_request(**mine, Reason="<b>Too few</b> answers")

    for path in ("/w/qualifications", "/w/messages", f"/w/qualifications/{type_id}"):
        assert "&lt;b&gt;Too few&lt;/b&gt; answers" in worker.get(path).text
    assert pending(client) == []


def test_unknown_ids_are_told_apart(crowd, client):
    """A request, a type, a worker, and what belongs to the other environment."""
    worker, type_id = crowd.worker(), made(client)
    ask(worker, type_id)
    mine = {"QualificationRequestId": pending(client)[0]["QualificationRequestId"]}
    live = crowd.boto(Environment.LIVE)

    for call in (live.accept_qualification_request, live.reject_qualification_request):
        assert refusal(call, **mine)[0] == "QualificationRequestDoesNotExist"
    assert refusal(client.accept_qualification_request, QualificationRequestId="' or 1")[0] == (
        "QualificationRequestDoesNotExist"
    )
    assert (
        refusal(live.get_qualification_type, QualificationTypeId=type_id)[0]
        == "QualificationTypeDoesNotExist"
    )
    assert pending(live) == []


def test_granting_tells_the_worker_unless_asked_not_to(crowd, client):
    """SendNotification is true by default; a reason for taking it back is told too."""
    worker, own = crowd.worker(), {"QualificationTypeId": made(client)}
    holder = own | {"WorkerId": worker.id}

    client.associate_qualification_with_worker(**holder, IntegerValue=1, SendNotification=False)
    assert "Nobody has written to you yet" in worker.get("/w/messages").text
    client.associate_qualification_with_worker(**holder, IntegerValue=2)
    assert "You were given the qualification “Colours”" in worker.get("/w/messages").text
    client.disassociate_qualification_from_worker(**holder, Reason="It was a mistake.")

    assert "It was a mistake." in worker.get("/w/messages").text
    assert refusal(client.get_qualification_score, **holder)[0] == "InvalidQualificationState"
    [revoked] = client.list_workers_with_qualification_type(**own, Status="Revoked")["Qualifications"]
    assert revoked["Status"] == "Revoked"


def test_granting_leaves_a_waiting_request_alone(crowd, client):
    """As the reference says; accepting it later changes the value."""
    worker, type_id = crowd.worker(), made(client)
    holder = {"QualificationTypeId": type_id, "WorkerId": worker.id}
    ask(worker, type_id)

    client.associate_qualification_with_worker(**holder, IntegerValue=1)
    [request] = pending(client)
    client.accept_qualification_request(
        QualificationRequestId=request["QualificationRequestId"], IntegerValue=2
    )

    assert client.get_qualification_score(**holder)["Qualification"]["IntegerValue"] == 2


def test_requests_come_in_pages(crowd, client):
    """Oldest first, ten unless told."""
    type_id = made(client)
    workers = [crowd.worker() for _ in range(3)]
    for worker in workers:
        ask(worker, type_id)

    pages = client.get_paginator("list_qualification_requests").paginate(PaginationConfig={"PageSize": 2})

    listed = [request["WorkerId"] for page in pages for request in page["QualificationRequests"]]
    assert listed == [worker.id for worker in workers]


def test_answers_to_a_test_without_key_come_with_the_request(crowd, client):
    """The test that was answered, whatever it is by now, and the answers as QuestionFormAnswers."""
    worker = crowd.worker()
    type_id = made(client, Test=form(question("why & how", free())), TestDurationInSeconds=60)
    page = ask(worker, type_id)
    version = re.search(r'name="version" value="([0-9a-f.]+)"', page.text)[1]

    reply = worker.post(page.url.path, {"version": version, "q1": "because <it> is"})

    assert "Your answers arrived" in reply.text
    [request] = pending(client)
    assert request["Test"] == form(question("why & how", free()))
    assert "<QuestionIdentifier>why &amp; how</QuestionIdentifier>" in request["Answer"]
    assert "<FreeText>because &lt;it&gt; is</FreeText>" in request["Answer"]
    client.update_qualification_type(QualificationTypeId=type_id, Test=TWO, TestDurationInSeconds=60)
    assert pending(client) == [request]

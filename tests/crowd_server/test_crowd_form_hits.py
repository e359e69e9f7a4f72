"""A HIT whose question is a QuestionForm: shown as a form, answered in the form's own terms."""

from __future__ import annotations

from crowd_kit import HTML, post_hit, question
from form_kit import FORM, SPACE

from mitl.protocol.answer_xml import ANSWERS_NAMESPACE

pytest_plugins = ("crowd_fixtures",)


def test_a_form_is_shown_and_bound_to_its_assignment(crowd, client):
    """With a heading; texts are escaped, identifiers stay out of the page, the default stands in its field."""
    hit = post_hit(client, Question=FORM)
    task = crowd.worker().accept(hit["HITTypeId"])

    page = task.page().text

    assert page.count("<h1") == 1 and "Cats &lt;b&gt;" in page
    assert "yes_1" not in page
    assert 'value="because"' in page
    assert f'action="{crowd.url}/s/{task.token}/mturk/externalSubmit"' in page
    assert f'value="{task.query["assignmentId"]}"' in page
    assert client.get_hit(HITId=hit["HITId"])["HIT"]["Question"] == FORM


def test_its_answer_names_the_forms_questions_and_selections(crowd, client):
    """As MTurk wrote it, in the list and for the one assignment alike."""
    hit = post_hit(client, Question=FORM)
    crowd.worker().do(hit["HITTypeId"], q1="2", q2="<é>")

    [own] = client.list_assignments_for_hit(HITId=hit["HITId"])["Assignments"]
    found = client.get_assignment(AssignmentId=own["AssignmentId"])["Assignment"]["Answer"]

    assert (
        found
        == own["Answer"]
        == (
            f'<?xml version="1.0" encoding="ASCII"?><QuestionFormAnswers xmlns="{ANSWERS_NAMESPACE}">'
            "<Answer><QuestionIdentifier>fits</QuestionIdentifier><SelectionIdentifier>no_0</SelectionIdentifier></Answer>"
            "<Answer><QuestionIdentifier>why &amp; how</QuestionIdentifier><FreeText>&lt;&#233;&gt;</FreeText></Answer>"
            "</QuestionFormAnswers>"
        )
    )


def test_an_answer_longer_than_is_read_is_not_taken(crowd, client):
    """Written as XML it would be: the worker is told to shorten it, and the HIT's other answers can be listed."""
    hit = post_hit(client, Question=FORM, MaxAssignments=2)
    crowd.worker().do(hit["HITTypeId"], q2="<é>")
    task = crowd.worker().accept(hit["HITTypeId"])
    address = f"{crowd.url}/s/{task.token}/mturk/externalSubmit"

    refused = crowd.stranger.post(address, files={"q2": (None, "é" * 240_000)})

    assert refused.status_code == 413 and "too much to send" in refused.text
    assert client.list_assignments_for_hit(HITId=hit["HITId"])["NumResults"] == 1


def test_a_page_that_speaks_of_forms_is_no_form(crowd, client):
    """An HTML page with the schema's name in it keeps its own fields."""
    hit = post_hit(client, Question=question(HTML + f"<!-- {SPACE} -->"))
    crowd.worker().do(hit["HITTypeId"], p01_label="yes")

    [own] = client.list_assignments_for_hit(HITId=hit["HITId"])["Assignments"]
    assert "<QuestionIdentifier>p01_label</QuestionIdentifier><FreeText>yes</FreeText>" in own["Answer"]

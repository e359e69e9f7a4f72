"""The operator reads what workers sent and sees what they see, signed in and nobody else."""

from __future__ import annotations

import re

import httpx
import pytest
from axe_kit import violations
from crowd_kit import TYPE, post_hit, question
from crowd_operator_kit import operator_of
from form_kit import FORM

from mitl.crowd_server import admin
from mitl.records import Environment

pytest_plugins = ("crowd_fixtures", "browser_fixtures")

HOSTILE = '<script>alert(1)</script> & "quotes"\nline two 🐈'


def links(reply, start):
    """The addresses on a page that begin so, each once, in their order."""
    return list(dict.fromkeys(re.findall(rf'href="({re.escape(start)}[^"]*)"', reply.text)))


def test_answers_are_read_as_they_were_sent(crowd, client):
    """From the overview to the group, the HIT and its submission: every field by its name, escaped, in its order."""
    hit = post_hit(client, MaxAssignments=2)
    worker, operator = crowd.worker(), operator_of(crowd)
    worker.do(hit["HITTypeId"], **{"p01_label": "yes", "<b>odd": HOSTILE, "blank": ""})

    [group] = links(operator.get(), f"/operator/groups/{hit['HITTypeId']}")[:1]
    [page] = links(operator.get(group), "/operator/hits/")
    [address] = links(operator.get(page), "/operator/submissions/")
    read = operator.get(address).text

    rows = re.findall(r'class="field">(.*?)</th><td class="value">(.*?)</td>', read, re.DOTALL)
    assert rows == [
        ("p01_label", "yes"),
        ("&lt;b&gt;odd", "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &#34;quotes&#34;\nline two 🐈"),
        ("blank", '<span class="soft">empty</span>'),
    ]
    assert worker.id in read and "$1.00" in read and "Submitted" in read
    assert "assignmentId" not in read
    [own] = client.list_assignments_for_hit(HITId=hit["HITId"])["Assignments"]
    client.reject_assignment(AssignmentId=own["AssignmentId"], RequesterFeedback="<i>why</i>")
    assert "Rejected: &lt;i&gt;why&lt;/i&gt;" in operator.get(address).text


def test_answers_of_a_form_are_named_by_the_form(crowd, client):
    """As the requester reads them by the API, not by the places on the page."""
    hit = post_hit(client, Question=FORM)
    crowd.worker().do(hit["HITTypeId"], q1="2", q2="so")
    operator = operator_of(crowd)

    [address] = links(operator.get(f"/operator/hits/{hit['HITId']}"), "/operator/submissions/")

    assert re.findall(
        r'class="field">(.*?)</th><td class="value">(.*?)</td>', operator.get(address).text
    ) == [
        ("fits", "no_0"),
        ("why &amp; how", "so"),
    ]


def test_late_answers_are_read_too(crowd, client):
    """Whoever pays for them by hand sees what they are paying for."""
    hit = post_hit(client)
    task = crowd.worker().accept(hit["HITTypeId"])
    crowd.clock.advance(hours=2)
    assert task.submit(p01_label="no").status_code == 410
    operator = operator_of(crowd)

    [address] = links(operator.get("/operator/late"), "/operator/late/")
    read = operator.get(address).text

    assert '<td class="value">no</td>' in read and "came too late" in read
    assert links(operator.get("/operator/late"), "/operator/hits/") == [f"/operator/hits/{hit['HITId']}"]


def test_a_hit_is_seen_as_a_worker_sees_it_and_counted_as_nothing(crowd, client):
    """The same sandboxed frame as a worker's preview; the HIT stays available, and nobody holds it."""
    hit = post_hit(client)
    operator = operator_of(crowd)

    page = operator.get(f"/operator/hits/{hit['HITId']}")
    address = re.search(r'<iframe[^>]* sandbox="allow-scripts"[^>]* src="(/w/preview/[^"]+)"', page.text)[1]
    frame = httpx.get(crowd.url + address.replace("&amp;", "&"), trust_env=False)
    told = crowd.worker().get(f"/w/preview/{hit['HITId']}").text

    assert address in told
    assert "assignmentId=ASSIGNMENT_ID_NOT_AVAILABLE" in address and "workerId" not in address
    assert "form-action 'none'" in frame.headers["content-security-policy"]
    kept = client.get_hit(HITId=hit["HITId"])["HIT"]
    assert (kept["NumberOfAssignmentsAvailable"], kept["NumberOfAssignmentsPending"]) == (1, 0)
    assert operator.state()["sandbox.working"] == "0"


def test_a_groups_hits_come_by_portions(crowd, client):
    """25 to a page, deleted ones too, and each leads to its own page; of both environments."""
    hit_type = client.create_hit_type(**TYPE)["HITTypeId"]
    made = [post_hit(client, hit_type)["HITId"] for _ in range(26)]
    live = crowd.boto(Environment.LIVE)
    admin.set_budget(crowd.engine, Environment.LIVE, 1000, clock=crowd.clock)
    own = post_hit(live)
    operator = operator_of(crowd)

    first = operator.get(f"/operator/groups/{hit_type}")
    [following] = [link for link in links(first, f"/operator/groups/{hit_type}?") if "after" in link]
    second = operator.get(following)

    shown = [
        link.removeprefix("/operator/hits/")
        for page in (first, second)
        for link in links(page, "/operator/hits/")
    ]
    assert shown == made
    assert operator.get(f"/operator/hits/{own['HITId']}").status_code == 200


def test_only_a_signed_in_operator_reads_answers(crowd, client):
    """Others get the sign-in form, a worker too; what does not exist is said not to."""
    hit = post_hit(client)
    worker = crowd.worker()
    worker.do(hit["HITTypeId"])
    operator = operator_of(crowd)
    [address] = links(operator.get(f"/operator/hits/{hit['HITId']}"), "/operator/submissions/")
    pages = (
        f"/operator/groups/{hit['HITTypeId']}",
        f"/operator/hits/{hit['HITId']}",
        address,
        "/operator/late/1",
    )

    for path in pages:
        refused = worker.get(path)
        assert (
            refused.status_code,
            "Operator&#39;s token" in refused.text or "Operator" in refused.text,
        ) == (403, True)
        assert "p01_label" not in refused.text and hit["HITId"] not in refused.text
    operator.post("/operator/sign-out")
    assert operator.get(address).status_code == 403


def test_what_does_not_exist_is_not_found(either_crowd):
    """Numbers beyond any row and names of any characters, on both engines, by the operator and by a worker."""
    operator, worker = operator_of(either_crowd), either_crowd.worker()

    for name in ("9", "0", "9" * 30, "%00", "3NONE", "x%00y", "%F0%9F%90%88", "'", "%25"):
        for path in ("groups", "hits", "submissions", "late", "panels", "payments"):
            assert operator.get(f"/operator/{path}/{name}").status_code == 404, (path, name)
        for path in (f"invitations/{name}/revoke", f"groups/{name}/expire"):
            assert operator.get(f"/operator/{path}").status_code == 404, path
        for path in ("preview", "qualifications", "qualifications/requests", "a", "join"):
            assert worker.get(f"/w/{path}/{name}").status_code in (403, 404), (path, name)
        assert worker.get(f"/p/{name}").status_code in (400, 404), name
        for path in (
            f"w/a/{name}/return",
            f"w/qualifications/{name}/request",
            f"s/{name}/mturk/externalSubmit",
        ):
            assert worker.post(f"/{path}", {"a": "b"}).status_code in (403, 404), path
        accepted = worker.post("/w/accept", {"hit_type_id": httpx.URL(f"/{name}").path[1:]})
        assert accepted.status_code in (200, 404), name


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
@pytest.mark.thorough(but=("390-dark",))
def test_answers_and_previews_fit_and_are_accessible(crowd, client, new_page, width, scheme):
    """By keyboard from the overview to a submission; long words stay on the screen; axe finds no fault."""
    html = '<form data-mitl-submit><label>Words <input name="words"></label> <button>Send</button></form>'
    hit = post_hit(client, Question=question(html))
    worker = crowd.worker()
    worker.do(
        hit["HITTypeId"],
        **{"p01_label": "weak_yes", "long_" * 20: "word" * 400, "words": "several of them\n" * 5},
    )
    page = new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)

    page.goto(f"{crowd.url}/operator?token={admin.operator_token(crowd.engine)}")
    page.get_by_text("Does the caption fit?").first.focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Latest submissions").wait_for()
    page.wait_for_load_state()
    seen = [page.evaluate("document.documentElement.scrollWidth <= innerWidth"), violations(page)]
    page.get_by_role("link", name=hit["HITId"]).first.press("Enter")
    page.frame_locator("iframe").get_by_label("Words").wait_for()
    seen += [page.evaluate("document.documentElement.scrollWidth <= innerWidth"), violations(page)]
    page.get_by_role("link", name="Read").press("Enter")
    page.get_by_role("heading", name="Answers of").wait_for()
    page.wait_for_load_state()
    seen += [page.evaluate("document.documentElement.scrollWidth <= innerWidth"), violations(page)]

    assert seen == [True, []] * 3

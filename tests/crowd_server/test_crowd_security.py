"""Attacks on the crowd server, each tried over HTTP against the server as `mitl serve` runs it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from botocore.exceptions import ClientError
from crowd_kit import HTML, TYPE, engine_of, post_hit, question
from guarded_kit import TRUST, guarded_crowd

import mitl
from mitl.crowd_server import admin
from mitl.crowd_server.app import MODULES
from mitl.crowd_server.middleware.limits import Policy
from mitl.crowd_server.protocol.ids import seal
from mitl.protocol.answer_xml import answer_fields
from mitl.records import Environment

pytest_plugins = ("crowd_fixtures",)

SANDBOX = Environment.SANDBOX
HOSTILE = """</script></textarea><script>alert("x")</script><img src=x onerror=alert(1)>'"{{7*7}}=HYPERLINK("//e")"""
LAUGHS = (
    '<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "ha">'
    + "".join(
        f'<!ENTITY {name} "{f"&{before};" * 10}">'
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    + "]>"
)
OUTSIDE = '<!DOCTYPE q [<!ENTITY i SYSTEM "file:///etc/passwd">]>'
PARAMETER = '<!DOCTYPE q [<!ENTITY % p SYSTEM "http://127.0.0.1:9/x.dtd"> %p;]>'
ROUTES = [(path, methods or ["GET"]) for module in MODULES for path, _, *methods in module.ROUTES]
PAGES = [path for path, methods in ROUTES if "GET" in methods]
FORMS = [path for path, methods in ROUTES if "POST" in methods and not path.startswith("/s/")]


@pytest.fixture
def crowd(crowd_engine, tmp_path):
    """The guarded server over a folder of pictures with something private beside it."""
    public = tmp_path / "public"
    (public / "i").mkdir(parents=True)
    (public / "i" / "cat.png").write_bytes(b"\x89PNG\r\n\x1a\nrest")
    (tmp_path / "secret.png").write_bytes(b"\x89PNG\r\n\x1a\nprivate")
    with guarded_crowd(crowd_engine, public=public) as server:
        yield server


@pytest.fixture(scope="module")
def calm(crowd_template, tmp_path_factory):
    """The guarded server for attacks that change nothing, with a worker; its rates do not hold on this machine."""
    folder = tmp_path_factory.mktemp("calm")
    (folder / "public" / "i").mkdir(parents=True)
    (folder / "public" / "i" / "cat.png").write_bytes(b"\x89PNG\r\n\x1a\nrest")
    (folder / "secret.png").write_bytes(b"\x89PNG\r\n\x1a\nprivate")
    with (
        engine_of(crowd_template, folder) as engine,
        guarded_crowd(engine, Policy(), folder / "public") as server,
    ):
        yield server


@pytest.fixture(scope="module")
def insider(calm):
    """A worker of that server, whose browser attackers try to use."""
    return calm.worker()


def filled(path):
    """A route's path with something in its places."""
    return re.sub(r"\{\w+\}", "x", path)


def raw(crowd, target, **headers):
    """A GET whose target goes over the wire as it is written."""
    url = httpx.URL(crowd.url).copy_with(raw_path=target.encode())
    return httpx.get(url, headers=headers, trust_env=False, verify=TRUST)


@pytest.mark.parametrize(
    "target",
    [
        "/i/../secret.png",
        "/i/..%2fsecret.png",
        "/i/%2e%2e%2fsecret.png",
        "/i/..%5csecret.png",
        "/i/i%2f..%2f..%2fsecret.png",
        "/i//etc/passwd",
        "/i/%2fetc%2fpasswd",
        "/i/secret.png%00.jpg",
        "/i/cat.png/../../secret.png",
        "/i/.hidden.png",
        "/w/static/../site.py",
        "/w/static/..%2f..%2fsite.py",
        "/w/static/base.html.j2",
    ],
)
def test_no_path_leads_out_of_a_folder(calm, target):
    """Whatever the spelling, there is no such file."""
    reply = raw(calm, target)

    assert reply.status_code == 404
    assert b"private" not in reply.content and b"import" not in reply.content


def test_links_and_files_that_are_no_pictures_are_not_served(crowd, tmp_path):
    """A link out of the folder, a folder, a pipe's name, HTML under a picture's name: not found."""
    folder = tmp_path / "public" / "i"
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "folder.png").mkdir()
    (folder / "page.png").write_text("<script>alert(1)</script>")
    (folder / "vector.png").write_text('<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>')
    (folder / "empty.png").touch()

    found = {path.name: raw(crowd, f"/i/{path.name}").status_code for path in folder.iterdir()}

    assert found.pop("cat.png") == 200
    assert set(found.values()) == {404} and len(found) == 5


def test_a_picture_is_of_the_type_that_its_bytes_are(crowd, tmp_path):
    """A GIF named .png is a GIF, browsers may not guess, and a copy that is still good is not sent again."""
    (tmp_path / "public" / "odd.png").write_bytes(b"GIF89a....")

    reply = raw(crowd, "/i/odd.png")
    again = raw(crowd, "/i/odd.png", **{"If-None-Match": reply.headers["ETag"]})

    assert reply.headers["Content-Type"] == "image/gif"
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("name", ["style.css", "frame.js"])
def test_scripts_and_styles_are_sent_when_they_changed(crowd, name):
    """A browser asks for them with each page; frames have no origin, so what it keeps stays open to them."""
    reply = raw(crowd, f"/w/static/{name}")
    again = raw(crowd, f"/w/static/{name}", **{"If-None-Match": reply.headers["ETag"]})
    older = raw(crowd, f"/w/static/{name}", **{"If-None-Match": '"of-another-version"'})

    assert reply.content == older.content != b""
    assert (again.status_code, again.content) == (304, b"")
    for header in ("Access-Control-Allow-Origin", "Cache-Control", "ETag", "X-Content-Type-Options"):
        assert again.headers[header] == reply.headers[header]


@pytest.mark.parametrize("declared", [LAUGHS, OUTSIDE, PARAMETER], ids=["laughs", "file", "parameter"])
@pytest.mark.parametrize("kind", ["question", "test", "key"])
def test_entities_in_xml_are_refused(crowd, declared, kind):
    """Billion laughs, a local file, a remote definition: in a HIT's question, a qualification's test and its key."""
    client = crowd.boto()
    entity = "&i;"
    with pytest.raises(ClientError) as caught:
        if kind == "question":
            client.create_hit(
                **TYPE,
                LifetimeInSeconds=600,
                Question=declared + question().replace("<label>", f"{entity}<label>"),
            )
        else:
            schema = (
                "http://mechanicalturk.amazonaws.com/AWSMechanicalTurkDataSchemas/2017-11-06/QuestionForm.xsd"
            )
            test = (
                f'<QuestionForm xmlns="{schema}"><Question><QuestionIdentifier>q</QuestionIdentifier>'
                f"<QuestionContent><Text>{entity if kind == 'test' else 'text'}</Text></QuestionContent>"
                "<AnswerSpecification><FreeTextAnswer/></AnswerSpecification></Question></QuestionForm>"
            )
            texts = (
                {"Test": declared + test}
                if kind == "test"
                else {"Test": test, "AnswerKey": declared + "<AnswerKey/>"}
            )
            client.create_qualification_type(
                Name="n", Description="d", QualificationTypeStatus="Active", TestDurationInSeconds=60, **texts
            )

    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert "XMLParseError" in caught.value.response["TurkErrorCode"]
    assert re.search("DTD|document type", str(caught.value)) and "root:" not in str(caught.value)
    assert client.list_hits()["NumResults"] == 0


def test_entities_in_an_answer_are_text(crowd):
    """A worker's field is escaped into the answer document and comes back as it was typed."""
    client = crowd.boto()
    hit = post_hit(client)
    crowd.worker().do(hit["HITTypeId"], p01_text=LAUGHS + "&i; ]]> <FreeText>x</FreeText>")

    [own] = client.list_assignments_for_hit(HITId=hit["HITId"])["Assignments"]
    assert answer_fields(own["Answer"]) == [("p01_text", LAUGHS + "&i; ]]> <FreeText>x</FreeText>")]


def test_there_are_forms_to_attack():
    """The next test is about something."""
    assert {"/w/accept", "/w/a/{token}/return"} <= set(FORMS)


@pytest.mark.parametrize("path", FORMS)
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1.evil.example"},
        {"Origin": "http://["},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=lambda headers: " ".join(headers.values()),
)
def test_a_form_of_another_site_does_nothing(calm, insider, path, headers):
    """With the worker's own cookies, which the browser would send along."""
    reply = insider.browser.post(calm.url + filled(path), data={"x": "y"}, headers=headers)

    assert reply.status_code == 403
    assert "Another site sent this form" in reply.text


def at(path, *places):
    """A page's addresses with these at its open place; a page without one has one address."""
    return dict.fromkeys(re.sub(r"\{\w+(:row)?\}", place, path) for place in places)


@pytest.mark.parametrize("path", PAGES)
def test_no_page_leads_to_another_site(calm, insider, path):
    """Addresses in a query, in a path or in a header never become the target of a redirect."""
    evil = "https://evil.example/"
    names = ("next", "url", "to", "return", "redirect", "turkSubmitTo", "token", "notice", "cc", "back")
    browser = httpx.Client(cookies=insider.browser.cookies, trust_env=False, verify=TRUST)
    with browser:
        for address in at(path, "x", "%2F%2Fevil.example", "%0d%0aLocation:%20https:%2F%2Fevil.example"):
            headers = {"Referer": evil, "X-Forwarded-Host": "evil.example", "X-Original-URL": evil}
            reply = browser.get(calm.url + address, params=dict.fromkeys(names, evil), headers=headers)
            target = urlsplit(reply.headers.get("Location", "/"))
            assert (target.netloc, target.path[:2] != "//") in (
                ("", True),
                (urlsplit(calm.url).netloc, True),
            )
            assert "evil.example" not in reply.headers.get("Location", "")
            assert reply.status_code < 500


@pytest.mark.parametrize("path", PAGES)
def test_no_page_fails_at_hostile_input(calm, path):
    """Odd bytes in the path, the query and the cookies get a page, not a failure."""
    odd = (
        "%00",
        "%ff",
        "%F0%9F%90%88",
        "A" * 3000,
        "-1",
        "1.2",
        "%3Cscript%3Ealert(1)%3C/script%3E",
        "9" * 5000,
    )
    for address in at(path, *odd):
        reply = raw(calm, address + "?a=%ff&b=%00&token=%00", Cookie="mitl_worker=%ff; mitl_operator=.")
        assert reply.status_code < 500
        assert "<script>alert" not in reply.text


def test_a_forged_or_borrowed_token_opens_nothing(crowd):
    """Another worker's token, another secret's, a changed number, another purpose: not known here."""
    client = crowd.boto()
    hit = post_hit(client, MaxAssignments=2)
    own, other = crowd.worker(), crowd.worker()
    task = own.accept(hit["HITTypeId"])
    value, _, mac = task.token.rpartition(".")
    number, _, rest = value.partition("-")
    forged = [
        seal("another secret", "assignment", value),
        f"{int(number) + 1}-{rest}.{mac}",
        f"{value}.{'0' * 40}",
        seal("", "assignment", value),
        value,
    ]

    assert other.get(f"/w/a/{task.token}").status_code == 404
    for token in forged:
        assert own.get(f"/w/a/{token}").status_code == 404
        assert own.get(f"/w/a/{token}/frame").status_code == 404
        sent = httpx.post(
            f"{crowd.url}/s/{token}/mturk/externalSubmit",
            data={"p01_label": "yes"},
            trust_env=False,
            verify=TRUST,
        )
        assert sent.status_code == 404
    assert client.list_assignments_for_hit(HITId=hit["HITId"])["NumResults"] == 0


@pytest.mark.parametrize("value", ["A1234567890123", "A1234567890123." + "0" * 40, ".", "", "x" * 5000])
def test_a_forged_session_is_nobody(calm, value):
    """A cookie that this server did not seal opens no page."""
    reply = httpx.get(
        calm.url + "/w",
        headers={"Cookie": f"mitl_worker={value}; mitl_operator={value}"},
        trust_env=False,
        verify=TRUST,
    )
    operator = httpx.get(
        calm.url + "/operator", headers={"Cookie": f"mitl_operator={value}"}, trust_env=False, verify=TRUST
    )

    assert reply.status_code == 403
    assert operator.status_code == 403 and "budget" not in operator.text.lower()


def test_a_seal_is_good_for_its_purpose_alone(crowd_engine, crowd):
    """A worker's cookie is not an operator's, a preview's token no assignment's."""
    client = crowd.boto()
    post_hit(client)
    worker = crowd.worker()
    cookie = next(iter(worker.browser.cookies.jar)).value
    text = worker.get("/w").text
    preview = worker.get(re.search(r'href="(/w/preview/[^"]+)"', text)[1]).text
    token = re.search(r"/w/preview/([^/\"]+)/frame", preview)[1]

    operator = httpx.get(
        crowd.url + "/operator", headers={"Cookie": f"mitl_operator={cookie}"}, trust_env=False, verify=TRUST
    )
    assert operator.status_code == 403
    assert worker.get(f"/w/a/{token}").status_code == 404


def test_cookies_are_out_of_reach_of_scripts_and_other_sites(crowd):
    """HttpOnly, SameSite and a path of their own; Secure is added over https."""
    [invitation] = admin.invite(crowd.engine, SANDBOX, clock=crowd.clock)
    replies = [
        httpx.get(crowd.url + invitation.path, trust_env=False, verify=TRUST),
        httpx.get(
            f"{crowd.url}/operator",
            params={"token": admin.operator_token(crowd.engine)},
            trust_env=False,
            verify=TRUST,
        ),
    ]

    for reply in replies:
        for cookie in reply.headers.get_list("set-cookie"):
            flags = cookie.lower()
            assert "httponly" in flags and "samesite=" in flags and "path=/" in flags
            assert "domain=" not in flags


def test_hostile_words_are_text_on_every_page(crowd):
    """Titles and descriptions of HITs, labels of invitations, answers: escaped wherever they are shown."""
    client = crowd.boto()
    hostile = HOSTILE[:120]
    hit_type = client.create_hit_type(**TYPE | {"Title": hostile, "Description": hostile, "Keywords": "a"})[
        "HITTypeId"
    ]
    post_hit(client, hit_type)
    admin.invite(crowd.engine, SANDBOX, label=HOSTILE, clock=crowd.clock)
    worker = crowd.worker()
    listing = worker.get("/w")
    preview = worker.get(re.search(r'href="(/w/preview/[^"]+)"', listing.text)[1])
    around = worker.post("/w/accept", {"hit_type_id": hit_type})
    browser = crowd.browser()
    operator = browser.get(f"{crowd.url}/operator", params={"token": admin.operator_token(crowd.engine)})

    for reply in (listing, preview, around, operator):
        assert reply.status_code == 200
        assert "<script>alert" not in reply.text and "<img src=x" not in reply.text and reply.text != "49"
        policy = reply.headers["Content-Security-Policy"]
        assert "script-src 'self'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy


def test_a_hit_runs_in_a_place_of_its_own(crowd):
    """The requester's page is sandboxed into an opaque origin and may post to this server alone."""
    client = crowd.boto()
    hit = post_hit(
        client, Question=question(HTML.replace("<body>", "<body><script>parent.document.cookie</script>"))
    )
    frame = crowd.worker().accept(hit["HITTypeId"]).page()

    policy = frame.headers["Content-Security-Policy"]
    sandbox = re.search(r"sandbox([^;]*)", policy)[1]
    assert (
        "allow-same-origin" not in sandbox
        and "allow-top-navigation" not in sandbox
        and "allow-popups" not in sandbox
    )
    assert f"form-action {crowd.url};" in policy
    assert f"frame-ancestors {crowd.url};" in policy
    assert "default-src 'none'" in policy


def test_a_response_cannot_be_split(calm):
    """Line ends in a path do not become headers."""
    reply = raw(calm, "/w/join/x%0d%0aSet-Cookie:%20a=b%0d%0a")

    assert reply.status_code == 404
    assert "set-cookie" not in reply.headers


@pytest.mark.parametrize(
    "body", [b"{", b"[1]", b"null", b"\xff\xfe", b'{"a":' * 5000, b"1e999999", b'{"MaxResults": NaN}']
)
def test_malformed_json_gets_amazons_error(calm, body):
    """A signed call with a body that is not a JSON object; nothing but the error's shape comes back."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    keys = admin.keys(calm.engine)[SANDBOX]
    request = AWSRequest(
        "POST",
        calm.url + "/",
        data=body,
        headers={
            "X-Amz-Target": "MTurkRequesterServiceV20170117.ListHITs",
            "Content-Type": "application/x-amz-json-1.1",
        },
    )
    SigV4Auth(Credentials(*keys), "mturk-requester", "us-east-1").add_auth(request)
    reply = httpx.post(
        calm.url + "/", content=body, headers=dict(request.headers), trust_env=False, verify=TRUST
    )

    assert reply.status_code == 400
    assert set(reply.json()) <= {"__type", "message", "Message", "TurkErrorCode"}


def test_only_defusedxml_reads_xml():
    """No module on the way of foreign XML takes a parser from the standard library."""
    parsers = {"fromstring", "parse", "iterparse", "XML", "XMLParser", "ElementTree"}
    found = []
    for folder in ("crowd", "crowd_server"):
        for path in (Path(mitl.__file__).parent / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    found += [
                        (path.name, one.name)
                        for one in node.names
                        if one.name.split(".")[0] in ("xml", "lxml")
                    ]
                elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in (
                    "xml",
                    "lxml",
                ):
                    found += [(path.name, one.name) for one in node.names if one.name in parsers]

    assert found == []

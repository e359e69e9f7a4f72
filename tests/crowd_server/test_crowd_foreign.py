"""Pages written for Mechanical Turk: refused when posted where no worker could do them, bound when shown."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys

import httpx
import pytest
from cli_kit import fails
from crowd_kit import Crowd, ManualClock, post_hit, question, refusal
from foreign_kit import (
    AMTI,
    BOOTSTRAP,
    CROWD,
    ELEMENTS,
    HELPER,
    JQUERY,
    JQUERY_PAGE,
    SAMPLE,
    open_crowd,
    vendor,
)

from mitl.crowd_server.protocol.html_page import CROWD_ELEMENTS, AllowedSources, bind, why_unfit

pytest_plugins = ("crowd_fixtures",)

NONE = AllowedSources()
FORM = "<form action=/mturk/externalSubmit><input name=q></form>"


def post(client, page):
    """Try to post a page; the code and the message of the refusal."""
    own = client.create_hit_type(
        Title="T", Description="D", Reward="0.10", AssignmentDurationInSeconds=600, Keywords="k"
    )["HITTypeId"]
    return refusal(
        client.create_hit_with_hit_type, HITTypeId=own, LifetimeInSeconds=600, Question=question(page)
    )


def test_blocked_scripts_and_styles_are_named_when_the_hit_is_posted(shared_crowd):
    """Each address with its kind, and what its requester or the operator can do; nothing is posted."""
    client = shared_crowd.boto()
    page = f'<link rel=stylesheet href="{BOOTSTRAP}"><style>@import url("//f.example/a.css");</style>{JQUERY_PAGE}'

    code, message = post(client, page)

    assert code == "InvalidParameterValue"
    for named in (f"{JQUERY} (script)", f"{BOOTSTRAP} (style)", "//f.example/a.css (style)"):
        assert named in message
    assert (
        "--allow-host cdn.jsdelivr.net --allow-host code.jquery.com --allow-host f.example" in message
        and "--vendored FOLDER" in message
    )
    assert client.list_hits()["HITs"] == []


@pytest.mark.parametrize(
    ("page", "told"),
    [
        ('<script src="js/app.js"></script>', "js/app.js (script); write it into the page"),
        ('<script src="data:text/javascript,1"></script>', "data:text/javascript,1 (script)"),
        ("<SCRIPT async SRC = 'https://a.example/x.js' ></SCRIPT>", "https://a.example/x.js (script)"),
        (
            "<script src=https://assets.crowd.aws/crowd-html-elements-v2.js></script>",
            "elements-v2.js (script)",
        ),
        ("<script src=https://evil.example/crowd-html-elements.js></script>", "evil.example"),
        (
            "<crowd-form><crowd-bounding-box name=b></crowd-bounding-box></crowd-form>",
            "uses crowd-bounding-box, which",
        ),
        (
            "<crowd-form><crowd-card></crowd-card><crowd-alert></crowd-alert></crowd-form>",
            "crowd-alert, crowd-card,",
        ),
        (
            "<crowd-form><crowd-image-classifier overlay='{}'></crowd-form>",
            "crowd-image-classifier with an overlay",
        ),
        ("<crowd-form><crowd-input name=a type=file></crowd-form>", 'crowd-input of type "file"'),
        (
            "<form action=https://a.example/save><input name=q></form>",
            "its forms send to https://a.example/save",
        ),
        ("<textarea name=q></textarea>", "its fields are in no form"),
        (
            f"<script src={ELEMENTS}></script><crowd-input name=q></crowd-input>",
            "crowd-input outside any form",
        ),
        ("<form></form><crowd-slider name=q></crowd-slider>", "crowd-slider outside any form"),
        ("<form><input type=file name=cat></form><script>go()</script>", 'files (input of type "file": cat)'),
        ("<form id=f></form><input type=FILE name=cat form=f>", 'files (input of type "file": cat)'),
        ("<crowd-form><input type=file name=cat></crowd-form>", 'files (input of type "file": cat)'),
        (
            "<script type=module>\nimport {\n a\n} from 'https://a.example/a.js'; import \"//b.example/b.js\"</script>",
            "https://a.example/a.js (script), //b.example/b.js (script)",
        ),
        ("<style>@import'https://a.example/a.css'</style>", "https://a.example/a.css (style)"),
    ],
)
def test_what_no_worker_could_do_is_said_in_one_line(page, told):
    """Of a script, an element, a form: what it is, and what would do instead."""
    is_whole = any(word in page for word in ("form", "textarea", "<crowd-input"))
    reason = why_unfit(page if is_whole else page + FORM, NONE)

    assert reason is not None and told in reason and "\n" not in reason


def test_unknown_elements_are_answered_with_those_that_are_known(shared_crowd):
    """The message lists every element that this server has."""
    _, message = post(shared_crowd.boto(), "<crowd-form><crowd-keypoint></crowd-keypoint></crowd-form>")

    assert all(name in message for name in ("crowd-keypoint", *CROWD_ELEMENTS))


@pytest.mark.parametrize(
    "page",
    [
        AMTI,
        SAMPLE,
        CROWD,
        FORM,
        f"<!-- <script src={JQUERY}></script> -->{FORM}",
        f"<script>const text = '<script src=\"{JQUERY}\">';</script>{FORM}",
        f"<textarea><link rel=stylesheet href={BOOTSTRAP}></textarea>{FORM}",
        f'<link rel="preconnect" href="https://a.example"><link rel="icon" href="https://a.example/i.ico">{FORM}',
        "<form action=https://a.example/><input></form><script>document.forms[0].action = next</script>",
        "<p>Nothing to fill in.</p>",
        f'<script src=""></script><link rel=stylesheet href=" "><link rel=stylesheet>{FORM}',
        f"<noscript><link rel=stylesheet href={BOOTSTRAP}><crowd-card></crowd-card></noscript>{FORM}",
        f"<script type=application/json src={JQUERY}></script><script type=text/template src=a></script>{FORM}",
        f"<script nomodule src={JQUERY}></script><script type=text/x-data>import 'https://a.example'</script>{FORM}",
        f"<template><template></template><script src={JQUERY}></script><crowd-card></template>{FORM}",
        f"<input type=file name=q><form action=search><input type=file name=q></form>{FORM}",
        "<form><crowd-input name=q></crowd-input></form>",
        "<div id=all><crowd-input name=q></crowd-input></div><script>wrap(all)</script>",
        f"<script type=module>import a from './a.js'; // import b from 'https://b.example/'\n</script>{FORM}",
    ],
)
def test_what_a_worker_can_do_is_taken(page):
    """Comments, texts and links that load nothing are no reason; nor is what a script may still do."""
    assert why_unfit(page, NONE) is None


@pytest.mark.parametrize(
    "text", ['<a a="', "<!--", "<a ", "<a\n", "<a b='x\" ", "<", "<a a =", "<script ", "@import ", "<link x"]
)
@pytest.mark.timeout(20)
def test_no_page_keeps_the_server_busy(text):
    """65,535 bytes of what a parser may trip over are read at once."""
    page = (text * 65_535)[:65_000]

    why_unfit(page, NONE)
    assert bind(page, "/s", "A", NONE).endswith(page[-100:])


def test_allowed_hosts_and_copies_are_taken_and_the_policy_names_them_alone(crowd_engine, tmp_path):
    """The copy goes before the host; http and no scheme become https; only what is a copy loses its sum."""
    vendor(tmp_path / "own", JQUERY, b"copy()")
    page = "<script src=//a.example/x.js?v=1 integrity=sha256-x crossorigin></script>" + JQUERY_PAGE.replace(
        f'src="{JQUERY}"', f'src="{JQUERY}" integrity="sha256-y" crossorigin="anonymous"'
    )
    assert "sha256-y" in page
    with open_crowd(crowd_engine, AllowedSources(("a.example",), tmp_path / "own")) as crowd:
        hit = post_hit(crowd.boto(), Question=question(page))
        reply = crowd.worker().accept(hit["HITTypeId"]).page()
        copy = httpx.get(f"{crowd.url}/w/vendored/code.jquery.com/jquery-3.6.0.min.js", trust_env=False)

    assert (
        '<script src="https://a.example/x.js?v=1" integrity="sha256-x" crossorigin=""></script>' in reply.text
    )
    assert '<script src="/w/vendored/code.jquery.com/jquery-3.6.0.min.js"></script>' in reply.text
    policy = dict(part.strip().split(" ", 1) for part in reply.headers["content-security-policy"].split(";"))
    own = f"{crowd.url}/w/static/"
    remote = f"https://a.example {crowd.url}/w/vendored/"
    assert policy["script-src"] == (
        f"'unsafe-inline' {own}frame.js {own}externalHIT_v1.js {own}crowd-html-elements.js {remote}"
    )
    assert (policy["style-src"], policy["font-src"]) == (f"'unsafe-inline' {remote}", remote)
    assert (policy["default-src"], policy["sandbox"]) == ("'none'", "allow-scripts allow-forms")
    assert (copy.text, copy.headers["content-type"]) == ("copy()", "text/javascript; charset=utf-8")
    assert copy.headers["content-security-policy"].endswith("; sandbox")


def test_a_page_of_ours_keeps_its_policy_to_the_letter(crowd):
    """Where nothing is allowed, a page with our own marks runs what it always ran."""
    task = crowd.worker().accept(post_hit(crowd.boto())["HITTypeId"])

    reply = task.page()

    assert "script-src 'unsafe-inline'; form-action" in reply.headers["content-security-policy"]
    assert "font-src" not in reply.headers["content-security-policy"]
    assert "frame.js" not in reply.text


def test_no_path_leaves_the_folder_of_copies(crowd_engine, tmp_path):
    """Neither by dots, escapes, links, hidden names nor other kinds of files."""
    own = tmp_path / "own"
    vendor(own, "https://a.example/x.js", b"x")
    vendor(own, "https://a.example/secret.txt", b"x")
    vendor(own, "https://a.example/.x.js", b"x")
    (tmp_path / "outside.js").write_text("x")
    (own / "a.example" / "circle.js").symlink_to("circle.js")
    assert AllowedSources((), own).answer(f"https://a.example/{'x' * 300}.js") is None
    (own / "a.example" / "link.js").symlink_to(tmp_path / "outside.js")
    with open_crowd(crowd_engine, AllowedSources((), own)) as crowd, httpx.Client(trust_env=False) as browser:
        address = f"{crowd.url}/w/vendored/"
        assert browser.get(f"{address}a.example/x.js").status_code == 200
        for path in (
            "../outside.js",
            "%2e%2e/outside.js",
            "a.example/%2e%2e/%2e%2e/outside.js",
            "a.example%2f..%2f..%2foutside.js",
            "a.example/link.js",
            "a.example/.x.js",
            "a.example/secret.txt",
            "a.example",
            "a.example/x.js%00.js",
            f"a.example/{'x' * 300}.js",
            f"{'a.example/' * 500}x.js",
            "a.example/circle.js",
            "",
        ):
            assert browser.get(address + path).status_code == 404, path


def test_binding_changes_what_it_must_and_nothing_else():
    """The rest of the page stays as it was, odd markup included; nothing a requester wrote can break out."""
    page = (
        "<!doctype html><HTML><head><title>a < b</title></head><body class=x data-y='\"'>"
        f"<!-- <form action=externalSubmit> --><script src={HELPER}></script><img src=a>"
        "<form ACTION='https://www.mturk.com/mturk/externalSubmit' target=_top onsubmit='return ok(\"&amp;\")'>"
        "<input name=assignmentId value=${x}><form action=search method=get></form></body></html>"
    )

    bound = bind(page, "http://h/s/T?a=1&b=2", 'A"1', NONE)

    assert bound == (
        '<!doctype html><HTML><head><script src="/w/static/frame.js" data-submit="http://h/s/T?a=1&amp;b=2" '
        'data-assignment="A&quot;1"></script><title>a < b</title></head><body class=x data-y=\'"\'>'
        '<!-- <form action=externalSubmit> --><script src="/w/static/externalHIT_v1.js"></script><img src=a>'
        '<form action="http://h/s/T?a=1&amp;b=2" onsubmit="return ok(&quot;&amp;&quot;)" method="post">'
        '<input name="assignmentId" value="A&quot;1"><form action=search method=get></form></body></html>'
    )


@pytest.mark.parametrize(
    "address",
    [
        HELPER,
        HELPER.replace("https:", "http:"),
        "//mturk-public.s3.amazonaws.com/externalHIT_v1.js",
        "https://mturk-public.s3.us-east-1.amazonaws.com/externalHIT_v1.js?x",
        "/mturk-public/externalHIT_v1.js",
        "externalHIT_v1.js",
    ],
)
def test_every_usual_address_of_the_helper_is_answered(address):
    """By the server's own file."""
    assert NONE.answer(address) == "/w/static/externalHIT_v1.js"


def test_imports_are_answered_as_what_they_load(tmp_path):
    """Of styles and of modules: copies and allowed hosts get their address, the rest of the text stays."""
    vendor(tmp_path, "https://f.example/a.css", b"")
    vendor(tmp_path, "https://f.example/a.js", b"")
    page = (
        "<style>@import url( 'http://f.example/a.css' ) print;@import \"//h.example/b.css\"; b { color: red }</style>"
        "<script type=module>import a, {b} from 'https://f.example/a.js'\nexport * from \"http://h.example/b.js?c\"</script>"
        "<p>@import url(//f.example/a.css)</p><form></form>"
    )
    sources = AllowedSources(("h.example",), tmp_path)

    bound = bind(page, "/s", "A", sources)

    assert why_unfit(page, sources) is None
    assert (
        "<style>@import url( '/w/vendored/f.example/a.css' ) print;@import \"https://h.example/b.css\"; b {"
        in bound
    )
    assert "from '/w/vendored/f.example/a.js'\nexport * from \"https://h.example/b.js?c\"</script>" in bound
    assert "<p>@import url(//f.example/a.css)</p>" in bound


def test_a_declarative_shadow_is_no_inert_template():
    """What a browser makes of it at once is looked at as the rest of the page."""
    page = f"<div><template shadowrootmode=open><script src={JQUERY}></script></template></div>{FORM}"

    assert JQUERY in (why_unfit(page, NONE) or "")


def test_the_policy_of_a_marked_page_names_what_it_loads_from_here():
    """Our own marks keep their forms; the helper and the crowd elements run all the same."""
    marked = "<form data-mitl-submit method=post><crowd-input name=q></crowd-input></form>"
    home = "http://h"

    bound = bind(marked, "/s", "A", NONE)
    helped = bind(f"<script src={HELPER}></script>{marked}", "/s", "A", NONE)

    assert bound == f'<script src="/w/static/crowd-html-elements.js"></script>{marked}'
    assert NONE.policy(home, bound)[0] == f" {home}/w/static/crowd-html-elements.js"
    assert NONE.policy(home, helped)[0] == (
        f" {home}/w/static/externalHIT_v1.js {home}/w/static/crowd-html-elements.js"
    )


def test_the_elements_come_along_where_a_page_forgot_them():
    """Once, and not where the page names them itself."""
    assert bind("<crowd-form></crowd-form>", "/s", "A", NONE).count("/w/static/crowd-html-elements.js") == 1
    page = f"<script src={ELEMENTS}></script><crowd-form></crowd-form>"
    assert bind(page, "/s", "A", NONE).count("/w/static/crowd-html-elements.js") == 1


@pytest.mark.parametrize(
    "host", ["https://cdn.jsdelivr.net", "cdn.jsdelivr.net/npm", "*.example", "a b", "a;b", ""]
)
def test_a_host_is_a_bare_name(host, tmp_path):
    """Anything else is refused in one line before the server begins."""
    told = fails(2, "serve", "--project", tmp_path, "--port", "0", "--allow-host", host)

    assert told.startswith(f"--allow-host is {host!r}; give a bare host name")
    assert list(tmp_path.iterdir()) == []


def test_serve_takes_hosts_and_the_projects_own_copies(tmp_path, crowd_engine, start_program):
    """``--allow-host`` and ``PROJECT/vendored`` reach CreateHIT and the pages; other hosts stay refused."""
    vendor(tmp_path / "vendored", JQUERY, b"copy()")
    words = ("serve", "--port", "0", "--json", "--project", str(tmp_path), "--allow-host", "A.example")
    words += ("--crowd-db", str(crowd_engine.url))
    process = start_program([sys.executable, "-m", "mitl", *words], stdout=subprocess.PIPE, text=True)
    url = json.loads(process.stdout.readline())["counts"]["url"]
    with contextlib.ExitStack() as stack:
        crowd = Crowd(url, crowd_engine, ManualClock(), stack)
        client = crowd.boto()
        page = f"<script src=https://a.example/x.js></script>{JQUERY_PAGE}"
        hit = post_hit(client, Question=question(page))
        shown = crowd.worker().accept(hit["HITTypeId"]).page()
        _, told = post(client, page.replace("a.example", "b.example"))

    assert "https://a.example http://" in shown.headers["content-security-policy"]
    assert "/w/vendored/code.jquery.com/" in shown.text
    assert "https://b.example/x.js (script)" in told and JQUERY not in told

"""A real browser and the server as `mitl serve` opens it to a network: TLS, limits, strict headers, pictures."""

from __future__ import annotations

import io
import shutil
import subprocess

import pytest
from crowd_kit import Crowd, post_hit
from guarded_kit import guarded_crowd

from mitl.crowd_server import admin
from mitl.crowd_server.middleware.exposure import Tls, plan
from mitl.hits.rendering import PagePair, question_xml, render_page
from mitl.hits.templates import load_template
from mitl.records import Environment

pytest_plugins = ("browser_fixtures", "crowd_fixtures")
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser(isolating_browser):
    """As people have it."""
    return isolating_browser


@pytest.fixture
def window(new_page):
    """A window of Debian's Chromium that takes a certificate of our own, and what went wrong in it."""
    page = new_page(ignore_https_errors=True)
    faults: list[str] = []
    page.on("requestfailed", lambda request: faults.append(f"{request.url}: {request.failure}"))
    page.on(
        "response",
        lambda reply: faults.append(f"{reply.status} {reply.url}") if reply.status >= 400 else None,
    )
    return page, faults


@pytest.fixture
def crowd(crowd_engine, tmp_path):
    """The server over TLS, reached by the address of this machine, with pictures of its own."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes a certificate for the test, is missing")
    from PIL import Image

    public = tmp_path / "public" / "i"
    public.mkdir(parents=True)
    picture = io.BytesIO()
    Image.new("RGB", (64, 48), "teal").save(picture, "PNG")
    (public / "teal.png").write_bytes(picture.getvalue())
    tls = Tls(tmp_path / "cert.pem", tmp_path / "key.pem")
    words = f"req -x509 -newkey rsa:2048 -nodes -keyout {tls.key} -out {tls.certificate} -days 1 -subj /CN=localhost"
    subprocess.run(["openssl", *words.split()], check=True, capture_output=True)
    policy = plan("127.0.0.1", tls_cert=tls.certificate, tls_key=tls.key).policy
    with guarded_crowd(crowd_engine, policy, public.parent, exempt_loopback=False, tls=tls) as server:
        yield server


def posted(crowd: Crowd) -> str:
    """The id of a HIT of two pairs whose picture is the server's own."""
    html = render_page(
        load_template("pairs-plain"), [PagePair(place, "/i/teal.png", "A wall.") for place in (1, 2)]
    )
    client = crowd.boto(verify=False)
    found: str = post_hit(client, Question=question_xml(html))["HITId"]
    return found


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
@pytest.mark.thorough
def test_people_notice_nothing_of_the_defences(crowd, window):
    """Join, accept, look at the pictures, answer, submit; then the operator signs in: no error anywhere."""
    page, faults = window
    hit = posted(crowd)
    [link] = admin.invite(crowd.engine, Environment.SANDBOX, clock=crowd.clock)

    page.goto(crowd.url + link.path)
    page.get_by_role("button", name="Accept").first.click()
    page.wait_for_load_state()
    frame = page.frame_locator("#hit")
    for place in (1, 2):
        frame.locator(f"[name=p0{place}_label][value=yes]").check()
    pictures = frame.locator("img[src='/i/teal.png']")
    assert {pictures.nth(number).evaluate("image => image.naturalWidth") for number in range(2)} == {64}
    frame.locator("#send").click()
    page.get_by_role("heading", name="Submitted. Thank you!").wait_for()
    page.wait_for_load_state()
    cookies = page.context.cookies()
    page.goto(f"{crowd.url}/operator?token={admin.operator_token(crowd.engine)}")
    page.get_by_role("heading").first.wait_for()

    assert crowd.boto(verify=False).list_assignments_for_hit(HITId=hit)["NumResults"] == 1
    assert cookies and all(cookie["secure"] and cookie["httpOnly"] for cookie in cookies)
    assert page.url.startswith(crowd.url + "/operator") and "token" not in page.url
    assert faults == []

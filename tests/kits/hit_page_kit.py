"""A small web server that shows HIT pages as a host would, and keeps what is posted to it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

from mitl.crowd.answers import parse_answers
from mitl.hits.rendering import PagePair, render_page
from mitl.hits.templates import load_template
from mitl.protocol.answer_xml import answers_xml
from mitl.records import Label, Outcome
from mitl.records.answers import PlaceAnswer
from mitl.records.questions import Question


class Server(ThreadingHTTPServer):
    """Takes all of a page's requests at once."""

    request_queue_size = 128


class Site:
    """Pages by path, images that load, images that do not, and every form posted."""

    def __init__(self, picture: bytes) -> None:
        self.pages: dict[str, str] = {}
        self.missed = 0
        """How often an image was asked for that does not load."""
        self.files: dict[str, tuple[str, bytes]] = {}
        """By path: the media type, and what it holds."""
        self.mended = False
        """From now on the missing image loads."""
        self.posted: list[tuple[str, list[tuple[str, str]]]] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if "missing" in path and not site.mended:
                    site.missed += 1
                    self.reply(404, "text/plain", b"")
                elif path in site.files:
                    self.reply_part(*site.files[path])
                elif path.startswith("/i/"):
                    self.reply(200, "image/png", picture)
                elif path == "/favicon.ico":
                    self.reply(200, "image/png", b"")
                else:
                    page = site.pages.get(path)
                    self.reply(
                        404 if page is None else 200, "text/html; charset=utf-8", (page or "").encode()
                    )

            def reply_part(self, kind: str, body: bytes) -> None:
                """As players ask: from some byte to the end."""
                first = int((self.headers["Range"] or "bytes=0-")[6:].partition("-")[0])
                self.send_response(206)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Range", f"bytes {first}-{len(body) - 1}/{len(body)}")
                self.send_header("Content-Length", str(len(body) - first))
                self.end_headers()
                self.wfile.write(body[first:])

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                site.posted.append((self.path, parse_qsl(body, keep_blank_values=True)))
                self.reply(200, "text/html", b"<p id=thanks>Thank you")

            def reply(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def show(self, template: str, places: int = 4, *, missing: int = 0) -> str:
        """Serve a page of this many pairs; return its path."""
        pairs = [
            PagePair(place, f"/i/{'missing' if place == missing else place}.png", f"Description {place}.")
            for place in range(1, places + 1)
        ]
        self.pages[f"/{template}"] = render_page(load_template(template), pairs)
        return f"/{template}"

    def query(self, assignment: str = "A1", submit_to: str | None = None) -> str:
        return (
            f"?assignmentId={assignment}&hitId=H1&workerId=W1&turkSubmitTo={submit_to or self.url + '/s/T'}"
        )


def press_before_views(page: Any, *pairs: str) -> None:
    """Press the two keys of each pair after a view is laid out and before the page hears what the view shows."""
    page.evaluate(
        """async pairs => {
          const {port1, port2} = new MessageChannel();
          for (const pair of pairs) await new Promise(done => {
            port1.onmessage = () => {
              for (const key of pair) {
                const pressed = new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true});
                document.activeElement.dispatchEvent(pressed);
              }
              done();
            };
            requestAnimationFrame(() => port2.postMessage(0));
          });
        }""",
        list(pairs),
    )


def later(page: Any, shown: Any) -> None:
    """Move a page's clock until this is shown, half a minute at most."""
    for _ in range(300):
        if shown.is_visible():
            return
        page.clock.run_for(100)
    raise AssertionError(f"never shown: {shown}")


def chosen(page: Any, place: int) -> str | None:
    """The answer that is chosen at a place."""
    found = page.query_selector(f"[name=p{place:02d}_label]:checked")
    return None if found is None else str(found.get_attribute("value"))


def send_four_by_keyboard(page: Any, site: Any, questions: Sequence[Question] = ()) -> Sequence[PlaceAnswer]:
    """Answer a page's four pairs by yes, weak yes, skip and no, and send it by Enter; what arrives."""
    for key in "12s4":
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.id") == "send"
    page.keyboard.press("Enter")
    page.wait_for_selector("#thanks")
    ((_, fields),) = site.posted
    parsed = parse_answers(answers_xml(fields), places=range(1, 5), questions=questions)
    assert parsed.findings == ()
    assert [(a.outcome, a.label) for a in parsed.answers] == [
        (Outcome.ANSWERED, Label.YES),
        (Outcome.ANSWERED, Label.WEAK_YES),
        (Outcome.SKIPPED, None),
        (Outcome.ANSWERED, Label.NO),
    ]
    return parsed.answers

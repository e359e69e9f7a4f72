"""A server of the chat completions API on the loopback interface, whose model is a function."""

from __future__ import annotations

import base64
import json
import math
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Judge = Callable[[bytes, str], Sequence[float]]
"""A picture's JPEG and a caption → the probabilities of the four levels, the best first."""


@dataclass
class ChatServer:
    """What the server was asked, and what it is to answer instead of its model's opinion, one after the other."""

    judge: Judge
    with_logprobs: bool = True
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    instead: list[tuple[int, dict[str, str], str]] = field(default_factory=list)
    """Status, headers and body; status 0 closes the connection without a word."""

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """A completion: the letters' probabilities, by the levels that the question gives them."""
        picture, text = body["messages"][0]["content"]
        jpeg = base64.b64decode(picture["image_url"]["url"].partition("base64,")[2])
        caption = re.search("«(.*)»", text["text"], re.DOTALL)
        assert caption, "the caption is in the question"
        best_first = list(self.judge(jpeg, caption[1]))
        shares = best_first if "A yes" in text["text"] else best_first[::-1]
        tops = [{"token": f" {x}", "logprob": math.log(p)} for x, p in zip("ABCD", shares, strict=True) if p]
        written = "ABCD"[max(range(4), key=shares.__getitem__)]
        logprobs = {"content": [{"token": written, "logprob": 0.0, "top_logprobs": tops}]}
        return {
            "choices": [
                {
                    "message": {"role": "assistant", "content": written},
                    "logprobs": logprobs if self.with_logprobs else None,
                }
            ]
        }


@contextmanager
def chat_server(judge: Judge, **options: Any) -> Iterator[ChatServer]:
    """One that answers until the block ends."""
    state, lock = ChatServer(judge, **options), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # in one packet: a second small one waits until the first is acknowledged, 40 ms

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                state.bodies.append(body)
                state.keys.append(self.headers["Authorization"])
                instead = state.instead.pop(0) if state.instead else None
            if self.path != "/v1/chat/completions":
                instead = 404, {}, "no such page"
            status, headers, said = instead or (200, {}, json.dumps(state.answer(body)))
            if not status:
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(said.encode()))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(said.encode())

        def log_message(self, *_: object) -> None:
            """Nothing on the terminal."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()

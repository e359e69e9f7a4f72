"""The other side of the crowd server's load: workers in one asyncio process, or a requester with boto3.

Reads a plan as JSON from its first line of standard input and prints what happened as one JSON line at the end.
Workers stop early when standard input ends. Each answer carries a word of its own, so that the database can be
asked afterwards whether it is there once.

Every request is repeated while nobody answers: a worker's browser may be told to reload at any time, and each
page of the server may be asked twice.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from html import unescape
from typing import Any
from urllib.parse import urlencode, urlsplit

PATIENCE_S = 60.0
_TYPE = re.compile(r'name="hit_type_id"\s+value="([^"]+)"')
_FRAME = re.compile(r'<iframe[^>]*\ssrc="([^"]+)"')
_IMAGE = re.compile(r"/i/[A-Za-z0-9_.-]+")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_LOCATION = re.compile(rb"\r\nlocation: *([^\r]+)", re.IGNORECASE)
_COOKIE = re.compile(rb"\r\nset-cookie: *([^=]+)=([^;\r]*)", re.IGNORECASE)


@dataclass
class Book:
    """What happened."""

    times_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    confirmed: list[str] = field(default_factory=list)
    """The words of answers whose thanks a worker saw."""
    sent: int = 0
    refused: list[str] = field(default_factory=list)
    reconnected: int = 0
    seconds: float = 0.0
    """From the first to the last of it."""
    cpu_s: float = 0.0
    """User and system time of this process."""


@dataclass
class Reply:
    """One answer."""

    status: int
    location: str
    body: bytes

    @property
    def text(self) -> str:
        """The body."""
        return self.body.decode("utf-8", "replace")


class Browser:
    """One worker's browser: a kept connection and cookies."""

    def __init__(self, base: str, book: Book) -> None:
        parts = urlsplit(base)
        self.base, self.host, self.port = base, parts.hostname or "", parts.port or 80
        self._book = book
        self._cookies: dict[str, str] = {}
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, kind: str, path: str, form: list[tuple[str, str]] | None = None) -> Reply:
        """Ask once, or again after a lost connection; the time counts of the try that was answered."""
        give_up = time.monotonic() + PATIENCE_S
        while True:
            began = time.perf_counter()
            try:
                reply = await self._exchange(path, form)
            except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                self._drop()
                if time.monotonic() > give_up:
                    raise
                self._book.reconnected += 1
                await asyncio.sleep(random.uniform(0.05, 0.3))
                continue
            self._book.times_ms[kind].append((time.perf_counter() - began) * 1000)
            if reply.status >= 400:
                words = " ".join(re.sub(r"<[^>]*>", " ", reply.text).split())
                self._book.refused.append(f"{kind}: {reply.status} {words[:120]}")
            return reply

    async def follow(self, kind: str, path: str, form: list[tuple[str, str]] | None = None) -> Reply:
        """The page at the end of the redirects."""
        reply = await self.ask("accept" if form is not None else kind, path, form)
        while reply.status == 303:
            parts = urlsplit(reply.location)
            reply = await self.ask(kind, parts.path + (f"?{parts.query}" if parts.query else ""))
        return reply

    def close(self) -> None:
        """Hang up."""
        self._drop()

    async def _exchange(self, path: str, form: list[tuple[str, str]] | None) -> Reply:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self.host, self.port)
        reader, writer = self._streams
        writer.write(self._request(path, form))
        head = await reader.readuntil(b"\r\n\r\n")
        for name, value in _COOKIE.findall(head):
            self._cookies[name.decode()] = value.decode()
        length, location = _LENGTH.search(head), _LOCATION.search(head)
        body = await reader.readexactly(int(length[1])) if length else b""
        if b"\r\nconnection: close" in head.lower():
            self._drop()
        return Reply(int(head[9:12]), location[1].decode() if location else "", body)

    def _request(self, path: str, form: list[tuple[str, str]] | None) -> bytes:
        # A HIT's form posts from a frame of opaque origin, without a cookie.
        framed = path.startswith("/s/")
        lines = [f"{'GET' if form is None else 'POST'} {path} HTTP/1.1", f"Host: {self.host}:{self.port}"]
        if self._cookies and not framed:
            lines.append("Cookie: " + "; ".join(f"{name}={value}" for name, value in self._cookies.items()))
        body = b""
        if form is not None:
            body = urlencode(form).encode()
            lines.append(f"Origin: {'null' if framed else self.base}")
            lines += ["Content-Type: application/x-www-form-urlencoded", f"Content-Length: {len(body)}"]
        return "\r\n".join([*lines, "", ""]).encode() + body

    def _drop(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def work(plan: dict[str, Any], link: str, book: Book, stop: asyncio.Event) -> None:
    """One worker: join, then accept, look, think and submit, HIT after HIT."""
    browser = Browser(plan["base"], book)
    await _pause(random.uniform(0, plan["arrive_s"]), stop)
    listing = await browser.follow("page", urlsplit(link).path)
    seen: set[str] = set()
    done = 0
    while not stop.is_set() and (plan["hits"] is None or done < plan["hits"]):
        found = _TYPE.search(listing.text)
        if found is None:
            break
        around = await browser.follow("page", "/w/accept", [("hit_type_id", unescape(found[1]))])
        frame = _FRAME.search(around.text)
        if frame is None:
            listing = await browser.follow("page", "/w")
            if not _TYPE.search(listing.text):
                break
            await asyncio.sleep(0.2)
            continue
        done += await _answer(plan, browser, unescape(frame[1]), seen, book, stop)
    browser.close()


async def _answer(
    plan: dict[str, Any], browser: Browser, frame: str, seen: set[str], book: Book, stop: asyncio.Event
) -> int:
    page = await browser.ask("page", frame)
    if plan["images"]:
        for image in dict.fromkeys(_IMAGE.findall(page.text)):
            if image not in seen:
                seen.add(image)
                await browser.ask("image", image)
    low, high = plan["think_s"]
    await _pause(random.uniform(low, high), stop)
    token = urlsplit(frame).path.split("/")[3]
    word = f"word{random.getrandbits(64):016x}"
    fields = [(f"p{place:02d}_label", "yes") for place in range(1, 21)] + [("p01_text", word)]
    book.sent += 1
    reply = await browser.ask("submit", f"/s/{token}/mturk/externalSubmit", fields)
    if reply.status == 200 and "mitl-submitted" in reply.text:
        book.confirmed.append(word)
    await browser.ask("page", f"/w/a/{token}")
    return 1


async def _pause(seconds: float, stop: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return


async def workers(plan: dict[str, Any]) -> Book:
    """All workers at once."""
    book, stop = Book(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def watch() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=watch, daemon=True).start()
    await asyncio.gather(*(work(plan, link, book, stop) for link in plan["links"]))
    return book


def requester(plan: dict[str, Any]) -> Book:
    """Post HITs by boto3, unmodified."""
    import boto3
    from botocore.config import Config

    client = boto3.client(
        "mturk",
        region_name="us-east-1",
        endpoint_url=plan["base"],
        aws_access_key_id=plan["keys"][0],
        aws_secret_access_key=plan["keys"][1],
        config=Config(retries={"total_max_attempts": 1}, proxies={}),
    )
    book = Book()

    def post(number: int) -> None:
        began = time.perf_counter()
        client.create_hit_with_hit_type(
            HITTypeId=plan["hit_type"],
            LifetimeInSeconds=86400,
            MaxAssignments=1,
            Question=plan["question"],
            RequesterAnnotation=f"post-{number}",
            UniqueRequestToken=f"post-{number}",
        )
        book.times_ms["create"].append((time.perf_counter() - began) * 1000)
        book.confirmed.append(f"post-{number}")

    with ThreadPoolExecutor(plan["threads"]) as pool:
        for _ in pool.map(post, range(plan["count"])):
            pass
    book.sent = plan["count"]
    return book


def main() -> None:
    """Do what the plan says."""
    plan = json.loads(sys.stdin.readline())
    random.seed(plan["seed"])
    began = time.perf_counter()
    book = requester(plan) if plan["kind"] == "api" else asyncio.run(workers(plan))
    book.seconds, book.cpu_s = time.perf_counter() - began, time.process_time()
    json.dump(vars(book), sys.stdout)
    sys.stdout.flush()


if __name__ == "__main__":
    main()

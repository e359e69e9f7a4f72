"""Sounds and videos made ready for pages: what a file may be, and a copy under its keyed name."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from mitl.core.whole_files import part_name, whole_file
from mitl.errors import DatasetError
from mitl.protocol.media import HEAD, MAX_MEDIA_BYTES, format_of, head_of, media_fault
from mitl.records.enums import PartKind

WITHIN_S = 60.0
"""In which what is wanted of an address must arrive, however it drips."""
MOST_REDIRECTS = 20


def suffix_of(path: Path, kind: PartKind) -> str:
    """How its public name ends, by what the file holds.

    Raises:
        DatasetError: browsers could not play it, or it is too large.
    """
    try:
        head, size = head_of(path), path.stat().st_size
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}") from error
    fault = media_fault(head, kind)
    if not fault and size > MAX_MEDIA_BYTES:
        fault = (
            f"has {size / 1e6:,.0f} MB, and workers are shown up to {MAX_MEDIA_BYTES / 1e6:.0f} MB: shorten or "
            "compress it"
        )
    media_format = format_of(head)
    if fault or media_format is None:
        raise DatasetError(f"{path} {fault}")
    return media_format.suffix


def place(source: Path, target: Path) -> None:
    """Put a file under its public name: as a hard link, or as a copy where the file system has none across.

    Raises:
        DatasetError: it cannot be read.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = part_name(target)
    try:
        try:
            os.link(source.resolve(), part)
            part.replace(target)
        except OSError:
            with source.open("rb") as content, whole_file(target) as sink:
                shutil.copyfileobj(content, sink, 1 << 20)
    except OSError as error:
        raise DatasetError(f"{source} cannot be copied: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)


def medium_problem(browser: httpx.Client, url: str, kind: PartKind) -> str | None:
    """What is wrong with a sound or video at an address, by its beginning; None where a browser would play it.

    Raises:
        httpx.HTTPError: it cannot be fetched.
    """
    with fetched(browser, url, {"Range": f"bytes=0-{HEAD - 1}"}) as reply:
        if reply.status_code not in (200, 206):
            return f"answers {reply.status_code}"
        told = reply.headers.get("content-type", "")
        if not told.startswith(("audio/", "video/", "application/ogg", "application/octet-stream")):
            return f"gives {told or 'something of no type'}, not a sound or video"
        fault = media_fault(beginning(reply, HEAD), kind)
    return f"gives something that {fault}" if fault else None


@contextmanager
def fetched(browser: httpx.Client, url: str, headers: dict[str, str]) -> Iterator[httpx.Response]:
    """The reply at an address or where that leads, its body not yet read.

    httpx would read what redirects hold to its end, and go from https to plain HTTP, where no page follows, and which
    the services within a network speak.

    Raises:
        httpx.HTTPError: there is none.
    """
    request = browser.build_request("GET", url, headers=headers)
    for _ in range(MOST_REDIRECTS):
        reply = browser.send(request, stream=True)
        try:
            if reply.next_request is None:
                yield reply
                return
            before, request = request, reply.next_request
        finally:
            reply.close()
        if before.url.scheme == "https" != request.url.scheme:
            raise httpx.UnsupportedProtocol(f"leads on to {request.url}, but pages need https")
    raise httpx.TooManyRedirects(f"leads on {MOST_REDIRECTS} times", request=request)


def beginning(reply: httpx.Response, most: int) -> bytes:
    """What comes of a reply until it has this many bytes or more.

    Raises:
        httpx.ReadTimeout: it drips.
    """
    deadline = time.monotonic() + WITHIN_S
    head = bytearray()
    for chunk in reply.iter_bytes():
        head += chunk
        if len(head) >= most:
            break
        if time.monotonic() > deadline:
            raise httpx.ReadTimeout(f"only {len(head):,} bytes came in {WITHIN_S:.0f} s")
    return bytes(head)

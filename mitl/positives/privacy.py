"""Whether a release folder gives away who worked: raw ids, and plain hashes of them, wherever they may stand.

A keyed pseudonym may be there; a hash that anybody can compute from an id may not, since ids can be listed and tried.
Every file is read as its bytes say, Parquet tables by their cells and their metadata, so that nothing hides in a
compressed column.
"""

from __future__ import annotations

import base64
import hashlib
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

HASHES = ("md5", "sha1", "sha224", "sha256", "sha384", "sha512", "sha3_256", "blake2b", "blake2s")
TRUNCATED = (8, 10, 16, 20)
"""Bytes of a digest that a shortened hash may keep."""
MIN_ID = 6
"""Shorter ids are not looked for inside longer words: chance would find them everywhere."""

_RUN = re.compile(r"[A-Za-z0-9+/=_-]+")


@dataclass(frozen=True, slots=True)
class Leak:
    """One id that a file gives away."""

    file: str
    what: str
    """Which kind of id it is: worker, assignment, HIT."""
    form: str
    """``as it is``, or the hash and how it is written."""
    found: str
    """The text in the file; never the id itself where it was hashed."""


def find_leaks(files: Mapping[str, bytes], ids: Mapping[str, Iterable[str]]) -> list[Leak]:
    """Every id, or plain hash of one, that a release's files hold; an empty list proves that there is none.

    Args:
        files: content by name.
        ids: kind of id → ids.
    """
    wanted = {
        kind: sorted({value for value in values if len(value) >= MIN_ID}) for kind, values in ids.items()
    }
    if not any(wanted.values()):
        return []
    lengths = _lengths(value for values in wanted.values() for value in values)
    places: dict[str, set[str]] = {}
    for name, content in sorted(files.items()):
        for run in _runs(name, content):
            for window in _windows(run, lengths):
                places.setdefault(window, set()).add(name)
    # The files' windows are few and the ids' forms are many, so these are made one by one and forgotten.
    leaks = {
        Leak(name, kind, form, text)
        for kind, values in wanted.items()
        for value in values
        for form, text in _forms(value)
        for name in places.get(text, ())
    }
    return sorted(leaks, key=lambda leak: (leak.file, leak.what, leak.form, leak.found))


def _lengths(values: Iterable[str]) -> list[int]:
    """How long the forms of these ids can be."""
    found: dict[int, None] = {}
    for size in sorted({len(value) for value in values}):
        for _, text in _forms("x" * size):
            found[len(text)] = None
    return sorted(found)


def _forms(value: str) -> Iterator[tuple[str, str]]:
    for text in {value, value.lower(), value.upper()}:
        yield "as it is", text
        yield "in base64", base64.b64encode(text.encode()).decode().rstrip("=")
        yield "in hexadecimal", text.encode().hex()
        for name in HASHES:
            yield from _digest_forms(name, hashlib.new(name, text.encode()).digest())


def _digest_forms(name: str, digest: bytes) -> Iterator[tuple[str, str]]:
    for size in (*TRUNCATED, len(digest)):
        part = digest[:size]
        for text in (part.hex(), part.hex().upper()):
            yield f"{name}, {size} bytes", text
        for encode in (base64.b64encode, base64.urlsafe_b64encode, base64.b32encode):
            text = encode(part).decode().rstrip("=")
            yield f"{name}, {size} bytes", text
            yield f"{name}, {size} bytes", text.lower()


def _windows(run: str, lengths: Iterable[int]) -> Iterator[str]:
    for length in lengths:
        if length > len(run):
            return
        for start in range(len(run) - length + 1):
            yield run[start : start + length]


def _runs(name: str, content: bytes) -> set[str]:
    """The distinct runs of letters and digits in a file, long enough to hold an id."""
    found: set[str] = set()
    for text in _texts(name, content):
        for variant in {text, urllib.parse.unquote(text)}:
            found.update(run for run in _RUN.findall(variant) if len(run) >= MIN_ID)
    return found


def _texts(name: str, content: bytes) -> Iterator[str]:
    yield content.decode("latin-1")
    if name.endswith(".parquet"):
        yield from _cells(content)


def _cells(content: bytes) -> Iterator[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(pa.BufferReader(content))
    for key, value in (table.schema.metadata or {}).items():
        yield f"{key.decode('latin-1')} {value.decode('latin-1')}"
    for column in table.columns:
        values: set[str] = set()
        for chunk in column.chunks:
            flat = chunk.flatten() if pa.types.is_list(chunk.type) else chunk
            values.update(str(value) for value in flat.unique().to_pylist())
        yield "\n".join(sorted(values))

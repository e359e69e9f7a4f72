"""Whether a release folder gives away who worked: raw ids, and plain hashes of them, wherever they may stand.

A keyed pseudonym may be there; a hash that anybody can compute from an id may not, since ids can be listed and tried.
Every file is read as its bytes say, Parquet tables by their cells and their metadata, so that nothing hides in a
compressed column.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
import re
import urllib.parse
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mitl.errors import ReleaseError
from mitl.positives.folders import parquet_table
from mitl.records import several
from mitl.records.frames import NONE, is_asked

MIN_SALT_BYTES = 16
TIME_STEP_MS = 1000
"""Times are released to the nearest second: a page's exact milliseconds could be found again in other logs."""


def pseudonym(worker: str, salt: bytes) -> str:
    """``w_`` and 16 characters (80 bits) of HMAC-SHA-256 of the worker's id under the release's secret salt.

    The same worker has one name within a release, and unrelated names in releases of two names, as each name has
    its own salt.

    Raises:
        ReleaseError: the salt has fewer than 16 bytes, so that ids could be found by trying.
    """
    if len(salt) < MIN_SALT_BYTES:
        raise ReleaseError(f"the salt has {len(salt)} bytes, but at least {MIN_SALT_BYTES} are needed")
    digest = hmac.new(salt, worker.encode(), hashlib.sha256).digest()
    return "w_" + base64.b32encode(digest[:10]).decode("ascii").lower()


def shown_judgements(judgements: pd.DataFrame, salt: bytes) -> pd.DataFrame:
    """The judgements that a release shows, under pseudonyms; gold controls and answers of audits are left out.

    In order of pair, pseudonym and then content: nothing of the order in which they came in is left. Times are to
    the nearest second.
    """
    shown = judgements[is_asked(judgements)]
    steps = (shown["active_ms"] + TIME_STEP_MS // 2) // TIME_STEP_MS * TIME_STEP_MS
    names = shown["worker"].cat.rename_categories(lambda worker: pseudonym(worker, salt))
    renamed = shown.assign(
        worker=names.cat.reorder_categories(sorted(names.cat.categories)),
        active_ms=steps.where(shown["active_ms"] != NONE, NONE),
    )
    first = ["pair", "worker", "outcome", "label", "usable", "active_ms"]
    order = [*first, *(name for name in renamed if name not in first and name != "role")]
    keys = [renamed[name] for name in order]
    codes = [key.cat.codes if key.dtype == "category" else key for key in keys]
    return renamed.iloc[np.lexsort(codes[::-1])]


HASHES = ("md5", "sha1", "sha224", "sha256", "sha384", "sha512", "sha3_256", "blake2b", "blake2s")
SHORTENED = (8, 10, 12, 16, 20)
"""Bytes of a digest that a shortened hash may keep; in hexadecimal also ``PREFIX``."""
PREFIX = 6
"""Bytes by which digests are looked up: fewer would be found by chance."""
MIN_ID, MIN_DIGITS = 6, 10
"""Shorter ids, and shorter ones of digits alone, are looked for as hashes alone: as they are, chance would find them
everywhere, and ids of images and similarities are digits too."""

_RUN = re.compile(rf"[A-Za-z0-9+/=_-]{{{MIN_ID},}}")
_UNBROKEN = re.compile(r"[A-Za-z0-9+/=_-]*")
"""An id that can only stand inside one run; one with other letters, as an e-mail address, is cut by it."""
_PIECE = 1 << 22
"""Bytes of a file that are read at once, to the end of the line; bounds the memory."""
_HEX = re.compile(rf"[0-9A-Fa-f]{{{2 * PREFIX}}}")
_BASE32 = re.compile(r"[A-Z2-7]{10}|[a-z2-7]{10}")
_URL_SAFE = str.maketrans("+/", "-_")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{8}")

Runs = Mapping[str, Collection[str]]
"""File → its distinct runs of letters and digits."""


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
    wanted = {kind: sorted({value for value in values if value}) for kind, values in ids.items()}
    if not any(wanted.values()):
        return []
    runs = {  # those long enough to hold an id
        name: {match[0] for text in _variants(name, content) for match in _RUN.finditer(text)}
        for name, content in sorted(files.items())
    }
    windows = _windows(runs, _lengths(value for values in wanted.values() for value in values))
    prefixes = _prefixes(runs)
    leaks = _spelled(files, wanted)
    # The files' windows are few and the ids' forms are many, so these are made one by one and forgotten.
    for kind, values in wanted.items():
        for value in values:
            if not _by_chance(value):
                leaks |= {
                    Leak(name, kind, form, text)
                    for form, text in _written(value)
                    for name in windows.get(text, ())
                }
            leaks |= {
                Leak(name, kind, form, text)
                for form, text in _hashed(value, prefixes)
                for name, texts in runs.items()
                if any(text in run for run in texts)
            }
    return sorted(leaks, key=lambda leak: (leak.file, leak.what, leak.form, leak.found))


def refuse_leaks(
    files: Mapping[str, bytes], ids: Mapping[str, Iterable[str]], *, texts: str = "judgements.parquet"
) -> None:
    """Pass where no file gives one of these ids away.

    Args:
        texts: the file that holds the workers' own words.

    Raises:
        ReleaseError: one does.
    """
    leaks = find_leaks(files, ids)
    if leaks:
        first = leaks[0]
        remedy = "take it out of [release] in mitl.toml, or out of the names of the project"
        if first.file == texts:
            remedy = "a worker wrote it; build the release without --with-texts"
        more = f", and {several(len(leaks) - 1, 'more place')} would" if leaks[1:] else ""
        raise ReleaseError(
            f"{first.file} would hold the id of a {first.what} ({first.form}){more}; nothing was written; {remedy}"
        )


def short_ids(values: Iterable[str]) -> int:
    """How many of these ids are so short that they are looked for as hashes alone."""
    return sum(map(_by_chance, values))


def _by_chance(value: str) -> bool:
    return len(value) < (MIN_DIGITS if value.isdecimal() else MIN_ID)


def _spelled(files: Mapping[str, bytes], wanted: Mapping[str, Collection[str]]) -> set[Leak]:
    """Ids with letters at which runs end, in whatever letters they are written."""
    broken = [
        (kind, value, value.casefold())
        for kind, values in wanted.items()
        for value in values
        if len(value) >= MIN_ID and not _UNBROKEN.fullmatch(value)
    ]
    if not broken:
        return set()
    return {
        Leak(name, kind, "as it is", value)
        for name, content in files.items()
        for text in _variants(name, content)
        for read in {text, text.encode("latin-1", "replace").decode("utf-8", "replace")}
        for folded in [read.casefold()]
        for kind, value, form in broken
        if form in folded
    }


def _lengths(values: Iterable[str]) -> list[int]:
    """How long ids can be as they are written."""
    sizes = sorted({size for value in values if (size := len(value.encode())) >= MIN_ID})
    return sorted({len(text) for size in sizes for _, text in _written("x" * size)})


def _written(value: str) -> Iterator[tuple[str, str]]:
    """The id in ways that can be read back."""
    for text in {value, value.lower(), value.upper()}:
        yield "as it is", text
        yield "in base64", base64.b64encode(text.encode()).decode().rstrip("=")
        yield "in hexadecimal", text.encode().hex()


def _hashed(value: str, prefixes: Collection[bytes]) -> Iterator[tuple[str, str]]:
    """Hashes of the id whose first bytes stand somewhere; with the line's end too, as ``echo`` hands it on."""
    for text in {value, value.lower(), value.upper(), f"{value}\n"}:
        for name in HASHES:
            digest = hashlib.new(name, text.encode()).digest()
            if digest[:PREFIX] in prefixes:
                yield from _digest_forms(name, digest)


def _digest_forms(name: str, digest: bytes) -> Iterator[tuple[str, str]]:
    for size in (PREFIX, *SHORTENED, len(digest)):
        part, form = digest[:size], f"{name}, {size} bytes"
        yield form, part.hex()
        yield form, part.hex().upper()
        if size > PREFIX:
            yield form, base64.b64encode(part).decode().rstrip("=")
            yield form, base64.urlsafe_b64encode(part).decode().rstrip("=")
            yield form, base64.b32encode(part).decode().rstrip("=")
            yield form, base64.b32encode(part).decode().rstrip("=").lower()


def _windows(runs: Runs, lengths: Sequence[int]) -> dict[str, set[str]]:
    """Each piece of these lengths → the files that hold it."""
    places: dict[str, set[str]] = {}
    for name, texts in runs.items():
        for run in texts:
            for length in lengths:
                for start in range(len(run) - length + 1):
                    places.setdefault(run[start : start + length], set()).add(name)
    return places


def _prefixes(runs: Runs) -> set[bytes]:
    """What could be the first bytes of a digest, wherever one might begin."""
    prefixes: set[bytes] = set()
    for run in {run for some in runs.values() for run in some}:
        for start in range(len(run) - 7):
            if _HEX.match(run, start):
                prefixes.add(bytes.fromhex(run[start : start + 2 * PREFIX]))
            if _BASE32.match(run, start):
                prefixes.add(base64.b32decode(run[start : start + 10].upper() + "======")[:PREFIX])
            if _BASE64.match(run, start):
                prefixes.add(base64.urlsafe_b64decode(run[start : start + 8].translate(_URL_SAFE)))
    return prefixes


def _variants(name: str, content: bytes) -> Iterator[str]:
    """The texts as they are, out of a URL, and without what Markdown, HTML and JSON put before letters."""
    for text in _texts(name, content):
        yield from {text, urllib.parse.unquote(text), html.unescape(text.replace("\\", ""))}


def _texts(name: str, content: bytes) -> Iterator[str]:
    start = 0
    while start < len(content):
        line = content.find(b"\n", start + _PIECE)
        end = len(content) if line < 0 else line
        yield content[start:end].decode("latin-1")
        start = end
    if name.endswith(".parquet"):
        yield from _cells(content)


def _cells(content: bytes) -> Iterator[str]:
    from pyarrow.types import is_list

    table = parquet_table(content)
    for key, value in (table.schema.metadata or {}).items():
        yield f"{key.decode('latin-1')} {value.decode('latin-1')}"
    for column in table.columns:
        values: set[str] = set()
        for chunk in column.chunks:
            flat = chunk.flatten() if is_list(chunk.type) else chunk
            values.update(str(value) for value in flat.unique().to_pylist())
        yield "\n".join(sorted(values))

"""The archive that a person gets of all that is held about them: JSON files, and a page that says what they are."""

from __future__ import annotations

import datetime as dt
import json
import zipfile
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

import jinja2

from mitl.records.persons import HeldData, HeldPart


def pack(
    sink: BinaryIO, held: Iterable[HeldData], now: dt.datetime, templates: jinja2.Environment
) -> dict[str, int]:
    """Write the archive; returns the number of entries by file. Rows are written as they are read."""
    counts: dict[str, int] = {}
    listed = []
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for data in held:
            files = []
            for part in data.parts:
                name = f"{data.folder}/{part.name}.json"
                counts[name] = _write(archive, name, part, now)
                files.append((name, counts[name], part.means))
            listed.append((data.title, files))
        with_project = any(name.startswith("project") for name in counts)
        page = templates.get_template("held.html.j2")
        readme = page.render(listed=listed, now=now, with_project=with_project)
        archive.writestr(_entry("README.html", now), readme)
    return counts


def _write(archive: zipfile.ZipFile, name: str, part: HeldPart, now: dt.datetime) -> int:
    count = 0
    with archive.open(_entry(name, now), "w") as sink:
        for row in part.rows:
            sink.write((",\n" if count else "[\n").encode() + _json(row))
            count += 1
        sink.write(b"\n]\n" if count else b"[]\n")
    return count


def _json(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False, default=dt.datetime.isoformat).encode(
        "utf-8", "backslashreplace"
    )


def _entry(name: str, now: dt.datetime) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, now.timetuple()[:6])
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o600 << 16
    return entry

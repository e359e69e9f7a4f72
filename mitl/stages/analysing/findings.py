"""What one analysis hands out: tables for people, numbers for machines, rows for CSV files, drawings."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mitl.core.whole_files import whole_file
from mitl.records import Table


@dataclass(frozen=True, slots=True)
class Findings:
    """One analysis of a project."""

    counts: Mapping[str, object]
    """Of ``--json``; plain numbers, texts, lists and objects."""
    tables: tuple[Table, ...] = ()
    lines: tuple[str, ...] = ()
    """For people, after the tables."""
    rows: Mapping[str, Table] = field(default_factory=dict)
    """File name without its ending → every number of the analysis as one table, with names for a machine."""
    drawings: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    """File name without its ending → what draws the SVG, called where one is wanted; empty ones are not written."""


@dataclass(frozen=True, slots=True)
class File:
    """One file of an analysis: where it lies and what it holds."""

    path: Path
    content: bytes


def csv_files(folder: Path, findings: Findings) -> list[File]:
    """One file for each table of rows."""
    files = []
    for name, table in findings.rows.items():
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(table.columns)
        writer.writerows(["" if cell is None else cell for cell in row] for row in table.rows)
        files.append(File(folder / f"{name}.csv", text.getvalue().encode()))
    return files


def drawing_files(folder: Path, findings: Findings) -> list[File]:
    """One SVG file for each drawing."""
    return [
        File(folder / f"{name}.svg", f'<?xml version="1.0" encoding="UTF-8"?>\n{svg}\n'.encode())
        for name, draw in findings.drawings.items()
        if (svg := draw())
    ]


def write(files: Iterable[File]) -> int:
    """Write the files that are not there exactly so already; returns how many those were."""
    changed = [file for file in files if not file.path.is_file() or file.path.read_bytes() != file.content]
    for file in changed:
        with whole_file(file.path) as sink:
            sink.write(file.content)
    return len(changed)

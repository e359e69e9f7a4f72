"""The table of operations in ``docs/crowd-server.md``.

``python -m mitl.crowd_server.api.table docs/crowd-server.md`` writes it into the file; a test holds the file to it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mitl.crowd_server.api.dispatch import GROUPS
from mitl.crowd_server.api.registry import OPERATIONS

BEGIN = "<!-- operations: begin; python -m mitl.crowd_server.api.table writes what follows -->"
END = "<!-- operations: end -->"


def table() -> str:
    """All operations by name, with whether each is supported and what it does."""
    assert GROUPS, "the files of operations are not loaded"
    rows = ["| operation | status | what it does |", "| --- | --- | --- |"]
    for name, operation in sorted(OPERATIONS.items()):
        summary = (operation.handler.__doc__ or "").strip().partition("\n")[0]
        rows.append(f"| {name} | {'supported' if operation.offered else 'refused'} | {summary} |")
    offered = sum(operation.offered for operation in OPERATIONS.values())
    count = f"{offered} of MTurk's {len(OPERATIONS)} operations are supported; the others return an error."
    return "\n".join([count, "", *rows])


def filled(text: str) -> str:
    """The document with the table between its two marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin and end, f"the document lacks the marks {BEGIN!r} and {END!r}"
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main(path: Path) -> None:
    """Write the table into the document."""
    path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""What commands print with ``--json``, compared with what was recorded in ``golden/json``."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parents[1] / "golden" / "json"
_WORDS = re.compile(r"(?![A-Z]{8,}$)(?![A-Za-z_-]{32,}$)[A-Za-z_ -]*")
"""What is not an id and no key: those may be of letters alone."""
_TIMED = r".*(_s|_ms|bytes)|hourly_cents|speed|seconds_a_.*|too_fast"
"""Keys whose numbers are of the machine or of the clock."""
_PAID_BY_TIME = _TIMED + r"|.*cents"
"""The same once a top-up has paid for time."""


def assert_as_recorded(name: str, calls: Sequence[dict[str, Any]]) -> None:
    """The calls in order, their keys in order; MITL_REWRITE_GOLDEN=1 records them after they were looked at."""
    path = RECORDED / f"{name}.json"
    shown, timed = [], _TIMED
    for call in calls:
        timed = _PAID_BY_TIME if call["command"] == "pay top-up" else timed
        counts = _masked(call["counts"], timed)
        shown.append(
            {
                "command": call["command"],
                "status": call["status"],
                "counts": counts,
                "paths": list(call["paths"]),
            }
        )
    text = json.dumps(shown, indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("MITL_REWRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    recorded = path.read_text(encoding="utf-8")

    changes = unified_diff(recorded.splitlines(), text.splitlines(), "recorded", "printed", lineterm="", n=8)
    assert text == recorded, "\n".join(changes)


def _masked(value: Any, timed: str, key: str = "") -> Any:
    """The value without what differs from run to run: addresses, paths, keys, hashes, times."""
    if isinstance(value, dict):
        return {name: _masked(inner, timed, name) for name, inner in value.items()}
    if isinstance(value, list):
        rows = [_masked(inner, timed, key) for inner in value]
        # Workers' ids are random, and so is their order.
        of_workers = any(isinstance(row, dict) and "worker" in row for row in rows)
        return sorted(rows, key=json.dumps) if of_workers else rows
    if (isinstance(value, int | float) and re.fullmatch(timed, key)) or (
        isinstance(value, str) and not _WORDS.fullmatch(value)
    ):
        return f"<{type(value).__name__}>"
    return round(value, 6) if isinstance(value, float) else value

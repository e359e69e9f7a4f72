"""The answer document of a row of results: what the worker answered, and the whole row word for word.

The row stands behind the answers in a processing instruction, ``<?mitl-rows {JSON}?>``, which every reader of
answer documents passes over. JSON carries what XML cannot, so no character of a cell is lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mitl.protocol.answer_xml import answers_xml

_START, _END = "<?mitl-rows ", "?>"


@dataclass(frozen=True, slots=True)
class KeptRows:
    """The rows of a file that one submission was read from."""

    sha256: str
    """Names the file."""
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def cells(self) -> dict[str, str]:
        """Column → cell of the first row."""
        return dict(zip(self.columns, self.rows[0], strict=True))


def row_document(answers: str | Iterable[tuple[str, str]], kept: KeptRows) -> str:
    """The document of a submission.

    Args:
        answers: its fields, or the answer document that the row itself holds, which stays byte for byte.
    """
    # PostgreSQL stores no NUL, and no answer document holds one rightly.
    document = answers.replace("\0", "\ufffd") if isinstance(answers, str) else answers_xml(answers)
    content = json.dumps({"file": kept.sha256, "columns": kept.columns, "rows": kept.rows})
    # No cell may end the instruction or look like another one.
    safe = content.replace("<", "\\u003c").replace(">", "\\u003e")
    return f"{document}{_START}{safe}{_END}"


def kept_rows(document: str) -> KeptRows | None:
    """The rows that a document was made of; None for one that came from the requester API."""
    start = document.rfind(_START)
    if start < 0 or not document.endswith(_END):
        return None
    try:
        content = json.loads(document[start + len(_START) : -len(_END)])
        return KeptRows(content["file"], tuple(content["columns"]), _tuples(content["rows"]))
    except (ValueError, KeyError, TypeError):
        return None  # a worker wrote something alike


def _tuples(rows: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(row) for row in rows)

"""Single cells of tables: ids and texts as they are meant, and one line for what cannot be meant."""

from __future__ import annotations

import re

from mitl.errors import DatasetError

LONGEST_TEXT = 10_000
"""Characters. A page holds 65,535 bytes with everything on it; longer captions are rows that ran together."""
_LIST_AS_TEXT = re.compile(r"""\[\s*(['"]).*\1\s*,?\s*\]""", re.DOTALL)
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
"""What no page, no XML and no PostgreSQL text may hold; tabs and line ends may stand in captions."""
_MISSING = ("nan", "NaN", "null", "None", "<NA>")
"""What programs write in place of a text that is not there."""
_FLOAT = re.compile(r"-?\d+\.0|-?\d+(\.\d+)?[eE]\+\d+")


def text_of(value: object) -> str | None:
    """The cell without white space around it; None where it is empty or not a number."""
    text = "" if value is None or value != value else str(value).strip()
    return text or None


def cell_id(value: object, column: str, where: str) -> str:
    """An id; ``where`` names the row and the file.

    Raises:
        DatasetError: the cell is empty, a number that was made a fraction, or holds control characters.
    """
    text = _present(value, column, where)
    if isinstance(value, float) or _FLOAT.fullmatch(text):
        raise DatasetError(
            f"{where} has {column} {text}, a number with a fraction or power; ids are whole numbers or texts: "
            "write the column as integers or texts"
        )
    if any(character in text for character in "\t\n\r"):
        raise DatasetError(
            f"{where} has a tab or line end within its {column} {text!r}; ids stand on one line"
        )
    return text


def caption_text(value: object, column: str, where: str) -> str:
    """A caption.

    Raises:
        DatasetError: the cell is empty, says that something is missing, is a list that was written as text, is
            enormous, or holds control characters.
    """
    text = _present(value, column, where)
    if text in _MISSING:
        raise DatasetError(
            f"{where} has no {column}: {text!r} stands for a missing text; write it, or empty it"
        )
    _refuse_list(
        text,
        column,
        where,
        "give each caption a row of its own, or write JSON lines or a Parquet column of lists",
    )
    if len(text) > LONGEST_TEXT:
        raise DatasetError(
            f"{where} has a {column} of {len(text):,} characters, of which {LONGEST_TEXT:,} are allowed "
            f"({text[:40]!r}…); is a quote before it never closed?"
        )
    return text


def document_text(value: object, column: str, where: str) -> str:
    """A text that is searched: of any length, line ends as they are.

    Raises:
        DatasetError: it is empty, a list, or holds control characters.
    """
    text = _present(value, column, where)
    _refuse_list(text, column, where, "join its parts into one text")
    return text


def _refuse_list(text: str, column: str, where: str, remedy: str) -> None:
    if _LIST_AS_TEXT.fullmatch(text):
        raise DatasetError(f"{where} has a list written as text in {column!r} ({text[:40]!r}…); {remedy}")


def _present(value: object, column: str, where: str) -> str:
    text = text_of(value)
    if text is None:
        raise DatasetError(f"{where} has no {column}; write it, or take the row out")
    found = _CONTROL.search(text)
    if found:
        raise DatasetError(
            f"{where} has the control character U+{ord(found[0]):04X} in its {column} ({text[:40]!r}); take it out"
        )
    return text

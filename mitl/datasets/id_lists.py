"""Lists of external ids that users write: which items are to search."""

from __future__ import annotations

import re
from pathlib import Path

from mitl.datasets.files import read_json, readable
from mitl.errors import DatasetError

WHAT = "a list of ids"
_COMMENT = re.compile(r"(?:^|\s)#")
"""Ids such as ``10.jpg#0`` hold a # themselves; only one after a space, or at the start, begins a comment."""


def read_ids(path: Path) -> list[str]:
    """External ids from text with one id a line (a # of its own starts a comment), a JSON list or a NumPy array.

    Raises:
        DatasetError: the file is missing, malformed, of another kind, or lists nothing.
    """
    if path.suffix == ".npy":
        import numpy as np

        try:
            with readable(path, WHAT):
                values = np.load(path, allow_pickle=False).reshape(-1).tolist()
        except (ValueError, EOFError) as error:
            raise DatasetError(f"{str(path)!r} is not a NumPy array ({error})") from error
    elif path.suffix == ".json":
        values = read_json(path, WHAT)
        if not isinstance(values, list):
            raise DatasetError(f"{str(path)!r} holds no JSON list; write ids as [1, 2, 3]")
    else:
        with readable(path, WHAT):
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        values = [text for line in lines if (text := _COMMENT.split(line, maxsplit=1)[0].strip())]
    ids = [str(value) for value in values]
    if not ids:
        raise DatasetError(f"{str(path)!r} lists no ids")
    return ids

"""Lists of queries speak of the items as the data set does."""

from __future__ import annotations

from pathlib import Path

import pytest

from mitl.errors import DatasetError
from mitl.records import Direction
from mitl.stages.proposing.query_lists import query_ids


@pytest.mark.parametrize(
    ("direction", "told"),
    [
        (Direction.I2T, "document 'x' is not in the data set of 1 document"),
        (Direction.T2I, "query 'x' is not in the data set of 2 queries"),
    ],
)
def test_an_unknown_item_is_called_by_its_kind(tmp_path: Path, direction: Direction, told: str) -> None:
    """Of texts that search in texts there are neither images nor captions."""
    known = {"a": 1} if direction is Direction.I2T else {"a": 1, "b": 2}
    (tmp_path / "ids.txt").write_text("a\nx\n")

    with pytest.raises(DatasetError, match=f"^{told}$"):
        query_ids(tmp_path / "ids.txt", direction, known, ("document", "query"))

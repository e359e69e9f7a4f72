"""A made-up project at the end of its loop, as the report stage would collect it, with generated pictures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from report_sample import (
    sample_input,
)


def test_the_sample_is_the_same_each_time(tmp_path: Path) -> None:
    """Two calls with the same folder give equal records."""
    one, other = (replace(sample_input(tmp_path), analyses=()) for _ in range(2))

    assert repr(one.reliability) == repr(other.reliability)  # which holds arrays
    one, other = (replace(made, reliability=()) for made in (one, other))
    assert one == other  # what draws the analyses is compared by what it draws, among the plots

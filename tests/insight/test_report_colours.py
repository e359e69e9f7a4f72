"""The report's colours: ink that can be read, and marks that any eye can tell apart, on the page and on paper."""

from __future__ import annotations

from itertools import combinations

import pytest
from report_kit import DEFICIENCIES, contrast, distance, schemes

TOGETHER = (
    ("yes", "weak-yes", "weak-no", "paper"),
    ("before", "after", "yes", "plain"),
    ("yes", "weak-yes", "before", "plain"),
)
"""Colours that stand in one drawing: the answers, the series, the records of workers."""


@pytest.mark.parametrize("scheme", ["light", "dark", "paper"])
@pytest.mark.parametrize(
    ("ink", "ground"),
    [
        ("ink", "paper"),
        ("ink", "soft"),
        ("muted", "paper"),
        ("muted", "soft"),
        ("accent", "paper"),
        ("accent", "soft"),
        ("before", "paper"),
        ("before", "soft"),
        ("on-yes", "yes"),
        ("on-weak-yes", "weak-yes"),
        ("on-weak-no", "weak-no"),
    ],
)
def test_ink_can_be_read_on_its_ground(scheme: str, ink: str, ground: str) -> None:
    """At least 4.5 to 1, as WCAG asks of text of this size."""
    colours = schemes()[scheme]

    assert contrast(colours[ink], colours[ground]) >= 4.5


@pytest.mark.parametrize("scheme", ["light", "dark", "paper"])
@pytest.mark.parametrize("mark", ["yes", "no", "before", "after", "plain"])
def test_marks_and_outlines_stand_out_from_the_page(scheme: str, mark: str) -> None:
    """At least 3 to 1, as WCAG asks of graphics; ``weak yes`` carries its number, ``weak no`` the outline of ``no``."""
    colours = schemes()[scheme]

    assert contrast(colours[mark], colours["paper"]) >= 3


@pytest.mark.parametrize("scheme", ["light", "dark", "paper"])
@pytest.mark.parametrize("deficiency", DEFICIENCIES)
@pytest.mark.parametrize("together", TOGETHER)
def test_colours_of_one_drawing_differ_for_every_eye(
    scheme: str, deficiency: str, together: tuple[str, ...]
) -> None:
    """Full colour blindness of any of the three kinds leaves a clear distance; marks and outlines differ besides."""
    colours = schemes()[scheme]

    nearest = min(
        (distance(colours[one], colours[other], DEFICIENCIES[deficiency]), one, other)
        for one, other in combinations(together, 2)
    )

    assert nearest[0] > 12, nearest

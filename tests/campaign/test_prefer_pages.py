"""Pages of rankings as HTML: the golden page, what they must not tell, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mitl.errors import TemplateError
from mitl.hits.rendering import page_comparison, render_rankings
from mitl.hits.templates import load_template, template_names
from mitl.hits.validation import PageChecker
from mitl.records import BatchKind, Comparison, ComparisonRole, Direction, Preference

GOLDEN = Path(__file__).parents[1] / "golden" / "rankings-plain.html"
NAMES = template_names(asks=BatchKind.RANKINGS)
TEXTS = {10: 'A cat & a "dog" on <grass>.', 11: "Two boats.", 12: "A red bus.", 13: "Snow."}
SOURCES = {1: "/i/one.jpg", 2: "/i/two.jpg", 3: "/i/three.jpg"}


def asked(place, role=ComparisonRole.ASKED, direction=Direction.T2I):
    """Two lists that share an item, of systems whose names must not be seen."""
    if direction is Direction.T2I:
        query, left, right = 10, (1, 2), (3, 1)
    else:
        query, left, right = 1, (10, 11), (12, 10)
    expected = Preference.LEFT if role is ComparisonRole.CONTROL else None
    return Comparison(place, role, direction, query, "secretone", "secrettwo", left, right, expected)


def rendered(name, *items):
    """The page of these comparisons."""
    shown = [page_comparison(item, TEXTS, SOURCES) for item in items]
    return render_rankings(load_template(name), shown, contact="lab@example.org", estimate_s=100)


def test_the_golden_page_changes_only_on_purpose():
    """A change of wording shows as a readable diff; MITL_REWRITE_GOLDEN=1 writes it again, as for pages of pairs."""
    page = rendered("rankings-plain", asked(1), asked(2, ComparisonRole.CONTROL))
    if os.environ.get("MITL_REWRITE_GOLDEN"):
        GOLDEN.write_text(page, encoding="utf-8")

    assert page == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("name", NAMES)
def test_a_page_tells_neither_systems_nor_controls(name, direction):
    """A control's markup is that of any other comparison, and no name is on the page."""
    plain = rendered(name, asked(1, direction=direction))
    control = rendered(name, asked(1, ComparisonRole.CONTROL, direction))

    assert plain == control
    assert "secret" not in plain


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("name", NAMES)
def test_every_place_can_be_answered_and_its_texts_are_escaped(name, direction):
    """The check that publishing makes of every page."""
    items = [asked(place, direction=direction) for place in (1, 2, 3)]
    page = rendered(name, *items)

    PageChecker().check(page, [1, 2, 3], [], name, [("prefer", tuple(Preference))])
    with pytest.raises(TemplateError, match="offers no field p04_prefer with equal, left, right, so place 4"):
        PageChecker().check(page, [1, 2, 3, 4], [], name, [("prefer", tuple(Preference))])
    assert "<grass>" not in page and "&lt;grass&gt;" in page
    assert page.count(">both<") >= 6


def test_pages_of_both_directions_are_refused():
    """A page has one kind of search."""
    with pytest.raises(TemplateError, match="one direction only"):
        rendered("rankings-plain", asked(1), asked(2, direction=Direction.I2T))
    with pytest.raises(TemplateError, match="one direction only, and at least one"):
        rendered("rankings-plain")


def test_wordings_are_told_apart_by_what_they_ask(tmp_path):
    """Pages of pairs and of rankings; a folder of one's own may be either; another word is refused."""
    assert NAMES == ["rankings-plain", "rankings-reasons"]
    assert not set(NAMES) & set(template_names())
    assert [load_template(name).rationale for name in NAMES] == [False, True]
    with pytest.raises(
        TemplateError,
        match=r"'rankings-plain' asks for rankings, not pairs; known: pairs-composed, pairs-plain",
    ):
        load_template("rankings-plain", asks=BatchKind.PAIRS)
    own = tmp_path / "mine"
    own.mkdir()
    for file in ("page.html.j2", "instructions.html.j2", "hit_type.toml"):
        source = GOLDEN.parents[2] / "hit_templates" / "rankings-plain" / file
        (own / file).write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    assert load_template("mine", tmp_path, asks=BatchKind.RANKINGS).title
    toml = (own / "hit_type.toml").read_text(encoding="utf-8")
    (own / "hit_type.toml").write_text(toml.replace('asks = "rankings"', 'asks = "lists"'), encoding="utf-8")
    with pytest.raises(TemplateError, match=r"asks in .* is 'lists'; known: pairs, rankings"):
        load_template("mine", tmp_path)

"""Pages of ratings as HTML: the golden pages, what they must not tell, their size, and what is refused."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape
from similarity_page_kit import IMAGES, MIXED, NAMES, TEXTS, item, items, template

from mitl import resources
from mitl.campaign.kinds import wording_of
from mitl.campaign.kinds.similarity.packing import ShownPair, render_similarity
from mitl.errors import TemplateError
from mitl.hits.rendering import check_size, question_xml
from mitl.hits.validation import PageChecker, check_question, fields_of
from mitl.protocol.pages import parse_page
from mitl.records import Outcome

GOLDEN = Path(__file__).parents[1] / "golden"


def rendered(name, page):
    """The page of these pairs."""
    return render_similarity(template(name), page, contact="lab@example.org", estimate_s=100)


@pytest.mark.parametrize("name", NAMES)
def test_the_golden_page_changes_only_on_purpose(name):
    """A change of wording shows as a readable diff; MITL_REWRITE_GOLDEN=1 writes it again, as for pages of pairs."""
    first, second = ("/i/one.jpg", "/i/two.jpg") if name == IMAGES else ("/i/one.jpg", "Two boats.")
    page = [
        item(name, 1, 'A cat & a "dog" on <grass>.' if name == TEXTS else first, second),
        item(name, 2, "Snow." if name == TEXTS else "/i/three.jpg", second),
    ]
    golden = GOLDEN / f"{name}.html"

    html = rendered(name, page)

    if os.environ.get("MITL_REWRITE_GOLDEN"):
        golden.write_text(html, encoding="utf-8")
    assert html == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_every_place_can_be_answered_and_no_answer_is_the_default(name):
    """Without scripts too: a number to type, empty; the checks of publishing take the page."""
    page = items(name, 10)
    html = rendered(name, page)

    PageChecker().check(
        html,
        range(1, 11),
        [str(escape(text)) for one in page for text in one.shown],
        name,
        [("score", ()), *fields_of(template(name).questions)],
    )
    check_question(question_xml(html), html)
    sent = dict(parse_page(html).forms[0].sent())

    for place in range(1, 11):
        own = {field: sent[f"p{place:02d}_{field}"] for field in ("score", "outcome", "ms", "text")}
        assert own == {"score": "", "outcome": "answered", "ms": "", "text": ""}


@pytest.mark.parametrize("name", NAMES)
def test_only_images_can_fail_to_load(name):
    """A page of texts offers no such excuse."""
    offered = {control.value for control in parse_page(rendered(name, items(name, 1))).forms[0].controls}

    assert (Outcome.IMAGE_FAILED in offered) == (name != TEXTS)
    assert {Outcome.ANSWERED, Outcome.SKIPPED} <= offered


@pytest.mark.parametrize("name", NAMES)
def test_one_shell_for_everything_that_stands_on_a_page(name):
    """An identical, a repeated and an asked pair differ in what they show and in nothing else."""
    html = rendered(
        name,
        [
            item(name, 1, "/i/a", "/i/a" if name == IMAGES else "a"),
            item(name, 2, "/i/b", "/i/c" if name == IMAGES else "c"),
        ],
    )
    shells = set()
    for place, section in enumerate(re.findall(r"<section.*?</section>", html, re.DOTALL), 1):
        shell = re.sub(rf"\bp{place:02d}(?=[_ >])|(?<=Pair ){place}\b", "PLACE", section)
        shells.add(re.sub(r'(?<=src=")[^"]+|(?<=<p dir=auto>)[^<]+', "SHOWN", shell))

    assert len(shells) == 1


@given(text=st.text(min_size=1, max_size=200))
def test_whatever_a_caption_holds_is_text_and_nothing_else(text):
    """Neither tags nor the end of a CDATA section get out of it, and the reader of forms finds the same fields."""
    page = rendered(TEXTS, [item(TEXTS, 1, text, "x")])
    harmless = rendered(TEXTS, [item(TEXTS, 1, "y", "x")])

    check_question(question_xml(page), page)
    tags = re.compile(r"<[^>]*>")
    assert tags.findall(page) == tags.findall(harmless)
    assert f"<p dir=auto>{escape(text)}</p>" in page


@pytest.mark.parametrize("name", NAMES)
def test_ten_pairs_with_long_captions_fit_a_question(name):
    """Captions of 500 letters with what grows when escaped, under addresses as long as a store's on the web."""
    text, address = (
        ('A café & a "bar" by the sea. ' * 18)[:500],
        f"https://images.example.org/{'0' * 150}.jpg",
    )
    page = [
        item(name, place, text if name == TEXTS else address, address if name == IMAGES else text)
        for place in range(1, 11)
    ]

    assert check_size(question_xml(rendered(name, page))) < 60_000


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ([ShownPair(1, "a", "", "", "")], "place 1 has neither a text nor an image on one side"),
        ([ShownPair(1, "a", "/i/a", "b", "")], "place 1 has a text and an image on one side"),
        ([ShownPair(1, "a", "", "b", ""), ShownPair(2, "", "/i/a", "b", "")], "one task only"),
        ([], "at least one"),
    ],
)
def test_what_cannot_be_rated_is_refused(page, said):
    """In one line that says what is wrong."""
    with pytest.raises(TemplateError, match=said):
        rendered(MIXED, page)


def test_a_project_may_word_it_in_its_own_way(tmp_path):
    """A copy of the folder in the project's folder of wordings goes before, and shares what its kind shares."""
    own = tmp_path / "similarity-texts"
    bundled = Path(template(TEXTS).search_path[0])
    shutil.copytree(bundled, own)
    page = own / "page.html.j2"
    page.write_text(page.read_text(encoding="utf-8").replace("other words", "wording"), encoding="utf-8")

    mine = wording_of("similarity", TEXTS, tmp_path)

    html = render_similarity(mine, items(TEXTS, 1), contact=None, estimate_s=60)
    assert "even if in wording" in html and mine.content_hash != template(TEXTS).content_hash
    assert resources.folder("hit_templates") in mine.search_path

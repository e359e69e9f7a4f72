"""The explorer in a real browser: by keyboard, on a phone, and as axe sees it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from axe_kit import violations
from browser_fixtures import TWICE_THE_TEXT, becomes_true
from world_kit import SANDBOX, make_world, run_propose, work_until_done

from mitl.crowd_server.serving import RunningServer
from mitl.explorer.app import create_app
from mitl.explorer.pairs import ExploredItem, explored
from mitl.explorer.sources import of_project
from mitl.records.frames import NONE

pytest_plugins = ("browser_fixtures", "hit_page_fixtures")
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """A project that was worked on, looked at."""
    made = make_world(tmp_path_factory.mktemp("seen") / "p", n_images=12)
    run_propose(made, image_queries=5, caption_queries=12)
    work_until_done(made)
    with RunningServer(create_app("lab", of_project(made, SANDBOX))) as server:
        yield server.url


def test_a_person_searches_filters_and_follows_links(new_page, url):
    """Words by keyboard, a choice, then to an image and to one of its captions; the address holds it all."""
    page = new_page()
    page.goto(url)
    page.get_by_label("Words of the caption").fill("a")
    page.get_by_label("Annotation").select_option("found")
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Show").press("Enter")
    page.wait_for_url("**kind=found**")
    assert page.get_by_label("Words of the caption").input_value() == "a"
    assert page.locator(".pair").count() == page.locator(".mark.found").count() > 0
    page.locator(".pair .look").first.click()
    page.get_by_role("heading", name="Found: matches that the annotation lacks").wait_for()
    assert page.locator(".query img").evaluate("image => image.naturalWidth") > 50
    page.locator("section .caption a").first.click()
    page.locator("p.query.caption").wait_for()
    page.go_back()
    page.go_back()
    assert "kind=found" in page.url


def test_a_picture_that_lies_elsewhere_is_shown(new_page, site):
    """Also by plain http, as COCO's own addresses are."""
    known = pd.DataFrame({"pair": [0], "label": np.int8([NONE]), "original": [True], "positive": [True]})
    nobody = pd.DataFrame({"pair": [], "annotator": [], "rank": [], "yes": []}).astype(np.int64)
    items = [ExploredItem("1", url=f"{site.url}/i/1.png")], [ExploredItem("1", "A wall.")]
    page = new_page()
    with RunningServer(create_app("lab", explored(known, nobody, nobody, items, ()))) as server:
        page.goto(server.url)
        becomes_true(page, "document.querySelector('.pair img').naturalWidth === 64")


def test_many_pages_are_leafed_through_from_both_ends(new_page, url):
    """The last page and the first are one click away, with the choices of the address kept."""
    page = new_page()
    page.goto(url + "/?order=doubt")
    turn = page.get_by_role("navigation", name="More pairs")
    assert turn.get_by_role("link").all_inner_texts() == ["Next", "Last"]
    turn.get_by_role("link", name="Last").click()
    page.wait_for_url("**page=*")
    assert "order=doubt" in page.url
    at, last = page.locator(".turn span").inner_text().removeprefix("page ").split(" of ")
    assert at == last != "1"
    turn.get_by_role("link", name="First").click()
    page.locator(".turn span", has_text="page 1 of").wait_for()


def test_a_caption_of_a_whole_paragraph_does_not_blow_up_its_row(new_page, url):
    """Eight lines of it are shown; its link leads to the rest."""
    page = new_page(viewport={"width": 1280, "height": 900})
    page.goto(url)

    card = page.locator(".pair").first
    card.locator(".caption a").evaluate("link => { link.textContent = 'a long description '.repeat(90); }")

    assert 200 < card.bounding_box()["height"] < 330


@pytest.mark.parametrize("path", ["/", "/?kind=found", "/image/1", "/caption/3", "/?kind=odd"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.thorough(but=("390-*",))
def test_pages_are_clean_and_as_wide_as_the_window(new_page, url, path, width):
    """No fault for axe, in light and dark colours; nothing stands out to the right."""
    page = new_page(viewport={"width": width, "height": 900}, tolerate="422")
    page.goto(url + path)

    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate(TWICE_THE_TEXT)
    assert page.evaluate("document.documentElement.scrollWidth") <= width

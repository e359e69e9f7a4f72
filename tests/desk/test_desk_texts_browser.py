"""A reviewer of written texts in a real browser: each text beside its picture, whatever it holds, on any screen."""

from __future__ import annotations

import pytest
from browser_fixtures import becomes_true
from desk_kit import open_desk, written
from harvest_kit import in_pipeline, queued
from world_kit import SANDBOX, make_world

from mitl.campaign.kinds.texts.planning import CollectTexts
from mitl.campaign.publish import publish
from mitl.stages.collecting.choose import CollectWish, choose
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.simulate import simulate

pytest_plugins = ("browser_fixtures",)
pytestmark = pytest.mark.browser


def test_a_text_stands_beside_its_picture_and_its_fault_is_told(new_page, tmp_path):
    """An endless word widens no screen, a phone names each value, and the findings say which text breaks what rule."""
    settings = make_world(tmp_path / "p", n_images=4, draw=True)
    (tmp_path / "images.txt").write_text("1\n2\n3\n4\n")
    choose(settings, CollectWish("random", 4, True, tmp_path / "images.txt"), SANDBOX)
    publish(settings, CollectTexts(SANDBOX, "write"), confirm=lambda total: True)
    simulate(settings, SANDBOX, population="random")
    harvest(settings, SANDBOX)
    [number] = queued(settings)
    in_pipeline(settings, "UPDATE collection_answer SET text = '" + "w" * 300 + "' WHERE text != ''")

    with open_desk(settings) as desk:
        said = written(desk.get(f"/queue/{number}"))
        assert "too short" in said and "1 word, but 4 are the fewest" in said
        for width in (1280, 360):
            page = new_page(viewport={"width": width, "height": 900})
            page.goto(f"{desk.url}/?token={desk.desk.access.token}")
            page.get_by_role("heading", name="Overview").wait_for()
            page.goto(f"{desk.url}/queue/{number}")
            page.get_by_text("wwwww").first.wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") == width
            becomes_true(page, "[...document.querySelectorAll('.told img')].every(one => one.naturalWidth)")
            assert page.locator(".told img").count() == 4
            label = page.locator(".told td").first.evaluate(
                "one => getComputedStyle(one, '::before').content"
            )
            assert ("place" in label) is (width == 360)

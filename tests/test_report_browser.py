"""The report in a real browser: it sorts, asks the network for nothing, and fits a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_report_sample import HOSTILE, sample_input

from mitl.analysis.report.render import render_report

CHROMIUM = Path("/usr/bin/chromium")

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's Chromium; the tests are skipped where it or playwright is missing."""
    api = pytest.importorskip("playwright.sync_api", reason="pip package playwright is missing")
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is missing")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The sample's report as a file, its captions hostile."""
    folder = tmp_path_factory.mktemp("report")
    file = folder / "report.html"
    file.write_text(render_report(sample_input(folder, caption=HOSTILE)), encoding="utf-8")
    return file.as_uri()


def test_it_asks_for_nothing_and_runs_nothing_hostile(browser: Any, address: str) -> None:
    """One request, for the file itself; no dialog, nothing on the console, and every picture is there."""
    asked: list[str] = []
    seen: list[str] = []
    page = browser.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.on("dialog", lambda dialog: (seen.append(dialog.message), dialog.dismiss()))
    page.on("console", lambda message: seen.append(message.text))
    page.on("pageerror", lambda error: seen.append(str(error)))

    page.goto(address)
    widths = page.evaluate("[...document.images].map(image => image.naturalWidth)")

    page.close()
    assert asked == [address]
    assert seen == []
    assert len(widths) == 21
    assert set(widths) == {240}


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_hangs_over_the_edge(browser: Any, address: str, width: int) -> None:
    """Wide tables scroll inside their own box, on a phone as on a desk."""
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.goto(address)

    inner = page.evaluate("document.documentElement.scrollWidth")

    page.close()
    assert inner == width


def test_a_header_sorts_its_table_by_number_and_turns_round(browser: Any, address: str) -> None:
    """The first click puts the largest on top, the second the smallest; the header says which."""
    page = browser.new_page()
    page.goto(address)
    column = page.locator("#proposals thead th", has_text="New")
    cells = page.locator("#proposals tbody tr td:nth-child(5)")

    column.get_by_role("button").click()
    falling = (column.get_attribute("aria-sort"), cells.all_inner_texts())
    column.get_by_role("button").click()
    rising = (column.get_attribute("aria-sort"), cells.all_inner_texts())

    page.close()
    assert falling == ("descending", ["1,108", "402", "211", "140", "82"])
    assert rising == ("ascending", ["82", "140", "211", "402", "1,108"])


def test_the_dark_page_draws_light_ink(browser: Any, address: str) -> None:
    """The plots' labels take the page's ink, which is light on the dark page and black on paper."""
    ink = {}
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme)
        page.goto(address)
        ink[scheme] = page.evaluate("getComputedStyle(document.querySelector('#funnel svg text')).fill")
        page.emulate_media(media="print")
        ink[f"{scheme} print"] = page.evaluate("getComputedStyle(document.body).color")
        page.close()

    assert ink["light"] != ink["dark"]
    assert ink["light print"] == ink["dark print"] == "rgb(0, 0, 0)"

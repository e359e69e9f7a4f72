"""The report in a real browser: it sorts, asks the network for nothing, fits a phone and a sheet, needs no script."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from axe_kit import violations
from browser_fixtures import becomes_true
from report_kit import drawn_once  # noqa: F401 - pytest finds it here
from report_sample import HOSTILE, sample_input

from mitl.analysis.known_truth import DirectionScores, Score
from mitl.analysis.report import views
from mitl.analysis.report.render import SECTIONS, render_report

pytest_plugins = ("browser_fixtures",)
pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("drawn_once")]

NewPage = Callable[..., Any]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, drawn_once: None) -> str:  # noqa: F811
    """The sample's report as a file, its captions hostile."""
    folder = tmp_path_factory.mktemp("report")
    file = folder / "report.html"
    file.write_text(render_report(sample_input(folder, caption=HOSTILE)), encoding="utf-8")
    return file.as_uri()


@pytest.fixture
def no_network() -> Callable[[Any], Any]:
    """A page on which any request for something else than the file itself, inlined pictures apart, is a failure."""
    asked: list[str] = []

    def watch(page: Any) -> Any:
        page.on("request", lambda request: asked.append(request.url))
        page.on("websocket", lambda socket: asked.append(socket.url))
        return page

    yield watch
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert len({url for url in asked if url.startswith("file:")}) <= 1


def test_it_asks_for_nothing_and_runs_nothing_hostile(
    new_page: NewPage, no_network: Any, address: str, tmp_path: Path
) -> None:
    """No request but for the file, even where it is scrolled, unfolded and sorted; no dialog; every picture there."""
    said: list[str] = []
    page = no_network(new_page())
    page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    page.on("console", lambda message: said.append(message.text))

    page.goto(address)
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    for button in page.locator("th button").all()[::7]:
        button.click()
    page.mouse.wheel(0, 30_000)
    widths = page.evaluate("[...document.images].map(image => image.naturalWidth)")

    assert said == []
    assert len(widths) == len(views.picture_uses(sample_input(tmp_path)))
    assert set(widths) == {240}


def test_nothing_hangs_over_the_edge(new_page: NewPage, address: str) -> None:
    """Wide tables scroll inside their own box, on a phone as on a desk, with everything unfolded."""
    page = new_page()
    page.goto(address)
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")

    for width in (360, 390, 768, 1280, 1920):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") == width


def test_header_sections_and_footer_stand_on_one_edge(new_page: NewPage, address: str) -> None:
    """Whatever the width: the title, every heading and the last line begin at the same place."""
    page = new_page()
    page.goto(address)

    for width in (390, 1000, 1240, 1600):
        page.set_viewport_size({"width": width, "height": 900})
        lefts = page.evaluate(
            "[...document.querySelectorAll('h1, h2, header > .lede')].map(one => one.getBoundingClientRect().left)"
        )
        assert max(lefts) - min(lefts) < 1, width


def test_every_table_has_headers_to_sort_by(new_page: NewPage, address: str) -> None:
    """None is left out, and averages stay at the foot."""
    page = new_page()
    page.goto(address)

    without = page.evaluate(
        "[...document.querySelectorAll('table')].filter(one => !one.querySelector('thead button')).length"
    )

    assert page.evaluate("document.querySelectorAll('table').length") > 10
    assert without == 0
    assert page.evaluate("document.querySelectorAll('tbody tr.total').length") == 0


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.thorough(but=("390",))
def test_axe_finds_nothing_wrong(new_page: NewPage, address: str, width: int) -> None:
    """With everything unfolded, in light and dark colours, on a phone and on a desk."""
    page = new_page(viewport={"width": width, "height": 800})
    page.goto(address)
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")

    assert violations(page) == []


def test_a_header_sorts_its_table_by_number_turns_round_and_lets_go(new_page: NewPage, address: str) -> None:
    """First the largest on top, then the smallest, then the table's own order; the header says which."""
    page = new_page()
    page.goto(address)
    column = page.locator("#proposals thead th", has_text="New")
    cells = page.locator("#proposals tbody tr td:nth-child(5)")

    seen = []
    for _ in range(3):
        column.get_by_role("button").click()
        seen.append((column.get_attribute("aria-sort"), cells.all_inner_texts()))

    assert seen == [
        ("descending", ["1,108", "402", "211", "140", "82"]),
        ("ascending", ["82", "140", "211", "402", "1,108"]),
        (None, ["1,108", "402", "211", "140", "82"]),
    ]


def test_money_shares_times_and_numbered_names_sort_by_their_size(new_page: NewPage, address: str) -> None:
    """However they are written; no cell of any table that begins as a number is taken for a word."""
    page = new_page()
    page.goto(address)
    written = [
        "1,234",
        "−0.5",
        "$9.00",
        "−$1,234.50",
        "×3.6",
        "< 0.1 %",
        "> 99.9 %",
        "12 s",
        "4 min 12 s",
        "2 h 5 min",
    ]

    numbers = page.evaluate("texts => texts.map(numberIn)", written)
    words = page.evaluate("['batch-10', 'batch-9', 'W2', '', '4 of 5'].map(numberIn).map(Number.isNaN)")
    order = page.evaluate("['batch-10', 'batch-9', 'Batch-1'].sort((a, b) => compare(a, b, 1))")
    mistaken = page.evaluate(
        """[...document.querySelectorAll("table.sortable")].flatMap(table => [...table.tBodies[0].rows]
            .flatMap(row => [...row.cells].map((cell, column) => [cell, valueOf(row, column)])))
            .filter(([cell, value]) => cell.tagName === "TD" && typeof value === "string")
            .filter(([cell, value]) => /^[-−$×<>]?\\s*[$]?[0-9]/.test(value))
            .map(([cell, value]) => value)"""
    )

    assert numbers == [1234, -0.5, 9, -1234.5, 3.6, 0.1, 99.9, 12, 252, 7500]
    assert words == [True] * 5
    assert order == ["Batch-1", "batch-9", "batch-10"]
    assert mistaken == []


def test_the_keyboard_sorts_by_words(new_page: NewPage, address: str) -> None:
    """A column of words begins with A; Enter and Space both press the header, and the focus stays on it."""
    page = new_page()
    page.goto(address)
    column = page.locator("#proposals thead th").first
    names = page.locator("#proposals tbody th")

    column.get_by_role("button").focus()
    page.keyboard.press("Enter")
    rising = names.all_inner_texts()
    page.keyboard.press("Space")
    falling = names.all_inner_texts()

    assert rising == sorted(rising)
    assert falling == rising[::-1]
    assert page.evaluate("document.activeElement.closest('th').getAttribute('aria-sort')") == "descending"


def test_what_is_missing_stays_below_both_ways(new_page: NewPage, tmp_path: Path) -> None:
    """A worker whose time nobody knows is neither the fastest nor the slowest."""
    from dataclasses import replace

    data = sample_input(tmp_path, examples=0)
    assert data.crowd is not None
    first, *others = data.crowd.workers
    workers = (replace(first, median_active_s=None), *others)
    file = tmp_path / "r.html"
    file.write_text(
        render_report(replace(data, crowd=replace(data.crowd, workers=workers))), encoding="utf-8"
    )
    page = new_page()
    page.goto(file.as_uri())
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    column = page.locator("#workers thead th", has_text="Time a HIT")
    last = page.locator("#workers tbody tr").last.locator("td:nth-child(7)")

    for _ in range(2):
        column.get_by_role("button").click()
        assert last.inner_text() == "–"


def test_without_scripts_it_is_whole(new_page: NewPage, no_network: Any, address: str) -> None:
    """Every section, plot and table is there, foldable parts unfold by themselves, and no dead buttons stand around."""
    page = no_network(new_page(java_script_enabled=False))
    page.goto(address)

    for section in SECTIONS:
        assert page.locator(f"#{section.id}").is_visible()
    assert page.locator("th button").count() == 0
    assert page.locator("#funnel svg").is_visible()
    page.locator("#funnel summary").click()
    assert page.locator("#funnel table").is_visible()


def test_no_label_of_a_chart_is_cut(new_page: NewPage, tmp_path: Path) -> None:
    """With long and short names, shares of 100 % and 0 %, and one query: every text lies inside its drawing."""
    names = ("a-machine-annotator-with-a-very-long-name", "x")
    data = sample_input(tmp_path, names=names, examples=0)
    assert data.truth is not None
    extreme = replace(data.truth, original=full(7), release=full(0), by_annotator=(("x", full(7)),))
    pages = {"usual": data, "extreme": replace(data, truth=extreme, multiplicity=data.multiplicity[:1])}
    page = new_page()
    for name, shown in pages.items():
        file = tmp_path / f"{name}.html"
        file.write_text(render_report(shown), encoding="utf-8")
        page.goto(file.as_uri())
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")

        cut = page.evaluate("""() => [...document.querySelectorAll('svg[role=img] text')].filter(text => {
          const box = text.getBoundingClientRect(), edge = text.ownerSVGElement.getBoundingClientRect();
          return box.left < edge.left - 1 || box.right > edge.right + 1
              || box.top < edge.top - 1 || box.bottom > edge.bottom + 1;
        }).map(text => text.textContent)""")
        assert cut == []


def full(found: int) -> DirectionScores:
    """Everything called positive is, and everything that is was called so; or nothing was right."""
    score = Score(found, 7, 7)
    return DirectionScores(score, score, score)


def test_the_dark_page_draws_light_ink(new_page: NewPage, address: str) -> None:
    """The plots' labels take the page's ink, which is light on the dark page and black on paper."""
    ink = {}
    for scheme in ("light", "dark"):
        page = new_page(color_scheme=scheme)
        page.goto(address)
        ink[scheme] = page.evaluate("getComputedStyle(document.querySelector('#funnel svg text')).fill")
        page.emulate_media(media="print")
        ink[f"{scheme} print"] = page.evaluate("getComputedStyle(document.body).color")

    assert ink["light"] != ink["dark"]
    assert ink["light print"] == ink["dark print"] == "rgb(0, 0, 0)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_paper_carries_the_report_and_not_its_furniture(new_page: NewPage, address: str, scheme: str) -> None:
    """Black on white whatever the screen; no navigation, no folded line; drawings keep within the sheet."""
    page = new_page(color_scheme=scheme)
    page.goto(address)
    page.emulate_media(media="print", color_scheme=scheme)
    page.set_viewport_size({"width": 688, "height": 1000})  # 182 mm, an A4 sheet without its margins

    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("nav").is_visible()
    assert not any(one.is_visible() for one in page.locator("details:not([open])").all())
    assert page.evaluate("document.documentElement.scrollWidth") <= 688
    sheet = page.pdf(format="A4", prefer_css_page_size=True)
    assert sheet.startswith(b"%PDF")
    assert 5 <= sheet.count(b"/Type /Page\n") + sheet.count(b"/Type /Page ") <= 40


def test_the_navigation_marks_the_section_in_view(new_page: NewPage, address: str) -> None:
    """One link is the current one, and following a link moves the mark."""
    page = new_page(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    page.goto(address)

    page.locator("nav a", has_text="Disagreements").click()
    becomes_true(page, "document.querySelector('nav [aria-current]')?.hash === '#disputes'")

    assert page.locator("nav [aria-current]").count() == 1

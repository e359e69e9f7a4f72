"""The documentation as a site: it builds strictly, asks nobody else for anything, and links lead somewhere."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest_plugins = ("browser_fixtures",)

ROOT = Path(__file__).resolve().parents[2]
LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "object": "data"}
"""Elements by which a page fetches something by itself, and the attribute with the address."""


class Page(HTMLParser):
    """What a page loads, where it leads, and the names inside it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.names: set[str] = set()
        self.path = path
        self.text = path.read_text(encoding="utf-8")
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take one element's addresses and its id."""
        found = dict(attrs)
        if found.get("id"):
            self.names.add(str(found["id"]))
        if tag in LOADS and found.get(LOADS[tag]) and found.get("rel") not in ("canonical", "prev", "next"):
            self.loads.append(str(found[LOADS[tag]]))
        if tag == "a" and found.get("href"):
            self.links.append(str(found["href"]))


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> dict[str, Page]:
    """Every page of the built site, by its path."""
    pytest.importorskip("material", reason="pip package mkdocs-material is missing")
    pytest.importorskip("mkdocstrings_handlers.python", reason="pip package mkdocstrings-python is missing")
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(out)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr.strip()) == (0, "")
    return {path.relative_to(out).as_posix(): Page(path) for path in sorted(out.rglob("*.html"))}


@pytest.mark.slow
def test_every_document_is_a_page_that_the_menu_names(site):
    """No document is forgotten, and none of the menu's is missing."""
    documents = {f"{path.stem}.html" for path in (ROOT / "docs").glob("*.md")}
    documents |= {f"notebooks/{path.stem}.html" for path in (ROOT / "docs" / "notebooks").glob("*.ipynb")}
    menu = {urlsplit(link).path for link in site["index.html"].links}

    assert documents <= set(site)
    assert documents - menu - {"index.html"} == set()


@pytest.mark.slow
def test_every_public_name_is_described(site):
    """What `mitl`, `mitl.metrics` and `mitl.errors` give to users, each with its docstring."""
    import mitl.errors
    import mitl.metrics

    names = {f"{part.__name__}.{name}" for part in (mitl, mitl.metrics) for name in part.__all__}
    names |= {f"mitl.errors.{name}" for name in vars(mitl.errors) if name.endswith("Error")}

    assert names - site["api.html"].names == set()
    assert "its found false negatives" in site["api.html"].text


@pytest.mark.slow
def test_a_notebook_is_shown_as_it_was_executed(site):
    """Its texts, code, frames and pictures, and the file itself to take away."""
    page = site["notebooks/release.html"]

    assert "Found false negatives" in page.text and page.text.count("data:image/jpeg") == 6
    assert "<th>image_id</th>" in page.text.replace(' class="whole"', "") and "<style scoped" not in page.text
    assert "release.ipynb" in page.links and (page.path.parent / "release.ipynb").is_file()


@pytest.mark.slow
def test_pages_load_nothing_from_other_hosts(site):
    """Scripts, styles, fonts and pictures are the site's own."""
    foreign = [(name, load) for name, page in site.items() for load in page.loads if urlsplit(load).netloc]

    assert foreign == []


@pytest.mark.slow
def test_links_inside_the_site_lead_to_a_page_and_a_heading(site):
    """A renamed heading or page would leave a reader nowhere."""
    broken = []
    for name, page in site.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or name == "404.html":
                continue
            target = (Path(name).parent / parts.path).as_posix() if parts.path else name
            if target.endswith(".html"):
                known = site.get(os.path.normpath(target))
                if known is None or (parts.fragment and unquote(parts.fragment) not in known.names):
                    broken.append((name, link))

    assert broken == []


@pytest.mark.slow
def test_no_fence_of_code_shows_as_text(site):
    """A block of code whose head the site's Markdown does not know would run into the text around it."""
    assert [name for name, page in site.items() if "```" in page.text] == []


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.thorough
def test_no_name_or_number_in_a_table_is_cut_in_two(site, browser, width):
    """On a telephone as on a desk; what is longer than a line may be."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    cut = []
    for name in site:
        page.goto((site[name].path).as_uri())
        cut += [(name, word) for word in page.evaluate(CUT_WORDS) if len(word) <= 40]
    page.close()

    assert cut == []


CUT_WORDS = """() => {
  const found = [];
  for (const cell of document.querySelectorAll('.md-content td, .md-content th')) {
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const text = texts.currentNode;
      if (text.parentElement.closest('math')) continue;
      for (const word of text.data.matchAll(/\\S+/g)) {
        const range = document.createRange();
        range.setStart(text, word.index);
        range.setEnd(text, word.index + word[0].length);
        const lines = new Set([...range.getClientRects()].filter(r => r.width).map(r => Math.round(r.top)));
        if (lines.size > 1) found.push(word[0]);
      }
    }
  }
  return found;
}"""


def hook(name):
    """A module that changes pages when the site is built."""
    place = importlib.util.spec_from_file_location(name, ROOT / "docs" / "site" / f"{name}.py")
    assert place is not None and place.loader is not None
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


def formulas():
    """The hook that turns formulas into MathML."""
    pytest.importorskip("latex2mathml", reason="pip package latex2mathml is missing")
    return hook("formulas")


def test_words_in_cells_are_marked_and_markup_is_left_alone():
    """Those with a hyphen or a dash, up to a length; formulas, links and text outside of tables stay as they are."""
    long = "a-" * 21
    cell = f'<td style="text-align: right;">1 (2–3) <a href="x-y.html">b-c</a> – <math>a-b</math> {long}</td>'

    found = hook("whole_words").on_page_content(f"<p>R-Precision</p><table>{cell}</table>")

    assert found == (
        '<p>R-Precision</p><table><td style="text-align: right;">1 <span class="whole">(2–3)</span> '
        '<a href="x-y.html"><span class="whole">b-c</span></a> – <math>a-b</math> '
        f"{long}</td></table>"
    )


def test_formulas_become_mathml_and_code_and_money_stay():
    """What stands between dollars is a formula, unless it is code or an amount."""
    text = "A $x^2$ and\n\n$$\\frac{a}{b}$$\n\n`$HOME` costs $1.00 to $2.00; ```\n$y$\n```"

    found = formulas().on_page_markdown(text)

    assert found.count("<math") == 2
    assert 'display="block"' in found
    assert re.search(r"`\$HOME` costs \$1\.00 to \$2\.00", found)
    assert "$y$" in found

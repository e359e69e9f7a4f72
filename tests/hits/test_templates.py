"""The wordings of the HIT page: found by name, checked, and known by their content."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mitl import resources
from mitl.errors import TemplateError
from mitl.hits.rendering import PagePair, render_page
from mitl.hits.templates import load_template, template_names

BUNDLED = resources.folder("hit_templates")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A project's folder with one wording of its own, copied from a bundled one."""
    shutil.copytree(BUNDLED / "pairs-plain", tmp_path / "pairs-short")
    return tmp_path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_two_wordings_are_bundled():
    """One without the questions about reasons, one with them."""
    assert template_names() == ["pairs-plain", "pairs-rationale"]
    assert [load_template(name).rationale for name in template_names()] == [False, True]
    assert [load_template(name).seconds_per_pair for name in template_names()] == [15, 25]


def test_an_unknown_wording_is_refused_with_the_known_ones():
    """A slip of the pen gets the right names; the shared parts are not a wording."""
    with pytest.raises(
        TemplateError, match=r"'pairs-plane'; known: pairs-composed, pairs-plain, .*, rankings-plain, "
    ):
        load_template("pairs-plane")
    with pytest.raises(TemplateError, match="_shared"):
        load_template("_shared")


@pytest.mark.parametrize("name", ["", ".", "..", "../hit_templates/pairs-plain", "pairs-plain/"])
def test_a_name_never_leads_out_of_the_folder(name):
    """Only plain names are wordings."""
    with pytest.raises(TemplateError, match="no HIT template called"):
        load_template(name)


def test_a_projects_own_wording_uses_the_shared_parts(own):
    """A new wording is a new folder; what it does not bring comes from the bundled shared parts."""
    edit(own / "pairs-short/instructions.html.j2", "Small slips", "Little slips")
    template = load_template("pairs-short", own)

    page = render_page(template, [PagePair(1, "/i/a.jpg", "A cat.")])

    assert template_names(own) == ["pairs-plain", "pairs-rationale", "pairs-short"]
    assert "Little slips" in page and "name=p01_label" in page


def test_a_projects_own_wording_goes_before_a_bundled_one(own):
    """Copying a bundled wording under its own name is how one changes it."""
    (own / "pairs-short").rename(own / "pairs-plain")
    edit(own / "pairs-plain/hit_type.toml", "seconds_per_pair = 15", "seconds_per_pair = 12")

    assert load_template("pairs-plain", own).seconds_per_pair == 12


def test_the_hash_follows_the_wording(own):
    """Equal files hash equally wherever they lie; any edit, in the shared parts too, gives another hash."""
    shutil.copytree(BUNDLED / "_shared", own / "_shared")
    before = load_template("pairs-short", own).content_hash
    again = load_template("pairs-short", own).content_hash
    edit(own / "_shared/pair.html.j2", "100% NO", "Not at all")
    after = load_template("pairs-short", own)

    assert before == again != after.content_hash
    assert "Not at all" in render_page(after, [PagePair(1, "/i/a.jpg", "A cat.")])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rationale = false", "rationale = 0", "rationale in .* is 0, but must be true or false"),
        ("seconds_per_pair = 15", "seconds_per_pair = 0", "seconds_per_pair in .* whole number from 1"),
        ("seconds_per_pair = 15", "seconds_per_pair = true", "seconds_per_pair in .* whole number from 1"),
        ("seconds_per_pair = 15", "second_per_pair = 15", "needs exactly"),
        ("rationale = false", "rationale = fals", "is not TOML"),
        ('title = "', 'title = "' + "x" * 128, "title in .* 1 to 128 characters"),
    ],
)
def test_a_faulty_hit_type_is_one_line(own, old, new, message):
    """The file, the key and what would be right."""
    edit(own / "pairs-short/hit_type.toml", old, new)

    with pytest.raises(TemplateError, match=message):
        load_template("pairs-short", own)


def test_a_wording_that_lacks_a_file_is_refused(own):
    """Before anything is posted."""
    (own / "pairs-short/instructions.html.j2").unlink()

    with pytest.raises(TemplateError, match=r"lacks instructions\.html\.j2"):
        load_template("pairs-short", own)


@pytest.mark.parametrize(
    "content", [b"<p>\n{% if %}", "<p>\nGr\u00fc\u00dfe".encode("latin-1")], ids=["syntax", "latin-1"]
)
def test_a_broken_wording_names_file_and_line(own, content):
    """A template error is the user's to mend, so it is one line."""
    (own / "pairs-short/instructions.html.j2").write_bytes(content)

    with pytest.raises(TemplateError, match=r"broken in instructions.html.j2, line 2"):
        render_page(load_template("pairs-short", own), [])


@pytest.mark.parametrize(
    "source",
    [
        "{{ nope }}",
        "{{ 1 / 0 }}",
        "{{ pairs + 1 }}",
        "{{ title.x() }}",
        "{{ '%d'|format(title) }}",
        "{{ minutes|list }}",
    ],
)
def test_a_wording_that_fails_on_a_page_is_one_line(own, source):
    """Whatever Python says of what it asks for."""
    (own / "pairs-short/instructions.html.j2").write_text(source, encoding="utf-8")

    with pytest.raises(TemplateError, match=r"HIT template 'pairs-short' does not render: .") as caught:
        render_page(load_template("pairs-short", own), [PagePair(1, "/i/a.jpg", "A cat.")])
    assert "\n" not in str(caught.value)

"""Pages of pairs as HTML and as question XML."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import defusedxml.ElementTree
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mitl.errors import TemplateError
from mitl.hits.rendering import (
    HTML_QUESTION_NAMESPACE,
    MAX_QUESTION_BYTES,
    PagePair,
    check_size,
    lean_script,
    question_xml,
    render_page,
)
from mitl.hits.templates import load_template, template_names
from mitl.protocol.answer_xml import xml_safe
from mitl.protocol.pages import bind_submission, parse_page
from mitl.records import Concept, Label, Outcome, PartKind, Shortcoming
from mitl.records.forms import SET_FORMS
from mitl.records.questions import Question

GOLDEN = Path(__file__).parents[1] / "golden"
TWENTY = [PagePair(place, f"/i/{place:032x}.jpg", f"Description number {place}.") for place in range(1, 21)]


FORMS = {name: form for form in SET_FORMS.values() for name in template_names(asks=form.asks)}
"""Every bundled wording of pairs, and what it shows."""


def page(name: str, pairs: list[PagePair] = TWENTY) -> str:
    return render_page(load_template(name), shown_by(name, pairs))


def measured(name: str) -> list[Question]:
    return [question for question in load_template(name).questions if question.measured]


def shown_by(name: str, pairs: list[PagePair]) -> list[PagePair]:
    """The same as a wording shows it: a text in the image's place, or a second image."""
    if FORMS[name].left_part is PartKind.TEXT:
        return [replace(pair, image_src="", texts=("A title", "A text.")) for pair in pairs]
    if FORMS[name].composed:
        return [replace(pair, reference_src=pair.image_src.replace("/i/", "/i/first")) for pair in pairs]
    return pairs


def html_of(xml: str) -> str:
    root = defusedxml.ElementTree.fromstring(xml)
    content, height = root
    assert root.tag == f"{{{HTML_QUESTION_NAMESPACE}}}HTMLQuestion"
    assert height.text == "0"
    return content.text or ""


@pytest.mark.parametrize("name", FORMS)
def test_a_change_of_wording_shows_as_a_diff(name):
    """The page equals the kept one; MITL_REWRITE_GOLDEN=1 keeps the new one after it was looked at."""
    pairs = [
        PagePair(1, "/i/0a1b.jpg", 'A dog & a "cat" <on> a mat.'),
        PagePair(2, "/i/2c3d.jpg", "Two zebras."),
    ]
    golden = GOLDEN / f"{name}.html"

    html = render_page(load_template(name), shown_by(name, pairs), contact="crowd@example.org")

    if os.environ.get("MITL_REWRITE_GOLDEN"):
        golden.write_text(html, encoding="utf-8")
    assert html == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", FORMS)
def test_the_form_asks_for_every_field_without_scripts(name):
    """The static inputs are the form: each place has its fields, and each choice its values."""
    form = parse_page(page(name)).forms[0]
    choices: dict[str, list[str]] = {}
    for control in form.controls:
        choices.setdefault(control.name, []).append(control.value)

    expected = {"assignmentId": [""]}
    for place in range(1, 21):
        expected[f"p{place:02d}_label"] = list(Label)
        if load_template(name).rationale:
            expected[f"p{place:02d}_shortcoming"] = list(Shortcoming)
            expected[f"p{place:02d}_concept"] = list(Concept)
            expected[f"p{place:02d}_text"] = [""]
        failed = () if FORMS[name].left_part is PartKind.TEXT else (Outcome.IMAGE_FAILED,)
        expected[f"p{place:02d}_outcome"] = [Outcome.ANSWERED, Outcome.SKIPPED, *failed]
        expected[f"p{place:02d}_ms"] = [""]
        expected |= {f"p{place:02d}_{question.name}": [""] for question in measured(name)}
    assert choices == expected
    assert (form.method, form.action) == ("post", "https://www.mturk.com/mturk/externalSubmit")
    assert [value for name, value in form.sent() if name.endswith("_outcome")] == ["answered"] * 20


@pytest.mark.parametrize("name", FORMS)
def test_the_page_needs_nothing_but_its_images(name):
    """No style sheet, script, font or frame from anywhere."""
    html = page(name)

    assert re.findall(r'\ssrc="?([^">\s]+)', html) == [
        source for pair in shown_by(name, TWENTY) for source in (pair.reference_src, pair.image_src) if source
    ]
    assert not re.search(r"<link|@import|url\(|<iframe|<script [^>]*src|fetch\(|XMLHttpRequest|eval\(", html)
    assert set(re.findall(r"https?://[^\"'\s]+", html)) == {"https://www.mturk.com/mturk/externalSubmit"}


@pytest.mark.parametrize("name", FORMS)
def test_nothing_on_the_page_tells_pairs_apart(name):
    """After place, image and description are blotted out, all twenty pairs have the same markup."""
    html = page(name)
    sections = re.findall(r"<section.*?</section>", html, re.DOTALL)
    blotted = set()
    for pair, section in zip(TWENTY, sections, strict=True):
        plain = section.replace(pair.image_src.removeprefix("/i/"), "SRC").replace(pair.caption, "CAPTION")
        blotted.add(
            re.sub(
                rf"\bp{pair.place:02d}(?=[_ >])|(?<=Pair ){pair.place}\b|(?<=[a-z] ){pair.place}(?=\")",
                "PLACE",
                plain,
            )
        )

    assert len(blotted) == 1


@pytest.mark.parametrize("name", FORMS)
def test_every_input_has_a_label(name):
    """Screen readers, and thumbs, need the words to belong to the box."""
    html = page(name)
    body = html[html.index("<form") : html.index("</form>")]
    outside = re.sub(r"<label.*?</label>", "", body, flags=re.DOTALL)

    assert set(re.findall(r"<(?:input|select)[^>]*>", outside)) == {
        '<input type="hidden" name="assignmentId" id="assignmentId" value="" data-mitl-assignment>',
        *(
            f"<input type=hidden name=p{place:02d}_{kind}>"
            for place in range(1, 21)
            for kind in ("ms", *(question.name for question in measured(name)))
        ),
    }
    assert body.count("<legend>") == body.count("<fieldset")


def test_twenty_long_pairs_with_reasons_fit_a_question():
    """250-character descriptions and 60-character addresses at all places leave 3,500 bytes for a wording's own."""
    pairs = [PagePair(place, f"https://example.org/{place:036}.jpg", "word " * 50) for place in range(1, 21)]
    assert {(len(pair.image_src), len(pair.caption)) for pair in pairs} == {(60, 250)}

    size = check_size(question_xml(page("pairs-rationale", pairs)))

    assert size < MAX_QUESTION_BYTES - 3500


def test_twenty_usual_pairs_leave_room_to_spare():
    """73 characters, as long as 19 in 20 COCO captions, and served images: under 60,000 bytes with reasons."""
    pairs = [PagePair(place, f"/i/{place:032x}.jpg", "x" * 73) for place in range(1, 21)]

    assert check_size(question_xml(page("pairs-rationale", pairs))) < 60_000
    assert check_size(question_xml(page("pairs-plain", pairs))) < 40_000


def test_a_question_over_the_limit_is_refused_with_its_size():
    """The API would refuse it too, after some HITs were paid for."""
    pairs = [PagePair(place, "/i/a.jpg", "\N{SNOWMAN}" * 1000) for place in range(1, 21)]
    xml = question_xml(page("pairs-plain", pairs))

    with pytest.raises(TemplateError, match=f"has {len(xml.encode()):,} bytes, but the limit is 65,535"):
        check_size(xml)


def test_the_limit_counts_bytes_and_includes_itself():
    """65,535 bytes pass, one more does not; a letter of two bytes counts twice."""
    assert check_size("é" + "x" * 65_533) == 65_535
    with pytest.raises(TemplateError, match="65,536"):
        check_size("é" + "x" * 65_534)


HOSTILE = '</p><script>alert(1)</script><img src=x onerror="alert(2)">\']]>{{ 7*7 }}&lt;'


@pytest.mark.parametrize("name", FORMS)
def test_a_hostile_description_stays_text(name):
    """Markup, script, template code and the end of CDATA in a description are shown, not run."""
    html = html_of(question_xml(page(name, [PagePair(1, "/i/a.jpg", HOSTILE)])))
    harmless = page(name, [PagePair(1, "/i/a.jpg", "A cat.")])

    assert html.count("<script") == harmless.count("<script") == 1
    assert html.count("<img") == harmless.count("<img")
    assert "49" not in re.sub(r"\s", "", re.search(r"<h2>.*?<fieldset", html, re.DOTALL)[0])
    assert parse_page(html).forms == parse_page(harmless).forms


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.characters(codec=None)).map(lambda text: text + "]]>"))
def test_any_text_survives_the_xml(text):
    """Question XML always parses, and gives back the page but for what XML cannot carry."""
    assert html_of(question_xml(text)) == re.sub("\r\n?", "\n", xml_safe(text))


def test_the_page_tells_the_honest_time_and_whom_to_ask():
    """The estimate in whole minutes, and the contact as text."""
    template = load_template("pairs-plain")

    assert "(about 5 minutes)" in render_page(template, TWENTY)
    assert "(about 1 minute)" in render_page(template, TWENTY[:1])
    assert "(about 7 minutes)" in render_page(template, TWENTY, estimate_s=400)
    assert "Write to a&lt;b@example.org." in render_page(template, TWENTY, contact="a<b@example.org")
    assert "through the site that showed you this task" in render_page(template, TWENTY)


@pytest.mark.parametrize("name", FORMS)
def test_binding_fills_the_form_for_browsers_without_scripts(name):
    """Only the two marked attributes change, and what goes in cannot break out."""
    html = page(name)

    bound = bind_submission(html, 'http://127.0.0.1:8765/s/T"<>&x/mturk/externalSubmit', 'A"1')

    form = parse_page(bound).forms[0]
    assert form.action == 'http://127.0.0.1:8765/s/T"<>&x/mturk/externalSubmit'
    assert form.sent()[0] == ("assignmentId", 'A"1')
    assert parse_page(html).forms[0].controls[1:] == form.controls[1:]
    assert len(bound.splitlines()) == len(html.splitlines())
    assert bind_submission(bound, "/again", "B") == bind_submission(html, "/again", "B")


def test_binding_takes_backslashes_as_they_are():
    """The address is text, not a replacement pattern."""
    html = bind_submission(page("pairs-plain"), r"/s/\1\g<0>", r"\2")

    assert parse_page(html).forms[0].action == r"/s/\1\g<0>"


def test_binding_leaves_foreign_pages_alone():
    """Another requester's page has no marks, though it may have a form."""
    html = '<form action="https://www.mturk.com/x"><input name="assignmentId" value="">'

    assert bind_submission(html, "/s", "A1") == html


def test_a_script_loses_its_blanks_and_nothing_else():
    """Strings, template literals and line ends stay; blanks beside punctuation go."""
    lean = lean_script(
        'const a = {b: [1, 2]}, c = "x , y";\nif (a) go(`${a} = "b"`, \'( )\') ;\nreturn -1 + 2\n'
    )

    assert lean == 'const a={b:[1,2]},c="x , y";\nif(a)go(`${a} = "b"`,\'( )\');\nreturn -1 + 2\n'


@given(st.text(alphabet="ab =,;:?(){}[]<>&|'\"`\\\n\t+-!"))
def test_a_lean_script_has_the_same_characters_but_for_blanks(source):
    """Whatever comes in, only blanks are taken away, and a second time none."""
    lean = lean_script(source)

    assert re.sub(r"[ \t]", "", lean) == re.sub(r"[ \t]", "", source)
    assert lean_script(lean) == lean

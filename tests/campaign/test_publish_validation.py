"""What may not be posted: pages that break the packing rules, broken wordings, fields beyond the API's limits."""

from __future__ import annotations

import dataclasses
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape
from publish_kit import proposed
from world_kit import SANDBOX, run_publish

from mitl import resources
from mitl.campaign.validating import ValidatingClient, ValidatingTransport
from mitl.crowd.client import HitRequest
from mitl.errors import CrowdError, PackingError, TemplateError
from mitl.hits.packing import pack
from mitl.hits.rendering import PagePair, question_xml, render_page
from mitl.hits.templates import load_template, template_names
from mitl.hits.validation import (
    PageChecker,
    check_batch,
    check_markup,
    check_page,
    check_question,
    check_request,
)
from mitl.records import Page, Pair, PairRole
from mitl.stages.reporting.status import status

PAIRS = [Pair(image, image + 100) for image in range(1, 60)]
HOSTILE = ["</p><script>", "<b>", 'a "quoted" & <odd> one', "]]>", "bell \x07 and\r\nline", "p", ""]
FORM = "<form method=post action=x data-mitl-submit><input name=assignmentId value=x data-mitl-assignment>"
GOLDS = ([Pair(1, 500), Pair(2, 500)], [Pair(3, 500), Pair(4, 500)])


@given(n=st.integers(1, 59), seed=st.integers(0, 5))
def test_whatever_is_packed_passes(n, seed):
    """The packing rules and their check agree: the check raises nothing."""
    pages = pack(PAIRS[:n], *GOLDS, seed=seed)

    check_batch(pages)
    for page in pages:
        check_page(page.items, f"b1:{page.number}:1")


def _page(change):
    (page,) = pack(PAIRS[:18], *GOLDS, seed=0)
    items = list(page.items)
    change(items)
    return items


def _set(items, at, **values):
    items[at] = dataclasses.replace(items[at], **values)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda items: _set(items, 1, pair=items[0].pair), "twice"),
        (lambda items: _gold_to_candidate(items, PairRole.GOLD_POSITIVE), "0 positive and 1 negative"),
        (lambda items: _gold_to_candidate(items, PairRole.GOLD_NEGATIVE), "1 positive and 0 negative"),
    ],
)
def test_a_page_that_breaks_a_packing_rule_is_named(change, said):
    """A pair twice, or a control of one kind missing: the line names the HIT and what was found."""
    with pytest.raises(PackingError, match="HIT b1:7:1 .*" + said):
        check_page(_page(change), "b1:7:1")


def _gold_to_candidate(items, role):
    place = next(place for place, item in enumerate(items) if item.role is role)
    _set(items, place, role=PairRole.CANDIDATE)


def test_a_pair_on_two_hits_of_a_batch_is_found():
    """It would be paid for twice."""
    (page,) = pack(PAIRS[:18], *GOLDS, seed=0)

    with pytest.raises(PackingError, match="on HITs 1 and 2"):
        check_batch([page, Page(2, page.items)])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"Title": "x" * 129}, "Title has 129 characters"),
        ({"Description": "x" * 2001}, "Description has 2,001"),
        ({"Keywords": "x" * 1001}, "Keywords has 1,001"),
        ({"RequesterAnnotation": "x" * 256}, "RequesterAnnotation has 256"),
        ({"UniqueRequestToken": "x" * 65}, "UniqueRequestToken has 65"),
        ({"UniqueRequestToken": ""}, "UniqueRequestToken has 0"),
        ({"LifetimeInSeconds": 29}, "LifetimeInSeconds is 29"),
        ({"AssignmentDurationInSeconds": 31_536_001}, "AssignmentDurationInSeconds is 31,536,001"),
        ({"AutoApprovalDelayInSeconds": 2_592_001}, "AutoApprovalDelayInSeconds is 2,592,001"),
        ({"MaxAssignments": 0}, "MaxAssignments is 0"),
        ({"Reward": "1.234"}, "Reward is '1.234'"),
        ({"Reward": "1.2"}, "Reward is '1.2'"),
    ],
)
def test_a_field_beyond_the_apis_limits_is_named(fields, said):
    """botocore would send it, and the server would refuse it."""
    with pytest.raises(CrowdError, match=said):
        check_request("CreateHITWithHITType", fields)


@given(
    title=st.text(min_size=1, max_size=128),
    lifetime=st.integers(30, 31_536_000),
    assignments=st.integers(1, 10**9),
    cents=st.integers(0, 10**6),
)
def test_fields_within_the_limits_pass(title, lifetime, assignments, cents):
    """The limits themselves are allowed: nothing is raised."""
    reward = f"{cents // 100}.{cents % 100:02d}"
    check_request(
        "CreateHIT",
        {"Title": title, "LifetimeInSeconds": lifetime, "MaxAssignments": assignments, "Reward": reward},
    )


def test_what_botocore_would_not_send_fails_in_the_rehearsal():
    """A rehearsed call is compared with botocore's own model, by the client's own code."""
    client = ValidatingClient(ValidatingTransport())

    with pytest.raises(CrowdError, match=r"CreateHITWithHITType cannot be sent: .*MaxAssignments"):
        client.create_hit(HitRequest("T", "Q", "1", 60, "a", "t"))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", template_names())
def test_the_bundled_wordings_are_well_formed(name):
    """Their pages pass as they are, with hostile captions too; the question carries the page unchanged."""
    pairs = [PagePair(place, "/i/a.jpg", text) for place, text in enumerate(HOSTILE, start=1)]
    html = render_page(load_template(name), pairs)

    PageChecker().check(html, range(1, 8), [], name)
    assert check_question(question_xml(html), html) > 10_000


@given(
    st.lists(st.lists(st.text(max_size=30) | st.sampled_from(HOSTILE), min_size=3, max_size=3), max_size=4),
    st.data(),
)
def test_pages_that_share_their_surroundings_become_the_questions_that_they_would_alone(captions, data):
    """What is kept in pieces is joined to the same bytes, known before or not, and whatever room is left."""
    checker = PageChecker(room=data.draw(st.sampled_from([0, 3000, 10**6])))
    for texts in captions:
        pairs = [PagePair(place, f"/i/{len(text)}.jpg", text) for place, text in enumerate(texts, start=1)]
        html = render_page(load_template("pairs-plain"), pairs)

        own = [str(escape(text)) for pair in pairs for text in pair.shown]
        pieces, size = checker.check(html, range(1, 4), own, "own")

        assert checker.joined(pieces) == question_xml(html)
        assert size == len(question_xml(html).encode())


def test_a_text_that_ends_the_questions_section_together_with_what_follows_is_kept_whole():
    """An unquoted attribute ends with ``>``; after the text ``]]`` that would end the CDATA section."""
    checker = PageChecker()
    form = f"{FORM}</form><i title={{}}>x</i>"
    for text in ("a", "]]", "b"):
        html = form.format(text)

        pieces, size = checker.check(html, [], [text], "own")

        assert checker.joined(pieces) == question_xml(html)
        assert check_question(checker.joined(pieces), html) == size


@pytest.mark.parametrize("places", [[1, 1], [0], [2], [2, 1], [*range(1, 101)]])
def test_the_places_of_a_page_count_from_one(places):
    """Whatever it asks: answers are told apart by their places."""
    with pytest.raises(PackingError, match="must count from 1"):
        PageChecker().check("", places, [], "own")


def test_a_page_that_its_own_texts_make_too_large_is_refused_beside_known_ones():
    """Sizes are added up, not looked for."""
    checker, wording = PageChecker(), load_template("pairs-plain")
    for text in ("é" * 200, "é" * 10_000):
        checker.check(render_page(wording, [PagePair(1, "/i/a.jpg", text)]), [1], ["/i/a.jpg", text], "own")

    text = "é" * 30_000
    with pytest.raises(TemplateError, match="65,535"):
        checker.check(render_page(wording, [PagePair(1, "/i/a.jpg", text)]), [1], ["/i/a.jpg", text], "own")


@pytest.mark.parametrize(
    ("html", "said"),
    [
        ("<div><p>a</div></p>", "</p>"),
        ("<div>", "<div> that is never closed"),
        ("<ul><li>a<li>b</div></ul>", "</div> within <ul>"),
        ("<div>a < b</div>", "begins no tag"),
        ("<script>if (a < b) x();", "<script> that is never closed"),
        ("<img src='a.jpg>", "begins no tag"),
        ("line\n<b>\n<i></b></i>", "in line 3"),
    ],
)
def test_broken_markup_is_named_with_its_line(html, said):
    """A browser would guess what was meant."""
    with pytest.raises(TemplateError, match="'own'") as raised:
        check_markup(html, "own")

    assert said in str(raised.value)


@pytest.mark.parametrize(
    "html",
    [
        "<!doctype html><html><head><meta charset=utf-8><title>a < b</title></head><body><p>a<p>b</body></html>",
        "<ul><li>a<li>b</ul><dl><dt>x<dd>y</dl><br><hr/>",
        "<svg><path d='M0 0'/><g></g></svg><!-- <b> --><script>a < b && '</b>'</script>",
        "<select><option value=a selected>A<option>B</select><input type=radio name=x checked>",
        '<DIV CLASS="a > b">x</div>',
    ],
)
def test_what_html_allows_is_allowed(html):
    """Optional end tags, empty elements, raw text, attributes with and without quotes."""
    check_markup(html, "own")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A project with proposals and a wording of its own, a copy of the plain one."""
    settings = proposed(tmp_path_factory.mktemp("world") / "p")
    shutil.copytree(resources.folder("hit_templates") / "pairs-plain", settings.wordings / "own")
    return settings


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("<div>{{ title }}", "never closed"),
        (f"{FORM}</form>", "p01_label"),
        (f"{FORM}</form>".replace(" data-mitl-submit", ""), "data-mitl-submit"),
        (f"{FORM}</form>".replace(" action=x", ""), "an action"),
        (f"{FORM}</form>".replace(" value=x", ""), "a value"),
        (f"{FORM}</form>".replace("<form", "<FORM"), "nobody could submit"),
        ("<p>" + "x" * 70_000 + "</p>{% include '_shared/page.html.j2' %}", "65,535"),
    ],
)
def test_a_wording_that_cannot_be_used_stops_before_anything_is_planned(world, page, said):
    """The first HIT's name and what is wrong with its page; nothing is stored or posted."""
    (world.wordings / "own" / "page.html.j2").write_text(page, encoding="utf-8")

    with pytest.raises(TemplateError, match="HIT b1:1:1: ") as raised:
        run_publish(world, template="own")

    assert said in str(raised.value)
    assert sum(status(world, SANDBOX).counts["hits"].values()) == 0

"""What is wrong with a written text, what a submission says of it, and where an item then stands."""

from __future__ import annotations

from dataclasses import replace
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitl.campaign.kinds import wording_of
from mitl.campaign.kinds.texts.answers import (
    USUAL_WORDS,
    check_beside,
    check_controls,
    check_text,
    is_in,
    normalised,
    parse_texts,
    words_of,
)
from mitl.campaign.kinds.texts.packing import ShownItem, check_page, pack_texts, render_texts
from mitl.campaign.kinds.texts.standing import ItemState, stand
from mitl.crowd.populations import CHARACTERS, PlayedHit
from mitl.crowd.raters import PickTruth, WriteTruth, answer_texts
from mitl.db.store.collection import ChosenItem, CollectionPlace
from mitl.errors import PackingError
from mitl.hits.validation import check_markup
from mitl.protocol.pages import parse_page
from mitl.records import CollectionRole, Label, Outcome
from mitl.records.collection import EXAMPLES, CollectionQuestion, Terms, TextRules
from mitl.records.questions import MOST_TRIES, GoldRule

RULES = TextRules()
GOOD = "A brown dog runs over wet grass"
HOSTILE = "\"'><script>alert(1)</script><b onmouseover=alert(2)>&#0;]]>​é"


def codes(text, rules=RULES):
    return [finding.code for finding in check_text(text, rules)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GOOD, []),
        ("", ["text_too_short", "text_language"]),
        ("A dog", ["text_too_short"]),
        ("a dog " * 21, ["text_too_long"]),
        ("a " * 4 + "x" * 300, ["text_too_long"]),
        ("There is a dog on the grass", ["text_start"]),
        ("  there, IS — a dog on grass", ["text_start"]),
        ("Thereisland of the dogs is near", []),
        (EXAMPLES[0].upper().replace(" ", "  "), ["text_copy"]),
        ("Собака бежит по мокрой траве", ["text_language"]),
        ("qwer asdf zxcv uiop hjkl bnmq", ["text_language"]),
        ("1234 5678 9012 3456", ["text_language"]),
        ("Ein Hund rennt über nasses Gras hinweg", ["text_language"]),
    ],
)
def test_each_rule_is_told_by_its_own_finding(text, expected):
    """Short, long, another language, a forbidden start, an example: whatever case, blanks and signs."""
    assert codes(text) == expected


def test_rules_can_be_others():
    """Another language, or any; no forbidden starts."""
    german = "Ein Hund rennt über nasses Gras hinweg"
    assert codes(german, replace(RULES, language="de")) == codes(german, replace(RULES, language="any")) == []
    assert codes("There is a dog on the grass", replace(RULES, forbidden_starts=())) == []
    assert Terms.from_json(Terms(RULES, (Label.YES,)).as_json()) == Terms(RULES, (Label.YES,))
    assert all(is_in(f"{words} {words}", language) for language, words in USUAL_WORDS.items())


def test_a_text_given_before_is_a_duplicate():
    """By the same worker, or in the data set, but for case and signs."""
    before = {normalised(GOOD)}
    assert check_beside(f"{GOOD.upper()}!", before, ())[0].code == "text_duplicate"
    assert check_beside(f" {GOOD}. ", (), before)[0].code == "text_duplicate"
    assert not check_beside("Another dog runs", before, before)


@given(st.text())
def test_any_text_is_checked_and_normalising_is_done_once(text):
    """No text is too strange; normalising again changes nothing."""
    check_text(text, RULES)
    plain = normalised(text)
    assert normalised(f" {plain}!") == plain


def test_vowels_that_are_marks_are_part_of_their_words():
    """Else a boy and a girl of Hindi are one text, given twice, and each of their words counts as two or three."""
    boy, girl = "एक लड़का नदी में तैर रहा है", "एक लड़की नदी में तैर रही है"
    assert [len(words_of(text)) for text in (boy, girl, "A me\u0301decin ❤\ufe0f")] == [7, 7, 2]
    assert not check_beside(girl, {normalised(boy)}, ())


def test_scripts_without_blanks_have_words_too():
    """A sentence of Chinese or Japanese is no single word, so it is neither too short nor, soon, too long."""
    chinese, japanese = "一只狗在草地上奔跑。", "犬がボールを追いかける 3 匹"
    any_language = replace(RULES, language="any")
    assert [len(words_of(text)) for text in (chinese, japanese)] == [9, 13]
    assert codes(chinese, any_language) == codes(japanese, any_language) == []
    assert codes("狗在跑", any_language) == ["text_too_short"]


def answers_xml(fields):
    parts = (
        f"<Answer><QuestionIdentifier>{escape(name)}</QuestionIdentifier><FreeText>{escape(value)}</FreeText></Answer>"
        for name, value in fields
    )
    space = (
        "http://mechanicalturk.amazonaws.com/AWSMechanicalTurkDataSchemas/2005-10-01/QuestionFormAnswers.xsd"
    )
    return f'<QuestionFormAnswers xmlns="{space}">{"".join(parts)}</QuestionFormAnswers>'


PRINTED = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FFF), max_size=60)
NAMES = st.sampled_from(
    [f"p0{n}_{kind}" for n in (1, 2, 7) for kind in ("text", "pick", "label", "outcome", "ms", "x")]
)


@given(st.lists(st.tuples(NAMES, PRINTED | st.sampled_from(["answered", "skipped", "yes", "3", "0"]))))
def test_whatever_comes_is_read_or_told(fields):
    """Each place has one answer or a finding that says that it is missing; nothing is made up."""
    parsed = parse_texts(answers_xml(fields), places=[1, 2])
    missing = {int(f.detail.split()[1]) for f in parsed.findings if f.code == "missing_answer"}
    assert {answer.place for answer in parsed.answers} | missing == {1, 2}
    assert not {answer.place for answer in parsed.answers} & missing
    for answer in parsed.answers:
        said = (answer.text, answer.pick, answer.label)
        assert (said == ("", None, None)) is (answer.outcome is not Outcome.ANSWERED)
        assert all(word in " ".join(v for _, v in fields).split() for word in answer.text.split())


def test_what_is_written_picked_and_said_is_read_back():
    """Blanks and line ends within a text are one blank; a skipped place says nothing."""
    fields = [
        ("p01_text", f"{GOOD}\n  twice "),
        ("p01_outcome", "answered"),
        ("p01_ms", "1200"),
        ("p02_pick", "3"),
        ("p03_label", "weak_no"),
        ("p04_text", "ignored"),
        ("p04_outcome", "skipped"),
    ]
    one, two, three, four = parse_texts(answers_xml(fields), places=[1, 2, 3, 4]).answers
    assert (one.text, one.active_ms) == (f"{GOOD} twice", 1200)
    assert (two.pick, three.label) == (3, Label.WEAK_NO)
    assert (four.outcome, four.text) == (Outcome.SKIPPED, "")


def page_of(task, text=HOSTILE):
    name = f"texts-{task}"
    items = [
        ShownItem(1, "/i/1.jpg")
        if task == "write"
        else ShownItem(
            1, "" if task == "pick" else "/i/1.jpg", text, ("/i/2.jpg", "/i/3.jpg") if task == "pick" else ()
        )
    ]
    rules = RULES if task == "write" else None
    return render_texts(
        wording_of("texts", name, None), items, CollectionRole(task), rules, contact=text, estimate_s=60
    )


@pytest.mark.parametrize("task", ["write", "pick", "review"])
def test_pages_escape_what_people_wrote_and_offer_the_fields_that_are_read(task):
    """A hostile text ends no tag; the form has the place's field, its outcome and its time."""
    html = page_of(task)
    assert "<script>alert(1)" not in html and "onmouseover=alert(2)&gt;" in html
    check_markup(html, "texts")
    (form,) = parse_page(html).forms
    names = {control.name for control in form.controls}
    field = {"write": "p01_text", "pick": "p01_pick", "review": "p01_label"}[task]
    assert names == {"assignmentId", field, "p01_outcome", "p01_ms"}


def questions(count):
    return [
        CollectionQuestion(0, CollectionRole.REVIEW, n, reviewed=n + 1, text=str(n)) for n in range(count)
    ]


@given(st.integers(1, 60), st.integers(3, 20), st.integers(0, 5))
def test_pages_of_reviews_hold_everything_once_with_one_control_of_each_kind(count, per_hit, seed):
    """Pages are as few as they can be and differ by one at most."""
    pair = tuple(CollectionQuestion(0, CollectionRole.CONTROL, 9, caption=n, matches=bool(n)) for n in (0, 1))
    pages = pack_texts(questions(count), [pair], per_hit=per_hit, seed=seed)
    for page in pages:
        check_page(page.items, "b1:1")
    asked = [item.reviewed for page in pages for item in page.items if item.reviewed]
    assert sorted(asked) == list(range(1, count + 1))
    sizes = [len(page.items) for page in pages]
    assert len(pages) == -(-count // (per_hit - 2)) and max(sizes) - min(sizes) <= 1


def test_a_page_that_is_packed_wrongly_is_refused():
    """Missing controls, and no room beside them."""
    (page,) = pack_texts(questions(2), [], per_hit=5, seed=0)
    with pytest.raises(PackingError, match="controls"):
        check_page(page.items, "b1:1")
    with pytest.raises(PackingError, match="leaves nothing"):
        pack_texts(questions(2), [page.items[:2]], per_hit=2, seed=0)


def test_controls_pass_by_the_rule_for_controls_of_pairs():
    """One that matches passes with a yes, one that does not with a no; no answer passes neither."""
    page = [
        CollectionQuestion(1, CollectionRole.CONTROL, 1, caption=1, matches=True),
        CollectionQuestion(2, CollectionRole.CONTROL, 2, caption=1, matches=False),
    ]
    assert not check_controls(page, {1: Label.WEAK_YES, 2: Label.NO}, GoldRule())
    found = check_controls(page, {1: Label.NO, 2: None}, GoldRule())
    assert [finding.code for finding in found] == ["review_control_failed", "review_control_missing"]


def written(answer, worker, text, **more):
    known = {"live": False, "counts": True, "outcome": Outcome.ANSWERED, **more}
    return CollectionPlace(
        hit=answer, batch=1, place=1, role=CollectionRole.WRITE, is_image=True, item=5, offered=(),
        reviewed=None, answer=answer, assignment=answer, worker=worker, text=text, **known,
    )  # fmt: skip


def review(answer, of, worker, label, **more):
    return replace(written(answer, worker, ""), role=CollectionRole.REVIEW, reviewed=of, label=label, **more)


UNSEEN = written(1, "a", "", outcome=Outcome.IMAGE_FAILED)
TEXT_2, TEXT_3 = "A black dog sleeps on a rug", "Two dogs play on a beach"


@pytest.mark.parametrize(
    ("spots", "state"),
    [
        ([], ItemState.OPEN),
        ([written(1, "", "", live=True, counts=False)], ItemState.OUT),
        ([written(1, "a", GOOD)], ItemState.WRITTEN),
        ([written(1, "a", "dog")], ItemState.OPEN),
        ([written(1, "a", GOOD, counts=False)], ItemState.OPEN),
        ([written(1, "a", GOOD), review(2, 1, "", None, live=True, counts=False)], ItemState.IN_REVIEW),
        ([written(1, "a", GOOD), review(2, 1, "b", Label.YES)], ItemState.ACCEPTED),
        ([written(1, "a", GOOD), review(2, 1, "b", Label.WEAK_NO)], ItemState.OPEN),
        ([written(1, "a", GOOD), review(2, 1, "a", Label.YES)], ItemState.WRITTEN),
        ([written(1, "a", GOOD), review(2, 1, "b", Label.YES, counts=False)], ItemState.WRITTEN),
        (
            [written(1, "a", GOOD), review(2, 1, "b", Label.NO), written(3, "a", TEXT_2)],
            ItemState.OPEN,
        ),
        (
            [written(1, "a", GOOD), review(2, 1, "b", Label.NO), written(3, "c", TEXT_2), review(4, 3, "d", Label.YES)],
            ItemState.ACCEPTED,
        ),
        ([written(n, f"w{n}", "dog") for n in range(1, MOST_TRIES + 1)], ItemState.GIVEN_UP),
        ([UNSEEN, written(2, "b", "dog")], ItemState.OPEN),
        ([UNSEEN, written(2, "b", "dog"), UNSEEN], ItemState.GIVEN_UP),
        ([written(1, "a", GOOD), *[review(2, 1, "b", None, outcome=Outcome.SKIPPED)] * 2], ItemState.WRITTEN),
        ([written(1, "a", GOOD), *[review(2, 1, "b", None, outcome=Outcome.SKIPPED)] * 3], ItemState.OPEN),
    ],
)  # fmt: skip
def test_an_item_stands_where_its_answers_put_it(spots, state):
    """Rules, reviews by others, exclusions and rejected work decide; the writer's own review never does."""
    (found,) = stand([ChosenItem(True, 5, 1, 0.0, "random")], spots, {1: Terms()}, ())
    assert found.state is state
    assert (found.accepted is not None) is (state is ItemState.ACCEPTED)


@pytest.mark.parametrize(
    ("reviews", "waiting"),
    [
        ([], [1, 3]),
        ([review(2, 1, "b", None, outcome=Outcome.SKIPPED)] * MOST_TRIES, [3]),
        ([review(2, 1, "b", Label.YES)], []),
    ],
)
def test_of_two_texts_for_an_item_the_first_that_is_not_refused_is_reviewed(reviews, waiting):
    """A text that three reviews left undecided hides no other, and beside an accepted one none waits."""
    spots = [written(1, "a", GOOD), written(3, "c", TEXT_2), *reviews]
    (found,) = stand([ChosenItem(True, 5, 1, 0.0, "random")], spots, {1: Terms()}, ())
    assert [attempt.spot.answer for attempt in found.waiting] == waiting
    assert found.to_review == next(iter(found.waiting), None)


def test_scripted_workers_write_what_they_are_and_the_same_each_time():
    """Careful ones write one of the sentences, each once; random ones break a rule or repeat themselves."""
    truths = {n: WriteTruth((GOOD, TEXT_2, TEXT_3)) for n in (1, 2, 3)} | {
        4: PickTruth((Label.NO, Label.YES))
    }
    of = {
        name: answer_texts(PlayedHit(CHARACTERS[name], 1, "w", "b1:1:1"), truths)
        for name in ("careful", "random")
    }
    careful = of["careful"]
    assert {one.text for one in careful[:3]} == {GOOD, TEXT_2, TEXT_3} and careful[3].pick == 2
    assert careful == answer_texts(PlayedHit(CHARACTERS["careful"], 1, "w", "b1:1:1"), truths)
    texts = [one.text for one in of["random"][:3]]
    assert all(check_text(text, RULES) or texts.index(text) < at for at, text in enumerate(texts))

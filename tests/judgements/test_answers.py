"""Answer documents: written, read back, checked place by place, and hostile ones."""

from __future__ import annotations

import csv
import gzip
import html
import json
import re
from collections import Counter

import defusedxml.ElementTree
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitl.crowd.answer_parts import MAX_FINDINGS, MAX_TEXT
from mitl.crowd.answers import parse_answers
from mitl.errors import AnswerError
from mitl.protocol.answer_xml import answer_fields, answers_xml, xml_safe
from mitl.records import Concept, Label, Outcome, Parsed, PlaceAnswer, Shortcoming
from mitl.records.questions import RATIONALE, given_answers


def parsed(
    fields: list[tuple[str, str]], places: list[int] | None = None, rationale: bool = True
) -> Parsed[PlaceAnswer]:
    return parse_answers(answers_xml(fields), places=places or [1], questions=RATIONALE if rationale else ())


def codes(result: Parsed[PlaceAnswer]) -> list[str]:
    return [finding.code for finding in result.findings]


def wrapped(inner: str, declaration: str = '<?xml version="1.0" encoding="ASCII"?>') -> str:
    return f"{declaration}<QuestionFormAnswers>{inner}</QuestionFormAnswers>"


YES = [("p01_label", "yes"), ("p01_outcome", "answered"), ("p01_ms", "4200")]
JUST_YES = PlaceAnswer(1, Outcome.ANSWERED, Label.YES, active_ms=4200)

any_text = st.text(alphabet=st.characters(codec=None), max_size=40)


@given(st.lists(st.tuples(any_text.map(str.strip), any_text), max_size=8))
def test_fields_survive_the_xml(fields):
    """What was written is read back, in order, but for characters that XML cannot carry."""
    document = answers_xml(fields)

    assert document.isascii()
    expected = [(xml_safe(name), xml_safe(value)) for name, value in fields]
    assert [(name.strip(), value) for name, value in expected] == answer_fields(document)
    assert answer_fields(document.encode()) == answer_fields(document)


def test_an_empty_form_is_an_empty_document():
    """MTurk allows answers without a field."""
    assert answer_fields(answers_xml([])) == []


labelled = st.builds(
    PlaceAnswer,
    place=st.just(1),
    outcome=st.just(Outcome.ANSWERED),
    label=st.sampled_from([Label.WEAK_YES, Label.WEAK_NO]),
    given=st.builds(
        given_answers,
        shortcoming=st.sets(st.sampled_from(Shortcoming)).map(
            lambda given: tuple(s for s in Shortcoming if s in given | {Shortcoming.DESCRIBED_WRONGLY})
        ),
        concept=st.sets(st.sampled_from(Concept)).map(lambda given: tuple(c for c in Concept if c in given)),
        text=st.text(max_size=60).map(lambda text: xml_safe(text).strip()),
    ),
    active_ms=st.none() | st.integers(0, 86_400_000),
)


@given(labelled, st.booleans(), st.randoms())
def test_a_placed_answer_survives_the_form(answer, joined, random):
    """Several values come joined by a bar or as repeated fields, in any order, and give the same answer."""
    fields = [("p01_label", answer.label.value), ("p01_outcome", "answered"), ("p01_text", answer.text)]
    fields.append(("p01_ms", "" if answer.active_ms is None else str(answer.active_ms)))
    for kind, values in (("shortcoming", answer.shortcomings), ("concept", answer.concepts)):
        fields += [(f"p01_{kind}", "|".join(values))] if joined else [(f"p01_{kind}", v) for v in values]
    random.shuffle(fields)

    assert parsed(fields) == Parsed((answer,), ())


CROWD_FORM = {
    "p01_label": {"yes": True, "weak_yes": False, "weak_no": False, "no": False},
    "p01_outcome": "answered",
    "p01_ms": 4200,
    "p02_label": "weak_no",
    "p02_outcome": {"answered": True, "skipped": False},
    "p02_shortcoming": {"not_in_image": True, "grammar": False, "described_wrongly": True},
    "p02_concept": ["color", "age"],
    "p02_text": "Größe <&> \u2028",
    "p02_ms": None,
}


def test_a_crowd_forms_single_answer_reads_like_single_fields():
    """``taskAnswers`` is a JSON array of one object; choices are objects of truth values."""
    document = answers_xml([("taskAnswers", json.dumps([CROWD_FORM]))])

    result = parse_answers(document, places=[1, 2], questions=RATIONALE)

    reasons = (Shortcoming.NOT_IN_IMAGE, Shortcoming.DESCRIBED_WRONGLY)
    concepts = (Concept.COLOR, Concept.AGE)
    second = PlaceAnswer(
        2,
        Outcome.ANSWERED,
        Label.WEAK_NO,
        given_answers(shortcoming=reasons, concept=concepts, text="Größe <&>"),
        None,
    )
    assert result == Parsed((JUST_YES, second), ())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("{", "not JSON"),
        ("[]", "not a JSON array with one object"),
        ("[1]", "not a JSON array with one object"),
        ("[{}, {}]", "not a JSON array with one object"),
        ('"p01_label"', "not a JSON array with one object"),
    ],
)
def test_an_unreadable_crowd_form_is_a_finding(text, told):
    """The rest of the document still counts."""
    result = parsed([("taskAnswers", text), *YES])

    assert codes(result) == ["unreadable"] and told in result.findings[0].detail
    assert result.answers == (JUST_YES,)


def test_a_crowd_forms_repeated_key_and_odd_values_are_seen():
    """JSON readers would silently keep the last of two keys."""
    text = (
        '[{"p01_label": "yes", "p01_label": "no", "p01_ms": {"a": 1}, "p02_label": true, "p02_text": [[]]}]'
    )

    result = parse_answers(answers_xml([("taskAnswers", text)]), places=[1, 2], questions=RATIONALE)

    assert Counter(codes(result)) == {"duplicate_field": 1, "bad_value": 3, "missing_answer": 2}


def test_a_clean_answer_has_no_findings():
    """Skipped pairs, unloaded images and reasons included; fields of the platform are not news."""
    result = parsed(
        [
            *YES,
            ("p02_outcome", "skipped"),
            ("p02_ms", ""),
            ("p03_outcome", "image_failed"),
            ("p04_label", "weak_yes"),
            ("p04_outcome", "answered"),
            ("p04_shortcoming", "not_described"),
            ("assignmentId", "A"),
            ("doNotRedirect", "true"),
            ("hitId", "H"),
        ],
        places=[1, 2, 3, 4],
    )

    assert result.findings == ()
    assert result.answers == (
        JUST_YES,
        PlaceAnswer(2, Outcome.SKIPPED, None),
        PlaceAnswer(3, Outcome.IMAGE_FAILED, None),
        PlaceAnswer(4, Outcome.ANSWERED, Label.WEAK_YES, {"shortcoming": (Shortcoming.NOT_DESCRIBED,)}),
    )


@pytest.mark.parametrize(
    ("extra", "expected", "answered"),
    [
        ([("p01_label", "yes")], ["duplicate_field"], True),
        ([("p01_label", "no")], ["duplicate_field", "missing_answer"], False),
        ([("p01_outcome", "skipped")], ["duplicate_field", "missing_answer"], False),
        ([("p01_label", "")], ["duplicate_field"], True),
        ([("p01_ms", "9000")], ["duplicate_field"], True),
        ([("p01_ms", "-1")], ["duplicate_field", "bad_value"], True),
        ([("p01_ms", "²")], ["duplicate_field", "bad_value"], True),
        ([("p01_shortcoming", "grammar")], ["unasked_rationale"], True),
        ([("p01_shortcoming", "boring")], ["bad_value"], True),
        ([("p01_concept", "age|AGE")], ["bad_value", "unasked_rationale"], True),
        ([("p02_label", "no")], ["unknown_place"], True),
        ([("p1_label", "no")], ["unknown_field"], True),
        ([("p01_Label", "no")], ["unknown_field"], True),
        ([("p٠١_label", "no")], ["unknown_field"], True),
        ([("", "")], ["unknown_field"], True),
        ([("p01_text", "x" * (MAX_TEXT + 1))], ["bad_value"], True),
    ],
)
def test_each_oddity_is_a_finding(extra, expected, answered):
    """Contradictions cost the place its answer; everything else leaves it."""
    result = parsed([*YES, *extra])

    assert codes(result) == expected
    assert [answer.label for answer in result.answers] == ([Label.YES] if answered else [])


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([], ["missing_answer"]),
        ([("p01_outcome", "answered")], ["missing_answer"]),
        ([("p01_label", "maybe")], ["bad_value", "missing_answer"]),
        ([("p01_label", "YES")], ["bad_value", "missing_answer"]),
        ([("p01_label", "yes"), ("p01_outcome", "done")], ["bad_value", "missing_answer"]),
        ([("p01_ms", "100")], ["missing_answer"]),
    ],
)
def test_a_place_without_a_usable_answer_is_left_out(fields, expected):
    """It is missing, which is a flag and not a reason to turn the work down."""
    result = parsed(fields)

    assert (codes(result), result.answers) == (expected, ())


def test_the_outcome_counts_where_a_label_contradicts_it():
    """A pair that was skipped has no label, whatever was chosen before."""
    result = parsed([("p01_label", "yes"), ("p01_outcome", "skipped")])

    assert codes(result) == ["label_ignored"]
    assert result.answers == (PlaceAnswer(1, Outcome.SKIPPED, None),)


def test_repeated_times_and_texts_are_not_lost():
    """Of several times the longest counts; differing texts are joined."""
    result = parsed([*YES, ("p01_ms", "9000"), ("p01_text", "one"), ("p01_text", "two"), ("p01_text", "one")])

    assert (result.answers[0].active_ms, result.answers[0].text) == (9000, "one\ntwo")


def test_missing_reasons_are_noticed_only_where_asked_for():
    """With reasons, a half answer needs a shortcoming; without, the fields of reasons are unknown."""
    half = [("p01_label", "weak_no"), ("p01_outcome", "answered")]

    assert codes(parsed(half)) == ["missing_rationale"]
    assert codes(parsed(half, rationale=False)) == []
    assert codes(parsed([*half, ("p01_shortcoming", "grammar")], rationale=False)) == ["unknown_field"]


@pytest.mark.parametrize("beside", [[], [("p01_outcome", " ")]], ids=["none", "empty"])
def test_the_label_alone_answers(beside):
    """A form without the outcome field, or with an empty one, still says what the worker thinks."""
    result = parsed([("p01_label", "no"), *beside])

    assert (result.answers, result.findings) == ((PlaceAnswer(1, Outcome.ANSWERED, Label.NO),), ())


@given(
    st.lists(st.tuples(st.sampled_from(["p01_label", "p01_outcome", "p01_ms", "p02_label", "x"]), any_text))
)
def test_whatever_comes_every_place_is_answered_or_missing(fields):
    """No exception, and exactly the places without an answer have a finding that says so."""
    result = parsed(fields, places=[1, 2])

    answered = [f"place {answer.place} " for answer in result.answers]
    missing = [f.detail[:8] for f in result.findings if f.code == "missing_answer"]
    assert sorted(answered + missing) == ["place 1 ", "place 2 "]
    assert all(answer.label is not None for answer in result.answers)


def test_places_that_say_the_same_are_each_read_with_their_own_oddities():
    """What others said at other places is known; times, and what is odd, are each place's own, however often."""
    half = [("label", "weak_no"), ("outcome", "answered"), ("concept", "color"), ("concept", "color")]
    fields = [(f"p{place:02d}_{kind}", value) for place in (1, 2, 3) for kind, value in half]
    fields += [
        ("p01_shortcoming", "grammar"),
        ("p03_shortcoming", "grammar"),
        ("p01_ms", "7"),
        ("p03_ms", "9"),
    ]

    first, second = parsed(fields, [1, 2, 3]), parsed(fields, [3, 1, 2])

    assert first == second
    assert codes(first) == [
        "unasked_rationale",
        "missing_rationale",
        "unasked_rationale",
        "unasked_rationale",
    ]
    assert [answer.active_ms for answer in first.answers] == [7, None, 9]
    clean = [(f"p{place:02d}_label", "no") for place in (1, 2)]
    assert [answer.place for answer in parsed(clean, [1, 2]).answers] == [1, 2]


BOMB = '<!DOCTYPE a [<!ENTITY b "bb"><!ENTITY c "&b;&b;">]>'


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ("", "not well-formed"),
        ("yes", "not well-formed"),
        (wrapped("<Answer>"), "not well-formed"),
        ("<Answers/>", "root is 'Answers'"),
        (BOMB + wrapped("&c;", ""), "document type or entities"),
        ('<!DOCTYPE a SYSTEM "file:///etc/passwd">' + wrapped("", ""), "document type or entities"),
        (b"\xff\xfe\x00", "not well-formed"),
        (b'<?xml version="1.0" encoding="no-such"?><QuestionFormAnswers/>', "not well-formed"),
        ("\ud800", "not well-formed"),
        (wrapped("&#0;"), "not well-formed"),
        (wrapped("x" * 1_000_001), "at most 1,000,000 are read"),
    ],
)
def test_an_unreadable_document_is_one_clear_error(document, told):
    """The caller keeps it as a finding; nothing is fetched or expanded."""
    with pytest.raises(AnswerError, match=told):
        parse_answers(document, places=[1], questions=())


def test_findings_are_bounded_and_plain():
    """A worker's script cannot fill the database, nor smuggle control characters into it."""
    fields = [(f"\x1b[31m{'x' * 500}{n}", "") for n in range(500)]
    result = parsed([*fields, *YES], places=[1, 2])

    assert Counter(codes(result)) == {"unknown_field": MAX_FINDINGS, "missing_answer": 1, "more_findings": 1}
    assert codes(result)[-1] == "more_findings" and result.findings[-1].detail.startswith("400 ")
    assert all(len(f.detail) < 200 and f.detail.isprintable() for f in result.findings)
    assert result.answers == (JUST_YES,)


def test_text_that_databases_refuse_is_replaced():
    """JSON can carry a NUL and half a surrogate pair, which no database stores."""
    text = '[{"p01_label": "yes", "p01_text": "a\\u0000b\\ud800c"}]'

    assert parsed([("taskAnswers", text)]).answers[0].text == "a\ufffdb\ufffdc"


def test_selections_and_uploads_are_fields_too():
    """Other question types answer with other elements; an answer without any value is empty."""
    document = wrapped(
        "<Answer><QuestionIdentifier> p01_label </QuestionIdentifier><SelectionIdentifier>yes</SelectionIdentifier>"
        "<OtherSelectionText>no</OtherSelectionText></Answer><Note/>"
        "<Answer><QuestionIdentifier>x</QuestionIdentifier></Answer>"
    )

    assert answer_fields("\ufeff\n " + document) == [("p01_label", "yes"), ("p01_label", "no"), ("x", "")]


@pytest.mark.shared
def test_real_answers_read_as_their_authors_read_them(shared_data):
    """Raw XML of a real batch beside its authors' own parse of it; NA is theirs for a field that was not sent."""
    path = shared_data / "mturk_result_samples" / "chateval_1_turn_tuesafnoon.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))

    assert len(rows) == 60
    for row in rows:
        theirs = {key: value for key, value in row.items() if key.startswith("response") and value != "NA"}
        ours = {key: value.strip() for key, value in answer_fields(row["Answer"]) if key in row}
        assert {key: value for key, value in ours.items() if value != "NA"} == theirs


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("get_assignment.xml", [("Question100", "Move to X.")]),
        ("get_rejected_assignments.xml", [("tweet", "I was rejected!"), ("Submit", "Submit")]),
    ],
)
def test_old_documents_with_leading_space_are_read(shared_data, name, fields):
    """Replies of the older API indent the escaped document, declaration and all."""
    reply = (shared_data / "mturk_result_samples" / "rturk_xml" / name).read_text(encoding="utf-8")
    escaped = re.search("<Answer>(.*?)</Answer>", reply, re.DOTALL)

    assert escaped is not None
    assert answer_fields(html.unescape(escaped[1])) == fields


@given(st.lists(st.tuples(st.text(max_size=12), st.text(max_size=12)), max_size=6))
def test_documents_are_read_as_a_parser_reads_them(fields):
    """Whether nothing needs escaping, as in most, or something does: the same names and values."""
    document = answers_xml(fields)
    root = defusedxml.ElementTree.fromstring(document)
    space = root.tag.removesuffix("QuestionFormAnswers")

    parsed = [
        (
            (answer.findtext(f"{space}QuestionIdentifier") or "").strip(),
            answer.findtext(f"{space}FreeText") or "",
        )
        for answer in root
    ]

    assert answer_fields(document) == parsed


@pytest.mark.parametrize("cut", [1, 30, 200])
def test_a_document_that_is_nearly_in_the_usual_form_is_not_read_as_one(cut):
    """What is cut short is not well-formed, whatever its beginning looks like."""
    document = answers_xml([("p01_label", "yes"), ("p01_outcome", "answered")])

    with pytest.raises(AnswerError):
        answer_fields(document[:-cut])

"""QuestionForm and AnswerKey XML: what is read, what is refused, what answers count."""

from __future__ import annotations

import html
import itertools
import json
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qualification_kit import SCHEMAS, TWO, TWO_KEY, choice, form, free, key, question

from mitl.crowd_server.protocol import answers as form_answers
from mitl.crowd_server.protocol import content as form_content
from mitl.crowd_server.protocol import content as xhtml
from mitl.crowd_server.protocol import question_form
from mitl.crowd_server.protocol.errors import TurkError
from mitl.protocol.answer_xml import answer_fields

BOUNDED = settings(max_examples=80, deadline=None, derandomize=True, database=None)
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=12)


def refused(parse, *values):
    """The code and the message with which XML is refused."""
    with pytest.raises(TurkError) as caught:
        parse(*values)
    return caught.value.code.removeprefix("AWS.MechanicalTurk."), caught.value.message


def test_a_form_becomes_a_structure():
    """Overview, questions and fields are there in their order, texts as they were meant."""
    own = question_form.parse(TWO)

    assert own.overview == (
        form_content.Title("Colours"),
        form_content.Text("Look <well>."),
        form_content.Bullets(("one",)),
    )
    assert [(one.identifier, one.name, one.required) for one in own.questions] == [
        ("colour", "About colour", True),
        ("shapes", "About shapes", True),
    ]
    assert [(one.field.style, one.field.fewest, one.field.most) for one in own.questions] == [
        ("radio", 1, 1),
        ("checkbox", 1, 3),
    ]


def test_the_older_schema_is_read_too():
    """Tests written before 2017 name the schema of 2005."""
    assert (
        question_form.parse(form(question("a", free()), version="2005-10-01")).questions[0].identifier == "a"
    )


def test_constraints_of_text_are_read():
    """Numbers, lengths, lines, a default and patterns for the browser; a least length demands an answer."""
    constraints = (
        '<IsNumeric minValue="-3" maxValue="9"/><Length minLength="1" maxLength="4"/>'
        '<AnswerFormatRegex regex="^[0-9]+$" errorText="digits" flags="i"/>'
    )
    rest = "<DefaultText>7</DefaultText><NumberOfLinesSuggestion>4</NumberOfLinesSuggestion>"

    own = question_form.parse(form(question("a", free(constraints, rest), required=False))).questions[0]

    assert own.required
    assert (own.field.numeric, own.field.lowest, own.field.highest) == (True, -3, 9)
    assert (own.field.shortest, own.field.longest, own.field.default, own.field.lines) == (1, 4, "7", 4)
    digits = {"regex": "^[0-9]+$", "message": "digits", "flags": "i"}
    assert json.loads(own.field.patterns_json) == [digits, asdict(question_form.NUMBER)]


@pytest.mark.parametrize(
    ("style", "most", "shown"),
    [
        ("radiobutton", 0, ("radio", 1)),
        ("dropdown", 0, ("dropdown", 1)),
        ("dropdown", 2, ("checkbox", 2)),
        ("checkbox", 0, ("checkbox", 3)),
        ("checkbox", 1, ("radio", 1)),
        ("list", 2, ("checkbox", 2)),
        ("combobox", 0, ("checkbox", 3)),
        ("multichooser", 0, ("checkbox", 3)),
    ],
)
def test_style_suggestions_become_fields(style, most, shown):
    """A field for one choice where one may be chosen, checkboxes where several may."""
    field = (
        question_form.parse(form(question("a", choice("x", "y", "z", style=style, most=most))))
        .questions[0]
        .field
    )

    assert (field.style, field.most) == shown


def picture(url, kind="image", tag="Binary", mime="MimeType", size=""):
    """A picture within a question's content."""
    return (
        f"<{tag}><{mime}><Type>{kind}</Type><SubType>png</SubType></{mime}><DataURL>{url}</DataURL>"
        f"<AltText>a cat</AltText>{size}</{tag}>"
    )


def test_pictures_come_by_https_and_open_the_page_for_their_hosts_alone():
    """What goes into the page's policy is an origin without anything that could end it."""
    size = "<Width>30</Width><Height>20</Height>"
    content = picture("https://a.example/x.png?y=1") + picture(
        "https://b.example:8443/z.png", tag="EmbeddedBinary", mime="EmbeddedMimeType", size=size
    )

    own = question_form.parse(form(question("a", free(), content=content)))

    assert own.image_origins == ["https://a.example", "https://b.example:8443"]
    assert own.questions[0].content[1] == form_content.LinkedPicture(
        "https://b.example:8443/z.png", "a cat", 30, 20
    )


@pytest.mark.parametrize(
    "url",
    [
        "http://a.example/x.png",
        "javascript:alert(1)",
        "data:image/png;base64,AAAA",
        "https://user@a.example/x.png",
        "https://a.example;script-src *",
        "https://a.example/a b.png",
        "https://a.example/\u00e9.png",
        "//a.example/x.png",
        "",
    ],
)
def test_other_addresses_of_pictures_are_refused(url):
    """Neither plain http, which browsers block, nor what could break out of the policy."""
    assert (
        refused(question_form.parse, form(question("a", free(), content=picture(url))))[0] == "XMLParseError"
    )


def test_formatted_content_keeps_what_is_harmless():
    """Structure, links and pictures stay; looks are the server's; HTML's own entities are known."""
    made, origins = xhtml.sanitized(
        '<p style="color:red" class="x">A&nbsp;<b>bold</b> &lt;b&gt; <br/>'
        '<img src="https://a.example/x.png" width="10px" height="50%"/>'
        '<a href="https://b.example/?q=1&amp;r=2" title="t">link</a></p>'
    )

    assert origins == {"https://a.example"}
    assert str(made) == (
        "<p>A\u00a0<b>bold</b> &lt;b&gt; <br>"
        '<img src="https://a.example/x.png" width="10" alt="">'
        '<a href="https://b.example/?q=1&amp;r=2" target="_blank" rel="noopener noreferrer">link</a></p>'
    )


@pytest.mark.parametrize(
    "source",
    [
        "<script>alert(1)</script>",
        "<SCRIPT>alert(1)</SCRIPT>",
        '<p onclick="alert(1)">x</p>',
        '<a href="javascript:alert(1)">x</a>',
        '<a href=" javascript:alert(1)">x</a>',
        '<img src="http://a.example/x.png"/>',
        '<img src="x" onerror="alert(1)"/>',
        "<iframe></iframe>",
        "<form><input/></form>",
        "<style>p{}</style>",
        "<svg/>",
        '<x:p xmlns:x="y">x</x:p>',
        "<p>open",
        "</div><script>1</script><div>",
        "&LT;script&GT;1&LT;/script&GT;",
        "&unknown;",
        "<i>" * 40 + "</i>" * 40,
    ],
)
def test_formatted_content_that_may_harm_is_refused(source):
    """The requester hears what may not stand there; nothing of it is ever shown."""
    assert refused(xhtml.sanitized, source)[0] == "XHTMLParseError"


@BOUNDED
@given(st.text(st.characters(codec="utf-8", exclude_categories=("C",)), max_size=60))
def test_text_within_formatted_content_stays_text(text):
    """Whatever is escaped comes out escaped."""
    made, _ = xhtml.sanitized(f"<p>{html.escape(text)}</p>")

    assert html.unescape(str(made).removeprefix("<p>").removesuffix("</p>")) == text


BOMB = '<!DOCTYPE q [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;">]>'
SPACE = f"{SCHEMAS}2017-11-06/QuestionForm.xsd"
PART = "<Question><QuestionIdentifier>a</QuestionIdentifier>"
BAD_FORMS = {
    "no XML": "hello",
    "empty": "",
    "open": TWO[:-5],
    "entities": BOMB + TWO.replace("one", "&b;"),
    "outer entity": '<!DOCTYPE q [<!ENTITY a SYSTEM "file:///etc/passwd">]>' + TWO.replace("one", "&a;"),
    "document type": "<!DOCTYPE QuestionForm>" + TWO,
    "undeclared entity": TWO.replace("one", "&nbsp;"),
    "other schema": TWO.replace("2017-11-06", "2011-11-11"),
    "no schema": "<QuestionForm><Question/></QuestionForm>",
    "other root": f'<HTMLQuestion xmlns="{SPACE}"/>',
    "no question": form(),
    "unknown element": form(question("a", free()) + "<Script/>"),
    "foreign element": form(question("a", free()).replace("<Text>", '<Text xmlns="x">')),
    "stray text": form(question("a", free()) + "hello"),
    "upload": form(question("a", "<FileUploadAnswer/>")),
    "application": form(question("a", free(), content="<Application/>")),
    "audio": form(question("a", free(), content=picture("https://a.example/x.mp3", kind="audio"))),
    "no answer": form(question("a", "")),
    "two answers": form(question("a", free() + free())),
    "no options": form(question("a", choice())),
    "option twice": form(question("a", choice("x", "x"))),
    "question twice": form(question("a", free()), question("a", free())),
    "no content": form(question("a", free(), content="<Title/>")),
    "style": form(question("a", choice("x", style="slider"))),
    "too many": form(question("a", choice("x", "y", style="checkbox", most=3))),
    "least above most": form(question("a", choice("x", "y", style="checkbox", least=2, most=1))),
    "required": form(question("a", free()).replace(">true<", ">yes<")),
    "length": form(question("a", free('<Length minLength="9" maxLength="2"/>'))),
    "number": form(question("a", free('<IsNumeric minValue="1e3"/>'))),
    "attribute": form(question("a", free('<Length least="9"/>'))),
    "flags": form(question("a", free('<AnswerFormatRegex regex="a" flags="g"/>'))),
    "no regex": form(question("a", free("<AnswerFormatRegex/>"))),
    "deep": f'<QuestionForm xmlns="{SPACE}">'
    + "<Question>" * 5000
    + "</Question>" * 5000
    + "</QuestionForm>",
}


@pytest.mark.parametrize("name", BAD_FORMS)
def test_bad_forms_are_refused(name):
    """Each in the API's words, with what was found."""
    code, message = refused(question_form.parse, BAD_FORMS[name])

    assert code in ("XMLParseError", "AWS.ParameterOutOfRange")
    assert message


def test_a_form_of_a_megabyte_is_refused_unread():
    """Longer than 65,535 bytes, however few characters."""
    text = "<Text>" + "é" * 1_000_000 + "</Text>"

    code, message = refused(question_form.parse, form(question("a", free(), content=text)))

    assert code == "AWS.ParameterOutOfRange"
    assert "65535" in message


@BOUNDED
@given(st.text(max_size=200))
def test_any_text_is_a_form_or_refused(text):
    """Parsing never fails in another way, whatever stands in the XML."""
    for xml in (
        text,
        TWO.replace("one", text),
        TWO.replace("radiobutton", text),
        TWO.replace("<Text>", text),
    ):
        try:
            question_form.parse(xml)
        except TurkError as error:
            assert error.status == 400


@BOUNDED
@given(
    st.lists(NAMES, min_size=1, max_size=5, unique=True), st.lists(NAMES, min_size=1, max_size=5, unique=True)
)
def test_identifiers_come_back_as_they_were(questions, options):
    """Of questions and of selections, whatever characters they hold."""
    own = question_form.parse(form(*(question(one, choice(*options)) for one in questions)))

    assert [one.identifier for one in own.questions] == questions
    assert [one.identifier for one in own.questions[0].field.options] == options


@st.composite
def graded(draw):
    """A key with its questions: (XML of both, scores by question, default, chosen by question)."""
    options = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    sets = [
        set(some) for size in range(1, len(options) + 1) for some in itertools.combinations(options, size)
    ]
    questions = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    scores = {
        one: [
            (sorted(some), draw(st.integers(-100, 100)))
            for some in draw(st.lists(st.sampled_from(sets), min_size=1, max_size=4, unique_by=frozenset))
        ]
        for one in questions
    }
    default = draw(st.integers(-5, 5))
    chosen = {one: draw(st.sets(st.sampled_from(options))) for one in questions}
    return (
        form(*(question(one, choice(*options, style="checkbox")) for one in questions)),
        scores,
        default,
        chosen,
    )


@BOUNDED
@given(graded(), st.sampled_from(["sum", "percent", "scale", "range"]), st.integers(1, 200))
def test_the_value_follows_from_the_key(case, kind, number):
    """A selection counts where it is exactly an option's, else the default; the mapping makes the value."""
    xml, scores, default, chosen = case
    mapping = {
        "sum": "",
        "percent": f"<PercentageMapping><MaximumSummedScore>{number}</MaximumSummedScore></PercentageMapping>",
        "scale": f"<ScaleMapping><SummedScoreMultiplier>{number}</SummedScoreMultiplier></ScaleMapping>",
        "range": (
            "<RangeMapping><SummedScoreRange><InclusiveLowerBound>0</InclusiveLowerBound>"
            f"<InclusiveUpperBound>{number}</InclusiveUpperBound><QualificationValue>7</QualificationValue>"
            "</SummedScoreRange><OutOfRangeQualificationValue>-1</OutOfRangeQualificationValue></RangeMapping>"
        ),
    }[kind]
    own = form_answers.read_key(key(scores, mapping, default), question_form.parse(xml))

    total = 0
    for one, options in scores.items():
        total += next((score for some, score in options if set(some) == chosen[one]), default)
    value = own.value(chosen)

    if kind == "sum":
        assert value == total
    elif kind == "scale":
        assert value == total * number
    elif kind == "range":
        assert value == (7 if 0 <= total <= number else -1)
    else:
        assert abs(value - 100 * total / number) <= 0.5


@pytest.mark.parametrize(
    ("mapping", "value"),
    [
        ("<PercentageMapping><MaximumSummedScore>8</MaximumSummedScore></PercentageMapping>", 63),
        ("<ScaleMapping><SummedScoreMultiplier>2.5</SummedScoreMultiplier></ScaleMapping>", 13),
        ("<ScaleMapping><SummedScoreMultiplier>-.5</SummedScoreMultiplier></ScaleMapping>", -3),
        ("<ScaleMapping><SummedScoreMultiplier>999999999</SummedScoreMultiplier></ScaleMapping>", 2**31 - 1),
    ],
)
def test_values_are_rounded_half_up_and_kept_to_32_bits(mapping, value):
    """Five points."""
    own = question_form.parse(TWO)

    assert (
        form_answers.read_key(key({"colour": [(["red"], 5)]}, mapping), own).value({"colour": {"red"}})
        == value
    )


RANGE = (
    "<SummedScoreRange><InclusiveLowerBound>{}</InclusiveLowerBound><InclusiveUpperBound>{}</InclusiveUpperBound>"
    "<QualificationValue>1</QualificationValue></SummedScoreRange>"
)
OUTSIDE = "<OutOfRangeQualificationValue>0</OutOfRangeQualificationValue>"
COLOUR = {"colour": [(["red"], 1)]}
BAD_KEYS = {
    "entities": BOMB + TWO_KEY,
    "other root": TWO,
    "no question": key({}),
    "unknown question": key({"size": [(["red"], 1)]}),
    "unknown selection": key({"colour": [(["pink"], 1)]}),
    "no option": key({"colour": []}),
    "no selection": key({"colour": [([], 1)]}),
    "option twice": key({"shapes": [(["round", "flat"], 1), (["flat", "round"], 2)]}),
    "no number": key(COLOUR).replace(">1<", ">1.5<"),
    "maximum zero": key(
        COLOUR, "<PercentageMapping><MaximumSummedScore>0</MaximumSummedScore></PercentageMapping>"
    ),
    "no factor": key(
        COLOUR, "<ScaleMapping><SummedScoreMultiplier>NaN</SummedScoreMultiplier></ScaleMapping>"
    ),
    "huge": key(
        COLOUR, "<ScaleMapping><SummedScoreMultiplier>1e999999</SummedScoreMultiplier></ScaleMapping>"
    ),
    "overlap": key(COLOUR, f"<RangeMapping>{RANGE.format(5, 9)}{RANGE.format(1, 5)}{OUTSIDE}</RangeMapping>"),
    "backward": key(COLOUR, f"<RangeMapping>{RANGE.format(5, 4)}{OUTSIDE}</RangeMapping>"),
    "no outside": key(COLOUR, f"<RangeMapping>{RANGE.format(5, 9)}</RangeMapping>"),
    "two mappings": key(COLOUR, f"<RangeMapping>{RANGE.format(5, 9)}{OUTSIDE}</RangeMapping><ScaleMapping/>"),
    "long": key(COLOUR, "<!--" + "x" * 65_535 + "-->"),
}


@pytest.mark.parametrize("name", BAD_KEYS)
def test_bad_keys_are_refused(name):
    """What cannot be scored is said when the type is made, not when a worker waits for the result."""
    code, _ = refused(form_answers.read_key, BAD_KEYS[name], question_form.parse(TWO))

    assert code in ("XMLParseError", "AWS.ParameterOutOfRange")


@pytest.mark.parametrize(
    "answer", [free(), choice("x", other="<OtherSelection/>")], ids=["free text", "other selection"]
)
def test_no_key_grades_free_text(answer):
    """As MTurk's reference says; the message names the question."""
    own = question_form.parse(form(question("colour", choice("red")), question("why", answer)))

    assert "why" in refused(form_answers.read_key, key(COLOUR), own)[1]


def sent(xml, **fields):
    """Answers and their problems for the fields of a sent page; a list for repeated names."""
    pairs = [
        (name, value)
        for name, values in fields.items()
        for value in (values if isinstance(values, list) else [values])
    ]
    answers = form_answers.read(question_form.parse(xml), pairs)
    return answers, [form_answers.problem(answer) for answer in answers]


def test_answers_are_written_as_the_schema_says():
    """Free text, selections in their order, and another answer; what was left out is not there."""
    other = "<OtherSelection/>"
    xml = form(
        question("a&b", free()),
        question("shapes", choice("round", "square", "flat", style="checkbox", other=other)),
        question("left out", free(), required=False),
    )

    answers, problems = sent(xml, q1="x <y>\r\nz", q2=["3", "1", "other"], q2_other="é", q3="")

    assert problems == ["", "", ""]
    assert answer_fields(form_answers.xml(answers)) == [
        ("a&b", "x <y>\nz"),
        ("shapes", "round"),
        ("shapes", "flat"),
        ("shapes", "é"),
    ]
    assert "<SelectionIdentifier>round</SelectionIdentifier>" in form_answers.xml(answers)
    assert "<OtherSelectionText>&#233;</OtherSelectionText>" in form_answers.xml(answers)


@pytest.mark.parametrize(
    ("answer", "fields", "told"),
    [
        (free(), {}, "answer this"),
        (free('<Length minLength="3"/>'), {"q1": "ab"}, "at least 3"),
        (free('<Length maxLength="3"/>'), {"q1": "abcd"}, "at most 3"),
        (free(), {"q1": "x" * 20_001}, "at most 20,000"),
        (free("<IsNumeric/>"), {"q1": "ten"}, "a number"),
        (free("<IsNumeric/>"), {"q1": "1e9"}, "a number"),
        (free('<IsNumeric minValue="3"/>'), {"q1": "2.9"}, "at least 3"),
        (free('<IsNumeric maxValue="3"/>'), {"q1": "3.1"}, "at most 3"),
        (free('<IsNumeric minValue="3" maxValue="4"/>'), {"q1": " 3.5 "}, ""),
        (choice("x", "y"), {}, "choose an answer"),
        (choice("x", "y"), {"q1": ["1", "2"]}, "one answer only"),
        (choice("x", "y"), {"q1": "3"}, "options shown"),
        (choice("x", "y"), {"q1": "<script>"}, "options shown"),
        (choice("x", "y", style="dropdown"), {"q1": ""}, "choose an answer"),
        (choice("x", "y", "z", style="checkbox", least=2, most=2), {"q1": "1"}, "at least 2"),
        (choice("x", "y", "z", style="checkbox", least=2, most=2), {"q1": ["1", "2", "3"]}, "at most 2"),
        (choice("x", other="<OtherSelection/>"), {"q1": "other", "q1_other": ""}, "answer this"),
        (choice("x", other="<OtherSelection/>"), {"q1": "1", "q1_other": "typed, then changed"}, ""),
        (choice("x", style="dropdown", other="<OtherSelection/>"), {"q1": "", "q1_other": "y"}, ""),
        (choice("x"), {"q1": "other", "q1_other": "y"}, "options shown"),
    ],
)
def test_answers_are_held_against_the_form(answer, fields, told):
    """What a forged or a hasty page sends is told to the worker in one sentence."""
    _, [problem] = sent(form(question("a", answer)), **fields)

    assert (told in problem) if told else problem == ""


@BOUNDED
@given(
    st.lists(st.tuples(st.sampled_from(["q1", "q2", "q2_other", "q0", "q3", "version"]), st.text(max_size=9)))
)
def test_any_fields_can_be_read(fields):
    """Nothing that a browser, or a script, sends makes the server fail."""
    answers = form_answers.read(question_form.parse(TWO), fields)

    assert len(answers) == 2
    assert all(isinstance(form_answers.problem(answer), str) for answer in answers)
    assert answer_fields(form_answers.xml(answers)) is not None

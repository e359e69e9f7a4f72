"""Answers of pages of rankings: read place by place, checked by their controls, given by scripted workers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitl.campaign.kinds.rankings.kind import check_comparisons
from mitl.campaign.kinds.rankings.scores import read_counts, score_counts
from mitl.crowd.answers import parse_comparisons
from mitl.crowd.populations import CHARACTERS, ListTruth, PlayedHit, answer_comparisons
from mitl.errors import AnswerError, DatasetError, MetricError, UsageError
from mitl.protocol.answer_xml import answers_xml
from mitl.records import ComparisonAnswer, Label, Outcome, Preference
from mitl.records.questions import TEXT
from mitl.settings import load

YES, NO = Label.YES, Label.NO


def parsed(*fields, rationale=False):
    """What two places answer."""
    return parse_comparisons(answers_xml(fields), places=[1, 2], questions=(TEXT,) if rationale else ())


def test_a_page_is_read_place_by_place():
    """Preference, outcome, own words and time; a skipped place has no preference."""
    found = parsed(
        ("assignmentId", "A1"),
        ("p01_prefer", "left"),
        ("p01_outcome", "answered"),
        ("p01_ms", "4100"),
        ("p01_text", " more boats "),
        ("p02_outcome", "skipped"),
        ("p02_text", ""),
        rationale=True,
    )

    assert found.findings == ()
    assert found.answers == (
        ComparisonAnswer(1, Outcome.ANSWERED, Preference.LEFT, "more boats", 4100),
        ComparisonAnswer(2, Outcome.SKIPPED, None),
    )


@pytest.mark.parametrize(
    ("field", "code"),
    [
        (("p02_prefer", "both"), "bad_value"),
        (("p02_label", "yes"), "unknown_field"),
        (("p01_text", "why not"), "unknown_field"),
        (("p03_prefer", "left"), "unknown_place"),
        (("p01_prefer", "right"), "duplicate_field"),
    ],
)
def test_what_is_odd_becomes_a_finding(field, code):
    """Values, fields and places that the page does not have, and answers given twice."""
    found = parsed(("p01_prefer", "left"), field, ("p02_outcome", "answered"))

    assert code in {finding.code for finding in found.findings}
    assert "missing_answer" in {finding.code for finding in found.findings}


def test_a_preference_beside_a_skipped_place_is_left_out():
    """The outcome counts, as on pages of pairs."""
    found = parsed(("p01_prefer", "left"), ("p01_outcome", "image_failed"), ("p02_prefer", "equal"))

    assert [answer.answer for answer in found.answers] == [None, Preference.EQUAL]
    assert [finding.code for finding in found.findings] == ["answer_ignored"]


@given(st.text())
def test_no_document_raises_but_as_an_answer_error(text):
    """Whatever a worker's script sends."""
    try:
        parse_comparisons(text, places=[1], questions=(TEXT,))
    except AnswerError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("given", "codes"),
    [
        (Preference.LEFT, []),
        (Preference.RIGHT, ["comparison_control_failed"]),
        (Preference.EQUAL, ["comparison_control_failed"]),
        (None, ["comparison_control_missing"]),
    ],
)
def test_a_control_is_passed_by_its_better_side_alone(given, codes):
    """Not by finding both equal, and not by leaving it out."""
    found = check_comparisons([(3, Preference.LEFT, given)], answered=True)

    assert [finding.code for finding in found] == codes


def test_a_page_without_any_answer_does_not_pass_where_there_are_no_controls():
    """A page that was skipped as a whole goes to a person."""
    assert [finding.code for finding in check_comparisons([], answered=False)] == ["no_preference"]
    assert check_comparisons([], answered=True) == []


@pytest.mark.parametrize(
    ("left", "right", "better"),
    [
        ((YES, YES, NO), (YES, NO, NO), Preference.LEFT),
        ((NO, NO, YES), (NO, YES, NO), Preference.RIGHT),
        ((YES, NO), (Label.WEAK_YES, NO), Preference.LEFT),
        ((YES, NO), (YES, NO), Preference.EQUAL),
        ((Label.WEAK_NO, NO), (NO, NO), Preference.LEFT),
    ],
)
def test_the_better_list_has_more_matches_or_has_them_further_up(left, right, better):
    """What scripted workers err around."""
    assert ListTruth(left, right).better is better


def test_characters_err_as_often_as_their_name_says():
    """Of 2,000 comparisons with a better side, a careful worker gets nearly all right, a random one a third."""
    truths = {place: ListTruth((NO,), (YES,)) for place in range(2000)}
    right = {}
    for name, character in CHARACTERS.items():
        played = PlayedHit(character, 0, "w", "h")
        answers = answer_comparisons(played, truths)
        right[name] = sum(answer.answer is Preference.RIGHT for answer in answers) / len(answers)

    assert right["careful"] > 0.95 > right["hasty"] > 0.8 > right["yes-sayer"] > 0.4 > right["random"] > 0.28
    assert answers == answer_comparisons(played, truths)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("", "names nothing across and nothing down"),
        ("sep=;\n;A;B\nA;0;1\nB;1;0\n", "tells Excel how cells are separated; delete that line"),
        (",A,B\nB,0,1\nA,1,0\n", "names A, B across and B, A down"),
        (",A,B\nA,0\nB,1,0\n", "row 'A' of .* has 1 counts, not 2"),
        (",A,B\nA,0,-1\nB,1,0\n", "'A' over 'B' in .* is '-1', but counts are 0, 1, 2"),
        (f",A,B\nA,0,{'9' * 5000}\nB,1,0\n", "is '9{40}', but counts are .* of 9 digits at most"),
    ],
)
def test_a_file_that_is_no_table_of_counts_is_one_line(tmp_path, table, message):
    """Names, rows and numbers."""
    (tmp_path / "counts.csv").write_text(table)
    with pytest.raises((DatasetError, MetricError), match=message) as caught:
        read_counts(tmp_path / "counts.csv")
    assert "\n" not in str(caught.value)


def test_scores_never_replace_the_table_that_they_are_made_of(tmp_path):
    """By whatever name it is called; another file is written."""
    table, link = tmp_path / "counts.csv", tmp_path / "link.csv"
    table.write_text(",A,B\nA,0,2\nB,1,0\n")
    link.symlink_to(table)
    settings = load(tmp_path, environ={})
    for to in (table, link):
        with pytest.raises(UsageError, match=r"is the table of counts itself, .* give --csv another file"):
            score_counts(settings, table, to=to)

    score_counts(settings, table, to=tmp_path / "scores.csv")

    assert table.read_text().startswith(",A,B") and (tmp_path / "scores.csv").is_file()

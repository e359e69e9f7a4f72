"""Ratings of a page: read place by place and checked by their controls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitl.campaign.kinds.similarity.answers import check_ratings, parse_ratings
from mitl.errors import AnswerError
from mitl.protocol.answer_xml import answers_xml
from mitl.records import Outcome
from mitl.records.similarity import (
    GivenRating,
    Likeness,
    SimilarityQuestion,
    SimilarityRole,
)


def parsed(*fields: tuple[str, str]):
    """What two places answer."""
    return parse_ratings(answers_xml(fields), places=[1, 2])


def codes(found) -> list[str]:
    return [finding.code for finding in found.findings]


def test_a_page_is_read_place_by_place():
    """Score, outcome, comment and time; a skipped place has no score."""
    found = parsed(
        ("assignmentId", "A1"),
        ("p01_score", "3.25"),
        ("p01_outcome", "answered"),
        ("p01_ms", "4100"),
        ("p01_text", " same dog "),
        ("p02_score", ""),
        ("p02_outcome", "skipped"),
    )
    assert found.findings == ()
    assert found.answers == (
        GivenRating(1, Outcome.ANSWERED, 3.25, "same dog", 4100),
        GivenRating(2, Outcome.SKIPPED, None),
    )


@given(steps=st.integers(0, 500))
def test_every_step_of_the_scale_is_read_as_it_was_set(steps):
    """0.00 to 5.00 in steps of 0.01, with or without the zeros that say nothing, as a browser without scripts may."""
    score = steps / 100
    for written in {
        f"{score:.2f}",
        f"{score:g}",
        f" {score:.2f} ",
        f"0{score:.4f}",
        f"{score:.2f}".lstrip("0"),
    }:
        found = parsed(("p01_score", written), ("p02_outcome", "skipped"))
        assert found.answers[0].score == score
        assert found.findings == ()


@pytest.mark.parametrize(
    "untouched", [[], [("p01_score", "")], [("p01_score", ""), ("p01_outcome", "answered")]]
)
def test_a_slider_that_nobody_touched_is_no_answer(untouched):
    """Whatever the page says of the outcome: there is no default."""
    found = parsed(*untouched, ("p02_score", "1.00"))
    assert [answer.place for answer in found.answers] == [2]
    assert codes(found) == ["missing_answer"]


@pytest.mark.parametrize(
    "value",
    [
        "5.01",
        "-1",
        "-0.00",
        "nan",
        "inf",
        "1e0",
        "2,5",
        "2.505",
        "٣",
        "1_0",
        "0x1",
        "+1",
        "10",
        "3.",
        "9" * 400,
    ],
)
def test_what_no_slider_sends_is_a_finding_and_no_answer(value):
    """Beyond the ends, finer than the steps, or no number at all."""
    found = parsed(("p01_score", value), ("p01_outcome", "answered"), ("p02_score", "0.00"))
    assert [answer.place for answer in found.answers] == [2]
    assert codes(found) == ["bad_value", "missing_answer"]


@pytest.mark.parametrize(
    ("field", "code"),
    [
        (("p01_label", "yes"), "unknown_field"),
        (("p03_score", "1.00"), "unknown_place"),
        (("p02_outcome", "perhaps"), "bad_value"),
        (("p01_ms", "-4"), "bad_value"),
        (("p01_score", "2.0"), "duplicate_field"),
    ],
)
def test_what_is_odd_becomes_a_finding(field, code):
    """Values, fields and places that the page does not have, and answers given twice."""
    found = parsed(("p01_score", "2.00"), field, ("p02_score", "0.50"))
    assert code in codes(found)
    assert next(answer.score for answer in found.answers if answer.place == 1) == 2.0


def test_two_different_scores_of_one_place_are_none():
    """Equal ones count once, however they are written."""
    found = parsed(("p01_score", "2.00"), ("p01_score", "3.00"), ("p02_score", "1.0"), ("p02_score", "1.00"))
    assert [(answer.place, answer.score) for answer in found.answers] == [(2, 1.0)]
    assert sorted(set(codes(found))) == ["duplicate_field", "missing_answer"]


def test_a_score_beside_a_skipped_place_is_left_out():
    """The outcome counts, as on pages of pairs."""
    found = parsed(("p01_score", "2.00"), ("p01_outcome", "image_failed"), ("p02_score", "4.10"))
    assert [answer.score for answer in found.answers] == [None, 4.1]
    assert codes(found) == ["answer_ignored"]


@given(st.text())
def test_no_document_raises_but_as_an_answer_error(text):
    """Whatever a worker's script sends."""
    try:
        parse_ratings(text, places=[1])
    except AnswerError as error:
        assert "\n" not in str(error)


FIELD = st.sampled_from(["p01_score", "p02_score", "p01_outcome", "p02_ms", "p01_text", "p09_score", "x", ""])


@given(st.lists(st.tuples(FIELD, st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc"))))))
def test_every_form_is_read_to_places_of_the_page_and_scores_of_the_scale(fields):
    """A hostile form can leave answers out, and nothing else."""
    found = parsed(*fields)
    assert {answer.place for answer in found.answers} <= {1, 2}
    for answer in found.answers:
        assert (answer.score is None) is (answer.outcome is not Outcome.ANSWERED)
        assert answer.score is None or 0 <= answer.score <= 5
    missing = [finding for finding in found.findings if finding.code == "missing_answer"]
    assert len(missing) + len(found.answers) == 2


def question(place: int, role: SimilarityRole, left: int = 0) -> SimilarityQuestion:
    return SimilarityQuestion(place, Likeness.STS, role, left or place, 90 + (left or place))


PAGE = (
    question(1, SimilarityRole.ASKED),
    question(2, SimilarityRole.IDENTICAL),
    question(3, SimilarityRole.ASKED),
    question(4, SimilarityRole.RANDOM),
    question(5, SimilarityRole.REPEATED, left=1),
)


def given_scores(*scores: float | None) -> list[GivenRating]:
    """One for each place of the page; None was skipped."""
    return [
        GivenRating(place, Outcome.SKIPPED if score is None else Outcome.ANSWERED, score)
        for place, score in enumerate(scores, 1)
    ]


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ((3.2, 4.0, 1.0, 2.0, 2.2), []),
        ((3.2, 4.0, None, 2.0, 4.2), []),
        ((3.2, 3.99, 1.0, 2.0, 3.2), ["similarity_control_failed"]),
        ((3.2, 4.0, 1.0, 2.01, 3.2), ["similarity_control_failed"]),
        ((3.2, 4.0, 1.0, 2.0, 2.19), ["similarity_control_failed"]),
        ((3.2, 1.0, 1.0, 5.0, 0.0), ["similarity_control_failed"] * 3),
        ((None, 4.0, 1.0, 2.0, 3.2), ["similarity_control_missing"]),
        ((3.2, None, 1.0, None, 3.2), ["similarity_control_missing"] * 2),
        ((4.0, 4.0, 4.0, 4.0, 4.0), ["similarity_control_failed", "one_number"]),
        ((None,) * 5, ["no_rating"]),
    ],
)
def test_controls_have_bounds_that_are_within(scores, expected):
    """4 and more, 2 and less, 1 apart and less; and one number for everything passes nowhere."""
    assert [finding.code for finding in check_ratings(PAGE, given_scores(*scores))] == expected


def test_without_controls_only_one_number_and_no_rating_are_told():
    """A page that asks all its pairs."""
    page = [question(place, SimilarityRole.ASKED) for place in range(1, 6)]
    assert check_ratings(page, given_scores(0, 1, 2, 3, 4)) == []
    assert [found.code for found in check_ratings(page, given_scores(2, 2, 2, 2, 2))] == ["one_number"]
    assert check_ratings(page, given_scores(2, 2, None, 2, 2)) == []
    assert [found.code for found in check_ratings(page, [])] == ["no_rating"]

"""Whether the ratings of a page pass by its controls; what does not pass goes to a person."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mitl.judgements.rating_controls import FEWEST_CAREFUL, LEAST_IDENTICAL, MOST_APART, MOST_RANDOM, passes
from mitl.records import Finding
from mitl.records.similarity import GivenRating, SimilarityQuestion, SimilarityRole

_ENOUGH = 5
"""Ratings from which one number for all of them tells something."""

CONTROL_FAILED = "similarity_control_failed"
CONTROL_MISSING = "similarity_control_missing"
ONE_NUMBER = "one_number"
NO_ANSWER = "no_rating"

RULE = (
    f"rule: an identical pair has {LEAST_IDENTICAL:g} or more, a random one {MOST_RANDOM:g} or less, a repeated one a "
    f"score within {MOST_APART:g} of its first, and not all pairs the same score; a random pair that most of at least "
    f"{FEWEST_CAREFUL} raters find alike who passed the other controls and tell it from the identical one is none"
)


def check_ratings(
    page: Sequence[SimilarityQuestion], given: Sequence[GivenRating], untrusted: Collection[int] = ()
) -> list[Finding]:
    """Why a page does not pass; nothing where every control was rated as expected.

    A repeated pair is compared with its first showing, so both must have a score.

    Args:
        untrusted: places of controls that are none, see `mitl.judgements.rating_controls.untrusted`.
    """
    scores = {answer.place: answer.score for answer in given if answer.score is not None}
    if not scores:
        return [Finding(NO_ANSWER, "no pair was rated")]
    findings = []
    for item in page:
        if item.role is SimilarityRole.ASKED or item.place in untrusted:
            continue
        first = first_showing(item, page)
        score, before = scores.get(item.place), scores.get(first)
        if score is None or before is None:
            place = item.place if score is None else first
            findings.append(
                Finding(
                    CONTROL_MISSING,
                    f"place {place} was not rated, which {item.role} place {item.place} needs",
                )
            )
        elif not passes(item.role, score, before):
            findings.append(
                Finding(
                    CONTROL_FAILED,
                    f"place {item.place}: {score:.2f}, though {expectation(item, page, before)}",
                )
            )
    if len(scores) >= _ENOUGH and len(set(scores.values())) == 1:
        (number,) = set(scores.values())
        findings.append(Finding(ONE_NUMBER, f"all {len(scores)} pairs were rated {number:.2f}"))
    return findings


def first_showing(item: SimilarityQuestion, page: Sequence[SimilarityQuestion]) -> int:
    """The place where a repeated pair is asked; of any other its own."""
    if item.role is not SimilarityRole.REPEATED:
        return item.place
    return next(
        other.place for other in page if other.role is SimilarityRole.ASKED and other.pair == item.pair
    )


def expectation(
    item: SimilarityQuestion, page: Sequence[SimilarityQuestion], before: float | None = None
) -> str:
    """What a control's score should be; empty where people are really asked.

    Args:
        before: the score of a repeated pair's first showing, where it is at hand.
    """
    if item.role is SimilarityRole.IDENTICAL:
        return f"an identical pair has {LEAST_IDENTICAL:g} or more"
    if item.role is SimilarityRole.RANDOM:
        return f"a random pair has {MOST_RANDOM:g} or less"
    if item.role is SimilarityRole.REPEATED:
        was = "" if before is None else f", {before:.2f}"
        return f"a repeated pair is within {MOST_APART:g} of place {first_showing(item, page)}{was}"
    return ""

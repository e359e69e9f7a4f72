"""The ratings of one page, read place by place, and whether they pass by its controls.

What is odd becomes a finding, never an exception; what does not pass goes to a person. A slider that nobody touched
sends nothing, or an empty text, and counts as no answer. The findings are those of pages of pairs (see
`mitl.crowd.answers`), with ``answer_ignored`` for a score beside the outcome ``skipped`` or ``image_failed``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import partial

from mitl.crowd.answer_parts import FindingLog, active_time, outcome_beside, own_words, parse_page, shown
from mitl.judgements.rating_tests import FEWEST_CAREFUL, LEAST_IDENTICAL, MOST_APART, MOST_RANDOM, passes
from mitl.records import Finding, Outcome
from mitl.records.questions import TEXT
from mitl.records.similarity import HIGHEST, LOWEST, GivenRating, SimilarityQuestion, SimilarityRole

_SCORE = re.compile(r"(?=\.?[0-9])0{0,8}[0-9]?(\.[0-9]{1,2}0{0,8})?", re.ASCII)
"""A browser without scripts shows a field for numbers, and sends what was typed: ``.5`` and ``3.500`` too."""


def _answer(place: int, fields: dict[str, list[str]], findings: FindingLog) -> GivenRating | None:
    score = _score(place, fields.get("score", []), findings)
    outcome = outcome_beside(place, fields, None if score is None else f"{score:.2f}", findings)
    if outcome is None:
        return None
    return GivenRating(
        place=place,
        outcome=outcome,
        score=score if outcome is Outcome.ANSWERED else None,
        text=own_words(place, fields.get(TEXT.name, []), findings),
        active_ms=active_time(place, fields.get("ms", []), findings),
    )


def _score(place: int, values: Sequence[str], findings: FindingLog) -> float | None:
    """0 to 5 in steps of 0.01; None where nothing was set, or nothing that could be meant."""
    if len(values) > 1:
        findings.add("duplicate_field", f"p{place:02d}_score came {len(values)} times")
    texts = {value.strip() for value in values} - {""}
    for value in sorted(texts):
        if not _SCORE.fullmatch(value) or not LOWEST <= float(value) <= HIGHEST:
            findings.add(
                "bad_value", f"p{place:02d}_score is {shown(value)}; 0.00 to 5.00 in steps of 0.01 are right"
            )
            return None
    scores = {float(value) for value in texts}
    return scores.pop() if len(scores) == 1 else None


parse_ratings = partial(parse_page, kinds=("score", TEXT.name), answer_of=_answer)
"""As ``parse_page``, of a page of pairs to rate; a comment in own words is read whether or not it asked for one."""

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
        untrusted: places of controls that are none, see `mitl.judgements.rating_tests.untrusted`.
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

"""Scripted workers on pages of rankings: how they choose between two lists of which the truth is known."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mitl.crowd.populations import Character
from mitl.records import ComparisonAnswer, Label, Outcome, Preference

SECONDS = 12.0
"""Median active time of a careful worker on one comparison; others look shorter, as they do on pairs."""
_CAREFUL_SECONDS = 9.0
_MISJUDGES: Mapping[str, float] = {"careful": 0.03, "hasty": 0.15, "yes-sayer": 0.5, "random": 2 / 3}
"""Chance that a character gives one of the two wrong answers; a yes-sayer then says left. Two lists differ by more than
two labels do, so the chance is smaller than on pairs; another character's is that of a wrong label."""


@dataclass(frozen=True, slots=True)
class ListTruth:
    """How well each result of the two lists matches the query, best rank first."""

    left: tuple[Label, ...]
    right: tuple[Label, ...]

    @property
    def better(self) -> Preference:
        """The list with more matches; among equals the one whose matches stand further up, or are better ones."""
        left, right = (_merit(labels) for labels in (self.left, self.right))
        if left == right:
            return Preference.EQUAL
        return Preference.LEFT if left > right else Preference.RIGHT


def answer_comparisons(
    character: Character, truths: Mapping[int, ListTruth], *, seed: int, worker: str, hit: str
) -> list[ComparisonAnswer]:
    """What a worker of this character answers at each place, in rising order; equal for equal arguments."""
    rng = random.Random(f"comparisons {seed} {worker} {hit}")
    own = 1 - math.fsum(row[place] for place, row in enumerate(character.confusion)) / len(
        character.confusion
    )
    misjudges = _MISJUDGES.get(character.name, own)
    found = []
    for place in sorted(truths):
        answer = truths[place].better
        if rng.random() < misjudges:
            wrong = [other for other in Preference if other is not answer]
            answer = Preference.LEFT if character.name == "yes-sayer" else rng.choice(wrong)
        median = SECONDS * character.seconds_per_pair / _CAREFUL_SECONDS
        active_ms = max(200, round(1000 * rng.lognormvariate(math.log(median), 0.4)))
        found.append(ComparisonAnswer(place, Outcome.ANSWERED, answer, "", active_ms))
    return found


def _merit(labels: Sequence[Label]) -> tuple[int, float]:
    """How many results match, then how much of the match stands how far up."""
    discounted = [(len(Label) - label.code) / math.log2(rank + 1) for rank, label in enumerate(labels, 1)]
    return sum(label.is_positive for label in labels), round(math.fsum(discounted), 9)

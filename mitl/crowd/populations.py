"""Scripted workers' characters: how they err around the truth, and how long they look.

A worker's answers on a HIT depend on the seed, the worker's name and the HIT alone, so that a resumed
simulation gives the same answers in whatever order the work comes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mitl.errors import UsageError
from mitl.records import ComparisonAnswer, Concept, Label, Outcome, PlaceAnswer, Preference, Shortcoming
from mitl.records.questions import Given, given_answers

if TYPE_CHECKING:
    from mitl.datasets.scenes.truth import (
        Truth,  # its package draws pictures, which naming a population does not need
    )

_WEAK = (Label.WEAK_YES, Label.WEAK_NO)


@dataclass(frozen=True, slots=True)
class Character:
    """How one kind of worker answers."""

    name: str
    confusion: tuple[tuple[float, ...], ...]
    """Row: the truth, column: the answer, both yes, weak_yes, weak_no, no; rows sum to 1."""
    reads: float
    """Chance that a reason given is the true one, 0 to 1."""
    seconds_per_pair: float
    """Median active time on one pair without reasons."""


CHARACTERS: Mapping[str, Character] = {
    character.name: character
    for character in (
        Character(
            "careful",
            (
                (0.93, 0.06, 0.01, 0.0),
                (0.10, 0.80, 0.09, 0.01),
                (0.01, 0.07, 0.80, 0.12),
                (0.0, 0.01, 0.09, 0.90),
            ),
            reads=0.9,
            seconds_per_pair=9.0,
        ),
        Character(
            "hasty",
            (
                (0.80, 0.14, 0.04, 0.02),
                (0.25, 0.55, 0.15, 0.05),
                (0.08, 0.22, 0.50, 0.20),
                (0.03, 0.07, 0.20, 0.70),
            ),
            reads=0.6,
            seconds_per_pair=4.0,
        ),
        Character(
            "yes-sayer",
            (
                (0.90, 0.08, 0.01, 0.01),
                (0.70, 0.22, 0.05, 0.03),
                (0.55, 0.25, 0.12, 0.08),
                (0.40, 0.25, 0.15, 0.20),
            ),
            reads=0.3,
            seconds_per_pair=3.0,
        ),
        Character("random", ((0.25, 0.25, 0.25, 0.25),) * 4, reads=0.0, seconds_per_pair=1.2),
        Character("one-number", ((0.0, 0.0, 1.0, 0.0),) * 4, reads=0.0, seconds_per_pair=1.5),
        Character("straight-liner", ((0.94, 0.02, 0.02, 0.02),) * 4, reads=0.0, seconds_per_pair=1.5),
        Character(
            "drifter",
            (
                (0.70, 0.18, 0.08, 0.04),
                (0.30, 0.45, 0.17, 0.08),
                (0.12, 0.23, 0.45, 0.20),
                (0.06, 0.10, 0.24, 0.60),
            ),
            reads=0.4,
            seconds_per_pair=4.0,
        ),
    )
}
"""The last three are faults of slow sliders first of all: on other pages they give one answer, or err a lot."""

PRESETS: Mapping[str, str] = {
    "mixed": "careful:0.6,hasty:0.2,yes-sayer:0.1,random:0.1",
    "mixed-raters": "careful:0.6,hasty:0.2,random:0.05,one-number:0.05,straight-liner:0.05,drifter:0.05",
}


@dataclass(frozen=True, slots=True)
class Population:
    """Characters with their shares of the workers; the shares are positive and sum to 1."""

    shares: tuple[tuple[str, float], ...]

    def characters(self, count: int, *, seed: int) -> list[str]:
        """A character for each of ``count`` workers, in drawn order, the shares met as nearly as can be."""
        quotas = [(name, share * count) for name, share in self.shares]
        whole = {name: math.floor(quota + 1e-9) for name, quota in quotas}
        by_remainder = sorted(quotas, key=lambda item: (whole[item[0]] - item[1], item[0]))
        for name, _ in by_remainder[: count - sum(whole.values())]:
            whole[name] += 1
        drawn = [name for name, _ in self.shares for _ in range(whole[name])]
        random.Random(f"population {seed} {count}").shuffle(drawn)
        return drawn


def parse_population(spec: str) -> Population:
    """The population written as ``careful:0.8,random:0.2``, as one character's name, or as a preset's.

    Shares are relative: ``careful:4,random:1`` is the same.

    Raises:
        UsageError: an unknown character, one named twice, or a share that is not a positive number.
    """
    weights: dict[str, float] = {}
    parts = PRESETS.get(spec.strip(), spec).split(",")
    for part in parts:
        name, colon, share = (piece.strip() for piece in part.partition(":"))
        if name not in CHARACTERS:
            names = f"{', '.join(CHARACTERS)}, or {' or '.join(PRESETS)} alone"
            raise UsageError(
                f"no worker character called {name!r}; known: {names}; write e.g. careful:0.8,random:0.2"
            )
        if name in weights:
            raise UsageError(f"the worker character {name!r} stands twice in {spec!r}; give it one share")
        if not colon and len(parts) > 1:
            raise UsageError(f"{name!r} has no share in {spec!r}; write e.g. careful:0.8,random:0.2")
        weights[name] = _share(share if colon else "1", spec)
    total = sum(weights.values())
    return Population(tuple((name, weight / total) for name, weight in weights.items()))


@dataclass(frozen=True, slots=True)
class PlayedHit:
    """Who answers which HIT: what the answers depend on besides the truth."""

    character: Character
    seed: int
    worker: str
    """The worker's name."""
    hit: str
    turn: int = 0
    """HITs that the worker has done before."""

    def rng(self, what: str) -> random.Random:
        """What is drawn for these answers; equal for equal fields, whatever the turn."""
        return random.Random(f"{what} {self.seed} {self.worker} {self.hit}")


def answer_hit(played: PlayedHit, truths: Mapping[int, Truth], *, rationale: bool) -> list[PlaceAnswer]:
    """What a worker of this character answers at each place, in rising order; equal for equal arguments.

    Labels and times do not depend on ``rationale``, so that two wordings can be compared.
    """
    rng, character = played.rng("answers"), played.character
    places = sorted(truths)
    chances = {place: character.confusion[truths[place].label.code - 1] for place in places}
    labels = {place: rng.choices(list(Label), weights=chances[place])[0] for place in places}
    times = {place: drawn_ms(character.seconds_per_pair, rng) for place in places}
    answers = []
    for place in places:
        label, active_ms = labels[place], times[place]
        reasons: Given = {}
        if rationale and label in _WEAK:
            shortcomings, concepts = _reasons(character, truths[place], rng)
            reasons = given_answers(shortcoming=shortcomings, concept=concepts)
            active_ms = active_ms * 8 // 5
        answers.append(PlaceAnswer(place, Outcome.ANSWERED, label, reasons, active_ms))
    return answers


def _share(text: str, spec: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 < share <= 1e9:  # or several would sum to infinity
        raise UsageError(f"the share {text!r} in {spec!r} must be a positive number up to 1e9")
    return share


def drawn_ms(median_s: float, rng: random.Random) -> int:
    """How long a worker is active at a place, of whom half take this long or longer."""
    return max(200, round(1000 * rng.lognormvariate(math.log(median_s), 0.4)))


def _reasons(
    character: Character, truth: Truth, rng: random.Random
) -> tuple[tuple[Shortcoming, ...], tuple[Concept, ...]]:
    """At least one shortcoming, and at least one concept where things are described wrongly."""
    shortcomings = {
        reason for reason in Shortcoming if reason in truth.shortcomings and rng.random() < character.reads
    }
    if not shortcomings:
        shortcomings = {rng.choice(list(Shortcoming))}
    wrong: set[Concept] = set()
    if Shortcoming.DESCRIBED_WRONGLY in shortcomings:
        wrong = {
            concept for concept in Concept if concept in truth.concepts and rng.random() < character.reads
        }
        wrong = wrong or {rng.choice(list(Concept))}
    return tuple(r for r in Shortcoming if r in shortcomings), tuple(c for c in Concept if c in wrong)


SECONDS = 12.0
"""Median active time of a careful worker on one comparison; others look shorter, as they do on pairs."""
CAREFUL_SECONDS = 9.0
"""Of a careful worker on one pair; that others look shorter is reckoned by it."""
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


def answer_comparisons(played: PlayedHit, truths: Mapping[int, ListTruth]) -> list[ComparisonAnswer]:
    """What a worker of this character answers at each place, in rising order; equal for equal arguments."""
    rng, character = played.rng("comparisons"), played.character
    error_rate = 1 - math.fsum(row[place] for place, row in enumerate(character.confusion)) / len(
        character.confusion
    )
    misjudges = _MISJUDGES.get(character.name, error_rate)
    answers = []
    for place in sorted(truths):
        answer = truths[place].better
        if rng.random() < misjudges:
            wrong = [other for other in Preference if other is not answer]
            answer = Preference.LEFT if character.name == "yes-sayer" else rng.choice(wrong)
        median = SECONDS * character.seconds_per_pair / CAREFUL_SECONDS
        answers.append(ComparisonAnswer(place, Outcome.ANSWERED, answer, "", drawn_ms(median, rng)))
    return answers


def _merit(labels: Sequence[Label]) -> tuple[int, float]:
    """How many results match, then how much of the match stands how far up."""
    discounted = [(len(Label) - label.code) / math.log2(rank + 1) for rank, label in enumerate(labels, 1)]
    return sum(label.is_positive for label in labels), round(math.fsum(discounted), 9)

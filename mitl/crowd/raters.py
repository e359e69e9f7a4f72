"""How scripted workers rate likeness, write texts and pick images.

A rater has an offset and a scale of their own, a view of every pair, and slips.

A rater of offset a, scale b and view v of a pair whose true score is s gives

    2.5 + b · (s + v + tremble - 2.5) + a + drift · pages done before

kept within 0 and 5. A view is the rater's own and stays the same when the pair comes again; the tremble of the hand
does not. Both are smaller towards the ends of the scale, where there is less to doubt. Now and then a rater slips and
leaves the slider anywhere. Some do not look at all: they give one number, or one number a page.

What a rater is depends on the seed and the worker's name; what they give on these, the HIT, the pair, and of drifters
on how many HITs they have done.

Careful writers write as they are told, others copy, garble, cut and repeat; what one gives depends on the seed, the
worker's name and the HIT alone.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from mitl.crowd.populations import CAREFUL_SECONDS, Character, PlayedHit, drawn_ms
from mitl.records import Label, Outcome
from mitl.records.collection import EXAMPLES, GivenText
from mitl.records.similarity import HIGHEST, LOWEST, GivenRating, Likeness

SECONDS: Mapping[Likeness, float] = {Likeness.STS: 37.0, Likeness.SIS: 17.0, Likeness.SITS: 17.0}
"""Mean time of CxC's raters on one pair (Parekh et al., Crisscrossed Captions, appendix)."""
MIDDLE = (LOWEST + HIGHEST) / 2
LEAST_DOUBT = 0.35
"""How much of views and tremble is left at the ends of the scale, where a middling pair has all of it."""
HELD_SPREAD = 0.04
"""Standard deviation of numbers that are meant to be one, as a hand on a slider leaves them."""


class Held(StrEnum):
    """How long a rater who does not look keeps to one number."""

    NEVER = "never"
    PAGE = "page"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class RaterHabit:
    """How workers of one character rate; pairs of numbers are a mean and a standard deviation among them."""

    offset: tuple[float, float] = (0.0, 0.0)
    scale: tuple[float, float] = (1.0, 0.0)
    view: float = 0.0
    """Standard deviation of their views of a pair in the middle of the scale."""
    tremble: float = 0.0
    slips: float = 0.0
    """Share of numbers that mean nothing."""
    drift: float = 0.0
    """By how much numbers rise or fall, each rater to one side, from one HIT to the next."""
    held: Held = Held.NEVER


CAREFUL = RaterHabit((0.0, 0.25), (1.0, 0.08), view=0.45, tremble=0.12, slips=0.01)
HABITS: Mapping[str, RaterHabit] = {
    "careful": CAREFUL,
    "hasty": RaterHabit((0.0, 0.45), (0.85, 0.15), view=0.8, tremble=0.35, slips=0.05),
    "yes-sayer": RaterHabit((1.2, 0.4), (0.5, 0.15), view=0.7, tremble=0.35, slips=0.05),
    "random": RaterHabit(slips=1.0),
    "one-number": RaterHabit(held=Held.ALWAYS),
    "straight-liner": RaterHabit(held=Held.PAGE),
    "drifter": RaterHabit((0.0, 0.45), (0.85, 0.15), view=0.6, tremble=0.3, slips=0.03, drift=0.3),
}
"""By character; one that is not here rates carefully."""


@dataclass(frozen=True, slots=True)
class LikenessTruth:
    """What is known of two items that are rated."""

    score: float
    """0 to 5."""
    task: Likeness
    pair: str
    """A name of the pair, the same in every order and on every HIT."""


@dataclass(frozen=True, slots=True)
class Rater:
    """One worker's way of rating."""

    habit: RaterHabit
    offset: float
    scale: float
    drift: float
    number: float
    """What one who gives one number gives."""
    name: str
    """Seeds the views."""


def rater(character: Character, *, seed: int, worker: str) -> Rater:
    """The way of rating of a worker of this character; equal for equal arguments."""
    habit = HABITS.get(character.name, CAREFUL)
    rng = random.Random(f"rater {seed} {worker}")
    offset, scale = rng.gauss(*habit.offset), max(rng.gauss(*habit.scale), 0.1)
    drift = rng.choice((-1, 1)) * habit.drift
    return Rater(habit, offset, scale, drift, rng.uniform(LOWEST, HIGHEST), f"{seed} {worker}")


def answer_ratings(played: PlayedHit, truths: Mapping[int, LikenessTruth]) -> list[GivenRating]:
    """What a worker of this character gives at each place, in rising order; equal for equal arguments."""
    who = rater(played.character, seed=played.seed, worker=played.worker)
    rng = played.rng("ratings")
    number = who.number if who.habit.held is Held.ALWAYS else rng.uniform(LOWEST, HIGHEST)
    pace = played.character.seconds_per_pair / CAREFUL_SECONDS
    answers = []
    for place in sorted(truths):
        truth = truths[place]
        told = _told(who, truth, rng) + who.drift * played.turn
        if who.habit.held is not Held.NEVER:
            told = rng.gauss(number, HELD_SPREAD)
        if rng.random() < who.habit.slips:
            told = rng.uniform(LOWEST, HIGHEST)
        time_ms = drawn_ms(SECONDS[truth.task] * pace, rng)
        score = round(min(max(told, LOWEST), HIGHEST), 2)
        answers.append(GivenRating(place, Outcome.ANSWERED, score, active_ms=time_ms))
    return answers


def _told(who: Rater, truth: LikenessTruth, rng: random.Random) -> float:
    """What a rater who looks would give, not yet kept within the scale."""
    share = truth.score / HIGHEST
    doubt = LEAST_DOUBT + (1 - LEAST_DOUBT) * 4 * share * (1 - share)
    view = random.Random(f"view {who.name} {truth.task} {truth.pair}").gauss(0, who.habit.view)
    seen = truth.score + doubt * (view + rng.gauss(0, who.habit.tremble))
    return MIDDLE + who.scale * (seen - MIDDLE) + who.offset


WRITE_SECONDS, PICK_SECONDS = 40.0, 20.0
"""Median active time of a careful worker on one text, and on one sentence with a few images."""
CARELESS: Mapping[str, float] = {"careful": 0.0, "hasty": 0.15, "yes-sayer": 0.3}
"""Share of a character's texts and picks that mean nothing; of any other character all."""


@dataclass(frozen=True, slots=True)
class WriteTruth:
    """What an onlooker may write of an image."""

    sentences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PickTruth:
    """How well each offered image matches a caption, in the order shown."""

    labels: tuple[Label, ...]

    @property
    def best(self) -> int:
        """Which of them is right, from 1; 0 where none matches."""
        codes = [label.code for label in self.labels]
        at = codes.index(min(codes))
        return at + 1 if self.labels[at].is_positive else 0


def answer_texts(played: PlayedHit, truths: Mapping[int, WriteTruth | PickTruth]) -> list[GivenText]:
    """What a worker of this character gives at each place, in rising order; equal for equal arguments."""
    rng, character = played.rng("texts"), played.character
    careless = CARELESS.get(character.name, 1.0)
    answers: list[GivenText] = []
    for place in sorted(truths):
        truth = truths[place]
        writes = isinstance(truth, WriteTruth)
        median = (WRITE_SECONDS if writes else PICK_SECONDS) * character.seconds_per_pair / CAREFUL_SECONDS
        time_ms = drawn_ms(median, rng)
        nothing = rng.random() < careless
        if isinstance(truth, PickTruth):
            pick = rng.randint(0, len(truth.labels)) if nothing else truth.best
            answers.append(GivenText(place, Outcome.ANSWERED, pick=pick, active_ms=time_ms))
            continue
        texts_so_far = [answer.text for answer in answers]
        if not truth.sentences:
            answers.append(GivenText(place, Outcome.SKIPPED, active_ms=time_ms))
            continue
        fresh = [text for text in truth.sentences if text not in texts_so_far] or list(truth.sentences)
        text = _careless(rng, fresh, texts_so_far) if nothing else rng.choice(fresh)
        answers.append(GivenText(place, Outcome.ANSWERED, text, active_ms=time_ms))
    return answers


def _careless(rng: random.Random, sentences: Sequence[str], own: Sequence[str]) -> str:
    """One of the things that people send who do not care."""
    text = rng.choice(sentences)
    letters = list(text.replace(" ", ""))
    rng.shuffle(letters)
    letters = (letters * 24)[:24]
    garbled = " ".join("".join(letters[at : at + 4]) for at in range(0, 24, 4))
    return rng.choice([rng.choice(EXAMPLES), garbled, text.split()[0], own[-1] if own else garbled])

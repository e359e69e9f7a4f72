"""How scripted workers write texts and pick images: careful ones as they are told, others copy, garble, cut and repeat.

What a worker gives depends on the seed, the worker's name and the HIT alone.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mitl.crowd.populations import CAREFUL_SECONDS, Character
from mitl.records import Label, Outcome
from mitl.records.collection import EXAMPLES, GivenText

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


def answer_texts(
    character: Character,
    truths: Mapping[int, WriteTruth | PickTruth],
    *,
    seed: int,
    worker: str,
    hit: str,
) -> list[GivenText]:
    """What a worker of this character gives at each place, in rising order; equal for equal arguments."""
    rng = random.Random(f"texts {seed} {worker} {hit}")
    careless = CARELESS.get(character.name, 1.0)
    found: list[GivenText] = []
    for place in sorted(truths):
        truth = truths[place]
        writes = isinstance(truth, WriteTruth)
        median = (WRITE_SECONDS if writes else PICK_SECONDS) * character.seconds_per_pair / CAREFUL_SECONDS
        active_ms = max(200, round(1000 * rng.lognormvariate(math.log(median), 0.4)))
        nothing = rng.random() < careless
        if isinstance(truth, PickTruth):
            pick = rng.randint(0, len(truth.labels)) if nothing else truth.best
            found.append(GivenText(place, Outcome.ANSWERED, pick=pick, active_ms=active_ms))
            continue
        own = [given.text for given in found]
        if not truth.sentences:
            found.append(GivenText(place, Outcome.SKIPPED, active_ms=active_ms))
            continue
        fresh = [text for text in truth.sentences if text not in own] or list(truth.sentences)
        text = _careless(rng, fresh, own) if nothing else rng.choice(fresh)
        found.append(GivenText(place, Outcome.ANSWERED, text, active_ms=active_ms))
    return found


def _careless(rng: random.Random, sentences: Sequence[str], own: Sequence[str]) -> str:
    """One of the things that people send who do not care."""
    text = rng.choice(sentences)
    letters = list(text.replace(" ", ""))
    rng.shuffle(letters)
    letters = (letters * 24)[:24]
    garbled = " ".join("".join(letters[at : at + 4]) for at in range(0, 24, 4))
    return rng.choice([rng.choice(EXAMPLES), garbled, text.split()[0], own[-1] if own else garbled])

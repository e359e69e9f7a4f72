"""How an annotator is trained: the loss, the labels, the schedule; what is the same gives the same weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from mitl.errors import TrainingError


class LabelKind(StrEnum):
    """What a pair's relevance is, beside whether it is a match."""

    BINARY = "binary"
    """1 for a match, 0 for none: originals, and what most people call one."""
    GRADED = "graded"
    """The mean of people's four levels, 1 for originals that nobody was asked about."""
    PSEUDO = "pseudo"
    """The same where people answered; elsewhere how like a sentence encoder finds the captions."""


BODY = 0.1
"""Of the rate, where all parameters learn: at the head's rate the backbone forgets more than it learns."""
KEPT = ("best", "last")
PRECISIONS = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that decides a training beside the weights it starts from and the pairs that teach.

    First the head alone learns, then all; over each part the rate falls along a cosine to 0. Source: Chun et al., ECCV
    Caption, appendix C.1; AdamW in place of their AdamP, which torch has not.

    Raises:
        TrainingError: a number that cannot be meant.
    """

    loss: str = "bcls"
    labels: LabelKind = LabelKind.GRADED
    steps: int = 300
    """Batches, those of the head among them."""
    head_steps: int = 200
    """Batches after which all parameters learn."""
    batch: int = 64
    """Images of a batch."""
    captions: int = 2
    """Positives that are drawn for each of them."""
    rate: float = 1e-3
    """Of AdamW at the start; all parameters begin with a tenth of it (``BODY``)."""
    weight_decay: float = 1e-4
    seed: int = 0
    """Of what is held out and of all batches."""
    precision: str = "float32"
    """``bfloat16`` and ``float16`` compute in mixed precision; the weights stay in float32."""
    patience: int = 6
    """Looks at the held-out queries without a better one after which it stops; 0 never stops before the last step."""
    looks: int = 20
    """At the held-out queries, evenly over the steps, beside the one before the first."""
    keep: str = "best"
    """``best`` are the weights that rank the held-out queries best; ``last`` those of the last step, without a stop."""
    held_out: float = 0.15
    """Share of the judged images that teach nothing, they and their captions."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "captions", "looks"):
            self._require(getattr(self, name) >= 1, name, "a whole number from 1")
        for name in ("head_steps", "patience", "seed"):
            self._require(getattr(self, name) >= 0, name, "a whole number from 0")
        self._require(self.batch >= 2, "batch", "2 or more, for a lone image has nothing to be told from")
        self._require(self.head_steps <= self.steps, "head_steps", f"at most the {self.steps} steps")
        # Far above it AdamW's steps are no numbers of float32.
        self._require(0 < self.rate <= 1000, "rate", "a number above 0 and at most 1000")
        self._require(0 <= self.weight_decay < math.inf, "weight_decay", "a number from 0")
        self._require(0 < self.held_out < 1, "held_out", "a share between 0 and 1")
        self._require(self.precision in PRECISIONS, "precision", f"one of {', '.join(PRECISIONS)}")
        self._require(self.keep in KEPT, "keep", f"one of {', '.join(KEPT)}")
        self._require(self.labels in set(LabelKind), "labels", f"one of {', '.join(LabelKind)}")

    def _require(self, holds: bool, name: str, right: str) -> None:
        if not holds:
            raise TrainingError(f"{name} of a training is {getattr(self, name)!r}; it should be {right}")

    def rate_at(self, step: int) -> float:
        """The rate of a step, counted from 0."""
        first = step < self.head_steps
        begin, end = (0, self.head_steps) if first else (self.head_steps, self.steps)
        return (
            self.rate
            * (1 if first else BODY)
            * (0.5 + 0.5 * math.cos(math.pi * (step - begin) / (end - begin)))
        )

    def looks_at(self) -> frozenset[int]:
        """The numbers of steps after which held-out queries are ranked; the last one is among them."""
        return frozenset(math.ceil(self.steps * part / self.looks) for part in range(1, self.looks + 1))

    def as_json(self) -> Mapping[str, Any]:
        """By name, as it is stored; ``keep`` where it is not the usual, for older trainings do not say it."""
        said = {**asdict(self), "labels": self.labels.value}
        return {key: value for key, value in said.items() if (key, value) != ("keep", "best")}

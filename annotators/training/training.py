"""Training itself: steps, looks at held-out queries, checkpoints, and an end before it gets worse.

On one thread of one machine the same weights, lessons and recipe give the same weights, however often it was killed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from annotators.base import fingerprint
from annotators.devices import full_precision, on_threads
from annotators.encoding import Inputs
from annotators.training.learner import Learner
from annotators.training.losses import Labels
from annotators.training.reading import Reads, held_out_map
from annotators.training.recipe import Recipe
from annotators.training.taught import Lecturer, Lessons, TaughtBatch
from mitl.core.whole_files import whole_file
from mitl.errors import TrainingError

VERSION = 1
"""Raised when the same weights, lessons and recipe give other weights."""
LARGEST_GRADIENT = 2.0


@dataclass(frozen=True, slots=True)
class CurveRow:
    """How far a training is."""

    step: int
    """Done; 0 before the first."""
    loss: float
    """Mean since the row before; NaN before the first step."""
    rate: float
    """Of the last step."""
    i2t_map_at_r: float
    """Of held-out images, 0 to 1; NaN where there is none."""
    t2i_map_at_r: float
    """Of held-out captions."""
    map_at_r: float
    """Mean of both."""


COLUMNS = tuple(field.name for field in fields(CurveRow))
"""Of the curve's CSV."""


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """What a training came to; the learner has the weights of the best row."""

    rows: tuple[CurveRow, ...]
    best: CurveRow
    stopped: bool
    """Whether it ended before the last step, for nothing was better for a while."""


@dataclass(frozen=True, slots=True)
class Resumable:
    """Where a training is kept while it goes on, and whose it is."""

    path: Path
    base: str
    """Fingerprint of the annotator from whose weights it starts."""
    lessons: str
    """Hash of the pairs that teach."""
    encoder: str = ""
    """Fingerprint of what pseudo-labels come of; empty where there are none."""
    restart: bool = False
    """Whether what is kept of another training, or damaged, gives way."""

    def marks(self, recipe: Recipe) -> dict[str, str]:
        """What must be the same for a training to go on."""
        return {
            "weights": self.base,
            "answers": self.lessons,
            **({"sentence vectors": self.encoder} if self.encoder else {}),
            "options": fingerprint(recipe=recipe.as_json(), version=VERSION),
        }


Advance = Callable[[int], None]
Told = Callable[[Sequence[CurveRow]], None]


def train(
    learner: Learner,
    lessons: Lessons,
    recipe: Recipe,
    reads: Reads,
    *,
    kept: Resumable | None = None,
    advance: Advance = lambda steps: None,
    told: Told = lambda rows: None,
) -> TrainingResult:
    """Train a learner, which then has the weights of its best look at the held-out queries.

    The look before the first step counts: where nothing is better, the weights are those it came with.

    Args:
        kept: where to keep what is needed to go on after a kill; nothing is kept where it is None.
        advance: told how many more steps are done.
        told: the curve so far, after each look.

    Raises:
        TrainingError: the card is too small, numbers are no longer finite, pseudo-labels without an encoder, no such
            loss, or ``kept`` is of another training.
        AnnotatorError: an item cannot be read.
        OSError: the disk is full.
    """
    course = _Course(learner, Lecturer(lessons, recipe), recipe, reads)
    with ExitStack() as stack:
        stack.enter_context(on_threads(learner.threads))
        if recipe.precision == "float32":
            stack.enter_context(full_precision())
        if kept is None or not course.take_up(kept):
            course.look()
        advance(course.step)
        told(course.rows)
        readers = stack.enter_context(ThreadPoolExecutor(1))
        ahead: Future[_Read] | None = None
        while course.step < recipe.steps and not course.is_done():
            read = ahead.result() if ahead else course.read(course.step)
            if course.step + 1 < recipe.steps:
                ahead = readers.submit(course.read, course.step + 1)
            course.learn(read)
            advance(1)
            if course.step in recipe.looks_at():
                course.look()
                told(course.rows)
                if kept is not None:
                    course.keep(kept)
    learner.load_state(course.best_state)
    learner.rank()
    return TrainingResult(tuple(course.rows), course.best, course.step < recipe.steps)


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """A batch with what the network reads of it."""

    batch: TaughtBatch
    images: list[Inputs]
    captions: list[Inputs]


class _Course:
    """A training on its way."""

    def __init__(self, learner: Learner, lecturer: Lecturer, recipe: Recipe, reads: Reads) -> None:
        if learner.head_alone:
            recipe = replace(recipe, head_steps=recipe.steps)
        self.learner, self.lecturer, self.recipe, self.reads = learner, lecturer, recipe, reads
        self.step = 0
        self.rows: list[CurveRow] = []
        self._losses: list[float] = []
        self.best_state: dict[str, Tensor] = {}
        head = learner.parameters(head=True)
        within = {id(parameter) for parameter in head}
        self._rest = [parameter for parameter in learner.parameters() if id(parameter) not in within]
        groups = [{"params": part} for part in (head, self._rest) if part]
        self._optimizer = torch.optim.AdamW(groups, lr=recipe.rate, weight_decay=recipe.weight_decay)
        self._scaler = torch.amp.GradScaler(
            learner.device.type, enabled=recipe.precision == "float16" and learner.device.type == "cuda"
        )

    @property
    def best(self) -> CurveRow:
        """The first of the rows that are as good as any; the last where that is kept, or nothing can be looked at."""
        if self.recipe.keep == "last":
            return self.rows[-1]
        seen = [row for row in self.rows if not math.isnan(row.map_at_r)]
        return max(seen, key=lambda row: row.map_at_r) if seen else self.rows[-1]

    def is_done(self) -> bool:
        """Whether the last looks, as many as patience allows, brought nothing better."""
        since = sum(row.step > self.best.step for row in self.rows)
        return 0 < self.recipe.patience <= since

    def read(self, step: int, size: int | None = None) -> _Read:
        """The batch of a step, of so many images (by default those of the recipe)."""
        batch = self.lecturer.at(step, size)
        return _Read(
            batch, self.reads.images(batch.images.tolist()), self.reads.captions(batch.captions.tolist())
        )

    def learn(self, read: _Read) -> None:
        """One step; TrainingError where the loss is no number any more, or the card is too small."""
        rate = self.recipe.rate_at(self.step)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        loss = None
        with suppress(torch.cuda.OutOfMemoryError):
            loss = self._backward(read)
        if loss is None:  # not while the error is handled, which holds all that it left on the card
            raise self._too_small()
        if not math.isfinite(loss):
            raise TrainingError(
                f"the loss of step {self.step + 1} is {loss}; train with a lower --rate than {self.recipe.rate:g}, or "
                "in float32"
            )
        self._scaler.unscale_(self._optimizer)
        torch.nn.utils.clip_grad_norm_(self.learner.parameters(), LARGEST_GRADIENT)
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._losses.append(loss)
        self.step += 1

    def _backward(self, read: _Read) -> float:
        for parameter in self._rest:
            parameter.requires_grad_(self.step >= self.recipe.head_steps)
        self.learner.learn()
        self._optimizer.zero_grad(set_to_none=True)
        device, batch = self.learner.device, read.batch
        matches, relevance = (
            torch.from_numpy(table).to(device) for table in (batch.matches, batch.relevance)
        )
        labels = Labels(matches, relevance, torch.ones_like(matches))
        noise = torch.Generator().manual_seed(self.recipe.seed * 1_000_003 + self.step)
        with self._autocast():
            images, captions = self.learner.images(read.images), self.learner.captions(read.captions)
            loss = self.learner.loss(self.recipe.loss, images, captions, labels, noise)
        if loss.requires_grad:
            self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        return loss.item()

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.recipe.precision == "float32":
            return nullcontext()
        return torch.autocast(self.learner.device.type, getattr(torch, self.recipe.precision))

    def _too_small(self) -> TrainingError:
        """What to say of a card whose memory is full: the largest half of half ... of a batch that fits."""
        size = self.lecturer.batch
        while size > 2:
            size = max(2, size // 2)
            self._optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
            try:
                self._backward(self.read(self.step, size))
            except torch.cuda.OutOfMemoryError:
                continue
            return TrainingError(
                f"the card is too small for batches of {self.lecturer.batch} images; {size} fit: give --batch {size}, "
                "or --precision bfloat16"
            )
        return TrainingError(
            "the card is too small for two images of this network; give --precision bfloat16 or --device cpu"
        )

    def look(self) -> None:
        """Rank the held-out queries; the weights are kept where nothing was better."""
        rate = self.recipe.rate_at(self.step - 1) if self.step else 0.0
        loss = float(np.mean(self._losses)) if self._losses else math.nan
        i2t, t2i = held_out_map(self.learner, self.lecturer.held_out, self.reads)
        both = [value for value in (i2t, t2i) if not math.isnan(value)]
        self.rows.append(
            CurveRow(self.step, loss, rate, i2t, t2i, float(np.mean(both)) if both else math.nan)
        )
        self._losses = []
        if self.best is self.rows[-1]:
            self.best_state = self.learner.state()

    def keep(self, kept: Resumable) -> None:
        """Write all that is needed to go on; batches and noise follow from the seed and the step."""
        state = {
            "marks": kept.marks(self.recipe),
            "step": self.step,
            "rows": [astuple(row) for row in self.rows],
            "weights": self.learner.state(),
            "best": self.best_state,
            "optimizer": self._optimizer.state_dict(),
            "scaler": self._scaler.state_dict(),
        }
        with whole_file(kept.path) as sink:
            torch.save(state, sink)

    def take_up(self, kept: Resumable) -> bool:
        """Go on where a killed training was; false where there is none, or another that gives way.

        Raises:
            TrainingError: the file is of another training, or damaged, and does not give way.
        """
        if not kept.path.is_file():
            return False
        again = "give --restart to begin anew, or train under another --name"
        try:
            state = dict(torch.load(kept.path, map_location="cpu", weights_only=True))
            wanted = kept.marks(self.recipe)
            other = [what for what, mark in wanted.items() if state["marks"].get(what) != mark]
        except Exception as error:  # what unpickling a damaged file raises is no part of torch's interface
            if kept.restart:
                return False
            raise TrainingError(f"{str(kept.path)!r} is no checkpoint of a training; {again}") from error
        if other and kept.restart:
            return False
        if other:
            raise TrainingError(
                f"a training that was not finished lies in {str(kept.path)!r}, and it has other {' and '.join(other)}; "
                f"give the same as before to go on, or {again}"
            )
        self.step, self.best_state = state["step"], state["best"]
        self.rows = [CurveRow(*row) for row in state["rows"]]
        self.learner.load_state(state["weights"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._scaler.load_state_dict(state["scaler"])
        return True

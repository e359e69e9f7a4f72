"""The tasks that can be asked for by name, the sides that each needs, and who can do which."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from mitl.errors import UsageError
from mitl.records import Direction
from mitl.records.similarity import Likeness
from mitl.stages.evaluating.models import BOTH, Modality


class NamedTask(StrEnum):
    """What a model can be scored on: retrieval between two sides and within one, and correlation with ratings."""

    I2T = "i2t"
    T2I = "t2i"
    T2T = "t2t"
    I2I = "i2i"
    STS = "sts"
    SIS = "sis"
    SITS = "sits"

    @property
    def sides(self) -> frozenset[Modality]:
        """The sides whose items are compared."""
        return _SIDES.get(self, BOTH)

    @property
    def likeness(self) -> Likeness:
        """The ratings that it is made from."""
        return _LIKENESS.get(self, Likeness.SITS)

    @property
    def needs_ratings(self) -> bool:
        """Whether nothing but ratings will do; any set of positives has images and captions that match."""
        return self not in (NamedTask.I2T, NamedTask.T2I)


_CAPTIONS, _IMAGES = frozenset({"caption"}), frozenset({"image"})
_SIDES = {NamedTask.T2T: _CAPTIONS, NamedTask.STS: _CAPTIONS, NamedTask.I2I: _IMAGES, NamedTask.SIS: _IMAGES}
_LIKENESS = {
    NamedTask.T2T: Likeness.STS,
    NamedTask.STS: Likeness.STS,
    NamedTask.I2I: Likeness.SIS,
    NamedTask.SIS: Likeness.SIS,
}
EVERY_TASK = frozenset(NamedTask)


def directions_of(tasks: Sequence[NamedTask], direction: str) -> tuple[Direction, ...]:
    """The directions between two sides: those of the tasks named, else what ``--direction`` says.

    Raises:
        UsageError: both are given.
    """
    if tasks and direction != "both":
        raise UsageError("--task names the directions too; leave --direction out")
    if tasks:
        return tuple(way for way in Direction if way.value in {task.value for task in tasks})
    return tuple(Direction) if direction == "both" else (Direction(direction),)


def refuse_undoable(models: Sequence[tuple[str, frozenset[Modality]]], tasks: Iterable[NamedTask]) -> None:
    """UsageError where no model knows the sides that a task named needs.

    Args:
        models: names, and the sides that each knows.
    """
    for task in tasks:
        if not any(task.sides <= sides for _, sides in models):
            name, sides = models[0]
            needed = "images and captions" if task.sides == BOTH else f"{next(iter(task.sides))}s"
            raise UsageError(
                f"the task {task.value} compares {needed}, but {name} holds {alone(sides)}; give embeddings of "
                f"{'both sides' if task.sides == BOTH else needed}, or ask for {', '.join(doable(sides))}"
            )


def alone(sides: frozenset[Modality]) -> str:
    """How a message calls what a model of one modality holds."""
    return f"{next(iter(sides))}s alone"


def doable(sides: frozenset[Modality]) -> tuple[str, ...]:
    """The tasks that a model of these sides can do."""
    return tuple(task.value for task in NamedTask if task.sides <= sides)

"""Every model on every task, by its rankings where they suffice, else by its similarities in one pass over blocks.

A task is what models are held against: it scores rankings, or similarities that come block by block.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from mitl.errors import MetricError
from mitl.metrics.embeddings import score_blocks
from mitl.metrics.official import Fold, fold_values, score_folds_ranked
from mitl.metrics.positives import Ids, Positives, Short
from mitl.metrics.ranks import PositiveRanks
from mitl.metrics.retrieval import Values, score_metrics
from mitl.metrics.table import ANYWHERE, MEDIAN_RANK, Asked, asked_metrics
from mitl.progress import Progress
from mitl.records import Direction
from mitl.stages.evaluating.figures import Scored
from mitl.stages.evaluating.models import Block, Model, Ranked, Sides, blocks, joined
from mitl.stages.evaluating.request import Wanted

IN_PYTHON = " (short='zero')"
"""How messages of mitl.metrics name the rule that --short names here."""
_QUERY = re.compile(r"\b(query|item) (-?[0-9]+)\b")


class Task(Protocol):
    """One thing that models are scored on, in one direction at a time."""

    @property
    def name(self) -> str:
        """What its figures are listed under."""
        ...

    @property
    def deep(self) -> bool:
        """Whether it may need rankings of the whole gallery."""
        ...

    def queries(self, direction: Direction) -> Ids:
        """The queries it scores, rising; none where it has nothing in this direction."""
        ...

    def depth(self, direction: Direction) -> int:
        """How deep rankings must be, where it is not ``deep``."""
        ...

    def ranked(self, direction: Direction, rankings: Ranked, short: Short) -> Values:
        """The values of rankings; MetricError where they are undefined."""
        ...

    def start(self, direction: Direction) -> Running:
        """A scoring of similarities that come block by block."""
        ...


class Running(Protocol):
    """A scoring under way."""

    def add(self, block: Block) -> None:
        """Score some more queries, all of them the task's."""
        ...

    def values(self) -> Values:
        """The values of all queries so far."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class PositivesTask:
    """A set of positives under the metrics of the table."""

    name: str
    positives: Mapping[Direction, Positives]
    wanted: Wanted

    @property
    def deep(self) -> bool:
        """Whether a rank that matters can lie anywhere."""
        return any(one.metric.places == "any" for one in self.wanted.metrics)

    def queries(self, direction: Direction) -> Ids:
        """Those that the set lists."""
        return self.positives[direction].query_ids

    def depth(self, direction: Direction) -> int:
        """The largest K or R."""
        counts = self.positives[direction].counts
        reaches = [int(one.reach(counts).max(initial=0)) for one in self.wanted.metrics]
        return max([1, *(reach for reach in reaches if reach < ANYWHERE)])

    def ranked(self, direction: Direction, rankings: Ranked, short: Short) -> Values:
        """See ``score_metrics``."""
        return score_metrics(rankings, self.positives[direction], self.wanted.metrics, short=short)

    def start(self, direction: Direction) -> Running:
        """Each block is scored by itself."""
        return _PositivesRunning(self, self.positives[direction])


@dataclass(slots=True, eq=False)
class _PositivesRunning:
    task: PositivesTask
    positives: Positives
    parts: list[Values] = field(default_factory=list)

    def add(self, block: Block) -> None:
        positives = self.positives.of_queries(block.query_ids)
        self.parts.append(block_values(block, positives, self.task.wanted.metrics))

    def values(self) -> Values:
        return joined(self.parts)


@dataclass(frozen=True, slots=True, eq=False)
class FoldsTask:
    """COCO 1K: Recall@K, and other metrics of first positives, within each fifth of the test split."""

    name: str
    folds: Mapping[Direction, tuple[Fold, ...]]
    wanted: Wanted
    deep: bool = True

    def queries(self, direction: Direction) -> Ids:
        """All of the folds'."""
        return np.unique(np.concatenate([fold.positives.query_ids for fold in self.folds[direction]]))

    def depth(self, direction: Direction) -> int:
        """Anywhere: a fold's first item may stand after all others."""
        return 0

    def ranked(self, direction: Direction, rankings: Ranked, short: Short) -> Values:
        """See ``score_folds_ranked``."""
        return score_folds_ranked(rankings, self.folds[direction], self.wanted.of_first, short=short)

    def start(self, direction: Direction) -> Running:
        """Each block is split among the folds."""
        return _FoldsRunning(self, self.folds[direction])


@dataclass(slots=True, eq=False)
class _FoldsRunning:
    task: FoldsTask
    folds: Sequence[Fold]
    first: dict[int, list[tuple[Ids, Ids]]] = field(default_factory=dict)

    def add(self, block: Block) -> None:
        for number, fold in enumerate(self.folds):
            mine = block.of(fold.positives.query_ids)
            if len(mine.query_ids):
                self.first.setdefault(number, []).append((mine.query_ids, first_ranks_within(mine, fold)))

    def values(self) -> Values:
        parts = []
        for number, fold in enumerate(self.folds):
            query_ids, found = (np.concatenate(part) for part in zip(*self.first[number], strict=True))
            order = np.argsort(query_ids, kind="stable")
            assert np.array_equal(query_ids[order], fold.positives.query_ids)
            others = np.zeros(len(fold.positives.item_ids), np.int64)
            parts.append(PositiveRanks(fold.positives, others, found[order], found[order], 0))
        return fold_values(parts, self.task.wanted.of_first)


def block_values(block: Block, positives: Positives, asked: Sequence[Asked]) -> Values:
    """The values of a block's queries. Beyond a gallery smaller than K or R there is nothing: those are misses."""
    ids = block.query_ids, block.gallery_ids
    return score_blocks(block.similarities, *ids, positives, asked, short="zero")


def first_ranks_within(block: Block, fold: Fold) -> Ids:
    """(B,) the rank of each query's first positive among the fold's items."""
    columns = np.flatnonzero(np.isin(block.gallery_ids, fold.item_ids))
    inside = Block(block.query_ids, block.gallery_ids[columns], block.similarities[:, columns])
    positives = fold.positives.of_queries(block.query_ids)
    (found,) = block_values(inside, positives, asked_metrics([MEDIAN_RANK]))
    order = np.argsort(block.query_ids, kind="stable")
    ranks = np.empty(len(order), np.int64)
    ranks[order] = found.values.astype(np.int64)
    return ranks


def score_model(
    model: Model,
    tasks: Sequence[Task],
    sides: Sides,
    directions: Sequence[Direction],
    short: Short,
    progress: Progress,
) -> list[Scored]:
    """The model on all tasks, in their order.

    Raises:
        MetricError: a metric is undefined for what the model brings; the query is named by its own id.
    """
    found: dict[tuple[str, Direction], Scored] = {}
    for direction in directions:
        by_blocks = []
        for task in tasks:
            if not len(task.queries(direction)):
                continue
            rankings = model.rankings.get(direction)
            if model.similarities is not None and (rankings is None or task.deep):
                by_blocks.append(task)
                continue
            if task.deep and model.cut:
                continue
            assert rankings is not None, "a model has rankings or similarities"
            with named(model.name, task.name, sides, direction):
                ends = _short(rankings, sides, direction, short)
                values = task.ranked(direction, rankings, ends)
            found[task.name, direction] = Scored(task.name, model.name, direction.value, values)
        for task, running in _run(model, by_blocks, sides, direction, progress):
            with named(model.name, task.name, sides, direction):
                found[task.name, direction] = Scored(task.name, model.name, direction.value, running.values())
    return [
        found[task.name, direction]
        for task in tasks
        for direction in directions
        if (task.name, direction) in found
    ]


def _run(
    model: Model, tasks: Sequence[Task], sides: Sides, direction: Direction, progress: Progress
) -> list[tuple[Task, Running]]:
    """One pass over the similarities for all these tasks."""
    if not tasks:
        return []
    assert model.similarities is not None
    wanted = [task.queries(direction) for task in tasks]
    running = [task.start(direction) for task in tasks]
    query_ids = np.unique(np.concatenate(wanted))
    for block in blocks(model.similarities, sides, direction, query_ids, progress, f"score {model.name}"):
        for task, theirs, one in zip(tasks, wanted, running, strict=True):
            mine = block.of(theirs)
            if len(mine.query_ids):
                with named(model.name, task.name, sides, direction):
                    one.add(mine)
    return list(zip(tasks, running, strict=True))


def _short(rankings: Ranked, sides: Sides, direction: Direction, short: Short) -> Short:
    """Rankings that hold the whole gallery lack nothing: a place beyond it is a miss for every model."""
    gallery = len(sides.gallery(direction))
    return "zero" if len(rankings.ends) and int(rankings.ends.min()) >= gallery else short


@contextmanager
def named(model: str, task: str, sides: Sides, direction: Direction) -> Iterator[None]:
    """Say which model and set an error is about, and name queries and items by their own ids."""
    sides_of = {"query": sides.queries(direction), "item": sides.gallery(direction)}

    def id_of(found: re.Match[str]) -> str:
        try:
            return f"{found[1]} {sides_of[found[1]].id_of(int(found[2]))}"
        except MetricError:
            return found[0]

    try:
        yield
    except MetricError as error:
        text = _QUERY.sub(id_of, str(error)).replace(IN_PYTHON, " (--short zero)")
        raise MetricError(f"{model} {direction} on {task}: {text}") from error

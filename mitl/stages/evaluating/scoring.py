"""Every model on every task, by its rankings where they suffice, else by its similarities in one pass over blocks.

A task is what models are compared with: it scores rankings, or similarities that come block by block.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError
from mitl.metrics.positives import Ids, Positives, Short
from mitl.metrics.ranks import NOTHING
from mitl.metrics.retrieval import Values
from mitl.progress import Progress
from mitl.records import Direction
from mitl.stages.evaluating.figures import Scored
from mitl.stages.evaluating.models import Block, Model, Ranked, Sides, blocks, joined

IN_PYTHON = " (short='zero')"
"""How messages of mitl.metrics name the rule that --short names here."""
_QUERY = re.compile(r"\b(query|item) (-?[0-9]+)\b")


class ScoredTask(ABC):
    """One thing that models are scored on, in one direction at a time."""

    name: str
    """What its figures are listed under."""

    @property
    def deep(self) -> bool:
        """Whether it may need rankings of the whole gallery."""
        return True

    @abstractmethod
    def queries(self, direction: Direction) -> Ids:
        """The queries it scores, rising; none where it has nothing in this direction."""

    def depth(self, direction: Direction) -> int:
        """How deep rankings must be, where it is not ``deep``."""
        return 0

    def content(self) -> Sequence[NDArray[Any]]:
        """What it compares with, in the sides' numbers; nothing where that is not of a set of positives or grades."""
        return ()

    def ranked(self, direction: Direction, rankings: Ranked, short: Short) -> Values:
        """The values of rankings, nothing where these do not do; MetricError where they are undefined."""
        return ()

    @abstractmethod
    def score(self, direction: Direction, block: Block) -> Any:
        """What is kept of the similarities of some of its queries."""

    def values(self, direction: Direction, parts: Sequence[Any]) -> Values:
        """The values of all queries, from what was kept of each block: their own values unless told otherwise."""
        return joined(parts)


def score_model(
    model: Model,
    tasks: Sequence[ScoredTask],
    sides: Sides,
    directions: Sequence[Direction],
    short: Short,
    progress: Progress,
) -> list[Scored]:
    """The model on all tasks, in their order; nothing of a model of one modality, since they all have two sides.

    Raises:
        MetricError: a metric is undefined for what the model brings; the query is named by its own id.
    """
    if model.is_one_sided:
        return []
    scored: dict[tuple[str, Direction], Values] = {}
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
                ends = rankings.ends[np.isin(rankings.query_ids, task.queries(direction))]
                # What holds the whole gallery lacks nothing: a place beyond it is a miss for every model.
                whole = len(ends) > 0 and ends.min() >= len(sides.gallery(direction))
                scored[task.name, direction] = task.ranked(direction, rankings, "zero" if whole else short)
        for task, parts in _run(model, by_blocks, sides, direction, progress):
            with named(model.name, task.name, sides, direction):
                scored[task.name, direction] = task.values(direction, parts)
    return [
        Scored(task.name, model.name, direction.value, scored[task.name, direction])
        for task in tasks
        for direction in directions
        if (task.name, direction) in scored
    ]


def _run(
    model: Model, tasks: Sequence[ScoredTask], sides: Sides, direction: Direction, progress: Progress
) -> list[tuple[ScoredTask, list[Any]]]:
    """One pass over the similarities for all these tasks: what each keeps of the blocks."""
    if not tasks:
        return []
    assert model.similarities is not None
    queries = [task.queries(direction) for task in tasks]
    kept: list[list[Any]] = [[] for _ in tasks]
    query_ids = np.unique(np.concatenate(queries))
    label = f"score {model.name} {direction}"
    for block in blocks(model.similarities, sides, direction, query_ids, progress, label):
        for task, theirs, parts in zip(tasks, queries, kept, strict=True):
            mine = block.of(theirs)
            if len(mine.query_ids):
                with named(model.name, task.name, sides, direction):
                    parts.append(task.score(direction, mine))
    return list(zip(tasks, kept, strict=True))


@contextmanager
def named(model: str, task: str, sides: Sides, way: str) -> Iterator[None]:
    """Say which model and set an error is about, and name queries and items by their own ids."""
    sides_of = {"query": sides.queries(way), "item": sides.gallery(way)}

    def id_of(match: re.Match[str]) -> str:
        try:
            return f"{match[1]} {sides_of[match[1]].id_of(int(match[2]))}"
        except MetricError:
            return match[0]

    try:
        yield
    except MetricError as error:
        text = _QUERY.sub(id_of, str(error)).replace(IN_PYTHON, " (--short zero)")
        raise MetricError(f"{model} {way} on {task}: {text}") from error


def best_items(
    model: Model, sides: Sides, positives: Mapping[Direction, Positives], depth: int, progress: Progress
) -> dict[Direction, Mapping[str, Sequence[str]]]:
    """Direction → query → the head of its ranking, in the order that metrics read: of tied items the smaller id first.

    Args:
        depth: places, as far as the gallery goes; as many as a query has positives where that is more.

    Raises:
        UsageError: the model knows one side alone.
    """
    model.require_both_sides()
    heads: dict[Direction, Mapping[str, Sequence[str]]] = {}
    for direction, listed in positives.items():
        if not len(listed):
            continue
        deep = max(depth, int(listed.counts.max()))
        queries, gallery = sides.queries(direction), sides.gallery(direction)
        heads[direction] = {
            queries.id_of(int(query)): [gallery.id_of(int(item)) for item in row if item != NOTHING]
            for query, row in _heads(model, sides, direction, listed.query_ids, deep, progress)
        }
    return heads


def _heads(
    model: Model, sides: Sides, direction: Direction, query_ids: Ids, depth: int, progress: Progress
) -> Iterator[tuple[int, Ids]]:
    rankings = model.rankings.get(direction)
    if rankings is not None:
        depth = min(depth, rankings.items.shape[1])
        items = rankings.block(rankings.rows_of(query_ids), 0, depth)
        yield from zip(query_ids.tolist(), np.asarray(items, np.int64), strict=True)
        return
    assert model.similarities is not None, "a model has rankings or similarities"
    label = f"rank {direction}"
    for block in blocks(model.similarities, sides, direction, query_ids, progress, label):
        yield from zip(block.query_ids.tolist(), block.head(depth), strict=True)

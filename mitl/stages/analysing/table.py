"""What an analysis is: what it works on, what it hands out, and how one table of columns serves people and files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from mitl.analysis.records import Cell, Matrix
from mitl.analysis.report.inputs import Section
from mitl.core.arrays import contains, distinct
from mitl.db.session import open_database
from mitl.errors import MetricError, UsageError
from mitl.progress import Progress, no_progress
from mitl.proposals.candidates import ranking_path
from mitl.records import Direction, Environment, Table
from mitl.retrieval.rankings import read_ranking
from mitl.settings import Settings
from mitl.stages.analysing.snapshot import ProjectSnapshot, query_and_item, read_project

T = TypeVar("T")
R = TypeVar("R")

NO_RANKINGS = "no rankings are kept in this project; run `mitl propose`"
NO_JUDGEMENTS = "nobody has judged a pair yet; `mitl status` says what comes first"


@dataclass(frozen=True, slots=True)
class AnalysisOptions:
    """What was asked for beside the names of the analyses."""

    annotators: tuple[str, ...] = ()
    """Only these; all where empty."""
    scores: Path | None = None
    """A CSV of models and metrics for ``correlations``."""
    sets: tuple[str, ...] = ()
    """More sets of positives for ``sets``."""
    subsets: tuple[frozenset[str], ...] = ()
    """More columns for the scores of ``bias``."""
    deep: bool = False
    ratings: Path | None = None
    """A folder of ratings in CxC's layout for ``similarity``."""
    captions: Path | None = None
    """The captions' texts for it, where there is no project."""
    csv: Path | None = None
    plots: Path | None = None

    def names_file_of(self, analysis: str) -> bool:
        """Whether a file or folder was named for an analysis: then it must be read, whatever the project holds."""
        named = {
            "correlations": self.scores is not None,
            "sets": bool(self.sets),
            "similarity": self.ratings is not None or self.captions is not None,
        }
        return named.get(analysis, False)


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """The kept rankings of one direction: the same queries for every annotator."""

    annotators: tuple[str, ...]
    query_ids: NDArray[np.int64]
    """(Q,) surrogate ids, rising."""
    items: NDArray[np.int64]
    """(A, Q, K) surrogate ids, best first."""

    @property
    def depth(self) -> int:
        """Ranked items of each query."""
        return int(self.items.shape[2])

    def require_two(self, analysis: str, direction: Direction) -> None:
        """MetricError where one annotator alone has rankings, and this analysis compares them."""
        if len(self.annotators) < 2:
            alone = self.annotators[0]
            raise MetricError(
                f"{analysis} takes two annotators, but there are {direction} rankings of {alone!r} alone"
            )


@dataclass(eq=False)
class AnalysisInput:
    """The project as it is read when an analysis first asks for it, and what was asked for."""

    settings: Settings
    environment: Environment | None = None
    options: AnalysisOptions = field(default_factory=AnalysisOptions)
    progress: Progress = no_progress
    skipped: list[MetricError] = field(default_factory=list)
    """Why `by_direction` left a direction out."""
    _lists: dict[Direction, Lists] = field(default_factory=dict)

    @classmethod
    def of(cls, project: ProjectSnapshot, options: AnalysisOptions | None = None) -> AnalysisInput:
        """A project that is read already."""
        inputs = cls(project.settings, project.environment, options or AnalysisOptions())
        inputs.project = project
        return inputs

    @cached_property
    def project(self) -> ProjectSnapshot:
        """Everything in the database; StoreError where there is none."""
        with open_database(self.settings.db_url, read_only=True) as session:
            return read_project(session, self.settings, self.environment)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The annotators, in the order of the runs; UsageError where one is named that the project lacks."""
        present = tuple(row.name for row in self.project.annotators)
        for name in self.options.annotators:
            if name not in present:
                known = ", ".join(present) or "none has proposed anything yet"
                raise UsageError(f"no annotator {name!r} in this project; known: {known}")
        return tuple(name for name in present if name in (self.options.annotators or present))

    def require_judgements(self) -> None:
        """MetricError where nobody has judged a pair."""
        if self.project.answers.empty:
            raise MetricError(NO_JUDGEMENTS)

    @cached_property
    def ranked_directions(self) -> tuple[Direction, ...]:
        """Those of which rankings are kept; MetricError where there are none at all."""
        ranked = tuple(d for d in Direction if any(self._files(name, d) for name in self.names))
        if not ranked:
            raise MetricError(NO_RANKINGS)
        return ranked

    def by_direction(self, make: Callable[[Direction], Iterable[R]]) -> tuple[R, ...]:
        """What can be made of the directions of which rankings are kept; what ``make`` raises if that is nothing."""
        made: list[R] = []
        reasons = []
        for direction in self.ranked_directions:
            try:
                made += make(direction)
            except MetricError as error:
                reasons.append(error)
        if reasons and not made:
            raise reasons[0]
        self.skipped += reasons
        return tuple(made)

    def lists(self, direction: Direction) -> Lists:
        """The kept rankings of a direction over all runs; a query of several runs counts once, by the last.

        Annotators of different depths are cut to the shallowest; queries that an annotator lacks are left out.

        Raises:
            MetricError: no ranking is kept, or the annotators have no query in common.
            RetrievalError: a file is damaged.
        """
        if direction not in self._lists:
            self._lists[direction] = self._read_lists(direction)
        return self._lists[direction]

    def judged_lists(self, direction: Direction, takes_two: str = "") -> Lists:
        """The lists of the queries with a pair that people judged.

        Raises:
            MetricError: there is none, or one annotator alone for the analysis ``takes_two``.
        """
        lists = self.lists(direction)
        kept = contains(distinct(query_and_item(self.project.answered, direction)[0]), lists.query_ids)
        if not kept.any():
            raise MetricError(
                f"no {direction} query with kept rankings has a judged pair; run `mitl harvest`"
            )
        if takes_two:
            lists.require_two(takes_two, direction)
        return Lists(lists.annotators, lists.query_ids[kept], lists.items[:, kept])

    def _read_lists(self, direction: Direction) -> Lists:
        by_name = {name: rows for name in self.names if (rows := self._rows(name, direction))}
        if not by_name:
            raise MetricError(NO_RANKINGS)
        common = sorted(set.intersection(*(set(rows) for rows in by_name.values())))
        if not common:
            raise MetricError(
                f"the annotators have ranked no {direction} query in common; rank the same queries"
            )
        depth = min(len(rows[query]) for rows in by_name.values() for query in common)
        items = np.array([[rows[query][:depth] for query in common] for rows in by_name.values()], np.int64)
        return Lists(tuple(by_name), np.array(common, np.int64), items)

    def _rows(self, name: str, direction: Direction) -> dict[int, NDArray[np.int64]]:
        """Query → ranked items of one annotator, over all runs."""
        queries, gallery = (
            {external: id_ for id_, external in ids.items()} for ids in self.project.sides(direction)
        )
        rows: dict[int, NDArray[np.int64]] = {}
        for path in self._files(name, direction):
            ranking = read_ranking(path, queries, gallery)
            rows |= dict(zip(ranking.query_ids.tolist(), ranking.item_ids, strict=True))
        return rows

    def _files(self, name: str, direction: Direction) -> list[Path]:
        """The ranking files of one annotator, oldest run first."""
        folders = [self.settings.runs / run.hash for run in self.project.runs]
        paths = (ranking_path(folder, name, direction) for folder in folders)
        return [path for path in paths if path.is_file()]


@dataclass(frozen=True, slots=True)
class Findings:
    """What one analysis hands out: tables for people, numbers for machines, rows for CSV files, drawings."""

    counts: Mapping[str, object]
    """Of ``--json``; plain numbers, texts, lists and objects."""
    tables: tuple[Table, ...] = ()
    lines: tuple[str, ...] = ()
    """For people, after the tables."""
    rows: Mapping[str, Table] = field(default_factory=dict)
    """File name without its ending → every number of the analysis as one table, with names for a machine."""
    drawings: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    """File name without its ending → what draws the SVG, called where one is wanted; empty ones are not written."""
    captions: Mapping[str, str] = field(default_factory=dict)
    """In the report: name of a drawing → what stands under it; the section's heading where there is none."""


@dataclass(frozen=True, slots=True)
class Analysis(Generic[T]):
    """One analysis: what it computes, and how that is shown on the terminal, in files and in the report."""

    name: str
    compute: Callable[[AnalysisInput], T]
    """Raises MetricError where the project holds too little, with what to do about it."""
    show: Callable[[T, AnalysisInput], Findings]
    section: Section | None = None
    """In the report: a section of its own from the tables and drawings; None where the page has a part for it."""
    optional: bool = False
    """Whether the section is left out where it cannot be made, rather than saying why."""


@dataclass(frozen=True, slots=True)
class Column(Generic[R]):
    """A column of a table: its key in files and JSON, and how people read it."""

    key: str
    value: Callable[[R], object]
    title: str = ""
    """For people; the key where it is empty."""
    shown: Callable[[Any], object] | None = None
    """For people; the value as it is where None."""


def for_people(title: str, columns: Sequence[Column[R]], rows: Iterable[R]) -> Table:
    """The rows as people read them."""
    return Table(
        title,
        tuple(column.title or column.key for column in columns),
        tuple(
            tuple(
                column.value(row) if column.shown is None else column.shown(column.value(row))
                for column in columns
            )
            for row in rows
        ),
    )


def for_files(columns: Sequence[Column[R]], rows: Iterable[R]) -> Table:
    """Every number of the rows, for a CSV file."""
    cells = tuple(tuple(column.value(row) for column in columns) for row in rows)
    return Table("", tuple(column.key for column in columns), cells)


def for_json(columns: Sequence[Column[R]], row: R) -> dict[str, object]:
    """One row by the columns' keys."""
    return {column.key: column.value(row) for column in columns}


def percent(value: Cell, digits: int = 1) -> str | None:
    """A share from 0 to 1 as a percentage without its sign; None stays None."""
    return None if value is None else number(100 * value, digits)


def number(value: Cell, digits: int = 3) -> str | None:
    """A number with so many digits after the point."""
    return None if value is None else f"{value:z,.{digits}f}"


def square(title: str, names: Sequence[str], matrix: Matrix, digits: int = 3) -> Table:
    """A table of every name against every name; its diagonal is left blank, for it says nothing."""
    rows = (
        (name, *(None if i == j else number(cell, digits) for j, cell in enumerate(matrix[i])))
        for i, name in enumerate(names)
    )
    return Table(title, ("", *names), tuple(rows))


def off_diagonal(names: Sequence[str], matrix: Matrix) -> dict[str, dict[str, Cell]]:
    """Row → column → cell, without the diagonal."""
    return {
        row: {column: matrix[i][j] for j, column in enumerate(names) if i != j} for i, row in enumerate(names)
    }

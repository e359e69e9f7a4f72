"""Running the analyses that were asked for; one that cannot be made says why and the others go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mitl.errors import MitlError, StoreError, UsageError
from mitl.progress import Progress, no_progress
from mitl.records import Environment, StageResult
from mitl.settings import Settings
from mitl.stages.analysing.answers import answers, rationale
from mitl.stages.analysing.bias_shown import bias
from mitl.stages.analysing.correlations import correlations
from mitl.stages.analysing.diversity import diversity
from mitl.stages.analysing.findings import Findings, csv_files, drawing_files, write
from mitl.stages.analysing.label_order import label_order
from mitl.stages.analysing.material import Material
from mitl.stages.analysing.multiplicity import multiplicity
from mitl.stages.analysing.sets import sets
from mitl.stages.analysing.uncertainty import uncertainty
from mitl.stages.analysing.workers import workers
from mitl.stages.analysing.wrong_positives import wrong_positives


@dataclass(frozen=True, slots=True)
class Wanted:
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
    csv: Path | None = None
    plots: Path | None = None


ANALYSES: dict[str, Callable[[Material, Wanted], Findings]] = {
    "diversity": lambda material, _: diversity(material),
    "answers": lambda material, _: answers(material),
    "rationale": lambda material, _: rationale(material),
    "workers": lambda material, _: workers(material),
    "sets": lambda material, asked: sets(material, asked.sets),
    "wrong-positives": lambda material, _: wrong_positives(material),
    "multiplicity": lambda material, _: multiplicity(material),
    "label-order": lambda material, _: label_order(material),
    "correlations": lambda material, asked: correlations(material.settings, asked.scores),
    "bias": lambda material, asked: bias(material, deep=asked.deep, subsets=asked.subsets),
    "uncertainty": lambda material, _: uncertainty(material),
}
"""Name → analysis, in the order in which they are shown."""


def analyse(
    settings: Settings,
    names: Sequence[str] = (),
    environment: Environment | None = None,
    *,
    wanted: Wanted | None = None,
    progress: Progress = no_progress,
) -> StageResult:
    """Make the analyses named, or all.

    Raises:
        UsageError: there is no such analysis, annotator or subset.
        StoreError: the project has no database, or one that cannot be read.
        MitlError: none of the analyses can be made: the reason of the first; or a file or set that was named cannot
            be read.
    """
    asked = wanted or Wanted()
    _check(names, asked)
    material = Material(settings, environment, asked.annotators, progress=progress)
    chosen = [name for name in ANALYSES if not names or name in names]
    found: dict[str, Findings] = {}
    left_out: dict[str, MitlError] = {}
    for name in chosen:
        try:
            found[name] = ANALYSES[name](material, asked)
        except (UsageError, StoreError):
            raise
        except MitlError as error:
            if _given(name, asked):
                raise  # a file that was named must be read: it is no matter of what the project holds
            left_out[name] = error
    if not found:
        raise next(iter(left_out.values()))
    return _result(chosen, found, left_out, asked)


def _check(names: Sequence[str], asked: Wanted) -> None:
    unknown = next((name for name in names if name not in ANALYSES), None)
    if unknown is not None:
        raise UsageError(f"no analysis called {unknown!r}; known: {', '.join(ANALYSES)}")
    for given, option, needed in (
        (asked.scores, "--scores", "correlations"),
        (asked.sets, "--set", "sets"),
        (asked.subsets, "--subset", "bias"),
        (asked.deep, "--deep", "bias"),
    ):
        if given and names and needed not in names:
            raise UsageError(f"{option} means nothing without the analysis {needed!r}; name it too")


def _given(name: str, asked: Wanted) -> bool:
    """Whether an analysis is to read what was named on the command line."""
    return (name == "correlations" and asked.scores is not None) or (name == "sets" and bool(asked.sets))


def _result(
    chosen: Sequence[str],
    found: Mapping[str, Findings],
    left_out: Mapping[str, MitlError],
    asked: Wanted,
) -> StageResult:
    tables = [file for one in found.values() for file in csv_files(asked.csv, one)] if asked.csv else []
    plots = (
        [file for one in found.values() for file in drawing_files(asked.plots, one)] if asked.plots else []
    )
    written = write(tables), write(plots)
    lines = [
        f"{name}: {line}" if len(found) > 1 else line for name, one in found.items() for line in one.lines
    ]
    lines += [f"left out: {name}: {left_out[name]}" for name in chosen if name in left_out]
    lines += [f"{written[0]} of {len(tables)} tables written to {asked.csv}"] if asked.csv else []
    lines += [f"{written[1]} of {len(plots)} drawings written to {asked.plots}"] if asked.plots else []
    kept = bool(tables or plots) and not any(written)
    if kept:
        lines.append("nothing to do: the files hold exactly this already")
    return StageResult(
        status="nothing_to_do" if kept else "done",
        counts={
            "analyses": {name: dict(one.counts) for name, one in found.items()},
            "left_out": {name: str(error) for name, error in left_out.items()},
            "tables_written": written[0],
            "drawings_written": written[1],
        },
        paths={
            **({"csv": str(asked.csv)} if asked.csv else {}),
            **({"plots": str(asked.plots)} if asked.plots else {}),
        },
        tables=tuple(table for one in found.values() for table in one.tables),
        lines=tuple(lines),
    )

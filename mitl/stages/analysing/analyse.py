"""Running the analyses that were asked for; one that cannot be made says why and the others go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

from mitl.core.formats import csv_bytes
from mitl.core.whole_files import put_file
from mitl.errors import MitlError, StoreError, UsageError
from mitl.progress import Progress, no_progress
from mitl.records import Environment, StageResult
from mitl.records.results import printed_by
from mitl.settings import Settings
from mitl.stages.analysing.answers import ANSWERS, RATIONALE, TEXTS, WORKERS
from mitl.stages.analysing.bias import BIAS
from mitl.stages.analysing.completeness import COMPLETENESS
from mitl.stages.analysing.correlations import CORRELATIONS
from mitl.stages.analysing.favour import FAVOUR
from mitl.stages.analysing.multiplicity import MULTIPLICITY
from mitl.stages.analysing.rankings import DIVERSITY, LABEL_ORDER
from mitl.stages.analysing.sets import SETS
from mitl.stages.analysing.similarity import SIMILARITY
from mitl.stages.analysing.table import Analysis, AnalysisInput, AnalysisOptions, Findings
from mitl.stages.analysing.uncertainty import FUSION, UNCERTAINTY
from mitl.stages.analysing.wrong_positives import WRONG_POSITIVES

ANALYSES: dict[str, Analysis[Any]] = {
    analysis.name: analysis
    for analysis in (
        DIVERSITY,
        ANSWERS,
        RATIONALE,
        WORKERS,
        SETS,
        WRONG_POSITIVES,
        MULTIPLICITY,
        COMPLETENESS,
        LABEL_ORDER,
        CORRELATIONS,
        BIAS,
        FAVOUR,
        UNCERTAINTY,
        SIMILARITY,
        TEXTS,
        FUSION,
    )
}
"""Name → analysis, in the order in which they are shown; `mitl analyse` and the report go through it alike."""


@printed_by("analyse")
class AnalyseCounts(TypedDict):
    """What `mitl analyse` counts."""

    analyses: Annotated[
        dict[str, dict[str, object]],
        "analysis → its numbers; docs/analysis.md says what they are. Shares and scores are from 0 to 1, what is not "
        "defined is null",
    ]
    left_out: Annotated[dict[str, str], "analysis → why it, or one direction of it, could not be made"]
    tables_written: Annotated[int, "files of `--csv` that were not there exactly so already"]
    drawings_written: Annotated[int, "files of `--plots`, the same"]


@printed_by("analyse", key="paths")
class AnalysePaths(TypedDict, total=False):
    """Where `mitl analyse` wrote."""

    csv: Annotated[str, "folder of the CSV files, with `--csv`"]
    plots: Annotated[str, "folder of the SVG files, with `--plots`"]


def analyse(
    settings: Settings,
    names: Sequence[str] = (),
    environment: Environment | None = None,
    *,
    options: AnalysisOptions | None = None,
    progress: Progress = no_progress,
) -> StageResult:
    """Make the analyses named, or all.

    Raises:
        UsageError: there is no such analysis, annotator or subset.
        StoreError: the project has no database, or one that cannot be read.
        MitlError: none of the analyses can be made: the reason of the first; or a file or set that was named cannot
            be read.
    """
    asked = options or AnalysisOptions()
    _check(names, asked)
    of = AnalysisInput(settings, environment, asked, progress)
    chosen = [name for name in ANALYSES if not names or name in names]
    by_name: dict[str, Findings] = {}
    left_out: dict[str, MitlError] = {}
    for name in chosen:
        try:
            by_name[name] = ANALYSES[name].show(ANALYSES[name].compute(of), of)
            if of.skipped:
                left_out[name] = of.skipped.pop()
        except (UsageError, StoreError):
            raise
        except MitlError as error:
            if asked.names_file_of(name):
                raise
            left_out[name] = error
    if not by_name:
        raise next(iter(left_out.values()))
    return _result(by_name, left_out, asked)


def _check(names: Sequence[str], asked: AnalysisOptions) -> None:
    unknown = next((name for name in names if name not in ANALYSES), None)
    if unknown is not None:
        raise UsageError(f"no analysis called {unknown!r}; known: {', '.join(ANALYSES)}")
    for given, option, needed in (
        (asked.scores, "--scores", "correlations"),
        (asked.sets, "--set", "sets"),
        (asked.subsets, "--subset", "bias"),
        (asked.deep, "--deep", "bias"),
        (asked.ratings, "--ratings", "similarity"),
        (asked.captions, "--captions", "similarity"),
    ):
        if given and names and needed not in names:
            raise UsageError(f"{option} means nothing without the analysis {needed!r}; name it too")


def _result(
    by_name: Mapping[str, Findings], left_out: Mapping[str, MitlError], asked: AnalysisOptions
) -> StageResult:
    lines = [
        f"{name}: {line}" if len(by_name) > 1 else line
        for name, findings in by_name.items()
        for line in findings.lines
    ]
    lines += [f"left out: {name}: {error}" for name, error in left_out.items()]
    paths: AnalysePaths = {}
    tables: dict[Path, bytes] = {}
    plots: dict[Path, bytes] = {}
    if asked.csv is not None:
        paths["csv"] = str(asked.csv)
        for findings in by_name.values():
            tables |= {
                asked.csv / f"{name}.csv": csv_bytes([table.columns, *table.rows])
                for name, table in findings.rows.items()
            }
    if asked.plots is not None:
        paths["plots"] = str(asked.plots)
        for findings in by_name.values():
            drawn = {name: svg for name, draw in findings.drawings.items() if (svg := draw())}
            plots |= {
                asked.plots / f"{name}.svg": f'<?xml version="1.0" encoding="UTF-8"?>\n{svg}\n'.encode()
                for name, svg in drawn.items()
            }
    tables_written, drawings_written = (
        sum(put_file(path, content) for path, content in files.items()) for files in (tables, plots)
    )
    lines += [f"{tables_written} of {len(tables)} tables written to {asked.csv}"] if asked.csv else []
    lines += [f"{drawings_written} of {len(plots)} drawings written to {asked.plots}"] if asked.plots else []
    kept = bool(tables or plots) and not (tables_written or drawings_written)
    if kept:
        lines.append("nothing to do: the files hold exactly this already")
    counts: AnalyseCounts = {
        "analyses": {name: dict(findings.counts) for name, findings in by_name.items()},
        "left_out": {name: str(error) for name, error in left_out.items()},
        "tables_written": tables_written,
        "drawings_written": drawings_written,
    }
    return StageResult(
        status="nothing_to_do" if kept else "done",
        counts=counts,
        paths=paths,
        tables=tuple(table for findings in by_name.values() for table in findings.tables),
        lines=tuple(lines),
    )

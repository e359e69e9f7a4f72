"""What the report's pages show beyond the plain records: steps, shares, shades, and words for pairs to look at."""

from __future__ import annotations

import base64
import io
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from mitl.analysis.known_truth import DirectionScores
from mitl.analysis.records import Matrix
from mitl.analysis.report.inputs import (
    DisputedPair,
    DisputeKind,
    EvaluationScore,
    ExampleItem,
    ExampleQuery,
    Frame,
    FunnelCounts,
    Multiplicity,
    ReportInput,
    TruthStats,
)
from mitl.analysis.uncertainty import CountSpread, spread
from mitl.core.formats import points
from mitl.core.pictures import FORMATS, SPOILED, upright
from mitl.protocol.media import format_of, head_of
from mitl.records import Direction
from mitl.records.enums import PartKind

TABLED = ("R@1", "R@5", "R-Precision", "mAP@R")
"""The metrics that a table has room for."""

FRAMES = {
    Frame.ORIGINAL: "original annotation",
    Frame.YES: "people said yes",
    Frame.WEAK_YES: "people said weak yes",
    Frame.CXC: "another source alone",
    Frame.REFUSED: "refused by people",
}

DISPUTES = {
    DisputeKind.WORKERS: (
        "Workers disagree",
        "pairs that several people answered, with answers on both sides, match and no match",
    ),
    DisputeKind.ORIGINAL: (
        "People refuse an original",
        "judged pairs of the original annotation, called no match",
    ),
    DisputeKind.CXC: (
        "Earlier ratings and people differ",
        "pairs with an answer and an earlier rating, on opposite sides",
    ),
    DisputeKind.MACHINES: (
        "All machines agree, people say no",
        "judged pairs that every annotator proposed, called no match",
    ),
    DisputeKind.WRONG: (
        "Matches with a wrong part",
        "pairs that people called a match, with a part that they name as wrong",
    ),
    DisputeKind.TRUTH: (
        "People against the truth",
        "judged pairs, on the wrong side of the known truth",
    ),
}
"""(heading, how the sentence behind "N of M" goes on)."""

FUNNEL_LABELS = {
    "possible": "query × gallery pairs",
    "distinct": "candidate pairs",
    "asked": "asked",
    "judged": "judged",
    "usable": "judged, usable",
    "positive": "judged positive",
    "beyond_originals": "positives beyond the originals",
}


@dataclass(frozen=True, slots=True)
class FunnelStep:
    """One step of the funnel; shares run from 0 to 1 and are None where there is nothing to compare with."""

    key: str
    label: str
    count: int
    of_previous: float | None
    of_first: float | None


def histogram(values: Sequence[int], *, tail: int) -> tuple[int, ...]:
    """How many values are 0, 1, … ``tail - 1``, and at the end how many are ``tail`` or more."""
    return tuple(np.bincount(np.minimum(np.array(values, np.int64), tail), minlength=tail + 1).tolist())


def funnel_steps(funnel: FunnelCounts) -> tuple[FunnelStep, ...]:
    """The steps that are known, in order, each as a share of the one before and of the first."""
    steps: list[FunnelStep] = []
    for field in fields(funnel):
        count: int | None = getattr(funnel, field.name)
        if count is None:
            continue
        of_previous = count / steps[-1].count if steps and steps[-1].count else None
        of_first = count / steps[0].count if steps and steps[0].count else None
        steps.append(FunnelStep(field.name, FUNNEL_LABELS[field.name], count, of_previous, of_first))
    return tuple(steps)


@dataclass(frozen=True, slots=True)
class EvaluationTable:
    """Scores of one direction: one row an annotator, one group of columns a set of positives."""

    direction: Direction
    groups: tuple[tuple[str, tuple[str, ...]], ...]
    """(set of positives, its metrics), in order of appearance."""
    rows: tuple[tuple[str, tuple[EvaluationScore | None, ...]], ...]
    """(annotator, its scores); None where there is none."""
    best: tuple[float | None, ...]
    """The highest value of each column."""
    has_intervals: bool
    taught_by: Mapping[str, int]
    """Annotator → pairs whose answers taught it and that one of the sets judges; without those that none taught."""


def evaluation_tables(scores: Sequence[EvaluationScore]) -> tuple[EvaluationTable, ...]:
    """One table a direction that has scores; a missing score is None."""
    tables = []
    for direction in Direction:
        here = [score for score in scores if score.direction is direction]
        if not here:
            continue
        metrics: dict[str, dict[str, None]] = {}
        for score in here:
            if score.metric in TABLED:
                metrics.setdefault(score.positives, {})[score.metric] = None
        values = {(score.annotator, score.positives, score.metric): score for score in here}
        columns = [(positives, metric) for positives, group in metrics.items() for metric in group]
        rows = tuple(
            (name, tuple(values.get((name, *column)) for column in columns))
            for name in dict.fromkeys(score.annotator for score in here)
        )
        best = tuple(
            max((cell.value for _, row in rows if (cell := row[i]) is not None), default=None)
            for i in range(len(columns))
        )
        groups = tuple((positives, tuple(group)) for positives, group in metrics.items())
        taught = {score.annotator: score.taught_by for score in here if score.taught_by}
        has_intervals = any(score.low is not None for score in here)
        tables.append(EvaluationTable(direction, groups, rows, best, has_intervals, taught))
    return tuple(tables)


@dataclass(frozen=True, slots=True)
class MultiplicityRow:
    """Positives of one direction's queries, before and after."""

    direction: Direction
    of_queries: int
    """All of the direction; counted are those with an answered candidate, where people answered any."""
    answered_share: float | None
    """Of their candidates, those with a usable answer; None where nothing was proposed."""
    before: CountSpread
    after: CountSpread

    @property
    def means(self) -> tuple[str, str]:
        """Both means as texts, with a second decimal if the first would hide what was found."""
        before, after = self.before, self.after
        is_told = points(before.mean) != points(after.mean) or before.positives == after.positives
        digits = 1 if is_told else 2
        return points(before.mean, digits), points(after.mean, digits)


def multiplicity_rows(sets: Sequence[Multiplicity]) -> tuple[MultiplicityRow, ...]:
    """Of the sets that hold queries."""
    return tuple(
        MultiplicityRow(
            direction=entry.direction,
            of_queries=entry.queries,
            answered_share=entry.answered / entry.candidates if entry.candidates else None,
            before=spread(entry.before),
            after=spread(entry.after),
        )
        for entry in sets
        if entry.before and entry.after
    )


def truth_rows(truth: TruthStats | None) -> tuple[tuple[str, str, DirectionScores], ...]:
    """(kind, name, scores) of every set measured against the truth, before first and release last."""
    if truth is None:
        return ()
    rows: tuple[tuple[str, str, DirectionScores | None], ...] = (
        ("before", "original annotation", truth.original),
        *(("annotator", f"{name} alone", scores) for name, scores in truth.by_annotator),
        ("hit rule", "HIT rule alone", truth.hit_rule),
        ("record", "HIT rule with worker record", truth.hit_rule_and_record),
        ("after", "release", truth.release),
    )
    return tuple((kind, name, scores) for kind, name, scores in rows if scores is not None)


@dataclass(frozen=True, slots=True)
class Shade:
    """A number of a square table with how dark its cell is, 0 to 1; the number says it too."""

    value: float | None
    depth: float


def shaded(matrix: Matrix) -> tuple[tuple[Shade, ...], ...]:
    """Every cell with its shade; off the diagonal, from the smallest value to the largest."""
    cells = [
        value for i, row in enumerate(matrix) for j, value in enumerate(row) if i != j and value is not None
    ]
    low, high = min(cells, default=0.0), max(cells, default=1.0)
    width = high - low or 1.0
    return tuple(
        tuple(
            Shade(value, 0.0 if i == j or value is None else round((value - low) / width, 2))
            for j, value in enumerate(row)
        )
        for i, row in enumerate(matrix)
    )


@dataclass(frozen=True, slots=True)
class ExampleFrame:
    """The items of one frame of an example query."""

    frame: Frame
    items: tuple[ExampleItem, ...]
    total: int
    """How many there are; the items may be fewer."""


def by_frame(query: ExampleQuery) -> Iterator[ExampleFrame]:
    """The items by frame, each in the order given."""
    totals = dict(query.totals)
    for frame in Frame:
        items = tuple(item for item in query.items if item.frame is frame)
        if items:
            yield ExampleFrame(frame, items, max(totals.get(frame, 0), len(items)))


def tags(item: ExampleItem) -> list[str]:
    """What speaks for and against the item, in words."""
    said: list[str] = []
    if item.original:
        said.append("original")
    if item.label is not None:
        said.append(f"judged {item.label.value.replace('_', ' ')}")
    if item.cxc_score is not None:
        said.append(f"rated {item.cxc_score:.1f}")
    if item.frame is Frame.ORIGINAL and not item.released:
        said.append("not judged, so not in the release" if item.label is None else "not in the release")
    return said


def said_of(pair: DisputedPair) -> str:
    """The answers of a disputed pair in words: ``yes, no, no; together no``."""
    answers = ", ".join(label.value.replace("_", " ") for label in pair.answers)
    answer = pair.label.value.replace("_", " ")
    return answers if len(set(pair.answers)) == 1 else f"{answers}; together {answer}"


def picture_uses(data: ReportInput) -> list[Path]:
    """Every image file once for each time that it is shown, in the page's order."""
    uses = [*_shown(match.pair for match in data.found.shown)]
    for direction in Direction:
        for example in data.examples:
            if example.direction is not direction:
                continue
            if example.image is not None:
                uses.append(example.image)
            uses += [item.image for item in example.items if item.image is not None]
    return [*uses, *_shown(pair for dispute in data.disputes for pair in dispute.shown)]


def _shown(pairs: Iterable[DisputedPair]) -> Iterator[Path]:
    for pair in pairs:
        yield from (path for path in (pair.reference, pair.image) if path is not None)


MOST_MEDIUM = 300_000
"""Bytes of a sound or video that stands in the page itself."""
LADDER = ((240, 75), (200, 65), (160, 55), (120, 45))
"""(width in pixels, JPEG quality), tried in turn until all pictures fit."""


def data_uri(path: Path, *, width: int, quality: int) -> str | None:
    """The picture at most ``width`` pixels wide as a JPEG ``data:`` URI; None where it cannot be read.

    A sound or video stays as it is where it is small, and is left out where it is not.

    Metadata stays behind, transparency becomes white, a camera's turn is applied.
    """
    from PIL import Image

    try:
        medium = format_of(head_of(path))
        if medium is not None and medium.kind is not PartKind.IMAGE:
            if path.stat().st_size > MOST_MEDIUM:
                return None
            return f"data:{medium.media_type};base64," + base64.b64encode(path.read_bytes()).decode("ascii")
        with warnings.catch_warnings():
            # A picture that is too large to open safely is one that cannot be shown.
            warnings.simplefilter("error")
            with Image.open(path, formats=FORMATS) as source:
                source.draft("RGB", (2 * width, 2 * width))
                picture = upright(source)
    except (OSError, *SPOILED, Warning, Image.DecompressionBombError):
        return None
    if picture.width > width:
        height = max(1, round(picture.height * width / picture.width))
        picture = picture.resize((width, height), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    picture.save(buffer, format="JPEG", quality=quality, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def picture_uris(uses: Sequence[Path], *, budget_bytes: int) -> dict[Path, str]:
    """A ``data:`` URI for each file that can be read, all uses together within the budget.

    All pictures get smaller before any is left out; then those come first that are used first.

    Args:
        uses: the files in the order of the page, one entry for each time that a file is shown.
    """
    times = Counter(uses)
    files = list(times)
    uris: dict[Path, str] = {}
    for width, quality in LADDER:
        uris = {}
        for file in files:
            uri = data_uri(file, width=width, quality=quality)
            if uri is not None:
                uris[file] = uri
        files = list(uris)
        if sum(len(uri) * times[file] for file, uri in uris.items()) <= budget_bytes:
            return uris
    kept: dict[Path, str] = {}
    left = budget_bytes
    for file, uri in uris.items():
        cost = len(uri) * times[file]
        if cost <= left:
            kept[file] = uri
            left -= cost
    return kept

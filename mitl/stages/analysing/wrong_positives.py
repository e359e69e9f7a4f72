"""Section F and Fig. F.1: positives of which a part is wrong, as a list to exclude from and as a figure."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path

import numpy as np

from mitl.analysis.report.views import picture_uris
from mitl.core.arrays import unpack_pairs
from mitl.core.formats import csv_cell
from mitl.errors import MetricError
from mitl.records import Concept, ExclusionKind, Label, Pair, Table
from mitl.records.frames import LABELS
from mitl.records.questions import CONCEPT, SHORTCOMING
from mitl.stages.analysing.snapshot import OBJECT, ProjectSnapshot, wrong_parts
from mitl.stages.analysing.table import (
    Analysis,
    AnalysisInput,
    Column,
    Findings,
    for_files,
    for_people,
    percent,
)

SOURCE = "mitl analyse wrong-positives"
_FIRST = (OBJECT, "color", "quantity")
"""What the figure of the paper shows, in its order; other parts follow by how often they are wrong."""
_ACROSS, _MOST_ROWS = 3, 5
_BUDGET_BYTES = 2_000_000


@dataclass(frozen=True, slots=True)
class WrongPositive:
    """A pair that people called a match, and which parts of its caption are wrong."""

    pair: Pair
    label: Label
    n_judgements: int
    parts: tuple[str, ...]
    """As its workers ticked them; in a generated world as they are."""
    truth: Label | None
    """None where nobody knows."""
    excluded: bool

    @property
    def is_no_match(self) -> bool:
        """Whether it is known to be no match."""
        return self.truth is not None and not self.truth.is_positive


@dataclass(frozen=True, slots=True, eq=False)
class _Made:
    """The positives with something wrong, in order of the pairs."""

    project: ProjectSnapshot
    wrong: list[WrongPositive]
    positives: int
    excluded: int
    """Positives that exclusion lists take out."""

    @property
    def parts(self) -> list[str]:
        """Which parts are wrong: those of the paper's figure, then the others by how often they are wrong."""
        common = self.by_part.most_common()
        return list(
            dict.fromkeys((*(part for part in _FIRST if self.by_part[part]), *(part for part, _ in common)))
        )

    @property
    def by_part(self) -> Counter[str]:
        """How often each part is wrong."""
        return Counter(part for positive in self.wrong for part in positive.parts)


def _compute(of: AnalysisInput) -> _Made:
    """The pairs that people called a match although something in them is wrong, by what it is.

    In a generated world the truth says what is wrong, elsewhere the ticks of workers who called the pair a match.

    Raises:
        MetricError: nothing is judged, or nobody was asked what is wrong.
    """
    of.require_judgements()
    project, truth = of.project, of.project.truth_of
    ticks = project.judgements[[SHORTCOMING.column, CONCEPT.column]]
    if truth is None and not ticks.to_numpy().any():
        raise MetricError("nobody was asked what is wrong; publish with `--template pairs-rationale`")
    if not len(project.positive):
        raise MetricError("people called no pair a match yet; run `mitl harvest`")
    pairs = project.faults.index.to_numpy() if truth is None else project.positive
    ticked = project.faults if truth is None else [()] * len(pairs)
    answers = project.answers.iloc[np.searchsorted(project.answered, pairs)]
    is_excluded, true, wrong = project.exclusions.name(pairs).tolist(), None, []
    columns = answers["label"], answers["n_judgements"], ticked, is_excluded
    for pair, label, n, parts, excluded in zip(unpack_pairs(pairs), *columns, strict=True):
        if truth is not None:
            known = truth(project.image_ids[pair.image_id], project.caption_ids[pair.caption_id])
            true, parts = known.label, wrong_parts(known.shortcomings, known.concepts)
        if parts:
            wrong.append(WrongPositive(pair, LABELS[label], n, parts, true, excluded))
    return _Made(project, wrong, len(project.positive), int(project.exclusions.name(project.positive).sum()))


def _show(made: _Made, _: AnalysisInput) -> Findings:
    by_truth = made.project.truth_of is not None
    listed = [entry for entry in made.project.exclusion_rows if entry.kind is ExclusionKind.WRONG]
    return Findings(
        counts={
            "positives": made.positives,
            "wrong": len(made.wrong),
            "wrong_yes": sum(positive.label is Label.YES for positive in made.wrong),
            "by_part": {part: made.by_part[part] for part in made.parts},
            "no_match_in_truth": sum(positive.is_no_match for positive in made.wrong) if by_truth else None,
            "excluded": made.excluded,
            "listed_as_wrong": len(listed),
        },
        tables=(_table(made, by_truth=by_truth),),
        lines=(
            "by the known truth"
            if by_truth
            else "by what workers ticked on pairs that people called a match",
            "wrong-positives.csv of --csv is an exclusion list: delete the rows that should stay, then "
            "`mitl init --exclude wrong-positives.csv` takes the others out of releases",
        ),
        rows={"wrong-positives": for_files(_listed(made.project), made.wrong)},
        drawings={"wrong-positives": partial(_figure, made)},
    )


def _table(made: _Made, *, by_truth: bool) -> Table:
    some = [(part, [positive for positive in made.wrong if part in positive.parts]) for part in made.parts]
    columns: tuple[Column[tuple[str, list[WrongPositive]]], ...] = (
        Column("wrong", lambda row: row[0]),
        Column("pairs", lambda row: len(row[1])),
        Column("% of positives", lambda row: percent(len(row[1]) / made.positives)),
        Column("answered yes", lambda row: sum(positive.label is Label.YES for positive in row[1])),
        Column("weak yes", lambda row: sum(positive.label is Label.WEAK_YES for positive in row[1])),
        Column("excluded", lambda row: sum(positive.excluded for positive in row[1])),
        Column("no match in truth", lambda row: sum(positive.is_no_match for positive in row[1])),
    )
    title = f"positives of people with something wrong: {len(made.wrong):,} of {made.positives:,}"
    return for_people(title, columns if by_truth else columns[:-1], (*some, ("any", made.wrong)))


def _listed(project: ProjectSnapshot) -> tuple[Column[WrongPositive], ...]:
    """An exclusion list with what a person needs to decide beside it."""
    image_of, caption_of = project.image_of, project.caption_of
    return (
        Column("kind", lambda row: ExclusionKind.WRONG.value),
        Column("image_id", lambda row: image_of[row.pair.image_id].external_id),
        Column("caption_id", lambda row: caption_of[row.pair.caption_id].external_id),
        Column("reason", lambda row: f"wrong {', '.join(row.parts)}"),
        Column("source", lambda row: SOURCE),
        Column("label", lambda row: row.label.value),
        Column("answers", lambda row: row.n_judgements),
        Column("truth", lambda row: None if row.truth is None else row.truth.value),
        Column("excluded", lambda row: "yes" if row.excluded else "no"),
        # A person edits the list in a spreadsheet; nothing reads the text back.
        Column("text", lambda row: csv_cell(caption_of[row.pair.caption_id].text)),
        Column(
            "picture",
            lambda row: str(image_of[row.pair.image_id].path or image_of[row.pair.image_id].url or ""),
        ),
    )


def _figure(made: _Made) -> str:
    """Examples as in Fig. F.1: a row for each kind of wrong part, pictures with their captions and answers."""
    image_of = made.project.image_of
    rows = [(part, _varied(made.wrong, part)) for part in made.parts[:_MOST_ROWS]]
    paths = [path for _, some in rows for positive in some if (path := image_of[positive.pair.image_id].path)]
    pictures = picture_uris(paths, budget_bytes=_BUDGET_BYTES)
    if not pictures:
        return ""
    width, height = _ACROSS * _CARD_WIDTH + _MARGIN, len(rows) * _ROW_HEIGHT + _MARGIN
    body = "".join(
        _row(some, made.project, pictures, f"({chr(ord('a') + place)}) {_heading(part)}", place * _ROW_HEIGHT)
        for place, (part, some) in enumerate(rows)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12" role="img" aria-label="Positives of which a part is wrong">'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>{body}</svg>'
    )


_CARD_WIDTH, _PICTURE_HEIGHT, _ROW_HEIGHT, _MARGIN = 260, 180, 274, 16


def _row(
    some: Sequence[WrongPositive], project: ProjectSnapshot, pictures: dict[Path, str], heading: str, top: int
) -> str:
    parts = [f'<text x="{_MARGIN}" y="{top + 24}" font-size="14" font-weight="bold">{heading}</text>']
    for place, positive in enumerate(some):
        left = _MARGIN + place * _CARD_WIDTH
        image, caption = (
            project.image_of[positive.pair.image_id],
            project.caption_of[positive.pair.caption_id],
        )
        uri = pictures.get(image.path) if image.path else None
        box = f'x="{left}" y="{top + 34}" width="{_CARD_WIDTH - _MARGIN}" height="{_PICTURE_HEIGHT}"'
        parts.append(
            f'<rect {box} fill="#eeeeee"/>'
            + (f'<image {box} href="{uri}" preserveAspectRatio="xMidYMid meet"/>' if uri else "")
        )
        told = textwrap.wrap(caption.text, 38, max_lines=3, placeholder=" …")
        truth = "" if positive.truth is None else f", in truth {positive.truth.value.replace('_', ' ')}"
        lines = [*told, f"people: {positive.label.value.replace('_', ' ')}{truth}"]
        for line, text in enumerate(lines):
            faint = ' fill="#666666"' if line == len(lines) - 1 else ""
            y = top + 34 + _PICTURE_HEIGHT + 15 * (line + 1)
            parts.append(f'<text x="{left}" y="{y}"{faint}>{escape(text)}</text>')
    return "".join(parts)


def _heading(part: str) -> str:
    return "something else is wrong" if part == Concept.OTHER.value else f"wrong {escape(part)}"


def _varied(wrong: Sequence[WrongPositive], part: str) -> list[WrongPositive]:
    """Few of those with this part wrong, a plain yes and few other faults first; no image and no caption twice."""
    chosen: list[WrongPositive] = []
    for positive in sorted(
        (positive for positive in wrong if part in positive.parts),
        key=lambda positive: (len(positive.parts), positive.label.code, positive.pair),
    ):
        fresh = all(
            positive.pair.image_id != other.pair.image_id
            and positive.pair.caption_id != other.pair.caption_id
            for other in chosen
        )
        if fresh and len(chosen) < _ACROSS:
            chosen.append(positive)
    return chosen


WRONG_POSITIVES = Analysis("wrong-positives", _compute, _show)

"""Section F and Fig. F.1: positives of which a part is wrong, as a list to exclude from and as a figure."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path

from mitl.analysis.report.pictures import picture_uris
from mitl.crowd.truth import truth_source
from mitl.errors import MetricError
from mitl.records import Concept, ExclusionKind, Label, Pair, Table
from mitl.stages.analysing.findings import Findings
from mitl.stages.analysing.material import Material
from mitl.stages.analysing.pair_facts import OBJECT, PairFacts, wrong_parts
from mitl.stages.analysing.shown import percent

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


def wrong_positives(material: Material) -> Findings:
    """The pairs that people called a match although something in them is wrong, by what it is.

    In a generated world the truth says what is wrong, elsewhere the ticks of workers who called the pair a match.

    Raises:
        MetricError: nothing is judged, or nobody was asked what is wrong.
    """
    material.require_judgements()
    known = material.known
    truth = truth_source(material.settings, "scenes") if material.has_truth else None
    facts = PairFacts(known, material.answers, truth)
    if truth is None and not any(row.record.shortcomings or row.record.concepts for row in known.judgements):
        raise MetricError("nobody was asked what is wrong; publish with `--template pairs-rationale`")
    positive = [pair for pair, answer in material.answers.items() if answer.label.is_positive]
    if not positive:
        raise MetricError("people called no pair a match yet; run `mitl harvest`")
    listed = [entry for entry in known.exclusion_rows if entry.kind is ExclusionKind.WRONG]
    excluded = {pair for pair in positive if pair in known.exclusions}
    found = []
    for pair in sorted(positive):
        image, caption = facts.images[pair.image_id], facts.captions[pair.caption_id]
        true = None if truth is None else truth(image.external_id, caption.external_id)
        ticks = facts.reasons(pair) if true is None else (true.shortcomings, true.concepts)
        if parts := wrong_parts(*ticks):
            answer = material.answers[pair]
            label = None if true is None else true.label
            found.append(
                WrongPositive(pair, answer.label, answer.n_judgements, parts, label, pair in excluded)
            )
    by_part = Counter(part for one in found for part in one.parts)
    order = [part for part in _FIRST if by_part[part]]
    order += [part for part, _ in by_part.most_common() if part not in order]
    counts: dict[str, object] = {
        "positives": len(positive),
        "wrong": len(found),
        "wrong_yes": sum(one.label is Label.YES for one in found),
        "by_part": {part: by_part[part] for part in order},
        "no_match_in_truth": None
        if truth is None
        else sum(one.truth is not None and not one.truth.is_positive for one in found),
        "excluded": len(excluded),
        "listed_as_wrong": len(listed),
    }
    return Findings(
        counts=counts,
        tables=(_table(found, order, len(positive), by_truth=truth is not None),),
        lines=(
            "by the known truth"
            if truth is not None
            else "by what workers ticked on pairs that people called a match",
            "wrong-positives.csv of --csv is an exclusion list: delete the rows that should stay, then "
            "`mitl init --exclude wrong-positives.csv` takes the others out of releases",
        ),
        rows={"wrong-positives": _rows(found, facts)},
        drawings={"wrong-positives": partial(_figure, found, order, facts)},
    )


def _table(found: Sequence[WrongPositive], order: Sequence[str], positives: int, *, by_truth: bool) -> Table:
    def row(name: str, some: Sequence[WrongPositive]) -> tuple[object, ...]:
        cells: tuple[object, ...] = (
            name,
            len(some),
            percent(len(some) / positives),
            sum(one.label is Label.YES for one in some),
            sum(one.label is Label.WEAK_YES for one in some),
            sum(one.excluded for one in some),
        )
        if not by_truth:
            return cells
        return (*cells, sum(one.truth is not None and not one.truth.is_positive for one in some))

    columns = ("wrong", "pairs", "% of positives", "answered yes", "weak yes", "excluded")
    rows = [row(part, [one for one in found if part in one.parts]) for part in order]
    return Table(
        f"positives of people with something wrong: {len(found):,} of {positives:,}",
        (*columns, "no match in truth") if by_truth else columns,
        (*rows, row("any", found)),
    )


def _rows(found: Sequence[WrongPositive], facts: PairFacts) -> Table:
    """An exclusion list with what a person needs to decide beside it."""
    columns = (
        *("kind", "image_id", "caption_id", "reason", "source"),
        *("label", "answers", "truth", "excluded", "text", "picture"),
    )
    rows = []
    for one in found:
        image, caption = facts.images[one.pair.image_id], facts.captions[one.pair.caption_id]
        rows.append(
            (
                ExclusionKind.WRONG.value,
                image.external_id,
                caption.external_id,
                f"wrong {', '.join(one.parts)}",
                SOURCE,
                one.label.value,
                one.n_judgements,
                None if one.truth is None else one.truth.value,
                "yes" if one.excluded else "no",
                caption.text,
                str(image.path or image.url or ""),
            )
        )
    return Table("", columns, tuple(rows))


def _figure(found: Sequence[WrongPositive], order: Sequence[str], facts: PairFacts) -> str:
    """Examples as in Fig. F.1: a row for each kind of wrong part, pictures with their captions and answers."""
    rows = [(part, _varied(found, part)) for part in order[:_MOST_ROWS]]
    paths = [path for _, some in rows for one in some if (path := facts.images[one.pair.image_id].path)]
    pictures = picture_uris(paths, budget_bytes=_BUDGET_BYTES)
    if not pictures:
        return ""
    width, height = _ACROSS * _CARD_WIDTH + _MARGIN, len(rows) * _ROW_HEIGHT + _MARGIN
    body = "".join(
        _row(part, some, facts, pictures, chr(ord("a") + place), place * _ROW_HEIGHT)
        for place, (part, some) in enumerate(rows)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12" role="img" aria-label="Positives of which a part is wrong">'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>{body}</svg>'
    )


_CARD_WIDTH, _PICTURE_HEIGHT, _ROW_HEIGHT, _MARGIN = 260, 180, 274, 16


def _row(
    part: str,
    some: Sequence[WrongPositive],
    facts: PairFacts,
    pictures: dict[Path, str],
    letter: str,
    top: int,
) -> str:
    parts = [
        f'<text x="{_MARGIN}" y="{top + 24}" font-size="14" font-weight="bold">({letter}) {_heading(part)}</text>'
    ]
    for place, one in enumerate(some):
        left = _MARGIN + place * _CARD_WIDTH
        image, caption = facts.images[one.pair.image_id], facts.captions[one.pair.caption_id]
        uri = pictures.get(image.path) if image.path else None
        box = f'x="{left}" y="{top + 34}" width="{_CARD_WIDTH - _MARGIN}" height="{_PICTURE_HEIGHT}"'
        parts.append(
            f'<rect {box} fill="#eeeeee"/>'
            + (f'<image {box} href="{uri}" preserveAspectRatio="xMidYMid meet"/>' if uri else "")
        )
        told = textwrap.wrap(caption.text, 38, max_lines=3, placeholder=" …")
        truth = "" if one.truth is None else f", in truth {one.truth.value.replace('_', ' ')}"
        lines = [*told, f"people: {one.label.value.replace('_', ' ')}{truth}"]
        for line, text in enumerate(lines):
            faint = ' fill="#666666"' if line == len(lines) - 1 else ""
            y = top + 34 + _PICTURE_HEIGHT + 15 * (line + 1)
            parts.append(f'<text x="{left}" y="{y}"{faint}>{escape(text)}</text>')
    return "".join(parts)


def _heading(part: str) -> str:
    return "something else is wrong" if part == Concept.OTHER.value else f"wrong {escape(part)}"


def _varied(found: Sequence[WrongPositive], part: str) -> list[WrongPositive]:
    """Few of those with this part wrong, a plain yes and few other faults first; no image and no caption twice."""
    chosen: list[WrongPositive] = []
    for one in sorted(
        (one for one in found if part in one.parts),
        key=lambda one: (len(one.parts), one.label.code, one.pair),
    ):
        fresh = all(
            one.pair.image_id != other.pair.image_id and one.pair.caption_id != other.pair.caption_id
            for other in chosen
        )
        if fresh and len(chosen) < _ACROSS:
            chosen.append(one)
    return chosen

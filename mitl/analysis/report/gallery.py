"""Example queries and disputed pairs as the page shows them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mitl.analysis.report.inputs import (
    Dispute,
    DisputedPair,
    DisputeKind,
    ExampleItem,
    ExampleQuery,
    Frame,
)
from mitl.records import Direction

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
        "pairs that several people answered have answers on both sides, match and no match",
    ),
    DisputeKind.ORIGINAL: (
        "People refuse an original",
        "judged pairs of the original annotation were called no match",
    ),
    DisputeKind.CXC: (
        "CxC and people differ",
        "pairs with an answer and a CxC rating stand on opposite sides",
    ),
    DisputeKind.MACHINES: (
        "All machines agree, people say no",
        "judged pairs that every annotator proposed were called no match",
    ),
    DisputeKind.WRONG: (
        "Matches with a wrong part",
        "pairs that people called a match have a part that they name as wrong",
    ),
    DisputeKind.TRUTH: (
        "People against the truth",
        "judged pairs stand on the wrong side of the known truth",
    ),
}
"""(heading, how the sentence behind "N of M" goes on)."""


@dataclass(frozen=True, slots=True)
class Card:
    """One example item with the words that say what its frame says."""

    item: ExampleItem
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """The items of one frame."""

    frame: Frame
    cards: tuple[Card, ...]
    total: int
    """How many there are; the cards may be fewer."""


@dataclass(frozen=True, slots=True)
class ExampleView:
    """An example query with its items by frame."""

    query: ExampleQuery
    groups: tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class DisputeView:
    """One kind of disagreement with its heading and the words for its count."""

    dispute: Dispute
    heading: str
    of_what: str


def example_view(query: ExampleQuery) -> ExampleView:
    """The items by frame, each in the order given."""
    totals = dict(query.totals)
    groups = []
    for frame in Frame:
        cards = tuple(card(item) for item in query.items if item.frame is frame)
        if cards:
            groups.append(Group(frame, cards, max(totals.get(frame, 0), len(cards))))
    return ExampleView(query, tuple(groups))


def card(item: ExampleItem) -> Card:
    """What speaks for and against the item, in words."""
    tags: list[str] = []
    if item.original:
        tags.append("original")
    if item.label is not None:
        tags.append(f"judged {item.label.value.replace('_', ' ')}")
    if item.cxc_score is not None:
        tags.append(f"CxC {item.cxc_score:.1f}")
    if item.frame is Frame.ORIGINAL and not item.released:
        tags.append("not judged, so not in the release" if item.label is None else "not in the release")
    return Card(item, tuple(tags))


def dispute_views(disputes: Iterable[Dispute]) -> tuple[DisputeView, ...]:
    """The disagreements in the order given."""
    return tuple(DisputeView(dispute, *DISPUTES[dispute.kind]) for dispute in disputes)


def said_of(pair: DisputedPair) -> str:
    """The answers of a disputed pair in words: ``yes, no, no: no``."""
    given = ", ".join(label.value.replace("_", " ") for label in pair.answers)
    answer = pair.label.value.replace("_", " ")
    return given if len(pair.answers) == 1 else f"{given}; together {answer}"


def picture_uses(examples: Sequence[ExampleQuery], disputes: Sequence[Dispute] = ()) -> list[Path]:
    """Every image file once for each time that it is shown, in the page's order."""
    uses: list[Path] = []
    for direction in Direction:
        for example in examples:
            if example.direction is not direction:
                continue
            if example.image is not None:
                uses.append(example.image)
            uses += [item.image for item in example.items if item.image is not None]
    uses += [pair.image for dispute in disputes for pair in dispute.shown if pair.image is not None]
    return uses

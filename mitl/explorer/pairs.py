"""All pairs that any source knows, as columns that are filtered at once, with the items that they name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mitl.core.arrays import Ints, distinct, places, unpack_ids
from mitl.core.paging import number_in
from mitl.db.base import MOST_ROW
from mitl.errors import UsageError
from mitl.positives.merging import MATCHES, REFUSES
from mitl.records import Label, PartKind
from mitl.records.forms import IMAGES
from mitl.records.frames import LABELS, NONE, Flags, Schema, frame

EXPLORED: Schema = {
    "pair": ("int64", "packed places of the image and the caption among the items; ascending and distinct"),
    "label": ("int8", "people's answer, place in Label; NONE where there is none"),
    "yes": ("int32", "usable answers that say match"),
    "no": ("int32", "usable answers that say no match"),
    "original": ("bool", "whether the caption was written for this image"),
    "positive": ("bool", "whether it is, or would be, a positive of a release"),
    "rank": (
        "int32",
        "the best that any annotator gave it, from 1; 0 where none proposed it, or it is not known",
    ),
}
"""A row for each pair."""

PROPOSED: Schema = {
    "row": ("int64", "of the pair, ascending"),
    "annotator": ("int16", "place among the names"),
    "rank": ("int32", "the better of both directions, from 1; 0 where it is not known"),
}
"""Who proposed each pair."""


@dataclass(frozen=True, slots=True)
class ExploredItem:
    """What is shown of an image or of a caption."""

    name: str
    """Its external id."""
    text: str = ""
    file: Path | None = None
    url: str | None = None
    written_for: str = ""
    """A caption's own image, by its external id; empty where that is not known."""
    part: PartKind = PartKind.IMAGE
    """What the file is: a picture, a sound or a video."""
    reference_at: int | None = None
    """Of a composed query, the place of the image that its text changes."""


@dataclass(frozen=True)
class Explored:
    """Everything that the pages show."""

    images: Sequence[ExploredItem]
    captions: Sequence[ExploredItem]
    pairs: pd.DataFrame
    """``EXPLORED``."""
    annotators: tuple[str, ...]
    proposed: pd.DataFrame
    """``PROPOSED``."""
    has_ranks: bool = True
    names: tuple[str, str] = IMAGES.sides
    """What an item of each side is called."""

    @cached_property
    def sides(self) -> tuple[Ints, Ints]:
        """The places of each row's image and caption."""
        return unpack_ids(self.pairs["pair"].to_numpy())

    @cached_property
    def folded(self) -> list[str]:
        """The captions as they are searched."""
        return [caption.text.casefold() for caption in self.captions]

    def annotators_of(self, row: int) -> list[tuple[str, int]]:
        """(name, rank) of those that proposed it, best rank first."""
        rows = self.proposed["row"].to_numpy()
        span = slice(*np.searchsorted(rows, [row, row + 1]))
        proposers = zip(
            self.proposed["annotator"].to_numpy()[span], self.proposed["rank"].to_numpy()[span], strict=True
        )
        return sorted(
            ((self.annotators[name], int(rank)) for name, rank in proposers), key=lambda proposer: proposer[1]
        )


def explored(
    known: pd.DataFrame,
    proposals: pd.DataFrame,
    answers: pd.DataFrame,
    items: tuple[Sequence[ExploredItem], Sequence[ExploredItem]],
    annotators: Sequence[str],
    names: tuple[str, str] = IMAGES.sides,
) -> Explored:
    """Join what each source says; pairs are packed places of their items.

    Args:
        known: ``pair``, ``label``, ``original`` and ``positive``, in any order, each pair once.
        proposals: ``pair``, ``annotator`` (place among the names) and ``rank``, 0 where it is not known.
        answers: ``pair`` and ``yes``: a row for each usable answer, and whether it says match.
        items: images and captions.
        annotators: their names.
        names: of the sides.
    """
    best = proposals.groupby(["pair", "annotator"], as_index=False, sort=True)["rank"].min()
    pairs = distinct(np.concatenate([known["pair"].to_numpy(), best["pair"].to_numpy()]))
    rows = places(pairs, known["pair"].to_numpy())
    columns: dict[str, NDArray[np.generic]] = {"pair": pairs, "label": np.full(len(pairs), NONE, np.int8)}
    columns["label"][rows] = known["label"]
    for name in ("original", "positive"):
        columns[name] = np.zeros(len(pairs), np.bool_)
        columns[name][rows] = known[name]
    at = places(pairs, answers["pair"].to_numpy())
    is_yes = answers["yes"].to_numpy(np.bool_)
    for name, said in (("yes", is_yes), ("no", ~is_yes)):
        columns[name] = np.bincount(at[said & (at >= 0)], minlength=len(pairs))
    proposed = frame(
        PROPOSED,
        {"row": places(pairs, best["pair"].to_numpy()), "annotator": best["annotator"], "rank": best["rank"]},
    )
    columns["rank"] = np.zeros(len(pairs), np.int64)
    first = best.groupby("pair", sort=True)["rank"].min()
    columns["rank"][places(pairs, first.index.to_numpy())] = first
    has_ranks = bool(len(best)) and bool(best["rank"].max())
    return Explored(*items, frame(EXPLORED, columns), tuple(annotators), proposed, has_ranks, names)


class AnswerFilter(StrEnum):
    """What people said of a pair."""

    ANY = ""
    MATCH = "match"
    NO_MATCH = "no-match"
    YES = Label.YES.value
    WEAK_YES = Label.WEAK_YES.value
    WEAK_NO = Label.WEAK_NO.value
    NO = Label.NO.value
    NONE = "unanswered"


class AnnotationFilter(StrEnum):
    """What the annotation says of a pair, before and after."""

    ANY = ""
    FOUND = "found"
    """A positive that the original annotation lacks."""
    ORIGINAL = "original"
    REFUSED = "refused"
    """Of the original annotation, and people say that it is no match."""
    NEGATIVE = "negative"
    """Neither original nor a positive."""


class AgreementFilter(StrEnum):
    """How far several answers agree."""

    ANY = ""
    SPLIT = "split"
    """Match and no match were both said."""
    SAME = "same"
    """Two or more said the same side."""
    ONE = "one"
    """There is one answer alone."""


class ShownFirst(StrEnum):
    """What comes first."""

    DATA = ""
    """As in the data set."""
    RANK = "rank"
    """What annotators ranked first."""
    ANSWERS = "answers"
    """What most people answered."""
    DOUBT = "doubt"
    """What people disagree on most."""


@dataclass(frozen=True, slots=True)
class Filters:
    """What is looked for; all of it holds at once. The names are those of the address."""

    q: str = ""
    """Words that all stand in the caption, in any order, as parts of words too."""
    kind: AnnotationFilter = AnnotationFilter.ANY
    answer: AnswerFilter = AnswerFilter.ANY
    agreement: AgreementFilter = AgreementFilter.ANY
    by: str = ""
    """Name of an annotator that proposed it."""
    rank: int = 0
    """At most this, by that annotator or else by any; 0 takes all."""
    order: ShownFirst = ShownFirst.DATA
    page: int = 1

    @classmethod
    def of(cls, given: Mapping[str, str], annotators: Sequence[str]) -> Filters:
        """Of an address.

        Raises:
            UsageError: a value that there is not.
        """
        texts = {setting.name: given.get(setting.name, "").strip() for setting in fields(cls)}
        values = {name: _value(name, text) for name, text in texts.items() if text}
        filters = replace(cls(), **values)  # type: ignore[arg-type]
        if filters.by and filters.by not in annotators:
            raise UsageError(
                f"no annotator is called {filters.by[:80]!r}; there are: {', '.join(annotators) or 'none'}"
            )
        return filters

    @property
    def given(self) -> dict[str, str]:
        """What differs from the defaults, as in an address."""
        pairs = ((setting.name, getattr(self, setting.name), setting.default) for setting in fields(self))
        return {name: str(value) for name, value, default in pairs if value != default}


_ENUMS = {
    setting.name: type(setting.default) for setting in fields(Filters) if isinstance(setting.default, StrEnum)
}
_MOST = 10**9


def _value(name: str, text: str) -> object:
    if name in _ENUMS:
        values = [member.value for member in _ENUMS[name]]
        if text not in values:
            raise UsageError(f"{name} is {text[:80]!r}; it can be: {', '.join(filter(None, values))}")
        return _ENUMS[name](text)
    if name in ("rank", "page"):
        number = number_in(text)
        if not number:
            raise UsageError(f"{name} is {text[:80]!r}, but it is a whole number from 1 to {MOST_ROW:,}")
        return number
    return text


@dataclass
class Finder:
    """Finds rows; keeps what costs most, by what was asked for last."""

    of: Explored
    _orders: dict[ShownFirst, Ints] = field(default_factory=dict)
    _texts: tuple[str, Flags] | None = None

    def rows(self, wanted: Filters) -> Ints:
        """The rows that all filters let through, in the order that is wanted."""
        pairs = self.of.pairs
        keep = np.ones(len(pairs), np.bool_)
        label, yes, no = (pairs[name].to_numpy() for name in ("label", "yes", "no"))
        original, positive = pairs["original"].to_numpy(), pairs["positive"].to_numpy()
        if wanted.kind:
            keep &= {
                AnnotationFilter.FOUND: positive & ~original,
                AnnotationFilter.ORIGINAL: original,
                AnnotationFilter.REFUSED: original & REFUSES[label],
                AnnotationFilter.NEGATIVE: ~original & ~positive,
            }[wanted.kind]
        if wanted.answer is AnswerFilter.MATCH:
            keep &= MATCHES[label]
        elif wanted.answer is AnswerFilter.NO_MATCH:
            keep &= REFUSES[label]
        elif wanted.answer is AnswerFilter.NONE:
            keep &= label == NONE
        elif wanted.answer:
            keep &= label == LABELS.index(Label(wanted.answer.value))
        if wanted.agreement:
            keep &= {
                AgreementFilter.SPLIT: (yes > 0) & (no > 0),
                AgreementFilter.SAME: (yes + no > 1) & ((yes == 0) | (no == 0)),
                AgreementFilter.ONE: yes + no == 1,
            }[wanted.agreement]
        if wanted.by or wanted.rank:
            keep &= self._proposed(wanted)
        if wanted.q:
            keep &= self._captions(wanted.q)[self.of.sides[1]]
        if wanted.order is ShownFirst.DATA:
            return np.flatnonzero(keep)
        order = self._order(wanted.order)
        return order[keep[order]]

    def _proposed(self, wanted: Filters) -> Flags:
        rows, annotator, rank = (self.of.proposed[name].to_numpy() for name in ("row", "annotator", "rank"))
        chosen = np.ones(len(rows), np.bool_)
        if wanted.by:
            chosen &= annotator == self.of.annotators.index(wanted.by)
        if wanted.rank:
            chosen &= (rank > 0) & (rank <= wanted.rank)
        of_pairs = np.zeros(len(self.of.pairs), np.bool_)
        of_pairs[rows[chosen]] = True
        return of_pairs

    def _captions(self, q: str) -> Flags:
        """(C,) whether each caption holds all words."""
        kept = self._texts
        if kept is None or kept[0] != q:
            words = q.casefold().split()
            kept = self._texts = (
                q,
                np.array([all(word in text for word in words) for text in self.of.folded], np.bool_),
            )
        return kept[1]

    def _order(self, order: ShownFirst) -> Ints:
        if order not in self._orders:
            pairs = self.of.pairs
            yes, no = (pairs[name].to_numpy(np.int64) for name in ("yes", "no"))
            rank = pairs["rank"].to_numpy(np.int64)
            first = {
                ShownFirst.RANK: np.where(rank == 0, _MOST, rank),
                ShownFirst.ANSWERS: -(yes + no),
                ShownFirst.DOUBT: -np.minimum(yes, no),
            }[order]
            self._orders[order] = np.argsort(first, kind="stable")
        return self._orders[order]


def partners(of: Explored, side: int, place: int) -> Ints:
    """The rows of one item: of an image for side 0, of a caption for side 1."""
    column = of.sides[side]
    if side:
        return np.flatnonzero(column == place)
    return np.arange(*np.searchsorted(column, [place, place + 1]))

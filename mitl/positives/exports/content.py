"""What every export is made of: queries, what they search, judged pairs, and where wanted rankings, texts, files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mitl.errors import ReleaseError
from mitl.positives.folders import MANIFEST
from mitl.positives.sources import read_pairs
from mitl.records import Direction, PartKind
from mitl.records.forms import SetForm

ENGLISH = ("eng-Latn",)
ByQuery = Mapping[str, Sequence[str]]
"""Query id → item ids."""


@dataclass(frozen=True, slots=True, eq=False)
class Way:
    """One direction: its queries and what they search, in tie order, and what is known of their pairs."""

    direction: Direction
    queries: tuple[str, ...]
    gallery: tuple[str, ...]
    judged: Mapping[str, Mapping[str, int]]
    """Query → item → 1 for a positive, 0 for a pair that was judged and refused."""
    name: str
    """What the data set calls the direction."""

    @property
    def rows(self) -> list[tuple[str, str, int]]:
        """Query, item, and whether they match, of each judged pair in order of the queries."""
        return [(query, *pair) for query in self.queries for pair in self.judged.get(query, {}).items()]

    @property
    def zeros(self) -> int:
        """Judged negatives."""
        return sum(not match for _, _, match in self.rows)

    @property
    def positives(self) -> int:
        """Positives."""
        return sum(match for _, _, match in self.rows)


@dataclass(frozen=True, slots=True, eq=False)
class SideContent:
    """The items of one side: what they consist of, and what an export holds of them beside their ids."""

    kinds: tuple[PartKind, ...]
    texts: Mapping[str, Sequence[str]] | None = None
    """Item → its title, if it has one, and its text; None where texts stay out."""
    media: Mapping[str, Path | None] | None = None
    """Item → the file of its picture, sound or video; None where files stay out."""

    @property
    def whole(self) -> bool:
        """Whether the export holds all that a model reads of these items."""
        return (self.texts is not None or PartKind.TEXT not in self.kinds) and (
            self.media is not None or self.kinds == (PartKind.TEXT,)
        )

    def titled(self, item: str) -> tuple[str, str]:
        """The title, which may be empty, and the text of an item; both empty where texts stay out."""
        title, text = ("", "", *(self.texts or {}).get(item, ()))[-2:]
        return title, text

    def words(self, item: str) -> str:
        """All of its words: an item that asks has no title of its own."""
        return "\n".join(filter(None, self.titled(item)))


@dataclass(frozen=True, slots=True, eq=False)
class Content:
    """A release as exports see it; every id is a text."""

    name: str
    form: SetForm
    ways: tuple[Way, ...]
    sides: tuple[SideContent, SideContent]
    """The left items and the right ones."""
    integers: bool
    """Whether the ids are integers, and tied items stand in order of their values."""
    license: str = ""
    items_license: str = ""
    runs: Mapping[str, Mapping[Direction, ByQuery]] = field(default_factory=dict)
    """Model → direction → rankings, best first."""
    objects: Mapping[str, Mapping[str, Sequence[int]]] | None = None
    """``image`` and ``caption`` → item → the numbers of the objects that its image shows; None where they stay out."""

    references: Mapping[str, str] = field(default_factory=dict)
    """Composed query → the image that its text changes, which it may not find."""
    languages: Sequence[str] = ENGLISH
    """Of the texts, as ISO 639-3 and ISO 15924 name a language and its script."""


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of export."""

    make: Callable[[Content], dict[str, bytes]]
    """Path within the folder → bytes; ReleaseError where an item cannot be written."""
    holds_runs: bool = False
    holds_texts: bool = False
    holds_media: bool = False
    holds_objects: bool = False
    holds_languages: bool = False
    no_composed: str = ""
    """Why it cannot hold queries of an image and a text; empty where it can."""
    notes: Callable[[Content], Iterable[str]] = lambda content: ()
    """What a user has to know of this export, a sentence each."""


def judged_pairs(
    folder: Path, by_query: Mapping[Direction, ByQuery]
) -> dict[Direction, dict[str, dict[str, int]]]:
    """The positives of each query as 1, and the pairs of these queries that were judged no match as 0.

    Raises:
        ReleaseError: a table of the release is missing or changed.
    """
    judged = {
        direction: {query: dict.fromkeys(items, 1) for query, items in positives.items()}
        for direction, positives in by_query.items()
    }
    for pair, _ in read_pairs(folder, "negatives.parquet") if (folder / MANIFEST).is_file() else ():
        for direction, of_query in judged.items():
            query, item = direction.ordered(*pair)
            if query in of_query:
                of_query[query].setdefault(item, 0)
    return judged


def refuse_ids(ids: Iterable[str], wrong: str, told: str) -> None:
    """ReleaseError where an id matches what a kind of file cannot hold.

    Args:
        wrong: a regular expression of what it cannot hold.
        told: what that is, and which file: ``white space, which parts the columns of TREC files``.
    """
    refused = next((id_ for id_ in ids if not id_ or re.search(wrong, id_)), None)
    if refused is not None:
        raise ReleaseError(
            f"the id {refused!r} is empty or has {told}; export with --format hf, or give the items other ids"
        )

"""What searches in what: the forms of data sets, of images, sounds, videos and texts, and of composed queries.

A new form is an entry here, a wording in ``hit_templates`` and a reader. Stages and tables call the left items images
and the right ones captions whatever they are; names for people come from here:
what is said of images and captions, and of ``i2t`` and ``t2i``, is said of the items of another form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from mitl.records.enums import Direction, PartKind
from mitl.records.results import StageResult


@dataclass(frozen=True, slots=True)
class SetForm:
    """One form of data sets; pairs have a left and a right item."""

    sides: tuple[str, str]
    """What the left and the right items are called; database and files know them by these names."""
    ways: tuple[str, str]
    """What each direction is called, in the order of ``Direction``."""
    asks: str
    """What a wording of pairs for it says that it asks, in its ``hit_type.toml``."""
    wording: str
    """The wording of pairs where no other one is asked for."""
    nouns: tuple[str, str]
    """The plurals of both sides' names."""
    left_part: PartKind = PartKind.IMAGE
    """What the left items are: pictures, sounds, videos or texts."""
    composed: bool = False
    """Whether a right item is a text together with one of the left items, its reference."""

    @property
    def parts(self) -> tuple[tuple[PartKind, ...], tuple[PartKind, ...]]:
        """What a left and a right item consist of."""
        return (self.left_part,), ((PartKind.IMAGE,) if self.composed else ()) + (PartKind.TEXT,)

    @property
    def searches(self) -> dict[str, tuple[str, str]]:
        """Direction → the side that asks, and the one that is searched."""
        return dict(zip(self.ways, (self.sides, self.sides[::-1]), strict=True))

    @property
    def way_names(self) -> dict[Direction, str]:
        """What each direction is called."""
        return dict(zip(Direction, self.ways, strict=True))

    @property
    def lists(self) -> tuple[str, str]:
        """The files of a release that list the positives of each query, in the order of ``Direction``."""
        left, right = self.sides
        return f"{left}_to_{right}.json", f"{right}_to_{left}.json"


IMAGES = SetForm(("image", "caption"), ("i2t", "t2i"), "pairs", "pairs-plain", ("images", "captions"))
TEXTS = SetForm(
    ("document", "query"),
    ("d2q", "q2d"),
    "text_pairs",
    "pairs-texts",
    ("documents", "queries"),
    PartKind.TEXT,
)
SOUNDS = SetForm(
    ("sound", "caption"),
    ("a2t", "t2a"),
    "sound_pairs",
    "pairs-sounds",
    ("sounds", "captions"),
    PartKind.AUDIO,
)
VIDEOS = SetForm(
    ("video", "caption"),
    ("v2t", "t2v"),
    "video_pairs",
    "pairs-videos",
    ("videos", "captions"),
    PartKind.VIDEO,
)
COMPOSED = SetForm(
    ("image", "query"),
    ("i2q", "q2i"),
    "composed_pairs",
    "pairs-composed",
    ("images", "queries"),
    composed=True,
)
SET_FORMS = {form.sides: form for form in (IMAGES, TEXTS, SOUNDS, VIDEOS, COMPOSED)}
"""By the names of both sides."""


DIRECTION_OF: Mapping[str, Direction] = {
    way: direction for form in SET_FORMS.values() for direction, way in form.way_names.items()
}
"""Direction by what any form calls it; no two forms share a name."""
_WAY = re.compile(rf"(?<![\w.+/-])(?:{'|'.join(Direction)})(?![\w+/-]|\.\w)")
"""A direction as a word of its own, no part of a file's or a model's name."""
_NOUN = re.compile(r"(?<![\w<-])(?:[Ii]mage|[Cc]aption)s?(?!\w)")
_QUOTED = re.compile(r"(?<!\w)'[^']*'(?!\w)|(?<!\w)\"[^\"]*\"(?!\w)|`[^`]*`|\S*[/\\=]\S*|\w+\.\w+")
"""What is the user's, or is typed: quoted words, commands, paths, names of files."""
_WRITTEN = re.compile(r"((?<!\w)'[^']*'(?!\w)|(?<!\w)\"[^\"]*\"(?!\w))")
"""The quoted words among these; commands between backticks name directions as the data set does."""

_DATA_SETS = ("ECCV Caption", "Crisscrossed Captions")
"""Names that hold such a noun."""
_WHY = "Most data sets know only the pairs in which the caption was written for the image"
_FITS = "in which the caption describes the image"


@cache
def phrases(form: SetForm) -> Mapping[str, str]:
    """What is said of images and captions → the same of a form's items."""
    left, right = form.nouns[0].removesuffix("s"), form.sides[1]
    article = "an" if left[0] in "aeiou" else "a"
    said = {
        _FITS: f"in which the {left} fits the {right}",
        _WHY: "Most data sets know only the pairs that somebody judged when they were made",
        "image queries": f"{form.nouns[0]} that search",
        "image query": f"{left} that searches",
        "caption queries": f"{form.nouns[1]} that search",
        "caption query": f"{right} that searches",
        "an image": f"{article} {left}",
        "images": form.nouns[0],
        "image": left,
        "captions": form.nouns[1],
        "caption": right,
        "the two JSONs": "the two lists",
        **dict(zip(IMAGES.lists, form.lists, strict=True)),
    }
    begun = {
        phrase[0].upper() + phrase[1:]: of[0].upper() + of[1:]
        for phrase, of in said.items()
        if "_" not in phrase
    }
    return {**begun, **said}


def of_form(told: str, form: SetForm, makers: Collection[str] = ()) -> str:
    """The same of a form's items; what makers wrote, names of columns and tags, and parts of longer names stay."""
    if form is IMAGES:
        return told
    words = "|".join(re.escape(phrase) for phrase in sorted(phrases(form), key=len, reverse=True))
    kept = "|".join(re.escape(mine) for mine in sorted({*makers, *_DATA_SETS}, key=len, reverse=True))
    pattern = re.compile(rf"({kept})|(?<![\w<-])(?<!</)(?:{words})(?!\w)")
    return pattern.sub(lambda match: match[1] or phrases(form)[match[0]], told)


def in_ways(told: Any, form: Callable[[], SetForm]) -> Any:
    """The same with the form's own names of ``i2t`` and ``t2i``: of a text, and of texts and keys within containers.

    ``form`` is asked only where a direction is named.
    """
    if isinstance(told, str):
        return _WAY.sub(lambda match: form().way_names[Direction(match[0])], told)
    if isinstance(told, Mapping):
        return {in_ways(key, form): in_ways(value, form) for key, value in told.items()}
    if isinstance(told, tuple):
        return tuple(in_ways(value, form) for value in told)
    return [in_ways(value, form) for value in told] if isinstance(told, list) else told


def message_of_form(told: str, form: Callable[[], SetForm]) -> str:
    """An error or a warning about a form's items and directions; what it quotes stays as it is."""
    if _NOUN.search(told):
        told = of_form(told, form(), _QUOTED.findall(told))
    parts = _WRITTEN.split(told)  # every second one is what somebody wrote
    return "".join(part if place % 2 else in_ways(part, form) for place, part in enumerate(parts))


def result_of_form(result: StageResult, form: Callable[[], SetForm]) -> StageResult:
    """What a stage did, its directions named as the form does."""
    tables = (
        replace(table, title=in_ways(table.title, form), rows=in_ways(table.rows, form))
        for table in result.tables
    )
    return replace(
        result,
        counts=in_ways(result.counts, form),
        warnings=tuple(message_of_form(warning, form) for warning in result.warnings),
        tables=tuple(tables),
        lines=in_ways(result.lines, form),
        next=in_ways(result.next, form),
    )

"""What is said of images and captions, and of ``i2t`` and ``t2i``, said of the items of another form."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from mitl.records.enums import Direction
from mitl.records.forms import IMAGES, SET_FORMS, SetForm
from mitl.records.results import StageResult

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
    begun = {one[0].upper() + one[1:]: of[0].upper() + of[1:] for one, of in said.items() if "_" not in one}
    return {**begun, **said}


def of_form(told: str, form: SetForm, makers: Collection[str] = ()) -> str:
    """The same of a form's items; what makers wrote, names of columns and tags, and parts of longer names stay."""
    if form is IMAGES:
        return told
    words = "|".join(re.escape(phrase) for phrase in sorted(phrases(form), key=len, reverse=True))
    kept = "|".join(re.escape(mine) for mine in sorted(makers, key=len, reverse=True))
    found = re.compile(rf"{f'({kept})|' if kept else '()'}(?<![\w<-])(?<!</)(?:{words})(?!\w)")
    return found.sub(lambda match: match[1] or phrases(form)[match[0]], told)


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

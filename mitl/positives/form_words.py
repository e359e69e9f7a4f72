"""What a release of another form says in place of images and captions."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import asdict
from functools import cache
from typing import Any

from mitl.positives.markdown import plain
from mitl.positives.release_input import ReleaseCard
from mitl.records.forms import IMAGES, TEXTS, SetForm

_WHY = "Most data sets know only the pairs in which the caption was written for the image"
_FITS = "in which the caption describes the image"


@cache
def _phrases(form: SetForm) -> Mapping[str, str]:
    """What is said of images and captions → the same of a form's items."""
    left, right = form.nouns[0].removesuffix("s"), form.sides[1]
    article = "an" if left[0] in "aeiou" else "a"
    return {
        _FITS: f"in which the {left} fits the {right}",
        _WHY: "Most data sets know only the pairs that somebody judged when they were made",
        "image queries": f"{form.nouns[0]} that search",
        "image query": f"{left} that searches",
        "caption queries": f"{form.nouns[1]} that search",
        "caption query": f"{right} that searches",
        "an image": f"{article} {left}",
        "An image": f"{article.capitalize()} {left}",
        "images": form.nouns[0],
        "image": left,
        "Images": form.nouns[0].capitalize(),
        "captions": form.nouns[1],
        "caption": right,
        "Captions": form.nouns[1].capitalize(),
        "the two JSONs": "the two lists",
        **dict(zip(IMAGES.lists, form.lists, strict=True)),
    }


_SAID = frozenset(_phrases(TEXTS))
"""Of these words alone nobody is the maker."""


def makers_words(card: ReleaseCard, *names: str) -> frozenset[str]:
    """What the makers of a data set wrote, as it is and as Markdown; their words are theirs."""
    given = [*names, *card.creators, *(value for value in asdict(card).values() if isinstance(value, str))]
    return frozenset(
        form for value in given if value and value not in _SAID for form in (value, plain(value))
    )


def of_form(told: str, form: SetForm, makers: Collection[str] = ()) -> str:
    """The same of a form's items; what makers wrote, names of columns and parts of longer names stay."""
    if form is IMAGES:
        return told
    phrases = _phrases(form)
    words = "|".join(re.escape(phrase) for phrase in sorted(phrases, key=len, reverse=True))
    kept = "|".join(re.escape(mine) for mine in sorted(makers, key=len, reverse=True))
    found = re.compile(rf"{f'({kept})|' if kept else '()'}(?<![\w-])(?:{words})(?!\w)")
    return found.sub(lambda match: match[1] or phrases[match[0]], told)


def described_of_form(value: Any, form: SetForm, makers: Collection[str] = ()) -> Any:
    """The same of every description within Croissant's JSON-LD."""
    if isinstance(value, Mapping):
        return {
            key: of_form(one, form, makers)
            if _is_told(key) and isinstance(one, str)
            else described_of_form(one, form, makers)
            for key, one in value.items()
        }
    return [described_of_form(one, form, makers) for one in value] if isinstance(value, list) else value


def _is_told(key: str) -> bool:
    return key == "description" or key.startswith("rai:")

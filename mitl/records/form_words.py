"""What is said of images and captions, said of the items of another form."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import cache

from mitl.records.forms import IMAGES, SetForm

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

"""What a release of texts says in place of images and captions."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

from mitl.positives.folders import LISTS
from mitl.positives.markdown import plain
from mitl.positives.release_input import ReleaseCard
from mitl.records.items import CAPTION, DOCUMENT, IMAGE, QUERY

_PHRASES = {
    "in which the caption describes the image": "in which the document fits the query",
    "Most data sets know only the pairs in which the caption was written for the image": "Most data sets know only the "
    "pairs that somebody judged when they were made",
    "image queries": "documents that search",
    "image query": "document that searches",
    "caption queries": "queries that search",
    "caption query": "query that searches",
    "an image": "a document",
    "An image": "A document",
    "images": "documents",
    "image": "document",
    "Images": "Documents",
    "captions": "queries",
    "caption": "query",
    "Captions": "Queries",
    "the two JSONs": "the two lists",
    **dict(zip(LISTS[IMAGE, CAPTION], LISTS[DOCUMENT, QUERY], strict=True)),
}
_WORDS = "|".join(re.escape(phrase) for phrase in sorted(_PHRASES, key=len, reverse=True))


def makers_words(card: ReleaseCard, *names: str) -> frozenset[str]:
    """What the makers of a data set wrote, as it is and as Markdown; their words are theirs."""
    given = [*names, *card.creators, *(value for value in asdict(card).values() if isinstance(value, str))]
    return frozenset(
        form for value in given if value and value not in _PHRASES for form in (value, plain(value))
    )


def of_texts(told: str, makers: Collection[str] = ()) -> str:
    """The same of documents and queries; what makers wrote, names of columns and parts of longer names stay."""
    kept = "|".join(re.escape(words) for words in sorted(makers, key=len, reverse=True))
    found = re.compile(rf"{f'({kept})|' if kept else '()'}(?<![\w-])(?:{_WORDS})(?!\w)")
    return found.sub(lambda match: match[1] or _PHRASES[match[0]], told)


def described_of_texts(value: Any, makers: Collection[str] = ()) -> Any:
    """The same of every description within Croissant's JSON-LD."""
    if isinstance(value, Mapping):
        return {
            key: of_texts(one, makers)
            if _is_told(key) and isinstance(one, str)
            else described_of_texts(one, makers)
            for key, one in value.items()
        }
    return [described_of_texts(one, makers) for one in value] if isinstance(value, list) else value


def _is_told(key: str) -> bool:
    return key == "description" or key.startswith("rai:")

"""Which items are queries, as users name them: a file of ids, or the public queries of ECCV Caption."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mitl.datasets.assembling import read_ids
from mitl.db.store import items as item_store
from mitl.errors import DatasetError
from mitl.positives.loading import official_positives
from mitl.records import Direction
from mitl.records.forms import SET_FORMS

ECCV_QUERIES = "eccv"
"""Names the public queries of ECCV Caption in place of a file."""


@dataclass(frozen=True, slots=True)
class QueryLists:
    """Whose positives a release lists by query; None where these are the queries that were proposed for."""

    images: Path | None = None
    captions: Path | None = None

    @property
    def given(self) -> dict[Direction, Path]:
        """The lists that were named."""
        named = {Direction.I2T: self.images, Direction.T2I: self.captions}
        return {direction: file for direction, file in named.items() if file is not None}


def query_ids(
    file: Path, direction: Direction, surrogates: Mapping[str, int], sides: tuple[str, str]
) -> list[int]:
    """Surrogates of the queries that a file lists, ascending and without repeats.

    Args:
        file: a list of ids; or, where it is called so, the queries of ECCV Caption that the data set holds.
        surrogates: external id → surrogate of every item of the side that searches.
        sides: what the sides of pairs are called.

    Raises:
        DatasetError: the file is missing or malformed, it names an item that the data set lacks, or the data set
            holds no query of ECCV Caption.
    """
    noun, _ = direction.ordered(*sides)
    nouns, _ = direction.ordered(*SET_FORMS[sides].nouns)
    if str(file) != ECCV_QUERIES:
        return item_store.resolve(surrogates, read_ids(file, surrogates), noun, nouns)
    by_query = official_positives("eccv").by_query[direction]
    known_queries = [query for query in by_query if query in surrogates]
    if not known_queries:
        raise DatasetError(
            f"none of the {len(by_query):,} {noun} queries of ECCV Caption is in this data set; "
            "it is for COCO's test split under the official ids"
        )
    return item_store.resolve(surrogates, known_queries, noun, nouns)

"""The five rankings of the paper's own study, made of a query's known positives and of items that are none.

Source: Chun et al., ECCV Caption, appendix D.1: captions with 5 to 8 positives, lists as long as there are positives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from sqlalchemy.orm import Session

from mitl.db.store import items as item_store
from mitl.errors import ProposalError, UsageError
from mitl.hits.comparisons import Lists
from mitl.positives.loading import official_positives, read_release
from mitl.proposals.sampling import shuffled
from mitl.records import Direction
from mitl.settings import Settings
from mitl.stages.preferring.study import Study

LEAST, MOST = 5, 8
"""Positives of a query that is asked."""

DESIGNS: Mapping[str, Callable[[int], bool]] = {
    "only-1-wrong": lambda rank: rank != 1,
    "only-1-right": lambda rank: rank == 1,
    "1-to-5-wrong": lambda rank: rank > LEAST,
    "only-5-right": lambda rank: rank == LEAST,
    "all-wrong": lambda rank: False,
}
"""Name → whether a positive stands at this rank; A to E of the paper's text, in its order."""

Positives = Mapping[int, Sequence[int]]


def designed_lists(positives: Sequence[int], wrong: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Design → its list; at one rank all lists have the same positive or the same wrong item."""
    ranks = range(1, len(positives) + 1)
    return {
        name: tuple((positives if is_right(rank) else wrong)[rank - 1] for rank in ranks)
        for name, is_right in DESIGNS.items()
    }


def designed_rankings(
    session: Session, settings: Settings, study: Study, source: str
) -> tuple[dict[str, Lists], dict[int, tuple[int, ...]]]:
    """Design → query → its list, and query → its positives, of as many random queries as the study asks.

    Raises:
        UsageError: there is no such source of positives.
        ProposalError: too few queries have 5 to 8 positives, or the gallery is too small.
    """
    images, captions = item_store.id_maps(session, item_store.dataset(session).id)
    queries, gallery = (images, captions) if study.direction is Direction.I2T else (captions, images)
    chosen: dict[int, tuple[int, ...]] = {}
    for query, positives in _positives(settings, source, study.direction, queries, gallery):
        if LEAST <= len(positives) <= MOST:
            chosen[query] = tuple(shuffled(positives, settings.seed, f"designed {query}"))
        if len(chosen) == study.queries:
            break
    if len(chosen) < study.queries:
        raise ProposalError(
            f"{len(chosen)} queries in the direction {study.direction} have {LEAST} to {MOST} positives by {source!r}; "
            f"ask for --queries {len(chosen)} at most"
        )
    lists: dict[str, dict[int, tuple[int, ...]]] = {name: {} for name in DESIGNS}
    for query, right in chosen.items():
        others = set(gallery.values()) - set(right)
        if len(others) < len(right):
            raise ProposalError(
                f"the gallery has {len(others)} items that are no positives, but {len(right)} are needed"
            )
        wrong = shuffled(others, settings.seed, f"wrong {query}")
        for name, items in designed_lists(right, wrong).items():
            lists[name][query] = items
    return dict(lists), chosen


def _positives(
    settings: Settings,
    source: str,
    direction: Direction,
    queries: Mapping[str, int],
    gallery: Mapping[str, int],
) -> Iterator[tuple[int, list[int]]]:
    """Queries in random order, each with its positives among the gallery."""
    if source == "scenes":
        from mitl.stages.reporting.truth import truth_source

        truth = truth_source(settings, source)

        def of(query: str) -> list[str]:
            pairs = (
                (item, (item, query) if direction is Direction.T2I else (query, item)) for item in gallery
            )
            return [item for item, pair in pairs if truth(*pair).label.is_positive]

    elif source == "official" or source.startswith("release:"):
        release = source.removeprefix("release:")
        listed = official_positives("eccv") if source == "official" else read_release(Path(release))
        by_query = listed.by_query[direction]

        def of(query: str) -> list[str]:
            return list(by_query.get(query, ()))

    else:
        raise UsageError(f"no positives called {source!r}; known: scenes, official, release:DIR")
    for name in shuffled(queries, settings.seed, "designed queries", name=queries.__getitem__):
        yield queries[name], [gallery[item] for item in of(name) if item in gallery]

"""Which pairs an annotator scores that needs a forward pass for each: all of them, or a shortlist."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from annotators import registry
from mitl.errors import AnnotatorError

KEYS = ("scope", "shortlist", "shortlist_from", "shortlist_recall", "audit_queries", "audit_items")
"""Settings of an annotator's table that are for whoever ranks, not for its network."""
SHORTLIST = 256
"""Candidates of a query and source where no number is given: as many as ALBEF and BLIP rerank on COCO."""
AUDIT_QUERIES = 20


@dataclass(frozen=True, slots=True)
class Scope:
    """The best ``shortlist`` candidates of each query by each of ``sources``; every pair where it is None."""

    shortlist: int | None = None
    sources: tuple[str, ...] = ()
    """Annotators whose rankings give candidates; all others of the same run by default."""
    recall: float | None = None
    """That a shortlist must reach, measured; it grows until it does."""
    audit_queries: int = AUDIT_QUERIES
    """Random queries on which the recall is measured."""
    audit_items: int | None = None
    """Random items beside its shortlist that such a query is compared with; all by default."""


def split_scope(name: str, config: Mapping[str, Any]) -> tuple[dict[str, Any], Scope | None]:
    """An annotator's settings without those of its scope, and the scope; None where it is no annotator of pairs.

    Raises:
        AnnotatorError: a scope that is not known, a number that is none or out of range.
    """
    if not _scores_pairs(name, config):
        return dict(config), None
    rest = {key: value for key, value in config.items() if key not in KEYS}
    scope, listed = config.get("scope"), [key for key in KEYS[1:] if key in config]
    if scope not in (None, "exhaustive", "shortlist"):
        raise _wrong(name, "scope", scope, "exhaustive or shortlist")
    if scope == "exhaustive" and listed:
        raise AnnotatorError(
            f"annotator {name!r} sets {listed[0]!r} although its 'scope' is 'exhaustive'; leave one of them out"
        )
    if scope != "shortlist" and not listed:
        return rest, Scope()
    sources, recall = config.get("shortlist_from", []), config.get("shortlist_recall")
    if not isinstance(sources, list) or not all(isinstance(source, str) for source in sources):
        raise _wrong(name, "shortlist_from", sources, 'a list of annotators, as ["clip", "pvse"]')
    if recall is not None and (not isinstance(recall, float) or not 0 < recall < 1):
        raise _wrong(name, "shortlist_recall", recall, "a number between 0 and 1")
    count = _whole(name, config, "shortlist", SHORTLIST)
    queries = _whole(name, config, "audit_queries", AUDIT_QUERIES)
    items = _whole(name, config, "audit_items", 1) if "audit_items" in config else None
    return rest, Scope(count, tuple(sources), recall, queries, items)


def _scores_pairs(name: str, config: Mapping[str, Any]) -> bool:
    return "scope" in config or name == "vilt-mini" or registry.network_of(name, config) == "vilt"


def _whole(name: str, config: Mapping[str, Any], key: str, default: int) -> int:
    value = config.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _wrong(name, key, value, "a whole number from 1")
    return value


def _wrong(name: str, key: str, value: object, right: str) -> AnnotatorError:
    return AnnotatorError(f"{key!r} of annotator {name!r} is {value!r}; it should be {right}")

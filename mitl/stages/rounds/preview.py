"""What a round would ask, before it is opened: matches to expect, spread, what was asked before, the price."""

from __future__ import annotations

from typing import TypedDict

import numpy as np

from mitl.core.arrays import Ints, contains, distinct, pack_pairs, places, unpack_ids
from mitl.core.formats import points
from mitl.core.pricing import LostPages, format_dollars
from mitl.crowd.context import Context
from mitl.db.store import columns, open_work
from mitl.db.store import items as item_store
from mitl.hits.packing import CANDIDATES_PER_HIT, hits_needed
from mitl.records import Table, several
from mitl.records.rounds import DOUBTS
from mitl.stages.fusing.scores import fused_scores
from mitl.stages.rounds.steps import FirstPosting, asked_first, chosen_now, instead_of, room
from mitl.stages.rounds.wish import RoundRequest

_NORMAL_95 = 1.96


class ItemSpread(TypedDict):
    """Over the items of one side."""

    items: int
    asked_before: int
    most: int


class Expected(TypedDict):
    """Matches among the pairs, by their fused probabilities."""

    matches: float
    low: float
    high: float
    beyond_originals: float


class LostWork(TypedDict):
    """Answered pages so far, and those that had to be asked again."""

    answered: int
    lost: int


class Preview(TypedDict):
    """What a round would ask."""

    pairs: int
    strategy: str
    hits: int
    cents: int
    kept_cents: int
    lost: LostWork
    asked_first: int
    expected: Expected | None
    originals: int
    images: ItemSpread
    captions: ItemSpread


def preview_of(context: Context, wish: RoundRequest, number: int) -> Preview:
    """Of the round of this number; reads only.

    Raises:
        RoundError, StoreError, UsageError: as `room` and `chosen_now`.
    """
    reckoned = asked_first(context, wish)
    first, posting = reckoned(None), FirstPosting.of(context, wish)
    chosen = chosen_now(context, wish, number, room(context, wish, *first))
    pairs, session = chosen["pair"].to_numpy(), context.session
    lost = open_work.lost_pages(session, context.environment)
    originals = distinct(columns.original_columns(session, item_store.dataset(session).id))
    again, questions = reckoned(chosen)
    asked = {
        *open_work.live_pairs(session, context.environment),
        *open_work.usable_workers(session, context.environment),
    }
    sides = zip(unpack_ids(pairs), unpack_ids(pack_pairs(asked)), strict=True)
    images, captions = (_spread(now, before) for now, before in sides)
    return {
        "pairs": len(pairs),
        "strategy": str(chosen["strategy"].iloc[0]) if len(chosen) else wish.strategy,
        "hits": again + hits_needed(questions),
        "cents": posting.costs(again, questions),
        "kept_cents": wish.budget_cents - posting.cents,
        "lost": {"answered": lost.answered, "lost": lost.lost},
        "asked_first": first[0] * CANDIDATES_PER_HIT + first[1],
        "expected": None if wish.strategy == DOUBTS else _expected(context, pairs, originals),
        "originals": int(contains(originals, pairs).sum()),
        "images": images,
        "captions": captions,
    }


def _spread(now: Ints, before: Ints) -> ItemSpread:
    items, counts = np.unique(now, return_counts=True)
    return {
        "items": len(items),
        "asked_before": int(contains(distinct(before), items).sum()),
        "most": int(counts.max(initial=0)),
    }


def _expected(context: Context, pairs: Ints, originals: Ints) -> Expected | None:
    """With the interval of independent pairs whose probabilities hold; None where one of them has none."""
    fused = fused_scores(context)
    if fused is None:
        return None
    at = places(fused["pair"].to_numpy(), pairs)
    if (at < 0).any():
        return None
    chance = fused["probability"].to_numpy()[at]
    mean, half = float(chance.sum()), _NORMAL_95 * float(np.sqrt((chance * (1 - chance)).sum()))
    return {
        "matches": mean,
        "low": max(0.0, mean - half),
        "high": min(float(len(pairs)), mean + half),
        "beyond_originals": float(chance[~contains(originals, pairs)].sum()),
    }


def preview_table(asks: Preview, number: int, wish: RoundRequest) -> Table:
    """For people."""
    why, budget_cents = instead_of(wish.strategy, asks["strategy"]), wish.budget_cents
    expected, first, kept = asks["expected"], asks["asked_first"], asks["kept_cents"]
    price = f"{several(asks['hits'], 'HIT')} for {format_dollars(asks['cents'])} of {format_dollars(budget_cents)}"
    price += f", {several(first, 'question')} of audits and repeats included" if first else ""
    again, unknown = "cannot be used", "`mitl fuse` has not read these rankings yet"
    if wish.strategy == DOUBTS:
        again, unknown = "is divided or cannot be used", "these pairs are called a match or none already"
    if asks["lost"]["lost"]:
        again += f" ({LostPages(**asks['lost']).counted})"
    rows = [
        ("pairs", f"{asks['pairs']:,} by {asks['strategy']}{why}, {asks['originals']:,} of them original"),
        (
            "price",
            price + (f"; {format_dollars(kept)} kept to ask again what {again}" if kept else ""),
        ),
        (
            "expected matches",
            f"not known: {unknown}" if expected is None else _matches(expected, asks),
        ),
        ("images", _told(asks["images"])),
        ("captions", _told(asks["captions"])),
    ]
    return Table(f"round {number} would ask", ("what", "now"), tuple(rows))


def _matches(expected: Expected, asks: Preview) -> str:
    per_dollar = f", {points(100 * expected['matches'] / asks['cents'])} per dollar" if asks["cents"] else ""
    return (
        f"{points(expected['matches'])} (95 %: {points(expected['low'])} to {points(expected['high'])}), "
        f"{points(expected['beyond_originals'])} beyond the originals{per_dollar}"
    )


def _told(spread: ItemSpread) -> str:
    return (
        f"{spread['items']:,}, {spread['asked_before']:,} of them answered or out before; "
        f"{several(spread['most'], 'pair')} of one at most"
    )

"""Made-up pools: what two annotators ranked, what is fused, open and answered."""

from __future__ import annotations

import numpy as np
import pandas as pd

from mitl.core.arrays import distinct, pack_ids, unpack_ids
from mitl.fusion.evidence import UnitVectors, of_length_1
from mitl.records.frames import PROPOSALS, frame
from mitl.records.rounds import POOL
from mitl.selection.choice import SelectionProblem, SideVectors

ANNOTATORS = ("far", "near")


def rankings(seed: int, images: int, captions: int, depth: int) -> pd.DataFrame:
    """``PROPOSALS``: both annotators, both directions, all items as queries."""
    rng = np.random.default_rng(seed)
    parts = []
    for name in ANNOTATORS:
        similarity = rng.normal(size=(images, captions)).round(1)  # ties are wanted
        for direction, values in enumerate((similarity, similarity.T)):
            items = np.argsort(-values, axis=1, kind="stable")[:, :depth]
            queries = np.repeat(np.arange(1, len(values) + 1), items.shape[1])
            found = items.reshape(-1) + 1
            parts.append(
                pd.DataFrame(
                    {
                        "pair": pack_ids(queries, found) if direction == 0 else pack_ids(found, queries),
                        "annotator": name,
                        "direction": direction,
                        "rank": np.tile(np.arange(1, items.shape[1] + 1), len(values)),
                        "similarity": np.take_along_axis(values, items, axis=1).reshape(-1),
                    }
                )
            )
    return frame(PROPOSALS, {name: pd.concat(parts)[name].to_numpy() for name in PROPOSALS})


def choice(
    seed: int = 0,
    *,
    images: int = 6,
    captions: int = 9,
    depth: int = 4,
    budget: int = 10,
    is_fused: bool = True,
    closed: float = 0.4,
    is_alike: bool = False,
) -> SelectionProblem:
    """A share of the pairs is answered, a few more are out."""
    ranked = rankings(seed, images, captions, depth)
    pairs = distinct(ranked["pair"].to_numpy())
    rng = np.random.default_rng(seed + 1)
    state = rng.random(len(pairs))
    probability = rng.random(len(pairs)).round(2)
    pool = frame(
        POOL,
        {
            "pair": pairs,
            "probability": probability if is_fused else np.full(len(pairs), np.nan),
            "open": state >= closed,
            "positive": state < closed / 3,
            "negative": (state >= closed / 3) & (state < closed * 0.8),
        },
    )
    likeness = SideVectors()
    if is_alike:
        likeness = SideVectors(*(vectors(seed, np.unique(ids)) for ids in unpack_ids(pairs)))
    return SelectionProblem(pool, ranked, budget, seed, likeness=likeness)


def vectors(seed: int, ids: np.ndarray) -> UnitVectors:
    rows = np.random.default_rng(seed).normal(size=(len(ids), 2)).astype(np.float32)
    return UnitVectors("made up", ids, of_length_1(rows))


def shuffled(given: SelectionProblem, seed: int) -> SelectionProblem:
    """The same with its rows in another order, and annotators' names under other codes."""
    pool, ranked = (rows.sample(frac=1, random_state=seed) for rows in (given.pool, given.ranked))
    names = list(ranked["annotator"].cat.categories)[::-1]
    ranked = ranked.assign(annotator=ranked["annotator"].cat.set_categories(names))
    return SelectionProblem(pool, ranked, given.budget, given.seed, likeness=given.likeness)

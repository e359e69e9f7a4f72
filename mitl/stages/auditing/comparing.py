"""An audit that is drawn where given models rank differently, so that it tells them apart with fewer answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from mitl.audits.planning import Guess
from mitl.audits.pool import Pool, RemainderOf
from mitl.core.arrays import Floats, Ints, contains, pack_ids, places, unpack_ids
from mitl.errors import UsageError
from mitl.metrics.partial_labels import PartialLabels
from mitl.metrics.rank_groups import DEPTH, Influence, bands, influence, wanted_pairs
from mitl.metrics.table import asked_metrics
from mitl.progress import Progress
from mitl.records import Direction
from mitl.settings import Settings
from mitl.stages.auditing.pools import DEEPER, WRONG, Strata
from mitl.stages.evaluating.fair import Ranker
from mitl.stages.evaluating.gathering import gather
from mitl.stages.evaluating.request import EvaluationRequest, parse_model

METRIC = "mAP@R"
BANDS = ("models differ most", "models differ", "models differ least")
"""Strata that each hold as much of what the models' differences hang on, in ever more pairs."""
SHARES = {"positives": 0.1, **dict.fromkeys(BANDS, 0.18), "remainder": 0.36}
"""Of the sample. Positives tell how workers err; the remainder is where no compared model ranks anything high, and
matches there move all models."""


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """What models' differences hang on, before an audit."""

    names: tuple[str, ...]
    by_direction: Mapping[Direction, tuple[Influence, Ints]]
    """With each listed pair, packed."""

    def strata(self, pool: Pool, positives: Ints) -> Strata:
        """Today's positives, three bands of what the other pairs' labels change, and the remainder.

        Args:
            positives: packed and ascending.

        Raises:
            UsageError: no pair's label would change how the models differ.
        """
        parts = list(self.by_direction.values())
        packed = np.concatenate([pairs for _, pairs in parts])
        pairs, at = np.unique(packed, return_inverse=True)
        spread, chance = np.zeros(len(pairs)), np.zeros(len(pairs))
        np.add.at(spread, at, np.concatenate([effects.spread for effects, _ in parts]))
        np.maximum.at(chance, at, np.concatenate([effects.labels.chances for effects, _ in parts]))
        held = positives[pool.holds(positives)]
        others = pool.holds(pairs) & ~contains(held, pairs)
        pairs, spread, chance = pairs[others], spread[others], chance[others]
        if len(pairs) and not spread.any():
            raise UsageError(
                f"{', '.join(self.names)} rank the pairs that are left alike, so no answer tells them apart; name "
                "other models, or leave --compare out"
            )
        band = bands(np.sqrt(spread), len(BANDS))
        guesses, members = [Guess("positives", len(held), len(held), 1 - WRONG)], [held]
        for place, name in enumerate(BANDS):
            here = band == place
            if here.any():
                guesses.append(Guess(name, int(here.sum()), 0, float(chance[here].mean())))
                members.append(pairs[here])
        remainder = RemainderOf(pool, np.concatenate([held, pairs]))
        guesses.append(
            Guess("remainder", remainder.size, 0, DEEPER * min(guess.expected for guess in guesses))
        )
        return Strata(tuple(guesses), (*members, remainder), positives)

    def wanted(self, strata: Strata) -> list[tuple[str, str, Direction, float, int | None]]:
        """Two models, a direction, the expected difference, and how many audited pairs tell them apart by then."""
        listed = strata.listed()
        pair_ids = listed["pair"].to_numpy()
        weights = shares(strata.guesses)
        factor = np.array([guess.size for guess in strata.guesses]) / np.maximum(weights, 1e-12)
        rows = []
        for direction, (effects, pairs) in self.by_direction.items():
            at = places(pair_ids, pairs)  # a reference that a model ranks is no pair of the pool
            factors = np.where(at < 0, 0.0, factor[listed["stratum"].to_numpy()[at]])
            for a, b in combinations(range(len(self.names)), 2):
                difference = float(effects.expected[a] - effects.expected[b])
                variance = factors @ ((effects.effects[a] - effects.effects[b]) ** 2 * effects.doubt)
                needed = wanted_pairs(
                    1, float(variance**0.5), difference, len(listed) + strata.guesses[-1].size
                )
                rows.append((self.names[a], self.names[b], direction, difference, needed))
        return rows


def shares(guesses: Sequence[Guess]) -> Floats:
    """(H,) of the sample."""
    sizes = np.array([SHARES[guess.name] * (guess.size > 0) for guess in guesses])
    return np.asarray(sizes / sizes.sum())


def compared_models(
    settings: Settings,
    texts: Sequence[str],
    queries: Mapping[Direction, Ints],
    judged: tuple[Ints, Ints],
    progress: Progress,
) -> Compared:
    """Models of files and annotators of the project, on the queries with a positive.

    Args:
        texts: ``NAME`` of an annotator, or ``NAME=FILE[,FILE]``.
        judged: packed and ascending: positives of a release of today, and pairs that people refused.

    Raises:
        UsageError: fewer than two models are named, or one knows one side alone.
        MitlError: a file is missing or does not fit; an annotator is unknown.
    """
    if len(texts) < 2:
        raise UsageError("--compare takes two models or more: name each, an annotator or NAME=FILE[,FILE]")
    files = tuple(parse_model(text) for text in texts if "=" in text)
    request = EvaluationRequest(models=files, annotators=[text for text in texts if "=" not in text])
    gathered = gather(settings, request, progress)
    for model in gathered.models:
        model.require_both_sides()
    ranker = Ranker(settings, gathered, progress)
    asked = asked_metrics([METRIC])[0]
    by_direction = {}
    for direction in Direction:
        labels = _judged(direction, queries[direction], len(gathered.sides.gallery(direction)), judged)
        if len(labels):
            depth = max(DEPTH, 2 * int(labels.positives.max()))
            rankings = [ranker.ranked(model, direction, labels.query_ids, depth) for model in gathered.models]
            effects = influence(labels, rankings, asked, settings.seed)
            asks, items = effects.labels.query_ids[effects.labels.rows], effects.labels.items
            by_direction[direction] = effects, pack_ids(*direction.ordered(asks, items))
    if not by_direction:
        raise UsageError(
            "no asked query has a positive yet, so models have no score to compare; harvest first"
        )
    return Compared(tuple(model.name for model in gathered.models), by_direction)


def _judged(direction: Direction, queries: Ints, gallery: int, judged: tuple[Ints, Ints]) -> PartialLabels:
    """What people judged of the queries with a positive."""
    pairs = np.concatenate(judged)
    asks, items = direction.ordered(*unpack_ids(pairs))
    positive = np.arange(len(pairs)) < len(judged[0])
    scored = np.intersect1d(queries, asks[positive])
    chances, is_known = positive.astype(np.float64), np.ones(len(pairs), np.bool_)
    return PartialLabels.of(scored, gallery, (asks, items), chances, is_known)

"""Merging as columns: one row per pair that any source knows, and what becomes of it; for millions of pairs.

In order of trust a judgement beats a CxC rating beats the original annotation. :mod:`mitl.positives.merging` tells the
rules and gives the outcome as records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mitl.positives.exclusions import Exclusions
from mitl.positives.rules import MergeRules
from mitl.proposals.packed import contains, distinct, pack_pairs, unpack_ids
from mitl.records import Direction, Label

UNANSWERED = -1
"""In a column of labels: nobody was asked, or nobody answered."""

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class AnswerColumns:
    """The answer of each pair that has one; all columns are (n,)."""

    pairs: Ints
    """Packed, see :mod:`mitl.proposals.packed`; ascending and distinct."""
    label: NDArray[np.int8]
    """Places of ``Label``, 0 (yes) to 3 (no)."""
    n_judgements: NDArray[np.int32]
    probability: NDArray[np.float64]
    """That the pair is a match; for a plain majority the share of positive answers."""


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """All that is known of each pair; the columns are (n,), in order of the pairs."""

    pairs: Ints
    label: NDArray[np.int8]
    n_judgements: NDArray[np.int32]
    probability: NDArray[np.float64]
    """NaN where nobody answered."""
    score: NDArray[np.float64]
    """CxC's, the highest where a pair was rated more than once; NaN where it was not."""
    original: Mask

    @property
    def answered(self) -> Mask:
        """Where people gave an answer."""
        return np.asarray(self.label != UNANSWERED)

    @property
    def scored(self) -> Mask:
        """Where CxC rated the pair."""
        return ~np.isnan(self.score)


@dataclass(frozen=True, slots=True, eq=False)
class MergedColumns:
    """What becomes of each pair; masks are (n,), over the rows of ``evidence``."""

    evidence: Evidence
    verified: Mask
    """People's answer makes a positive."""
    rated: Mask
    """CxC's rating does."""
    kept: Mask
    """The positives."""
    excluded: Mask
    """Would be positives, but an exclusion list names them."""
    negative: Mask
    """People called them no match, and nothing keeps them."""
    conflict: Mask
    """The sources disagree."""
    by_judgement: Mask
    """Decided by people where there is a conflict; by CxC elsewhere."""
    query_filter: Mapping[Direction, frozenset[int]] | None = None
    """The queries that may be listed; None where every query may."""


def gather(
    answers: AnswerColumns, rated_pairs: Ints, scores: NDArray[np.float64], originals: Ints
) -> Evidence:
    """One row for each pair that any source knows.

    Args:
        rated_pairs, scores: (m,) in any order; a pair that comes more than once counts with its highest score.
        originals: packed, in any order.
    """
    pairs = distinct(np.concatenate([answers.pairs, rated_pairs, originals]))
    label = np.full(len(pairs), UNANSWERED, np.int8)
    n_judgements = np.zeros(len(pairs), np.int32)
    probability = np.full(len(pairs), np.nan)
    rows = np.searchsorted(pairs, answers.pairs)
    label[rows], n_judgements[rows], probability[rows] = (
        answers.label,
        answers.n_judgements,
        answers.probability,
    )
    score = np.full(len(pairs), -np.inf)
    np.maximum.at(score, np.searchsorted(pairs, rated_pairs), scores)
    score[np.isneginf(score)] = np.nan
    return Evidence(pairs, label, n_judgements, probability, score, contains(distinct(originals), pairs))


def merge_columns(known: Evidence, rules: MergeRules, exclusions: Exclusions) -> MergedColumns:
    """Apply the rules of :func:`mitl.positives.merging.merge` to all pairs at once."""
    accepted = np.array([rules.accepts(label) for label in Label] + [False])  # the last is for UNANSWERED
    matches = np.array([label.is_positive for label in Label] + [False])[known.label]
    verified = accepted[known.label]
    with np.errstate(invalid="ignore"):  # NaN compares as not rated
        rated = known.score >= rules.cxc_threshold
    if rules.official:
        positive = verified | rated
    else:
        unjudged = np.where(known.scored, rated, known.original & bool(rules.with_originals))
        positive = np.where(known.answered, verified, unjudged)
    out = _listed(known.pairs, exclusions.without_pairs() if rules.official else exclusions)
    kept = positive & ~out
    says_match = (known.answered & matches) | rated | known.original
    says_none = (known.answered & ~matches) | (known.scored & ~rated)
    overruled = kept & ~verified if rules.official else np.zeros(len(kept), np.bool_)
    return MergedColumns(
        query_filter=_official_queries(known, verified, rated, exclusions) if rules.official else None,
        evidence=known,
        verified=verified,
        rated=rated,
        kept=kept,
        excluded=positive & out,
        negative=known.answered & ~matches & ~kept & ~out,
        conflict=says_match & says_none & ~out,
        by_judgement=known.answered & ~overruled,
    )


def listed_queries(
    merged: MergedColumns, queries: Mapping[Direction, Iterable[int]]
) -> dict[Direction, dict[int, tuple[int, ...]]]:
    """Each query's positives in id order, for both directions; queries without any are left out.

    Only the queries given are listed: the positives of others were never looked for and would be incomplete.
    """
    images, captions = unpack_ids(merged.evidence.pairs[merged.kept])
    listed = {}
    for direction, (ids, items) in zip(Direction, ((images, captions), (captions, images)), strict=True):
        wanted = set(queries.get(direction, ()))
        if merged.query_filter is not None:
            wanted &= merged.query_filter[direction]
        mine = contains(_ids(frozenset(wanted)), ids)
        order = np.lexsort((items[mine], ids[mine]))
        asked, found = ids[mine][order], items[mine][order]
        changes = np.append(True, asked[1:] != asked[:-1]) if len(asked) else np.empty(0, np.bool_)
        starts = np.flatnonzero(changes)
        parts = np.split(found, starts[1:])
        listed[direction] = {
            int(asked[start]): tuple(part.tolist()) for start, part in zip(starts, parts, strict=False)
        }
    return listed


def _official_queries(
    known: Evidence, verified: Mask, rated: Mask, exclusions: Exclusions
) -> dict[Direction, frozenset[int]]:
    """Queries with a verified and with a CxC positive, both looked for before exclusion lists apply."""
    images, captions = unpack_ids(known.pairs)
    listed = {}
    for direction, ids, gone in (
        (Direction.I2T, images, exclusions.images),
        (Direction.T2I, captions, exclusions.captions),
    ):
        both = np.intersect1d(ids[verified], ids[rated])
        listed[direction] = frozenset(both.tolist()) - gone
    return listed


def _listed(pairs: Ints, exclusions: Exclusions) -> Mask:
    """Where an exclusion list names the pair, its image or its caption."""
    images, captions = unpack_ids(pairs)
    return np.asarray(
        contains(_ids(exclusions.images), images)
        | contains(_ids(exclusions.captions), captions)
        | contains(pack_pairs(exclusions.pairs), pairs)
    )


def _ids(ids: frozenset[int]) -> Ints:
    return np.array(sorted(ids), np.int64)

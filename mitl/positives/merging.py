"""Judgements, CxC ratings, original annotations and machine labels, merged into positives.

In order of trust a judgement beats a CxC rating beats the original annotation beats a machine's label. A machine that
calls an original pair no match does not take it out: the bound holds for all of its labels together, and those few on
which it contradicts whoever wrote the caption may be wrong far more often. Nothing here rewrites a judgement, and the
result does not depend on the order of any input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mitl.core.arrays import Ints, contains, distinct, unpack_ids
from mitl.errors import ReleaseError
from mitl.judgements.aggregators import Aggregator
from mitl.positives.exclusions import Exclusions
from mitl.records import Direction, Label, PositiveSource
from mitl.records.frames import EVIDENCE, LABELS, MACHINE_LABELS, NONE, frame

SOURCES = tuple(PositiveSource)
MATCHES = np.array([label.is_positive for label in LABELS] + [False])
"""Whether an answer is a match, by its place in Label; the last place is for NONE, which says nothing."""
REFUSES = np.array([not label.is_positive for label in LABELS] + [False])
"""Whether it is none."""
CXC_POSITIVE = 3.0
"""From this mean SITS rating on, CxC calls an image and a caption a match (CxC, section 3)."""


class MergeRecipe(StrEnum):
    """Which sources make a release."""

    REPAIR = "repair"
    """The original pairs that neither people nor CxC refuse, and what these two add."""
    PAPER = "paper"
    """What people verified and what CxC rates as a match; an original pair needs one of them (Chun et al., ECCV
    Caption, section 3.3)."""


@dataclass(frozen=True, slots=True)
class MergeRules:
    """How the sources are merged; the defaults repair a data set: its own pairs stay unless somebody refused them."""

    cxc_threshold: float = CXC_POSITIVE
    with_originals: bool | None = None
    """Keep an original pair where neither people nor CxC contradict it; None: unless ``official``."""
    strict: bool = False
    """People's ``weak_yes`` is not enough, and a CxC rating does not lift it."""
    official: bool = False
    """Reproduce the released positives of ECCV Caption, slips included: see :func:`mitl.positives.merging.merge`."""

    aggregator: Aggregator = Aggregator.MAJORITY
    """How several judgements of one pair become its answer."""

    def __post_init__(self) -> None:
        if not 0 <= self.cxc_threshold <= 5:
            raise ReleaseError(
                f"the CxC threshold is {self.cxc_threshold:g}, but ratings go from 0 to 5; give one of these"
            )
        object.__setattr__(self, "aggregator", Aggregator(self.aggregator))  # a stored rule names it
        if self.with_originals is None:
            object.__setattr__(self, "with_originals", not self.official)
        if self.official and self.aggregator is not Aggregator.MAJORITY:
            raise ReleaseError(
                "the official filters have a rule of their own for several answers; "
                "leave out either --official-filters or --aggregate"
            )
        if self.official and self.with_originals:
            raise ReleaseError(
                "the official filters follow the paper's recipe, which leaves originals out; "
                "leave out either --official-filters or what keeps originals (--recipe repair, --with-originals)"
            )

    @property
    def recipe(self) -> MergeRecipe:
        """Which of the two recipes this is a variety of."""
        return MergeRecipe.REPAIR if self.with_originals else MergeRecipe.PAPER

    def accepts(self, label: Label) -> bool:
        """Whether this answer of people makes a positive."""
        return label is Label.YES if self.strict else label.is_positive


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """What becomes of each pair that any source knows."""

    pairs: pd.DataFrame
    """``MERGED``, in order of the pairs."""
    query_filter: Mapping[Direction, frozenset[int]] | None = None
    """The queries that may be listed; None where every query may."""

    def where(self, column: str) -> Ints:
        """The packed pairs at which this column is true: ``kept``, ``negative``, …"""
        return np.asarray(self.pairs.loc[self.pairs[column], "pair"], np.int64)


def gather(
    answers: pd.DataFrame,
    rated_pairs: Ints,
    scores: NDArray[np.float64],
    originals: Ints,
    machine: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """One row for each pair that any source knows (``EVIDENCE``).

    Args:
        answers: ``PAIR_ANSWERS``.
        rated_pairs, scores: (m,) in any order; a pair that comes more than once counts with its highest score.
        originals: packed, in any order.
        machine: ``MACHINE_LABELS``, in any order; None where a machine gave none, or where people's word alone counts.
    """
    machine = frame(MACHINE_LABELS, dict.fromkeys(MACHINE_LABELS, ())) if machine is None else machine
    answered, labelled = answers["pair"].to_numpy(), machine["pair"].to_numpy()
    pairs = distinct(np.concatenate([answered, rated_pairs, originals, labelled]))
    evidence: dict[str, NDArray[np.generic]] = {"pair": pairs}
    for source, name, column, without in (
        (answers, "label", "label", NONE),
        (answers, "n_judgements", "n_judgements", 0),
        (answers, "probability", "probability", np.nan),
        (machine, "machine", "label", NONE),
        (machine, "machine_probability", "probability", np.nan),
    ):
        evidence[name] = np.full(len(pairs), without, EVIDENCE[name][0])
        evidence[name][np.searchsorted(pairs, source["pair"].to_numpy())] = source[column]
    score = np.full(len(pairs), -np.inf)
    np.maximum.at(score, np.searchsorted(pairs, rated_pairs), scores)
    score[np.isneginf(score)] = np.nan
    return frame(EVIDENCE, {**evidence, "score": score, "original": contains(distinct(originals), pairs)})


def merge(evidence: pd.DataFrame, rules: MergeRules, exclusions: Exclusions) -> Merged:
    """The positives, the conflicts and what exclusion lists took out.

    Positive is what people verified, what CxC rates at the threshold or above and nobody judged, and, unless the
    rules leave them out as the paper does, the original pairs that nobody judged or rated; of the rest, what a machine
    labelled a match. A pair that people judged negative stays out whatever the others say; where they judged it, a
    machine's label of it is not read.

    ``official`` reproduces the released JSONs of ECCV Caption instead: one positive answer among several
    makes a positive; a CxC positive stays though people refused it; the list of single wrong pairs is not
    applied; a query is listed only if people verified a positive for it and CxC has one too; and no machine's label
    is read.

    Args:
        evidence: ``EVIDENCE``.

    Source: Chun et al., ECCV Caption, section 3.3; the released tool for ``official``.
    """
    pairs, label, score = (evidence[name].to_numpy() for name in ("pair", "label", "score"))
    original = evidence["original"].to_numpy()
    accepted = np.array([rules.accepts(value) for value in LABELS] + [False])  # the last is for NONE
    answered, scored = label != NONE, ~np.isnan(score)
    machine = np.where(answered | rules.official, NONE, evidence["machine"].to_numpy())
    verified, labelled = accepted[label], accepted[machine]
    with np.errstate(invalid="ignore"):  # NaN compares as not rated
        rated = score >= rules.cxc_threshold
    standing = original & bool(rules.with_originals)
    if rules.official:
        positive = verified | rated
    else:
        positive = np.where(answered, verified, np.where(scored, rated, standing | labelled))
    if rules.official:  # the official tool never reads the list of single pairs
        exclusions = Exclusions(exclusions.captions, exclusions.images)
    out = exclusions.name(pairs)
    kept = positive & ~out
    refused = REFUSES[label] | REFUSES[machine]
    says_match = MATCHES[label] | rated | original | MATCHES[machine]
    says_none = refused | (scored & ~rated)
    by_whom = [
        # Only under the official filters is a pair kept that people refused.
        (answered & (verified | ~kept), PositiveSource.JUDGEMENT),
        (scored | rules.official, PositiveSource.CXC),
        (standing, PositiveSource.ORIGINAL),
    ]
    merged = evidence.assign(
        machine=machine.astype(np.int8),
        verified=verified,
        rated=rated,
        labelled=labelled,
        found=False,
        doubted=False,
        kept=kept,
        excluded=positive & out,
        negative=refused & ~kept & ~out,
        conflict=says_match & says_none & ~out,
        decided_by=np.select(
            [holds for holds, _ in by_whom],
            [SOURCES.index(source) for _, source in by_whom],
            SOURCES.index(PositiveSource.MACHINE),
        ).astype(np.int8),
    )
    if not rules.official:
        return Merged(merged)
    # A query needs a verified and a CxC positive, both looked for before exclusion lists apply.
    sides = zip(Direction, unpack_ids(pairs), (exclusions.images, exclusions.captions), strict=True)
    listed = {
        direction: frozenset(np.intersect1d(ids[verified], ids[rated]).tolist()) - gone
        for direction, ids, gone in sides
    }
    return Merged(merged, listed)


def listed_queries(
    merged: Merged, queries: Mapping[Direction, Iterable[int]]
) -> dict[Direction, dict[int, tuple[int, ...]]]:
    """Each query's positives in id order, for both directions; queries without any are left out.

    Only the queries given are listed: the positives of others were never looked for and would be incomplete.
    """
    images, captions = unpack_ids(merged.where("kept"))
    listed = {}
    for direction, (ids, items) in zip(Direction, ((images, captions), (captions, images)), strict=True):
        wanted = set(queries.get(direction, ()))
        if merged.query_filter is not None:
            wanted &= merged.query_filter[direction]
        mine = contains(np.array(sorted(wanted), np.int64), ids)
        order = np.lexsort((items[mine], ids[mine]))
        asked, starts = np.unique(ids[mine][order], return_index=True)
        parts = np.split(items[mine][order], starts[1:])  # one, empty, where nothing is listed
        listed[direction] = {
            query: tuple(part.tolist()) for query, part in zip(asked.tolist(), parts, strict=False)
        }
    return listed

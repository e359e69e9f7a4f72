"""What a plan rests on: the candidates by score, the answers so far, and whether those are a random sample."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mitl.audits.frontier import Pilot
from mitl.audits.pilot_scores import pilot_scores, rank_features
from mitl.core.packed import Ints, contains, pack_each, pack_pairs, places
from mitl.errors import AuditError
from mitl.records import Direction, PairRole, several
from mitl.stages.analysing.snapshot import ProjectSnapshot

Floats = NDArray[np.float64]

BANDS = 10
"""Of equally many candidates by score, within which answers that are no random sample are weighted."""
ALIKE = 0.001
"""Below this p-value the answered pairs differ in their scores from the others."""
_QUERY_BITS = 40


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """All candidate pairs of an environment, with what people answered on some."""

    pairs: Ints
    """(N,) packed, ascending."""
    queries: Ints
    """(N,) one number for the query that proposed each: its image if an image did, else its caption."""
    answered: Ints
    """(n,) places of those with a usable answer."""
    matches: NDArray[np.bool_]
    """(n,) whether people called each a match."""
    drawn: NDArray[np.bool_]
    """(n,) whether it was asked at random: on a page of a pilot, or in a sample for labels."""

    @property
    def open(self) -> int:
        """Candidates without an answer."""
        return len(self.pairs) - len(self.answered)


@dataclass(frozen=True, slots=True, eq=False)
class Sampled:
    """A pilot that the frontier can be estimated from, and how far it is a random sample."""

    pilot: Pilot
    scored_by: str
    """``fusion``, or ``annotators`` where the answers themselves taught what ranks are worth."""
    random: bool
    """Whether each answered pair was drawn at random."""
    note: str
    """In one line."""


def candidates(project: ProjectSnapshot, sampled: Collection[int] = ()) -> Candidates:
    """The candidates of a project that is read already.

    Args:
        sampled: packed pairs of samples that were drawn at random for machine labels.

    Raises:
        AuditError: nothing was proposed, or nobody answered.
    """
    pairs = pack_pairs({proposal.pair for proposal in project.proposals})
    if not len(pairs):
        raise AuditError("no candidate pair to plan for; run `mitl propose`")
    if not project.answers:
        raise AuditError(
            "nobody has answered a candidate yet; ask some at random: `mitl publish --pilot 10`, then `mitl harvest`"
        )
    queries = np.full(len(pairs), -1, np.int64)
    for number, direction in reversed(list(enumerate(Direction))):
        own = [one.pair for one in project.proposals if one.direction is direction]
        at = places(pairs, pack_each(own))
        asking = [pair.image_id if direction is Direction.I2T else pair.caption_id for pair in own]
        queries[at] = (number << _QUERY_BITS) + np.array(asking, np.int64)
    judged = list(project.answers)
    at = places(pairs, pack_each(judged))
    known = at >= 0
    labels = np.array([project.answers[pair].label.is_positive for pair in judged], np.bool_)
    order = np.argsort(at[known], kind="stable")
    answered = at[known][order]
    pilots = {batch.id for batch in project.batches if batch.pilot}
    random = {
        item.pair
        for hit in project.hits
        if hit.batch_id in pilots
        for item in project.hit_items.get(hit.id, ())
        if item.role is PairRole.CANDIDATE
    }
    from_samples = np.sort(np.fromiter(sampled, np.int64, len(sampled)))
    drawn = contains(pack_pairs(random), pairs[answered]) | contains(from_samples, pairs[answered])
    return Candidates(pairs, queries, answered, labels[known][order], drawn)


def sample(project: ProjectSnapshot, found: Candidates, fused: pd.DataFrame | None, seed: int) -> Sampled:
    """The answers as a pilot, weighted where they are no random sample.

    Args:
        fused: ``FUSED``; None where nothing was fused.

    Raises:
        AuditError: too little is answered to learn what ranks are worth, or open pairs of some scores have no answered
            pair like them.
    """
    if fused is not None and contains(fused["pair"].to_numpy(), found.pairs).all():
        at = places(fused["pair"].to_numpy(), found.pairs)
        probabilities, scored_by = fused["probability"].to_numpy()[at], "fusion"
    else:
        probabilities, scored_by = _by_ranks(project, found, seed), "annotators"
    random = bool(found.drawn.all())
    weights, alike = _weighted(probabilities, found, random=random)
    pilot = Pilot(probabilities, found.answered, found.matches, weights, found.queries[found.answered])
    return Sampled(pilot, scored_by, random, _note(found, random=random, alike=alike))


def _by_ranks(project: ProjectSnapshot, found: Candidates, seed: int) -> Floats:
    matches = int(found.matches.sum())
    if not 0 < matches < len(found.answered):
        raise AuditError(
            f"of {several(len(found.answered), 'answered candidate')} {matches} are matches, so nothing tells what a "
            "rank is worth; ask more at random with `mitl publish --pilot 20`"
        )
    names = {row.name: number for number, row in enumerate(project.annotators)}
    ways = {direction: number for number, direction in enumerate(Direction)}
    rows = project.proposals
    features = rank_features(
        np.array([names[one.annotator] * len(ways) + ways[one.direction] for one in rows], np.int64),
        places(found.pairs, pack_each([one.pair for one in rows])),
        np.array([one.rank for one in rows], np.int64),
        np.array([one.similarity for one in rows], np.float64),
        len(found.pairs),
    )
    return pilot_scores(features, found.queries, found.answered, found.matches, seed)


def _weighted(probabilities: Floats, found: Candidates, *, random: bool) -> tuple[Floats, bool]:
    """(n,) how many candidates each answer stands for, and whether the answered are like the others by score."""
    if random or not found.open:
        return np.full(len(found.answered), len(found.pairs) / len(found.answered)), True
    order = np.argsort(probabilities, kind="stable")
    band = np.empty(len(order), np.int64)
    for number, part in enumerate(np.array_split(order, BANDS)):
        band[part] = number
    sizes = np.bincount(band, minlength=BANDS)
    answered = np.bincount(band[found.answered], minlength=BANDS)
    bare = np.flatnonzero((answered == 0) & (sizes > 0))
    if len(bare):
        raise AuditError(
            f"the answered pairs were not drawn at random, and {len(bare)} of {BANDS} bands of scores hold none of "
            f"them, so nothing is known of {int(sizes[bare].sum()):,} pairs there; ask some at random with "
            "`mitl publish --pilot 10`"
        )
    from scipy.stats import chi2_contingency

    table = np.stack([answered, sizes - answered])
    alike = bool(chi2_contingency(table[:, sizes > 0]).pvalue >= ALIKE) if (sizes > answered).all() else False
    return (sizes / np.maximum(answered, 1))[band[found.answered]], alike


def _note(found: Candidates, *, random: bool, alike: bool) -> str:
    answers = several(len(found.answered), "answered candidate")
    if random:
        return f"it rests on {answers}, drawn at random"
    by_chance = int(found.drawn.sum())
    said = f"it rests on {answers}, of which {by_chance:,} were drawn at random; "
    if alike:
        return (
            said
            + "by score they are like the others, and each stands for the candidates of its tenth of the scores"
        )
    return said + (
        "by score they are not like the others, so each stands for the candidates of its tenth of the scores: a guess, "
        "until more are asked at random (`mitl publish --pilot 10`)"
    )

"""What there is to audit: the pool of a project, what its release would hold today, and the strata to draw from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mitl.audits.planning import Guess, pooled
from mitl.audits.pool import Pool, RemainderOf
from mitl.campaign.kinds.pairs.controls import all_rankings
from mitl.core.arrays import Floats, Ints, contains, distinct, pack_pairs, places
from mitl.crowd.context import Context
from mitl.db.store import audits as audit_store
from mitl.db.store import columns, open_work, releases
from mitl.db.store import items as item_store
from mitl.db.store import proposals as proposal_store
from mitl.errors import AuditError
from mitl.judgements.gold_records import gold_state
from mitl.positives.merging import Merged, MergeRules, gather, merge
from mitl.positives.pair_answers import pair_answers
from mitl.proposals.candidates import finders, ranked_pairs
from mitl.records import Direction, Pair, several
from mitl.records.audits import LISTED
from mitl.records.frames import frame
from mitl.stages.collecting.show import originals_with
from mitl.stages.fusing.scores import fused_scores

BANDS = (0.5, 0.1, 0.02)
"""Where one band of guessed probabilities of a match ends and the next begins, from above."""
SIDES = (0.5,)
"""The same, where only the likelier side matters: each has a threshold for machine labels of its own."""
WRONG = 0.03
"""Share of the positives that are guessed to be no matches."""
FALSE_NO = 0.1
"""Share of the matches that one worker is guessed to refuse, and of the others that one accepts."""
UNANSWERED = "unanswered"
"""How the names of strata begin whose pairs wait for an answer."""
_POSITIVES, _REFUSED, _RANKED = "positives", "refused", "ranked"
DEEPER = 0.1
"""How much rarer matches are guessed to be among ranked pairs that were not proposed than among the least likely
proposed ones; and again among those that no ranking lists."""


def pool_of(context: Context) -> Pool:
    """Every pair of an asked query and an item of its gallery; a composed query is not asked about its reference.

    Raises:
        AuditError: nothing was asked.
    """
    session = context.session
    asked = proposal_store.queries(session)
    if not any(asked.values()):
        raise AuditError("no query was asked yet, so there is nothing to audit; run `mitl propose` first")
    dataset = item_store.dataset(session).id
    images, captions = (
        np.array(sorted(ids.values()), np.int64) for ids in item_store.id_maps(session, dataset)
    )
    apart = pack_pairs(Pair(image, query) for query, image in item_store.references(session, dataset).items())
    image_queries, caption_queries = (np.array(asked[direction], np.int64) for direction in Direction)
    return Pool(image_queries, caption_queries, images, captions, apart)


def merged_now(context: Context) -> Merged:
    """What a release would hold if it were built now as the latest one was, without what an audit found."""
    session, environment = context.session, context.environment
    judgements = columns.judgement_columns(session, environment)
    built = releases.built(session, environment)
    rules = MergeRules(**built[-1].rules) if built else MergeRules()
    humans_only = bool(built) and built[-1].humans_only
    withdrawn = gold_state(judgements, context.settings.gold_rule).withdrawn
    evidence = gather(
        pair_answers(judgements, rules, withdrawn).pairs,
        *columns.rating_columns(session),
        originals_with(context),
        None if humans_only else audit_store.machine_labels(session, environment),
    )
    return merge(evidence, rules, item_store.excluded(session))


@dataclass(frozen=True, slots=True, eq=False)
class Strata:
    """A pool in parts, with what is guessed of each; without a part that holds nothing, but for the last."""

    guesses: tuple[Guess, ...]
    members: tuple[Ints | RemainderOf, ...]
    positives: Ints
    """Packed and ascending: what a release of today holds."""

    def listed(self) -> pd.DataFrame:
        """Where the pairs stand that are not in the last stratum (``LISTED``)."""
        parts = [part for part in self.members if not isinstance(part, RemainderOf)]
        pairs = np.concatenate([np.empty(0, np.int64), *parts])
        stratum = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        order = np.argsort(pairs, kind="stable")
        return frame(LISTED, {"pair": pairs[order], "stratum": stratum[order]})

    def met_by(self, pool: Pool, answered: Ints) -> Strata:
        """The same with how many workers answered a pair of each.

        Args:
            answered: packed pairs, once for each worker.
        """
        listed = self.listed()
        at = places(listed["pair"].to_numpy(), answered[pool.holds(answered)])
        last = len(self.guesses) - 1
        counts = np.bincount(np.append(listed["stratum"], last)[at], minlength=last + 1).tolist()
        guesses = zip(self.guesses, counts, strict=True)
        return replace(
            self, guesses=tuple(replace(guess, met=n / max(guess.size, 1)) for guess, n in guesses)
        )

    def simple(self, pool: Pool) -> Strata:
        """The same pool as one stratum."""
        everything = RemainderOf(pool, np.empty(0, np.int64))
        return Strata((pooled(self.guesses),), (everything,), self.positives)


def strata_for_recall(context: Context, pool: Pool) -> Strata:
    """The positives of today; what people refused and what waits for an answer, by how likely a match is; what is
    ranked and was not proposed; and the remainder that no ranking lists.

    Raises:
        StoreError: a ranking file is gone.
    """
    merged, proposals = merged_now(context), columns.proposal_columns(context.session)
    positives = merged.where("kept")
    positives = positives[pool.holds(positives)]
    judged = merged.pairs.loc[merged.pairs["n_judgements"] > 0, "pair"].to_numpy()
    proposed = distinct(proposals["pair"].to_numpy())
    ranked = ranked_pairs(
        list(all_rankings(context.session, context.settings, item_store.dataset(context.session).id))
    )
    found_pairs = distinct(np.concatenate([proposed, judged, ranked]))
    found_pairs = found_pairs[pool.holds(found_pairs) & ~contains(positives, found_pairs)]
    was_judged = contains(judged, found_pairs)
    is_candidate = was_judged | contains(proposed, found_pairs)
    chance = _chances(context, merged, proposals, found_pairs, is_candidate)
    refused = chance * FALSE_NO / (chance * FALSE_NO + (1 - chance) * (1 - FALSE_NO))
    parts = [(_POSITIVES, positives, np.full(len(positives), 1 - WRONG))]
    for name, flags, chances in (
        (_REFUSED, was_judged, refused),
        (UNANSWERED, is_candidate & ~was_judged, chance),
        (_RANKED, ~is_candidate, chance),
    ):
        parts += _banded(name, found_pairs[flags], chances[flags])
    remainder = RemainderOf(pool, np.concatenate([positives, found_pairs]))
    least = min((float(chances.mean()) for _, pairs, chances in parts[1:] if len(pairs)), default=0.01)
    guesses = [
        Guess(name, len(pairs), len(pairs) * (name == _POSITIVES), float(chances.mean()))
        for name, pairs, chances in parts
        if len(pairs)
    ]
    members = tuple(pairs for _, pairs, _ in parts if len(pairs))
    last = Guess("remainder", remainder.size, 0, least * DEEPER)
    return Strata((*guesses, last), (*members, remainder), positives)


def strata_for_labels(context: Context) -> Strata:
    """The open candidates that no exclusion list names, by what a machine would call them: a match or none.

    Raises:
        AuditError: no candidate is open, or labels stand that those by this sample would replace.
    """
    session = context.session
    if n_labels := len(audit_store.labelled_rows(session, context.environment)):
        raise AuditError(
            f"{several(n_labels, 'machine label')} of an earlier sample would give way to those by this one, and this "
            "one would not be drawn from their pairs; run `mitl label --withdraw` and draw again, or keep them and let "
            "people answer the rest"
        )
    proposals = columns.proposal_columns(session)
    proposed = distinct(proposals["pair"].to_numpy())
    asked = pack_pairs(open_work.asked_pairs(session, context.environment))
    open_pairs = proposed[~contains(asked, proposed) & ~item_store.excluded(session).name(proposed)]
    if not len(open_pairs):
        raise AuditError("no candidate is open, so there is nothing left that a machine could label")
    merged = merged_now(context)
    chance = _chances(context, merged, proposals, open_pairs, np.ones(len(open_pairs), np.bool_))
    parts = [part for part in _banded(UNANSWERED, open_pairs, chance, SIDES) if len(part[1])]
    guesses = tuple(Guess(name, len(pairs), 0, float(chances.mean())) for name, pairs, chances in parts)
    return Strata(guesses, tuple(pairs for _, pairs, _ in parts), merged.where("kept"))


def _banded(
    name: str, pairs: Ints, chances: Floats, bands: tuple[float, ...] = BANDS
) -> list[tuple[str, Ints, Floats]]:
    """The pairs by band of probability, the likeliest first; a band may be empty."""
    band = np.searchsorted(-np.array(bands), -chances, side="left")
    parts = []
    for place, (low, high) in enumerate(zip((*bands, 0.0), (1.0, *bands), strict=True)):
        here = band == place
        parts.append((f"{name}, {low:g} to {high:g}", pairs[here], chances[here]))
    return parts


def _chances(
    context: Context, merged: Merged, proposals: pd.DataFrame, pairs: Ints, is_candidate: NDArray[np.bool_]
) -> Floats:
    """(pairs,) how likely each is a match: as fused; else by the share of matches among people's answers on candidates
    that as many annotators proposed.

    Args:
        pairs: packed and ascending.
    """
    by_number = _by_annotators(merged, proposals, pairs)
    least = by_number[is_candidate].min(initial=0.1)
    chance = np.where(is_candidate, by_number, least * DEEPER)
    fused = fused_scores(context)
    if fused is not None:
        at = places(fused["pair"].to_numpy(), pairs)
        chance = np.where(at < 0, chance, np.append(fused["probability"].to_numpy(), 0.0)[at])
    return np.asarray(np.clip(chance, 0.0, 1.0), np.float64)


def _by_annotators(merged: Merged, proposals: pd.DataFrame, pairs: Ints) -> Floats:
    answered = merged.pairs.loc[merged.pairs["n_judgements"] > 0, ["pair", "verified"]]
    n_of_answered = np.diff(finders(proposals, answered["pair"].to_numpy())[0])
    n_of_pairs = np.diff(finders(proposals, pairs)[0])
    highest = max(int(n_of_answered.max(initial=0)), int(n_of_pairs.max(initial=0)))
    asked = np.bincount(n_of_answered, minlength=highest + 1)
    matches = np.bincount(n_of_answered, answered["verified"], minlength=highest + 1)
    # Half a match in one answer more: a number that nobody was asked about is as likely as not.
    return np.asarray(((matches + 0.5) / (asked + 1))[n_of_pairs], np.float64)

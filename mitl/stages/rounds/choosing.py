"""What there is to choose from in a project, and what a strategy chooses of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from mitl.core.arrays import Ints, contains, distinct, pack_pairs, places
from mitl.crowd.context import Context
from mitl.db.store import audits, columns, items, open_work, proposals
from mitl.errors import RoundError
from mitl.fusion.evidence import UnitVectors, joined
from mitl.hits.packing import CANDIDATES_PER_HIT
from mitl.records import several
from mitl.records.frames import NONE, counts, frame
from mitl.records.rounds import DOUBTS, POOL
from mitl.selection.choice import GivenAnswers, SelectionProblem, SideVectors, called_pairs
from mitl.selection.coreset import Spread
from mitl.selection.strategies import select
from mitl.stages.auditing.drawing import answer_price
from mitl.stages.fusing.gathering import answered, evidence, ranked
from mitl.stages.fusing.scores import fused_scores
from mitl.stages.proposing.ranking import read_items


@dataclass(frozen=True, slots=True)
class ChoiceOptions:
    """What may be said of a choice beside its strategy and its size."""

    spread: Spread | None = None
    deepest: int | None = None
    """Ranks to choose from; None for all that the rankings hold."""
    hit_cents: int | None = None
    """What a HIT costs as it will be published; None for the wording of the latest batch, with one worker."""


def choose(
    context: Context, strategy: str, budget: int, seed: int, options: ChoiceOptions | None = None
) -> pd.DataFrame:
    """``CHOSEN``: what the strategy asks of this project now; reads only, and equal states give equal choices.

    Args:
        budget: pairs to ask, at most.

    Raises:
        StoreError: nothing has been proposed yet.
        RoundError: the budget is below one HIT, nothing is open, or the strategy lacks what it goes by.
        UsageError: there is no such strategy.
    """
    options = options or ChoiceOptions()
    needs_likeness = options.spread is not None or strategy == "coreset"
    choice = choice_of(
        context, budget, seed, options, needs_likeness=needs_likeness, again=strategy == DOUBTS
    )
    return select(strategy, choice, options.spread)


def choice_of(
    context: Context,
    budget: int,
    seed: int,
    options: ChoiceOptions,
    *,
    needs_likeness: bool = True,
    again: bool = False,
) -> SelectionProblem:
    """What a strategy is given.

    Open is what nobody was asked (no live HIT, no usable answer), what no machine labelled, what no exclusion list
    names, and what the sample for machine labels does not hold: its pairs are asked before all others anyway, and teach
    nothing. Pairs of an audit of recall are open like any other: to leave them out would be to look at the sample, and
    its matches would never be found. Answers of audits, and on the sample, are not read.

    Args:
        again: open is, on the contrary, what has an answer or a machine label and may be asked again.

    Raises:
        StoreError: nothing has been proposed yet.
        RoundError: the budget is below one HIT, or nothing is open.
    """
    if budget < CANDIDATES_PER_HIT:
        raise RoundError(
            f"the budget is {several(budget, 'pair')}, below one HIT, which asks {CANDIDATES_PER_HIT}; give that many "
            "at least"
        )
    session, environment = context.session, context.environment
    proposals.latest_run(session)
    sampled = pack_pairs(audits.drawn_for_labels(session, environment))
    answers = answered(context, sampled)
    likeness = SideVectors()
    if needs_likeness:
        gathered = evidence(context, answers)
        rows, likeness = gathered.ranked, SideVectors(_one(gathered.pictures), _one(gathered.texts))
    else:
        _, searched = read_items(session, context.settings)
        rows = ranked(context, searched, proposals.runs(session))
    if options.deepest is not None:
        rows = rows[rows["rank"] <= options.deepest]
    fused = fused_scores(context)
    if again:
        pool = doubted(context, distinct(rows["pair"].to_numpy()), sampled, fused)
    else:
        asked = distinct(np.concatenate([pack_pairs(open_work.asked_pairs(session, environment)), sampled]))
        pool = pool_of(rows, asked, answers, fused)
    excluded = items.excluded(session).name(pool["pair"].to_numpy())
    pool = pool.assign(open=pool["open"] & ~excluded)
    if again and not pool["open"].any():
        raise RoundError(
            "no pair can be asked again: none with an answer or a machine label has a fused probability, and fewer "
            "than three answers or two that agree; answer some pairs in another round first, then run `mitl fuse`"
        )
    if not pool["open"].any():
        within, more = "", ""
        if options.deepest is not None:
            within, more = f" within {several(options.deepest, 'rank')}", "choose among more ranks, "
        raise RoundError(
            f"none of {several(len(pool), 'ranked pair')}{within} is open: all were asked, labelled by machine or "
            f"excluded; {more}propose with another annotator or deeper, or go on with `mitl build-dataset`"
        )
    hit_cents = options.hit_cents or answer_price(context).hit_cents
    return SelectionProblem(pool, rows, budget, seed, hit_cents / CANDIDATES_PER_HIT, likeness=likeness)


def pool_of(
    rows: pd.DataFrame, asked: Ints, answers: pd.DataFrame, fused: pd.DataFrame | None
) -> pd.DataFrame:
    """``POOL`` of these rankings.

    Args:
        rows: ``PROPOSALS``.
        asked: packed and ascending: the pairs that are not open.
        answers: ``ANSWERED``.
        fused: ``FUSED``.
    """
    pairs = distinct(rows["pair"].to_numpy())
    probability = np.full(len(pairs), np.nan)
    if fused is not None:
        at = places(fused["pair"].to_numpy(), pairs)
        probability[at >= 0] = fused["probability"].to_numpy()[at[at >= 0]]
    more = np.zeros(len(pairs))
    at = places(pairs, answers["pair"].to_numpy())
    more[at[at >= 0]] = (answers["yes"] - answers["no"]).to_numpy()[at >= 0]
    columns = {
        "pair": pairs,
        "probability": probability,
        "open": ~contains(asked, pairs),
        "positive": more > 0,
        "negative": more < 0,
    }
    return frame(POOL, columns)


def doubted(context: Context, pairs: Ints, sampled: Ints, fused: pd.DataFrame | None) -> pd.DataFrame:
    """``POOL`` of the pairs that may be in doubt: those with an answer, or a machine label, and a probability.

    The sample for machine labels is not among them; what is out is not open.

    Args:
        pairs: ranked.
        sampled: packed and ascending.
        fused: ``FUSED``.
    """
    session, environment = context.session, context.environment
    if fused is None:
        return frame(POOL, dict.fromkeys(POOL, ()))
    kept = contains(pairs, fused["pair"].to_numpy()) & ~contains(sampled, fused["pair"].to_numpy())
    fused_pairs = fused["pair"].to_numpy()[kept]
    judgements = columns.judgement_columns(session, environment)
    judgements = judgements[counts(judgements) & contains(fused_pairs, judgements["pair"].to_numpy())]
    labelled = audits.machine_labels(session, environment)
    machine = np.full(len(fused_pairs), NONE, np.int8)
    at = places(fused_pairs, labelled["pair"].to_numpy())
    machine[at[at >= 0]] = labelled["label"].to_numpy()[at >= 0]
    answers = GivenAnswers(
        places(fused_pairs, judgements["pair"].to_numpy()),
        np.asarray(judgements["label"], np.int8),
        np.asarray(judgements["worker"].cat.codes, np.int64),
    )
    pool = called_pairs(fused_pairs, fused["probability"].to_numpy()[kept], answers, machine)
    out = pack_pairs(open_work.live_pairs(session, environment, roles=open_work.ANSWERING))
    return pool.assign(open=pool["open"] & ~contains(out, pool["pair"].to_numpy()))


def _one(vectors: tuple[UnitVectors, ...]) -> UnitVectors | None:
    """Vectors whose cosine is the mean of all of these."""
    found = joined("likeness", vectors)
    return found[0] if found else None

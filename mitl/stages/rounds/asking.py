"""The steps of a round that ask people: its choices are posted, and answers come in until each of them has one."""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import accumulate

from mitl.campaign.bill import expects_fee
from mitl.campaign.kinds.pairs.planning import Campaign, make_plan
from mitl.campaign.kinds.protocol import leftover
from mitl.campaign.publish import publish
from mitl.core.arrays import unpack_pairs
from mitl.core.pricing import format_dollars
from mitl.crowd.context import Context, open_context
from mitl.db.store import audits as audit_store
from mitl.db.store import commitments, open_work
from mitl.db.store import hits as hit_store
from mitl.db.store import rounds as round_store
from mitl.db.store.rounds import RoundRow
from mitl.errors import CrowdError, FundsError, OutageError, RoundError
from mitl.hits.packing import CANDIDATES_PER_HIT
from mitl.records import BatchKind, Pair, PairRole, several
from mitl.records.rounds import DOUBTS
from mitl.stages.harvesting.harvest import harvest_once
from mitl.stages.harvesting.watching import MAX_FAILURES, SLOWEST
from mitl.stages.hits.simulate import simulate
from mitl.stages.reviewing.review import settle
from mitl.stages.rounds.wish import Done, Turn, Waits

logger = logging.getLogger(__name__)

_ASKED = (PairRole.CANDIDATE, PairRole.OVERLAP, PairRole.AUDIT)
_MOST_TRIES = 3
"""Runs of publishing in a row: one may only complete what an earlier one has planned."""
_MOST_LOOKS = 12
"""Times that scripted workers are sent: bounds a population that never passes its controls."""


def committed_cents(context: Context, round_id: int) -> int:
    """What the HITs that a round pays for have cost and may still cost, fees included."""
    session, environment = context.session, context.environment
    charges_fee = expects_fee(session, context.settings, environment)
    promised = sum(
        promise.cents(charges_fee=charges_fee)
        for promises in (commitments.promises, commitments.extension_promises)
        for promise in promises(session, environment, round_id=round_id)
    )
    return round_store.spent(session, environment, round_id) + promised


def _left(context: Context, turn: Turn) -> int:
    return turn.wish.budget_cents - committed_cents(context, turn.row.id)


def unanswered(context: Context, turn: Turn) -> set[Pair]:
    """The chosen pairs, and those of the sample for machine labels, that lack a usable answer.

    A pair in doubt lacks one until another worker has answered it, and a third where two differ.
    """
    session, environment = context.session, context.environment
    chosen = _to_ask(context, turn.row)
    workers = open_work.usable_workers(session, environment)
    sample = {pair for pair in audit_store.drawn_for_labels(session, environment) if not workers.get(pair, 0)}
    if turn.wish.strategy == DOUBTS:
        return sample.union(open_work.undecided(session, environment, turn.row.id, chosen))
    return sample.union(pair for pair in chosen if workers.get(pair, 0) < turn.wish.assignments)


def _affordable(context: Context, turn: Turn) -> Campaign | None:
    """What asks again within what is left of the budget; None where no HIT of it does.

    All of it; else as many of the pairs that further workers are asked as its HITs hold, what the sample for machine
    labels disputes first; else none of these; else so many HITs, that sample's first.
    """
    left, prices = _left(context, turn), turn.wish.prices(context)
    campaign = turn.wish.campaign(turn.environment, left)
    for further in (None, max(left, 0) // prices.new.total_cents * CANDIDATES_PER_HIT, 0):
        request = replace(campaign, further=further)
        plan = make_plan(context.session, context.settings, request)
        cents = prices.of(plan)
        if 0 < sum(cents) <= left:
            return request
    n_paid = sum(total <= left for total in accumulate(cents[: len(plan.again)]))
    asked = [[item for item in hit.page.items if item.role in _ASKED] for hit in plan.again[:n_paid]]
    return replace(request, limit=sum(map(len, asked))) if asked else None


def _to_ask(context: Context, row: RoundRow) -> list[Pair]:
    """What a round chose, but for pairs that exclusion lists have named since."""
    chosen = round_store.chosen_pairs(context.session, row.id)["pair"].to_numpy()
    return unpack_pairs(chosen[~open_work.left_out(context.session, context.environment, chosen)])


def publish_chosen(turn: Turn) -> Done:
    """Post what is chosen and on no HIT yet, within what is left of the budget."""
    for _ in range(_MOST_TRIES):
        with open_context(turn.settings, turn.environment, read_only=True) as context:
            chosen = _to_ask(context, turn.row)
            # A pair counts as asked once it is planned; what was planned and not posted is no question yet.
            asked, interrupted = asked_pairs(context, turn.row), _interrupted(context)
            hits = round_store.posted_hits(context.session, context.environment, turn.row.id)
            if asked.issuperset(chosen) and not interrupted:
                return Done(f"{_all(len(chosen))} asked", {"hits_posted": hits})
            what = _affordable(context, turn) if hits and not interrupted else None
            if hits and not interrupted and what is None:
                left = _left(context, turn)
                rest = len(set(chosen).difference(asked))
                line = (
                    f"{rest:,} of {several(len(chosen), 'chosen pair')} stand on no HIT, and the "
                    f"{format_dollars(max(left, 0))} left of the budget pay for none"
                )
                return Done(line, {"hits_posted": hits})
        _post(turn, what)
    raise RoundError(
        f"not all of what the round chose could be posted; run `mitl publish --{turn.environment} --chosen` to see why"
    )


def _all(chosen: int) -> str:
    return "the one chosen pair is" if chosen == 1 else f"all {several(chosen, 'chosen pair')} are"


def asked_pairs(context: Context, row: RoundRow) -> set[Pair]:
    """What a round need not ask any more: of doubts what its own HITs ask again."""
    session, environment = context.session, context.environment
    if row.strategy != DOUBTS:
        return open_work.asked_pairs(session, environment)
    out = open_work.live_pairs(session, environment, roles=open_work.ANSWERING)
    return out.union(open_work.answered_again(session, environment, row.id))


def _interrupted(context: Context) -> bool:
    """Whether posting died after its plan was stored: it is completed first, and by itself."""
    return bool(leftover(context.session, context.environment, BatchKind.PAIRS, hit_store.hit_items))


def _post(turn: Turn, what: Campaign | None = None) -> None:
    """Publish what the round chose and what audits want, this of it, or complete what an earlier try has planned."""
    if what is None:
        with open_context(turn.settings, turn.environment, read_only=True) as context:
            left = _left(context, turn)
            # A plan was held to the budget when it was made, and is among what is committed since.
            what = turn.wish.campaign(turn.environment, None if _interrupted(context) else left)
    posted = publish(
        turn.settings,
        what,
        confirm=turn.talk.confirm,
        announce=turn.talk.say,
        progress=turn.talk.progress,
    )
    for warning in posted.warnings:
        logger.warning("%s", warning)


def _changed(context: Context, turn: Turn) -> tuple[str, dict[str, int]]:
    """What asking again has made of the calls, in words and numbers; nothing where the round asks no doubts."""
    if turn.wish.strategy != DOUBTS:
        return "", {}
    calls = open_work.answered_again(context.session, context.environment, turn.row.id).values()
    changed = {
        "became_match": sum(now > 0 >= before for now, before in calls),
        "became_none": sum(before > 0 >= now for now, before in calls),
    }
    return f"; {changed['became_match']:,} became a match and {changed['became_none']:,} none", changed


def harvest_chosen(turn: Turn) -> Done | Waits:
    """Look for answers until every chosen pair has one; what could not be used is asked again within the budget.

    A run that waits for answers, and had a first look, waits for a server or a database that does not answer too.
    """
    crowd, looks, did, failures = turn.talk.crowd, 0, False, 0
    while True:
        try:
            found, queued = _look(turn, looks + 1)
        except (CrowdError, OutageError) as error:
            failures += 1
            if isinstance(error, FundsError) or crowd.wait_s is None or not looks or failures == MAX_FAILURES:
                raise
            if failures == 1:
                turn.talk.say(f"{error}; looking again in {crowd.wait_s:g} s, then more rarely")
            crowd.pause(crowd.wait_s * min(2 ** (failures - 1), SLOWEST))
            continue
        looks, failures = looks + 1, 0
        if isinstance(found, Done):
            return found
        did = did or found.did
        if crowd.population is not None and looks < _MOST_LOOKS:
            continue
        if crowd.wait_s is None or crowd.population is not None:
            return replace(found, did=did)
        review = f"; `mitl review` holds {several(queued, 'submission')}" if queued else ""
        turn.talk.say(f"{found.line}{review}; looking again in {crowd.wait_s:g} s")
        crowd.pause(crowd.wait_s)


def _look(turn: Turn, looks: int) -> tuple[Done | Waits, int]:
    """How the step ends, or what it still waits for, after so many looks; and how much work waits for a person."""
    crowd = turn.talk.crowd
    with open_context(turn.settings, turn.environment, read_only=True) as context:
        n_chosen = len(round_store.chosen_pairs(context.session, turn.row.id))
        interrupted = _interrupted(context)
    if interrupted:
        _post(turn)
    if crowd.population is not None:
        simulate(turn.settings, turn.environment, population=crowd.population, progress=turn.talk.progress)
    seen = harvest_once(turn.settings, turn.environment, progress=turn.talk.progress)
    if crowd.population is not None:
        settle(turn.settings, turn.environment)
    did = seen.result.status == "done"
    queued = seen.counts["queued"] if crowd.population is None else 0
    with open_context(turn.settings, turn.environment, read_only=True) as context:
        missing = unanswered(context, turn)
        out = open_work.live_pairs(context.session, context.environment, roles=open_work.ANSWERING)
        lost = missing - out
        left, affordable = _left(context, turn), _affordable(context, turn) if lost else None
        told, changed = _changed(context, turn)
    if not missing:
        line = f"{_all(n_chosen)} answered{told}"
        return Done(line, {"looks": looks, **changed}), queued
    have = "has" if len(missing) == 1 else "have"
    words = f"{several(len(missing), 'pair')} of the round or of its audits {have} no usable answer yet"
    if lost and affordable is None:
        words += f", and {format_dollars(max(left, 0))} of the budget is left"
        if lost == missing:  # nothing is out either, so waiting would not end
            return Done(words + told, {"looks": looks, "unanswered": len(missing), **changed}), queued
    elif lost:
        _post(turn, affordable)
        did = True
    review = "mitl review; then " if queued else ""
    return Waits(words, f"{review}the same command again when people have worked", did), queued

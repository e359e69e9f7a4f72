"""What a round of decisions did, and what follows from it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy.orm import Session

from mitl.campaign.kinds import kinds_asked
from mitl.campaign.spending import SpendingLimit
from mitl.core.pricing import fee_cents, format_dollars
from mitl.crowd.paying import CarriedOut
from mitl.db.store import answers as answer_store
from mitl.db.store import hits as hit_store
from mitl.db.store import open_work
from mitl.db.store.open_work import HitToReplace
from mitl.records import Decision, Environment, StageResult, several
from mitl.settings import Settings
from mitl.stages.harvesting.deadlines import utc
from mitl.stages.reviewing.decisions import Ruling

CHOICES = (Decision.APPROVE, Decision.DROP, Decision.APPROVE_EXCLUDE, Decision.REJECT)


def nothing_ruled(why: str) -> StageResult:
    """Nothing was to be decided, or the person thought better of it."""
    return StageResult(status="nothing_to_do", lines=(f"nothing to do: {why}",))


def in_words(calls_open: int) -> str:
    """That calls about so many decided submissions, 1 or more, are still to be made."""
    about = several(calls_open, "submission")
    return f"the server has not heard what was decided about {about}"


def ruled(
    session: Session,
    settings: Settings,
    chosen: Environment,
    rulings: Sequence[Ruling],
    done: CarriedOut,
    deadlines: Mapping[int, dt.datetime | None],
) -> StageResult:
    """What was decided, until when rejections can be reversed, and what asking again will cost.

    Args:
        deadlines: of the submissions that were rejected now.
    """
    again = open_work.hits_to_replace(session, chosen)
    left = answer_store.decision_counts(session, chosen).get(Decision.QUEUED, 0)
    cents = _cost(session, settings, chosen, again)
    made = {decision.value: sum(one.decision is decision for one in rulings) for decision in CHOICES}
    return StageResult(
        counts={
            "environment": chosen.value,
            "queued": left,
            "hits_to_ask_again": len(again),
            "again_cents": cents,
            "reversible_until": {
                str(number): None if until is None else until.isoformat(timespec="seconds")
                for number, until in deadlines.items()
            },
            **made,
        },
        warnings=(*_too_late(done), *_over_ceiling(session, settings, chosen, cents)),
        lines=tuple(_lines(made, deadlines, left=left, again=len(again), cents=cents)),
        next=_next(session, chosen, left=left, again=len(again)),
    )


def _lines(
    made: Mapping[str, int],
    deadlines: Mapping[int, dt.datetime | None],
    *,
    left: int,
    again: int,
    cents: int,
) -> Iterator[str]:
    yield (
        f"{made['approve']} approved, {made['drop']} paid without use, {made['approve_exclude']} paid and their "
        f"workers excluded, {made['reject']} rejected; {left} still wait"
    )
    for number, until in deadlines.items():
        yield f"submission {number} is rejected; `mitl review reverse {number}` can undo that until {utc(until)}"
    if again:
        yield f"HITs to ask again: {again:,}, for {format_dollars(cents)} at most"


def _too_late(done: CarriedOut) -> tuple[str, ...]:
    if not done.too_late:
        return ()
    return (
        f"{done.too_late} rejections came too late: the work had been approved by itself; it is paid and not used",
    )


def _cost(session: Session, settings: Settings, chosen: Environment, again: Sequence[HitToReplace]) -> int:
    """Cents for every worker who is still wanted, at the rewards of before."""
    batches = {batch.id: batch for batch in hit_store.batches(session, chosen)}
    rewards = [(batches[one.hit.batch_id].reward_cents, one.missing) for one in again]
    return sum(
        missing * (reward + (fee_cents(reward, missing) if _charges_fee(settings) else 0))
        for reward, missing in rewards
    )


def _over_ceiling(session: Session, settings: Settings, chosen: Environment, cents: int) -> tuple[str, ...]:
    left = SpendingLimit(session, settings, chosen, charges_fee=_charges_fee(settings)).left()
    if left is None or cents <= left:
        return ()
    return (
        f"asking again what could not be used costs up to {format_dollars(cents)}, but the ceiling of "
        f"{format_dollars(settings.ceiling_cents or 0)} on {chosen} leaves {format_dollars(left)}; raise ceiling_cents "
        "in [crowd] of mitl.toml, or ask for part of it by `mitl publish --limit`",
    )


def _charges_fee(settings: Settings) -> bool:
    """Whether a fee must be reckoned with: mitl's own server takes none."""
    return settings.endpoint is not None


def _next(session: Session, chosen: Environment, *, left: int, again: int) -> str:
    if left:
        return "mitl review"
    if again:
        return f"mitl publish --{chosen}, which asks again what could not be used"
    kinds = kinds_asked(session, chosen)
    for kind in kinds:
        if kind.to_replace(session, chosen):
            return f"{kind.command} --{chosen}, which asks again what could not be used"
    if open_work.open_work(session, chosen).hits:
        return "mitl harvest"
    return " or ".join(
        [*(f"{kind.scores}," for kind in kinds if kind.scores), "mitl build-dataset --out DIR"]
    )

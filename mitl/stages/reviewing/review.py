"""Reviewing: a person decides about submissions whose controls failed."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated

from mitl.campaign.bill import SpendingLimit, expects_fee
from mitl.campaign.kinds import after_answers, other_kinds_asked, to_ask_again
from mitl.core.pricing import format_dollars
from mitl.crowd.context import Context, named, open_context
from mitl.crowd.paying import CarriedOut, has_open_calls
from mitl.db.session import reading
from mitl.db.store import answers as answer_store
from mitl.db.store import desk as desk_store
from mitl.db.store import hits as hit_store
from mitl.db.store import open_work
from mitl.db.store.answers import StoredAssignment
from mitl.db.store.commitments import OpenPromise
from mitl.db.store.control_sheets import gold_state
from mitl.db.store.open_work import HitToReplace
from mitl.db.store.rounds import after_pages
from mitl.progress import Progress, no_progress
from mitl.records import Decision, Environment, StageResult, Table, several
from mitl.records.results import EnvironmentCounts, printed_by
from mitl.settings import Settings
from mitl.stages.harvesting.judging import approves_itself_at, judge, reversible_until, utc
from mitl.stages.reviewing.decisions import (
    Ruling,
    check_open,
    check_reasons,
    find_submissions,
    keep_one,
    tell_server,
)

__all__ = ["CHOICES", "Ruling", "queue", "rule", "settle"]

Confirm = Callable[[Environment, int], bool]
"""Whether to go on and reject so many submissions there."""


@printed_by("review")
class QueueCounts(EnvironmentCounts):
    """The queue."""

    queued: Annotated[int, "submissions that wait for a person"]
    submissions: Annotated[list[int], "their numbers"]
    calls_open: Annotated[
        int, "decided submissions that the server has not heard of; `mitl harvest` carries that out"
    ]


@printed_by("review approve", "review drop", "review exclude", "review reject", "review settle")
class RulingCounts(EnvironmentCounts):
    """What was decided, and what follows."""

    queued: Annotated[int, "submissions that still wait for a person"]
    hits_to_ask_again: Annotated[
        int, "closed HITs whose answers could not be used, of any kind; what posted them asks again"
    ]
    again_cents: Annotated[int, "what that costs at most, at the rewards of before"]
    reversible_until: Annotated[
        dict[str, str | None], "number of a submission rejected now → until when that can be reversed"
    ]
    approve: Annotated[int, "submissions paid and used"]
    drop: Annotated[int, "submissions paid, not used"]
    approve_exclude: Annotated[int, "submissions paid, not used, their workers excluded"]
    reject: Annotated[int, "submissions not paid"]


SHOWN = 50
"""Submissions that the list shows at most."""


def queue(settings: Settings, environment: Environment | None = None) -> StageResult:
    """The submissions that wait for a person, oldest first, with why and until when."""
    with open_context(settings, environment, read_only=True) as context:
        session, chosen = context.session, context.environment
        waiting = answer_store.assignments(session, chosen, (Decision.QUEUED,))
        findings = answer_store.findings_of(session, [row.id for row in waiting])
        state = gold_state(session, chosen, settings.gold_rule)
        unsent = desk_store.unsent(session, chosen)
        following, here = after_pages(session, chosen), named(session, chosen)
    told = f"{in_words(unsent)}; `mitl harvest{here}`, or `mitl review settle{here}` again, carries that out"
    counts = QueueCounts(
        environment=chosen.value,
        queued=len(waiting),
        submissions=[row.id for row in waiting],
        calls_open=unsent,
    )
    if not waiting and unsent:
        lines = ("no submission waits for a person", told)
        return StageResult(counts=counts, lines=lines, next=f"mitl harvest{here}")
    if not waiting:
        return StageResult.nothing("no submission waits for a person", counts, following)
    rows = []
    for row in waiting[:SHOWN]:
        why = ", ".join(sorted({finding.code for finding in findings.get(row.id, ())}))
        record, itself = state.record(row.worker), approves_itself_at(row)
        golds = f"{record.passes} of {record.golds}" if record.golds else None
        minutes = None if row.taken_s is None else f"{row.taken_s / 60:,.1f}"
        rows.append((row.id, row.worker, why, golds, minutes, None if itself is None else utc(itself)))
    title = f"{several(len(waiting), 'submission')} waiting for a person"
    if len(waiting) > SHOWN:
        title += f", the first {SHOWN}; `mitl desk` shows all"
    columns = ("number", "worker", "why it waits", "golds passed", "minutes", "pays itself at")
    return StageResult(
        counts=counts,
        tables=(Table(title, columns, tuple(rows)),),
        lines=(told,) if unsent else (),
        next="mitl review show NUMBER; then mitl review approve|drop|exclude|reject NUMBER, or mitl review settle",
    )


def settle(
    settings: Settings, environment: Environment | None = None, *, progress: Progress = no_progress
) -> StageResult:
    """Pay everyone in the queue, use none of their queued answers, and let workers of bad record go.

    The cautious choice for a queue that nobody will read: it rejects no one, costs one more asking of each page,
    and keeps out whoever the gold controls speak against.
    """
    with open_context(settings, environment, read_only=True) as context:
        chosen = context.environment
        waiting = answer_store.assignments(context.session, chosen, (Decision.QUEUED,))
        state = gold_state(context.session, chosen, settings.gold_rule)
    rulings = []
    for row in waiting:
        decision = Decision.APPROVE_EXCLUDE if state.record(row.worker).is_bad else Decision.DROP
        rulings.append(Ruling(row.id, decision, "gold record"))
    return rule(settings, rulings, chosen, progress=progress)


def rule(
    settings: Settings,
    rulings: Sequence[Ruling],
    environment: Environment | None = None,
    *,
    announce: Callable[[str], None] | None = None,
    confirm: Confirm | None = None,
    progress: Progress = no_progress,
) -> StageResult:
    """Carry out what a person decided: the decision is stored first, then the calls are made.

    Args:
        announce: is given a line for each rejection before anything is stored: until when it can be reversed.
        confirm: is asked before anything is stored, where something is to be rejected.

    Raises:
        UsageError: a rejection without a reason that its worker can understand.
        StoreError: no such submission, or it is decided already in another way.
    """
    check_reasons(rulings)
    with open_context(settings, environment, progress=progress) as context:
        session, chosen = context.session, context.environment
        with reading(session):  # nobody waits for the database while a person thinks
            deadlines = _deadlines(rulings, _open(context, rulings), announce)
        if deadlines and confirm is not None and not confirm(chosen, len(deadlines)):
            return StageResult.nothing("you did not confirm it")
        rows = _open(context, rulings)
        for ruling in rulings:
            keep_one(session, rows[ruling.assignment], ruling)
        session.commit()
        owed = has_open_calls(session, chosen)  # an interrupted run's calls among them
        session.rollback()
        done = tell_server(context) if owed else CarriedOut(0, 0, 0)
        judge(session, chosen, settings.gold_rule)
        session.commit()
        if not owed and all(rows[ruling.assignment].decision is ruling.decision for ruling in rulings):
            return StageResult.nothing(
                "that is decided already" if rulings else "no submission waits for a person"
            )
        return _ruled(context, rulings, done, deadlines)


def _open(context: Context, rulings: Sequence[Ruling]) -> dict[int, StoredAssignment]:
    """The submissions that these rulings are about; StoreError where one is decided already in another way."""
    numbers = [ruling.assignment for ruling in rulings]
    rows = find_submissions(context.session, context.environment, numbers)
    for ruling in rulings:
        check_open(rows[ruling.assignment], ruling.decision)
    return rows


def _deadlines(
    rulings: Sequence[Ruling], rows: Mapping[int, StoredAssignment], announce: Callable[[str], None] | None
) -> dict[int, dt.datetime | None]:
    """Until when each rejection that is still to be made can be reversed."""
    deadlines = {}
    for ruling in rulings:
        row = rows[ruling.assignment]
        if ruling.decision is Decision.REJECT and row.decision is not Decision.REJECT:
            deadlines[row.id] = reversible_until(row)
            if announce is not None:
                announce(
                    f"rejecting submission {row.id} of {row.worker}: it will not be paid; that can be reversed until "
                    f"{utc(deadlines[row.id])}"
                )
    return deadlines


CHOICES = (Decision.APPROVE, Decision.DROP, Decision.APPROVE_EXCLUDE, Decision.REJECT)


def in_words(calls_open: int) -> str:
    """That calls about so many decided submissions, 1 or more, are still to be made."""
    about = several(calls_open, "submission")
    return f"the server has not heard what was decided about {about}"


def _ruled(
    context: Context,
    rulings: Sequence[Ruling],
    done: CarriedOut,
    deadlines: Mapping[int, dt.datetime | None],
) -> StageResult:
    """What was decided, until when rejections can be reversed, and what asking again will cost.

    Args:
        deadlines: of the submissions that were rejected now.
    """
    session, chosen = context.session, context.environment
    again = to_ask_again(session, chosen)
    hits_again = [hit for hits in again.values() for hit in hits]
    # As it stands now: a rejection may have come too late.
    rows = find_submissions(session, chosen, [ruling.assignment for ruling in rulings])
    decided = Counter(row.decision for row in rows.values())
    deadlines = {id_: until for id_, until in deadlines.items() if rows[id_].decision is Decision.REJECT}
    counts = RulingCounts(
        environment=chosen.value,
        queued=answer_store.decision_counts(session, chosen).get(Decision.QUEUED, 0),
        hits_to_ask_again=len(hits_again),
        again_cents=_cost(context, hits_again),
        reversible_until={
            str(number): None if until is None else until.isoformat(timespec="seconds")
            for number, until in deadlines.items()
        },
        approve=decided[Decision.APPROVE],
        drop=decided[Decision.DROP],
        approve_exclude=decided[Decision.APPROVE_EXCLUDE],
        reject=decided[Decision.REJECT],
    )
    warnings = list(done.told)
    if over := _over_ceiling(context, counts["again_cents"]):
        warnings.append(over)
    return StageResult(
        counts=counts,
        warnings=tuple(warnings),
        lines=tuple(_lines(counts, deadlines, named(session, chosen))),
        next=_next(context, counts, next(iter(again), "")),
    )


def _lines(counts: RulingCounts, deadlines: Mapping[int, dt.datetime | None], here: str) -> Iterator[str]:
    yield (
        f"{counts['approve']} approved, {counts['drop']} paid without use, {counts['approve_exclude']} paid and their "
        f"workers excluded, {counts['reject']} rejected; {counts['queued']} still wait"
    )
    for number, until in deadlines.items():
        yield f"submission {number} is rejected; `mitl review reverse {number}{here}` can undo that until {utc(until)}"
    if counts["hits_to_ask_again"]:
        cost = format_dollars(counts["again_cents"])
        yield f"HITs to ask again: {counts['hits_to_ask_again']:,}, for {cost} at most at the reward of before"


def _cost(context: Context, again: Sequence[HitToReplace]) -> int:
    """Cents for every worker who is still wanted, at the rewards of before."""
    batches = {batch.id: batch for batch in hit_store.batches(context.session, context.environment)}
    with_fee = expects_fee(context.session, context.settings, context.environment)
    promised = (
        OpenPromise(batches[hit.hit.batch_id].reward_cents, hit.missing, hit.missing) for hit in again
    )
    return sum(promise.cents(charges_fee=with_fee) for promise in promised)


def _over_ceiling(context: Context, cents: int) -> str:
    """A warning where asking again would cost more than the ceiling leaves."""
    settings, chosen = context.settings, context.environment
    with_fee = expects_fee(context.session, settings, chosen)
    left = SpendingLimit(context.session, settings, chosen, charges_fee=with_fee).left()
    if left is None or cents <= left:
        return ""
    return (
        f"asking again what could not be used costs up to {format_dollars(cents)}, but the ceiling of "
        f"{format_dollars(settings.ceiling_cents or 0)} on {chosen} leaves {format_dollars(left)}; raise ceiling_cents "
        "in [crowd] of mitl.toml, or ask for part of it with --limit"
    )


def _next(context: Context, counts: RulingCounts, asks_again: str) -> str:
    """Args: asks_again: the command that asks again what could not be used; empty where nothing is to be."""
    session, chosen = context.session, context.environment
    if counts["queued"]:
        return f"mitl review{named(session, chosen)}"
    if asks_again:
        return f"{asks_again} --{chosen}, which asks again what could not be used"
    if open_work.open_work(session, chosen).hits:
        return f"mitl harvest{named(session, chosen)}"
    return " or ".join(
        [
            *(
                f"{kind.scores}{named(session, chosen)},"
                for kind in other_kinds_asked(session, chosen)
                if kind.scores
            ),
            after_answers(session, chosen),
        ]
    )

"""Harvesting: fetch what changed, keep it raw, parse, check, approve."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mitl.campaign.kinds import kinds_asked
from mitl.campaign.posting import reconcile
from mitl.campaign.reconciling import gone_warning
from mitl.crowd.endpoint import Endpoint, open_endpoint
from mitl.crowd.environment import choose_environment, require_same_server
from mitl.crowd.paying import CarriedOut, carry_out, has_open_calls
from mitl.db.session import open_database, reading
from mitl.db.store import answers as answer_store
from mitl.db.store import hits as hit_store
from mitl.db.store import open_work
from mitl.db.store import proposals as proposal_store
from mitl.db.store.answers import AssignmentRow
from mitl.db.store.hits import HitRow
from mitl.progress import Progress, no_progress
from mitl.records import Decision, Environment, HitState, StageResult, several
from mitl.settings import Settings
from mitl.stages.harvesting.caps import cap_workers, due_caps
from mitl.stages.harvesting.deadlines import approves_itself_at, utc
from mitl.stages.harvesting.deriving import rederive
from mitl.stages.harvesting.fetching import Fetched, Fetcher
from mitl.stages.harvesting.judging import judge
from mitl.stages.harvesting.parsing import Parser
from mitl.stages.harvesting.sweep import Sweep, sweep

SOON = dt.timedelta(days=1)
"""Before work that waits for a person is approved by itself, each harvest says so."""
_NAMED = 3
_WAITING = (Decision.NONE, Decision.QUEUED)


@dataclass(frozen=True, slots=True)
class Harvested:
    """What one look at the server brought."""

    environment: Environment
    result: StageResult
    awaited: int
    """HITs on which people may still work."""


def harvest(
    settings: Settings,
    environment: Environment | None = None,
    *,
    reparse: bool = False,
    progress: Progress = no_progress,
) -> StageResult:
    """Bring the answers of an environment up to date and approve what passes its controls.

    Args:
        reparse: parse the stored raw documents again instead of fetching.
    """
    if reparse:
        return reparse_all(settings, environment, progress=progress)
    return harvest_once(settings, environment, progress=progress).result


def harvest_once(
    settings: Settings, environment: Environment | None = None, *, progress: Progress = no_progress
) -> Harvested:
    """One look at the server, with what is left to come."""
    with open_database(settings.db_url) as session:
        chosen = choose_environment(session, environment)
        left = _parse_left(session, settings, chosen)
        with reading(session):
            out = hit_store.hits(session, chosen, (HitState.SENDING, HitState.POSTED))
            idle = not (out or left or has_open_calls(session, chosen) or due_caps(session, settings, chosen))
        if idle:
            return Harvested(chosen, _nothing_to_do(session, chosen), 0)
        with open_endpoint(settings, chosen) as endpoint:
            return _look(session, settings, endpoint, chosen, progress)


def _parse_left(session: Session, settings: Settings, environment: Environment) -> int:
    """Parse what an earlier run stored and died over."""
    batches = {batch.id: batch for batch in hit_store.batches(session, environment)}
    return Parser(session, environment, batches, settings.wordings).parse_left()


def _look(
    session: Session, settings: Settings, endpoint: Endpoint, environment: Environment, progress: Progress
) -> Harvested:
    client = endpoint.client()
    listed = {hit.hit_id: hit for hit in client.list_hits()}
    # People may have worked on HITs whose publishing was interrupted before it heard of them.
    reconcile(session, settings.project_id, environment, listed.values)
    require_same_server(session, endpoint, environment)
    with reading(session):
        known = hit_store.hits(session, environment)
    swept = sweep(client, known, listed)
    posted = [hit for hit in known if hit.state is HitState.POSTED]
    fetcher = Fetcher(
        session,
        client,
        environment,
        settings.wordings,
        charges_fee=endpoint.charges_fee,
        in_order=endpoint.in_process,
    )
    fetched = fetcher.fetch(swept, posted, progress)
    judge(session, environment, settings.gold_rule)
    _close_expired(session, environment, swept)
    session.commit()
    done = carry_out(
        session, client, settings, environment, charges_fee=endpoint.charges_fee, progress=progress
    )
    capped = cap_workers(session, client, settings, environment, progress=progress)
    if done.excluded or done.too_late:  # which takes answers out of what counts
        judge(session, environment, settings.gold_rule)
        session.commit()
    with reading(session):
        warnings = _warnings(session, environment, swept, fetched)
        result = _result(session, environment, fetched, done, capped, warnings)
        awaited = sum(
            not swept.is_finished(hit) for hit in hit_store.hits(session, environment, (HitState.POSTED,))
        )
    return Harvested(environment, result, awaited)


def _close_expired(session: Session, environment: Environment, swept: Sweep) -> None:
    """HITs whose time is over, or that are gone, and of which nothing waits; what was not answered is open again."""
    undecided = Counter(row.hit_id for row in answer_store.assignments(session, environment, _WAITING))
    stored = answer_store.stored_counts(session, environment)
    over = []
    for hit in hit_store.hits(session, environment, (HitState.POSTED,)):
        complete = hit in swept.deleted or swept.n_submitted(hit) <= stored.get(hit.id, 0)
        if swept.is_finished(hit) and complete and not undecided[hit.id]:
            over.append(hit.id)
    hit_store.set_state(session, over, HitState.CLOSED)


def _warnings(session: Session, environment: Environment, swept: Sweep, fetched: Fetched) -> tuple[str, ...]:
    stored = answer_store.stored_counts(session, environment)
    gone = [hit for hit in swept.deleted if stored.get(hit.id, 0) < hit.assignments]
    found = [gone_warning(gone)] if gone else []
    if fetched.lost:
        found.append(
            f"the server no longer gives the submissions of {several(len(fetched.lost), 'deleted HIT')}: "
            f"{_named(fetched.lost)}"
        )
    if fetched.settled:
        found.append(
            f"{several(fetched.settled, 'submission')} approved or rejected on the server without mitl's knowing; "
            "that is booked now"
        )
    waiting = answer_store.assignments(session, environment, _WAITING)
    return (*found, *_near_approval(waiting, dt.datetime.now(dt.UTC)))


def _near_approval(waiting: Sequence[AssignmentRow], now: dt.datetime) -> list[str]:
    """A warning about work that waits for a person and is soon paid without one."""
    times = [at for row in waiting if (at := approves_itself_at(row)) is not None and at - now < SOON]
    if not times:
        return []
    return [
        f"{several(len(times), 'submission')} waiting for a person would be approved unseen within a day, the first at "
        f"{utc(min(times))}; decide with `mitl review`"
    ]


def _named(hits: Sequence[HitRow]) -> str:
    """The first few HITs by name."""
    more = f" and {len(hits) - _NAMED:,} more" if len(hits) > _NAMED else ""
    return ", ".join(hit.key for hit in hits[:_NAMED]) + more


def _nothing_to_do(session: Session, environment: Environment) -> StageResult:
    queued = answer_store.decision_counts(session, environment).get(Decision.QUEUED, 0)
    is_proposed = bool(proposal_store.runs(session))
    session.rollback()
    return StageResult(
        status="nothing_to_do",
        counts={"environment": environment.value, "fetched": 0, "approved": 0, "queued": queued},
        lines=(f"nothing to do: no HIT is out on {environment}",),
        next=f"mitl publish --{environment}, or mitl build-dataset --out DIR"
        if is_proposed
        else "mitl status, which says what comes first",
    )


def _result(
    session: Session,
    environment: Environment,
    fetched: Fetched,
    done: CarriedOut,
    capped: int,
    warnings: tuple[str, ...],
) -> StageResult:
    decisions = answer_store.decision_counts(session, environment)
    waiting = open_work.open_work(session, environment).hits
    queued = decisions.get(Decision.QUEUED, 0)
    approved = done.approved + fetched.recovered
    nothing = not (fetched.new or fetched.settled or approved or done.rejected or done.excluded or capped)
    lines = [
        f"{several(fetched.new, 'submission')} fetched, {approved:,} approved; {queued:,} wait for a person, "
        f"{several(waiting, 'HIT')} still out"
    ]
    if capped:
        lines.append(f"the cap on HITs per worker was set or lifted for {several(capped, 'worker')}")
    if nothing:
        lines.insert(0, "nothing to do: no new answers")
    kinds = kinds_asked(session, environment)
    if queued:
        following = "mitl review"
    elif again := next((kind for kind in kinds if kind.to_replace(session, environment)), None):
        following = f"{again.command} --{environment}, which asks again what could not be used"
    elif waiting > 0:
        following = "mitl harvest again when people have worked"
    else:
        following = "mitl build-dataset --out DIR"
        if scores := [f"{kind.scores} for {kind.given}" for kind in kinds if kind.scores]:
            following = "; ".join([*scores, f"{following} for pairs"])
    return StageResult(
        status="nothing_to_do" if nothing else "done",
        counts={
            "environment": environment.value,
            "fetched": fetched.new,
            "approved": approved,
            "queued": queued,
            "capped": capped,
            "hits_out": waiting,
            "findings": answer_store.finding_counts(session, environment),
        },
        warnings=warnings,
        lines=tuple(lines),
        next=following,
    )


def reparse_all(
    settings: Settings, environment: Environment | None = None, *, progress: Progress = no_progress
) -> StageResult:
    """Read every raw document of an environment anew, in one transaction, and judge what they say now."""
    with open_database(settings.db_url) as session:
        chosen = choose_environment(session, environment)
        batches = {batch.id: batch for batch in hit_store.batches(session, chosen)}
        count = Parser(session, chosen, batches, settings.wordings).reparse(progress)
        count += rederive(session, settings, chosen, progress)
        judge(session, chosen, settings.gold_rule)
        session.commit()
    return StageResult(
        status="done" if count else "nothing_to_do",
        counts={"environment": chosen.value, "reparsed": count},
        lines=(
            f"parsed the raw answers of {several(count, 'submission')} again"
            if count
            else "nothing to do: no submission is stored",
        ),
    )

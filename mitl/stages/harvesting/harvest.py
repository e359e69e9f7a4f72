"""Harvesting: fetch what changed, keep it raw, parse, check, approve."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, TypedDict

from mitl.campaign.kinds import after_answers, kinds_asked, to_ask_again
from mitl.campaign.posting import gone_warning, reconcile
from mitl.crowd.context import Context, named, open_context
from mitl.crowd.endpoint import Endpoint, open_same_endpoint
from mitl.crowd.paying import carry_out, has_open_calls
from mitl.db.session import reading
from mitl.db.store import answers as answer_store
from mitl.db.store import audits as audit_store
from mitl.db.store import hits as hit_store
from mitl.db.store import journal, open_work, standings
from mitl.db.store import rounds as round_store
from mitl.db.store.answers import StoredAssignment
from mitl.db.store.commitments import DELETE
from mitl.errors import EndpointError, SettingsError
from mitl.progress import Progress, no_progress
from mitl.records import (
    UNDECIDED,
    BatchKind,
    Decision,
    Environment,
    HitState,
    JournalState,
    StageResult,
    several,
)
from mitl.records.results import listed, printed_by
from mitl.settings import Settings
from mitl.stages.harvesting.caps import cap_workers, due_caps
from mitl.stages.harvesting.deriving import rederive
from mitl.stages.harvesting.fetching import Fetched, Fetcher, HitsOut, Parser, sweep
from mitl.stages.harvesting.judging import approves_itself_at, judge, utc

SOON = dt.timedelta(days=1)
"""Before work that waits for a person is approved by itself, each harvest says so."""
_NAMED = 3


@printed_by("harvest")
class HarvestCounts(TypedDict, total=False):
    """What fetching, parsing again and bringing in past work count."""

    environment: Annotated[str, "sandbox or live"]
    fetched: Annotated[int, "new submissions"]
    approved: Annotated[int, "submissions paid by this run"]
    queued: Annotated[int, "submissions that wait for a person"]
    capped: Annotated[int, "workers for whom the cap on HITs was set or lifted"]
    ended: Annotated[int, "HITs that ended before all their answers came: what they lack is open again"]
    hits_out: Annotated[int, "HITs still to be answered"]
    findings: Annotated[dict[str, int], "by code: what was odd about submissions, of all that are stored"]
    reparsed: Annotated[int, "raw documents parsed again (`--reparse`)"]
    own: Annotated[int, "new submissions of this project's own HITs (`--from`)"]
    hits: Annotated[int, "HITs of other batches that the file made known (`--from`)"]
    judgements: Annotated[int, "answers of other batches on pairs of this project (`--from`)"]
    pairs: Annotated[int, "pairs that these are about (`--from`)"]
    proposals: Annotated[int, "rows (pair, annotator, direction) that the official CSV names (`--from`)"]
    left_out: Annotated[
        int, "submissions about nothing that the project knows (`--from` with `--skip-unknown`)"
    ]
    unknown: Annotated[
        int, "answers about unknown images or captions in the submissions that were kept (`--from`)"
    ]
    looks: Annotated[int, "times that the server was asked (`--watch`)"]


@dataclass(frozen=True, slots=True)
class Harvested:
    """What one look at the server brought."""

    environment: Environment
    result: StageResult
    counts: HarvestCounts
    """The result's own."""
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
    with open_context(settings, environment, progress=progress) as context:
        session, chosen = context.session, context.environment
        left = Parser(context).parse_left()  # what an earlier run stored and died over
        with reading(session):
            out = hit_store.hits(session, chosen, (HitState.SENDING, HitState.POSTED))
            idle = not (out or left or has_open_calls(session, chosen) or due_caps(context))
            kept = idle and _is_any_kept(context)
        if idle and not kept:
            return _nothing_to_do(context)
        try:
            with open_same_endpoint(context) as endpoint:
                seen = _look(context, endpoint)
        except (EndpointError, SettingsError) as error:
            if not idle:
                raise
            return _nothing_to_do(context, (f"whether closed HITs have new work was not asked: {error}",))
        if idle and seen.result.status == "nothing_to_do":
            return _nothing_to_do(context, seen.result.warnings, seen.result.next)
        return seen


def _is_any_kept(context: Context) -> bool:
    """Whether the server may still have a HIT that was posted from here and is closed: it can be reopened there."""
    session, environment = context.session, context.environment
    deleted = journal.states(session, DELETE)
    crowd = {batch.id for batch in hit_store.posted_batches(session)}
    return any(
        hit.batch_id in crowd and hit.mturk_hit_id and deleted.get(hit.key) is not JournalState.DONE
        for hit in hit_store.hits(session, environment, (HitState.CLOSED,))
    )


def _look(context: Context, endpoint: Endpoint) -> Harvested:
    session, environment, settings = context.session, context.environment, context.settings
    client = endpoint.client()
    listed = {hit.hit_id: hit for hit in client.list_hits()}
    # People may have worked on HITs whose publishing was interrupted before it heard of them.
    reconcile(context, listed.values())
    with reading(session):
        hits = hit_store.hits(session, environment)
    swept = sweep(client, hits, listed)
    fetched = Fetcher(context, endpoint, client).fetch(swept, hits)
    judge(session, environment, settings.gold_rule)
    ended = _close_expired(context, swept, is_whole=fetched.failure is None)
    session.commit()
    done = carry_out(context, client, charges_fee=endpoint.charges_fee)
    capped, uncapped = cap_workers(context, client)
    if done.excluded or done.told:  # which takes answers out of what counts
        judge(session, environment, settings.gold_rule)
        session.commit()
    if fetched.failure is not None:
        raise fetched.failure
    with reading(session):
        counts = HarvestCounts(
            environment=environment.value,
            fetched=fetched.new,
            approved=done.approved + fetched.recovered,
            queued=answer_store.decision_counts(session, environment).get(Decision.QUEUED, 0),
            capped=capped,
            ended=ended,
            hits_out=open_work.open_work(session, environment).hits,
            findings=answer_store.finding_counts(session, environment),
        )
        did = (
            fetched.new
            or fetched.settled
            or counts["approved"]
            or done.rejected
            or done.excluded
            or capped
            or ended
        )
        result = StageResult(
            status="done" if did else "nothing_to_do",
            counts=counts,
            warnings=(*done.told, *uncapped, *_warnings(context, swept, fetched)),
            lines=tuple(_lines(counts, nothing=not did)),
            next=_next(context, counts),
        )
        awaited = sum(
            not swept.is_finished(hit) for hit in hit_store.hits(session, environment, (HitState.POSTED,))
        )
    return Harvested(environment, result, counts, awaited)


def _close_expired(context: Context, swept: HitsOut, *, is_whole: bool) -> int:
    """Close HITs whose time is over, or that are gone, and of which nothing waits; what was not answered is open again.

    Returns how many ended before all their answers came; those that are gone are told by a warning.

    Args:
        is_whole: whether all submissions that the server gives were fetched.
    """
    session, environment = context.session, context.environment
    undecided = Counter(row.hit_id for row in answer_store.assignments(session, environment, UNDECIDED))
    stored = answer_store.stored_counts(session, environment)
    over, short = [], 0
    for hit in hit_store.hits(session, environment, (HitState.POSTED,)):
        complete = (is_whole and hit in swept.deleted) or swept.n_submitted(hit) <= stored.get(hit.id, 0)
        if swept.is_finished(hit) and complete and not undecided[hit.id]:
            over.append(hit.id)
            short += hit not in swept.deleted and stored.get(hit.id, 0) < hit.assignments
    hit_store.set_state(session, over, HitState.CLOSED)
    return short


def _warnings(context: Context, swept: HitsOut, fetched: Fetched) -> tuple[str, ...]:
    session, environment = context.session, context.environment
    here = named(session, environment)
    stored = answer_store.stored_counts(session, environment)
    gone = [hit for hit in swept.deleted if stored.get(hit.id, 0) < hit.assignments]
    warnings = [gone_warning(gone)] if gone else []
    if fetched.lost:
        warnings.append(
            f"the server no longer gives the submissions of {several(len(fetched.lost), 'deleted HIT')}: "
            f"{listed([hit.key for hit in fetched.lost], _NAMED)}"
        )
    if fetched.settled:
        rejected = listed([str(number) for number in fetched.rejected], _NAMED)
        warnings.append(
            f"{several(fetched.settled, 'submission')} approved or rejected on the server without mitl's knowing; "
            "that is booked now"
            + (
                f"; rejected: {rejected}; `mitl review reverse NUMBER{here}` pays one after all"
                if rejected
                else ""
            )
        )
    waiting = answer_store.assignments(session, environment, UNDECIDED)
    return (*warnings, *_near_approval(waiting, context.now(), here))


def _near_approval(waiting: Sequence[StoredAssignment], now: dt.datetime, here: str) -> list[str]:
    """A warning about work that waits for a person and is soon paid without one."""
    times = [at for row in waiting if (at := approves_itself_at(row)) is not None and at - now < SOON]
    if not times:
        return []
    return [
        f"{several(len(times), 'submission')} waiting for a person would be approved unseen within a day, the first at "
        f"{utc(min(times))}; decide with `mitl review{here}`"
    ]


def _nothing_to_do(
    context: Context, warnings: tuple[str, ...] = (), following: str | None = None
) -> Harvested:
    session, environment = context.session, context.environment
    queued = answer_store.decision_counts(session, environment).get(Decision.QUEUED, 0)
    counts = HarvestCounts(environment=environment.value, fetched=0, approved=0, queued=queued)
    begun = hit_store.batches(session, environment)
    after = following or (_next(context, counts) if begun else round_store.after_pages(session, environment))
    result = StageResult.nothing(f"no HIT is out on {environment}", counts, after)
    return Harvested(environment, replace(result, warnings=warnings), counts, 0)


def _lines(counts: HarvestCounts, *, nothing: bool) -> Iterator[str]:
    if nothing:
        yield "nothing to do: no new answers"
    yield (
        f"{several(counts['fetched'], 'submission')} fetched, {counts['approved']:,} approved; "
        f"{counts['queued']:,} waiting for a person, {several(counts['hits_out'], 'HIT')} still out"
    )
    if ended := counts["ended"]:
        lacks = "it lacks" if ended == 1 else "they lack"
        yield f"{several(ended, 'HIT')} ended before all answers came; what {lacks} is open again"
    if counts["capped"]:
        yield f"the cap on HITs per worker was set or lifted for {several(counts['capped'], 'worker')}"


def _next(context: Context, counts: HarvestCounts) -> str:
    session, environment = context.session, context.environment
    kinds = kinds_asked(session, environment)
    if counts["queued"]:
        return f"mitl review{named(session, environment)}"
    kept = standings.kept(session.connection()).get(environment)  # where nothing was written since
    if again := next(iter(kept["again"] if kept else to_ask_again(session, environment)), None):
        return f"{again} --{environment}, which asks again what could not be used"
    if audit_store.open_questions(session, environment):
        command = round_store.pairs_command(session, environment)
        return f"{command} --{environment}, which asks what an audit still wants"
    if counts.get("hits_out"):
        return f"mitl harvest{named(session, environment)} again when people have worked"
    following = after_answers(session, environment)
    here = named(session, environment)
    scores = [f"{kind.scores}{here} for {kind.given}" for kind in kinds if kind.scores]
    if not scores:
        return following
    asks_pairs = any(batch.kind == BatchKind.PAIRS for batch in hit_store.batches(session, environment))
    return "; ".join([*scores, f"{following} for pairs"] if asks_pairs else scores)


def reparse_all(
    settings: Settings, environment: Environment | None = None, *, progress: Progress = no_progress
) -> StageResult:
    """Read every raw document of an environment again, in one transaction, and judge what they say now."""
    with open_context(settings, environment, progress=progress) as context:
        session, chosen = context.session, context.environment
        count = Parser(context).reparse(progress)
        count += rederive(session, chosen, progress)
        judge(session, chosen, settings.gold_rule)
        session.commit()
    return StageResult(
        status="done" if count else "nothing_to_do",
        counts=HarvestCounts(environment=chosen.value, reparsed=count),
        lines=(
            f"parsed the raw answers of {several(count, 'submission')} again"
            if count
            else "nothing to do: no submission is stored",
        ),
    )

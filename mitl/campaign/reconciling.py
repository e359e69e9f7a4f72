"""What the server has against what this database knows: HITs to adopt, HITs that are gone, HITs nobody here knows."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mitl.campaign.posting import CREATE, annotation, annotation_prefix, reconcile
from mitl.crowd.calls import THREADS
from mitl.crowd.client import ListedHit, MTurkClient
from mitl.crowd.endpoint import open_endpoint
from mitl.crowd.environment import require_same_server
from mitl.db.locks import PUBLISH, only_one
from mitl.db.session import open_database, reading
from mitl.db.store import answers as answer_store
from mitl.db.store import hits as hit_store
from mitl.db.store import journal
from mitl.db.store.hits import UNPOSTED, HitRow
from mitl.errors import CrowdError, EndpointError
from mitl.progress import Progress, no_progress
from mitl.records import Environment, HitState, StageResult
from mitl.settings import Settings

TOKEN_LASTS = dt.timedelta(hours=23)
"""A server remembers a request token for 24 hours; an hour is left for clocks that differ and for slow runs."""
DISPOSED = "Disposed"
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Sweep:
    """What one sweep over the server's HITs found."""

    adopted: int
    """HITs that had reached the server without this database knowing."""
    orphans: tuple[ListedHit, ...]
    """HITs of this project that no row of this database stands for, as after restoring an older backup."""
    gone: tuple[HitRow, ...]
    """Posted HITs that the server has deleted before their work was done; closed here, so that it is asked again."""
    unfetched: tuple[HitRow, ...]
    """Deleted HITs with submissions that are not stored here yet; a harvest brings them in and closes them."""
    overlooked: int
    """Posted HITs that the sweep missed although the server has them."""
    last_batch: int
    """The highest number of a batch of this project that the server knows; 0 where it knows none."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line for each thing that a person should know."""
        found = []
        if self.gone:
            found.append(gone_warning(self.gone))
        if self.unfetched:
            names = [hit.key for hit in self.unfetched]
            found.append(
                f"{len(names):,} HITs were deleted on the server with submissions that are not stored here yet "
                f"({_some(names)}); run `mitl harvest`"
            )
        if self.orphans:
            names = [(hit.annotation or "").partition(":")[2].partition(":")[2] for hit in self.orphans]
            found.append(
                f"{len(self.orphans):,} HITs of this project on the server are not in this database ({_some(names)}), "
                "as after restoring an older backup; their answers cannot be read here: restore the newer database, "
                "or end them with `mitl hits expire --orphans` and, when they are decided, `mitl hits delete --orphans`"
            )
        return tuple(found)


NO_SWEEP = Sweep(adopted=0, orphans=(), gone=(), unfetched=(), overlooked=0, last_batch=0)
"""Where nothing is posted, nothing has to be found first."""


def sweep_to_post(session: Session, client: MTurkClient, project_id: str, environment: Environment) -> Sweep:
    """Adopt what an earlier run posted without hearing of it, and see that sending again is safe.

    Raises:
        CrowdError: see :func:`require_safe_repeat`.
    """
    sweep = sweep_server(session, client, project_id, environment)
    require_safe_repeat(session, sweep, environment)
    return sweep


def sweep_server(
    session: Session,
    client: MTurkClient,
    project_id: str,
    environment: Environment,
    listed: Iterable[ListedHit] | None = None,
) -> Sweep:
    """Compare the server's HITs with the stored ones, adopt what was lost and close what is gone.

    Args:
        listed: what ListHITs gave, where the caller has it already.
    """
    session.rollback()
    on_server = {hit.hit_id: hit for hit in (client.list_hits() if listed is None else listed)}
    adopted = reconcile(session, project_id, environment, on_server.values)
    with reading(session):
        known = hit_store.hits(session, environment)
        stored = answer_store.stored_counts(session, environment)
    missing = look_up_missing(client, known, on_server)
    deleted = {hit: found for hit, found in missing.items() if found is None or found.status == DISPOSED}
    unfetched = [hit for hit, found in deleted.items() if found and found.n_submitted > stored.get(hit.id, 0)]
    gone = [hit for hit in deleted if hit not in unfetched]
    hit_store.set_state(session, [hit.id for hit in gone], HitState.CLOSED)
    session.commit()
    prefix = annotation_prefix(project_id)
    ours = [hit for hit in on_server.values() if (hit.annotation or "").startswith(prefix)]
    ids = {hit.mturk_hit_id for hit in known}
    return Sweep(
        adopted=adopted,
        orphans=tuple(hit for hit in ours if hit.hit_id not in ids),
        gone=tuple(hit for hit in gone if stored.get(hit.id, 0) < hit.assignments),
        unfetched=tuple(unfetched),
        overlooked=len(missing) - len(deleted),
        last_batch=max((_batch_number(hit.annotation or "", prefix) for hit in ours), default=0),
    )


def look_up_missing(
    client: MTurkClient, hits: Sequence[HitRow], listed: Mapping[str, ListedHit]
) -> dict[HitRow, ListedHit | None]:
    """The posted HITs that a listing lacks, each with what GetHIT says of it; None where the server has never had it.

    A listing is made page by page while HITs come and go, so that a HIT that it lacks need not be gone.

    Raises:
        EndpointError: the server knows none of the HITs that were posted, so it is another one, or another account's.
    """
    missing = [hit for hit in hits if hit.state is HitState.POSTED and hit.mturk_hit_id not in listed]
    with ThreadPoolExecutor(THREADS, thread_name_prefix="look-up") as pool:
        found = list(pool.map(client.get_hit, [hit.mturk_hit_id or "" for hit in missing]))
    # A deleted HIT is known as such, so one that is not known says something only beside others that are.
    if missing and not any(found) and not any(hit.mturk_hit_id in listed for hit in hits):
        raise EndpointError(
            f"{client.url} knows none of the {len(missing):,} HITs that were posted; it is another server or another "
            "requester's account: check --endpoint-url and the AWS keys; nothing was changed"
        )
    return dict(zip(missing, found, strict=True))


def gone_warning(hits: Sequence[HitRow]) -> str:
    """What to say where posted HITs were deleted on the server and are closed here."""
    return (
        f"{len(hits):,} HITs were deleted on the server before their work was done "
        f"({_some([hit.key for hit in hits])}); they are closed here, and `mitl publish` asks "
        "their pairs again, `mitl prefer publish` their comparisons"
    )


def require_safe_repeat(
    session: Session, sweep: Sweep, environment: Environment, *, now: dt.datetime | None = None
) -> None:
    """Refuse to send HITs again that might be on the server already.

    Within 24 hours the request token makes a repeat harmless, after that only the sweep tells whether a HIT was made.
    A sweep that overlooked HITs cannot.

    Raises:
        CrowdError: a HIT was first sent longer ago than that, and the sweep was incomplete.
    """
    if not sweep.overlooked:
        return
    sending = [hit.key for hit in hit_store.hits(session, environment, UNPOSTED)]
    first_sent = journal.first_sent(session, CREATE, sending)
    session.rollback()
    before = (now or dt.datetime.now(dt.UTC)) - TOKEN_LASTS
    late = sorted(key for key, at in first_sent.items() if at < before)
    if late:
        raise CrowdError(
            f"{len(late):,} HITs were sent more than 23 hours ago and their replies were lost ({_some(late)}), and "
            f"the server's list lacks {sweep.overlooked:,} HITs that it has, so whether these were made cannot be "
            "told; nothing was posted; run the command again later"
        )


def require_free_names(sweep: Sweep, hits: Iterable[HitRow], project_id: str) -> None:
    """Refuse to post a HIT under the name of one that is on the server and not in this database.

    The two may hold different pairs, and after a lost reply the one would be taken for the other.

    Raises:
        CrowdError: a HIT's name is taken.
    """
    taken = {hit.annotation for hit in sweep.orphans}
    names = [hit.key for hit in hits if annotation(project_id, hit) in taken]
    if names:
        raise CrowdError(
            f"{len(names):,} HITs that would be posted are on the server already, under their names but unknown here "
            f"({_some(names)}), as after restoring an older backup; nothing was posted; restore the newer database"
        )


def reconcile_only(
    settings: Settings, environment: Environment, progress: Progress = no_progress
) -> StageResult:
    """Compare the server's HITs with the stored ones and post nothing.

    Raises:
        StoreError: a publish is at work on the same database.
    """
    with (
        open_database(settings.db_url) as session,
        only_one(settings.db_url, PUBLISH),
        open_endpoint(settings, environment) as endpoint,
    ):
        require_same_server(session, endpoint, environment)
        session.rollback()
        with progress("reconcile", 1) as advance:
            found = sweep_server(session, endpoint.client(), settings.project_id, environment)
            advance(1)
        states = Counter(hit.state for hit in hit_store.hits(session, environment))
    unposted = sum(states[state] for state in UNPOSTED)
    nothing = not (found.adopted or found.gone or found.orphans or found.unfetched)
    return StageResult(
        status="nothing_to_do" if nothing else "done",
        counts={
            "environment": environment.value,
            "hits_adopted": found.adopted,
            "hits_gone": len(found.gone) + len(found.unfetched),
            "hits_orphaned": len(found.orphans),
            "hits_unposted": unposted,
        },
        warnings=found.warnings,
        lines=(
            "nothing to do: the server has every HIT that is posted here, and no other of this project"
            if nothing
            else f"{found.adopted:,} HITs were adopted, {len(found.gone):,} closed because the server deleted them; "
            f"{len(found.orphans):,} of this project are not known here",
        ),
        next=f"mitl publish --{environment}, which posts the {unposted:,} HITs that are planned"
        if unposted
        else "mitl harvest",
    )


def _batch_number(annotation: str, prefix: str) -> int:
    found = re.match(r"b([0-9]{1,9}):", annotation.removeprefix(prefix))
    return int(found[1]) if found else 0


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return f"{shown}, …" if len(names) > _SHOWN else shown

"""HITs under names of their own, so that none is lost and none is doubled, whenever the process dies.

What the server has is compared with what this database knows: HITs to adopt, HITs that are gone, HITs that nobody here
knows. The two calls that post a HIT are said once: posting makes them, validation checks them and writes them down.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from mitl.crowd.calls import THREADS, Call
from mitl.crowd.client import HitRequest, HitTypeTerms, ListedHit, MTurkClient, exclusion_qualification
from mitl.crowd.context import Context
from mitl.crowd.listings import is_refusal
from mitl.db.session import reading
from mitl.db.store import answers as answer_store
from mitl.db.store import hits as hit_store
from mitl.db.store import journal
from mitl.db.store.hits import UNPOSTED, StoredHit
from mitl.errors import CrowdError, EndpointError
from mitl.hits.templates import HitTemplate
from mitl.records import UNDECIDED, HitState, several
from mitl.records.results import listed
from mitl.settings import ASSIGNMENT_DURATION_S, AUTO_APPROVAL_S, LIFETIME_S, Settings

CREATE = "create"
TOKEN_LASTS = dt.timedelta(hours=23)
"""A server remembers a request token for 24 hours; an hour is left for clocks that differ and for slow runs."""
DISPOSED = "Disposed"
_SHOWN = 10


def token(project_id: str, batch: str, number: int, attempt: int) -> str:
    """The ``UniqueRequestToken`` of a HIT: 48 hexadecimal digits of a hash over what names it."""
    name = f"mitl1:{project_id}:{batch}:{number}:{attempt}"
    return hashlib.sha256(name.encode()).hexdigest()[:48]


def annotation_prefix(project_id: str) -> str:
    """How the annotations of all HITs of a project begin."""
    return f"mitl1:{project_id}:"


def annotation(project_id: str, hit: StoredHit) -> str:
    """The ``RequesterAnnotation`` of a HIT, by which it is found again."""
    return annotation_prefix(project_id) + hit.key


class HitTypes:
    """The HIT types that a run posts under, each asked for once; none is seen by whoever has finished the study."""

    def __init__(self, client: MTurkClient, settings: Settings) -> None:
        self._client, self._settings = client, settings
        self._finished = exclusion_qualification(client, settings.project_id)
        self._ids: dict[tuple[str, int, frozenset[str]], str] = {}

    def of(self, template: HitTemplate, reward_cents: int, off: frozenset[str]) -> str:
        """The id of the type of a wording at a price, not seen by the workers ``off`` either."""
        key = template.name, reward_cents, off
        if key not in self._ids:
            about = template.title, template.description, template.keywords
            terms = HitTypeTerms(*about, reward_cents, ASSIGNMENT_DURATION_S, AUTO_APPROVAL_S)
            without = [self._finished, *([self._held_by(off)] if off else [])]
            self._ids[key] = self._client.create_hit_type(terms, without=without)
        return self._ids[key]

    def _held_by(self, workers: frozenset[str]) -> str:
        """A qualification of these workers alone: the same ones have the same, whenever they are asked about.

        Workers see its name, and with a guess of who holds it nobody can tell whether that is right.
        """
        name = hmac.new(
            self._settings.secret(), " ".join(sorted(workers)).encode(), hashlib.sha256
        ).hexdigest()[:16]
        qualification = self._client.create_qualification_type(
            f"mitl {self._settings.project_id} met {name}",
            "Held by people who were asked all of some tasks before; these are offered to others.",
        )
        for worker in sorted(workers):
            try:
                self._client.associate_qualification(qualification, worker)
            except CrowdError as error:
                if not is_refusal(error):
                    raise
                # The server refuses to keep this one away: they may answer, for nothing but the reward.
        return qualification


def create_hit(client: MTurkClient, project_id: str, hit: StoredHit, hit_type_id: str, question: str) -> str:
    """Post a HIT under its own token and annotation; the id that the server gives it."""
    name = annotation(project_id, hit)
    return client.create_hit(HitRequest(hit_type_id, question, hit.assignments, LIFETIME_S, name, hit.token))


def create_call(project_id: str, hit: StoredHit, wording: str | None = None) -> Call[StoredHit]:
    """Posting a HIT, as it is journalled, with the hash of its wording where that is known."""
    request = {"annotation": annotation(project_id, hit), journal.WORDING: wording}
    return Call(hit.key, hit, request, hit.token)


def reconcile(context: Context, listed: Iterable[ListedHit]) -> int:
    """Adopt the HITs that reached the server though this database does not know it; returns how many.

    Their reply was lost, or the database is an older one, restored. They are found by their annotation in one sweep
    of ListHITs, which works after the 24 hours too during which the server remembers request tokens.
    """
    session, project_id = context.session, context.settings.project_id
    unposted = hit_store.hits(session, context.environment, UNPOSTED)
    by_annotation = {annotation(project_id, hit): hit for hit in unposted}
    session.rollback()
    adopted = 0
    for listed_hit in listed:
        hit = by_annotation.pop(listed_hit.annotation or "", None)
        if hit is None:
            continue
        adopted += 1
        now, call = context.now(), create_call(project_id, hit)
        # A restored database may not have written down yet that the HIT was to be sent.
        journal.plan(session, CREATE, [(call.key, call.token, json.dumps(call.request))], now)
        hit_store.set_posted(session, {hit.id: listed_hit.hit_id})
        reply = json.dumps({"HITId": listed_hit.hit_id})
        journal.mark_done(session, CREATE, {hit.key: reply}, now)
    session.commit()
    return adopted


@dataclass(frozen=True, slots=True)
class Sweep:
    """What one sweep over the server's HITs found."""

    adopted: int
    """HITs that had reached the server without this database knowing."""
    orphans: tuple[ListedHit, ...]
    """HITs of this project that no row of this database stands for, as after restoring an older backup."""
    gone: tuple[StoredHit, ...]
    """Posted HITs that the server has deleted before their work was done, but for those with work that waits for a
    decision; closed here, so that it is asked again."""
    unfetched: tuple[StoredHit, ...]
    """Deleted HITs with submissions that are not stored here yet; a harvest brings them in and closes them."""
    overlooked: int
    """Posted HITs that the sweep missed although the server has them."""
    last_batch: int
    """The highest number of a batch of this project that the server knows; 0 where it knows none."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line for each thing that a person should know."""
        lines = []
        if self.gone:
            lines.append(gone_warning(self.gone))
        if self.unfetched:
            names = [hit.key for hit in self.unfetched]
            lines.append(
                f"{several(len(names), 'HIT was', 'HITs were')} deleted on the server with submissions not stored "
                f"here yet ({listed(names, _SHOWN)}); run `mitl harvest`"
            )
        if self.orphans:
            names = [(hit.annotation or "").partition(":")[2].partition(":")[2] for hit in self.orphans]
            lines.append(
                f"{several(len(self.orphans), 'HIT')} of this project on the server, but not in this database "
                f"({listed(names, _SHOWN)}), as after restoring an older backup; their answers cannot be read here: "
                "restore the newer database, or end them with `mitl hits expire --orphans` and, when they are decided, "
                "`mitl hits delete --orphans`"
            )
        return tuple(lines)


NO_SWEEP = Sweep(adopted=0, orphans=(), gone=(), unfetched=(), overlooked=0, last_batch=0)
"""Where nothing is posted, nothing has to be found first."""


def sweep_server(context: Context, client: MTurkClient, listed: Iterable[ListedHit] | None = None) -> Sweep:
    """Compare the server's HITs with the stored ones, adopt what was lost and close what is gone.

    Args:
        listed: what ListHITs gave, where the caller has it already.
    """
    session, environment = context.session, context.environment
    session.rollback()
    on_server = {hit.hit_id: hit for hit in (client.list_hits() if listed is None else listed)}
    adopted = reconcile(context, on_server.values())
    with reading(session):
        stored_hits = hit_store.hits(session, environment)
        stored = answer_store.stored_counts(session, environment)
        waiting = {row.hit_id for row in answer_store.assignments(session, environment, UNDECIDED)}
    missing = look_up_missing(client, stored_hits, on_server)
    deleted = {hit: there for hit, there in missing.items() if there is None or there.status == DISPOSED}
    unfetched = [hit for hit, there in deleted.items() if there and there.n_submitted > stored.get(hit.id, 0)]
    # Asked again before a person has decided, what they then accept would be paid twice.
    gone = [hit for hit in deleted if hit not in unfetched and hit.id not in waiting]
    hit_store.set_state(session, [hit.id for hit in gone], HitState.CLOSED)
    session.commit()
    prefix = annotation_prefix(context.settings.project_id)
    ours = [hit for hit in on_server.values() if (hit.annotation or "").startswith(prefix)]
    ids = {hit.mturk_hit_id for hit in stored_hits}
    return Sweep(
        adopted=adopted,
        orphans=tuple(hit for hit in ours if hit.hit_id not in ids),
        gone=tuple(hit for hit in gone if stored.get(hit.id, 0) < hit.assignments),
        unfetched=tuple(unfetched),
        overlooked=len(missing) - len(deleted),
        last_batch=max((_batch_number(hit.annotation or "", prefix) for hit in ours), default=0),
    )


def look_up_missing(
    client: MTurkClient, hits: Sequence[StoredHit], listed: Mapping[str, ListedHit]
) -> dict[StoredHit, ListedHit | None]:
    """The posted HITs that a listing lacks, each with what GetHIT says of it; None where the server has never had it.

    A listing is made page by page while HITs come and go, so that a HIT that it lacks need not be gone.

    Raises:
        EndpointError: the server knows none of the HITs that were posted, so it is another one, or another account's.
    """
    missing = [hit for hit in hits if hit.state is HitState.POSTED and hit.mturk_hit_id not in listed]
    with ThreadPoolExecutor(THREADS, thread_name_prefix="look-up") as pool:
        replies = list(pool.map(client.get_hit, [hit.mturk_hit_id or "" for hit in missing]))
    # A deleted HIT is known as such, so one that is not known says something only beside others that are.
    if missing and not any(replies) and not any(hit.mturk_hit_id in listed for hit in hits):
        raise EndpointError(
            f"{client.url} knows none of the {len(missing):,} HITs that were posted; it is another server or another "
            "requester's account: check --endpoint-url and the AWS keys; nothing was changed"
        )
    return dict(zip(missing, replies, strict=True))


def gone_warning(hits: Sequence[StoredHit]) -> str:
    """What to say where posted HITs were deleted on the server and are closed here."""
    return (
        f"{several(len(hits), 'HIT was', 'HITs were')} deleted on the server before the work was done "
        f"({listed([hit.key for hit in hits], _SHOWN)}); they are closed here, and the command "
        "that posted them asks again"
    )


def require_safe_repeat(context: Context, sweep: Sweep) -> None:
    """Refuse to send HITs again that might be on the server already.

    Within 24 hours the request token makes a repeat harmless, after that only the sweep tells whether a HIT was made.
    A sweep that overlooked HITs cannot.

    Raises:
        CrowdError: a HIT was first sent longer ago than that, and the sweep was incomplete.
    """
    if not sweep.overlooked:
        return
    session = context.session
    sending = [hit.key for hit in hit_store.hits(session, context.environment, UNPOSTED)]
    first_sent = journal.first_sent(session, CREATE, sending)
    session.rollback()
    before = context.now() - TOKEN_LASTS
    late = sorted(key for key, at in first_sent.items() if at < before)
    if late:
        raise CrowdError(
            f"{several(len(late), 'HIT was', 'HITs were')} sent more than 23 hours ago and no reply came "
            f"({listed(late, _SHOWN)}), and the server's list lacks {several(sweep.overlooked, 'HIT')} that it has, so "
            "whether these were made cannot be told; nothing was posted; run the command again later"
        )


def require_free_names(sweep: Sweep, hits: Iterable[StoredHit], project_id: str) -> None:
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
            f"({listed(names, _SHOWN)}), as after restoring an older backup; nothing was posted; restore the newer "
            "database"
        )


def _batch_number(annotation: str, prefix: str) -> int:
    number = re.match(r"b([0-9]{1,9}):", annotation.removeprefix(prefix))
    return int(number[1]) if number else 0

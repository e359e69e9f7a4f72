"""What the server has of our HITs, fetching their submissions, and parsing stored ones, whoever fetched them.

Calls run in threads, raw documents are stored in windows, and each window is parsed once it is safe.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any

from mitl.campaign.kinds import kind_of, wording_of
from mitl.campaign.kinds.protocol import CampaignKind
from mitl.campaign.posting import DISPOSED, look_up_missing
from mitl.crowd.calls import THREADS, quick_turns
from mitl.crowd.client import ListedAssignment, ListedHit, MTurkClient
from mitl.crowd.context import Context
from mitl.crowd.endpoint import Endpoint
from mitl.crowd.listings import is_code
from mitl.crowd.paying import (
    APPROVE,
    APPROVED,
    REJECT,
    REJECTED,
    SUBMITTED,
    note_too_late,
    payment,
)
from mitl.db.store import answers as answer_store
from mitl.db.store import hits as hit_store
from mitl.db.store import journal
from mitl.db.store import parses as parse_store
from mitl.db.store import submissions as submission_store
from mitl.db.store.hits import BatchRow, StoredHit
from mitl.db.store.parses import RawSubmission
from mitl.db.store.statements import chunks
from mitl.db.store.submissions import NewSubmission
from mitl.errors import AnswerError, CrowdError
from mitl.progress import Progress
from mitl.records import (
    BatchKind,
    Decision,
    Finding,
    HitState,
    JournalState,
    JudgementSource,
    Parsed,
)
from mitl.records.questions import Question

PARSED_AT_ONCE = 64
"""Submissions whose parses are written in one transaction."""


class Parser:
    """Parses stored submissions of one environment."""

    def __init__(self, context: Context) -> None:
        self._session, self._environment = context.session, context.environment
        wordings, batches = context.settings.wordings, hit_store.batches(self._session, self._environment)
        of_crowd = [batch for batch in batches if batch.source is JudgementSource.CROWD]
        self._session.rollback()
        self._kinds = [kind_of(name) for name in sorted({BatchKind.PAIRS.value, *(b.kind for b in of_crowd)})]
        asks = {
            (batch.template, batch.kind): wording_of(batch.kind, batch.template, wordings).questions
            for batch in of_crowd
        }
        self._questions = {batch.id: asks[batch.template, batch.kind] for batch in of_crowd}
        self._pages: dict[int, tuple[tuple[Question, ...], list[int]]] = {}

    def parse_left(self) -> int:
        """Parse what a run stored and died over; returns how many submissions that were."""
        count = 0
        for kind in self._kinds:
            left = kind.submissions.unparsed(self._session, self._environment)
            self._session.rollback()
            for window in chunks(list(left.values()), PARSED_AT_ONCE):
                self._parse(kind, window)
            count += len(left)
        return count

    def parse(self, rows: Sequence[RawSubmission]) -> None:
        """Parse these submissions and commit; one that somebody else has parsed meanwhile is left alone."""
        asked = hit_store.other_kinds(self._session, self._environment)
        for kind in self._kinds:
            if of_kind := [row for row in rows if asked.get(row.hit_id, BatchKind.PAIRS) == kind.name]:
                self._parse(kind, of_kind)

    def reparse(self, progress: Progress) -> int:
        """Read every raw document again, in the transaction at hand; returns how many."""
        ids = {kind.name: kind.submissions.ids(self._session, self._environment) for kind in self._kinds}
        count = sum(map(len, ids.values()))
        with progress("reparse", count) as advance:
            for kind in self._kinds:
                for window in chunks(ids[kind.name], PARSED_AT_ONCE):
                    rows = parse_store.raw(self._session, window)
                    parse_store.forget_reading(self._session, window)
                    kind.set_parses(self._session, self._parsed(kind, rows))
                    advance(len(rows))
        return count

    def _parse(self, kind: CampaignKind[Any, Any], rows: Sequence[RawSubmission]) -> None:
        parsed = self._parsed(kind, rows)
        self._session.rollback()
        still = kind.submissions.unparsed(self._session, self._environment, list(parsed))
        kind.set_parses(self._session, {id_: parsed[id_] for id_ in still})
        self._session.commit()

    def _parsed(self, kind: CampaignKind[Any, Any], rows: Sequence[RawSubmission]) -> dict[int, Parsed[Any]]:
        """What these submissions say; one that cannot be read at all says so as a finding."""
        new = sorted({row.hit_id for row in rows} - self._pages.keys())
        for hit_id, (batch_id, places) in kind.submissions.places(self._session, new).items():
            self._pages[hit_id] = self._questions[batch_id], places
        parsed = {}
        for row in rows:
            questions, places = self._pages[row.hit_id]
            try:
                parsed[row.id] = kind.parse(row.raw_xml, places=places, questions=questions)
            except AnswerError as error:
                parsed[row.id] = Parsed((), (Finding(parse_store.UNREADABLE, str(error)),))
        return parsed


_FINISHED = ("Reviewable", "Reviewing", DISPOSED)


@dataclass(frozen=True, slots=True)
class HitsOut:
    """The HITs of ours that are out or were, as the server has them."""

    found: Mapping[int, ListedHit]
    """By our row; those too that are closed here and still listed: another hand may have reopened them."""
    deleted: tuple[StoredHit, ...] = ()
    """Those that are gone from the server though mitl did not delete them."""

    def is_finished(self, hit: StoredHit) -> bool:
        """Whether nobody can work on this HIT any more."""
        listed = self.found.get(hit.id)
        return hit in self.deleted or (listed is not None and listed.status in _FINISHED)

    def n_submitted(self, hit: StoredHit) -> int:
        """How many submissions of this HIT the server has; 0 where it no longer knows."""
        listed = self.found.get(hit.id)
        return 0 if listed is None else listed.n_submitted

    def n_settled(self, hit: StoredHit) -> int:
        """How many submissions of this HIT are approved or rejected there; 0 where it no longer knows."""
        listed = self.found.get(hit.id)
        return 0 if listed is None else listed.n_completed


def sweep(client: MTurkClient, known: Sequence[StoredHit], listed: Mapping[str, ListedHit]) -> HitsOut:
    """Hold our HITs against the listing; a posted one that is missing there is asked for by its id.

    Args:
        known: all HITs of the environment.
        listed: what ListHITs gave, by the server's ids.

    Raises:
        EndpointError: the server knows none of the HITs: another account, or another server.
    """
    missing = look_up_missing(client, known, listed)
    sent = (HitState.POSTED, HitState.CLOSED)
    names = {hit.id: hit.mturk_hit_id or "" for hit in known if hit.state in sent}
    hits = {id_: listed[name] for id_, name in names.items() if name in listed}
    hits.update({hit.id: listed_hit for hit, listed_hit in missing.items() if listed_hit is not None})
    deleted = [
        hit for hit, listed_hit in missing.items() if listed_hit is None or listed_hit.status == DISPOSED
    ]
    return HitsOut(hits, tuple(deleted))


WINDOW = 64
"""HITs whose submissions are stored in one transaction, and parsed in the next."""
_AHEAD = 2
"""Windows that are fetched while an earlier one is stored."""
_LOOKS = 3
"""Times that a HIT is listed where the listing holds fewer submissions than the server counts."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """What came with one sweep."""

    new: int
    """Submissions that were not stored before."""
    settled: int
    """Stored submissions that were approved or rejected on the server by another hand, or by themselves."""
    recovered: int
    """Stored submissions that a call of ours had approved, whose booking was lost."""
    lost: tuple[StoredHit, ...]
    """Deleted HITs whose submissions the server no longer gives."""
    rejected: tuple[int, ...] = ()
    """Rows of the settled submissions that were rejected."""
    failure: CrowdError | None = None
    """Why a HIT could not be listed, the first of them; it holds up no other."""


class Fetcher:
    """Brings the stored submissions of one environment up to date."""

    def __init__(self, context: Context, endpoint: Endpoint, client: MTurkClient) -> None:
        self._context, self._client = context, client
        self._session, self._environment = session, environment = context.session, context.environment
        # A server in this process gains nothing by threads.
        self._charges_fee, self._threads = endpoint.charges_fee, 1 if endpoint.in_process else THREADS
        self._batches = {batch.id: batch for batch in hit_store.batches(session, environment)}
        self._parser = Parser(context)
        self._failure: CrowdError | None = None

    def fetch(self, swept: HitsOut, hits: Sequence[StoredHit]) -> Fetched:
        """Store and parse what is new on those of these HITs that were posted from here; another harvest may do the
        same meanwhile."""
        stored = submission_store.stored_counts(self._session, self._environment)
        self._session.rollback()
        changed = [
            hit
            for hit in hits
            if self._batches[hit.batch_id].source is JudgementSource.CROWD
            and _has_changed(swept, hit, *stored.get(hit.id, (0, 0)))
        ]
        if not changed:
            return Fetched(0, 0, 0, ())
        counts: Counter[str] = Counter()
        lost: list[StoredHit] = []
        rejected: list[int] = []
        # Closing the windows waits for the calls in flight and starts no further one, whatever happens here.
        progress = self._context.progress("harvest", len(changed))
        with quick_turns(), progress as advance, closing(self._windows(changed, swept)) as windows:
            for window in windows:
                lost += [hit for hit, submissions in window if submissions is None]
                tally, turned_down = self._store(
                    [submission for _, submissions in window for submission in submissions or ()]
                )
                counts += tally
                rejected += turned_down
                advance(len(window))
        return Fetched(
            counts["new"],
            counts["settled"],
            counts["recovered"],
            tuple(lost),
            tuple(rejected),
            self._failure,
        )

    def _windows(self, hits: Sequence[StoredHit], swept: HitsOut) -> Generator[list[_Listed]]:
        """The HITs with what the server lists of them, window by window; the next ones are fetched meanwhile."""
        windows = iter(chunks(hits, WINDOW))
        with ThreadPoolExecutor(self._threads, thread_name_prefix="harvest") as pool:
            ahead: deque[list[Future[_Listed]]] = deque()

            def start(count: int) -> None:
                for window in islice(windows, count):
                    ahead.append([pool.submit(self._listed, hit, swept) for hit in window])

            try:
                start(_AHEAD)
                while ahead and (window := self._ready(ahead.popleft())):
                    yield window
                    start(1)
            finally:
                for future in (future for window in ahead for future in window):
                    future.cancel()

    def _ready(self, window: Sequence[Future[_Listed]]) -> list[_Listed]:
        """What a window brought; nothing where each of its calls failed, which ends the fetching."""
        done: list[_Listed] = []
        for future in window:
            try:
                done.append(future.result())
            except CrowdError as error:
                self._failure = self._failure or error
        return done

    def _listed(self, hit: StoredHit, swept: HitsOut) -> _Listed:
        """A HIT's submissions, each once; None where the HIT was deleted and the server gives none."""
        assignments: dict[tuple[str, str], ListedAssignment] = {}
        try:
            for _ in range(_LOOKS):
                for assignment in self._client.list_assignments(str(hit.mturk_hit_id)):
                    assignments[assignment.assignment_id, assignment.worker_id] = assignment
                if len(assignments) >= swept.n_submitted(hit):
                    break
        except CrowdError as error:
            if hit not in swept.deleted or not is_code(error, "HITDoesNotExist", "InvalidHITState"):
                raise
            return hit, None
        return hit, [(hit, assignment) for assignment in assignments.values()]

    def _store(self, listed: Sequence[tuple[StoredHit, ListedAssignment]]) -> tuple[Counter[str], list[int]]:
        """Keep what is new, raw and committed first.

        Returns:
            How many are new, settled and recovered; the rows of those that another hand rejected.
        """
        if not listed:
            return Counter(), []
        submissions = [
            NewSubmission(
                hit_id=hit.id,
                worker=assignment.worker_id,
                mturk_assignment_id=assignment.assignment_id,
                accepted_at=assignment.accepted_at,
                submitted_at=assignment.submitted_at,
                status=assignment.status,
                raw_xml=assignment.answer_xml,
            )
            for hit, assignment in listed
        ]
        batches = {hit.id: self._batches[hit.batch_id] for hit, _ in listed}
        added, decided = keep_submissions(
            self._context, submissions, batches, charges_fee=lambda batch: self._charges_fee
        )
        self._session.commit()
        self._parser.parse(
            [RawSubmission(id_, submission.hit_id, submission.raw_xml) for id_, submission in added.items()]
        )
        counts = Counter(
            new=len(added),
            settled=sum(not ours for *_, ours in decided),
            recovered=sum(ours and submission.status == APPROVED for _, submission, ours in decided),
        )
        return counts, [
            id_ for id_, submission, ours in decided if not ours and submission.status == REJECTED
        ]


def keep_submissions(
    context: Context,
    submissions: Sequence[NewSubmission],
    batches: Mapping[int, BatchRow],
    *,
    charges_fee: Callable[[BatchRow], bool],
) -> tuple[dict[int, NewSubmission], list[tuple[int, NewSubmission, bool]]]:
    """Keep the submissions that are new, raw, and book what the server has decided.

    Args:
        batches: of their HITs, by the HITs' rows.

    Returns:
        The new ones by their rows; and those that the server has decided about since they were stored, each behind
        its row and with whether a call of ours did it, whose booking was lost.
    """
    session = context.session

    def pay(id_: int, one: NewSubmission) -> None:
        batch = batches[one.hit_id]
        journal.add_ledger(session, payment(session, id_, one.key, batch, charges_fee=charges_fee(batch)))

    stored = submission_store.stored_submissions(session, list(batches))
    added = submission_store.add_submissions(session, context.environment, submissions)
    for id_, new in added.items():
        if new.status == APPROVED:  # by itself, because nobody harvested in time
            pay(id_, new)
    decided = []
    for now in submissions:
        before = stored.get(now.key)
        if before is None or before.status != SUBMITTED or now.status == SUBMITTED:
            continue
        answer_store.set_status(session, [before.id], now.status)
        kind = REJECT if now.status == REJECTED else APPROVE
        call = journal.find(session, kind, now.key)
        decided.append((before.id, now, call is not None and call.first_sent_at is not None))
        journal.mark(session, kind, [now.key], JournalState.DONE, context.now())
        if now.status == REJECTED:
            answer_store.set_decision(session, [before.id], Decision.REJECT)
        if now.status == APPROVED:
            pay(before.id, now)
            if before.decision is Decision.REJECT:
                note_too_late(session, [before.id])
    return added, decided


_Listed = tuple[StoredHit, list[tuple[StoredHit, ListedAssignment]] | None]


def _has_changed(swept: HitsOut, hit: StoredHit, stored: int, settled: int) -> bool:
    return swept.n_submitted(hit) > stored or swept.n_settled(hit) > settled

"""Whether the ledger says what the server says: rewards of approved work and bonuses, submission by submission."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Annotated, TypedDict

from mitl.core.pricing import format_dollars
from mitl.crowd.calls import THREADS
from mitl.crowd.client import ListedBonus, MTurkClient
from mitl.crowd.context import Context, named, open_context
from mitl.crowd.endpoint import open_same_endpoint
from mitl.crowd.listings import is_code
from mitl.crowd.paying import APPROVED
from mitl.db.locks import PAY, only_one
from mitl.db.session import reading
from mitl.db.store import hits as hit_store
from mitl.db.store import journal, ledger
from mitl.db.store.answers import submission_key
from mitl.db.store.ledger import BONUS, SettledWork
from mitl.errors import CrowdError
from mitl.progress import Progress, no_progress
from mitl.records import Environment, StageResult, Table, Verdict, several
from mitl.records.results import EnvironmentCounts, printed_by
from mitl.settings import Settings
from mitl.stages.paying.bonuses import book
from mitl.stages.paying.top_up import key_of_reference

_SHOWN = 20


class Difference(TypedDict):
    """One thing that the ledger and the server do not agree on, about a submission by its key."""

    submission: str
    here: str
    there: str


@printed_by("pay check")
class CheckCounts(EnvironmentCounts):
    """What a comparison with the server counts."""

    hits: Annotated[int, "HITs compared"]
    submissions: Annotated[int, "submissions stored here"]
    rewards_cents: Annotated[int, "rewards booked here"]
    bonuses_cents: Annotated[int, "bonuses booked here"]
    adopted: Annotated[int, "bonuses that only the server knew and that are booked now (`--adopt`)"]
    unchecked: Annotated[int, "submissions on HITs that the server no longer has"]
    differences: Annotated[list[Difference], "each difference: submission, here, there"]


@dataclass(frozen=True, slots=True)
class OnServer:
    """What the server says of one HIT."""

    hit_id: str
    statuses: dict[str, str]
    """Submission's key → Submitted, Approved or Rejected."""
    bonuses: tuple[ListedBonus, ...]
    gone: bool = False


def check_pay(
    settings: Settings,
    environment: Environment | None = None,
    *,
    adopt: bool = False,
    progress: Progress = no_progress,
) -> Verdict:
    """Hold the ledger against the assignments and bonuses that the server lists.

    Args:
        adopt: book the bonuses that only the server knows, such as those sent by hand or before a backup was
            restored, so that later top-ups count them.

    Raises:
        EndpointError: no server answers.
        StoreError: another `mitl pay` is at work, with ``adopt``.
    """
    with (
        open_context(settings, environment, progress=progress) as context,
        only_one(settings.db_url, PAY) if adopt else nullcontext(),
    ):
        with open_same_endpoint(context) as endpoint:
            with reading(context.session):
                books = _Books.of(context)
            on_server = _listed(endpoint.client(), tuple(books.rewards), progress)
        adopted: list[ListedBonus] = []
        if adopt:
            adopted = _adopt(context, books, on_server, charges_fee=endpoint.charges_fee)
            with reading(context.session):
                books = _Books.of(context)
    return _verdict(books, on_server, adopted)


@dataclass(frozen=True, slots=True)
class _Books:
    """What this project has booked."""

    environment: Environment
    settled: dict[str, SettledWork]
    """By the submission's key."""
    rewards: dict[str, int]
    """HIT that was posted from here, by its id on the server → cents of one assignment."""
    bonuses: dict[int, list[int]]
    here: str
    """What a command needs to mean this environment; see `named`."""

    @classmethod
    def of(cls, context: Context) -> _Books:
        """All of an environment."""
        session, environment = context.session, context.environment
        rewards = {batch.id: batch.reward_cents for batch in hit_store.posted_batches(session)}
        return cls(
            environment=environment,
            settled={row.key: row for row in ledger.settled_work(session, environment)},
            rewards={
                hit.mturk_hit_id: rewards[hit.batch_id]
                for hit in hit_store.hits(session, environment)
                if hit.mturk_hit_id is not None and hit.batch_id in rewards
            },
            bonuses=ledger.bonuses(session, environment),
            here=named(session, environment),
        )


def _listed(client: MTurkClient, hit_ids: Sequence[str], progress: Progress) -> list[OnServer]:
    with (
        progress("compare", len(hit_ids)) as advance,
        ThreadPoolExecutor(THREADS, thread_name_prefix="compare") as pool,
    ):
        listed = []
        for hit in pool.map(lambda hit_id: _of_hit(client, hit_id), hit_ids):
            listed.append(hit)
            advance(1)
    return listed


def _of_hit(client: MTurkClient, hit_id: str) -> OnServer:
    try:
        statuses = {
            submission_key(assignment.assignment_id, assignment.worker_id): assignment.status
            for assignment in client.list_assignments(hit_id)
        }
        return OnServer(hit_id, statuses, tuple(client.list_bonuses(hit_id=hit_id)))
    except CrowdError as error:
        if is_code(error, "HITDoesNotExist"):
            return OnServer(hit_id, {}, (), gone=True)
        raise


def _differences(known: _Books, there: Sequence[OnServer]) -> list[Difference]:
    differences: list[Difference] = []
    keys_of: dict[str, list[str]] = defaultdict(list)
    for key, row in known.settled.items():
        keys_of[row.mturk_hit_id].append(key)
    for hit in there:
        if hit.gone:
            continue
        reward = known.rewards[hit.hit_id]
        differences += _reward_differences(known, hit, reward, keys_of[hit.hit_id])
        differences += _bonus_differences(known, hit, keys_of[hit.hit_id])
    return differences


def _reward_differences(
    known: _Books, hit: OnServer, reward: int, own: Iterable[str]
) -> Iterable[Difference]:
    for key in sorted({*hit.statuses, *own}):
        booked = known.settled[key].reward_cents if key in known.settled else None
        status = hit.statuses.get(key)
        paid = reward if status == APPROVED else 0
        if (booked or 0) != paid or status is None:
            here = "not fetched" if booked is None else f"reward {format_dollars(booked)}"
            listed = "not listed" if status is None else f"{status}, {format_dollars(paid)}"
            yield {"submission": key, "here": here, "there": listed}


def _bonus_differences(known: _Books, hit: OnServer, own: Iterable[str]) -> Iterable[Difference]:
    granted: dict[str, Counter[int]] = {key: Counter() for key in own}
    for bonus in hit.bonuses:
        key = submission_key(bonus.assignment_id, bonus.worker_id)
        granted.setdefault(key, Counter())[bonus.cents] += 1
    for key, on_server in sorted(granted.items()):
        row = known.settled.get(key)
        here = Counter(known.bonuses.get(row.id, ()) if row is not None else ())
        if here != on_server:
            yield {
                "submission": key,
                "here": _bonus_words(here - on_server),
                "there": _bonus_words(on_server - here),
            }


def _bonus_words(only: Counter[int]) -> str:
    amounts = ", ".join(format_dollars(cents) for cents in sorted(only.elements()))
    return f"bonus {amounts}" if amounts else "no such bonus"


def _adopt(
    context: Context, known: _Books, there: Sequence[OnServer], *, charges_fee: bool
) -> list[ListedBonus]:
    """Book the bonuses that only the server knows, all or none; those that were sent from here under their own keys."""
    session, now = context.session, context.now()
    adopted = []
    booked = {key: Counter(known.bonuses.get(row.id, ())) for key, row in known.settled.items()}
    for hit in there:
        for place, bonus in enumerate(sorted(hit.bonuses, key=lambda one: one.granted_at)):
            name = submission_key(bonus.assignment_id, bonus.worker_id)
            if name not in known.settled:
                continue  # its submission comes with the next harvest
            if booked[name][bonus.cents]:
                booked[name][bonus.cents] -= 1
                continue
            row = known.settled[name]
            key = key_of_reference(context.settings.project_id, known.environment, bonus)
            if key is None or journal.done_keys(session, BONUS, [key]):
                key = f"found:{name}:{bonus.granted_at:%Y%m%dT%H%M%S.%f}:{place}"
            request = json.dumps({"environment": known.environment.value, "worker": bonus.worker_id})
            journal.plan(session, BONUS, [(key, None, request)], now)
            journal.mark_done(session, BONUS, {key: json.dumps(bonus.cents)}, now)
            book(session, row.id, key, bonus.cents, charges_fee=charges_fee)
            adopted.append(bonus)
    session.commit()
    return adopted


def _verdict(known: _Books, there: Sequence[OnServer], adopted: Sequence[ListedBonus]) -> Verdict:
    differences = _differences(known, there)
    gone = {hit.hit_id for hit in there if hit.gone}
    lost = sum(row.mturk_hit_id in gone for row in known.settled.values())
    rewards = sum(row.reward_cents for row in known.settled.values())
    bonuses = sum(map(sum, known.bonuses.values()))
    counts: CheckCounts = {
        "environment": known.environment.value,
        "hits": len(there),
        "submissions": len(known.settled),
        "rewards_cents": rewards,
        "bonuses_cents": bonuses,
        "adopted": len(adopted),
        "unchecked": lost,
        "differences": differences,
    }
    warning = f"{lost:,} submissions are on HITs that the server no longer has, and cannot be compared"
    shown = tuple(
        (difference["submission"], difference["here"], difference["there"])
        for difference in differences[:_SHOWN]
    )
    more = f", the first {_SHOWN}" if len(differences) > _SHOWN else ""
    title = f"differences: {len(differences):,}{more}"
    lines = [
        f"{several(len(known.settled), 'submission')} on {several(len(there), 'HIT')} compared: rewards "
        f"{format_dollars(rewards)}, "
        f"bonuses {format_dollars(bonuses)}"
    ]
    if adopted:
        cents = sum(bonus.cents for bonus in adopted)
        lines.append(
            f"{len(adopted):,} bonuses of {format_dollars(cents)} were booked that only the server knew"
        )
    result = StageResult(
        counts=counts,
        warnings=(warning,) if lost else (),
        tables=(Table(title, ("submission", "here", "on the server"), shown),) if shown else (),
        lines=(*lines, *(() if differences else ("the ledger and the server agree",))),
    )
    if not differences:
        return Verdict(result)
    first = differences[0]
    return Verdict(
        result,
        f"the ledger and the server differ on {several(len(differences), 'submission')}, first {first['submission']}: "
        f"here {first['here']}, there {first['there']}; run `mitl harvest{known.here}` for work that was "
        f"decided meanwhile, `mitl review reverse{known.here}` for rejected work that was approved elsewhere, and "
        f"`mitl pay check --adopt{known.here}` for bonuses that were sent from elsewhere",
    )

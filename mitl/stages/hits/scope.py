"""Which posted HITs a command speaks of, beside what the server says of them now; and their listing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, TypedDict

from sqlalchemy.orm import Session

from mitl.campaign.posting import Sweep, sweep_server
from mitl.core.pricing import format_dollars
from mitl.crowd.client import ListedHit, MTurkClient
from mitl.crowd.context import Context
from mitl.crowd.endpoint import open_same_endpoint
from mitl.db.locks import PUBLISH, only_one
from mitl.db.session import open_database
from mitl.db.store import answers as answer_store
from mitl.db.store import commitments, journal
from mitl.db.store import hits as hit_store
from mitl.db.store.hits import UNPOSTED, BatchRow, StoredHit
from mitl.errors import StoreError, UsageError
from mitl.progress import Progress
from mitl.records import Environment, HitState, JournalState, StageResult, Table
from mitl.records.results import printed_by
from mitl.settings import Settings

_BATCHES = {
    "batch": "batch",
    "environment": "on",
    "direction": "asks",
    "template": "template",
    "reward": "reward",
    "workers_wanted": "wanted",
    "submitted": "submitted",
    "hits": "HITs",
    "planned": "planned",
    "posted": "out",
    "closed": "closed",
}
_HITS = {
    "hit": "HIT",
    "state": "state",
    "workers_wanted": "wanted",
    "submitted": "submitted",
    "mturk_hit_id": "id on the server",
}


@printed_by("hits list")
class ListCounts(TypedDict):
    """What a listing counts."""

    hits: Annotated[int, "HITs that were posted or are planned, those that another replaces left out"]
    rows: Annotated[list[dict[str, object]], "a row for each batch, or with BATCH for each of its HITs"]


@dataclass(frozen=True, slots=True)
class Scope:
    """The HITs that a command may change, with an open database and client."""

    context: Context
    client: MTurkClient
    charges_fee: bool
    batches: tuple[BatchRow, ...]
    hits: tuple[StoredHit, ...]
    """Of these batches, by number and attempt."""
    listed: dict[str, ListedHit]
    """What the server lists, by its id."""
    sweep: Sweep

    def out(self) -> list[tuple[StoredHit, ListedHit]]:
        """The HITs that the server lists, each with what it says."""
        return [(hit, self.listed[hit.mturk_hit_id]) for hit in self.hits if hit.mturk_hit_id in self.listed]

    @property
    def planned(self) -> int:
        """HITs that are not posted yet."""
        return sum(hit.state in UNPOSTED for hit in self.hits)


@contextmanager
def open_scope(
    settings: Settings,
    names: Sequence[str],
    environment: Environment | None,
    progress: Progress,
    *,
    latest: bool = False,
) -> Iterator[Scope]:
    """The posted HITs of these batches, or of all batches of an environment where none is named.

    Args:
        latest: leave out those that another has replaced.

    Raises:
        UsageError: there is no such batch, or it is of the other environment, or no environment is named and both
            hold batches.
        StoreError: a publish, or another command that changes HITs, is at work.
    """
    with open_database(settings.db_url) as session, only_one(settings.db_url, PUBLISH):
        batches = choose_batches(session, names, environment)
        context = Context(session, settings, batches[0].environment, progress)
        session.rollback()
        with open_same_endpoint(context) as endpoint:
            client = endpoint.client()
            listed = list(client.list_hits())
            # HITs whose posting was cut short are on the server too, and belong to their batch.
            sweep = sweep_server(context, client, listed)
            ids = {batch.id for batch in batches}
            hits = (hit_store.latest_hits if latest else hit_store.hits)(session, context.environment)
            session.rollback()
            yield Scope(
                context=context,
                client=client,
                charges_fee=endpoint.charges_fee,
                batches=tuple(batches),
                hits=tuple(hit for hit in hits if hit.batch_id in ids),
                listed={hit.hit_id: hit for hit in listed},
                sweep=sweep,
            )


def choose_batches(session: Session, names: Sequence[str], environment: Environment | None) -> list[BatchRow]:
    """The batches of these names, or all of one environment; at least one."""
    batches = hit_store.posted_batches(session)
    if not batches:
        raise StoreError("no batch was posted yet; `mitl status` says what comes first")
    if names:
        by_name = {batch.name: batch for batch in batches}
        unknown = [name for name in names if name not in by_name]
        if unknown:
            raise UsageError(f"there is no batch {unknown[0]!r} that was posted; known: {', '.join(by_name)}")
        batches = [by_name[name] for name in dict.fromkeys(names)]
    if environment is not None:
        foreign = [batch for batch in batches if batch.environment is not environment]
        batches = [batch for batch in batches if batch.environment is environment]
        if names and foreign:
            raise UsageError(f"batch {foreign[0].name} is on {foreign[0].environment}, not on {environment}")
        if not batches:
            raise StoreError(f"no batch was posted on {environment} yet")
    if len({batch.environment for batch in batches}) > 1:
        raise UsageError("these batches are on sandbox and on live; say which: --sandbox or --live")
    return batches


def list_hits(
    settings: Settings, batch: str | None = None, environment: Environment | None = None
) -> StageResult:
    """One row for each batch that was posted from here, or for each HIT of one batch; no server is asked.

    Raises:
        UsageError: there is no such batch.
    """
    with open_database(settings.db_url, read_only=True) as session:
        chosen = None if batch is None else choose_batches(session, [batch], environment)
        batches = hit_store.posted_batches(session) if chosen is None else chosen
        hits: dict[int, list[StoredHit]] = {
            row.id: [] for row in batches if environment in (None, row.environment)
        }
        stored: Counter[int] = Counter()
        # Batches with an extension that was confirmed and can still be carried out; and the HITs that can take time.
        cut, out = set[str](), set[str]()
        for of in {row.environment for row in batches if row.id in hits}:
            stored.update(answer_store.stored_counts(session, of))
            extended = commitments.open_extensions(session, of)
            for hit in hit_store.latest_hits(session, of):
                if hit in extended:
                    cut.add(hit.batch)
                if hit.batch_id in hits:
                    hits[hit.batch_id].append(hit)
                    if hit.state is HitState.POSTED:
                        out.add(hit.key)
        states = journal.states(session, commitments.EXTEND)
    n_hits = sum(map(len, hits.values()))
    counts: ListCounts = {"hits": n_hits, "rows": []}
    if not n_hits:
        lines = ("nothing to show: no batch was posted yet",)
        return StageResult(status="nothing_to_do", counts=counts, lines=lines)
    if batch is None:
        title, columns = "batches", _BATCHES
        counts["rows"] = [_batch_row(row, hits[row.id], stored) for row in batches if row.id in hits]
    else:
        title, columns = f"HITs of batch {batch}", _HITS
        counts["rows"] = [_hit_row(hit, stored) for of_batch in hits.values() for hit in of_batch]
    shown = [
        {**row, "reward": format_dollars(int(str(row.get("reward_cents", 0))))} for row in counts["rows"]
    ]
    unset = {
        key.partition(f":{commitments.UNTIL}:")[0] for key in states if states[key] is not JournalState.DONE
    }
    cut.update(key.partition(":")[0] for key in unset & out)
    return StageResult(
        counts=counts,
        warnings=tuple(
            f"an extension of batch {name} was cut short; run the same `mitl hits extend {name}` again"
            for name in sorted(cut)
        ),
        tables=(
            Table(title, tuple(columns.values()), tuple(tuple(row[key] for key in columns) for row in shown)),
        ),
        next="" if batch else "mitl hits list BATCH, which shows its HITs",
    )


def _hit_row(hit: StoredHit, stored: Counter[int]) -> dict[str, object]:
    return {
        "hit": hit.key,
        "batch": hit.batch,
        "state": hit.state.value,
        "workers_wanted": hit.assignments,
        "submitted": stored[hit.id],
        "mturk_hit_id": hit.mturk_hit_id,
    }


def _batch_row(batch: BatchRow, hits: Sequence[StoredHit], stored: Counter[int]) -> dict[str, object]:
    states = Counter(hit.state for hit in hits)
    return {
        "batch": batch.name,
        "environment": batch.environment.value,
        "direction": batch.direction,
        "template": batch.template,
        "reward_cents": batch.reward_cents,
        "workers_wanted": sum(hit.assignments for hit in hits),
        "submitted": sum(stored[hit.id] for hit in hits),
        "hits": len(hits),
        "planned": sum(states[state] for state in UNPOSTED),
        "posted": states[HitState.POSTED],
        "closed": states[HitState.CLOSED],
    }

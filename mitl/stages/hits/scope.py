"""Which posted HITs a command speaks of, beside what the server says of them now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mitl.campaign.reconciling import Sweep, sweep_server
from mitl.crowd.client import ListedHit, MTurkClient
from mitl.crowd.endpoint import open_endpoint
from mitl.crowd.environment import require_same_server
from mitl.db.locks import PUBLISH, only_one
from mitl.db.session import open_database
from mitl.db.store import hit_changes
from mitl.db.store.hits import BatchRow, HitRow
from mitl.errors import StoreError, UsageError
from mitl.records import Environment, HitState
from mitl.settings import Settings


@dataclass(frozen=True, slots=True)
class Scope:
    """The HITs that a command may change, with an open session and client."""

    session: Session
    project_id: str
    client: MTurkClient
    environment: Environment
    charges_fee: bool
    batches: tuple[BatchRow, ...]
    hits: tuple[HitRow, ...]
    """Of these batches, by number; those that another has replaced are left out."""
    listed: dict[str, ListedHit]
    """What the server lists, by its id."""
    sweep: Sweep

    def out(self) -> list[tuple[HitRow, ListedHit]]:
        """The HITs that the server lists, each with what it says."""
        return [(hit, self.listed[hit.mturk_hit_id]) for hit in self.hits if hit.mturk_hit_id in self.listed]

    @property
    def planned(self) -> int:
        """HITs that are not posted yet."""
        return sum(hit.state is HitState.PLANNED or hit.state is HitState.SENDING for hit in self.hits)


@contextmanager
def open_scope(
    settings: Settings, names: Sequence[str], environment: Environment | None = None
) -> Iterator[Scope]:
    """The posted HITs of these batches, or of all batches of an environment where none is named.

    Raises:
        UsageError: there is no such batch, or it is of the other environment, or no environment is named and both
            hold batches.
        StoreError: a publish, or another command that changes HITs, is at work.
    """
    with open_database(settings.db_url) as session, only_one(settings.db_url, PUBLISH):
        batches = choose_batches(session, names, environment)
        chosen = batches[0].environment
        session.rollback()
        with open_endpoint(settings, chosen) as endpoint:
            client = endpoint.client()
            require_same_server(session, endpoint, chosen)
            session.rollback()
            listed = list(client.list_hits())
            # HITs whose posting was cut short are on the server too, and belong to their batch.
            sweep = sweep_server(session, client, settings.project_id, chosen, listed)
            ids = {batch.id for batch in batches}
            hits = tuple(hit for hit in hit_changes.latest_hits(session, chosen) if hit.batch_id in ids)
            session.rollback()
            yield Scope(
                session=session,
                project_id=settings.project_id,
                client=client,
                environment=chosen,
                charges_fee=endpoint.charges_fee,
                batches=tuple(batches),
                hits=hits,
                listed={hit.hit_id: hit for hit in listed},
                sweep=sweep,
            )


def choose_batches(session: Session, names: Sequence[str], environment: Environment | None) -> list[BatchRow]:
    """The batches of these names, or all of one environment; at least one."""
    found = hit_changes.posted_batches(session)
    if not found:
        raise StoreError("no batch was posted yet; run `mitl publish` first")
    if names:
        by_name = {batch.name: batch for batch in found}
        unknown = [name for name in names if name not in by_name]
        if unknown:
            raise UsageError(f"there is no batch {unknown[0]!r} that was posted; known: {', '.join(by_name)}")
        found = [by_name[name] for name in dict.fromkeys(names)]
    if environment is not None:
        foreign = [batch for batch in found if batch.environment is not environment]
        found = [batch for batch in found if batch.environment is environment]
        if names and foreign:
            raise UsageError(f"batch {foreign[0].name} is on {foreign[0].environment}, not on {environment}")
        if not found:
            raise StoreError(f"no batch was posted on {environment} yet")
    if len({batch.environment for batch in found}) > 1:
        raise UsageError("these batches are on sandbox and on live; say which: --sandbox or --live")
    return found

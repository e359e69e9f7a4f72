"""What a step works with, and which environment it speaks of; sandbox and live are never mixed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mitl.core.clock import Clock, utc_now
from mitl.db.session import open_database, reading
from mitl.db.store import hits as hit_store
from mitl.progress import Progress, no_progress
from mitl.records import Environment
from mitl.settings import Settings


@dataclass(frozen=True, slots=True)
class Context:
    """The project, its open database, whose money it is about, the time, and who is told how far the work is."""

    session: Session
    settings: Settings
    environment: Environment
    progress: Progress = no_progress
    now: Clock = utc_now


@contextmanager
def open_context(
    settings: Settings,
    environment: Environment | None = None,
    *,
    read_only: bool = False,
    unposted: Environment = Environment.SANDBOX,
    progress: Progress = no_progress,
) -> Iterator[Context]:
    """The project's database opened for one step, in the environment asked for or chosen as `choose_environment` does.

    No transaction is open when the block begins.

    Raises:
        StoreError: as `mitl.db.session.open_database`.
    """
    with open_database(settings.db_url, read_only=read_only) as session:
        with reading(session):
            chosen = choose_environment(session, environment, unposted=unposted)
        yield Context(session, settings, chosen, progress)


def choose_environment(
    session: Session, wanted: Environment | None, *, unposted: Environment = Environment.SANDBOX
) -> Environment:
    """The one asked for; else the only one that holds batches; live if both do.

    Args:
        unposted: where nothing is posted yet. A new project practises first; past work and releases of others' ratings
            were never practice.
    """
    if wanted is not None:
        return wanted
    present = hit_store.environments(session)
    if not present:
        return unposted
    return present[0] if len(present) == 1 else Environment.LIVE


def named(session: Session, environment: Environment) -> str:
    """What a command that follows needs to mean this environment: `` --sandbox``, or nothing where it does anyway."""
    return "" if choose_environment(session, None) is environment else f" --{environment}"

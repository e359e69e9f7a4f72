"""Which environment a command speaks of; sandbox and live are never mixed."""

from __future__ import annotations

from sqlalchemy.orm import Session

from mitl.db.store import hits as hit_store
from mitl.records import Environment


def choose_environment(session: Session, wanted: Environment | None) -> Environment:
    """The one asked for; else the only one that holds batches; else live."""
    if wanted is not None:
        return wanted
    present = hit_store.environments(session)
    return present[0] if len(present) == 1 else Environment.LIVE

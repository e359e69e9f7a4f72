"""Which environment a command speaks of; sandbox and live are never mixed."""

from __future__ import annotations

from sqlalchemy.orm import Session

from mitl.crowd.endpoint import Endpoint
from mitl.db.store import hits as hit_store
from mitl.errors import EndpointError
from mitl.records import Environment


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


def require_same_server(session: Session, endpoint: Endpoint, environment: Environment) -> None:
    """A project's batches of one environment stay on one server, or their answers could not be found."""
    for batch in hit_store.batches(session, environment):
        if batch.server_id is not None and endpoint.server_id not in (None, batch.server_id):
            raise EndpointError(
                f"batch {batch.name} was posted to server {batch.server_id}, but {endpoint.url} is "
                f"{endpoint.server_id}; use the same --crowd-db or --endpoint-url as before"
            )

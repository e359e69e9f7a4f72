"""Comparing the server's HITs with the stored ones, without posting any."""

from __future__ import annotations

from mitl.campaign.kinds import kinds_asked
from mitl.campaign.posting import sweep_server
from mitl.crowd.context import Context, open_context
from mitl.crowd.endpoint import open_same_endpoint
from mitl.db.locks import PUBLISH, only_one
from mitl.db.store import hits as hit_store
from mitl.db.store.hits import UNPOSTED
from mitl.db.store.rounds import pairs_command
from mitl.progress import Progress, no_progress
from mitl.records import BatchKind, Environment, StageResult, several
from mitl.settings import Settings


def reconcile(settings: Settings, environment: Environment, progress: Progress = no_progress) -> StageResult:
    """Compare the server's HITs with the stored ones and post nothing.

    Raises:
        StoreError: a publish is at work on the same database.
    """
    with (
        open_context(settings, environment, progress=progress) as context,
        only_one(settings.db_url, PUBLISH),
        open_same_endpoint(context) as endpoint,
    ):
        with progress("reconcile", 1) as advance:
            sweep = sweep_server(context, endpoint.client())
            advance(1)
        unposted = _unposted(context)
    nothing = not (sweep.adopted or sweep.gone or sweep.orphans or sweep.unfetched)
    return StageResult(
        status="nothing_to_do" if nothing else "done",
        counts={
            "environment": environment.value,
            "hits_adopted": sweep.adopted,
            "hits_gone": len(sweep.gone) + len(sweep.unfetched),
            "hits_orphaned": len(sweep.orphans),
            "hits_unposted": sum(unposted.values()),
        },
        warnings=sweep.warnings,
        lines=(
            "nothing to do: the server has every HIT that is posted here, and no other of this project"
            if nothing
            else f"{sweep.adopted:,} HITs were adopted, {len(sweep.gone):,} closed because the server deleted them; "
            f"{len(sweep.orphans):,} of this project are not known here",
        ),
        next="; ".join(
            f"{command} --{environment}, which posts the {several(n, 'HIT')} that it planned"
            for command, n in unposted.items()
        )
        or "mitl harvest",
    )


def _unposted(context: Context) -> dict[str, int]:
    """The command that posts them → HITs that are planned and not posted."""
    session, environment = context.session, context.environment
    return {
        pairs_command(session, environment) if kind.name == BatchKind.PAIRS else kind.command: n
        for kind in kinds_asked(session, environment)
        if (n := len(hit_store.hits(session, environment, UNPOSTED, kind.name)))
    }

"""The posted batches and their HITs, as this database knows them; no server is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy.orm import Session

from mitl.core.pricing import format_dollars
from mitl.db.session import open_database
from mitl.db.store import answers as answer_store
from mitl.db.store import hit_changes, journal
from mitl.db.store.hits import BatchRow, HitRow
from mitl.records import Environment, HitState, JournalState, StageResult, Table
from mitl.settings import Settings
from mitl.stages.hits.extend import EXTEND
from mitl.stages.hits.scope import choose_batches

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


def list_hits(
    settings: Settings, batch: str | None = None, environment: Environment | None = None
) -> StageResult:
    """One row for each batch that was posted from here, or for each HIT of one batch.

    Raises:
        UsageError: there is no such batch.
    """
    with open_database(settings.db_url, read_only=True) as session:
        batches = hit_changes.posted_batches(session)
        if batch is not None:
            batches = choose_batches(session, [batch], environment)
        chosen = [one for one in batches if environment in (None, one.environment)]
        rows = [row for one in chosen for row in _hit_rows(session, one)]
        warnings = _cut_short(session)
    if not rows:
        return StageResult(
            status="nothing_to_do",
            counts={"hits": 0, "rows": []},
            lines=("nothing to show: no batch was posted yet",),
        )
    if batch is None:
        rows = [_sum(one, [row for row in rows if row["batch"] == one.name]) for one in chosen]
    return StageResult(
        counts={"hits": sum(int(str(row.get("hits", 1))) for row in rows), "rows": rows},
        warnings=warnings,
        tables=(_table(batch, rows),),
        next="" if batch else "mitl hits list BATCH, which shows its HITs",
    )


def _hit_rows(session: Session, batch: BatchRow) -> list[dict[str, object]]:
    stored = answer_store.stored_counts(session, batch.environment)
    return [
        _hit_row(hit, stored.get(hit.id, 0))
        for hit in hit_changes.latest_hits(session, batch.environment)
        if hit.batch_id == batch.id
    ]


def _hit_row(hit: HitRow, submitted: int) -> dict[str, object]:
    return {
        "hit": hit.key,
        "batch": hit.batch,
        "state": hit.state.value,
        "workers_wanted": hit.assignments,
        "submitted": submitted,
        "mturk_hit_id": hit.mturk_hit_id,
    }


def _sum(batch: BatchRow, rows: Sequence[Mapping[str, object]]) -> dict[str, object]:
    states = [row["state"] for row in rows]
    return {
        "batch": batch.name,
        "environment": batch.environment.value,
        "direction": batch.direction,
        "template": batch.template,
        "reward_cents": batch.reward_cents,
        "workers_wanted": sum(int(str(row["workers_wanted"])) for row in rows),
        "submitted": sum(int(str(row["submitted"])) for row in rows),
        "hits": len(rows),
        "planned": states.count(HitState.PLANNED.value) + states.count(HitState.SENDING.value),
        "posted": states.count(HitState.POSTED.value),
        "closed": states.count(HitState.CLOSED.value),
    }


def _table(batch: str | None, rows: Sequence[Mapping[str, object]]) -> Table:
    columns = _HITS if batch is not None else _BATCHES
    title = "batches" if batch is None else f"HITs of batch {batch}"
    shown = [{**row, "reward": format_dollars(int(str(row.get("reward_cents", 0))))} for row in rows]
    return Table(title, tuple(columns.values()), tuple(tuple(row[key] for key in columns) for row in shown))


def _cut_short(session: Session) -> tuple[str, ...]:
    """Extensions that were confirmed and not carried out whole; their cost counts as promised."""
    states = journal.states(session, EXTEND)
    names = sorted({key.partition(":")[0] for key, state in states.items() if state is not JournalState.DONE})
    return tuple(
        f"an extension of batch {name} was cut short; run the same `mitl hits extend {name}` again"
        for name in names
    )

"""HITs that were posted, and what may still change about them: how many workers, and whether they are out."""

from __future__ import annotations

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from mitl.db.models import Batch, Hit
from mitl.db.store.hits import BatchRow, HitRow, batches, hits
from mitl.records import Environment, HitState, JudgementSource


def posted_batches(session: Session) -> list[BatchRow]:
    """The batches that were planned here, of both environments, oldest first; past work from files is no such."""
    return [batch for batch in batches(session) if batch.source is JudgementSource.CROWD]


def latest_hits(session: Session, environment: Environment) -> list[HitRow]:
    """The HITs that no other has replaced."""
    replaced = set(session.scalars(select(Hit.replaces_id).where(Hit.replaces_id.is_not(None))))
    return [hit for hit in hits(session, environment) if hit.id not in replaced]


def set_wanted(session: Session, hit_id: int, assignments: int) -> None:
    """The HIT asks for so many workers in all, and is out."""
    session.execute(
        update(Hit).where(Hit.id == hit_id).values(assignments=assignments, state=HitState.POSTED)
    )


def set_batch_wanted(session: Session, batch_id: int, assignments: int) -> None:
    """Pages of the batch that are asked again want so many workers too."""
    session.execute(update(Batch).where(Batch.id == batch_id).values(assignments=assignments))

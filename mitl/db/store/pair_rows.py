"""Pairs by their rows in the database."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from mitl.db.models import Pair
from mitl.db.store.bulk import chunks
from mitl.records import Pair as PairRecord


def pairs_of_rows(session: Session, rows: Sequence[int]) -> dict[int, PairRecord]:
    """Row → pair."""
    query = select(Pair.id, Pair.image_id, Pair.caption_id)
    return {
        row: PairRecord(image, caption)
        for chunk in chunks(rows)
        for row, image, caption in session.execute(query.where(Pair.id.in_(chunk)))
    }

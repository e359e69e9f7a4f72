"""Past work that was read from files: which files, and the HITs and documents that came from them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import case, delete, func, select, update
from sqlalchemy.orm import Session

from mitl.db.base import columns, values
from mitl.db.models import Assignment, Batch, Hit, HitItemRow, ImportFile
from mitl.db.store.hits import add_items
from mitl.db.store.parses import RawSubmission
from mitl.db.store.statements import add_rows, change_among, query_hits, query_submissions, rows_among
from mitl.records import Environment, HitItem, HitState, JudgementSource, Pair, PairRole


@dataclass(frozen=True, slots=True)
class ImportRow:
    """A file that was brought in."""

    sha256: str
    name: str
    kind: str
    columns: str | None
    """JSON: which column means what."""
    batch: str
    environment: Environment
    """Of that batch; the file may be in the other one too."""
    rows: int
    imported_at: dt.datetime


@dataclass(frozen=True, slots=True)
class PastHit:
    """A HIT that somebody posted elsewhere."""

    token: str
    """Names it here; made of its id, so that a second file of the batch finds it."""
    mturk_hit_id: str | None
    assignments: int
    """Workers who were wanted, as far as the file says."""


def imports(session: Session) -> dict[str, ImportRow]:
    """The files that were brought in, by the hash of their bytes."""
    query = select(*columns(ImportRow, ImportFile, batch=Batch.name, environment=Batch.environment)).join(
        Batch, Batch.id == ImportFile.batch_id
    )
    return {row[0]: ImportRow(*row) for row in session.execute(query.order_by(ImportFile.id))}


def documents_of_file(
    session: Session, environment: Environment, sha256: str
) -> list[tuple[RawSubmission, str]]:
    """The submissions whose documents name this file, in order of arrival, each with the token of its HIT."""
    query = query_submissions(environment, Assignment.id, Assignment.hit_id, Assignment.raw_xml, Hit.token)
    query = query.where(Batch.source == JudgementSource.IMPORT, Assignment.raw_xml.contains(sha256))
    rows = session.execute(query.order_by(Assignment.id))
    return [(RawSubmission(id_, hit, document), token) for id_, hit, document, token in rows]


def read_into(session: Session, batch_ids: Sequence[int]) -> dict[int, list[ImportRow]]:
    """Batch → the files that submissions on its HITs were read from, or that added nothing to it, in their order.

    A later file may answer HITs that an earlier one brought, beside others of its own.
    """
    files = list(imports(session).values())
    is_from = [func.max(case((Assignment.raw_xml.contains(file.sha256), 1), else_=0)) for file in files]
    query = select(Batch.id, Batch.name, *is_from).join(Hit, Hit.batch_id == Batch.id).join(Assignment)
    query = query.where(Batch.id.in_(batch_ids)).group_by(Batch.id, Batch.name)
    return {
        id_: [file for file, held in zip(files, found, strict=True) if held or file.batch == name]
        for id_, name, *found in session.execute(query)
    }


def holds(session: Session, environment: Environment, sha256: str) -> bool:
    """Whether the past work of an environment has a submission that was read from this file."""
    kept = (Batch.source == JudgementSource.IMPORT, Assignment.raw_xml.contains(sha256))
    query = query_submissions(environment, Assignment.id).where(*kept)
    return session.scalars(query.limit(1)).first() is not None


def add_import(
    session: Session,
    *,
    sha256: str,
    name: str,
    kind: str,
    columns: str | None,
    batch_id: int,
    rows: int,
    now: dt.datetime,
) -> None:
    """Remember a file, so that it is not brought in twice."""
    session.add(
        ImportFile(
            sha256=sha256,
            name=name,
            kind=kind,
            columns=columns,
            batch_id=batch_id,
            rows=rows,
            imported_at=now,
        )
    )
    session.flush()


def set_columns(session: Session, sha256: str, columns: str) -> None:
    """Write down that a file's columns mean something else than was said before."""
    session.execute(update(ImportFile).where(ImportFile.sha256 == sha256).values(columns=columns))


def past_hits(session: Session, tokens: Sequence[str]) -> dict[str, int]:
    """Token → row, of those HITs that an earlier file brought in."""
    query = select(Hit.token, Hit.id)
    return dict(rows_among(session, query, Hit.token, tokens))


def add_past_hits(session: Session, batch_id: int, hits: Sequence[PastHit]) -> dict[str, int]:
    """Insert HITs that are over, numbered on within the batch; returns their rows by token."""
    last = session.scalar(select(func.max(Hit.number)).where(Hit.batch_id == batch_id)) or 0
    # Past work may have come into the other environment too, and an id names one HIT of ours.
    named = [hit.mturk_hit_id for hit in hits if hit.mturk_hit_id]
    taken = {id_ for (id_,) in rows_among(session, select(Hit.mturk_hit_id), Hit.mturk_hit_id, named)}
    add_rows(
        session,
        Hit,
        (
            values(
                Hit,
                hit,
                batch_id=batch_id,
                number=number,
                attempt=1,
                replaces_id=None,
                state=HitState.CLOSED,
                mturk_hit_id=None if hit.mturk_hit_id in taken else hit.mturk_hit_id,
            )
            for number, hit in enumerate(hits, start=last + 1)
        ),
    )
    return past_hits(session, [hit.token for hit in hits])


def set_items(session: Session, items: Mapping[int, Sequence[tuple[Pair, PairRole]]]) -> None:
    """Write what stands on these HITs, places from 1, instead of what an earlier reading put there."""
    change_among(session, delete(HitItemRow), HitItemRow.hit_id, items)
    add_items(
        session,
        {hit: [HitItem(n, *placed) for n, placed in enumerate(page, start=1)] for hit, page in items.items()},
    )


def all_past_hits(session: Session, environment: Environment) -> list[int]:
    """The HITs of an environment's past work, oldest batch first."""
    query = query_hits(environment, Hit.id).where(Batch.source == JudgementSource.IMPORT)
    return list(session.scalars(query.order_by(Hit.batch_id, Hit.id)))


def documents(session: Session, hit_ids: Sequence[int]) -> list[RawSubmission]:
    """The submissions of these HITs, in order of arrival."""
    query = select(Assignment.id, Assignment.hit_id, Assignment.raw_xml)
    stored = [RawSubmission(*row) for row in rows_among(session, query, Assignment.hit_id, hit_ids)]
    return sorted(stored, key=lambda document: document.id)

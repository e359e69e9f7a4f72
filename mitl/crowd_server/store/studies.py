"""What people are told before their first HIT, and their answers to it."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, bindparam, insert, select, update

from mitl.crowd_server.store.database import columns, first
from mitl.crowd_server.store.models import Consent, Study
from mitl.records import Environment


@dataclass(frozen=True, slots=True)
class StudyRow:
    """The study of one environment."""

    environment: Environment
    version: int
    title: str
    information: str
    contact: str
    warning: str
    consent: str
    changed_at: dt.datetime

    @property
    def paragraphs(self) -> list[str]:
        """The information, parted at empty lines."""
        return [part.strip() for part in self.information.split("\n\n") if part.strip()]

    @property
    def is_shown_first(self) -> bool:
        """Whether people meet a page before their first HIT."""
        return bool(self.information or self.warning or self.consent)


_FIND = select(*columns(StudyRow, Study)).where(Study.environment == bindparam("of"))
_ANSWER = select(Consent.given).where(
    Consent.worker_id == bindparam("me"), Consent.version == bindparam("of_version")
)


def find(connection: Connection, environment: Environment) -> StudyRow | None:
    """The study of this environment, where one is described."""
    return first(connection, StudyRow, _FIND, of=environment)


def save(connection: Connection, study: StudyRow) -> None:
    """Keep the study in place of an earlier one of its environment."""
    values = asdict(study)
    kept = update(Study).where(Study.environment == study.environment).values(values)
    if connection.execute(kept).rowcount == 0:
        connection.execute(insert(Study).values(values))


def answer(connection: Connection, worker_id: int, version: int) -> bool | None:
    """Whether the worker agreed to this version; None where they have not answered it."""
    return connection.execute(_ANSWER, {"me": worker_id, "of_version": version}).scalar_one_or_none()


def record(connection: Connection, worker_id: int, version: int, given: bool, now: dt.datetime) -> None:
    """Keep a worker's answer; a later one to the same version takes its place."""
    own = (Consent.worker_id == worker_id, Consent.version == version)
    if connection.execute(update(Consent).where(*own).values(given=given, at=now)).rowcount == 0:
        connection.execute(insert(Consent).values(worker_id=worker_id, version=version, given=given, at=now))

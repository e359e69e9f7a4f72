"""Holding databases, or a dump, against everything that must be true of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypedDict

from sqlalchemy import Connection, MetaData
from sqlalchemy.orm import Session

from mitl.campaign.standing import false_standings
from mitl.crowd_server.store import models as crowd_checks
from mitl.crowd_server.store.models import Base as CrowdBase
from mitl.db import migrate, tables
from mitl.db.dumps.reading import open_dump
from mitl.db.migrate import Line
from mitl.db.models import Base
from mitl.db.store import answer_sheets, audits, control_sheets, worker_tallies
from mitl.db.tables import Fault, general_faults, rule_faults
from mitl.progress import Progress, no_progress
from mitl.records import StageResult, Table, Verdict
from mitl.records.results import printed_by
from mitl.settings import Settings
from mitl.stages.operating.databases import existing, one_moment, opened
from mitl.stages.operating.restore import rehearsed

_METADATA: dict[Line, MetaData] = {"pipeline": Base.metadata, "crowd": CrowdBase.metadata}
_RULES = {"pipeline": tables.RULES, "crowd": crowd_checks.RULES}


class FaultCounts(TypedDict):
    """One fault as ``--json`` prints it."""

    database: str
    what: str
    rows: int


@printed_by("db verify")
class DatabaseVerifyCounts(TypedDict):
    """What a check of the databases counts."""

    databases: Annotated[int, "databases that were looked at"]
    faults: Annotated[list[FaultCounts], "each fault: database, what, rows"]


def verify(settings: Settings) -> Verdict:
    """The project's databases: sound files, no lost reference, balanced books.

    Raises:
        StoreError: there is none, or one is not at the newest revision.
    """
    found = {}
    for place in existing(settings):
        with opened(place, read_only=True) as engine:
            migrate.require_current(place.line, engine, place.name)
            with one_moment(engine) as connection:
                found[place.name] = _faults(place.line, connection)
    return _verdict(found)


def verify_dump(source: Path, *, progress: Progress = no_progress) -> Verdict:
    """A dump: its hashes, and that it can be restored; what comes of that is looked at like a database.

    Raises:
        StoreError: a file is missing or was changed, or the dump cannot be restored by this mitl.
    """
    found = {}
    with open_dump(source) as dump:
        dump.check()
        for line in dump.manifest.databases:
            with rehearsed(line, dump, progress) as connection:
                found[f"{source}: {line}"] = _faults(line, connection)
    return _verdict(found)


def _faults(line: Line, connection: Connection) -> list[Fault]:
    found = [*general_faults(connection, _METADATA[line]), *rule_faults(connection, _RULES[line])]
    if line == "pipeline" and not found:  # where references are lost, there may be nothing to compare
        with Session(connection) as session:
            stale_controls, stale_tallies = control_sheets.stale(session), worker_tallies.stale(session)
            stale, strange = answer_sheets.stale(session), audits.against_design(session)
            false = false_standings(session)
        if stale:
            found.append(Fault("answer sheets say something else than the judgements", stale))
        if stale_controls:
            found.append(Fault("sheets of controls say something else than the judgements", stale_controls))
        if stale_tallies:
            found.append(Fault("tallies of workers say something else than the judgements", stale_tallies))
        if false:
            found.append(Fault("what `mitl status` says is not what the rows say", false))
        if strange:
            found.append(Fault("audits hold other pairs of their strata than their designs say", strange))
    return found


def _verdict(found: dict[str, list[Fault]]) -> Verdict:
    rows = tuple((name, fault.what, fault.rows) for name, faults in found.items() for fault in faults)
    counts: DatabaseVerifyCounts = {
        "databases": len(found),
        "faults": [{"database": name, "what": what, "rows": count} for name, what, count in rows],
    }
    result = StageResult(
        counts=counts,
        tables=(Table("what is wrong", ("database", "what", "rows"), rows),) if rows else (),
        lines=() if rows else tuple(f"{name}: all is well" for name in found),
    )
    if not rows:
        return Verdict(result)
    more = f" ({len(rows) - 1} more)" if len(rows) > 1 else ""
    return Verdict(
        result,
        f"{rows[0][0]}: {rows[0][1]} ({rows[0][2]:,} rows){more}; restore a backup that `mitl db verify` passes, or "
        "report this with the table above",
    )

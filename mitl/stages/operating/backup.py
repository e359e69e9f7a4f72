"""Backing up both databases into one dump, and holding databases or a dump against what must be true of them.

A dump is a folder or a ``.tar`` file, whole or not at all.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shlex
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, NotRequired, TypedDict, cast

from sqlalchemy import Connection, MetaData
from sqlalchemy.orm import Session

from mitl.campaign.standing import false_standings
from mitl.core.whole_files import part_name, refuse_within, remove_dead_parts, sync_folder, to_disk
from mitl.crowd_server.store import models as crowd_checks
from mitl.crowd_server.store.models import CrowdBase
from mitl.db import migrate, tables
from mitl.db.dumps.reading import (
    ARCHIVE,
    MANIFEST,
    TRAINED,
    DumpedDatabase,
    Manifest,
    open_dump,
    to_json,
)
from mitl.db.dumps.restoring import write_database
from mitl.db.migrate import Line
from mitl.db.models import Base
from mitl.db.store import answer_sheets, audits, control_sheets, worker_tallies
from mitl.db.tables import Fault, general_faults, rule_faults
from mitl.errors import StoreError
from mitl.progress import Progress, no_progress
from mitl.records import StageResult, Table, Verdict, several
from mitl.records.results import printed_by
from mitl.settings import Settings
from mitl.stages.operating.databases import existing, one_moment, opened
from mitl.stages.operating.restore import rehearsed

NOT_IN_IT = (
    "not in it: mitl.toml, project.key, credentials.toml (made again from the crowd database), runs/, public/, "
    "hit_templates/ and the images; copy the project's folder for those"
)
SECRET = "it holds the server's keys, workers' ids and which pairs are controls: keep it as private as the databases"  # noqa: S105 - a sentence


@printed_by("db backup")
class BackupCounts(TypedDict):
    """What a backup counts; a database that it leaves out is not there."""

    pipeline: NotRequired[Annotated[int, "rows of mitl.db that the backup holds"]]
    crowd: NotRequired[Annotated[int, "rows of crowd.db that it holds"]]
    bytes: Annotated[int, "size of its tables' files"]


@printed_by("db backup", key="paths")
class BackupPaths(TypedDict):
    """What a backup wrote."""

    backup: Annotated[str, "the folder or file"]


def backup(
    settings: Settings,
    target: Path,
    *,
    only: Line | None = None,
    progress: Progress = no_progress,
) -> StageResult:
    """Write all tables of the databases that exist, each as it was at one moment; the same rows give the same bytes.

    With the pipeline's go the weights and curves of what learnt in the project, which nothing could make again.
    The pipeline's moment comes first, so that the server's part knows every call that the pipeline's has made.

    Raises:
        StoreError: there is no database, the target holds another state or something else, or there is no room.
        ReleaseError: the target lies in a release.
    """
    target = target.absolute()
    refuse_within(target)
    with _told(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_dead_parts(target.parent)
        part = part_name(target)
        try:
            part.mkdir(mode=0o700)
            manifest = _write(settings, only, part, progress)
            if target.exists() and not (target.is_dir() and not any(target.iterdir())):
                with open_dump(target) as dump:
                    dump.check()
                    if not dump.manifest.same_data(manifest):
                        raise StoreError(f"{target} is a backup of another state; it is kept: name a new one")
                lines = ("nothing to do: the backup there holds this very state",)
                return _result("nothing_to_do", target, manifest, lines)
            _put_in_place(part, target)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return _result("done", target, manifest, ())


def _write(settings: Settings, only: Line | None, folder: Path, progress: Progress) -> Manifest:
    databases: dict[Line, DumpedDatabase] = {}
    with ExitStack() as stack:
        places = existing(settings, only)
        views = [(place, stack.enter_context(opened(place, read_only=True))) for place in places]
        moments = [(place, stack.enter_context(one_moment(engine))) for place, engine in views]
        for place, connection in moments:
            databases[place.line] = write_database(place.line, connection, folder, progress=progress)
    trained = _copy_trained(settings.project / TRAINED, folder / TRAINED) if "pipeline" in databases else {}
    manifest = Manifest(version("mitl"), databases, trained)
    with (folder / MANIFEST).open("wb") as sink:
        sink.write(to_json(manifest).encode())
        to_disk(sink)
    sync_folder(folder)
    return manifest


def _copy_trained(source: Path, target: Path) -> dict[str, str]:
    """Finished weights, which are never written again, and their curves; SHA-256 by name."""
    hashes = {}
    for weights in sorted(source.glob("*.safetensors")):
        for path in (weights, weights.with_suffix(".csv")):
            if path.is_file():
                target.mkdir(exist_ok=True)
                with path.open("rb") as file, (target / path.name).open("wb") as sink:
                    shutil.copyfileobj(file, sink)
                    to_disk(sink)
                with (target / path.name).open("rb") as copy:
                    hashes[path.name] = hashlib.file_digest(copy, "sha256").hexdigest()
    if hashes:
        sync_folder(target)
    return hashes


def _put_in_place(part: Path, target: Path) -> None:
    if target.suffix != ARCHIVE:
        part.rename(target)
        sync_folder(target.parent)
        return
    packed = part_name(target)
    try:
        with packed.open("xb") as sink:
            packed.chmod(0o600)
            with tarfile.open(fileobj=sink, mode="w") as archive:
                # The manifest first, so that a reader need not go through the tables to find it.
                archive.add(part / MANIFEST, MANIFEST, filter=_plain)
                for path in sorted(part.glob("*/*")):
                    archive.add(path, path.relative_to(part).as_posix(), filter=_plain)
            to_disk(sink)
        packed.rename(target)
        sync_folder(target.parent)
    finally:
        packed.unlink(missing_ok=True)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Nothing of when, by whom and where it was written."""
    member.mtime, member.mode = 0, 0o600
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _result(status: str, target: Path, manifest: Manifest, lines: tuple[str, ...]) -> StageResult:
    rows = tuple(
        (line, part.revision, len(part.tables), part.rows) for line, part in manifest.databases.items()
    )
    kept = several(len(manifest.trained), "file")
    learnt = (f"in it too: {kept} of {TRAINED}/, by annotators that learnt here",) if manifest.trained else ()
    counts = {line: part.rows for line, part in manifest.databases.items()} | {"bytes": manifest.bytes}
    paths: BackupPaths = {"backup": os.fspath(target)}
    columns = ("database", "revision", "tables", "rows")
    return StageResult(
        status=status,
        counts=cast(BackupCounts, counts),
        paths=paths,
        tables=(Table(f"{target} · {manifest.bytes:,} bytes", columns, rows),),
        lines=lines or (*learnt, NOT_IN_IT, SECRET),
        next=f"mitl db verify {shlex.quote(str(target))}",
    )


@contextmanager
def _told(target: Path) -> Iterator[None]:
    """What the file system refuses, in one line; nothing half made stays."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        why = "the disk is full" if full else (error.strerror or str(error)).lower()
        raise StoreError(
            f"cannot write the backup {target}: {why}; nothing of it was kept: "
            f"{'make room' if full else 'name another place'} and run the command again"
        ) from error


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
    faults = {}
    for place in existing(settings):
        with opened(place, read_only=True) as engine:
            migrate.require_current(place.line, engine, place.name)
            with one_moment(engine) as connection:
                faults[place.name] = _faults(place.line, connection)
    return _verdict(faults)


def verify_dump(source: Path, *, progress: Progress = no_progress) -> Verdict:
    """A dump: its hashes, and that it can be restored; what comes of that is looked at like a database.

    Raises:
        StoreError: a file is missing or was changed, or the dump cannot be restored by this mitl.
    """
    faults = {}
    with open_dump(source) as dump:
        dump.check()
        for line in dump.manifest.databases:
            with rehearsed(line, dump, progress) as connection:
                faults[f"{source}: {line}"] = _faults(line, connection)
    return _verdict(faults)


def _faults(line: Line, connection: Connection) -> list[Fault]:
    faults = [*general_faults(connection, _METADATA[line]), *rule_faults(connection, _RULES[line])]
    if line == "pipeline" and not faults:  # where references are lost, there may be nothing to compare
        with Session(connection, close_resets_only=False) as session:
            counted = {
                "answer sheets say something else than the judgements": answer_sheets.stale(session),
                "sheets of controls say something else than the judgements": control_sheets.stale(session),
                "tallies of workers say something else than the judgements": worker_tallies.stale(session),
                "what `mitl status` says is not what the rows say": false_standings(session),
                "audits hold other pairs of their strata than their designs say": audits.against_design(
                    session
                ),
            }
        faults += [Fault(what, rows) for what, rows in counted.items() if rows]
    return faults


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

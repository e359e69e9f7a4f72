"""Everything that is held about one person, for the person: what the law gives them a right to get."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, TypedDict

from sqlalchemy.orm import Session

from mitl.core.clock import utc_now
from mitl.core.whole_files import write_kept
from mitl.crowd_server.pages.held import pack
from mitl.crowd_server.pages.templates import template_environment
from mitl.crowd_server.store import persons as on_server
from mitl.crowd_server.store.database import Database
from mitl.db.engine import parse_url
from mitl.db.session import open_database
from mitl.db.store import persons as in_project
from mitl.db.store import releases
from mitl.errors import StoreError
from mitl.positives.privacy import pseudonym
from mitl.records import Environment, StageResult, several
from mitl.records.persons import HeldData, HeldPart
from mitl.records.results import printed_by
from mitl.settings import Settings
from mitl.stages.reviewing.workers import workers
from mitl.stages.serve import crowd_database


@printed_by("crowd person")
class PersonCounts(TypedDict):
    """What is held about one person."""

    workers: Annotated[list[str], "the person's worker ids"]
    entries: Annotated[int, "entries of all files"]
    files: Annotated[dict[str, int], "by file of the archive: entries"]
    elsewhere: Annotated[int, "submissions that the server holds and this project does not"]


@printed_by("crowd person", key="paths")
class PersonPaths(TypedDict):
    """Where it is."""

    archive: Annotated[str, "the ZIP archive"]


def person(settings: Settings, name: str, out: Path, *, replace: bool = False) -> StageResult:
    """Write all that the crowd server and this project hold about one person into a ZIP archive.

    Args:
        name: the worker id, or what the panel calls the person.
        replace: overwrite another file that is there.

    Raises:
        StoreError: nobody, or more than one person, is called so.
        UsageError: another file is there, or the place cannot be written.
    """
    now = utc_now()
    with crowd_database(settings) as engine, ExitStack() as opened:
        connection = opened.enter_context(Database(engine).read())
        session = (
            opened.enter_context(open_database(settings.db_url, read_only=True))
            if _has_project(settings)
            else None
        )
        named = on_server.find(connection, name)
        ids = [one.worker for one in named] or [name]
        held = [
            on_server.held(connection, one.id, _numbered("server", place)) for place, one in enumerate(named)
        ]
        if session is not None:
            projects = [(one, of) for one in ids for of in in_project.environments_of(session, one)]
            held += [
                _of_project(session, settings, *one, _numbered("project", place))
                for place, one in enumerate(projects)
            ]
        if not held:
            raise StoreError(
                f"nobody is called {name!r} here, neither as a worker nor by a panel; an id that `mitl crowd panel "
                "forget` deleted leads to nobody any more: ask the person for the worker id, which each page of theirs "
                "shows"
            )
        sink = io.BytesIO()
        files = pack(sink, held, now, template_environment())
        sent = {one for row in named for one in on_server.submitted(connection, row.id)}
        elsewhere = sent - (in_project.submitted(session) if session is not None else set())
    write_kept(out, sink.getvalue(), replace=replace, mode=0o600)
    entries = sum(files.values())
    return StageResult(
        counts=PersonCounts(workers=ids, entries=entries, files=files, elsewhere=len(elsewhere)),
        paths=PersonPaths(archive=str(out)),
        lines=(
            f"{several(entries, 'entry', 'entries')} about {name} in {several(len(files), 'file')}, and README.html, "
            f"which says what each is, {'are' if entries != 1 else 'is'} in {out}",
            "be sure who asks before you hand it over: answer on the way that the panel or the invitation gives you",
        ),
        warnings=_elsewhere(len(elsewhere), has_project=session is not None),
    )


def _has_project(settings: Settings) -> bool:
    url = parse_url(settings.db_url)
    return url.get_backend_name() != "sqlite" or Path(url.database or "").exists()


def _numbered(folder: str, place: int) -> str:
    return folder if place == 0 else f"{folder}-{place + 1}"


def _of_project(
    session: Session, settings: Settings, worker: str, environment: Environment, folder: str
) -> HeldData:
    def parts() -> Iterator[HeldPart]:
        yield from in_project.held(session, environment, worker)
        counts = workers(settings, environment).counts
        rows = [*counts["rows"], *counts.get("raters", ())]  # type: ignore[misc]
        yield HeldPart(
            "scores",
            "What your answers come to, as the requester sees it: controls passed, speed, agreement with others.",
            [
                {name: value for name, value in row.items() if name != "findings"}
                for row in rows
                if row["worker"] == worker
            ],
        )
        yield HeldPart(
            "releases",
            "The releases and reports that were made, and the name that stands for you in each if your answers are in "
            "it.",
            [
                {"release": name, "your_name": pseudonym(worker, salt)}
                for name, salt in releases.salts(session).items()
            ],
        )

    title = f"The project {settings.project.resolve().name}, {environment}, worker {worker}"
    return HeldData(folder, title, parts())


def _elsewhere(count: int, *, has_project: bool) -> tuple[str, ...]:
    if not has_project:
        return (
            "there is no project here, so this is what the crowd server holds alone; run it in each project too",
        )
    if not count:
        return ()
    them = "submissions are" if count != 1 else "submission is"
    return (
        f"{count:,} {them} on the server and not in this project: not harvested yet, or another project's; "
        "run this there as well, with the same --crowd-db",
    )

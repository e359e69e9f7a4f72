"""A crowd server over HTTP, projects to be copied, and commands that are killed and run again."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

from kill_books import State, state
from kill_child import Clients, Command, Job, Run
from process_kit import project_settings
from sqlalchemy import Engine
from starlette.types import Receive, Scope, Send

from mitl.crowd_server import admin
from mitl.crowd_server.app import create_app
from mitl.crowd_server.middleware.limits import wrap
from mitl.crowd_server.serving import RunningServer
from mitl.db.engine import make_engine
from mitl.records import Environment
from mitl.settings import Settings


class Switch:
    """An application that passes requests on to the server of whichever project is served now."""

    def __init__(self) -> None:
        self.app: Any = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on."""
        await self.app(scope, receive, send)


class Stand:
    """The server's thread and the fork server of the clients, for the block of a ``with``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._switch = Switch()
        self._server = RunningServer(self._switch)
        self._clients = Clients()
        self._count = 0

    def __enter__(self) -> Stand:
        self._open = contextlib.ExitStack()
        self._open.enter_context(self._server)
        self._open.enter_context(self._clients)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    @property
    def port(self) -> int:
        """Where the server answers."""
        return int(self._server.url.rpartition(":")[2])

    @contextlib.contextmanager
    def project(self, base: Path) -> Iterator[Project]:
        """A copy of a project, served until the end of the block, and deleted then."""
        self._count += 1
        folder = self._folder / f"trial-{self._count}"
        copy_project(base, folder)
        engine = make_engine(f"sqlite:///{folder / 'crowd.db'}")
        try:
            self._switch.app = wrap(create_app(engine, public=[folder / "public"]))
            yield Project(self, folder, engine)
        finally:
            engine.dispose()
            # A request of a client that was killed may still be answered, and write beside what is deleted.
            shutil.rmtree(folder, ignore_errors=True)

    def run(self, folder: Path, commands: Sequence[Command], **given: Any) -> Run:
        """Run commands on a project in a process of their own."""
        job = Job(str(folder), **{"port": self.port, "commands": commands} | given)
        return self._clients.run(job)


@dataclass
class Project:
    """A project that the stand serves."""

    stand: Stand
    folder: Path
    _engine: Engine

    @cached_property
    def settings(self) -> Settings:
        """Its settings, untouched by this machine's environment."""
        return project_settings(self.folder)

    def run(self, commands: Sequence[Command], **given: Any) -> Run:
        """Run commands in a process of their own; ``Job`` says what can be given."""
        return self.stand.run(self.folder, commands, **given)

    def must(self, commands: Sequence[Command], **given: Any) -> Run:
        """Run commands that must succeed."""
        done = self.run(commands, **given)
        assert not done.failed, f"{commands} ended with {done.exit_status}, {done.statuses}:\n{done.said}"
        return done

    def keep(self, folder: Path) -> None:
        """Copy it as it is now."""
        self._engine.dispose()  # what SQLite keeps beside the file goes into it
        copy_project(self.folder, folder)

    @property
    def keys(self) -> tuple[str, str]:
        """The server's key pair of the sandbox."""
        return admin.keys(self._engine)[Environment.SANDBOX]

    def state(self) -> State:
        """What its two databases say."""
        return state(self.folder)


def copy_project(base: Path, folder: Path) -> None:
    """Copy a project whose databases nobody uses; files that are never changed are linked."""

    def copy(source: str, target: str) -> None:
        if Path(source).suffix in (".png", ".jpg", ".npz", ".parquet"):
            Path(target).hardlink_to(source)
        else:
            shutil.copyfile(source, target)

    shutil.copytree(base, folder, copy_function=copy)

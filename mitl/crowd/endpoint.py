"""Where a command's calls go: mitl's own crowd server, running or in this process, or an endpoint of the user's.

An explicit endpoint (``--endpoint-url``, ``AWS_ENDPOINT_URL_MTURK``, ``[crowd] endpoint``) never falls back to
anything and takes the AWS credential chain. It declares its environment, because one endpoint of MTurk's
protocol has one, and it may be pinned by ``[crowd] server_id``.

Without one, calls go to the server over this project's ``crowd.db``. Where a ``mitl serve`` answers on the
default port over that very database, it is used; otherwise (nothing there, or a server over another database, be
it a copy of this one with the same ``server_id``) the same server runs inside this process on a free loopback
port until the block ends. Both may work on one ``crowd.db`` at once. Its keys are mirrored to
``credentials.toml`` for other tools, and its ``server_id`` with them: a ``crowd.db`` that was replaced under a
project is reported, since the project's HITs are not in the new one.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import secrets
import ssl
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import Engine

from mitl.addresses import http_host, is_amazon, is_loopback
from mitl.core.whole_files import whole_file
from mitl.crowd import certificates
from mitl.crowd.client import Keys, MTurkClient
from mitl.crowd.context import Context
from mitl.db.session import reading
from mitl.db.store import hits as hit_store
from mitl.errors import EndpointError, SettingsError, UsageError
from mitl.records import Environment
from mitl.settings import SERVER_PORT, Settings

CREDENTIALS_FILE = "credentials.toml"
PROBE_TIMEOUT_S, BUSY_TIMEOUT_S = 2.0, 10.0
"""For a server to take a call and to answer it, which may wait where many work at once."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint of the requester API, open for the block in which it was given."""

    url: str
    environment: Environment
    charges_fee: bool
    """Whether Amazon's fee is to be reckoned with; mitl's own server takes none."""
    in_process: bool
    server_id: str | None
    """Which crowd server this is; None where it does not say."""
    keys: Keys | None = None
    """None takes the AWS credential chain."""
    _engine: Engine | None = field(default=None, repr=False)
    _open: contextlib.ExitStack = field(default_factory=contextlib.ExitStack, repr=False)

    def client(self) -> MTurkClient:
        """A client of this endpoint; it is closed with the endpoint."""
        return self._open.enter_context(MTurkClient(self.url, keys=self.keys))

    def invite(self, n: int, *, label: str = "", lasts: dt.timedelta = dt.timedelta(days=1)) -> list[str]:
        """Links by which ``n`` new workers join this environment of mitl's own server.

        Raises:
            UsageError: this is another endpoint, whose workers mitl cannot invite.
        """
        if self._engine is None:
            raise UsageError(
                f"workers cannot be invited to {self.url} from here; make links where that server runs, "
                "with `mitl crowd invite`, or leave out --endpoint-url"
            )
        from mitl.crowd_server import admin

        invitations = admin.invite(self._engine, self.environment, n, label=label, lasts=lasts)
        return [self.url + invitation.path for invitation in invitations]


@contextlib.contextmanager
def open_endpoint(
    settings: Settings, environment: Environment, *, port: int = SERVER_PORT
) -> Iterator[Endpoint]:
    """The endpoint that these settings name, in this environment.

    Args:
        port: where a running ``mitl serve`` is looked for.

    Raises:
        EndpointError: nothing answers at an explicit endpoint, its certificate cannot be verified, or another server
            than the expected one answers.
        SettingsError: a file of certificates that the environment names cannot be read.
        UsageError: an explicit endpoint was declared to be of the other environment.
        StoreError: ``crowd.db`` is of another version; OutageError where it cannot be reached.
    """
    with contextlib.ExitStack() as stack:
        if settings.endpoint is not None:
            yield _explicit(settings, settings.endpoint, environment, stack)
        else:
            yield _own(settings, environment, port, stack)


@contextlib.contextmanager
def open_same_endpoint(context: Context) -> Iterator[Endpoint]:
    """The endpoint that the project's work is on; no transaction is open when the block begins.

    Raises:
        EndpointError: batches of the environment were posted to another server, where alone their answers are found.
        Others: as `open_endpoint`.
    """
    with open_endpoint(context.settings, context.environment) as endpoint:
        with reading(context.session):
            batches = hit_store.batches(context.session, context.environment)
        for batch in batches:
            if batch.server_id is not None and endpoint.server_id not in (None, batch.server_id):
                raise EndpointError(
                    f"batch {batch.name} was posted to server {batch.server_id}, but {endpoint.url} is "
                    f"{endpoint.server_id}; use the same --crowd-db or --endpoint-url as before, or a new project there"
                )
        yield endpoint


def _explicit(
    settings: Settings, url: str, environment: Environment, stack: contextlib.ExitStack
) -> Endpoint:
    if environment is not settings.endpoint_environment:
        raise UsageError(
            f"{url} counts as {settings.endpoint_environment} by [crowd] of mitl.toml, where no word of it means live, "
            f'but {environment} was asked for; write environment = "{environment}" there if it is that, or use '
            f"--{settings.endpoint_environment}"
        )
    strange = f"{url!r} is not an endpoint; write http://host:port or https://host"
    if not http_host(url):
        raise EndpointError(strange)
    url = url.rstrip("/")
    health: Mapping[str, Any] = {}
    if not is_amazon(url):
        import httpx

        try:
            health = _health(url)
        except (httpx.InvalidURL, UnicodeError) as error:  # no host can have this name
            raise EndpointError(strange) from error
        except httpx.HTTPError as error:
            raise EndpointError(
                f"nothing answers at {url} ({type(error).__name__}); start the server there with `mitl serve`, "
                "or check --endpoint-url, AWS_ENDPOINT_URL_MTURK and [crowd] endpoint in mitl.toml"
            ) from error
    server_id = _id(health)
    expected = settings.endpoint_server_id
    if expected is not None and server_id != expected:
        raise EndpointError(
            f"{url} is server {server_id or 'of unknown id'}, but [crowd] server_id in mitl.toml expects {expected}; "
            "check the address, or change the expected id"
        )
    return Endpoint(
        url=url,
        environment=environment,
        charges_fee=health.get("charges_fee") is not False,
        in_process=False,
        server_id=server_id,
        _open=stack,
    )


def _own(settings: Settings, environment: Environment, port: int, stack: contextlib.ExitStack) -> Endpoint:
    from mitl.crowd_server import admin
    from mitl.db.engine import make_engine
    from mitl.db.explain import explained

    # As mitl serve does: the project's books would speak of bonuses that a power cut took from the server's.
    engine = make_engine(settings.crowd_db_url, durable=environment is Environment.LIVE)
    stack.callback(engine.dispose)
    with explained(engine.url):
        admin.prepare(engine)
        server_id = admin.server_id(engine)
        pairs = {of: Keys(*pair) for of, pair in admin.keys(engine).items()}
        running = serves(url := f"http://127.0.0.1:{port}", engine)
    mirror_credentials(settings.project, server_id, pairs)
    if not running:
        from mitl.crowd_server.app import create_app
        from mitl.crowd_server.protocol.html_page import allow
        from mitl.crowd_server.serving import RunningServer

        sources = allow((), settings.vendored, configured=settings.allowed_hosts)
        app = create_app(engine, public=[settings.public], sources=sources)
        url = stack.enter_context(RunningServer(app)).url
    return Endpoint(
        url=url,
        environment=environment,
        charges_fee=False,
        in_process=not running,
        server_id=server_id,
        keys=pairs[environment],
        _engine=engine,
        _open=stack.enter_context(contextlib.ExitStack()),
    )


def serves(url: str, engine: Engine) -> bool:
    """Whether the crowd server over this database answers at ``url``, and none over a copy of it or that repeats it.

    Raises:
        EndpointError: the certificate there cannot be verified.
        SettingsError: a file of certificates that the environment names cannot be read.
    """
    import httpx

    from mitl.crowd_server import admin

    question = secrets.token_hex(16)
    try:
        health = _health(url, question)
    except httpx.HTTPError:
        return False
    return _id(health) == admin.server_id(engine) and health.get("place") == admin.place(engine, question)


def _id(health: Mapping[str, Any]) -> str | None:
    server_id = health.get("server_id")
    return server_id if isinstance(server_id, str) else None


def _health(url: str, question: str = "") -> Mapping[str, Any]:
    """What ``/healthz`` says; nothing where something else than a crowd server answers.

    Raises EndpointError where the certificate cannot be verified, and httpx's errors for all else.
    """
    import httpx  # here and above, for it takes a while to load, and many commands ask nobody

    near = is_loopback(url)
    # No proxy leads to this machine, but an authority of one's own may have signed for it.
    # Reading the machine's certificates takes longer than asking, and plain HTTP needs none.
    plain = near and urlsplit(url).scheme == "http"
    verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else certificates.httpx_context()
    timeout = httpx.Timeout(BUSY_TIMEOUT_S, connect=PROBE_TIMEOUT_S)
    asked = {"question": question} if question else None
    try:
        reply = httpx.get(f"{url}/healthz", params=asked, timeout=timeout, trust_env=not near, verify=verify)
    except httpx.ConnectError as error:
        if (refused := certificates.refusal(error)) is not None:
            raise certificates.endpoint_error(url, refused) from error
        raise
    try:
        said = reply.json() if reply.status_code == 200 else {}
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def mirror_credentials(project: Path, server_id: str, pairs: Mapping[Environment, Keys]) -> Path:
    """Write ``credentials.toml`` (mode 600) so that other tools find the default endpoint's keys.

    Raises:
        EndpointError: the file knows another server, whose HITs this ``crowd.db`` does not hold.
        SettingsError: the file cannot be read or written.
    """
    path = project / CREDENTIALS_FILE
    lines = [
        "# Keys of mitl's own crowd server, kept up to date by mitl. Never send them elsewhere.",
        f'server_id = "{server_id}"',
    ]
    for environment, keys in pairs.items():
        lines += ["", f"[{environment.value}]"]
        lines += [f'access_key = "{keys.access_key}"', f'secret_key = "{keys.secret_key}"']
    text = "\n".join(lines) + "\n"
    try:
        if path.exists():
            text_there = path.read_text(encoding="utf-8")
            id_there = tomllib.loads(text_there).get("server_id")
            if id_there is not None and id_there != server_id:
                raise EndpointError(
                    f"the crowd database is server {server_id}, but this project worked with server {id_there}; "
                    f"restore that crowd.db or name it with --crowd-db, or delete {path} if its HITs are not needed"
                )
            if text_there == text and path.stat().st_mode & 0o077 == 0:
                return path
        with whole_file(path, mode=0o600) as sink:
            sink.write(text.encode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}; delete it, and mitl writes it again") from error
    except OSError as error:
        raise SettingsError(f"cannot keep {path}: {error.strerror or error}") from error
    return path

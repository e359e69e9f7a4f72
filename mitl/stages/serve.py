"""Running and administering the crowd server."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NotRequired, TypedDict
from urllib.parse import urlsplit

from sqlalchemy import Engine

from mitl.addresses import is_loopback
from mitl.core.pricing import format_dollars
from mitl.core.whole_files import write_new
from mitl.crowd.client import Keys
from mitl.crowd.endpoint import mirror_credentials, serves
from mitl.crowd_server import admin
from mitl.crowd_server.app import create_app
from mitl.crowd_server.middleware.exposure import Exposure, check_secrets, public_address
from mitl.crowd_server.middleware.limits import wrap
from mitl.crowd_server.pages.questions import form_template
from mitl.crowd_server.protocol.html_page import AllowedSources
from mitl.crowd_server.serving import serve as run_server
from mitl.crowd_server.serving import threads_of
from mitl.crowd_server.supervising import Crew
from mitl.db.engine import make_engine
from mitl.db.explain import explained
from mitl.errors import EndpointError, SettingsError
from mitl.interrupts import how_to_stop
from mitl.records import Environment, StageResult, Table, several
from mitl.records.results import EnvironmentCounts, printed_by
from mitl.resources import read_all
from mitl.settings import SERVER_PORT, Settings

KEPT_FREE = 20
"""Connections for the database's own administrators and for other commands."""


@printed_by("serve")
class ServeCounts(TypedDict):
    """What a server says of itself once it can be reached."""

    url: Annotated[str, "where the server listens"]
    operator_url: Annotated[str, "the operator page with its token"]
    server_id: Annotated[str, "the server's id"]
    workers: Annotated[int, "processes that answer"]


@printed_by("crowd invite")
class InviteCounts(TypedDict):
    """New invitations, all of them, or the one that was revoked."""

    environment: NotRequired[Annotated[str, "sandbox or live"]]
    invitations: NotRequired[Annotated[int, "links made; with `--list`, all invitations"]]
    links: NotRequired[Annotated[list[str], "the links; shown only now"]]
    revoked: NotRequired[Annotated[int, "with `--revoke`, the number of the invitation"]]


@printed_by("crowd invitations")
class InvitationsCounts(TypedDict):
    """All invitations."""

    invitations: Annotated[int, "all invitations"]


@printed_by("crowd revoke")
class RevokeCounts(TypedDict):
    """The invitation that is revoked."""

    revoked: Annotated[int, "number of the invitation"]


@printed_by("crowd keys")
class KeysCounts(TypedDict):
    """Access keys; the secrets are never printed."""

    sandbox: NotRequired[Annotated[str, "access key of the sandbox"]]
    live: NotRequired[Annotated[str, "access key of live"]]
    access_key: NotRequired[Annotated[str, "with `--export`, that of the environment written"]]


@printed_by("crowd keys", key="paths")
class KeysPaths(TypedDict):
    """Where the secrets are."""

    credentials: Annotated[str, "file with the secret keys; with `--export`, the new file"]


@printed_by("crowd operator")
class OperatorCounts(TypedDict):
    """The operator's page."""

    operator_url: Annotated[str, "the operator page with its token"]


@printed_by("crowd budget")
class BudgetCounts(TypedDict):
    """What is left of the budgets."""

    sandbox: Annotated[int, "cents left on the sandbox: always 1,000,000"]
    live: Annotated[int, "cents left on live"]


@printed_by("crowd payments")
class PaymentsCounts(EnvironmentCounts):
    """What workers are owed."""

    workers: Annotated[int, "workers with approved work"]
    owed_cents: Annotated[int, "what all of them are owed"]


@contextmanager
def crowd_database(settings: Settings) -> Iterator[Engine]:
    """The crowd server's database, brought to its newest revision; its keys are mirrored into the project."""
    # An answer for which somebody was thanked must be there after a power cut too.
    engine = make_engine(settings.crowd_db_url, durable=True)
    try:
        with explained(engine.url):
            admin.prepare(engine)
            pairs = {of: Keys(*pair) for of, pair in admin.keys(engine).items()}
            mirror_credentials(settings.project, admin.server_id(engine), pairs)
            yield engine
    finally:
        engine.dispose()


@dataclass(frozen=True, slots=True)
class Serving:
    """Where a server is reached, and what it serves."""

    exposure: Exposure
    port: int
    public: Sequence[Path]
    """Folders of pictures; the project's own where there is none."""
    sources: AllowedSources
    """Where requesters' pages may take scripts and styles from."""
    workers: int = 1
    """How many processes answer; several need PostgreSQL."""


def serve(settings: Settings, serving: Serving, announce: Callable[[StageResult], None]) -> None:
    """Serve until interrupted.

    Args:
        announce: is given the addresses once the server can be reached.

    Raises:
        EndpointError: the port is in use, or the processes keep dying.
        SettingsError: the server is open to a network, but its secrets are not fit for one; the database is not one
            for so many processes.
    """
    exposure, workers = serving.exposure, serving.workers
    with crowd_database(settings) as engine:
        if workers > 1:
            _check_room(engine, workers)
        if exposure.is_public:
            check_secrets(engine)
        public = [*serving.public] or [settings.public]
        pages = create_app(engine, public=public, sources=serving.sources, workers=workers)
        read_all(pages.state.site.templates)
        form_template()
        app = wrap(pages, exposure.policy)
        server_id, token = admin.server_id(engine), admin.operator_token(engine)

        by = f"{workers} processes; " if workers > 1 else ""

        def ready(local_url: str) -> None:
            url = exposure.public_url or local_url
            operator = f"{url}/operator?token={token}"
            at = "" if url == base_of(None) else f" --base-url {url}"
            announce(
                StageResult(
                    counts=ServeCounts(url=url, operator_url=operator, server_id=server_id, workers=workers),
                    lines=(
                        f"crowd server {server_id} on {url} ({by}{how_to_stop()})",
                        f"  operator page: {operator}",
                        f"  invite people: mitl crowd invite --sandbox{at}",
                    ),
                )
            )

        def begin(place: int) -> None:
            engine.dispose(close=False)  # the parent's connections are not ours
            pages.state.meter.be(place)

        engine.dispose()
        crew = Crew(workers, begin, pages.state.meter.leave) if workers > 1 else None
        run_server(app, exposure.host, serving.port, tls=exposure.tls, ready=ready, crew=crew)


def _check_room(engine: Engine, workers: int) -> None:
    """SettingsError where this database cannot serve so many processes."""
    if engine.dialect.name != "postgresql":
        raise SettingsError(
            f"--workers {workers} needs PostgreSQL, and the crowd database is an SQLite file, which one process serves "
            "as fast: leave --workers out, or give --crowd-db postgresql://user@host/name"
        )
    needed = workers * threads_of(workers)
    with engine.connect() as connection:
        most = int(connection.exec_driver_sql("SHOW max_connections").scalar_one())
    if needed > most - KEPT_FREE:
        raise SettingsError(
            f"--workers {workers} may open {needed} connections, but the database allows {most} in all: raise its "
            f"max_connections to {needed + KEPT_FREE} or more, or give fewer workers"
        )


def base_of(base_url: str | None) -> str:
    """Where people reach the server: this machine's own address where none is given, without a slash at the end."""
    return public_address(base_url or f"http://127.0.0.1:{SERVER_PORT}", "--base-url")


def invite(
    settings: Settings,
    environment: Environment,
    *,
    people: int,
    open_uses: int | None,
    lasts: dt.timedelta,
    label: str,
    base_url: str | None,
) -> StageResult:
    """Make invitation links; each is shown once and kept only as a hash."""
    base = base_of(base_url)
    with crowd_database(settings) as engine:
        invitations = admin.invite(engine, environment, people, label=label, open_uses=open_uses, lasts=lasts)
        trouble, after = reached(base, engine)
    links = [base + invitation.path for invitation in invitations]
    whom = "hand it to its person" if open_uses in (None, 1) else f"it admits {open_uses} people"
    return StageResult(
        counts=InviteCounts(environment=environment.value, invitations=len(links), links=links),
        lines=(*links, f"each link is shown only now; {whom}"),
        warnings=(trouble,) if trouble else (),
        next=after,
    )


def reached(base: str, engine: Engine) -> tuple[str, str]:
    """Why nobody may reach the crowd server at this address, and what to do next; nothing where it answers there."""
    try:
        return ("", "") if serves(base, engine) else (_nobody_answers(base), "mitl serve")
    except (EndpointError, SettingsError) as error:
        return f"asked from here, what answers at {base} is not known: {error}", ""


def _nobody_answers(base: str) -> str:
    port = urlsplit(base).port or SERVER_PORT
    start = "mitl serve" if port == SERVER_PORT or not is_loopback(base) else f"mitl serve --port {port}"
    return (
        f"asked from here, no `mitl serve` over this crowd database answers at {base}, where the links point; unless "
        f"people reach it there, start `{start}` or give --base-url"
    )


def list_invitations(settings: Settings) -> StageResult:
    """All invitations without their tokens."""
    with crowd_database(settings) as engine:
        invitations = admin.invitations(engine)
    now = dt.datetime.now(dt.UTC)
    rows = tuple(
        (
            row.id,
            row.environment.value,
            row.label,
            f"{row.uses} of {row.max_uses}" if row.max_uses is not None else row.uses,
            f"open until {row.expires_at:%Y-%m-%d %H:%M} UTC"
            if (state := row.state(now)) == "open"
            else state,
        )
        for row in invitations
    )
    columns = ("number", "environment", "label", "used", "state")
    return StageResult(
        counts=InvitationsCounts(invitations=len(rows)),
        tables=(Table(several(len(rows), "invitation"), columns, rows),),
    )


def revoke(settings: Settings, number: int) -> StageResult:
    """Close an invitation and shut out who came by it; what they are owed stays owed."""
    with crowd_database(settings) as engine:
        if any(row.id == number and row.revoked_at for row in admin.invitations(engine)):
            return StageResult.nothing(
                f"invitation {number} was revoked before", RevokeCounts(revoked=number)
            )
        admin.revoke(engine, number)
    return StageResult(counts=RevokeCounts(revoked=number), lines=(f"invitation {number} is revoked",))


def keys(settings: Settings) -> StageResult:
    """Where the requester keys of both environments are; the secrets themselves are not printed."""
    with crowd_database(settings) as engine:
        pairs = admin.keys(engine)
    path = settings.project / "credentials.toml"
    rows = tuple((environment.value, access) for environment, (access, _) in pairs.items())
    return StageResult(
        counts=KeysCounts(sandbox=pairs[Environment.SANDBOX][0], live=pairs[Environment.LIVE][0]),
        paths=KeysPaths(credentials=str(path)),
        tables=(Table("requester keys", ("environment", "access key"), rows),),
        lines=(f"the secrets are in {path} (mode 600)",),
    )


def export_keys(settings: Settings, environment: Environment, out: Path) -> StageResult:
    """Write one environment's key pair as boto3 reads it; a file that exists is left alone.

    Raises:
        SettingsError: another file is there.
    """
    with crowd_database(settings) as engine:
        access, secret = admin.keys(engine)[environment]
    out.parent.mkdir(parents=True, exist_ok=True)
    text = f"[default]\naws_access_key_id = {access}\naws_secret_access_key = {secret}\n"
    status = "done"
    line = f"the {environment} keys are in {out} (mode 600); name it in AWS_SHARED_CREDENTIALS_FILE"
    try:
        write_new(out, text, mode=0o600)
    except FileExistsError:
        if not out.is_file() or out.read_bytes() != text.encode():
            raise SettingsError(
                f"{out} exists and holds something else; name a new file, or remove it"
            ) from None
        status, line = "nothing_to_do", f"nothing to do: {out} holds these keys already"
    return StageResult(
        status=status,
        counts=KeysCounts(access_key=access),
        paths=KeysPaths(credentials=str(out)),
        lines=(line,),
    )


def operator_link(settings: Settings, base_url: str | None) -> StageResult:
    """The operator page's link, as `mitl serve` prints it when it begins."""
    base = base_of(base_url)
    with crowd_database(settings) as engine:
        token = admin.operator_token(engine)
    url = f"{base}/operator?token={token}"
    return StageResult(counts=OperatorCounts(operator_url=url), lines=(url,))


def budget(settings: Settings, cents: int | None) -> StageResult:
    """Show both environments' money, after setting the live budget where one is given."""
    with crowd_database(settings) as engine:
        same = cents is not None and admin.balance(engine, Environment.LIVE).budget == cents
        if cents is not None and not same:
            admin.set_budget(engine, Environment.LIVE, cents)
        balances = {environment: admin.balance(engine, environment) for environment in Environment}
    rows = tuple(
        (
            environment.value,
            *map(format_dollars, (balance.budget, balance.held, balance.spent, balance.available)),
        )
        for environment, balance in balances.items()
    )
    columns = ("environment", "budget", "held", "spent", "left")
    return StageResult(
        status="nothing_to_do" if same else "done",
        counts=BudgetCounts(
            sandbox=balances[Environment.SANDBOX].available, live=balances[Environment.LIVE].available
        ),
        tables=(Table("", columns, rows),),
        lines=("nothing to do: the live budget is that already",) if same else (),
    )


def payments(settings: Settings, environment: Environment) -> StageResult:
    """Show what each worker is owed."""
    with crowd_database(settings) as engine:
        owed = admin.payments(engine, environment)
    total = sum(row.total_cents for row in owed)
    rows = tuple(
        (row.worker, row.approved, *map(format_dollars, (row.reward_cents, row.bonus_cents, row.total_cents)))
        for row in owed
    )
    columns = ("worker", "approved HITs", "rewards", "bonuses", "owed")
    return StageResult(
        counts=PaymentsCounts(environment=environment.value, workers=len(owed), owed_cents=total),
        tables=(Table(f"{format_dollars(total)} owed on {environment}", columns, rows),) if owed else (),
        lines=() if owed else (f"nobody is owed anything on {environment}",),
    )

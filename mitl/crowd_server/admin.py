"""What the operator does to a crowd server, by its database: keys, budgets, invitations, payments, panels, study."""

from __future__ import annotations

import datetime as dt
import secrets
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import IntegrityError

from mitl.core.clock import Clock, utc_now
from mitl.crowd_server.pages.panels import (
    ENDS,
    PROFILES,
    SLUG,
    End,
    LinkParameters,
    check_end,
    check_parameters,
    read_ends,
    write_ends,
)
from mitl.crowd_server.protocol import ids
from mitl.crowd_server.store import accounts, panels, persons, reports, workers
from mitl.crowd_server.store.database import Books, Database
from mitl.crowd_server.store.models import VisitState
from mitl.crowd_server.store.panels import PanelRow, VisitRecord
from mitl.crowd_server.store.reports import Payment
from mitl.crowd_server.store.workers import InvitationRow, StudyRow
from mitl.db import migrate
from mitl.errors import StoreError, UsageError
from mitl.records import Environment

FIRST_BUDGET = {Environment.SANDBOX: accounts.SANDBOX_CENTS, Environment.LIVE: 0}


@dataclass(frozen=True, slots=True)
class NewInvitation:
    """A new invitation; its token is known only now."""

    id: int
    environment: Environment
    token: str
    expires_at: dt.datetime

    @property
    def path(self) -> str:
        """Where the link leads, from the server's root."""
        return f"/w/join/{self.token}"


def prepare(engine: Engine, *, clock: Clock = utc_now) -> None:
    """Bring ``crowd.db`` to the newest revision, and give a new one its id, secrets, key pairs and budgets.

    Raises:
        StoreError: the database is of a newer version, or holds other tables than the crowd server's.
    """
    if migrate.current(engine) != migrate.head("crowd"):
        migrate.upgrade("crowd", engine)
    database = Database(engine)
    with database.read() as connection:
        if "server_id" in accounts.settings(connection):
            return
    try:
        with engine.begin() as connection:
            accounts.add_setting(connection, "server_id", str(uuid.uuid4()))
            accounts.add_setting(connection, "secret", ids.secret())
            accounts.add_setting(connection, "operator_token", ids.secret())
            for environment, cents in FIRST_BUDGET.items():
                pair = (ids.access_key(), ids.secret())
                accounts.add_account(Books(connection, environment, clock()), pair, cents)
    except IntegrityError:
        # Another process made it ready at the same time; what it wrote holds.
        with database.read() as connection:
            if "server_id" not in accounts.settings(connection):
                raise


def server_id(engine: Engine) -> str:
    """The id that ``/healthz`` gives."""
    return _settings(engine)["server_id"]


def place(engine: Engine, question: str) -> str:
    """What ``/healthz?question=`` gives of a server over this database, and of none over a copy."""
    with Database(engine).read() as connection:
        return accounts.place(connection, question)


def operator_token(engine: Engine) -> str:
    """The token of the operator's page: ``/operator?token=…``."""
    return _settings(engine)["operator_token"]


def keys(engine: Engine) -> dict[Environment, tuple[str, str]]:
    """Access and secret key of each environment."""
    with Database(engine).read() as connection:
        return accounts.key_pairs(connection)


def balance(engine: Engine, environment: Environment) -> accounts.Balance:
    """Budget, held and spent cents of an environment."""
    with Database(engine).read() as connection:
        return accounts.balance(connection, environment)


def set_budget(engine: Engine, environment: Environment, cents: int, *, clock: Clock = utc_now) -> None:
    """Set what may be spent on an environment in all, what was spent and is held included.

    Raises:
        StoreError: the sandbox's budget cannot be set, or less is left than is held and spent already.
    """
    if environment is Environment.SANDBOX:
        raise StoreError(
            "the sandbox always has 10,000.00 of practice money; only the live budget can be set"
        )
    with Database(engine).write(environment) as connection:
        balance = accounts.balance(connection, environment)
        if cents < balance.held + balance.spent:
            least = (balance.held + balance.spent) / 100
            raise StoreError(
                f"the budget cannot be {cents / 100:.2f}, because {least:.2f} is already held or owed; "
                f"give at least {least:.2f}, or expire HITs first"
            )
        if cents != balance.budget:
            accounts.add_budget(Books(connection, environment, clock()), cents - balance.budget)


def invite(
    engine: Engine,
    environment: Environment,
    n: int = 1,
    *,
    label: str = "",
    open_uses: int | None = None,
    lasts: dt.timedelta = dt.timedelta(days=30),
    clock: Clock = utc_now,
) -> list[NewInvitation]:
    """New invitations: ``n`` personal ones, each for one worker, or ``n`` open ones of ``open_uses`` workers each."""
    now = clock()
    new = []
    with Database(engine).write(environment) as connection:
        books = Books(connection, environment, now)
        for _ in range(n):
            token = ids.secret()
            own_id = workers.add_invitation(
                books,
                token,
                label=label,
                lasts=lasts,
                personal=open_uses is None,
                max_uses=1 if open_uses is None else open_uses,
            )
            new.append(NewInvitation(own_id, environment, token, now + lasts))
    return new


def invitations(engine: Engine) -> list[InvitationRow]:
    """All invitations, newest first, without their tokens."""
    with Database(engine).read() as connection:
        return workers.list_invitations(connection)


def revoke(engine: Engine, invitation_id: int, *, clock: Clock = utc_now) -> None:
    """Close an invitation and shut out the workers who came by it; what they are owed stays owed.

    Raises:
        StoreError: there is no such invitation, or it was revoked before.
    """
    environment = {row.id: row.environment for row in invitations(engine)}.get(invitation_id)
    is_revoked = False
    if environment is not None:
        # In turn with those who accept HITs, so that nobody takes one unseen while what they hold is returned.
        with Database(engine).write(environment) as connection:
            is_revoked = workers.revoke_invitation(Books(connection, environment, clock()), invitation_id)
    if not is_revoked:
        raise StoreError(
            f"no open invitation has the number {invitation_id}; `mitl crowd invitations` lists them"
        )


def payments(
    engine: Engine, environment: Environment = Environment.LIVE, *, clock: Clock = utc_now
) -> list[Payment]:
    """What each worker is owed, work that is due for auto-approval included."""
    database = Database(engine)
    accounts.settle_due(database, environment, clock())
    with database.read() as connection:
        return reports.payments(connection, environment)


def _settings(engine: Engine) -> dict[str, str]:
    with Database(engine).read() as connection:
        return accounts.settings(connection)


OPTIONS = {
    VisitState.COMPLETED: "complete",
    VisitState.NO_CONSENT: "no-consent",
    VisitState.NOTHING_LEFT: "nothing-left",
}
"""How the command line calls the ends."""
MAX_HITS_PER_VISIT = 1000
_LIMITS = {"title": 200, "information": 50_000, "contact": 200, "warning": 2000, "consent": 2000}
_LASTS = dt.timedelta(days=3650)


@dataclass(frozen=True, slots=True)
class PanelPlan:
    """A panel as the operator wants it."""

    profile: str
    slug: str = ""
    """Empty: one is made up."""
    parameters: LinkParameters | None = None
    """None, and empty names, are the profile's."""
    hits_per_visit: int = 1
    ends: Mapping[VisitState, End] | None = None


def add_panel(
    engine: Engine, environment: Environment, plan: PanelPlan, *, clock: Clock = utc_now
) -> tuple[PanelRow, bool]:
    """The panel of this plan, and whether it is new; the same plan again gives the panel that is there.

    Raises:
        UsageError: the slug, a parameter's name, an address or a code is odd, or there is no way back for who
            completes the study.
        StoreError: the slug belongs to another panel.
    """
    row = _row(environment, plan, clock())
    with Database(engine).write(environment) as connection:
        kept = panels.find(connection, row.slug)
        if kept is None:
            # Its workers belong to an invitation whose token is thrown away, so that nobody can join by it.
            invitation_id = workers.add_invitation(
                Books(connection, environment, clock()),
                ids.secret(),
                label=f"panel {row.slug}",
                lasts=_LASTS,
                personal=False,
                max_uses=None,
            )
            own_id = panels.add(connection, replace(row, invitation_id=invitation_id))
            return replace(row, id=own_id, invitation_id=invitation_id), True
    same = replace(row, id=kept.id, invitation_id=kept.invitation_id, created_at=kept.created_at)
    if kept != same:
        raise StoreError(
            f"another panel, or a closed one, is called {row.slug!r}; pick another --slug "
            "(`mitl crowd panel list` shows all), or correct that panel's codes and links with "
            f"`mitl crowd panel change {row.slug}`"
        )
    return kept, False


def list_panels(engine: Engine) -> list[tuple[PanelRow, Mapping[VisitState, int]]]:
    """All panels, newest first, with their numbers of visits."""
    with Database(engine).read() as connection:
        return panels.list_panels(connection)


def list_visits(engine: Engine, slug: str) -> list[VisitRecord]:
    """All visits of a panel, oldest first.

    Raises:
        StoreError: there is no such panel.
    """
    with Database(engine).read() as connection:
        return panels.visit_records(connection, _known(connection, slug).id)


def change_panel(engine: Engine, slug: str, ends: Mapping[VisitState, End]) -> tuple[PanelRow, bool]:
    """The panel with these codes and addresses in place of its own, and whether any differs; empty ones stay.

    A way back that was made from the old code is made from the new one.

    Raises:
        UsageError: an address or a code is odd.
        StoreError: there is no such panel.
    """
    with _writing(engine, slug) as (connection, panel):
        usual = PROFILES[panel.profile].complete_url
        merged = {}
        for state, kept in read_ends(panel.ends).items():
            new = ends.get(state, End())
            made_of_code = kept.url == usual.replace("{code}", kept.code)
            url = new.url or ("" if new.code and made_of_code else kept.url)
            merged[state] = End(url, new.code or kept.code)
        changed = replace(panel, ends=write_ends(_ends(panel.profile, merged)))
        if changed != panel:
            panels.change_ends(connection, panel.id, changed.ends)
        return changed, changed != panel


def close_panel(engine: Engine, slug: str, *, clock: Clock = utc_now) -> bool:
    """Let nobody new in by this panel's link; False where it was closed before. Open visits may end.

    Raises:
        StoreError: there is no such panel.
    """
    with _writing(engine, slug) as (connection, panel):
        if panel.closed_at is not None:
            return False
        panels.close(connection, panel.id, clock())
        return True


def forget(engine: Engine, environments: Iterable[Environment], name: str | None = None) -> int:
    """Delete what panels call the workers of environments, or those of a name: a panel's id or a worker id.

    Returns:
        the number of workers.

    Raises:
        StoreError: panels call more than one person so.
    """
    among = tuple(environments)
    return sum(_forget(engine, environment, among, name) for environment in among)


def owed_before_forgetting(
    engine: Engine,
    environment: Environment,
    among: Collection[Environment],
    name: str | None = None,
) -> tuple[int, int, int]:
    """What those whom a panel calls by a name, or all whom one calls anything, are owed: see `reports.owed_to`.

    Work that is due for auto-approval is included; what they were paid elsewhere, the server does not know.

    Args:
        among: the environments in which they are to be forgotten.

    Raises:
        StoreError: panels call more than one person so.
    """
    database = Database(engine)
    accounts.settle_due(database, environment, utc_now())
    with database.read() as connection:
        named = set(_meant(connection, environment, among, name))
        return reports.owed_to(connection, environment, named)


def _meant(
    connection: Connection, environment: Environment, among: Collection[Environment], name: str | None
) -> list[int]:
    """Rows of this environment's workers who are to be forgotten."""
    if name is None:
        return panels.identified(connection, environment)
    found = persons.find(connection, name, among)
    meant = [one for one in found if one.worker == name] or found
    return [one.id for one in meant if one.environment == environment and one.scope is not None]


def _forget(
    engine: Engine, environment: Environment, among: Collection[Environment], name: str | None
) -> int:
    # In turn with those who come by a study link, so that nobody is called anew while they are forgotten.
    with Database(engine).write(environment) as connection:
        if is_sqlite := engine.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA secure_delete=ON")
        worker_ids = _meant(connection, environment, among, name)
        panels.forget(connection, worker_ids)
    if is_sqlite:
        # Or the ids would stay in the file beside the database, readable, until others are written over them.
        with closing(engine.raw_connection()) as driver:
            driver.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return len(worker_ids)


def study(engine: Engine, environment: Environment) -> StudyRow | None:
    """The study of an environment, where one is described."""
    with Database(engine).read() as connection:
        return workers.find_study(connection, environment)


def change_study(
    engine: Engine, environment: Environment, changes: Mapping[str, str], *, clock: Clock = utc_now
) -> tuple[StudyRow, bool]:
    """Set these texts of the study and leave the others; the study now, and whether anything changed.

    A change of anything but the contact makes a new version, which everybody is asked about again.

    Raises:
        UsageError: a text is too long.
    """
    now = clock()
    texts = {name: text.replace("\r\n", "\n").strip() for name, text in changes.items()}
    for name, text in texts.items():
        if len(text) > _LIMITS[name]:
            raise UsageError(f"--{name} has {len(text):,} characters; at most {_LIMITS[name]:,} are shown")
    with Database(engine).write(environment) as connection:
        kept = workers.find_study(connection, environment)
        old = kept or StudyRow(environment, 0, "", "", "", "", "", now)
        new = replace(old, **texts)  # type: ignore[arg-type]
        if new == old and kept is not None:
            return old, False
        if replace(new, contact=old.contact) != old or kept is None:
            new = replace(new, version=old.version + 1)
        new = replace(new, changed_at=now)
        workers.save_study(connection, new)
        return new, True


@contextmanager
def _writing(engine: Engine, slug: str) -> Iterator[tuple[Connection, PanelRow]]:
    """A transaction in turn with all others that write in a panel's environment; StoreError for an unknown panel."""
    database = Database(engine)
    with database.read() as connection:
        environment = _known(connection, slug).environment
    with database.write(environment) as connection:
        yield connection, _known(connection, slug)


def _known(connection: Connection, slug: str) -> PanelRow:
    panel = panels.find(connection, slug) if SLUG.fullmatch(slug) else None
    if panel is None:
        raise StoreError(f"no panel is called {slug!r}; `mitl crowd panel list` shows all")
    return panel


def _row(environment: Environment, plan: PanelPlan, now: dt.datetime) -> PanelRow:
    profile = PROFILES[plan.profile]
    slug = plan.slug or f"{profile.name}-{secrets.token_hex(4)}"
    if not SLUG.fullmatch(slug):
        raise UsageError(f"--slug is {slug!r}; use 1 to 63 small letters, digits and hyphens")
    if not 1 <= plan.hits_per_visit <= MAX_HITS_PER_VISIT:
        raise UsageError(f"--hits-per-visit is {plan.hits_per_visit}; use 1 to {MAX_HITS_PER_VISIT}")
    parameters, usual = plan.parameters or LinkParameters(""), profile.parameters
    names = check_parameters(
        LinkParameters(
            parameters.worker or usual.worker,
            parameters.study or usual.study,
            parameters.session or usual.session,
        )
    )
    return PanelRow(
        id=0,
        environment=environment,
        slug=slug,
        profile=profile.name,
        invitation_id=0,
        worker_parameter=names.worker,
        study_parameter=names.study,
        session_parameter=names.session,
        hits_per_visit=plan.hits_per_visit,
        ends=write_ends(_ends(profile.name, plan.ends or {})),
        created_at=now,
        closed_at=None,
    )


def _ends(profile: str, given: Mapping[VisitState, End]) -> dict[VisitState, End]:
    usual_url = PROFILES[profile].complete_url
    ends = {}
    for state in ENDS:
        end = given.get(state, End())
        if profile == "sona":
            # As SONA shows the address, with XXXX where each person's code belongs.
            end = replace(end, url=end.url.replace("survey_code=XXXX", "survey_code={worker}"))
        check_end(end, OPTIONS[state])
        if end.code and not end.url and usual_url:
            end = replace(end, url=usual_url.replace("{code}", end.code))
        ends[state] = end
    if ends[VisitState.COMPLETED] == End():
        raise UsageError(
            "who completes the study needs a way back to the panel: give --complete-code, --complete-url or both"
        )
    done = ends[VisitState.COMPLETED].url
    if profile == "sona" and "{worker}" not in done:
        raise UsageError(
            f"--complete-url is {done!r}, which grants nobody a credit; give SONA's completion URL with "
            "survey_code=XXXX in it"
        )
    return ends

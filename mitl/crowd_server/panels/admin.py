"""What the operator does about panels and the study's text, by the database."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlalchemy import Connection, Engine

from mitl.crowd_server.panels.profiles import (
    ENDS,
    PROFILES,
    SLUG,
    End,
    Parameters,
    check_end,
    check_parameters,
    write_ends,
)
from mitl.crowd_server.protocol import ids
from mitl.crowd_server.store import panels, studies, workers
from mitl.crowd_server.store.database import Clock, Database, utc_now
from mitl.crowd_server.store.models import VisitState
from mitl.crowd_server.store.panels import PanelRow, VisitRecord
from mitl.crowd_server.store.studies import StudyRow
from mitl.errors import StoreError, UsageError
from mitl.records import Environment

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
    parameters: Parameters | None = None
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
    wanted = _row(environment, plan, clock())
    with Database(engine).write(environment) as connection:
        kept = panels.find(connection, wanted.slug)
        if kept is None:
            invitation_id = _invitation(connection, environment, wanted.slug, clock())
            own_id = panels.add(connection, replace(wanted, invitation_id=invitation_id))
            return replace(wanted, id=own_id, invitation_id=invitation_id), True
    same = replace(wanted, id=kept.id, invitation_id=kept.invitation_id, created_at=kept.created_at)
    if kept != same:
        raise StoreError(
            f"another panel, or a closed one, is called {wanted.slug!r}; pick another --slug "
            "(`mitl crowd panel list` shows all)"
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


def close_panel(engine: Engine, slug: str, *, clock: Clock = utc_now) -> bool:
    """Let nobody new in by this panel's link; False where it was closed before. Open visits may end.

    Raises:
        StoreError: there is no such panel.
    """
    with engine.begin() as connection:
        panel = _known(connection, slug)
        if panel.closed_at is not None:
            return False
        panels.close(connection, panel.id, clock())
        return True


def forget_worker(engine: Engine, name: str) -> int:
    """Delete what panels call one person, given by the panel's id or the worker id; the number of workers."""
    with engine.begin() as connection:
        worker_ids = panels.known_as(connection, name)
        panels.forget(connection, worker_ids)
        return len(worker_ids)


def forget_all(engine: Engine, environment: Environment) -> int:
    """Delete what panels call the workers of an environment; the number of workers."""
    with Database(engine).write(environment) as connection:
        worker_ids = panels.identified(connection, environment)
        panels.forget(connection, worker_ids)
        return len(worker_ids)


def study(engine: Engine, environment: Environment) -> StudyRow | None:
    """The study of an environment, where one is described."""
    with Database(engine).read() as connection:
        return studies.find(connection, environment)


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
        kept = studies.find(connection, environment)
        old = kept or StudyRow(environment, 0, "", "", "", "", "", now)
        new = replace(old, **texts)  # type: ignore[arg-type]
        if new == old and kept is not None:
            return old, False
        if replace(new, contact=old.contact) != old or kept is None:
            new = replace(new, version=old.version + 1)
        new = replace(new, changed_at=now)
        studies.save(connection, new)
        return new, True


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
    given, usual = plan.parameters or Parameters(""), profile.parameters
    names = check_parameters(
        Parameters(given.worker or usual.worker, given.study or usual.study, given.session or usual.session)
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
        ends=write_ends(_ends(plan, profile.complete_url)),
        created_at=now,
        closed_at=None,
    )


def _ends(plan: PanelPlan, usual_url: str) -> dict[VisitState, End]:
    given = plan.ends or {}
    ends = {}
    for state in ENDS:
        end = given.get(state, End())
        if plan.profile == "sona":
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
    return ends


def _invitation(connection: Connection, environment: Environment, slug: str, now: dt.datetime) -> int:
    """The invitation that a panel's workers belong to; its token is thrown away, so nobody can join by it."""
    return workers.add_invitation(
        connection,
        environment,
        token_sha256=ids.token_hash(ids.secret()),
        label=f"panel {slug}",
        personal=False,
        max_uses=None,
        expires_at=now + _LASTS,
        now=now,
    )

"""The operator's browser for one test, and rows that only time or a panel would make."""

from __future__ import annotations

import csv
import datetime as dt
import io
import re
from dataclasses import dataclass
from html import unescape
from typing import Any

import httpx
from crowd_kit import Crowd
from sqlalchemy import insert, select

from mitl.crowd_server import admin
from mitl.crowd_server.store.models import (
    CrowdAssignment,
    CrowdWorker,
    Invitation,
    LateAnswer,
    Panel,
    PanelIdentity,
    PanelVisit,
    VisitState,
)
from mitl.records import Environment


@dataclass
class Operator:
    """A signed-in operator's browser without scripts."""

    server: Crowd
    browser: httpx.Client

    def get(self, path: str = "/operator", **headers: str) -> httpx.Response:
        """Open a page."""
        return self.browser.get(self.server.url + path, headers=headers)

    def post(self, path: str, fields: dict[str, str] | None = None, **headers: str) -> httpx.Response:
        """Send a form from one of the operator's own pages."""
        headers = {"Origin": self.server.url} | headers
        return self.browser.post(self.server.url + path, data=fields or {}, headers=headers)

    def state(self) -> dict[str, str]:
        """The page's numbers by name."""
        texts: dict[str, str] = self.get("/operator/state").json()["texts"]
        return texts

    def invite(self, **changes: str) -> httpx.Response:
        """Send the invitation form of a page just loaded."""
        form = INVITE | {"key": self.form_key()}
        return self.post("/operator/invitations", form | changes)

    def form_key(self) -> str:
        """The key of a new form."""
        found = re.search(r'name="key" value="([^"]+)"', self.get().text)
        assert found is not None
        return found[1]

    def csv(self, path: str) -> list[list[str]]:
        """A file's rows."""
        reply = self.get(path)
        assert reply.status_code == 200, reply.text
        assert "attachment" in reply.headers["content-disposition"]
        return list(csv.reader(io.StringIO(reply.text)))


INVITE = {
    "environment": "sandbox",
    "kind": "personal",
    "uses": "20",
    "links": "1",
    "days": "30",
    "label": "pilot",
}


def operator_of(crowd: Crowd) -> Operator:
    """An operator who opened the printed link."""
    operator = Operator(crowd, crowd.browser())
    page = operator.get(f"/operator?token={admin.operator_token(crowd.engine)}")
    assert page.status_code == 200 and "token" not in str(page.url)
    return operator


def links_in(reply: httpx.Response) -> list[str]:
    """The invitation links that a page shows."""
    return [unescape(link) for link in re.findall(r'value="(http[^"]*/w/join/[^"]+)"', reply.text)]


def worker_row(crowd: Crowd, mturk_id: str) -> int:
    """A worker's row."""
    with crowd.engine.connect() as connection:
        return connection.execute(select(CrowdWorker.id).where(CrowdWorker.mturk_id == mturk_id)).scalar_one()


def add_panel(crowd: Crowd, slug: str, profile: str = "prolific", environment: Any = Environment.LIVE) -> int:
    """A panel of this kind."""
    now = crowd.clock()
    with crowd.engine.begin() as connection:
        invitation = connection.execute(
            insert(Invitation).values(
                environment=environment,
                token_sha256=f"of panel {slug}",
                label=slug,
                personal=False,
                max_uses=None,
                uses=0,
                created_at=now,
                expires_at=now + dt.timedelta(days=30),
                revoked_at=None,
            )
        ).inserted_primary_key[0]
        return connection.execute(
            insert(Panel).values(
                environment=environment,
                slug=slug,
                profile=profile,
                invitation_id=invitation,
                worker_parameter="PROLIFIC_PID",
                study_parameter="STUDY_ID",
                session_parameter="SESSION_ID",
                hits_per_visit=1,
                ends="{}",
                created_at=now,
                closed_at=None,
            )
        ).inserted_primary_key[0]


def add_visit(
    crowd: Crowd, panel_id: int, worker_id: int, started_at: dt.datetime, state: Any = VisitState.COMPLETED
) -> None:
    """A visit that began at this time."""
    with crowd.engine.begin() as connection:
        connection.execute(
            insert(PanelVisit).values(
                panel_id=panel_id,
                worker_id=worker_id,
                session=f"{panel_id}-{worker_id}-{started_at:%s%f}",
                study="s",
                state=state,
                hits_done=1,
                started_at=started_at,
                ended_at=None,
            )
        )


def name_worker(crowd: Crowd, worker_id: int, external_id: str, scope: str = "prolific") -> None:
    """What the panel calls a worker."""
    with crowd.engine.begin() as connection:
        connection.execute(
            insert(PanelIdentity).values(
                environment=Environment.LIVE, profile=scope, external_id=external_id, worker_id=worker_id
            )
        )


def add_late_answer(crowd: Crowd) -> None:
    """A late answer to the newest assignment."""
    with crowd.engine.begin() as connection:
        newest = connection.execute(
            select(CrowdAssignment.id).order_by(CrowdAssignment.id.desc()).limit(1)
        ).scalar_one()
        connection.execute(
            insert(LateAnswer).values(assignment_id=newest, answer="<a/>", received_at=crowd.clock())
        )

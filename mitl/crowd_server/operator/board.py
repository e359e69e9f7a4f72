"""What the operator's page shows at one moment: the rows, and every number that changes by itself, as text."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from mitl.crowd_server.models import VisitState
from mitl.crowd_server.operator import words
from mitl.crowd_server.operator.memory import KeptSpans
from mitl.crowd_server.site import Site
from mitl.crowd_server.store import accounts, panels, progress, reports, settling, studies
from mitl.crowd_server.store.panels import PanelRow
from mitl.crowd_server.store.progress import GroupRow, Recent, Span
from mitl.crowd_server.store.studies import StudyRow
from mitl.crowd_server.store.workers import InvitationRow
from mitl.records import Environment

SHOWN_INVITATIONS = 50
ALWAYS = f"always {words.money(accounts.SANDBOX_CENTS)}"

Visits = Mapping[VisitState, int]


@dataclass(frozen=True, slots=True)
class Board:
    """The page's content.

    ``texts`` holds every number that changes without new rows, by the name that the page's markup gives its place;
    ``bars`` done and wanted of each progress bar.
    """

    groups: Sequence[GroupRow]
    invitations: Sequence[tuple[InvitationRow, str]]
    """Each with its state."""
    invited: int
    """How many invitations there are; the rows are the newest of them."""
    panels: Sequence[tuple[PanelRow, Visits]]
    studies: Sequence[StudyRow]
    texts: Mapping[str, str]
    bars: Mapping[str, tuple[int, int]]

    @property
    def shape(self) -> str:
        """Which rows there are and in which state: when it changes, new numbers alone do not do."""
        rows = [
            [(group.mturk_id, group.state, group.is_over) for group in self.groups],
            [(row.id, state) for row, state in self.invitations],
            [(row.slug, row.closed_at is None) for row, _ in self.panels],
            [(study.environment, study.version) for study in self.studies],
        ]
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]


def settle(site: Site) -> None:
    """Write what fell due by the clock, so that the numbers are true."""
    now = site.clock()
    for environment in Environment:
        with site.database.read() as connection:
            due = settling.is_due(connection, environment, now)
        if due:
            with site.database.write(environment) as connection:
                settling.settle(connection, environment, now)


def board(connection: Connection, spans: KeptSpans, now: dt.datetime) -> Board:
    """Read everything in one view of the database."""
    groups = progress.groups(connection, now)
    recent = progress.recent(connection, now)
    span_of = spans.of(connection, sum(group.done for group in groups), now)
    invitations, invited = reports.invitations(connection, limit=SHOWN_INVITATIONS)
    found = panels.list_panels(connection)
    texts = {"late": words.number(reports.count_late(connection))}
    for environment in Environment:
        texts |= _sums(environment, [group for group in groups if group.environment is environment], recent)
    for group in groups:
        texts |= _group(group, recent.get(group.id), span_of.get(group.id), now)
    for row in invitations:
        texts[f"invitation-{row.id}.uses"] = words.number(row.uses)
    for panel, visits in found:
        texts |= {f"panel-{panel.slug}.{state}": words.number(visits.get(state, 0)) for state in VisitState}
    bonuses = reports.bonus_sums(connection)
    for environment in Environment:
        texts |= _money(environment, accounts.balance(connection, environment), bonuses.get(environment, 0))
    return Board(
        groups=groups,
        invitations=[(row, row.state(now)) for row in invitations],
        invited=invited,
        panels=found,
        studies=[study for of in Environment if (study := studies.find(connection, of)) is not None],
        texts=texts,
        bars={group.mturk_id: (group.done, group.wanted) for group in groups},
    )


def _group(group: GroupRow, recent: Recent | None, span: Span | None, now: dt.datetime) -> dict[str, str]:
    values = {
        "hits": words.number(group.hits),
        "wanted": words.number(group.wanted),
        "done": words.number(group.done),
        "waiting": words.number(group.waiting),
        "rejected": words.number(group.rejected),
        "working": words.number(group.working),
        "hour": words.number(recent.count if recent else 0),
        "overall": words.rate(span),
        "finish": words.finish(group, recent, now),
    }
    return {f"{group.mturk_id}.{name}": value for name, value in values.items()}


def _sums(
    environment: Environment, groups: Sequence[GroupRow], recent: Mapping[int, Recent]
) -> dict[str, str]:
    hour = sum(recent[group.id].count for group in groups if group.id in recent)
    return {
        f"{environment}.working": words.number(sum(group.working for group in groups)),
        f"{environment}.waiting": words.number(sum(group.waiting for group in groups)),
        f"{environment}.hour": words.number(hour),
    }


def _money(environment: Environment, balance: accounts.Balance, bonuses: int) -> dict[str, str]:
    practice = environment is Environment.SANDBOX
    return {
        f"{environment}.budget": words.money(balance.budget),
        f"{environment}.held": words.money(balance.held),
        f"{environment}.approved": words.money(balance.spent - bonuses),
        f"{environment}.bonuses": words.money(bonuses),
        f"{environment}.owed": words.money(balance.spent),
        f"{environment}.available": ALWAYS if practice else words.money(balance.available),
    }

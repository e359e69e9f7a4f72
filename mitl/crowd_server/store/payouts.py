"""What a panel's participants are owed for the work of their visits to that panel."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, and_, func, select

from mitl.crowd_server.models import (
    Assignment,
    AssignmentState,
    Bonus,
    Hit,
    HitType,
    PanelIdentity,
    PanelVisit,
    Worker,
)
from mitl.crowd_server.store.panels import PanelRow


@dataclass(frozen=True, slots=True)
class Payee:
    """What one participant is owed for approved work and as bonuses."""

    external_id: str
    """The panel's id of the person; empty where it was deleted."""
    worker: str
    approved: int
    reward_cents: int
    bonus_cents: int

    @property
    def total_cents(self) -> int:
        """Rewards and bonuses."""
        return self.reward_cents + self.bonus_cents


# A participant can come to two panels of one kind and is one worker in both, so money follows the visit: an
# assignment belongs to the last visit that began before it was accepted. Otherwise both panels would pay it.
_panel_of_work = (
    select(PanelVisit.panel_id)
    .where(PanelVisit.worker_id == Assignment.worker_id, PanelVisit.started_at <= Assignment.accepted_at)
    .order_by(PanelVisit.started_at.desc(), PanelVisit.id.desc())
    .limit(1)
    .correlate(Assignment)
    .scalar_subquery()
)


def payees(connection: Connection, panel: PanelRow) -> list[Payee]:
    """Everyone who is owed something for work of this panel's visits, by the panel's id."""
    visitors = select(PanelVisit.worker_id).where(PanelVisit.panel_id == panel.id)
    of_panel = and_(Assignment.worker_id.in_(visitors), _panel_of_work == panel.id)
    rewards = {
        worker_id: (count, int(cents))
        for worker_id, count, cents in connection.execute(
            select(Assignment.worker_id, func.count(), func.sum(HitType.reward_cents))
            .join(Hit, Hit.id == Assignment.hit_id)
            .join(HitType, HitType.id == Hit.hit_type_id)
            .where(Assignment.state == AssignmentState.APPROVED, of_panel)
            .group_by(Assignment.worker_id)
        )
    }
    bonuses = {
        worker_id: int(cents)
        for worker_id, cents in connection.execute(
            select(Assignment.worker_id, func.sum(Bonus.cents))
            .join(Bonus, Bonus.assignment_id == Assignment.id)
            .where(of_panel)
            .group_by(Assignment.worker_id)
        )
    }
    names = dict(
        connection.execute(
            select(PanelIdentity.worker_id, PanelIdentity.external_id).where(
                PanelIdentity.worker_id.in_(visitors)
            )
        ).all()
    )
    people = connection.execute(select(Worker.id, Worker.mturk_id).where(Worker.id.in_(visitors)))
    found = [
        Payee(names.get(own, ""), worker, *rewards.get(own, (0, 0)), bonuses.get(own, 0))
        for own, worker in people
        if own in rewards or own in bonuses
    ]
    return sorted(found, key=lambda payee: (payee.external_id, payee.worker))

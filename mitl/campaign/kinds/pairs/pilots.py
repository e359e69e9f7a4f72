"""How long a HIT is expected to take: by the wording's own estimate, or by the times of a pilot that is done."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mitl.campaign.kinds.protocol import Estimate
from mitl.db.store import hits as hit_store
from mitl.db.store import pilots as pilot_store
from mitl.hits.packing import CANDIDATES_PER_HIT
from mitl.hits.templates import HitTemplate
from mitl.judgements.wages import work_time
from mitl.records import Environment, several
from mitl.settings import ASSIGNMENT_DURATION_S

PAIRS_PER_HIT = CANDIDATES_PER_HIT + 2


@dataclass(frozen=True, slots=True)
class Pilot:
    """A pilot batch and what became of it."""

    batch: str
    hits: int
    out: int
    """HITs that are not closed: not posted yet, not answered, or not decided about."""
    seconds: tuple[float, ...] = ()
    """Active time of a HIT of 20 pairs, by each submission that is kept and was measured."""


def find_pilots(session: Session, environment: Environment, template: str) -> list[Pilot]:
    """The pilots of a wording in an environment, oldest first."""
    pilots = []
    for batch in hit_store.batches(session, environment):
        if batch.pilot and batch.template == template:
            out, hits = pilot_store.pilot_progress(session, batch.id)
            pilots.append(Pilot(batch.name, hits, out, _seconds(session, batch.id, environment)))
    return pilots


def _seconds(session: Session, batch_id: int, environment: Environment) -> tuple[float, ...]:
    """What the submissions say of a whole HIT: a page that measured fewer pairs counts at the same pace.

    On the sandbox, claims stand: scripted workers answer in no time and claim a person's.
    """
    trusted = environment is Environment.SANDBOX
    seconds = []
    for page in pilot_store.measured_pages(session, batch_id):
        time = work_time(
            page.active_ms, page.accepted_at, page.submitted_at, ASSIGNMENT_DURATION_S, trusted=trusted
        )
        if time.ms is not None:
            seconds.append(PAIRS_PER_HIT * time.ms / 1000 / page.places)
    return tuple(seconds)


def pilot_out(pilots: Sequence[Pilot]) -> Pilot | None:
    """The first pilot that is not done."""
    return next((pilot for pilot in pilots if pilot.out), None)


def estimate_of(pilots: Sequence[Pilot], template: HitTemplate) -> Estimate:
    """The latest finished pilot's median active time of a HIT, in whole seconds upwards; else the wording's own."""
    own = PAIRS_PER_HIT * template.seconds_per_pair
    plain = f"the wording's {template.seconds_per_pair} s a pair"
    done = [pilot for pilot in pilots if not pilot.out]
    for pilot in reversed(done):
        if pilot.seconds:
            n = len(pilot.seconds)
            return Estimate(
                max(1, math.ceil(statistics.median(pilot.seconds))),
                pilot.batch,
                f"median of {several(n, 'submission')} of pilot {pilot.batch}; the wording says {own} s",
                is_kept=True,
            )
    if done:
        return Estimate(own, None, f"{plain}, since pilot {done[-1].batch} gave no usable times")
    return Estimate(own, None, plain)

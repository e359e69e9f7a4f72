"""What plans of all kinds share: pilots, asking again, and originals for controls.

Pilots are a few HITs that are posted to find out how long the work takes, which then prices the rest. Asking again
needs to know which of the HITs to replace a limit holds, and what makes their new pages differ from the old.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy.orm import Session

from mitl.campaign.kinds.protocol import Request, WorkingTime
from mitl.crowd.paying import time_of
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store import open_work
from mitl.db.store.hits import StoredHit
from mitl.errors import UsageError
from mitl.hits.templates import HitTemplate
from mitl.proposals.sampling import gold_positives
from mitl.records import Environment, Pair, several


@dataclass(frozen=True, slots=True)
class PilotBatch:
    """A pilot batch and what became of it."""

    batch: str
    hits: int
    out: int
    """HITs that are not closed: not posted yet, not answered, or not decided about."""
    seconds: tuple[float, ...] = ()
    """Active time of a usual HIT, by each submission that is kept and was measured."""


def find_pilots(
    session: Session,
    environment: Environment,
    template: str,
    page_size: int,
    *,
    direction: str | None = None,
) -> list[PilotBatch]:
    """The pilots of a wording in an environment, oldest first.

    Args:
        page_size: questions of a usual HIT.
        direction: of batches of this direction alone; None takes all.
    """
    return [
        PilotBatch(batch.name, hits, out, _seconds(session, batch.id, environment, page_size))
        for batch in hit_store.batches(session, environment)
        if batch.pilot and batch.template == template and direction in (None, batch.direction)
        for out, hits in [open_work.pilot_progress(session, batch.id)]
    ]


def _seconds(session: Session, batch_id: int, environment: Environment, page_size: int) -> tuple[float, ...]:
    """What the submissions say of a whole HIT: a page that measured fewer places counts at the same pace."""
    seconds = []
    for page in open_work.measured_pages(session, batch_id):
        time = time_of(page.active_ms, page.accepted_at, page.submitted_at, environment)
        if time.ms is not None:
            seconds.append(page_size * time.ms / 1000 / page.places)
    return tuple(seconds)


def pilot_out(pilots: Sequence[PilotBatch]) -> PilotBatch | None:
    """The first pilot that is not done."""
    return next((pilot for pilot in pilots if pilot.out), None)


def in_a_round(request: Request, option: str) -> str:
    """Which command takes an option that a round's own commands lack; nothing for what no round asks."""
    return f" (a round: `mitl publish --chosen {option}`)" if request.own_words.get("chosen") else ""


def waits_for_pilot(
    pilots: Sequence[PilotBatch], request: Request, *, goes_on: bool, is_open: Callable[[], bool]
) -> str:
    """Why nothing new is planned while a pilot is out; nothing where none is.

    Args:
        goes_on: whether there is something to do all the same, as what an interrupted run left.
        is_open: whether there would be something to post; is asked only where that is refused.

    Raises:
        UsageError: the rest is to be posted, and the pilot's times are not known yet.
    """
    pilot = pilot_out(pilots)
    if pilot is None:
        return ""
    if request.pilot is None and not goes_on and is_open():
        raise UsageError(
            f"pilot {pilot.batch} of template {request.template!r} is out: {pilot.out} of its {pilot.hits} HITs not "
            "answered and decided yet; run `mitl harvest` (and `mitl review`) first, or post the rest without its "
            f"times with --no-wait-for-pilot{in_a_round(request, '--no-wait-for-pilot')}"
        )
    return (
        f"pilot {pilot.batch} is out, {pilot.out:,} of its {pilot.hits:,} HITs not answered and decided yet"
    )


def estimate_of(pilots: Sequence[PilotBatch], template: HitTemplate, page_size: int) -> WorkingTime:
    """The latest finished pilot's median active time of a HIT, in whole seconds upwards; else the wording's own.

    Args:
        page_size: questions of a usual HIT, as the pilots' times were reckoned for.
    """
    seconds = page_size * template.seconds_per_pair
    plain = f"the wording's {template.seconds_per_pair} s a pair"
    done = [pilot for pilot in pilots if not pilot.out]
    for pilot in reversed(done):
        if pilot.seconds:
            n = len(pilot.seconds)
            return WorkingTime(
                max(1, math.ceil(statistics.median(pilot.seconds))),
                pilot.batch,
                f"median of {several(n, 'submission')} of pilot {pilot.batch}; the wording says {seconds} s",
                is_kept=True,
            )
    if done:
        return WorkingTime(seconds, None, f"{plain}, since pilot {done[-1].batch} gave no usable times")
    return WorkingTime(seconds, None, plain)


T = TypeVar("T")


def within(pages: list[T], limit: int | None, size: Callable[[T], int]) -> tuple[list[T], int | None]:
    """The first of these whose questions a limit holds, and how many more it holds; without one all, and None."""
    if limit is None:
        return pages, None
    for place, page in enumerate(pages):
        if size(page) > limit:
            return pages[:place], limit
        limit -= size(page)
    return pages, limit


def rotated(values: Sequence[T], turn: int) -> list[T]:
    """The values from one's turn on, those before it last."""
    start = turn % len(values) if values else 0
    return [*values[start:], *values[:start]]


def seed_of(seed: int, hit: StoredHit) -> int:
    """The seed of the page that asks a HIT again.

    It is named by the page, not the project, so that the same data and seed make the same pages anywhere.
    """
    name = f"{seed}:{hit.batch}:{hit.number}:{hit.attempt + 1}"
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16)


def sure_originals(session: Session, *, seed: int) -> list[Pair]:
    """All originals that may stand for a match (see `gold_positives`): on no exclusion list, and rated low by nobody.

    Raises:
        ProposalError: there is none.
    """
    originals = item_store.originals(session, item_store.dataset(session).id)
    lists = item_store.excluded(session)
    refused = {pair for pair in originals if pair in lists}
    ratings = item_store.ratings(session)
    return gold_positives(originals, excluded=refused, ratings=ratings, seed=seed)

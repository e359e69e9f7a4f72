"""Planning a study: which comparisons are open, what stands on which page, what an earlier run left."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mitl.db.store import commitments
from mitl.db.store import comparisons as comparison_store
from mitl.db.store import hits as hit_store
from mitl.db.store.commitments import StoredPlan
from mitl.db.store.hits import HitRow
from mitl.hits.comparisons import Meeting, meetings, n_pages, pack_comparisons
from mitl.records import BatchKind, Comparison, ComparisonPage, ComparisonRole, Direction, System
from mitl.settings import Settings
from mitl.stages.preferring.controls import draw_controls
from mitl.stages.preferring.study import Study
from mitl.stages.preferring.systems import contest
from mitl.stages.publishing.posting import UNPOSTED

Key = tuple[Direction, int, frozenset[tuple[str, tuple[int, ...]]]]
"""What is compared, whoever stands on which side."""


@dataclass(frozen=True, slots=True)
class AskedAgain:
    """A page that is asked of further workers, because not all its submissions could be used."""

    replaces: HitRow
    comparisons: tuple[Comparison, ...]
    assignments: int
    """Workers who are still wanted."""

    @property
    def n_asked(self) -> int:
        """Comparisons on it, controls left out."""
        return sum(item.role is ComparisonRole.ASKED for item in self.comparisons)

    @property
    def attempt(self) -> int:
        """Counts on from the HIT it replaces."""
        return self.replaces.attempt + 1


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """What would be posted."""

    systems: tuple[System, ...]
    fresh: tuple[ComparisonPage, ...]
    again: tuple[AskedAgain, ...]
    leftover: tuple[HitRow, ...]
    """HITs that an earlier run planned and did not post; they are completed alone."""
    leftover_pages: Mapping[int, Sequence[Comparison]]
    n_alike: int
    """Meetings that are left out because both systems give the same list."""
    n_limited: int = 0
    """Comparisons of ``fresh`` and ``again``, controls left out: what counts against a limit."""
    n_held_back: int = 0
    """Comparisons that the study's limit leaves to a later run."""
    out: tuple[StoredPlan, ...] = ()
    """What earlier runs of the same words have out and the limit counts."""
    interrupted: tuple[StoredPlan, ...] = ()
    """What an interrupted run planned, if any: this plan completes it and holds nothing else."""

    @property
    def pages(self) -> list[Sequence[Comparison]]:
        """All pages."""
        return [
            *(page.comparisons for page in self.fresh),
            *(one.comparisons for one in self.again),
            *self.leftover_pages.values(),
        ]

    @property
    def n_hits(self) -> int:
        """HITs to post."""
        return len(self.fresh) + len(self.again) + len(self.leftover)

    @property
    def n_comparisons(self) -> int:
        """Comparisons on the pages, controls left out."""
        return sum(item.role is ComparisonRole.ASKED for page in self.pages for item in page)

    @property
    def per_hit(self) -> int:
        """Comparisons of the fullest new page, controls included; what its working time is reckoned for."""
        return max((len(page.comparisons) for page in self.fresh), default=0)


def make_study_plan(session: Session, settings: Settings, study: Study) -> StudyPlan:
    """Pack what is not asked yet in this environment, or what an interrupted run left, alone; reads only.

    Raises:
        What ``contest`` and ``draw_controls`` raise.
    """
    environment = study.environment
    leftover = hit_store.hits(session, environment, UNPOSTED, BatchKind.RANKINGS)
    barren = comparison_store.barren(session, environment)
    pages = comparison_store.comparisons(
        session, [*(hit.id for hit in leftover), *(one.hit.id for one in barren)]
    )
    found = contest(session, settings, study)
    met = meetings(found.rankings, found.queries, settings.seed)
    n_systems = len(found.systems)
    n_alike = len(found.queries) * (n_systems * (n_systems - 1) // 2) - len(met)
    asked = {_key(item) for item in comparison_store.asked(session, environment)}
    still = [meeting for meeting in met if _meeting_key(meeting, study.direction) not in asked]
    out = []
    again = [AskedAgain(one.hit, tuple(pages[one.hit.id]), one.missing) for one in barren]
    interrupted = commitments.untold_plans(session, environment, BatchKind.RANKINGS)
    if leftover or interrupted:
        still, again = [], []
    n_open = len(still) + sum(one.n_asked for one in again)
    if study.limit is not None:
        out = commitments.limited_plans_out(session, environment, study.words)
        left = max(study.limit - sum(plan.asked for plan in out), 0)
        sizes = itertools.accumulate(one.n_asked for one in again)
        again = [one for one, size in zip(again, sizes, strict=True) if size <= left]
        still = still[: left - sum(one.n_asked for one in again)]
    n_limited = len(still) + sum(one.n_asked for one in again)
    wanted = n_pages(len(still), study.per_hit, study.controls) * study.controls
    fresh = pack_comparisons(
        still,
        draw_controls(session, settings, study, found, wanted),
        direction=study.direction,
        seed=settings.seed,
        per_hit=study.per_hit,
        n_controls=study.controls,
    )
    return StudyPlan(
        systems=found.systems,
        fresh=tuple(fresh),
        again=tuple(again),
        leftover=tuple(leftover),
        leftover_pages={hit.id: pages[hit.id] for hit in leftover},
        n_alike=n_alike,
        n_limited=n_limited,
        n_held_back=n_open - n_limited,
        out=tuple(out),
        interrupted=tuple(interrupted),
    )


def _meeting_key(meeting: Meeting, direction: Direction) -> Key:
    sides = frozenset({(meeting.one, meeting.one_items), (meeting.other, meeting.other_items)})
    return direction, meeting.query_id, sides


def _key(item: Comparison) -> Key:
    sides = frozenset({(item.left, item.left_items), (item.right, item.right_items)})
    return item.direction, item.query_id, sides

"""Planning a study: which comparisons are open, what stands on which page, what an earlier run left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mitl.db.store import comparisons as comparison_store
from mitl.db.store import hits as hit_store
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
    """HITs that an earlier run planned and did not post."""
    leftover_pages: Mapping[int, Sequence[Comparison]]
    n_alike: int
    """Meetings that are left out because both systems give the same list."""

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
    """Pack what is not asked yet in this environment; reads only.

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
    still = [meeting for meeting in met if _meeting_key(meeting, study.direction) not in asked][: study.limit]
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
        again=tuple(AskedAgain(one.hit, tuple(pages[one.hit.id]), one.missing) for one in barren),
        leftover=tuple(leftover),
        leftover_pages={hit.id: pages[hit.id] for hit in leftover},
        n_alike=n_alike,
    )


def _meeting_key(meeting: Meeting, direction: Direction) -> Key:
    sides = frozenset({(meeting.one, meeting.one_items), (meeting.other, meeting.other_items)})
    return direction, meeting.query_id, sides


def _key(item: Comparison) -> Key:
    sides = frozenset({(item.left, item.left_items), (item.right, item.right_items)})
    return item.direction, item.query_id, sides

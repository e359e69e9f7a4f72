"""Planning pages of comparisons: which are open, with which controls, and what stands on which page."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mitl.campaign.kinds.protocol import Plan, Replacement, leftover, plans_out
from mitl.campaign.kinds.rankings.systems import Contest, Study, contest
from mitl.db.store import comparisons as comparison_store
from mitl.db.store import items as item_store
from mitl.errors import ProposalError
from mitl.hits.comparisons import Control, Meeting, meetings, n_pages, pack_comparisons
from mitl.proposals.sampling import shuffled
from mitl.records import BatchKind, Comparison, ComparisonPage, ComparisonRole, Direction, System
from mitl.settings import Settings

Key = tuple[Direction, int, frozenset[tuple[str, tuple[int, ...]]]]
"""What is compared, whoever stands on which side."""


@dataclass(frozen=True, slots=True)
class StudyPlan(Plan):
    """What would be posted, and who meets."""

    systems: tuple[System, ...] = ()
    n_alike: int = 0
    """Meetings that are left out because both systems give the same list."""
    per_hit: int = 0
    """Comparisons of the fullest new page, controls included; what its working time is reckoned for."""


def n_asked(items: Sequence[Comparison]) -> int:
    """Comparisons among these, controls left out."""
    return sum(item.role is ComparisonRole.ASKED for item in items)


def make_plan(session: Session, settings: Settings, request: Study, *, adopted: int = 0) -> StudyPlan:
    """Pack what is not asked yet in this environment, or what an interrupted run left, alone; reads only.

    Raises:
        What ``contest`` and ``draw_controls`` raise.
    """
    environment = request.environment
    left = leftover(session, environment, BatchKind.RANKINGS, comparison_store.comparisons)
    chosen = contest(session, settings, request)
    met = meetings(chosen.rankings, chosen.queries, settings.seed)
    n_systems = len(chosen.systems)
    n_alike = len(chosen.queries) * (n_systems * (n_systems - 1) // 2) - len(met)
    if left:
        return StudyPlan(left=left, systems=chosen.systems, n_alike=n_alike, per_hit=request.per_hit)
    asked = {
        _key(item.direction, item.query_id, (item.left, item.left_items), (item.right, item.right_items))
        for item in comparison_store.asked(session, environment)
    }
    still = [meeting for meeting in met if _meeting_key(meeting, request.direction) not in asked]
    to_replace = comparison_store.hits_to_replace(session, environment)
    pages = comparison_store.comparisons(session, [hit.hit.id for hit in to_replace])
    again = [
        Replacement(hit.hit, ComparisonPage(hit.hit.number, tuple(pages[hit.hit.id])), hit.missing)
        for hit in to_replace
    ]
    n_open = len(still) + sum(n_asked(page.page.items) for page in again)
    out, limit = plans_out(session, request)
    if limit is not None:
        sizes = itertools.accumulate(n_asked(page.page.items) for page in again)
        again = [page for page, size in zip(again, sizes, strict=True) if size <= limit]
        still = still[: limit - sum(n_asked(page.page.items) for page in again)]
    n_limited = len(still) + sum(n_asked(page.page.items) for page in again)
    wanted = n_pages(len(still), request.per_hit, request.controls) * request.controls
    fresh = pack_comparisons(
        still,
        draw_controls(session, settings, request, chosen, wanted),
        direction=request.direction,
        seed=settings.seed,
        per_hit=request.per_hit,
        n_controls=request.controls,
    )
    return StudyPlan(
        fresh=tuple(fresh),
        again=tuple(again),
        n_limited=n_limited,
        n_held_back=n_open - n_limited,
        out=out,
        systems=chosen.systems,
        n_alike=n_alike,
        per_hit=max((len(page.comparisons) for page in fresh), default=request.per_hit),
    )


def _meeting_key(meeting: Meeting, direction: Direction) -> Key:
    sides = (meeting.one, meeting.one_items), (meeting.other, meeting.other_items)
    return _key(direction, meeting.query_id, *sides)


def _key(direction: Direction, query_id: int, *sides: tuple[str, tuple[int, ...]]) -> Key:
    return direction, query_id, frozenset(sides)


def draw_controls(
    session: Session, settings: Settings, study: Study, contest: Contest, count: int
) -> list[Control]:
    """So many controls, or one for each query of the contest where there are fewer.

    The better side begins with the query's original positives and goes on with a system's own items, or is all
    positives where the contest's rankings were made of them; the other is
    drawn from items that no system lists for the query, and from those that they list where there are not enough.

    Raises:
        ProposalError: the gallery is too small for a list beside the better one.
    """
    if not count:
        return []
    dataset = item_store.dataset(session)
    captions = item_store.captions(session, dataset.id)
    originals: dict[int, list[int]] = defaultdict(list)
    for caption in captions:
        if study.direction is Direction.T2I:
            originals[caption.id].append(caption.image_id)
        else:
            originals[caption.image_id].append(caption.id)
    if study.direction is Direction.T2I:
        gallery = [image.id for image in item_store.images(session, dataset.id, settings.project)]
    else:
        gallery = [caption.id for caption in captions]
    queries = shuffled(contest.queries, settings.seed, "preference controls")[:count]
    return [_control(settings.seed, study, contest, query, originals[query], gallery) for query in queries]


def _control(
    seed: int, study: Study, contest: Contest, query: int, originals: Sequence[int], gallery: Sequence[int]
) -> Control:
    known = contest.positives.get(query, ())
    first = contest.rankings[contest.systems[0].name][query]
    better = known or tuple(dict.fromkeys([*originals, *first]))[: study.top_k]
    listed = {item for lists in contest.rankings.values() for item in lists[query]}
    taken = {*better, *originals}
    rest = shuffled(
        [item for item in gallery if item not in taken], seed, f"random {study.direction} {query}"
    )
    drawn = sorted(rest, key=lambda item: item in listed)[: len(better)]
    if len(drawn) < len(better):
        raise ProposalError(
            f"the gallery has {len(rest)} items beside those of a control, but its other list needs {len(better)}; "
            "give a smaller --top-k, or --controls 0"
        )
    return Control(query, better, tuple(drawn))

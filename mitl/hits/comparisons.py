"""Comparisons of two rankings on pages: who meets whom on which query, on which side, with which controls.

Orders and sides come from the seed. Of each two systems, either stands on the left in half of their meetings, so
that a worker's liking for one side helps nobody. Every page has the same number of controls, on both sides in turn.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, zip_longest

from mitl.errors import PackingError
from mitl.proposals.sampling import shuffled
from mitl.records import Comparison, ComparisonRole, Direction, Page, Preference

MAX_PER_HIT = 20
"""Comparisons of one HIT, controls included; more do not fit into a question with images (the paper has 40)."""
BETTER, RANDOM = "originals", "random"
"""The two sides of a control: known positives before a system's items, and items drawn from the gallery."""

Lists = Mapping[int, tuple[int, ...]]
"""Query → its items, best first."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """Two systems on one query."""

    query_id: int
    one: str
    """The name that sorts first."""
    other: str
    one_items: tuple[int, ...]
    other_items: tuple[int, ...]

    @property
    def systems(self) -> tuple[str, str]:
        """Both names."""
        return self.one, self.other


@dataclass(frozen=True, slots=True)
class ComparisonControl:
    """A query with one ranking that is known to be better than the other."""

    query_id: int
    better: tuple[int, ...]
    random: tuple[int, ...]


def meetings(rankings: Mapping[str, Lists], queries: Sequence[int], seed: int) -> list[Meeting]:
    """Every two systems on every query, in an order in which any first part is spread evenly over the pairs.

    Two systems that give the very same list do not meet on that query: there is nothing to prefer.
    """
    by_systems = []
    for one, other in combinations(sorted(rankings), 2):
        met = [
            Meeting(query, one, other, rankings[one][query], rankings[other][query])
            for query in queries
            if rankings[one][query] != rankings[other][query]
        ]
        by_systems.append(shuffled(met, seed, f"meetings {one} {other}", name=lambda m: m.query_id))
    rounds = zip_longest(*by_systems)
    return [meeting for played in rounds for meeting in played if meeting is not None]


def n_pages(n_meetings: int, per_hit: int, n_controls: int) -> int:
    """How many pages so many meetings fill."""
    return -(-n_meetings // (per_hit - n_controls))


def pack_comparisons(
    asked: Sequence[Comparison],
    controls: Sequence[ComparisonControl],
    *,
    direction: Direction,
    seed: int,
    per_hit: int,
    n_controls: int,
) -> list[Page[Comparison]]:
    """What is asked on as few pages as hold it, evenly, with controls; numbers from 1.

    A query stands on a page once where that can be. Controls are used in turn.

    Args:
        asked: see :func:`sided`.

    Raises:
        PackingError: a page has no room beside its controls, or there are too few controls.
    """
    if not 0 <= n_controls < per_hit <= MAX_PER_HIT:
        raise PackingError(
            f"a HIT of {per_hit} comparisons with {n_controls} controls; it has 1 to {MAX_PER_HIT}, and at least one "
            "that is not a control"
        )
    if asked and len(controls) < n_controls:
        raise PackingError(
            f"{len(controls)} controls, but a HIT has {n_controls}; ask for fewer with --controls"
        )
    pages = _deal(asked, n_pages(len(asked), per_hit, n_controls))
    turn = 0
    packed = []
    for number, page in enumerate(pages, 1):
        chosen, turn = _controls_for(page, controls, n_controls, turn)
        checks = []
        for place, control in enumerate(chosen):
            sides = [(BETTER, control.better), (RANDOM, control.random)]
            better_left = (number + place) % 2 == 0
            checks.append(
                _side_by_side(
                    ComparisonRole.CONTROL,
                    direction,
                    control.query_id,
                    sides if better_left else sides[::-1],
                    Preference.LEFT if better_left else Preference.RIGHT,
                )
            )
        mixed = shuffled([*page, *checks], seed, f"places {number}", name=_name)
        packed.append(Page(number, tuple(replace(item, place=place) for place, item in enumerate(mixed, 1))))
    return packed


def sided(
    met: Sequence[Meeting], before: Iterable[Comparison], *, direction: Direction, seed: int
) -> list[Comparison]:
    """The meetings in their order, each system on the left in half of its meetings with each other one.

    Args:
        before: earlier meetings, which count into that half.
    """
    by_systems: dict[tuple[str, str], list[Meeting]] = defaultdict(list)
    for meeting in met:
        by_systems[meeting.systems].append(meeting)
    stood = Counter((item.left, item.right) for item in before if item.direction is direction)
    left = {}
    for (one, other), own in by_systems.items():
        # Who of the two is on the left where neither was so more often is drawn too.
        first = shuffled((0, 1), seed, f"first {(one, other)}")[0]
        ahead = stood[one, other] - stood[other, one]
        for meeting in shuffled(own, seed, f"sides {(one, other)}", name=lambda m: m.query_id):
            left[id(meeting)] = ahead < 0 or (ahead == 0 and first == 0)
            ahead += 1 if left[id(meeting)] else -1
    comparisons = []
    for meeting in met:
        sides = [(meeting.one, meeting.one_items), (meeting.other, meeting.other_items)]
        ordered = sides if left[id(meeting)] else sides[::-1]
        comparisons.append(_side_by_side(ComparisonRole.ASKED, direction, meeting.query_id, ordered))
    return comparisons


def _side_by_side(
    role: ComparisonRole,
    direction: Direction,
    query_id: int,
    sides: Sequence[tuple[str, tuple[int, ...]]],
    expected: Preference | None = None,
) -> Comparison:
    """Two names with their items, left and right, which are given a place later."""
    (left, left_items), (right, right_items) = sides
    return Comparison(0, role, direction, query_id, left, right, left_items, right_items, expected)


def _deal(items: Sequence[Comparison], count: int) -> list[list[Comparison]]:
    """On so many pages of nearly equal size; a query twice on a page only where no other page has room."""
    pages: list[list[Comparison]] = [[] for _ in range(count)]
    if not count:
        return pages
    room = [len(items) // count + (place < len(items) % count) for place in range(count)]
    for turn, item in enumerate(items):
        order = [(turn + step) % count for step in range(count)]
        free = [place for place in order if len(pages[place]) < room[place]]
        apart = (p for p in free if all(other.query_id != item.query_id for other in pages[p]))
        pages[next(apart, free[0])].append(item)
    return pages


def _controls_for(
    page: Sequence[Comparison], controls: Sequence[ComparisonControl], count: int, turn: int
) -> tuple[list[ComparisonControl], int]:
    """The next controls, those on queries that the page does not have first; and where the turn stands then."""
    if not count:
        return [], turn
    order = [controls[(turn + step) % len(controls)] for step in range(len(controls))]
    on_page = {item.query_id for item in page}
    chosen = sorted(order, key=lambda control: control.query_id in on_page)[:count]
    return chosen, turn + count


def _name(item: Comparison) -> str:
    return f"{item.role} {item.query_id} {item.left} {item.right}"

"""Pairs to rate on pages, with controls; orders and sides come from the seed.

Of two items of one side, either is shown first in half of the cases, so that no order is usual. A page's controls are
an item beside itself (or an image beside its own caption), two items that have nothing to do with each other, and one
of the page's own pairs once more, which does not follow its first showing at once.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mitl.errors import PackingError, TemplateError
from mitl.hits.rendering import render
from mitl.hits.templates import HitTemplate
from mitl.hits.validation import DEFECT
from mitl.proposals.sampling import draw_below, shuffled
from mitl.records import Page
from mitl.records.similarity import Likeness, SimilarityQuestion, SimilarityRole


@dataclass(frozen=True, slots=True)
class ShownPair:
    """What a worker sees at one place (from 1) of a page; nothing here tells a control from a pair that is asked."""

    place: int
    first_text: str
    """A caption; empty where the first item is an image."""
    first_image: str
    """An image's address, root-relative (``/i/…``) or absolute https; empty where the first item is a caption."""
    second_text: str
    second_image: str

    @property
    def shown(self) -> list[str]:
        """The texts and addresses that are its own, in the order of the page."""
        return [self.first_text or self.first_image, self.second_text or self.second_image]


def render_similarity(
    template: HitTemplate, items: Sequence[ShownPair], *, contact: str | None, estimate_s: int
) -> str:
    """As `mitl.hits.rendering.render`, items in the order given.

    Raises:
        TemplateError: the template is broken, a side shows nothing or both a text and an image, or the items are not
            all of one task.
    """
    for item in items:
        for text, image in ((item.first_text, item.first_image), (item.second_text, item.second_image)):
            if bool(text) == bool(image):
                what = "a text and an image" if text else "neither a text nor an image"
                raise TemplateError(f"place {item.place} has {what} on one side; give one of them")
    if len({(bool(item.first_image), bool(item.second_image)) for item in items}) != 1:
        raise TemplateError("a page of ratings has pairs of one task only, and at least one")
    has_images = any(item.first_image or item.second_image for item in items)
    return render(template, estimate_s, contact, items=items, has_images=has_images)


N_CONTROLS = 3
"""Of a page that has any."""
MAX_PER_HIT = 20
"""Pairs of one HIT, controls included; more do not fit into a question with images."""
_LOOK_AHEAD = 40
"""Pairs among which the next one of a page is looked for that shares no item with those on it."""

TwoItems = tuple[int, int]
"""The numbers of a pair's items, left and right."""


@dataclass(frozen=True, slots=True)
class RatingControls:
    """Pairs whose answer is known within bounds; every page takes one of each, in turn."""

    identical: Sequence[TwoItems]
    unrelated: Sequence[TwoItems]


def n_pages(n_pairs: int, per_hit: int, *, controlled: bool) -> int:
    """How many pages so many pairs fill."""
    return -(-n_pairs // (per_hit - N_CONTROLS * controlled))


def pack_ratings(
    pairs: Sequence[TwoItems],
    task: Likeness,
    controls: RatingControls | None,
    *,
    seed: int,
    per_hit: int,
) -> list[Page[SimilarityQuestion]]:
    """The pairs on as few pages as hold them, evenly, with controls; numbers from 1.

    An item stands on a page once where that can be, and a pair once but for the one that is repeated.

    Args:
        controls: what to choose from; None leaves controls out.

    Raises:
        PackingError: a page has no room beside its controls, or no control is left that is not on the page.
    """
    room = per_hit - N_CONTROLS * (controls is not None)
    if not 0 < room <= per_hit <= MAX_PER_HIT:
        raise PackingError(
            f"a HIT of {per_hit} pairs{'' if controls is None else f' with {N_CONTROLS} controls'}; it has 1 to "
            f"{MAX_PER_HIT}, and at least one that is not a control"
        )
    sides = _Sides(task, pairs, seed)
    count = n_pages(len(pairs), per_hit, controlled=controls is not None)
    pages = []
    for number, on_page in enumerate(_deal(pairs, count, task), 1):
        asked = [sides.question(pair, SimilarityRole.ASKED) for pair in on_page]
        checks = [] if controls is None else _checks(sides, on_page, controls, number - 1)
        order = shuffled([*asked, *checks], seed, f"places {task} {number}", name=_name)
        if controls is not None:
            order = _with_repetition(order, sides.changes, seed, f"repetition {task} {number}")
        placed = tuple(replace(item, place=place) for place, item in enumerate(order, 1))
        pages.append(Page(number, placed))
    return pages


class _Sides:
    """Which item of a pair is shown first."""

    def __init__(self, task: Likeness, pairs: Sequence[TwoItems], seed: int) -> None:
        self.task, self._seed = task, seed
        self.changes = task.sides[0] == task.sides[1]
        mixed = shuffled(pairs, seed, f"sides {task}") if self.changes else []
        # Which side comes first once more, where the number of pairs is odd, is drawn too.
        first = draw_below(2, seed, f"first side {task}")
        self._swapped = {pair: (place + first) % 2 == 1 for place, pair in enumerate(mixed)}

    def question(self, pair: TwoItems, role: SimilarityRole, *, place: int = 0) -> SimilarityQuestion:
        """A pair without its place; one that is not among those asked gets its sides by a draw of its own."""
        swapped = self._swapped.get(pair)
        if swapped is None:
            mixes = self.changes and pair[0] != pair[1]
            swapped = mixes and draw_below(2, self._seed, f"control side {self.task}", place, *pair) == 1
        return SimilarityQuestion(0, self.task, role, *pair, swapped)


def _deal(pairs: Sequence[TwoItems], count: int, task: Likeness) -> list[list[TwoItems]]:
    """On so many pages of nearly equal size; an item twice on a page only where none of the next pairs is without."""
    queue = deque(pairs)
    pages = []
    for number in range(count):
        size = len(pairs) // count + (number < len(pairs) % count)
        page: list[TwoItems] = []
        for _ in range(size):
            ahead = min(len(queue), _LOOK_AHEAD)
            place = next((place for place in range(ahead) if not _shares_item(queue[place], page, task)), 0)
            page.append(queue[place])
            del queue[place]
        pages.append(page)
    return pages


def _shares_item(pair: TwoItems, page: Sequence[TwoItems], task: Likeness) -> bool:
    """Whether an item of the pair stands on the page; numbers count within sides."""
    if task.sides[0] != task.sides[1]:
        return any(pair[0] == left or pair[1] == right for left, right in page)
    return any(item in other for other in page for item in pair)


def _checks(
    sides: _Sides, page: Sequence[TwoItems], controls: RatingControls, turn: int
) -> list[SimilarityQuestion]:
    """An identical and an unrelated pair, each with items of their own where that can be."""
    chosen: list[TwoItems] = []
    for pool in (controls.identical, controls.unrelated):
        order = [pool[(turn + step) % len(pool)] for step in range(min(len(pool), _LOOK_AHEAD))]
        free = [pair for pair in order if pair not in page and pair not in chosen]
        if not free:
            raise PackingError(
                f"no control is left that page {turn + 1} does not ask; leave controls out with --controls none"
            )
        apart = (pair for pair in free if not _shares_item(pair, [*page, *chosen], sides.task))
        chosen.append(next(apart, free[0]))
    identical, unrelated = chosen
    return [
        sides.question(identical, SimilarityRole.IDENTICAL, place=turn),
        sides.question(unrelated, SimilarityRole.RANDOM, place=turn),
    ]


def _with_repetition(
    order: Sequence[SimilarityQuestion], changes: bool, seed: int, stream: str
) -> list[SimilarityQuestion]:
    """The page with one of its asked pairs once more, later and never next to its first showing."""
    asked = [place for place, item in enumerate(order) if item.role is SimilarityRole.ASKED]
    early = [place for place in asked if place + 2 <= len(order)]
    if not early:  # the one asked pair stands last
        order = [order[-1], *order[:-1]]
        early = [0]
    # From the first half, where there is one, so that something lies between the two.
    half = [place for place in early if 2 * place < len(order)] or early
    place = half[draw_below(len(half), seed, stream, "which")]
    at = place + 2 + draw_below(len(order) - place - 1, seed, stream, "where")
    again = replace(order[place], role=SimilarityRole.REPEATED, swapped=order[place].swapped is not changes)
    return [*order[:at], again, *order[at:]]


def _name(item: SimilarityQuestion) -> str:
    return f"{item.role} {item.left}:{item.right}"


def check_page(items: Sequence[SimilarityQuestion], name: str) -> None:
    """Compare what stands on a HIT with the packing rules, whoever packed it.

    Raises:
        PackingError: tasks are mixed, a pair is asked twice, the controls are neither one of each nor none, or the
            repeated pair is not asked or follows its first showing at once.
    """
    if len({item.task for item in items}) > 1:
        raise PackingError(f"HIT {name} mixes tasks; {DEFECT}")
    once = [item.pair for item in items if item.role is not SimilarityRole.REPEATED]
    asked = {item.pair: item.place for item in items if item.role is SimilarityRole.ASKED}
    if len(set(once)) < len(once) or not asked:
        raise PackingError(f"HIT {name} shows a pair twice, or asks none; {DEFECT}")
    roles = Counter(item.role for item in items if item.role is not SimilarityRole.ASKED)
    if roles and (len(roles), roles.total()) != (N_CONTROLS, N_CONTROLS):
        raise PackingError(
            f"HIT {name} has {roles.total()} controls, but one of each kind is needed; {DEFECT}"
        )
    for item in items:
        if item.role is SimilarityRole.REPEATED and item.place - asked.get(item.pair, item.place) < 2:
            raise PackingError(f"HIT {name} repeats what it does not ask, or asked just before; {DEFECT}")

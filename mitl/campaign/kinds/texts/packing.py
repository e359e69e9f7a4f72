"""Items to be described, captions to pick for and texts to review: pages by the seed, and as workers see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from mitl.campaign.kinds.texts.answers import language_rule
from mitl.errors import PackingError, TemplateError
from mitl.hits.rendering import render
from mitl.hits.templates import HitTemplate
from mitl.proposals.sampling import shuffled
from mitl.records import CollectionRole, Page
from mitl.records.collection import EXAMPLES, CollectionQuestion, TextRules


@dataclass(frozen=True, slots=True)
class ShownItem:
    """What stands at one place (from 1) of a page."""

    place: int
    image: str
    """The image's address, root-relative (``/i/…``) or absolute https; empty where images are offered."""
    text: str = ""
    """What is shown beside it; empty where a text is to be written."""
    offered: tuple[str, ...] = ()
    """Addresses of the images that may be picked."""

    @property
    def shown(self) -> list[str]:
        """The texts and addresses that are its own, in the order of the page."""
        return [part for part in (self.image, self.text, *self.offered) if part]


def render_texts(
    template: HitTemplate,
    items: Sequence[ShownItem],
    task: CollectionRole,
    rules: TextRules | None,
    *,
    contact: str | None,
    estimate_s: int,
) -> str:
    """As `mitl.hits.rendering.render`, items in the order given.

    Args:
        rules: what a text must keep to; None where none is written.

    Raises:
        TemplateError: the template is broken or meant for another task.
    """
    if (rules is None) is (task is CollectionRole.WRITE):
        raise TemplateError(f"a page to {task} has {'no' if rules is None else 'some'} rules for texts")
    language = {} if rules is None else language_rule(rules.language)
    shown = {"items": items, "task": task.value, "rules": rules, "language": language, "examples": EXAMPLES}
    return render(template, estimate_s, contact, **shown)


N_CONTROLS = 2
"""Of a page of reviews: one text that is known to match, one that is known not to."""
MAX_PER_HIT = 20


def deal(questions: Sequence[CollectionQuestion], room: int) -> list[list[CollectionQuestion]]:
    """The questions on as few pages as hold them, evenly and in order."""
    count = -(-len(questions) // room)
    sizes = [len(questions) // count + (page < len(questions) % count) for page in range(count)]
    rest = iter(questions)
    return [list(islice(rest, size)) for size in sizes]


def pack_texts(
    questions: Sequence[CollectionQuestion],
    controls: Sequence[tuple[CollectionQuestion, CollectionQuestion]],
    *,
    per_hit: int,
    seed: int,
) -> list[Page[CollectionQuestion]]:
    """Pages numbered from 1, places counted from 1; where there are controls, each page takes a pair of them in turn.

    Raises:
        PackingError: no room is left beside the controls.
    """
    room = per_hit - N_CONTROLS * bool(controls)
    if not 0 < room <= per_hit <= MAX_PER_HIT:
        beside = f" beside {N_CONTROLS} controls" if controls else ""
        raise PackingError(f"a HIT of {per_hit} leaves nothing to ask{beside}; it has up to {MAX_PER_HIT}")
    pages = []
    for number, on_page in enumerate(deal(questions, room), 1):
        checks = controls[(number - 1) % len(controls)] if controls else ()
        mixed = (
            shuffled(
                [*on_page, *checks], seed, f"reviews {number}", name=lambda q: (q.image, q.caption, q.text)
            )
            if checks
            else on_page
        )
        placed = tuple(replace(question, place=place) for place, question in enumerate(mixed, 1))
        pages.append(Page(number, placed))
    return pages


def check_page(items: Sequence[CollectionQuestion], hit: str) -> None:
    """Hold a page against the packing rules, whoever packed it.

    Raises:
        PackingError: tasks are mixed, or the controls are not one of each kind.
    """
    roles = {item.role for item in items}
    if len(roles - {CollectionRole.CONTROL}) != 1:
        raise PackingError(f"HIT {hit} asks for {sorted(roles)}; one task stands on a page")
    golds = sorted(item.matches for item in items if item.matches is not None)
    if golds != ([False, True] if CollectionRole.REVIEW in roles else []):
        raise PackingError(
            f"HIT {hit} has the controls {golds}; reviews have one of each kind, other pages none"
        )

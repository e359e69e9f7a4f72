"""Pages of comparisons: two rankings of one query side by side, whose they are being told nowhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mitl.errors import TemplateError
from mitl.hits.rendering import check_image_src, render
from mitl.hits.templates import HitTemplate
from mitl.records import Comparison, Direction


@dataclass(frozen=True, slots=True)
class PageResult:
    """One result of a list as a worker sees it."""

    text: str
    """A caption; empty where the results are images."""
    image_src: str
    """Root-relative (``/i/…``) or absolute https; empty where the results are captions."""
    both: bool
    """Whether the other list shows it too."""


@dataclass(frozen=True, slots=True)
class PageComparison:
    """What a worker sees at one place (from 1) of a page; nothing here tells a control from what is asked."""

    place: int
    query_text: str
    """The caption that was searched for; empty where an image was."""
    query_image: str
    """Its address; empty where a caption was searched for."""
    left: tuple[PageResult, ...]
    right: tuple[PageResult, ...]

    @property
    def image_sources(self) -> list[str]:
        """The addresses of all images, in the order of the page."""
        results = [result.image_src for result in (*self.left, *self.right)]
        return [source for source in (self.query_image, *results) if source]

    @property
    def shown(self) -> list[str]:
        """All texts and addresses that are this comparison's own, in the order of the page."""
        results = [result.text or result.image_src for result in (*self.left, *self.right)]
        return [self.query_text or self.query_image, *results]


def page_comparison(item: Comparison, texts: Mapping[int, str], sources: Mapping[int, str]) -> PageComparison:
    """A comparison with its captions' texts and its images' addresses."""
    of_images = item.direction is Direction.T2I
    return PageComparison(
        place=item.place,
        query_text=texts[item.query_id] if of_images else "",
        query_image="" if of_images else sources[item.query_id],
        left=_results(item.left_items, item.right_items, texts, sources, of_images),
        right=_results(item.right_items, item.left_items, texts, sources, of_images),
    )


def render_rankings(
    template: HitTemplate, comparisons: Sequence[PageComparison], *, contact: str | None, estimate_s: int
) -> str:
    """The page as self-contained HTML, comparisons in the order given.

    Args:
        contact: whom workers may write to, shown as text.
        estimate_s: honest working time of the page.

    Raises:
        TemplateError: the template is broken, a place occurs twice or is not 1 to 99, an image's address cannot be
            shown, or images and captions are searched on one page.
    """
    places = [one.place for one in comparisons]
    if len(set(places)) != len(places) or not all(1 <= place <= 99 for place in places):
        raise TemplateError(f"places must differ and lie in 1 to 99, but are {places}")
    sides = {bool(one.query_text) for one in comparisons}
    if len(sides) != 1:
        raise TemplateError("a page of rankings has searches of one direction only, and at least one")
    for one in comparisons:
        for source in one.image_sources:
            check_image_src(source)
    return render(template, estimate_s, contact, comparisons=comparisons, of_images=sides.pop())


def _results(
    items: Sequence[int],
    others: Sequence[int],
    texts: Mapping[int, str],
    sources: Mapping[int, str],
    of_images: bool,
) -> tuple[PageResult, ...]:
    return tuple(
        PageResult("" if of_images else texts[item], sources[item] if of_images else "", item in others)
        for item in items
    )

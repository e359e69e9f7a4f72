"""Pages on which people rate how alike two items are, as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mitl.errors import TemplateError
from mitl.hits.rendering import check_image_src, render
from mitl.hits.templates import HitTemplate


@dataclass(frozen=True, slots=True)
class PageItem:
    """What a worker sees at one place (from 1) of a page; nothing here tells a control from a pair that is asked."""

    place: int
    first_text: str
    """A caption; empty where the first item is an image."""
    first_image: str
    """An image's address, root-relative (``/i/…``) or absolute https; empty where the first item is a caption."""
    second_text: str
    second_image: str

    @property
    def image_sources(self) -> list[str]:
        """The addresses of its images, in the order of the page."""
        return [source for source in (self.first_image, self.second_image) if source]

    @property
    def shown(self) -> list[str]:
        """The texts and addresses that are its own, in the order of the page."""
        return [self.first_text or self.first_image, self.second_text or self.second_image]


def render_similarity(
    template: HitTemplate, items: Sequence[PageItem], *, contact: str | None, estimate_s: int
) -> str:
    """The page as self-contained HTML, items in the order given.

    Args:
        contact: whom workers may write to, shown as text.
        estimate_s: honest working time of the page.

    Raises:
        TemplateError: the template is broken, a place occurs twice or is not 1 to 99, a side shows nothing or both a
            text and an image, the items are not all of one task, or an image's address cannot be shown.
    """
    places = [item.place for item in items]
    if len(set(places)) != len(places) or not all(1 <= place <= 99 for place in places):
        raise TemplateError(f"places must differ and lie in 1 to 99, but are {places}")
    for item in items:
        for text, image in ((item.first_text, item.first_image), (item.second_text, item.second_image)):
            if bool(text) == bool(image):
                what = "a text and an image" if text else "neither a text nor an image"
                raise TemplateError(f"place {item.place} has {what} on one side; give one of them")
        for source in item.image_sources:
            check_image_src(source)
    if len({(bool(item.first_image), bool(item.second_image)) for item in items}) != 1:
        raise TemplateError("a page of ratings has pairs of one task only, and at least one")
    return render(
        template, estimate_s, contact, items=items, has_images=any(item.image_sources for item in items)
    )

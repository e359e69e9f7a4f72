"""The pages of HITs as questions: wordings, pictures and captions, loaded once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sqlalchemy.orm import Session

from mitl.db.store import items as item_store
from mitl.db.store.hits import BatchRow
from mitl.hits.rendering import PagePair, check_size, question_xml, render_page
from mitl.hits.templates import HitTemplate, load_template
from mitl.progress import Progress
from mitl.records import CaptionItem, HitItem
from mitl.settings import Settings
from mitl.stages.pictures import picture_sources
from mitl.stages.planning import Plan


def templates_of(batches: Mapping[int, BatchRow], folder: Path) -> dict[int, HitTemplate]:
    """Batch → its wording, each loaded once."""
    names = {batch.template for batch in batches.values()}
    loaded = {name: load_template(name, folder) for name in names}
    return {id_: loaded[batch.template] for id_, batch in batches.items()}


class Pages:
    """Renders questions; pictures and captions are loaded once."""

    def __init__(
        self,
        session: Session,
        settings: Settings,
        progress: Progress,
        *,
        write: bool,
    ) -> None:
        dataset = item_store.dataset(session)
        self._settings = settings
        self._images = {i.id: i for i in item_store.images(session, dataset.id, settings.project)}
        self._captions: dict[int, CaptionItem] = {c.id: c for c in item_store.captions(session, dataset.id)}
        self._sources: dict[int, str] = {}
        self._progress = progress
        self._write = write
        session.rollback()

    def prepare(self, pages: Sequence[Sequence[HitItem]]) -> None:
        """Make the pictures of these pages available."""
        wanted = sorted({item.pair.image_id for page in pages for item in page} - self._sources.keys())
        images = [self._images[image] for image in wanted]
        self._sources.update(picture_sources(self._settings, images, self._progress, write=self._write))

    def question(self, items: Sequence[HitItem], template: HitTemplate) -> str:
        """The question of one page as XML, its size checked."""
        pairs = [
            PagePair(
                item.place,
                self._sources[item.pair.image_id],
                self._captions[item.pair.caption_id].text,
            )
            for item in items
        ]
        html = render_page(
            template, pairs, contact=self._settings.contact, estimate_s=len(pairs) * template.seconds_per_pair
        )
        xml = question_xml(html)
        check_size(xml)
        return xml

    def measure(self, plan: Plan, fresh: HitTemplate, templates: Mapping[int, HitTemplate]) -> int:
        """Render every page of a plan under its own wording; returns the largest question's size in bytes.

        Raises:
            TemplateError: a page is too large.
            DatasetError: a page's picture cannot be shown.
        """
        self.prepare(plan.pages)
        pages = [(page.items, fresh) for page in plan.fresh]
        pages += [(one.page.items, templates[one.replaces.batch_id]) for one in plan.again]
        pages += [(tuple(plan.leftover_pages[hit.id]), templates[hit.batch_id]) for hit in plan.leftover]
        with self._progress("render", len(pages)) as advance:
            largest = 0
            for items, template in pages:
                largest = max(largest, len(self.question(items, template).encode()))
                advance(1)
        return largest

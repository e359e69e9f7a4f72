"""The pages of comparisons as questions: pictures and captions loaded once, each page rendered and checked."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

from markupsafe import escape as as_markup
from sqlalchemy.orm import Session

from mitl.db.store import items as item_store
from mitl.hits.ranking_pages import page_comparison, render_rankings
from mitl.hits.rendering import question_xml
from mitl.hits.templates import HitTemplate
from mitl.hits.validation import PageChecker, check_question
from mitl.progress import Progress
from mitl.records import Comparison, Direction, Preference
from mitl.settings import Settings
from mitl.stages.publishing.pictures import picture_sources

_SRC = re.compile(r'(?<=src=")([^"]*)(?=")')


class RankingPages:
    """Renders questions of comparisons."""

    def __init__(self, session: Session, settings: Settings, progress: Progress, *, write: bool) -> None:
        """Args: write: whether pictures are made ready to be shown, in the project's public folder."""
        dataset = item_store.dataset(session)
        self._settings, self._progress, self._write = settings, progress, write
        self._images = {i.id: i for i in item_store.images(session, dataset.id, settings.project)}
        self._texts = {c.id: c.text for c in item_store.captions(session, dataset.id)}
        self._sources: dict[int, str] = {}
        self._checker = PageChecker()
        session.rollback()

    def prepare(self, pages: Sequence[Sequence[Comparison]]) -> None:
        """Make the pictures of these pages available."""
        wanted = {
            image for page in pages for item in page for image in _images_of(item)
        } - self._sources.keys()
        images = [self._images[image] for image in sorted(wanted)]
        self._sources.update(picture_sources(self._settings, images, self._progress, write=self._write))

    @property
    def sources(self) -> dict[str, str]:
        """External id of an image that was prepared → the address under which pages show it."""
        return {self._images[id_].external_id: source for id_, source in self._sources.items()}

    def files(self) -> dict[str, Path]:
        """External id → the picture's own file, of those that were prepared and lie here."""
        images = [self._images[id_] for id_ in self._sources]
        return {i.external_id: i.path for i in images if i.path is not None and i.path.is_file()}

    def html(self, page: Sequence[Comparison], template: HitTemplate) -> str:
        """One page, checked.

        Raises:
            TemplateError: it is malformed, or a comparison cannot be answered.
        """
        shown = [page_comparison(item, self._texts, self._sources) for item in page]
        seconds = len(page) * template.seconds_per_pair
        html = render_rankings(template, shown, contact=self._settings.contact, estimate_s=seconds)
        own = [str(as_markup(text)) for one in shown for text in one.shown]
        places = [item.place for item in page]
        self._checker.check(html, places, own, template.name, kind="prefer", choices=tuple(Preference))
        return html

    def question(self, page: Sequence[Comparison], template: HitTemplate) -> str:
        """One page as XML.

        Raises:
            TemplateError: it is malformed or too large.
        """
        html = self.html(page, template)
        xml = question_xml(html)
        check_question(xml, html)
        return xml

    def local_html(self, page: Sequence[Comparison], template: HitTemplate, folder: Path) -> str:
        """One page with its pictures taken from where they lie, to be looked at in ``folder``."""
        sources, files = self.sources, self.files()
        near = {escape(sources[name]): quote(os.path.relpath(file, folder)) for name, file in files.items()}
        return _SRC.sub(lambda found: near.get(found[1], found[1]), self.html(page, template))


def _images_of(item: Comparison) -> tuple[int, ...]:
    return (item.query_id,) if item.direction is Direction.I2T else (*item.left_items, *item.right_items)

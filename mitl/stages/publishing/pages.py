"""The pages of HITs as questions: wordings, pictures and captions loaded once, each page rendered and checked once."""

from __future__ import annotations

import tempfile
import threading
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import escape
from sqlalchemy.orm import Session

from mitl.db.store import items as item_store
from mitl.db.store.hits import BatchRow
from mitl.hits.rendering import PagePair, question_xml, render_page
from mitl.hits.templates import HitTemplate, load_template
from mitl.hits.validation import PageChecker, check_question
from mitl.progress import Progress
from mitl.records import CaptionItem, HitItem, ImageItem
from mitl.settings import Settings
from mitl.stages.publishing.pictures import picture_sources
from mitl.stages.publishing.pilot import PAIRS_PER_HIT, template_seconds

_IN_MEMORY = 64 * 1024 * 1024
"""Bytes of packed questions that are kept in memory; more go to a temporary file."""


@dataclass(frozen=True, slots=True)
class Wording:
    """In what words a batch asks, and how long a HIT of 20 pairs is said to take."""

    template: HitTemplate
    estimate_s: int


def wordings_of(batches: Mapping[int, BatchRow], folder: Path) -> dict[int, Wording]:
    """Batch → its wording, each template loaded once."""
    loaded = {name: load_template(name, folder) for name in {row.template for row in batches.values()}}
    return {
        id_: Wording(loaded[row.template], row.estimate_s or template_seconds(loaded[row.template]))
        for id_, row in batches.items()
    }


class Pages:
    """Renders questions. What was rendered is kept until the end, so that what is posted is what was checked."""

    def __init__(self, session: Session, settings: Settings, progress: Progress, *, write: bool) -> None:
        """Args: write: whether pictures are made ready to be shown, in the project's public folder."""
        dataset = item_store.dataset(session)
        self._settings, self._progress, self._write = settings, progress, write
        self._images = {i.id: i for i in item_store.images(session, dataset.id, settings.project)}
        self._captions: dict[int, CaptionItem] = {c.id: c for c in item_store.captions(session, dataset.id)}
        self._sources: dict[int, str] = {}
        self._checker = PageChecker()
        self._kept: dict[tuple[object, ...], tuple[int, int]] = {}
        self._store = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - closed with the pages
        self._lock = threading.Lock()
        session.rollback()

    def close(self) -> None:
        """Give the kept questions up."""
        self._store.close()

    def prepare(self, pages: Sequence[Sequence[HitItem]]) -> None:
        """Make the pictures of these pages available."""
        wanted = sorted({item.pair.image_id for page in pages for item in page} - self._sources.keys())
        images = [self._images[image] for image in wanted]
        self._sources.update(picture_sources(self._settings, images, self._progress, write=self._write))

    @property
    def sources(self) -> dict[str, str]:
        """External id of an image that was prepared → the address under which pages show it."""
        return {self._images[id_].external_id: source for id_, source in self._sources.items()}

    def files(self) -> dict[str, Path]:
        """External id → the picture's own file, of those that were prepared and lie here."""
        return {image.external_id: image.path for image in self._with_files() if image.path is not None}

    def files_by_source(self) -> dict[str, Path]:
        """Address on the pages → the picture's own file."""
        return {self._sources[image.id]: image.path for image in self._with_files() if image.path is not None}

    def _with_files(self) -> list[ImageItem]:
        images = [self._images[id_] for id_ in self._sources]
        return [image for image in images if image.path is not None and image.path.is_file()]

    def question(self, items: Sequence[HitItem], wording: Wording) -> str:
        """The question of one page as XML, checked when it is rendered; any thread may ask.

        Raises:
            TemplateError: the page is malformed or too large.
        """
        key = (wording.template.name, wording.template.content_hash, wording.estimate_s, *items)
        with self._lock:
            at = self._kept.get(key)
            if at is None:
                xml = self._render(items, wording)
                self._kept[key] = self._keep(xml)
                return xml
            self._store.seek(at[0])
            return zlib.decompress(self._store.read(at[1])).decode()

    def _keep(self, xml: str) -> tuple[int, int]:
        packed = zlib.compress(xml.encode(), 1)
        start = self._store.seek(0, 2)
        self._store.write(packed)
        return start, len(packed)

    def _render(self, items: Sequence[HitItem], wording: Wording) -> str:
        pairs = [
            PagePair(
                item.place,
                self._sources[item.pair.image_id],
                self._captions[item.pair.caption_id].text,
            )
            for item in items
        ]
        html = render_page(
            wording.template,
            pairs,
            contact=self._settings.contact,
            estimate_s=-(-len(pairs) * wording.estimate_s // PAIRS_PER_HIT),
        )
        shown = [str(escape(text)) for pair in pairs for text in (pair.image_src, pair.caption)]
        self._checker.check(html, [pair.place for pair in pairs], shown, wording.template.name)
        xml = question_xml(html)
        check_question(xml, html)
        return xml

"""The pages of HITs as questions: pictures and captions loaded once, each page rendered and checked once."""

from __future__ import annotations

import tempfile
import threading
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from markupsafe import escape
from sqlalchemy.orm import Session

from mitl.campaign.kinds.protocol import CampaignKind, Shown, Wording
from mitl.campaign.pictures import picture_sources
from mitl.db.store import items as item_store
from mitl.hits.rendering import question_xml
from mitl.hits.validation import PageChecker, check_question
from mitl.progress import Progress
from mitl.settings import Settings

_IN_MEMORY = 64 * 1024 * 1024
"""Bytes of packed questions that are kept in memory; more go to a temporary file."""


class Pages:
    """Renders questions. What was rendered is kept until the end, so that what is posted is what was checked."""

    def __init__(
        self,
        session: Session,
        settings: Settings,
        kind: CampaignKind[Any, Any],
        progress: Progress,
        *,
        write: bool,
    ) -> None:
        """Args: write: whether pictures are made ready to be shown, in the project's public folder."""
        dataset = item_store.dataset(session)
        self._settings, self._kind, self._progress, self._write = settings, kind, progress, write
        self._images = {i.id: i for i in item_store.images(session, dataset.id, settings.project)}
        self._captions = {c.id: c.text for c in item_store.captions(session, dataset.id)}
        self._sources: dict[int, str] = {}
        self._checker = PageChecker()
        self._kept: dict[tuple[object, ...], tuple[int, int]] = {}
        self._store = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - closed with the pages
        self._lock = threading.Lock()
        session.rollback()

    def close(self) -> None:
        """Give the kept questions up."""
        self._store.close()

    def prepare(self, pages: Iterable[Sequence[Any]]) -> None:
        """Make the pictures of these pages available."""
        shown = {image for page in pages for item in page for image in self._kind.images(item)}
        images = [self._images[image] for image in sorted(shown - self._sources.keys())]
        self._sources.update(picture_sources(self._settings, images, self._progress, write=self._write))

    @property
    def sources(self) -> dict[str, str]:
        """External id of an image that was prepared → the address under which pages show it."""
        return {self._images[id_].external_id: source for id_, source in self._sources.items()}

    def files(self) -> dict[str, Path]:
        """External id → the picture's own file, of those that were prepared and lie here."""
        images = [self._images[id_] for id_ in self._sources]
        return {i.external_id: i.path for i in images if i.path is not None and i.path.is_file()}

    def question(self, items: Sequence[Any], wording: Wording) -> str:
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

    def _render(self, items: Sequence[Any], wording: Wording) -> str:
        shown = Shown(self._captions, self._sources, self._settings.contact)
        html, texts = self._kind.render(items, wording, shown)
        self._checker.check(
            html,
            [item.place for item in items],
            [str(escape(text)) for text in texts],
            wording.template.name,
            kind=self._kind.answer_field,
            choices=self._kind.choices,
        )
        xml = question_xml(html)
        check_question(xml, html)
        return xml

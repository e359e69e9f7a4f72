"""Posting the HITs of one environment, each under its batch's terms."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from mitl.crowd.client import MTurkClient
from mitl.db.store import hits as hit_store
from mitl.db.store.hits import HitRow
from mitl.errors import CrowdError
from mitl.progress import Progress
from mitl.records import Environment
from mitl.settings import Settings
from mitl.stages.harvesting.exclusion import exclusion_qualification
from mitl.stages.publishing.hit_calls import create_hit_type
from mitl.stages.publishing.pages import Pages, wordings_of
from mitl.stages.publishing.posting import post
from mitl.stages.publishing.purse import Purse


class Poster:
    """Posts the HITs of one environment, each under its batch's terms."""

    def __init__(
        self,
        session: Session,
        settings: Settings,
        client: MTurkClient,
        pages: Pages,
        purse: Purse,
        *,
        in_order: bool,
    ) -> None:
        self._session, self._settings, self._client = session, settings, client
        self._pages, self._purse, self._in_order = pages, purse, in_order

    def run(self, environment: Environment, hits: Sequence[HitRow], progress: Progress) -> int:
        """Create these HITs; returns how many."""
        wanted = {hit.batch_id for hit in hits}
        batches = {row.id: row for row in hit_store.batches(self._session, environment) if row.id in wanted}
        items = hit_store.hit_items(self._session, [hit.id for hit in hits])
        self._session.rollback()
        wordings = wordings_of(batches, self._settings.wordings)
        self._pages.prepare(list(items.values()))
        guard = exclusion_qualification(self._client, self._settings.project_id)
        types = {
            id_: create_hit_type(self._client, wordings[id_].template, row.reward_cents, guard)
            for id_, row in sorted(batches.items())
        }
        return post(
            self._session,
            self._client,
            self._settings.project_id,
            hits,
            hit_type_of=lambda hit: types[hit.batch_id],
            question_of=lambda hit: self._pages.question(items[hit.id], wordings[hit.batch_id]),
            in_order=self._in_order,
            before_window=lambda window: self._purse.recheck(),
            progress=progress,
        )


def require_all(posted: int, planned: int) -> None:
    """CrowdError where HITs were left behind."""
    if posted < planned:
        raise CrowdError(f"{posted} of {planned} HITs were posted; run the command again to go on")

"""Parsing stored submissions, once each, whoever fetched them and whatever they answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from mitl.campaign.kinds import kind_of, wording_of
from mitl.campaign.kinds.protocol import CampaignKind
from mitl.db.store import hits as hit_store
from mitl.db.store import parses as parse_store
from mitl.db.store.hits import BatchRow
from mitl.db.store.parses import RawSubmission
from mitl.db.store.statements import chunks
from mitl.errors import AnswerError
from mitl.progress import Progress
from mitl.records import BatchKind, Environment, Finding, JudgementSource, Parsed
from mitl.records.questions import Question

WINDOW = 64
"""Submissions whose parses are written in one transaction."""


class Parser:
    """Parses stored submissions of one environment."""

    def __init__(
        self,
        session: Session,
        environment: Environment,
        batches: Mapping[int, BatchRow],
        wordings: Path,
    ) -> None:
        self._session, self._environment = session, environment
        own = [batch for batch in batches.values() if batch.source is JudgementSource.CROWD]
        self._kinds = [kind_of(name) for name in sorted({BatchKind.PAIRS.value, *(b.kind for b in own)})]
        asks = {
            (batch.template, batch.kind): wording_of(batch.kind, batch.template, wordings).questions
            for batch in own
        }
        self._questions = {batch.id: asks[batch.template, batch.kind] for batch in own}
        self._pages: dict[int, tuple[tuple[Question, ...], list[int]]] = {}

    def parse_left(self) -> int:
        """Parse what a run stored and died over; returns how many submissions that were."""
        count = 0
        for kind in self._kinds:
            left = kind.unparsed(self._session, self._environment)
            self._session.rollback()
            for window in chunks(list(left.values()), WINDOW):
                self._parse(kind, window)
            count += len(left)
        return count

    def parse(self, rows: Sequence[RawSubmission]) -> None:
        """Parse these submissions and commit; one that somebody else has parsed meanwhile is left alone."""
        asked = hit_store.other_kinds(self._session, self._environment)
        for kind in self._kinds:
            if own := [row for row in rows if asked.get(row.hit_id, BatchKind.PAIRS) == kind.name]:
                self._parse(kind, own)

    def reparse(self, progress: Progress) -> int:
        """Read every raw document again, in the transaction at hand; returns how many."""
        ids = {kind.name: kind.submissions(self._session, self._environment) for kind in self._kinds}
        count = sum(map(len, ids.values()))
        with progress("reparse", count) as advance:
            for kind in self._kinds:
                for window in chunks(ids[kind.name], WINDOW):
                    rows = parse_store.raw(self._session, window)
                    kind.set_parses(self._session, self._parsed(kind, rows))
                    advance(len(rows))
        return count

    def _parse(self, kind: CampaignKind[Any, Any], rows: Sequence[RawSubmission]) -> None:
        parsed = self._parsed(kind, rows)
        self._session.rollback()
        still = kind.unparsed(self._session, self._environment, list(parsed))
        kind.set_parses(self._session, {id_: parsed[id_] for id_ in still})
        self._session.commit()

    def _parsed(self, kind: CampaignKind[Any, Any], rows: Sequence[RawSubmission]) -> dict[int, Parsed[Any]]:
        """What these submissions say; one that cannot be read at all says so as a finding."""
        new = sorted({row.hit_id for row in rows} - self._pages.keys())
        for hit_id, (batch_id, places) in kind.places(self._session, new).items():
            self._pages[hit_id] = self._questions[batch_id], places
        parsed = {}
        for row in rows:
            questions, places = self._pages[row.hit_id]
            try:
                parsed[row.id] = kind.parse(row.raw_xml, places=places, questions=questions)
            except AnswerError as error:
                parsed[row.id] = Parsed((), (Finding(parse_store.UNREADABLE, str(error)),))
        return parsed

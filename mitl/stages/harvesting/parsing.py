"""Parsing stored submissions, once each, whoever fetched them; those of pages of rankings are handed on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sqlalchemy.orm import Session

from mitl.crowd.answers import parse_answers
from mitl.db.store import comparisons as comparison_store
from mitl.db.store import parses as parse_store
from mitl.db.store.bulk import chunks
from mitl.db.store.hits import BatchRow
from mitl.db.store.parses import RawSubmission
from mitl.errors import AnswerError
from mitl.hits.templates import load_template
from mitl.records import Environment, Finding, JudgementSource, ParsedAnswers
from mitl.stages.preferring.parsing import ComparisonParser

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
        asks = {name: load_template(name, wordings).rationale for name in {one.template for one in own}}
        self._rationale = {batch.id: asks[batch.template] for batch in own}
        self.comparisons = ComparisonParser(session, environment, self._rationale)
        self._pages: dict[int, tuple[bool, list[int]]] = {}

    def parse_left(self) -> int:
        """Parse what a run stored and died over; returns how many submissions that were."""
        left = parse_store.unparsed(self._session, self._environment)
        self._session.rollback()
        for window in chunks(list(left.values()), WINDOW):
            self.parse_pairs(window)
        return len(left) + self.comparisons.parse_left()

    def parse(self, rows: Sequence[RawSubmission]) -> None:
        """Parse these submissions and commit; one that somebody else has parsed meanwhile is left alone."""
        of_rankings = comparison_store.hit_ids(self._session, self._environment)
        if pairs := [row for row in rows if row.hit_id not in of_rankings]:
            self.parse_pairs(pairs)
        if compared := [row for row in rows if row.hit_id in of_rankings]:
            self.comparisons.parse(compared)

    def parse_pairs(self, rows: Sequence[RawSubmission]) -> None:
        """The same of submissions of pages of pairs."""
        parsed = {row.id: one for row, one in zip(rows, self.parsed(rows), strict=True)}
        self._session.rollback()
        still = parse_store.unparsed(self._session, self._environment, list(parsed))
        parse_store.set_parses(self._session, {id_: parsed[id_] for id_ in still})
        self._session.commit()

    def parsed(self, rows: Sequence[RawSubmission]) -> list[ParsedAnswers]:
        """What these submissions say, in their order; one that cannot be read at all says so as a finding."""
        new = sorted({row.hit_id for row in rows} - self._pages.keys())
        for hit_id, (batch_id, places) in parse_store.places(self._session, new).items():
            self._pages[hit_id] = self._rationale[batch_id], places
        found = []
        for row in rows:
            rationale, places = self._pages[row.hit_id]
            try:
                found.append(parse_answers(row.raw_xml, places=places, rationale=rationale))
            except AnswerError as error:
                found.append(ParsedAnswers((), (Finding(parse_store.UNREADABLE, str(error)),)))
        return found

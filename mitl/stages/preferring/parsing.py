"""Parsing stored submissions of pages of rankings, once each, whoever fetched them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy.orm import Session

from mitl.crowd.comparison_answers import parse_comparisons
from mitl.db.store import parses as parse_store
from mitl.db.store import preferences as preference_store
from mitl.db.store.bulk import chunks
from mitl.db.store.parses import RawSubmission
from mitl.errors import AnswerError
from mitl.records import Environment, Finding, ParsedComparisons

WINDOW = 64
"""Submissions whose parses are written in one transaction."""


class ComparisonParser:
    """Parses stored submissions of pages of rankings of one environment."""

    def __init__(self, session: Session, environment: Environment, rationale: Mapping[int, bool]) -> None:
        """Args: rationale: batch → whether its pages ask for reasons."""
        self._session, self._environment, self._rationale = session, environment, rationale
        self._pages: dict[int, tuple[bool, list[int]]] = {}

    def parse_left(self) -> int:
        """Parse what a run stored and died over; returns how many submissions that were."""
        left = preference_store.unparsed(self._session, self._environment)
        self._session.rollback()
        for window in chunks(list(left.values()), WINDOW):
            self.parse(window)
        return len(left)

    def parse(self, rows: Sequence[RawSubmission]) -> None:
        """Parse these submissions and commit; one that somebody else has parsed meanwhile is left alone."""
        parsed = {row.id: one for row, one in zip(rows, self.parsed(rows), strict=True)}
        self._session.rollback()
        still = preference_store.unparsed(self._session, self._environment, list(parsed))
        preference_store.set_parses(self._session, {id_: parsed[id_] for id_ in still})
        self._session.commit()

    def reparse(self) -> int:
        """Read every raw document anew, in the transaction at hand; returns how many."""
        ids = preference_store.ids(self._session, self._environment)
        for window in chunks(ids, WINDOW):
            rows = parse_store.raw(self._session, window)
            parsed = zip(rows, self.parsed(rows), strict=True)
            preference_store.set_parses(self._session, {row.id: one for row, one in parsed})
        return len(ids)

    def parsed(self, rows: Sequence[RawSubmission]) -> list[ParsedComparisons]:
        """What these submissions say, in their order; one that cannot be read at all says so as a finding."""
        new = sorted({row.hit_id for row in rows} - self._pages.keys())
        for hit_id, (batch_id, places) in preference_store.places(self._session, new).items():
            self._pages[hit_id] = self._rationale[batch_id], places
        found = []
        for row in rows:
            rationale, places = self._pages[row.hit_id]
            try:
                found.append(parse_comparisons(row.raw_xml, places=places, rationale=rationale))
            except AnswerError as error:
                found.append(ParsedComparisons((), (Finding(parse_store.UNREADABLE, str(error)),)))
        return found

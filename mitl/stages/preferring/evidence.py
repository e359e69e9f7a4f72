"""One submission of a page of rankings, as a person who decides about it sees it."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy.orm import Session

from mitl.db.store import comparisons as comparison_store
from mitl.db.store import items as item_store
from mitl.db.store import preferences as preference_store
from mitl.db.store.answers import AssignmentRow
from mitl.records import Comparison, ComparisonAnswer, Direction, Preference, Table

RULE = "rule: every control passes with its better side; that both are equal does not pass"


def comparison_table(session: Session, row: AssignmentRow) -> Table | None:
    """All comparisons of a submission with their answers; None where its page asked pairs."""
    page = comparison_store.comparisons(session, [row.hit_id])[row.hit_id]
    if not page:
        return None
    given = {answer.place: answer for answer in preference_store.answers(session, [row.id]).get(row.id, ())}
    images, captions = item_store.id_maps(session, item_store.dataset(session).id)
    names = {Direction.I2T: images, Direction.T2I: captions}
    queries = {direction: {id_: name for name, id_ in known.items()} for direction, known in names.items()}
    columns = ("place", "role", "left", "right", "answer", "expected", "s", "own words", "query")
    rows = tuple(_row(item, given.get(item.place), queries[item.direction]) for item in page)
    return Table(f"submission {row.id} · HIT {row.batch}:{row.number} · preferences", columns, rows)


def _row(item: Comparison, answer: ComparisonAnswer | None, queries: Mapping[int, str]) -> tuple[object, ...]:
    return (
        item.place,
        item.role.value,
        item.left,
        item.right,
        _word(None if answer is None else answer.answer, "–" if answer is None else answer.outcome.value),
        _word(item.expected, ""),
        None if answer is None or answer.active_ms is None else f"{answer.active_ms / 1000:.1f}",
        "" if answer is None else answer.text,
        queries[item.query_id],
    )


def _word(preference: Preference | None, otherwise: str) -> str:
    return otherwise if preference is None else preference.value

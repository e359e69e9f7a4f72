"""Everything that a project holds about one person who answered; nothing of others, and no known answers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Select, select, tuple_
from sqlalchemy.orm import Session

from mitl.db.models import (
    Assignment,
    Batch,
    CollectionAnswer,
    CollectionItem,
    ComparisonRow,
    FindingRow,
    Hit,
    Journal,
    JudgementRow,
    Ledger,
    PairRow,
    PartRow,
    PreferenceAnswer,
    Rationale,
    SideRow,
    SimilarityAnswer,
    SimilarityItem,
    Worker,
)
from mitl.db.models.items import AnsweredPlace
from mitl.db.store.answers import submission_key
from mitl.db.store.statements import Wide, at_place, chunks
from mitl.records import Environment
from mitl.records.persons import HeldPart

_DECISIONS = ("approve", "reject", "override")
_CALLS = ("bonus", "qualification", "message")
_PAIR = (PairRow.left_side_id, PairRow.left_id, PairRow.right_side_id, PairRow.right_id)


def environments_of(session: Session, worker: str) -> list[Environment]:
    """Where somebody of this id answered."""
    return list(session.scalars(select(Worker.environment).where(Worker.mturk_worker_id == worker)))


def submitted(session: Session) -> set[str]:
    """The requester API's ids of all submissions."""
    return set(session.scalars(select(Assignment.mturk_assignment_id)))


def held(session: Session, environment: Environment, worker: str) -> Iterator[HeldPart]:
    """What the project holds about this worker; parts without an entry come too."""
    of_person = (Worker.environment == environment, Worker.mturk_worker_id == worker)
    yield HeldPart(
        "worker",
        "Your worker id; whether you were excluded from further HITs, or have done as many as one may, since when, and "
        "the note on why.",
        _rows(session, select(*_named(Worker)).where(*of_person)),
    )
    yield HeldPart(
        "submissions",
        "What you sent: which HIT, when, what the server says of it, what was decided, and your answers (XML).",
        _rows(
            session,
            _of(of_person, *_named(Assignment), Batch.name.label("batch"), Batch.template, Hit.mturk_hit_id),
        ),
    )
    yield HeldPart(
        "findings",
        "What was noticed about your submissions. Where it is about a control, the entry does not say which.",
        _without_controls(
            _rows(session, _of(of_person, FindingRow.code, FindingRow.detail, join=FindingRow))
        ),
    )
    for name, means, rows in (
        ("pair_answers", "Your answers on pairs, as they were read, and what the pair was.", _judgements),
        ("preferences", "Your answers on which of two rankings is better; numbers are items.", _preferences),
        ("ratings", "How similar you rated two items, from 0 to 5, and what they were.", _ratings),
        ("texts", "What you wrote or picked for an item, or said of a text that somebody wrote.", _texts),
    ):
        yield HeldPart(
            name, f"{means} active_ms is the time that the page measured.", rows(session, of_person)
        )
    yield HeldPart(
        "reviews_of_your_texts",
        "What others said of the texts that you wrote.",
        _rows(session, _reviews(of_person)),
    )
    yield HeldPart(
        "payments",
        "What your submissions cost, in cents: rewards and bonuses, which are yours, and fees, which are the market's.",
        _rows(session, _of(of_person, Ledger.kind, Ledger.cents, join=Ledger)),
    )
    yield HeldPart(
        "decisions",
        "What the server was told about you, with its words: approvals, rejections, bonuses, exclusions, messages.",
        _calls(session, of_person, worker),
    )


def _named(table: type, *left_out: str) -> list[Any]:
    """The columns of a table but its keys."""
    out = {"id", *left_out}
    columns = table.__table__.columns  # type: ignore[attr-defined]
    return [column for column in columns if column.name not in out and not column.foreign_keys]


def _of(own: tuple[Any, ...], *wanted: Any, join: Any = None) -> Wide:
    """These columns over the person's submissions, whose numbers come first; of another table, joined by submission."""
    query: Wide = select(Assignment.id.label("submission"), *wanted).select_from(Assignment)
    query = query.join(Worker, Worker.id == Assignment.worker_id).join(Hit, Hit.id == Assignment.hit_id)
    query = query.join(Batch, Batch.id == Hit.batch_id).where(*own)
    if join is None:
        return query.order_by(Assignment.id)
    return query.join(join, join.assignment_id == Assignment.id).order_by(Assignment.id, join.id)


def _answers(own: tuple[Any, ...], table: type[AnsweredPlace], *more: Any) -> Wide:
    return _of(own, *_named(table, "source"), *more, join=table)


def _rows(session: Session, query: Select[Any]) -> Iterator[dict[str, Any]]:
    return (dict(row) for row in session.execute(query).mappings())


def _without_controls(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        yield row | ({"detail": None} if "control" in row["code"] or "gold" in row["code"] else {})


def _judgements(session: Session, own: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    further: dict[int, dict[str, list[str]]] = {}
    reasons = _of(own, Rationale.judgement_id, Rationale.kind, Rationale.value, join=JudgementRow)
    for _, answer, kind, value in session.execute(reasons.join(Rationale)):
        further.setdefault(answer, {}).setdefault(kind, []).append(value)
    query = _answers(own, JudgementRow, *_PAIR, JudgementRow.id.label("row"))
    for row in _with_items(session, query.join(PairRow, PairRow.id == JudgementRow.pair_id)):
        yield row | {"further_answers": further.get(row.pop("row"), {})}


def _ratings(session: Session, own: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    query = _answers(own, SimilarityAnswer, SimilarityItem.task, *_PAIR)
    query = query.join(SimilarityItem, at_place(SimilarityItem, SimilarityAnswer))
    return _with_items(session, query.join(PairRow, PairRow.id == SimilarityItem.pair_id))


def _preferences(session: Session, own: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    shown = (
        ComparisonRow.direction,
        ComparisonRow.query_id,
        ComparisonRow.left_items,
        ComparisonRow.right_items,
    )
    query = _answers(own, PreferenceAnswer, *shown)
    for row in _rows(session, query.join(ComparisonRow, at_place(ComparisonRow, PreferenceAnswer))):
        yield row | {name: json.loads(row[name]) for name in ("left_items", "right_items")}


def _texts(session: Session, own: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    item = (CollectionItem.side_id.label("left_side_id"), CollectionItem.item_id.label("left_id"))
    query = _answers(own, CollectionAnswer, *item)
    return _with_items(session, query.join(CollectionItem, at_place(CollectionItem, CollectionAnswer)))


def _reviews(own: tuple[Any, ...]) -> Wide:
    """What was said of the person's texts; by whom is theirs to tell."""
    written = _of(
        own, CollectionAnswer.id.label("answer"), CollectionAnswer.place, join=CollectionAnswer
    ).subquery()
    review = CollectionAnswer
    query: Wide = select(written.c.submission, written.c.place, review.label)
    return (
        query.select_from(review)
        .join(Assignment, Assignment.id == review.assignment_id)
        .join(CollectionItem, at_place(CollectionItem, review))
        .join(written, written.c.answer == CollectionItem.reviewed_id)
        .where(review.label.is_not(None))
        .order_by(written.c.answer, review.label)
    )


def _with_items(session: Session, query: Wide) -> Iterator[dict[str, Any]]:
    """The rows with ``about``: what their items are, in place of the items' numbers."""
    rows = list(_rows(session, query))
    sides = ("left", "right") if rows and "right_id" in rows[0] else ("left",)
    keys = {(row[f"{side}_side_id"], row[f"{side}_id"]) for row in rows for side in sides}
    parts_of: dict[tuple[int, int], list[dict[str, Any]]] = {key: [] for key in keys}
    parts = select(PartRow.side_id, PartRow.item_id, SideRow.name, PartRow.text, PartRow.file, PartRow.url)
    parts = parts.join(SideRow, SideRow.id == PartRow.side_id).order_by(PartRow.place)
    for chunk in chunks(sorted(keys), 400):
        for side_id, item_id, side, *said in session.execute(
            parts.where(tuple_(PartRow.side_id, PartRow.item_id).in_(chunk))
        ):
            what = zip(("text", "file", "url"), said, strict=True)
            parts_of[side_id, item_id].append(
                # A file without the folders of the requester's machine.
                {"side": side} | {k: Path(v).name if k == "file" else v for k, v in what if v}
            )
    for row in rows:
        yield row | {"about": [parts_of[row.pop(f"{side}_side_id"), row.pop(f"{side}_id")] for side in sides]}


def _calls(session: Session, own: tuple[Any, ...], worker: str) -> Iterator[dict[str, Any]]:
    ids = session.scalars(select(Assignment.mturk_assignment_id).join(Worker).where(*own)).all()
    query = select(Journal).order_by(Journal.id)
    queries = [
        query.where(
            Journal.kind.in_(_DECISIONS),
            Journal.key.in_([submission_key(submission, worker) for submission in chunk]),
        )
        for chunk in chunks(ids)
    ]
    queries.append(
        query.where(Journal.kind.in_(_CALLS), Journal.request.contains(json.dumps(worker), autoescape=True))
    )
    for query in queries:
        for call in session.scalars(query):
            request = json.loads(call.request)
            if call.kind in _DECISIONS or request.get("worker") == worker:
                yield {"kind": call.kind, "state": call.state, "at": call.at, "request": request}

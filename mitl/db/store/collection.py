"""Items that were chosen to get a partner, the pages that ask for one, and what workers gave there."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from mitl.db.base import columns, values
from mitl.db.models import (
    Assignment,
    Batch,
    CollectionAnswer,
    CollectionChoice,
    CollectionItem,
    CollectionTerms,
    Hit,
    ItemRow,
    Worker,
)
from mitl.db.store import journal
from mitl.db.store.hits import LIVE_STATES
from mitl.db.store.items import pair_sides
from mitl.db.store.parses import Submissions, add_all_findings
from mitl.db.store.statements import ARRIVAL, add_rows, at_place, query_hits, rows_among
from mitl.records import CollectionRole, Environment, Label, Outcome, Parsed
from mitl.records.collection import TEXTS, CollectionQuestion, GivenText, Terms


@dataclass(frozen=True, slots=True)
class ChosenItem:
    """An item that was chosen to get a partner."""

    is_image: bool
    item: int
    """Its number on its side."""
    place: int
    """In the order in which the items are asked, from 1."""
    score: float
    strategy: str


@dataclass(frozen=True, slots=True)
class CollectionPlace:
    """A place of a HIT that collects, with one worker's answer there, or with none yet."""

    hit: int
    live: bool
    """Whether the HIT is planned or out, so that an answer may still come."""
    batch: int
    place: int
    role: CollectionRole
    is_image: bool
    """Whether the item is an image; of a review, the item that the answer under review was given for."""
    item: int
    offered: tuple[int, ...]
    reviewed: int | None
    """Row of the answer that is under review."""
    answer: int | None = None
    """Row of the answer."""
    assignment: int | None = None
    worker: str = ""
    """Id on the requester API; empty where nobody has answered."""
    counts: bool = False
    """Whether the submission is kept and its worker is not excluded."""
    outcome: Outcome | None = None
    text: str = ""
    picked: int | None = None
    label: Label | None = None


def choose_items(
    session: Session,
    environment: Environment,
    chosen: Sequence[tuple[int, float]],
    strategy: str,
    now: dt.datetime,
    *,
    are_images: bool,
) -> int:
    """Store items of one side with their scores after those chosen before; returns how many were new."""
    before = choices(session, environment)
    chosen_before = {choice.item for choice in before if choice.is_image is are_images}
    last = max((choice.place for choice in before), default=0)
    side = pair_sides(session)[0 if are_images else 1]
    new = [(item, score) for item, score in dict(chosen).items() if item not in chosen_before]
    return add_rows(
        session,
        CollectionChoice,
        (
            {
                "environment": environment,
                "side_id": side,
                "item_id": item,
                "place": place,
                "score": score,
                "strategy": strategy,
                "chosen_at": now,
            }
            for place, (item, score) in enumerate(new, last + 1)
        ),
    )


def is_collecting(session: Session, environment: Environment) -> bool:
    """Whether an item was chosen in an environment."""
    query = select(CollectionChoice.id).where(CollectionChoice.environment == environment).limit(1)
    return session.scalar(query) is not None


def choices(session: Session, environment: Environment) -> list[ChosenItem]:
    """The items that were chosen in an environment, in the order in which they are asked."""
    left, _ = pair_sides(session)
    is_image = CollectionChoice.side_id == left
    query = (
        select(*columns(ChosenItem, CollectionChoice, is_image=is_image, item=CollectionChoice.item_id))
        .where(CollectionChoice.environment == environment)
        .order_by(CollectionChoice.place)
    )
    return [ChosenItem(*row) for row in session.execute(query)]


def paid_cents(session: Session, environment: Environment) -> int:
    """Cents paid so far for all pages that collect, reviews included: rewards, fees and bonuses."""
    return sum(journal.spent(session, environment, Batch.kind == TEXTS).values())


def set_terms(session: Session, batch_id: int, terms: Terms) -> None:
    """Write down what a new batch is posted under."""
    session.add(CollectionTerms(batch_id=batch_id, terms=terms.as_json()))


def terms_of(session: Session) -> dict[int, Terms]:
    """Batch → what it was posted under."""
    rows = session.execute(select(CollectionTerms.batch_id, CollectionTerms.terms))
    return {batch: Terms.from_json(text) for batch, text in rows}


def add_items(session: Session, items: Mapping[int, Sequence[CollectionQuestion]]) -> None:
    """Write down what stands on these HITs, by their rows."""
    left, right = pair_sides(session)
    reviewed = {question.reviewed for page in items.values() for question in page if question.reviewed}
    picked_for_caption = (
        select(CollectionAnswer.id)
        .join(Assignment, Assignment.id == CollectionAnswer.assignment_id)
        .join(CollectionItem, at_place(CollectionItem, CollectionAnswer))
        .where(CollectionItem.side_id == right)
    )
    of_caption = {
        id_ for (id_,) in rows_among(session, picked_for_caption, CollectionAnswer.id, sorted(reviewed))
    }
    rows = []
    for hit, page in items.items():
        for question in page:
            is_caption = question.image is None or question.reviewed in of_caption
            side, item = (right, question.caption) if is_caption else (left, question.image)
            said = {"offered": _offered_json(question), "reviewed_id": question.reviewed}
            rows.append(values(CollectionItem, question, hit_id=hit, side_id=side, item_id=item, **said))
    add_rows(session, CollectionItem, rows)


def _offered_json(question: CollectionQuestion) -> str | None:
    if question.role is CollectionRole.CONTROL:
        return json.dumps([question.caption])
    return json.dumps(question.offered) if question.offered else None


def questions(session: Session, hit_ids: Sequence[int]) -> dict[int, list[CollectionQuestion]]:
    """What stands on these HITs, by place; nothing on a HIT that asks something else."""
    by_hit: dict[int, list[CollectionQuestion]] = {hit: [] for hit in hit_ids}
    left, right = pair_sides(session)
    terms = terms_of(session)
    query = (
        select(Hit.batch_id, CollectionItem, CollectionAnswer.text, CollectionAnswer.picked_id)
        .join(Hit, Hit.id == CollectionItem.hit_id)
        .join(CollectionAnswer, CollectionAnswer.id == CollectionItem.reviewed_id, isouter=True)
        .order_by(CollectionItem.hit_id, CollectionItem.place)
    )
    rows = list(rows_among(session, query, CollectionItem.hit_id, hit_ids))
    controls = [
        json.loads(row[1].offered or "[0]")[0] for row in rows if row[1].role is CollectionRole.CONTROL
    ]
    own_images = select(ItemRow.id, ItemRow.group_id).where(ItemRow.side_id == right)
    image_of = dict(rows_among(session, own_images, ItemRow.id, sorted(set(controls))))
    for batch, item, text, picked in rows:
        offered = tuple(json.loads(item.offered or "[]"))
        is_image = item.side_id == left
        is_control = item.role is CollectionRole.CONTROL
        by_hit[item.hit_id].append(
            CollectionQuestion(
                place=item.place,
                role=item.role,
                image=item.item_id if is_image else picked,
                caption=offered[0] if is_control else None if is_image else item.item_id,
                offered=() if is_control else offered,
                reviewed=item.reviewed_id,
                text=text or "",
                matches=image_of[offered[0]] == item.item_id if is_control else None,
                rules=terms[batch].rules if item.role is CollectionRole.WRITE else None,
            )
        )
    return by_hit


STORED = Submissions(TEXTS, CollectionItem, CollectionAnswer)


def set_parses(session: Session, given: Mapping[int, Parsed[GivenText]]) -> None:
    """Write what was parsed from these submissions, in place of an earlier parse; a pick becomes the item's number.

    Answers keep their rows, emptied where nothing is read any more, since reviews point to them.
    """
    offered = _offered(session, list(given))
    query = select(CollectionAnswer.assignment_id, CollectionAnswer.place, CollectionAnswer.id)
    rows = rows_among(session, query, CollectionAnswer.assignment_id, given)
    judgements = {(assignment, place): id_ for assignment, place, id_ in rows}
    new = {
        (assignment, answer.place): values(
            CollectionAnswer,
            answer,
            assignment_id=assignment,
            text=answer.text or None,
            picked_id=_picked(answer, offered.get((assignment, answer.place), ())),
        )
        for assignment, parsed in given.items()
        for answer in parsed.answers
    }
    for key, id_ in judgements.items():
        now = new.get(key, {"text": None, "picked_id": None, "label": None})
        session.execute(update(CollectionAnswer).where(CollectionAnswer.id == id_).values(**now))
    add_rows(session, CollectionAnswer, (row for key, row in new.items() if key not in judgements))
    add_all_findings(session, {id_: parsed.findings for id_, parsed in given.items()})


def _offered(session: Session, assignments: Sequence[int]) -> dict[tuple[int, int], Sequence[int]]:
    """(Submission, place) → the items that could be picked there."""
    query = (
        select(Assignment.id, CollectionItem.place, CollectionItem.offered)
        .join(CollectionItem, CollectionItem.hit_id == Assignment.hit_id)
        .where(CollectionItem.role == CollectionRole.PICK)
    )
    return {
        (assignment, place): json.loads(offered or "[]")
        for assignment, place, offered in rows_among(session, query, Assignment.id, assignments)
    }


def _picked(answer: GivenText, offered: Sequence[int]) -> int | None:
    return offered[answer.pick - 1] if answer.pick and answer.pick <= len(offered) else None


def spots(session: Session, environment: Environment) -> list[CollectionPlace]:
    """Every place of every HIT that collects, with each answer there, in the order in which answers came."""
    left, _ = pair_sides(session)
    query = (
        query_hits(
            environment,
            CollectionItem,
            Hit.state,
            Hit.batch_id,
            CollectionAnswer,
            Assignment.id,
            Assignment.decision,
            Worker.mturk_worker_id,
            Worker.excluded_at,
        )
        .join(CollectionItem, CollectionItem.hit_id == Hit.id)
        .join(Assignment, Assignment.hit_id == Hit.id, isouter=True)
        .join(Worker, Worker.id == Assignment.worker_id, isouter=True)
        .join(
            CollectionAnswer,
            (CollectionAnswer.assignment_id == Assignment.id)
            & (CollectionAnswer.place == CollectionItem.place),
            isouter=True,
        )
        .order_by(*ARRIVAL, CollectionItem.hit_id, CollectionItem.place)
    )
    places = []
    for item, state, batch, answer, assignment, decision, worker, excluded in session.execute(query):
        given = answer or CollectionAnswer()  # of which nothing is known
        places.append(
            CollectionPlace(
                hit=item.hit_id,
                live=state in LIVE_STATES,
                batch=batch,
                place=item.place,
                role=item.role,
                is_image=item.side_id == left,
                item=item.item_id,
                offered=tuple(json.loads(item.offered or "[]")),
                reviewed=item.reviewed_id,
                answer=given.id,
                assignment=assignment,
                worker=worker or "",
                counts=assignment is not None and decision.keeps_answers and excluded is None,
                outcome=given.outcome,
                text=given.text or "",
                picked=given.picked_id,
                label=given.label,
            )
        )
    return places

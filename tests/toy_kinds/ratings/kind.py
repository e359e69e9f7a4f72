"""The kind of campaign that asks how well a caption is written, by stars; it keeps its questions in its own tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import sqlalchemy as sa

from mitl.campaign.kinds.protocol import (
    Plan,
    Replacement,
    Request,
    WorkingTime,
    columns,
    leftover,
    plans_out,
)
from mitl.db.models import Assignment, Batch, FindingRow, Hit
from mitl.db.store import items as item_store
from mitl.db.store.hits import hits
from mitl.db.store.open_work import HitToReplace
from mitl.db.store.parses import UNREADABLE, RawSubmission, add_all_findings
from mitl.hits.rendering import render
from mitl.protocol.answer_xml import answer_fields
from mitl.records import Decision, Finding, HitState, Table

PER_PAGE = 3
TABLES = sa.MetaData()
ITEMS = sa.Table(
    "toy_rating_item",
    TABLES,
    *(sa.Column(name, sa.Integer, nullable=False) for name in ("hit_id", "place", "caption_id")),
    sa.Column("expected", sa.Text),
)
ANSWERS = sa.Table(
    "toy_rating",
    TABLES,
    *(sa.Column(name, sa.Integer, nullable=False) for name in ("assignment_id", "place")),
    sa.Column("stars", sa.Text, nullable=False),
)


@dataclass(frozen=True, slots=True)
class RateCaptions(Request):
    """How many captions to rate."""

    kind: ClassVar[str] = "ratings"
    template: str = "ratings-plain"


@dataclass(frozen=True, slots=True)
class Question:
    """A caption at one place; the right answer where it is a control."""

    place: int
    caption_id: int
    expected: str | None


@dataclass(frozen=True, slots=True)
class Sheet:
    """A page."""

    number: int
    items: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class Stars:
    """A parse: place → stars."""

    answers: tuple[tuple[int, str], ...]
    findings: tuple[Finding, ...]


class Ratings:
    """Three captions to rate on a page, of which the first is known to be well written."""

    name = "ratings"
    command = ask_again = "mitl rate publish"
    scores = "mitl rate scores"
    asked = "captions"
    shown = "captions"
    given = "ratings"
    page_size = PER_PAGE
    answer_field = "stars"
    choices = ("1", "2", "3")
    dry_keys = ("environment", "hits", "captions", "total_cents", "requests", "largest_question_bytes")
    posted_keys = ("batch", "environment", "captions", "hits_posted", "hits_again", "total_cents")

    def plan(self, session, settings, request, *, adopted):
        left = leftover(session, request.environment, self.name, self.items)
        if left:
            return Plan(left=left)
        known, *captions = [caption.id for caption in item_store.captions(session, 1)]
        asked = set()
        if sa.inspect(session.connection()).has_table(ITEMS.name):
            asked = set(session.scalars(sa.select(ITEMS.c.caption_id).where(ITEMS.c.expected.is_(None))))
        still = [caption for caption in captions if caption not in asked]
        out, limit = plans_out(session, request)
        again = [
            Replacement(
                hit.hit,
                Sheet(hit.hit.number, tuple(self.items(session, [hit.hit.id])[hit.hit.id])),
                hit.missing,
            )
            for hit in self.to_replace(session, request.environment)
        ]
        chosen = still if limit is None else still[:limit]
        pages = [chosen[i : i + PER_PAGE - 1] for i in range(0, len(chosen), PER_PAGE - 1)]
        fresh = [
            Sheet(
                number,
                (
                    Question(1, known, "3"),
                    *(Question(at, caption, None) for at, caption in enumerate(page, 2)),
                ),
            )
            for number, page in enumerate(pages, 1)
        ]
        held = len(still) - len(chosen)
        return Plan(tuple(fresh), tuple(again), n_limited=len(chosen), n_held_back=held, out=out)

    def estimate(self, template, plan):
        return WorkingTime(PER_PAGE * template.seconds_per_pair, note="the wording's")

    def who_met(self, session, environment, pages):
        return [()] * len(pages)  # whoever answers again is counted again

    def to_replace(self, session, environment):
        kept = [decision for decision in Decision if decision.keeps_answers]
        replaced = set(session.scalars(sa.select(Hit.replaces_id).where(Hit.replaces_id.is_not(None))))
        query = sa.select(Assignment.hit_id).where(Assignment.decision.in_(kept))
        done = list(session.scalars(query))
        return [
            HitToReplace(hit, hit.assignments - done.count(hit.id))
            for hit in hits(session, environment, (HitState.CLOSED,), self.name)
            if hit.id not in replaced and done.count(hit.id) < hit.assignments
        ]

    def add_batch(self, session, batch_id, plan, like=None):
        TABLES.create_all(session.connection())

    def add_items(self, session, items):
        rows = [
            {"hit_id": hit, "place": q.place, "caption_id": q.caption_id, "expected": q.expected}
            for hit, page in items.items()
            for q in page
        ]
        session.execute(sa.insert(ITEMS), rows)

    def items(self, session, hit_ids):
        found = {hit: [] for hit in hit_ids}
        if hit_ids:
            for row in session.execute(
                sa.select(ITEMS).where(ITEMS.c.hit_id.in_(hit_ids)).order_by(ITEMS.c.place)
            ):
                found[row.hit_id].append(Question(row.place, row.caption_id, row.expected))
        return found

    def images(self, item):
        return ()

    def check_page(self, items, hit):
        pass

    def render(self, items, wording, shown):
        sentences = [(item.place, shown.captions[item.caption_id]) for item in items]
        html = render(wording.template, wording.estimate_s, shown.contact, sentences=sentences)
        return html, [sentence for _, sentence in sentences]

    def headline(self, request, plan):
        return f"ratings · template {request.template}"

    def bill_lines(self, plan):
        return [columns("captions", str(self.facts(plan)["captions"])) + columns("HITs", str(plan.n_hits))]

    def facts(self, plan):
        return {"captions": sum(item.expected is None for page in plan.pages for item in page)}

    def nothing_open(self, *, adopted):
        return "every caption is rated"

    @property
    def submissions(self):
        return self

    def unparsed(self, session, environment, ids=None):
        read = sa.select(ANSWERS.c.assignment_id).union(
            sa.select(FindingRow.assignment_id).where(FindingRow.code == UNREADABLE)
        )
        query = (
            sa.select(Assignment.id, Assignment.hit_id, Assignment.raw_xml)
            .where(Assignment.id.in_(self._submissions(environment)), Assignment.id.not_in(read))
            .order_by(Assignment.id)
        )
        return {row[0]: RawSubmission(*row) for row in session.execute(query) if ids is None or row[0] in ids}

    def ids(self, session, environment):
        return list(session.scalars(self._submissions(environment).order_by(Assignment.id)))

    def _submissions(self, environment):
        joined = sa.select(Assignment.id).join(Hit, Hit.id == Assignment.hit_id)
        return joined.join(Batch, Batch.id == Hit.batch_id).where(
            Batch.environment == environment, Batch.kind == self.name
        )

    def places(self, session, hit_ids):
        batches = {hit.id: hit.batch_id for hit in session.scalars(sa.select(Hit).where(Hit.id.in_(hit_ids)))}
        return {
            hit: (batches[hit], [item.place for item in page])
            for hit, page in self.items(session, hit_ids).items()
        }

    def parse(self, xml, *, places, questions):
        given = dict(answer_fields(xml))
        answers = {place: given.get(f"p{place:02d}_stars", "") for place in places}
        missing = [place for place, stars in answers.items() if stars not in self.choices]
        return Stars(
            tuple((place, stars) for place, stars in answers.items() if stars in self.choices),
            tuple(Finding("missing_answer", f"place {place}") for place in missing),
        )

    def set_parses(self, session, parses):
        session.execute(sa.delete(ANSWERS).where(ANSWERS.c.assignment_id.in_(parses)))
        rows = [
            {"assignment_id": id_, "place": place, "stars": stars}
            for id_, parsed in parses.items()
            for place, stars in parsed.answers
        ]
        if rows:
            session.execute(sa.insert(ANSWERS), rows)
        add_all_findings(session, {id_: parsed.findings for id_, parsed in parses.items()})

    def findings(self, session, rows, held_to):
        found = {}
        for row in rows:
            given = self._given(session, row.id)
            found[row.id] = [
                Finding("star_control_failed", f"place {item.place}")
                for item in self.items(session, [row.hit_id])[row.hit_id]
                if item.expected not in (None, given.get(item.place))
            ]
        return found

    def evidence(self, session, row):
        given = self._given(session, row.id)
        rows = tuple(
            (item.place, given.get(item.place), item.expected)
            for item in self.items(session, [row.hit_id])[row.hit_id]
        )
        return Table(
            f"submission {row.id} · ratings", ("place", "stars", "expected"), rows
        ), "rule: three stars"

    def _given(self, session, submission):
        query = sa.select(ANSWERS.c.place, ANSWERS.c.stars).where(ANSWERS.c.assignment_id == submission)
        return dict(session.execute(query).all())


KIND = Ratings()

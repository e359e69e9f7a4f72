"""The kind of campaign in which people write a text for an image, pick an image for a text, or review either."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated

from sqlalchemy.orm import Session

from mitl.campaign.kinds.protocol import (
    FindingsOf,
    HeldTo,
    PostingCounts,
    Shown,
    WhoMet,
    Wording,
    WorkingTime,
    again_lines,
    columns,
    dry_keys,
    posted_keys,
    spread,
)
from mitl.campaign.kinds.texts.answers import NO_ANSWER, check_controls, normalised, parse_texts
from mitl.campaign.kinds.texts.packing import ShownItem, check_page, render_texts
from mitl.campaign.kinds.texts.planning import PER_HIT, CollectTexts, TextPlan, make_plan
from mitl.campaign.kinds.texts.standing import COLLECTS, ItemState, faults_of, standing, tally
from mitl.db.store import collection as collection_store
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store.answers import StoredAssignment
from mitl.db.store.open_work import HitToReplace
from mitl.hits.templates import HitTemplate
from mitl.records import CollectionRole, Environment, Finding, HitState, Outcome, Table, several
from mitl.records.collection import COLLECT_COMMAND, TEXTS, CollectionQuestion
from mitl.records.results import ImageName, printed_by


@printed_by("collect publish")
class CollectPublishCounts(PostingCounts, total=False):
    """What publishing pages that collect counts."""

    task: Annotated[list[str], "what is asked: write, pick or review"]
    items: Annotated[int, "items to describe, captions to pick for or texts to review; controls left out"]
    controls: Annotated[int, "texts on pages of reviews that are known to match, or not to"]
    hits_again: Annotated[int, "always 0: what is asked again stands on new pages"]


class TextsKind:
    """Pages to write, to pick or to review on; reviews have a text among them that matches and one that does not."""

    name = TEXTS
    command = COLLECT_COMMAND
    ask_again = COLLECT_COMMAND
    scores = "mitl collect show"
    asked = "items"
    shown = "items to describe, captions to pick for, texts to review"
    given = "texts"
    page_size = PER_HIT[CollectionRole.WRITE]
    answer_field = "outcome"
    choices = tuple(Outcome)
    dry_keys = dry_keys("task", "hits", "items", "controls")
    posted_keys = posted_keys("task", "items", "controls")
    plan = staticmethod(make_plan)
    add_items = staticmethod(collection_store.add_items)
    items = staticmethod(collection_store.questions)
    check_page = staticmethod(check_page)
    submissions = collection_store.STORED
    parse = parse_texts
    set_parses = staticmethod(collection_store.set_parses)

    def who_met(
        self, session: Session, environment: Environment, pages: Sequence[Sequence[CollectionQuestion]]
    ) -> WhoMet:
        """See `CampaignKind`: nobody reviews what they gave, nor tries again what was refused."""
        given = [
            spot
            for spot in collection_store.spots(session, environment)
            if spot.counts and spot.role in COLLECTS and spot.outcome is Outcome.ANSWERED
        ]
        giver = {spot.answer: frozenset({spot.worker}) for spot in given}
        tried: dict[tuple[bool, int | None], set[str]] = defaultdict(set)
        for spot in given:
            tried[spot.is_image, spot.item].add(spot.worker)

        def of(item: CollectionQuestion) -> frozenset[str]:
            if item.role is CollectionRole.REVIEW:
                return giver.get(item.reviewed, frozenset())
            is_image = item.role is CollectionRole.WRITE
            return frozenset(tried[is_image, item.image if is_image else item.caption])

        return [[of(item) for item in page if item.role is not CollectionRole.CONTROL] for page in pages]

    def tallied(self, session: Session, environment: Environment) -> dict[str, int]:
        """How many items stand where, and how many texts wait."""
        items = standing(session, environment)
        return {**asdict(tally(items)), "waiting": sum(len(item.waiting) for item in items)}

    def estimate(self, template: HitTemplate, plan: TextPlan) -> WorkingTime:
        """By the wording's seconds for each text of the fullest page; the batch keeps it."""
        note = f"the wording's {template.seconds_per_pair} s a text"
        return WorkingTime(plan.per_hit * template.seconds_per_pair, note=note, is_kept=True)

    def to_replace(self, session: Session, environment: Environment) -> list[HitToReplace]:
        """Closed HITs that were the last to ask for an item that is open again."""
        closed = {hit.id: hit for hit in hit_store.hits(session, environment, (HitState.CLOSED,), TEXTS)}
        last = [
            max(item.hits)
            for item in standing(session, environment)
            if item.state is ItemState.OPEN and item.hits
        ]
        return [HitToReplace(closed[hit], 1) for hit in sorted(set(last)) if hit in closed]

    def add_batch(self, session: Session, batch_id: int, plan: TextPlan, like: int | None = None) -> None:
        """Write down the terms that its texts are held to."""
        collection_store.set_terms(session, batch_id, plan.terms)

    def images(self, item: CollectionQuestion) -> tuple[int, ...]:
        """The one that is shown, or those that are offered."""
        return item.shows

    def render(
        self, items: Sequence[CollectionQuestion], wording: Wording, shown: Shown
    ) -> tuple[str, list[str]]:
        """See `CampaignKind`."""
        page = [
            ShownItem(
                item.place,
                "" if item.image is None else shown.sources[item.image],
                item.text if item.caption is None else shown.captions[item.caption],
                tuple(shown.sources[image] for image in item.offered),
            )
            for item in items
        ]
        task = next(item.role for item in items if item.role is not CollectionRole.CONTROL)
        html = render_texts(
            wording.template,
            page,
            task,
            items[0].rules,
            contact=shown.contact,
            estimate_s=wording.estimate_s,
        )
        return html, [part for item in page for part in item.shown]

    def headline(self, request: CollectTexts, plan: TextPlan) -> str:
        """See `CampaignKind`."""
        return f"texts to {request.task} · template {request.template}"

    def bill_lines(self, plan: TextPlan) -> list[str]:
        """See `CampaignKind`."""
        sizes = [len(page) for page in plan.pages]
        controls = plan.count(CollectionRole.CONTROL) // len(plan.pages)
        size = f"{spread(sizes)} a HIT"
        size += f", {controls} of them controls" if controls else ""
        n_items = sum(sizes) - plan.count(CollectionRole.CONTROL)
        unranked = (
            f"  left out: {several(plan.n_unranked, 'caption')} with fewer than 2 ranked images to offer; rank "
            "more with `mitl propose --top-k`, them among its queries"
        )
        return [
            f"{columns('items', f'{n_items:,}')}{columns('HITs', f'{plan.n_hits:,}')} ({size})",
            *again_lines(plan),
            *([unranked] if plan.n_unranked else []),
        ]

    def facts(self, plan: TextPlan) -> Mapping[str, object]:
        """See `CampaignKind`."""
        controls = plan.count(CollectionRole.CONTROL)
        roles = {item.role for page in plan.pages for item in page} - {CollectionRole.CONTROL}
        return {
            "task": sorted(role.value for role in roles),
            "items": sum(map(len, plan.pages)) - controls,
            "controls": controls,
        }

    def nothing_open(self, *, adopted: int) -> str:
        """See `CampaignKind`."""
        return (
            "every chosen item is out, accepted or given up, or waits for another task (`mitl collect show`)"
        )

    def findings(self, session: Session, rows: Sequence[StoredAssignment], held_to: HeldTo) -> FindingsOf:
        """By the rules for texts and by the controls of reviews."""
        if not rows:
            return {}
        captions = item_store.captions(session, item_store.dataset(session).id)
        faults = faults_of(
            collection_store.spots(session, held_to.environment),
            collection_store.terms_of(session),
            {normalised(caption.text) for caption in captions},
        )
        pages = collection_store.questions(session, [row.hit_id for row in rows])
        answers_of = collection_store.STORED.rows(session, [row.id for row in rows])
        by_assignment = {}
        for row in rows:
            answers = answers_of.get(row.id, [])
            findings = [
                Finding(fault.code, f"place {answer.place}: {fault.detail}")
                for answer in answers
                for fault in faults.get(answer.id, ())
            ]
            findings += check_controls(
                pages[row.hit_id], {answer.place: answer.label for answer in answers}, held_to.rule
            )
            to_write = {item.place for item in pages[row.hit_id] if item.role is CollectionRole.WRITE}
            if not any(
                answer.outcome is Outcome.ANSWERED and (answer.text or answer.place not in to_write)
                for answer in answers
            ):
                findings.append(Finding(NO_ANSWER, "nothing was written, picked or reviewed"))
            by_assignment[row.id] = findings
        return by_assignment

    def evidence(self, session: Session, row: StoredAssignment) -> tuple[Table, str]:
        """All answers of a submission, and the rules that its texts are held to."""
        page = collection_store.questions(session, [row.hit_id])[row.hit_id]
        answers = {answer.place: answer for answer in collection_store.STORED.rows(session, [row.id])[row.id]}
        dataset = item_store.dataset(session)
        images, _ = item_store.names(session, dataset.id)
        captions = {caption.id: caption.text for caption in item_store.captions(session, dataset.id)}
        rows = []
        for item in page:
            answer = answers.get(item.place)
            said = "–" if answer is None else answer.text or (answer.label and answer.label.value)
            if answer is not None and answer.picked_id is not None:
                said = ImageName.of(f"image {images[answer.picked_id]}", answer.picked_id)
            elif answer is not None and (item.role, answer.outcome) == (
                CollectionRole.PICK,
                Outcome.ANSWERED,
            ):
                said = "none of them"
            seconds = None if answer is None or answer.active_ms is None else f"{answer.active_ms / 1000:.1f}"
            expected = "" if item.matches is None else "matches" if item.matches else "does not match"
            about = item.text if item.caption is None else captions[item.caption]
            image = "" if item.image is None else ImageName.of(images[item.image], item.image)
            shown = (item.place, item.role.value, image, about)
            rows.append((*shown, said or (answer and answer.outcome.value), expected, seconds))
        fields = ("place", "role", "image", "about", "answer", "expected", "s")
        title = f"submission {row.id} · HIT {row.batch}:{row.number} · texts"
        return Table(title, fields, tuple(rows)), _RULE


_RULE = (
    "rule: a text keeps to the length, the language and the starts that its page names, copies no example, and was not "
    "given before by the worker or in the data set; of a review both controls pass. Whether a text is used, the rules "
    "and its review decide; what is paid, you do"
)

KIND = TextsKind()

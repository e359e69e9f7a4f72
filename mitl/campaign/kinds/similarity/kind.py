"""The kind of campaign that asks how alike two items are, from 0 to 5."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
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
from mitl.campaign.kinds.similarity.answers import RULE, check_ratings, expectation, parse_ratings
from mitl.campaign.kinds.similarity.packing import ShownPair, check_page, render_similarity
from mitl.campaign.kinds.similarity.planning import PER_HIT, RatePairs, RatingPlan, make_plan
from mitl.campaign.pilots import estimate_of
from mitl.db.store import desk as desk_store
from mitl.db.store import items as item_store
from mitl.db.store import rating_pages
from mitl.db.store import similarity as similarity_store
from mitl.db.store.answers import StoredAssignment
from mitl.db.store.open_work import HitToReplace
from mitl.hits.templates import HitTemplate
from mitl.judgements.rating_conduct import rating_conduct
from mitl.judgements.rating_tests import untrusted
from mitl.records import Environment, Table
from mitl.records.results import ImageName, printed_by
from mitl.records.similarity import RATE_COMMAND, SIMILARITY, GivenRating, SimilarityQuestion, SimilarityRole


@printed_by("rate publish")
class RatePublishCounts(PostingCounts, total=False):
    """What publishing pairs to be rated counts."""

    task: Annotated[
        list[str], "what is rated: sts (two texts), sis (two images) or sits (an image and a text)"
    ]
    pairs: Annotated[int, "pairs on the pages, controls left out"]
    controls: Annotated[int, "identical, random and repeated pairs on the pages"]
    hits_again: Annotated[int, "HITs that ask for the ratings that pairs lack"]
    pilot: Annotated[bool, "whether the new batch is a pilot (`--pilot`)"]


class SimilarityKind:
    """Pages of pairs of one task, among them an identical, a random and a repeated one."""

    name = SIMILARITY
    command = RATE_COMMAND
    ask_again = RATE_COMMAND
    scores = "mitl rate scores"
    asked = "pairs"
    shown = "pairs to rate"
    given = "ratings"
    page_size = PER_HIT
    answer_field = "score"
    choices: tuple[str, ...] = ()
    dry_keys = dry_keys("task", "hits", "pairs", "controls")
    posted_keys = posted_keys("task", "pairs", "controls", pilots=True)
    plan = staticmethod(make_plan)
    add_items = staticmethod(rating_pages.add_items)
    items = staticmethod(rating_pages.questions)
    check_page = staticmethod(check_page)
    submissions = rating_pages.STORED
    parse = parse_ratings
    set_parses = rating_pages.STORED.set_parses

    def estimate(self, template: HitTemplate, plan: RatingPlan) -> WorkingTime:
        """By the times of the task's latest pilot, else by the wording's seconds; the batch keeps it."""
        return dataclasses.replace(estimate_of(plan.pilots, template, plan.per_hit), is_kept=True)

    def who_met(
        self, session: Session, environment: Environment, pages: Sequence[Sequence[SimilarityQuestion]]
    ) -> WhoMet:
        """See `CampaignKind`: a pair's raters are different people."""
        asked = [
            [(item.task, item.pair) for item in page if item.role is SimilarityRole.ASKED] for page in pages
        ]
        raters = rating_pages.raters_of(session, environment, {pair for page in asked for pair in page})
        return [[raters.get(pair, frozenset()) for pair in page] for page in asked]

    def to_replace(self, session: Session, environment: Environment) -> list[HitToReplace]:
        """Closed HITs of which pairs lack raters."""
        return [
            HitToReplace(lacking.hit, lacking.missing)
            for lacking in rating_pages.lacking_hits(session, environment)
        ]

    def add_batch(self, session: Session, batch_id: int, plan: RatingPlan, like: int | None = None) -> None:
        """A batch of pairs to rate is its pages alone."""

    def images(self, item: SimilarityQuestion) -> tuple[int, ...]:
        """None, one or both of the items."""
        return tuple(number for side, number in _shown(item) if side == "image")

    def render(
        self, items: Sequence[SimilarityQuestion], wording: Wording, shown: Shown
    ) -> tuple[str, list[str]]:
        """See `CampaignKind`."""
        page = []
        for item in items:
            sides = [
                ("", shown.sources[number]) if side == "image" else (shown.captions[number], "")
                for side, number in _shown(item)
            ]
            page.append(ShownPair(item.place, *sides[0], *sides[1]))
        html = render_similarity(wording.template, page, contact=shown.contact, estimate_s=wording.estimate_s)
        return html, [text for item in page for text in item.shown]

    def headline(self, request: RatePairs, plan: RatingPlan) -> str:
        """See `CampaignKind`."""
        pilot = " · pilot" if request.pilot is not None and plan.fresh else ""
        return f"similarity {request.task} · template {request.template}{pilot}"

    def bill_lines(self, plan: RatingPlan) -> list[str]:
        """See `CampaignKind`."""
        sizes = {len(page) for page in plan.pages}
        controls = max(sum(item.role is not SimilarityRole.ASKED for item in page) for page in plan.pages)
        size = f"{spread(sizes)} a HIT, {controls} of them controls"
        pairs = plan.count(SimilarityRole.ASKED)
        return [
            f"{columns('pairs', f'{pairs:,}')}{columns('HITs', f'{plan.n_hits:,}')} ({size})",
            *again_lines(plan),
        ]

    def facts(self, plan: RatingPlan) -> Mapping[str, object]:
        """See `CampaignKind`."""
        pairs = plan.count(SimilarityRole.ASKED)
        return {
            "task": sorted({item.task.value for page in plan.pages for item in page}),
            "pairs": pairs,
            "controls": sum(map(len, plan.pages)) - pairs,
        }

    def nothing_open(self, *, adopted: int) -> str:
        """See `CampaignKind`."""
        return "every sampled pair of the task is on an open HIT, has all its ratings or was tried in vain three times"

    def findings(self, session: Session, rows: Sequence[StoredAssignment], held_to: HeldTo) -> FindingsOf:
        """By the page's controls as far as they are trusted."""
        pages = rating_pages.questions(session, [row.hit_id for row in rows])
        answers = rating_pages.answers(session, [row.id for row in rows])
        ratings = similarity_store.ratings_of(session, held_to.environment, list(pages))
        no_controls = ratings[untrusted(ratings)].groupby("hit")["place"].unique().to_dict()
        by_assignment = {}
        for row in rows:
            distrusted = no_controls.get(row.hit_id, ())
            by_assignment[row.id] = check_ratings(pages[row.hit_id], answers.get(row.id, ()), distrusted)
        return by_assignment

    def evidence(self, session: Session, row: StoredAssignment) -> tuple[Table, str]:
        """All ratings of a submission, the rule of its controls, and how its worker uses the scale."""
        page = rating_pages.questions(session, [row.hit_id])[row.hit_id]
        answers = {answer.place: answer for answer in rating_pages.answers(session, [row.id]).get(row.id, ())}
        dataset = item_store.dataset(session)
        images, _ = item_store.names(session, dataset.id)
        shown = [place for item in page for place in _shown(item)]
        texts = desk_store.caption_texts(session, [n for side, n in shown if side == "caption"])
        names: dict[str, dict[int, str]] = {
            "image": {n: ImageName.of(images[n], n) for side, n in shown if side == "image"},
            "caption": {number: text for number, (text, _) in texts.items()},
        }
        rows = tuple(
            _evidence_row(item, page, answers.get(item.place), [names[side][n] for side, n in _shown(item)])
            for item in page
        )
        fields = ("place", "role", "score", "expected", "s", "own words", "first", "second")
        title = f"submission {row.id} · HIT {row.batch}:{row.number} · ratings"
        conduct = rating_conduct(similarity_store.ratings_beside(session, row.worker_id)).get(row.worker)
        said = [] if conduct is None else [conduct.text, *(finding.detail for finding in conduct.findings)]
        return Table(title, fields, rows), "\n".join([RULE, *(f"the rater: {line}" for line in said)])


KIND = SimilarityKind()


def _shown(item: SimilarityQuestion) -> list[tuple[str, int]]:
    """Side and number of the two items in the order in which they are shown."""
    sided = list(zip(item.task.sides, item.pair, strict=True))
    return sided[::-1] if item.swapped else sided


def _evidence_row(
    item: SimilarityQuestion,
    page: Sequence[SimilarityQuestion],
    answer: GivenRating | None,
    names: Sequence[str],
) -> tuple[object, ...]:
    score = "–" if answer is None else answer.outcome.value if answer.score is None else f"{answer.score:.2f}"
    return (
        item.place,
        item.role.value,
        score,
        expectation(item, page),
        None if answer is None or answer.active_ms is None else f"{answer.active_ms / 1000:.1f}",
        "" if answer is None else answer.text,
        *names,
    )

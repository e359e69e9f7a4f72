"""Planning pages of similarity: which pairs of a task are open or lack raters, and the controls beside them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sqlalchemy.orm import Session

from mitl.campaign.kinds.protocol import Leftover, Plan, Replacement, Request, leftover, plans_out
from mitl.campaign.kinds.similarity.packing import (
    MAX_PER_HIT,
    N_CONTROLS,
    RatingControls,
    TwoItems,
    n_pages,
    pack_ratings,
)
from mitl.campaign.kinds.similarity.unrelated import draw_unrelated
from mitl.campaign.pilots import (
    PilotBatch,
    find_pilots,
    rotated,
    seed_of,
    sure_originals,
    waits_for_pilot,
    within,
)
from mitl.crowd.context import open_context
from mitl.db.store import items as item_store
from mitl.db.store import rating_pages
from mitl.db.store import similarity as similarity_store
from mitl.db.store.rating_pages import LackingHit
from mitl.errors import StoreError, UsageError
from mitl.proposals.sampling import shuffled
from mitl.records import Environment, Page
from mitl.records.similarity import SIMILARITY, TASKS, Likeness, SimilarityRole
from mitl.settings import Settings

PER_HIT = 10
"""Pairs of a usual HIT, controls included."""
TEMPLATES: Mapping[Likeness, str] = {
    Likeness.STS: "similarity-texts",
    Likeness.SIS: "similarity-images",
    Likeness.SITS: "similarity-mixed",
}


@dataclass(frozen=True, slots=True)
class RatePairs(Request):
    """Which task's pairs to rate, in which words, by how many workers, for how much; `mitl rate publish`."""

    kind: ClassVar[str] = SIMILARITY
    direction: str = Likeness.STS.value
    """The task."""
    template: str = ""
    """Empty takes the task's own."""
    assignments: int = 5
    """Raters of a pair, as in CxC (section 3)."""
    per_hit: int = PER_HIT
    """Pairs per HIT, controls included."""
    controls: bool = True
    """Whether pages hold an identical, a random and a repeated pair."""
    wait_for_pilot: bool = True
    """Whether nothing new is posted in this wording while a pilot of it is out."""

    def __post_init__(self) -> None:
        if not self.template:
            object.__setattr__(self, "template", TEMPLATES[self.task])
        least = 1 + N_CONTROLS * self.controls
        if not least <= self.per_hit <= MAX_PER_HIT:
            beside = f" beside its {N_CONTROLS} controls" if self.controls else ""
            raise UsageError(
                f"--per-hit {self.per_hit} leaves no pair to ask{beside}, or is too many; give {least} to {MAX_PER_HIT}"
            )

    @property
    def task(self) -> Likeness:
        """What is rated."""
        return Likeness(self.direction)

    @property
    def own_words(self) -> Mapping[str, object]:
        """Whether it is a pilot."""
        return {"pilot": self.pilot is not None}


@dataclass(frozen=True, slots=True)
class RatingPlan(Plan):
    """What would be posted, with the pilots whose times price it."""

    pilots: tuple[PilotBatch, ...] = ()
    per_hit: int = PER_HIT
    """Pairs of the fullest new page, controls included; what its working time is reckoned for."""


def make_plan(session: Session, settings: Settings, request: RatePairs, *, adopted: int = 0) -> RatingPlan:
    """Pack what is open in this environment, or what an interrupted run left, alone; reads only.

    Raises:
        StoreError: no pair of the task was sampled yet.
        ProposalError: there are not enough items for controls.
        UsageError: there is something to post, but a pilot of the same wording is out.
    """
    left = leftover(session, request.environment, SIMILARITY, rating_pages.questions)
    waits = waits_for_pilot(
        _pilots(session, request, request.per_hit) if request.wait_for_pilot else (),
        request,
        goes_on=bool(left.hits or adopted),
        is_open=lambda: _open_plan(session, settings, request, left).n_hits > 0,
    )
    if waits:
        return RatingPlan(left=left, waits_for=waits, per_hit=request.per_hit)
    plan = _open_plan(session, settings, request, left)
    return dataclasses.replace(plan, pilots=tuple(_pilots(session, request, plan.per_hit)))


def _pilots(session: Session, request: RatePairs, per_hit: int) -> list[PilotBatch]:
    """The pilots of the task and wording, with times for a HIT of so many pairs."""
    return find_pilots(session, request.environment, request.template, per_hit, direction=request.direction)


def _open_plan(session: Session, settings: Settings, request: RatePairs, left: Leftover) -> RatingPlan:
    """What is open whether or not a pilot is out, or what is left."""
    if left:
        return RatingPlan(left=left, per_hit=request.per_hit)
    sampled = sampled_pairs(session, request.task)
    if not sampled:
        raise StoreError(
            _NOTHING_SAMPLED[request.task.sides[0] == request.task.sides[1]].format(request.task)
        )
    asked = rating_pages.pairs_on_pages(session, request.environment, request.task)
    still = shuffled((pair for pair in sampled if pair not in asked), settings.seed, f"pairs {request.task}")
    # A pilot is as many HITs as it says: what asks again waits for the rest of the campaign.
    lacking = [] if request.pilot is not None else _lacking(session, request)
    n_open = len(still) + sum(len(hit.questions) for hit in lacking)
    out, limit = plans_out(session, request)
    lacking, room = within(lacking, limit, lambda hit: len(hit.questions))
    n_again = sum(len(hit.questions) for hit in lacking)
    still = still[:room]
    if request.pilot is not None:
        pages = max(request.pilot - sum(plan.hits for plan in out), 0)
        still = still[: pages * (request.per_hit - N_CONTROLS * request.controls)]
    held_back = n_open - n_again - len(still) if request.limited else 0
    groups = _sharing_pages(lacking)
    count = n_pages(len(still), request.per_hit, controlled=request.controls)
    controls = _controls(session, settings, request, len(groups) + count) if groups or count else None
    again = tuple(_replacement(group, controls, turn, settings.seed) for turn, group in enumerate(groups))
    fresh = pack_ratings(
        still,
        request.task,
        _from(controls, len(groups)) if request.controls and controls is not None else None,
        seed=settings.seed,
        per_hit=request.per_hit,
    )
    return RatingPlan(
        fresh=tuple(fresh),
        again=again,
        n_limited=len(still) + n_again,
        n_held_back=held_back,
        out=out,
        per_hit=max((len(page.items) for page in fresh), default=request.per_hit),
    )


_NOTHING_SAMPLED = {
    True: "no pairs were sampled for {} yet; run `mitl propose --scheme crisscross` first",
    False: "no pairs were sampled for {} yet; they come from the ratings of two texts and of two images, so harvest "
    "these first and run `mitl propose --scheme crisscross` again",
}


def sampled_pairs(session: Session, task: Likeness) -> list[TwoItems]:
    """The pairs that were sampled for a task by the numbers of their items, each once, in canonical order."""
    samples = similarity_store.samples(session)
    of_task = samples[samples["task"] == TASKS.index(task)]
    one_sided = task.sides[0] == task.sides[1]
    pairs = set(zip(of_task["first"].tolist(), of_task["second"].tolist(), strict=True))
    return sorted({(min(pair), max(pair)) if one_sided else pair for pair in pairs})


def due_task(settings: Settings, environment: Environment) -> Likeness:
    """The first task of which pairs are open or lack raters; else the last that was sampled, or the first of all."""
    with open_context(settings, environment, read_only=True) as context:
        session = context.session
        lacking = {hit.questions[0].task for hit in rating_pages.lacking_hits(session, environment)}
        last = TASKS[0]
        for task in TASKS:
            sampled = set(sampled_pairs(session, task))
            if task in lacking or sampled - rating_pages.pairs_on_pages(session, environment, task):
                return task
            last = task if sampled else last
    return last


def _lacking(session: Session, request: RatePairs) -> list[LackingHit]:
    """Closed HITs of the task whose pairs lack raters."""
    return [
        hit
        for hit in rating_pages.lacking_hits(session, request.environment)
        if hit.questions[0].task is request.task
    ]


def _sharing_pages(lacking: Sequence[LackingHit]) -> list[list[LackingHit]]:
    """HITs whose pairs are asked again on one page: of one batch, lacking as many raters, as many as its reward pays.

    A pair that one rater could not see would else cost a page of its own.
    """
    groups: list[list[LackingHit]] = []
    in_order = sorted(lacking, key=lambda hit: (hit.hit.batch_id, -hit.missing))
    for hit in in_order:
        group = groups[-1] if groups else []
        of_one_kind = group and (group[0].hit.batch_id, group[0].missing) == (hit.hit.batch_id, hit.missing)
        if (
            of_one_kind
            and sum(len(lacking_hit.questions) for lacking_hit in [*group, hit]) <= hit.most - N_CONTROLS
        ):
            group.append(hit)
        else:
            groups.append([hit])
    return groups


def _replacement(
    group: Sequence[LackingHit], controls: RatingControls | None, turn: int, seed: int
) -> Replacement:
    """A page in place of the first of these HITs, with controls that it did not have where its reward pays them too."""
    first = group[0].hit
    asked = [item.pair for hit in group for item in hit.questions]
    per_hit = len(asked) + N_CONTROLS
    if controls is None or per_hit > group[0].most:
        controls, per_hit = None, len(asked)
    (page,) = pack_ratings(
        asked,
        group[0].questions[0].task,
        None if controls is None else _from(controls, turn),
        seed=seed_of(seed, first),
        per_hit=per_hit,
    )
    return Replacement(first, Page(first.number, page.items), group[0].missing)


def _from(controls: RatingControls, turn: int) -> RatingControls:
    """The controls from one's turn on, the ones before it last."""
    return RatingControls(rotated(controls.identical, turn), rotated(controls.unrelated, turn))


def _controls(session: Session, settings: Settings, request: RatePairs, count: int) -> RatingControls | None:
    """Controls for so many pages, those first that no page of the environment has had; None where none are wanted."""
    if not request.controls:
        return None
    task, seed = request.task, settings.seed
    dataset = item_store.dataset(session)
    captions = item_store.captions(session, dataset.id)
    if task is Likeness.SITS:
        alike = [(pair.image_id, pair.caption_id) for pair in sure_originals(session, seed=seed)]
    elif task is Likeness.STS:
        alike = [(caption.id, caption.id) for caption in captions]
    else:
        alike = [(i.id, i.id) for i in item_store.images(session, dataset.id, settings.project)]
    apart = (SimilarityRole.IDENTICAL, SimilarityRole.RANDOM)  # a repeated pair is no pair of its own
    met = rating_pages.pairs_on_pages(session, request.environment, task, apart)
    identical = sorted(shuffled(alike, seed, f"identical {task}"), key=lambda pair: pair in met)
    # Two spare ones let a page that asks one of them take another.
    unrelated = draw_unrelated(
        captions, similarity_store.samples(session), task, n=count + 2, seed=seed, met=met
    )
    return RatingControls(identical[: count + 2], unrelated)

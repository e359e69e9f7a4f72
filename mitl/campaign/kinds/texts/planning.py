"""Planning pages that collect: which items are open, what is offered for a caption, which texts wait for a review."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import ClassVar

import numpy as np
from sqlalchemy.orm import Session

from mitl.campaign.kinds.protocol import Plan, Request, leftover, plans_out
from mitl.campaign.kinds.similarity.unrelated import draw_unrelated
from mitl.campaign.kinds.texts.answers import ANY, MOST_OFFERED, USUAL_WORDS
from mitl.campaign.kinds.texts.packing import MAX_PER_HIT, N_CONTROLS, pack_texts
from mitl.campaign.kinds.texts.standing import ItemStanding, ItemState, standing
from mitl.campaign.pilots import sure_originals
from mitl.core.arrays import unpack_ids
from mitl.crowd.context import open_context
from mitl.db.store import collection as collection_store
from mitl.db.store import columns
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store import similarity as similarity_store
from mitl.db.store.collection import ChosenItem, CollectionPlace
from mitl.errors import ProposalError, RoundError, UsageError
from mitl.proposals.sampling import shuffled
from mitl.records import CollectionRole, Direction, Environment, Pair, several
from mitl.records.collection import TASKS, TEXTS, CollectionQuestion, Terms
from mitl.records.similarity import Likeness
from mitl.settings import Settings

TEMPLATES: Mapping[CollectionRole, str] = {
    CollectionRole.WRITE: "texts-write",
    CollectionRole.PICK: "texts-pick",
    CollectionRole.REVIEW: "texts-review",
}
PER_HIT: Mapping[CollectionRole, int] = {
    CollectionRole.WRITE: 5,
    CollectionRole.PICK: 5,
    CollectionRole.REVIEW: 12,
}
"""Places of a usual HIT, controls included."""


@dataclass(frozen=True, slots=True)
class CollectTexts(Request):
    """What people are asked to give, in which words and under which rules, for how much; `mitl collect publish`."""

    kind: ClassVar[str] = TEXTS
    direction: str = CollectionRole.WRITE.value
    """The task: write, pick or review."""
    per_hit: int = 0
    """Tasks per HIT, controls included; 0 takes the task's usual number."""
    offered: int = 6
    """Images that may be picked for a caption."""
    terms: Terms = field(default_factory=Terms)

    def __post_init__(self) -> None:
        object.__setattr__(self, "template", self.template or TEMPLATES[self.task])
        object.__setattr__(self, "per_hit", self.per_hit or PER_HIT[self.task])
        least = 1 + N_CONTROLS * (self.task is CollectionRole.REVIEW)
        if not least <= self.per_hit <= MAX_PER_HIT:
            raise UsageError(f"--per-hit is {self.per_hit}; give {least} to {MAX_PER_HIT}")
        if not 2 <= self.offered <= MOST_OFFERED:
            raise UsageError(f"--offered is {self.offered}; give 2 to {MOST_OFFERED}")
        rules = self.terms.rules
        if rules.least_words > rules.most_words:
            raise UsageError(
                f"--min-words {rules.least_words} is more than --max-words {rules.most_words}; no text could pass"
            )
        if rules.language not in (ANY, *USUAL_WORDS):
            raise UsageError(
                f"no language {rules.language!r} is known here; give {', '.join(USUAL_WORDS)}, or {ANY}"
            )

    @property
    def task(self) -> CollectionRole:
        """What is asked."""
        return CollectionRole(self.direction)


@dataclass(frozen=True, slots=True)
class TextPlan(Plan):
    """What would be posted, under which terms."""

    per_hit: int = 0
    """Places of the fullest new page; what its working time is reckoned for."""
    terms: Terms = field(default_factory=Terms)
    n_unranked: int = 0
    """Captions that are left out, for fewer than two images can be offered for them."""


def make_plan(session: Session, settings: Settings, request: CollectTexts, *, adopted: int = 0) -> TextPlan:
    """Pack what is open in this environment, or what an interrupted run left, alone; reads only.

    Raises:
        RoundError: no item was chosen yet.
        ProposalError: no images were ever ranked for any open caption, or there is no control.
    """
    left = leftover(session, request.environment, TEXTS, collection_store.questions)
    if left:
        fullest = max((len(page) for page in left.pages.values()), default=request.per_hit)
        return TextPlan(left=left, per_hit=fullest)
    items = standing(session, request.environment)
    if not items:
        raise RoundError(
            "no item was chosen to be described; choose some with `mitl collect choose --strategy random --count 20`"
        )
    still, n_unranked = _open(session, settings, request, items)
    lacking = (
        f"fewer than 2 ranked images are left to offer for {several(n_unranked, 'chosen caption')}, none else is "
        "open; rank more with `mitl propose --top-k`, the captions among its queries"
    )
    if n_unranked and not still and not any(item.offered for item in items):
        raise ProposalError(lacking)
    out, limit = plans_out(session, request)
    now = still[:limit]
    controls = _controls(session, settings, request, len(now))
    pages = pack_texts(now, controls, per_hit=request.per_hit, seed=settings.seed)
    return TextPlan(
        fresh=tuple(pages),
        n_limited=len(now),
        n_held_back=len(still) - len(now),
        out=out,
        waits_for=lacking if n_unranked and not still else "",
        per_hit=max((len(page.items) for page in pages), default=request.per_hit),
        terms=request.terms,
        n_unranked=n_unranked,
    )


def _open(
    session: Session, settings: Settings, request: CollectTexts, known: Sequence[ItemStanding]
) -> tuple[list[CollectionQuestion], int]:
    """What may be asked, in the order in which the items were chosen, reviews by writer; and how many captions lack
    images to offer."""
    if request.task is CollectionRole.REVIEW:
        # Their writers' reviews would not count: what one wrote shares pages, which others are offered.
        by_writer: dict[str, list[CollectionQuestion]] = defaultdict(list)
        for item in known:
            if (attempt := item.to_review) is not None:
                by_writer[attempt.spot.worker].append(_review(item.choice, attempt.spot))
        return list(chain.from_iterable(by_writer.values())), 0
    of_images = request.task is CollectionRole.WRITE
    waiting = [item for item in known if item.state is ItemState.OPEN and item.choice.is_image is of_images]
    if of_images:
        rules = request.terms.rules
        return [
            CollectionQuestion(0, CollectionRole.WRITE, image=item.choice.item, rules=rules)
            for item in waiting
        ], 0
    offered = _offered(session, settings, request, waiting)
    return [
        CollectionQuestion(0, CollectionRole.PICK, image=None, caption=caption, offered=images)
        for caption, images in offered.items()
    ], len(waiting) - len(offered)


def _review(choice: ChosenItem, spot: CollectionPlace) -> CollectionQuestion:
    if choice.is_image:
        return CollectionQuestion(
            0, CollectionRole.REVIEW, image=spot.item, reviewed=spot.answer, text=spot.text
        )
    return CollectionQuestion(
        0, CollectionRole.REVIEW, image=spot.picked, caption=spot.item, reviewed=spot.answer
    )


def _offered(
    session: Session, settings: Settings, request: CollectTexts, waiting: Sequence[ItemStanding]
) -> dict[int, tuple[int, ...]]:
    """Caption → the images that annotators ranked first for it, but its own and those offered before; shuffled.

    A caption with fewer than two such images is left out.
    """
    if not waiting:
        return {}
    proposals = columns.proposal_columns(session)
    searched = proposals[proposals["direction"] == list(Direction).index(Direction.T2I)]
    images, captions = unpack_ids(searched["pair"].to_numpy())
    order = np.lexsort((images, searched["rank"].to_numpy(), captions))
    ranked: dict[int, dict[int, None]] = {}
    for image, caption in zip(images[order].tolist(), captions[order].tolist(), strict=True):
        ranked.setdefault(caption, {})[image] = None
    originals = set(item_store.originals(session, item_store.dataset(session).id))
    offered = {}
    for item in waiting:
        caption = item.choice.item
        fresh = [
            image
            for image in ranked.get(caption, ())
            if image not in item.offered and Pair(image, caption) not in originals
        ]
        if len(fresh) >= 2:
            offered[caption] = tuple(shuffled(fresh[: request.offered], settings.seed, f"offered {caption}"))
    return offered


def _controls(
    session: Session, settings: Settings, request: CollectTexts, n_texts: int
) -> list[tuple[CollectionQuestion, CollectionQuestion]]:
    """For each page of reviews an image with its own caption, and one with a caption that it has nothing to do with."""
    if request.task is not CollectionRole.REVIEW or not n_texts:
        return []
    n_pages = -(-n_texts // (request.per_hit - N_CONTROLS))
    captions = item_store.captions(session, item_store.dataset(session).id)
    # Pages of reviews so far, so that later ones draw other controls.
    before = collection_store.spots(session, request.environment)
    seed = settings.seed + len({asked.hit for asked in before if asked.role is CollectionRole.CONTROL})
    alike = sure_originals(session, seed=seed)[:n_pages]
    samples = similarity_store.samples(session)
    instead = (
        "a page of reviews needs two such items as a control, so add images of something else to the data set"
    )
    apart = draw_unrelated(captions, samples, Likeness.SITS, n=len(alike), seed=seed, instead=instead)
    return [
        (_control(*(pair.image_id, pair.caption_id), True), _control(*other, False))
        for pair, other in zip(alike, [apart[turn % len(apart)] for turn in range(len(alike))], strict=True)
    ]


def _control(image: int, caption: int, matches: bool) -> CollectionQuestion:
    return CollectionQuestion(0, CollectionRole.CONTROL, image=image, caption=caption, matches=matches)


def due_task(settings: Settings, environment: Environment) -> CollectionRole:
    """Reviews first where texts wait for them; else what is open; else to write."""
    with open_context(settings, environment, read_only=True) as context:
        items = standing(context.session, environment)
    if any(item.to_review is not None for item in items):
        return CollectionRole.REVIEW
    for task in TASKS[:2]:
        of_images = task is CollectionRole.WRITE
        if any(item.state is ItemState.OPEN and item.choice.is_image is of_images for item in items):
            return task
    return CollectionRole.WRITE


def earlier_terms(settings: Settings, environment: Environment) -> Terms:
    """The rules of the latest texts asked for in an environment, and what its latest batch accepts; else the usual."""
    with open_context(settings, environment, read_only=True) as context:
        kept = collection_store.terms_of(context.session)
        batches = [row for row in hit_store.batches(context.session, environment) if row.id in kept]
    rules = [kept[row.id].rules for row in batches if row.direction == CollectionRole.WRITE]
    accepts = [kept[row.id].accepts for row in batches]
    usual = Terms()
    return Terms([usual.rules, *rules][-1], [usual.accepts, *accepts][-1])

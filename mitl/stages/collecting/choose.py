"""Choosing the items without partner for which people write or pick one (Jo et al., Algorithm 1, line 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from annotators.base import Annotator
from annotators.item_encoders import item_vectors
from mitl.campaign.kinds import fitting
from mitl.campaign.kinds.texts.planning import CollectTexts
from mitl.core.arrays import Ints
from mitl.crowd.context import Context, open_context
from mitl.db.store import collection as collection_store
from mitl.db.store import items as item_store
from mitl.db.store import proposals as proposal_store
from mitl.errors import RoundError, UsageError
from mitl.progress import Progress, no_progress
from mitl.proposals.sampling import shuffled
from mitl.records import AnnotatorKind, Direction, Environment, StageResult, several
from mitl.records.results import EnvironmentCounts, printed_by
from mitl.selection.coreset import core_set
from mitl.selection.hard_negatives import HardNegatives, Unpaired, hardest, of_vectors
from mitl.settings import Settings
from mitl.stages.proposing.computing import ComputeContext
from mitl.stages.proposing.query_lists import query_ids
from mitl.stages.proposing.ranking import SearchedItems, read_items
from mitl.stages.proposing.trained import with_trained

STRATEGIES = ("hard-negatives", "core-set", "random")


@dataclass(frozen=True, slots=True)
class CollectWish:
    """Which items to choose."""

    strategy: str = "random"
    count: int = 20
    from_images: bool = True
    """Else captions, for which an image is picked."""
    items: Path | None = None
    """A list of the ids that may be chosen; None takes every item without partner."""
    annotator: str = ""
    """Whose vectors say what is hard or far; empty takes the first of the proposals that has some."""


@printed_by("collect choose")
class CollectChooseCounts(EnvironmentCounts):
    """What choosing items counts."""

    strategy: Annotated[str, "hard-negatives, core-set or random"]
    annotator: Annotated[str | None, "whose vectors it went by; null at random"]
    chosen: Annotated[int, "items chosen now"]
    unpaired: Annotated[int, "items that could be chosen"]
    all: Annotated[int, "items chosen so far, on both sides"]


def choose(
    settings: Settings, wish: CollectWish, environment: Environment | None, progress: Progress = no_progress
) -> StageResult:
    """Choose items that have no partner, and write them down in the order in which they are asked.

    The same call again chooses the next ones: what was chosen before is not chosen again.

    Raises:
        UsageError: the strategy is unknown, or the items are texts on both sides.
        DatasetError: the list cannot be read, or names what the data set lacks.
        RoundError: no item lacks a partner, or no annotator gives vectors.
    """
    if wish.strategy not in STRATEGIES:
        raise UsageError(f"no strategy called {wish.strategy!r}; known: {', '.join(STRATEGIES)}")
    with open_context(settings, environment, progress=progress) as context:
        fitting(
            CollectTexts(context.environment), item_store.find_dataset(context.session), settings.wordings
        )
        _, items = read_items(context.session, settings)
        choices = collection_store.choices(context.session, context.environment)
        before = {choice.item for choice in choices if choice.is_image is wish.from_images}
        listed = _unpaired(items, wish)
        free = [item for item in listed if item not in before]
        n = min(wish.count, len(free))
        if wish.strategy == "random" or not n:
            drawn = shuffled(free, settings.seed, f"collected {_noun(wish)}")[:n]
            name, chosen = None, [(item, 0.0) for item in drawn]
        else:
            name, chosen = _by_vectors(context, items, wish, listed, free, n)
        new = collection_store.choose_items(
            context.session,
            context.environment,
            chosen,
            wish.strategy,
            context.now(),
            are_images=wish.from_images,
        )
        context.session.commit()
        counts = CollectChooseCounts(
            environment=context.environment.value,
            strategy=wish.strategy,
            annotator=name,
            chosen=new,
            unpaired=len(free),
            all=len(choices) + new,
        )
    what = several(new, _noun(wish))
    return StageResult(
        status="done" if new else "nothing_to_do",
        counts=counts,
        lines=(
            f"{what} of {len(free):,} chosen by {wish.strategy}{f' of {name}' if name else ''}"
            if new
            else f"nothing to do: all {several(len(listed), _noun(wish))} without partner were chosen before",
        ),
        next=f"mitl collect publish --{counts['environment']}",
    )


def _noun(wish: CollectWish) -> str:
    return "image" if wish.from_images else "caption"


def _unpaired(items: SearchedItems, wish: CollectWish) -> list[int]:
    """The items that lack a partner, or that the list names, ascending."""
    side = items.images if wish.from_images else items.captions
    if wish.items is not None:
        direction = Direction.I2T if wish.from_images else Direction.T2I
        return query_ids(wish.items, direction, {item.external_id: item.id for item in side}, items.sides)
    told = {caption.image_id for caption in items.captions}
    untold = [image.id for image in items.images if image.id not in told] if wish.from_images else []
    if not untold:
        raise RoundError(
            f"every {_noun(wish)} of this data set has a partner; name those that are to get another one with --items"
        )
    return untold


def _by_vectors(
    context: Context,
    items: SearchedItems,
    wish: CollectWish,
    listed: Sequence[int],
    free: Sequence[int],
    n: int,
) -> tuple[str, list[tuple[int, float]]]:
    """The annotator and the chosen items with their scores."""
    compute = ComputeContext.of(with_trained(context.settings, [wish.annotator]), progress=context.progress)
    annotator = _annotator(context, compute, wish.annotator)
    images = compute.encoded(annotator, "image", items.images)
    captions = compute.encoded(annotator, "caption", items.captions)
    own_of = {caption.id: caption.image_id for caption in items.captions}
    image_vectors, caption_vectors = (item_vectors(annotator.name, one) for one in (images, captions))
    if wish.from_images:
        row_ids, rows, column_ids, columns = images.ids, image_vectors, captions.ids, caption_vectors
        partner = np.array([own_of[caption] for caption in column_ids.tolist()], np.int64)
        has_text = np.isin(row_ids, partner)
    else:
        column_ids = np.array([own_of[caption] for caption in captions.ids.tolist()], np.int64)
        row_ids, rows, partner = captions.ids, caption_vectors, captions.ids
        columns = image_vectors[np.searchsorted(images.ids, column_ids)]
        has_text = np.ones(len(row_ids), np.bool_)
    is_paired = has_text & ~np.isin(row_ids, listed)
    at = np.flatnonzero(np.isin(row_ids, free))
    if wish.strategy == "core-set":
        others = np.flatnonzero(np.isin(row_ids, sorted(set(listed) - set(free))))
        paired = np.flatnonzero(is_paired)
        may = np.concatenate([at, paired, others])
        order, distance = core_set(rows[may], np.arange(len(at), len(may)), n)
        scores = [float(value) if np.isfinite(value) else 0.0 for value in distance.tolist()]
        return annotator.name, list(zip(row_ids[may[order]].tolist(), scores, strict=True))
    unpaired = _columns(of=(rows, columns), at=at, paired=np.flatnonzero(is_paired), ids=(row_ids, partner))
    rule = HardNegatives(seed=context.settings.seed)
    best, found = hardest(unpaired, n, rule)
    return annotator.name, list(zip(row_ids[best].tolist(), found.tolist(), strict=True))


def _columns(
    *, of: tuple[np.ndarray, np.ndarray], at: Ints, paired: Ints, ids: tuple[np.ndarray, np.ndarray]
) -> Unpaired:
    """Rows that may be chosen, rows with a partner, and the other side's items that are one of theirs."""
    row_ids, partner = ids
    place = {item: turn for turn, item in enumerate(row_ids[paired].tolist())}
    used = np.array([turn for turn, item in enumerate(partner.tolist()) if item in place], np.int64)
    partner_places = np.array([place[item] for item in partner[used].tolist()], np.int64)
    return Unpaired(of_vectors(of[0], of[1][used]), at, paired, partner_places)


def _annotator(context: Context, compute: ComputeContext, wanted: str) -> Annotator:
    gone = proposal_store.withdrawn_names(context.session)
    present = [row.name for row in proposal_store.annotators(context.session) if row.name not in gone]
    names = [wanted] if wanted else present
    for name in names:
        built = compute.build(name)
        if isinstance(built, Annotator) and built.kind is AnnotatorKind.INNER_PRODUCT:
            return built
    raise RoundError(
        f"{wanted!r} gives no vectors of images and captions; name an annotator of the kind inner_product"
        if wanted
        else "nothing has been proposed by an annotator with vectors; name one with --annotator, or choose at random"
    )

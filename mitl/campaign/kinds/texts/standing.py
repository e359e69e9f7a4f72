"""Where each chosen item stands: open, out, written, under review, accepted; by what is stored and nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from sqlalchemy.orm import Session

from mitl.campaign.kinds.texts.answers import check_beside, check_text, normalised
from mitl.db.store import collection as collection_store
from mitl.db.store import items as item_store
from mitl.db.store.collection import ChosenItem, CollectionPlace
from mitl.records import CollectionRole, Environment, Finding, Label
from mitl.records.collection import Tally, Terms
from mitl.records.questions import MOST_TRIES

COLLECTS = (CollectionRole.WRITE, CollectionRole.PICK)


class ItemState(StrEnum):
    """Where a chosen item stands."""

    OPEN = "open"
    """Nobody is asked now."""
    OUT = "out"
    """On a HIT, or in a submission that is not decided."""
    WRITTEN = "written"
    """Answered well enough to be reviewed, and on no review yet."""
    IN_REVIEW = "in_review"
    ACCEPTED = "accepted"
    GIVEN_UP = "given_up"
    """Refused or skipped too often."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One worker's text or pick for an item."""

    spot: CollectionPlace
    faults: tuple[Finding, ...]
    """Why it is not used, whatever was paid for it."""
    reviewer: str = ""
    """The worker whose review decides; empty while none does."""
    verdict: Label | None = None
    accepted: bool = False
    review_out: bool = False
    """Whether a review of it is planned or out."""
    undecided: int = 0
    """Reviews that decide nothing: it was skipped, its image did not load, or its own writer took them."""

    @property
    def is_refused(self) -> bool:
        """Whether the item is to be asked again."""
        refused = self.verdict is not None and not self.accepted
        return bool(self.faults) or refused or self.undecided >= MOST_TRIES


@dataclass(frozen=True, slots=True)
class ItemStanding:
    """A chosen item with all that was given for it."""

    choice: ChosenItem
    state: ItemState
    attempts: tuple[Attempt, ...] = ()
    hits: tuple[int, ...] = ()
    """That asked for it."""
    offered: frozenset[int] = field(default_factory=frozenset)
    """What could be picked by those whose answers count."""

    @property
    def accepted(self) -> Attempt | None:
        """The text or pick that was accepted."""
        return next((attempt for attempt in self.attempts if attempt.accepted), None)

    @property
    def to_review(self) -> Attempt | None:
        """What waits to be put on a page of reviews."""
        return next(iter(self.waiting), None) if self.state is ItemState.WRITTEN else None

    @property
    def waiting(self) -> list[Attempt]:
        """What is to be reviewed or is under review; a text beside the accepted one is not needed."""
        if self.state is ItemState.ACCEPTED:
            return []
        return [attempt for attempt in self.attempts if not attempt.is_refused]


def tally(known: Sequence[ItemStanding]) -> Tally:
    """Count them."""
    attempts = [attempt for item in known for attempt in item.attempts]
    written = sum(len(item.attempts) for item in known if item.choice.is_image)
    return Tally(
        chosen=len(known),
        written=written,
        picked=len(attempts) - written,
        faulty=sum(bool(attempt.faults) for attempt in attempts),
        accepted=sum(attempt.accepted for attempt in attempts),
        refused=sum(attempt.is_refused and not attempt.faults for attempt in attempts),
    )


def standing(session: Session, environment: Environment) -> list[ItemStanding]:
    """Every chosen item of an environment, in the order in which they are asked."""
    choices = collection_store.choices(session, environment)
    if not choices:
        return []
    captions = item_store.captions(session, item_store.dataset(session).id)
    return stand(
        choices,
        collection_store.spots(session, environment),
        collection_store.terms_of(session),
        {normalised(caption.text) for caption in captions},
    )


def stand(
    choices: Sequence[ChosenItem],
    spots: Sequence[CollectionPlace],
    terms: Mapping[int, Terms],
    of_dataset: Collection[str],
) -> list[ItemStanding]:
    """As `standing`, of what was read.

    Args:
        spots: in the order in which answers came.
        of_dataset: the data set's captions, normalised.
    """
    faults = faults_of(spots, terms, of_dataset)
    of_item: dict[tuple[bool, int], list[CollectionPlace]] = defaultdict(list)
    reviews: dict[int, list[CollectionPlace]] = defaultdict(list)
    for spot in spots:
        if spot.role in COLLECTS:
            of_item[spot.is_image, spot.item].append(spot)
        elif spot.reviewed is not None:
            reviews[spot.reviewed].append(spot)
    return [
        _item(choice, of_item[choice.is_image, choice.item], faults, reviews, terms) for choice in choices
    ]


def faults_of(
    spots: Sequence[CollectionPlace], terms: Mapping[int, Terms], of_dataset: Collection[str]
) -> dict[int, tuple[Finding, ...]]:
    """Answer → what is wrong with its text; a text that came before counts where the same worker gave it."""
    before: dict[str, set[str]] = defaultdict(set)
    faults = {}
    for spot in spots:
        if spot.role is CollectionRole.WRITE and spot.answer is not None and spot.text:
            earlier_texts = before[spot.worker]
            faults[spot.answer] = (
                *check_text(spot.text, terms[spot.batch].rules),
                *check_beside(spot.text, earlier_texts, of_dataset),
            )
            earlier_texts.add(normalised(spot.text))
    return faults


def _item(
    choice: ChosenItem,
    spots: Sequence[CollectionPlace],
    faults: Mapping[int, tuple[Finding, ...]],
    reviews: Mapping[int, Sequence[CollectionPlace]],
    terms: Mapping[int, Terms],
) -> ItemStanding:
    attempts: list[Attempt] = []
    for spot in spots:
        if spot.answer is None or not spot.counts:
            continue
        if spot.role is CollectionRole.PICK and spot.picked is None and spot.outcome == "answered":
            attempts.append(Attempt(spot, (Finding("none_picked", "none of the images matches"),)))
        elif spot.text or spot.picked is not None:
            attempts.append(_reviewed(spot, faults.get(spot.answer, ()), attempts, reviews, terms))
    return ItemStanding(
        choice,
        _state(spots, attempts),
        tuple(attempts),
        tuple(dict.fromkeys(spot.hit for spot in spots)),
        frozenset(
            item for spot in spots if spot.counts and spot.outcome == "answered" for item in spot.offered
        ),
    )


def _reviewed(
    spot: CollectionPlace,
    faults: Sequence[Finding],
    before: Sequence[Attempt],
    reviews: Mapping[int, Sequence[CollectionPlace]],
    terms: Mapping[int, Terms],
) -> Attempt:
    """The first review that counts decides; one by the writer does not."""
    if any(one.spot.worker == spot.worker for one in before):
        faults = (*faults, Finding("same_writer", "the worker's earlier answer for it was refused"))
    of_text = reviews.get(spot.answer or 0, ())
    said = [one for one in of_text if one.counts and one.label is not None and one.worker != spot.worker]
    out = any(one.live for one in of_text)
    if not said:
        undecided = sum(one.counts for one in of_text)
        return Attempt(spot, tuple(faults), review_out=out, undecided=undecided)
    first = said[0]
    accepted = not faults and first.label in terms[first.batch].accepts
    return Attempt(spot, tuple(faults), first.worker, first.label, accepted, review_out=out)


def _state(spots: Sequence[CollectionPlace], attempts: Sequence[Attempt]) -> ItemState:
    if any(attempt.accepted for attempt in attempts):
        return ItemState.ACCEPTED
    for attempt in attempts:
        if not attempt.is_refused:
            return ItemState.IN_REVIEW if attempt.review_out else ItemState.WRITTEN
    if any(spot.live for spot in spots):
        return ItemState.OUT
    tries = sum(spot.answer is not None and spot.counts for spot in spots)
    return ItemState.GIVEN_UP if tries >= MOST_TRIES else ItemState.OPEN

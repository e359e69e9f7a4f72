"""What people wrote or picked and a second worker accepted: for training, for releases, for whoever looks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from mitl.campaign.kinds.texts.standing import ItemStanding, standing
from mitl.core.packed import pack_ids
from mitl.crowd.context import Context
from mitl.db.store import items as item_store
from mitl.records import Label
from mitl.records.collection import COLLECTED
from mitl.records.frames import frame


@dataclass(frozen=True, slots=True)
class AcceptedText:
    """A text with its image, both given by people."""

    name: str
    """``w000001``, by the row of the answer; of a picked image the caption's own id."""
    answer: int
    """Row of the answer."""
    image: int
    caption: int | None
    """Where the text is the data set's; None where it was written."""
    text: str
    writer: str
    """Id on the requester API, as the reviewer's: for pseudonyms alone."""
    reviewer: str
    label: Label
    """The review's answer."""
    strategy: str
    """That chose the item."""
    batch: int


def accepted_texts(context: Context) -> list[AcceptedText]:
    """All that was accepted in an environment, in the order in which it was given."""
    session = context.session
    captions = {c.id: c for c in item_store.captions(session, item_store.dataset(session).id)}
    found = []
    for one in standing(session, context.environment):
        attempt = one.accepted
        if attempt is None or attempt.verdict is None or attempt.spot.answer is None:
            continue
        spot = attempt.spot
        caption = None if one.choice.is_image else captions[spot.item]
        image = spot.item if caption is None else spot.picked or 0
        found.append(
            AcceptedText(
                name=f"w{spot.answer:06}" if caption is None else caption.external_id,
                answer=attempt.spot.answer,
                image=image,
                caption=None if caption is None else caption.id,
                text=spot.text if caption is None else caption.text,
                writer=spot.worker,
                reviewer=attempt.reviewer,
                label=attempt.verdict,
                strategy=one.choice.strategy,
                batch=spot.batch,
            )
        )
    return sorted(found, key=lambda text: text.name)


def collected(context: Context) -> pd.DataFrame:
    """``COLLECTED``: the accepted texts as originals that an annotator may learn from.

    A written text has a number of its own, that of the data set's last caption plus the row of its answer; so it can be
    put behind the data set's captions, and keeps its number when more are accepted.
    """
    texts = accepted_texts(context)
    dataset = item_store.dataset(context.session)
    last = max((c.id for c in item_store.captions(context.session, dataset.id)), default=0)
    numbers = [last + text.answer if text.caption is None else text.caption for text in texts]
    images = np.array([text.image for text in texts], np.int64)
    return frame(
        COLLECTED,
        {
            "pair": pack_ids(images, np.array(numbers, np.int64)),
            "image": images,
            "text": [text.text for text in texts],
            "name": [text.name for text in texts],
        },
    )


def by_state(known: list[ItemStanding]) -> dict[str, int]:
    """State → chosen items that are in it; those that none is in are left out."""
    counts: dict[str, int] = {}
    for one in known:
        counts[one.state.value] = counts.get(one.state.value, 0) + 1
    return counts

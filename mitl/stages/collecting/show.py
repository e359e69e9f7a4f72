"""What people wrote or picked and a second worker accepted; and `mitl collect show`.

That command shows what was chosen, written, accepted and refused, what a text cost, and the texts themselves.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypedDict

import numpy as np
import pandas as pd
from markupsafe import Markup
from sqlalchemy.orm import Session

from mitl.campaign.kinds.texts.standing import Attempt, ItemStanding, ItemState, standing, tally
from mitl.campaign.standing import takes_in
from mitl.core.arrays import Ints, pack_ids, pack_pairs
from mitl.core.pictures import page_jpeg
from mitl.core.pricing import format_dollars
from mitl.core.whole_files import write_kept
from mitl.crowd.context import Context, open_context
from mitl.db.store import collection as collection_store
from mitl.db.store import columns
from mitl.db.store import items as item_store
from mitl.positives.release_input import CollectedText
from mitl.records import Environment, ImageItem, Pair, StageResult, Table, several
from mitl.records.collection import COLLECTED
from mitl.records.forms import IMAGES
from mitl.records.frames import frame
from mitl.records.results import EnvironmentCounts, printed_by
from mitl.settings import Settings


def accepted_texts(context: Context) -> list[CollectedText]:
    """All that was accepted in an environment, in the order in which it was given."""
    session = context.session
    captions = {c.id: c for c in item_store.captions(session, item_store.dataset(session).id)}
    texts = []
    for item in standing(session, context.environment):
        attempt = item.accepted
        if attempt is None or attempt.verdict is None or attempt.spot.answer is None:
            continue
        spot = attempt.spot
        caption = None if item.choice.is_image else captions[spot.item]
        image = spot.item if caption is None else spot.picked or 0
        texts.append(
            CollectedText(
                name=f"w{spot.answer:06}" if caption is None else caption.external_id,
                answer=attempt.spot.answer,
                image=image,
                caption=None if caption is None else caption.id,
                text=spot.text if caption is None else caption.text,
                writer=spot.worker,
                reviewer=attempt.reviewer,
                label=attempt.verdict.value,
                strategy=item.choice.strategy,
                batch=spot.batch,
            )
        )
    return sorted(texts, key=lambda text: text.name)


def picked_pairs(session: Session, environment: Environment) -> list[Pair]:
    """For which of the data set's captions people picked which image, where that was accepted."""
    accepted = (item.accepted for item in standing(session, environment) if not item.choice.is_image)
    return [Pair(attempt.spot.picked or 0, attempt.spot.item) for attempt in accepted if attempt is not None]


def originals_with(context: Context) -> Ints:
    """The data set's original pairs, and those that people picked (`picked_pairs`)."""
    own = columns.original_columns(context.session, item_store.dataset(context.session).id)
    return np.concatenate([own, pack_pairs(picked_pairs(context.session, context.environment))])


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
    for item in known:
        counts[item.state.value] = counts.get(item.state.value, 0) + 1
    return counts


@printed_by("collect show")
class CollectShowCounts(EnvironmentCounts):
    """What was collected."""

    chosen: Annotated[int, "items chosen to get a partner"]
    states: Annotated[
        dict[str, int], "open, out, written, in_review, accepted or given_up → items that are so"
    ]
    written: Annotated[int, "texts and picks in submissions that are kept"]
    faulty: Annotated[int, "those that break a rule, and are not reviewed"]
    accepted: Annotated[int, "those that a second worker accepted"]
    refused: Annotated[int, "those that a second worker refused"]
    faults: Annotated[dict[str, int], "finding → texts that have it"]
    paid_cents: Annotated[int, "rewards, fees and bonuses of all pages that collect, reviews included"]
    cents_per_accepted: Annotated[float | None, "that for each accepted text; null without one"]


@printed_by("collect show", key="paths")
class CollectShowPaths(TypedDict, total=False):
    """What was written."""

    html: Annotated[str, "the texts with their pictures (`--out`)"]


def show(
    settings: Settings,
    environment: Environment | None = None,
    *,
    to: Path | None = None,
    replace: bool = False,
) -> StageResult:
    """Where every chosen item stands, and what was given for it.

    Args:
        to: an HTML file of its own with the pictures.

    Raises:
        UsageError: that file holds something else and ``replace`` is false, or cannot be written.
    """
    with open_context(settings, environment, read_only=True) as context:
        session = context.session
        items = standing(session, context.environment)
        dataset = item_store.dataset(session)
        images = {i.id: i for i in item_store.images(session, dataset.id, settings.project)}
        captions = {c.id: c.text for c in item_store.captions(session, dataset.id)}
        paid = collection_store.paid_cents(session, context.environment)
        where = context.environment.value
        on_their_way = takes_in(session, context.environment)
    attempts = [attempt for item in items for attempt in item.attempts]
    all_ = tally(items)
    accepted = all_.accepted
    faults: dict[str, int] = {}
    for code in (fault.code for attempt in attempts for fault in attempt.faults):
        faults[code] = faults.get(code, 0) + 1
    counts = CollectShowCounts(
        environment=where,
        chosen=len(items),
        states=by_state(items),
        written=len(attempts),
        faulty=all_.faulty,
        accepted=accepted,
        refused=all_.refused,
        faults=dict(sorted(faults.items())),
        paid_cents=paid,
        cents_per_accepted=paid / accepted if accepted else None,
    )
    if not items:
        return StageResult(
            status="nothing_to_do",
            counts=counts,
            lines=(f"nothing to show: no item was chosen on {where}",),
            next="mitl collect choose --strategy random --count 20" if dataset.form is IMAGES else "",
        )
    if to is not None:
        write_kept(to, _page(items, images, captions).encode(), replace=replace)
    rows = tuple(
        (_name(item, images, captions), item.choice.strategy, *_said(item, attempt, images))
        for item in items
        for attempt in item.attempts
    )
    price = "" if not accepted else f", {format_dollars(round(paid / accepted))} for each accepted one"
    return StageResult(
        counts=counts,
        paths={} if to is None else CollectShowPaths(html=str(to)),
        tables=(
            Table("", ("state", "items"), tuple(counts["states"].items())),
            *([Table("texts and picks", _COLUMNS, rows)] if rows else []),
        ),
        lines=(
            f"{several(accepted, 'text or pick', 'texts and picks')} accepted of {len(attempts):,}; "
            f"paid {format_dollars(paid)}{price}",
        ),
        next=_next(counts["states"], where, on_their_way),
    )


def _next(states: Mapping[str, int], where: str, on_their_way: str) -> str:
    """First what is to be asked, then what is to be taken in, then the release."""
    if states.get(ItemState.OPEN) or states.get(ItemState.WRITTEN):
        return f"mitl collect publish --{where}"
    if states.get(ItemState.OUT) or states.get(ItemState.IN_REVIEW):
        return on_their_way or "mitl status"
    return f"mitl build-dataset --{where} --out DIR"


_COLUMNS = ("item", "by", "state", "review", "text", "faults")


def _name(one: ItemStanding, images: Mapping[int, ImageItem], captions: Mapping[int, str]) -> str:
    item = one.choice.item
    return f"image {images[item].external_id}" if one.choice.is_image else captions[item]


def _said(
    one: ItemStanding, attempt: Attempt, images: Mapping[int, ImageItem]
) -> tuple[str, str | None, str, str]:
    state = "refused" if attempt.is_refused else "waits" if attempt in one.waiting else "not needed"
    state = "accepted" if attempt.accepted else state
    picked = attempt.spot.picked
    text = attempt.spot.text if picked is None else f"image {images[picked].external_id}"
    verdict = None if attempt.verdict is None else attempt.verdict.value
    return state, verdict, text, "; ".join(fault.detail for fault in attempt.faults)


_HEAD = Markup(
    '<!DOCTYPE html><html lang="en"><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width,initial-scale=1">'
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data: https:; '
    "style-src 'unsafe-inline'\"><title>Collected texts</title><style>"
    ":root{{color-scheme:light dark}}"
    "body{{font:16px/1.45 system-ui,sans-serif;max-width:960px;margin:auto;padding:16px}}"
    "section{{display:flex;flex-wrap:wrap;gap:16px;border-top:1px solid #888;padding:16px 0}}"
    "figure{{margin:0;flex:0 0 260px}}img{{max-width:260px;max-height:260px}}div{{flex:1 1 300px}}"
    "h2{{font-size:1.1rem;margin:0}}h2,q{{overflow-wrap:anywhere}}.refused q{{text-decoration:line-through}}</style>"
    "<h1>Collected texts</h1><p>{count} items were chosen.</p>"
)
_SECTION = Markup(
    '<section>{picture}<div><h2 dir="auto">{name}</h2><p>{state}, chosen by {strategy}</p>{texts}</div></section>'
)
_TEXT = Markup('<p class="{state}"><b>{state}</b>{review}: <q dir="auto">{text}</q> {faults}</p>')
_PICTURE = Markup('<figure><img src="{source}" alt="{name}"></figure>')


def _page(known: Sequence[ItemStanding], images: Mapping[int, ImageItem], captions: Mapping[int, str]) -> str:
    """One file of its own; whatever people wrote is escaped."""
    parts = [_HEAD.format(count=len(known))]
    for item in known:
        texts = []
        for attempt in item.attempts:
            state, review, text, faults = _said(item, attempt, images)
            told = f" ({review})" if review else ""
            texts.append(_TEXT.format(state=state, review=told, text=text, faults=faults))
        last = item.accepted or (item.attempts[-1] if item.attempts else None)
        shown = item.choice.item if item.choice.is_image else last.spot.picked if last else None
        parts.append(
            _SECTION.format(
                picture="" if shown is None else _picture(images[shown]),
                name=_name(item, images, captions),
                state=item.state.value.replace("_", " "),
                strategy=item.choice.strategy,
                texts=Markup("").join(texts),
            )
        )
    return "\n".join(parts) + "\n"


def _picture(image: ImageItem) -> Markup:
    if image.path is not None and image.path.is_file():
        try:  # made anew, as workers saw it: a photo tells where it was taken, and not every file is a picture
            source = f"data:image/jpeg;base64,{base64.b64encode(page_jpeg(image.path)).decode()}"
        except OSError:
            return Markup("")
    elif image.url is not None and image.url.startswith("https://"):
        source = image.url
    else:
        return Markup("")
    return _PICTURE.format(source=source, name=image.external_id)

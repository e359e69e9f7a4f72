"""What a release tells of texts that people wrote and images that they picked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from mitl.campaign.kinds.texts.standing import standing, tally
from mitl.crowd.context import Context
from mitl.db.store import collection as collection_store
from mitl.positives.release_input import CollectedText, Collecting
from mitl.positives.scrubbing import scrub_all
from mitl.stages.collecting.collected import AcceptedText


def collected(texts: Sequence[AcceptedText], ids: Iterable[str]) -> tuple[CollectedText, ...]:
    """The accepted texts; of what was written, addresses, long numbers and ids are taken out."""
    scrubbed = scrub_all({text.text for text in texts if text.caption is None}, ids)
    return tuple(
        CollectedText(
            name=text.name,
            image=text.image,
            text=scrubbed[text.text].text if text.caption is None else text.text,
            is_written=text.caption is None,
            writer=text.writer,
            reviewer=text.reviewer,
            label=text.label.value,
            strategy=text.strategy,
        )
        for text in texts
    )


def collecting(context: Context) -> Collecting | None:
    """How many were asked for and given; None where no item was chosen to get a partner."""
    known = standing(context.session, context.environment)
    if not known:
        return None
    paid = collection_store.paid_cents(context.session, context.environment)
    return Collecting(**asdict(tally(known)), paid_cents=paid)

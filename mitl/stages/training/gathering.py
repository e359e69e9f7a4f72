"""What a project has to teach: originals, what people wrote or picked, and the answers that may be learnt from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from mitl.core.arrays import Ints, contains, distinct, pack_pairs, places, unpack_ids
from mitl.crowd.context import Context
from mitl.db.store import audits, columns
from mitl.db.store import items as item_store
from mitl.records import CaptionItem
from mitl.records.frames import LABELS, counts, frame
from mitl.records.rounds import TEACHING

_GRADES = np.linspace(1, 0, len(LABELS))
"""Of yes, weak yes, weak no and no."""
_POSITIVE = np.array([label.is_positive for label in LABELS])


def no_lesson(context: Context) -> Ints:
    """The pairs (ascending) whose answers teach nothing: those drawn to bound machine labels."""
    return pack_pairs(audits.drawn_for_labels(context.session, context.environment))


def written(texts: pd.DataFrame, captions: Sequence[CaptionItem]) -> list[CaptionItem]:
    """What people wrote for images, as items behind these captions, which are all that the data set has.

    Args:
        texts: ``COLLECTED``.
    """
    images, numbers = unpack_ids(texts["pair"].to_numpy())
    caption_ids = {caption.id for caption in captions}
    rows = zip(numbers.tolist(), texts["name"], images.tolist(), texts["text"], strict=True)
    return sorted((CaptionItem(*row) for row in rows if row[0] not in caption_ids), key=lambda item: item.id)


def teaching(context: Context, excluded: Ints, texts: pd.DataFrame) -> pd.DataFrame:
    """``TEACHING``: each original pair, and each pair with a usable answer in an asked role.

    An audit's answers are not among those that are read. Where people were asked about an original pair, their answers
    stand; where they were not, it is a match of grade 1. What people wrote or picked, and others accepted, is original.

    Args:
        excluded: packed pairs, ascending, whose answers are not read, nor what was picked of them (``no_lesson``).
        texts: ``COLLECTED``.

    Raises:
        StoreError: there is no data set.
    """
    judgements = columns.judgement_columns(context.session, context.environment)
    kept = judgements[counts(judgements) & ~contains(excluded, judgements["pair"].to_numpy())]
    label = kept["label"].to_numpy()
    answers = pd.DataFrame(
        {"pair": kept["pair"].to_numpy(), "grade": _GRADES[label], "yes": _POSITIVE[label]}
    )
    by_pair = answers.groupby("pair").agg(grade=("grade", "mean"), yes=("yes", "sum"), n=("yes", "size"))
    judged = by_pair.index.to_numpy(np.int64)
    accepted = texts["pair"].to_numpy()
    original_pairs = columns.original_columns(context.session, item_store.dataset(context.session).id)
    originals = distinct(np.concatenate([original_pairs, accepted[~contains(excluded, accepted)]]))
    pairs = distinct(np.concatenate([judged, originals]))
    at = places(judged, pairs)
    asked = at >= 0
    n, yes = np.zeros(len(pairs), np.int64), np.zeros(len(pairs), np.int64)
    grade = np.ones(len(pairs))
    n[asked], yes[asked] = by_pair["n"].to_numpy()[at[asked]], by_pair["yes"].to_numpy()[at[asked]]
    grade[asked] = by_pair["grade"].to_numpy()[at[asked]]
    return frame(
        TEACHING,
        {
            "pair": pairs,
            "grade": grade,
            "positive": np.where(asked, 2 * yes > n, True),
            "n": n,
            "original": contains(originals, pairs),
        },
    )

"""Whether a file holds what the project has already: its own release, or past work under another name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from sqlalchemy.orm import Session

from mitl.core.packed import contains, pack_ids
from mitl.db.store import columns
from mitl.errors import DatasetError
from mitl.positives.pair_answers import bits
from mitl.records import Environment
from mitl.records.frames import NONE, is_gold
from mitl.stages.past_work.past import PastSubmission

SAME = 0.95
"""Share of a file's answers on pairs judged here that another crowd would not reach: on four levels two people who
work well agree on some two thirds of the pairs, and then name other reasons."""

_Answer = tuple[int, int, int, int]
"""Packed pair, label, shortcomings and concepts: what the official layout tells answers apart by."""


def refuse_doubles(
    session: Session, environment: Environment, past: Sequence[PastSubmission], name: str
) -> None:
    """Pass where the file's answers are other people's than those that are here.

    The official layout names no worker, so that only the answers themselves can tell.

    Raises:
        DatasetError: they are the same, answer for answer, wherever both know a pair.
    """
    given = Counter(_given(past))
    if not given:
        return
    here = Counter(_stored(columns.judgement_columns(session, environment), [answer[0] for answer in given]))
    judged = {answer[0] for answer in here}
    met = sum(count for answer, count in given.items() if answer[0] in judged)
    same = sum(min(count, here[answer]) for answer, count in given.items())
    if met and same >= SAME * met:
        raise DatasetError(
            f"{same:,} of the {met:,} answers in {name!r} on pairs that were judged here are here already, reason for "
            "reason: it is this project's own release, or past work that was brought in under another name; nothing "
            "was brought in; if other people gave these answers, say --count-again"
        )


def _given(past: Iterable[PastSubmission]) -> Iterable[_Answer]:
    found = [(pair, answer) for one in past for pair, answer in one.read.answers if answer is not None]
    images, captions = (
        np.array([(pair.image_id, pair.caption_id) for pair, _ in found], np.int64).reshape(-1, 2).T
    )
    for packed, (_, answer) in zip(pack_ids(images, captions).tolist(), found, strict=True):
        if answer.label is not None:
            yield packed, answer.label.code - 1, bits(answer.shortcomings), bits(answer.concepts)


def _stored(answers: pd.DataFrame, pairs: Sequence[int]) -> Iterable[_Answer]:
    """Those on these pairs, usable or not, as a release may be older than a decision; controls are in no release."""
    asked = np.unique(np.array(pairs, np.int64))
    wanted = ~is_gold(answers) & (answers["label"] != NONE) & contains(asked, answers["pair"].to_numpy())
    found = answers.loc[wanted, ["pair", "label", "shortcomings", "concepts"]]
    return zip(*(found[name].tolist() for name in found), strict=True)

"""Names for workers that tell nothing of their ids, and the order in which their answers are shown."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import replace

import numpy as np

from mitl.errors import ReleaseError
from mitl.positives.judgement_columns import UNMEASURED, JudgementColumns
from mitl.proposals.packed import Ints

MIN_SALT_BYTES = 16
TIME_STEP_MS = 1000
"""Times are released to the nearest second: a page's exact milliseconds could be found again in other logs."""


def pseudonym(worker: str, salt: bytes) -> str:
    """``w_`` and 16 characters (80 bits) of HMAC-SHA-256 of the worker's id under the release's secret salt.

    The same worker has one name within a release and unrelated names in two, as each release has its own
    salt.

    Raises:
        ReleaseError: the salt has fewer than 16 bytes, so that ids could be found by trying.
    """
    if len(salt) < MIN_SALT_BYTES:
        raise ReleaseError(f"the salt has {len(salt)} bytes, but at least {MIN_SALT_BYTES} are needed")
    digest = hmac.new(salt, worker.encode(), hashlib.sha256).digest()
    return "w_" + base64.b32encode(digest[:10]).decode("ascii").lower()


def shown_judgements(judgements: JudgementColumns, salt: bytes) -> JudgementColumns:
    """The judgements that a release shows, under pseudonyms; gold controls are left out.

    In order of pair, pseudonym and then content: nothing of the order in which they came in is left. Times are to
    the nearest second.
    """
    shown = judgements.take(~judgements.gold)
    names = [pseudonym(worker, salt) for worker in shown.workers]
    by_name = sorted(range(len(names)), key=names.__getitem__)
    place = np.empty(len(names), np.int32)
    place[by_name] = np.arange(len(names), dtype=np.int32)
    renamed = replace(
        shown,
        worker=place[shown.worker] if names else shown.worker,
        workers=tuple(names[n] for n in by_name),
        active_ms=_coarse(shown.active_ms),
    )
    content = (
        *(() if renamed.text is None else (renamed.text,)),
        renamed.concepts,
        renamed.shortcomings,
        renamed.active_ms,
        renamed.usable,
        renamed.label,
        renamed.outcome,
        renamed.worker,
        renamed.pairs,
    )
    return renamed.take(np.lexsort(content))


def _coarse(active_ms: Ints) -> Ints:
    steps = (active_ms + TIME_STEP_MS // 2) // TIME_STEP_MS * TIME_STEP_MS
    return np.where(active_ms == UNMEASURED, UNMEASURED, steps)

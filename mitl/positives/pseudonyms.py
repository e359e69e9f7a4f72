"""Names for workers that tell nothing of their ids, and the order in which their answers are shown."""

from __future__ import annotations

import base64
import hashlib
import hmac

import numpy as np
import pandas as pd

from mitl.errors import ReleaseError
from mitl.records.frames import NONE, is_gold

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


def shown_judgements(judgements: pd.DataFrame, salt: bytes) -> pd.DataFrame:
    """The judgements that a release shows, under pseudonyms; gold controls are left out.

    In order of pair, pseudonym and then content: nothing of the order in which they came in is left. Times are to
    the nearest second.
    """
    shown = judgements[~is_gold(judgements)]
    steps = (shown["active_ms"] + TIME_STEP_MS // 2) // TIME_STEP_MS * TIME_STEP_MS
    names = shown["worker"].cat.rename_categories(lambda worker: pseudonym(worker, salt))
    renamed = shown.assign(
        worker=names.cat.reorder_categories(sorted(names.cat.categories)),
        active_ms=steps.where(shown["active_ms"] != NONE, NONE),
    )
    order = ["pair", "worker", "outcome", "label", "usable", "active_ms", "shortcomings", "concepts", "text"]
    keys = [renamed[name] for name in order if name in renamed]
    codes = [key.cat.codes if key.dtype == "category" else key for key in keys]
    return renamed.iloc[np.lexsort(codes[::-1])]

"""Which round chose a pair that was asked."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from mitl.records.frames import frame
from mitl.records.rounds import CHOSEN_BY


def first_choices(rounds: Iterable[tuple[int, pd.DataFrame]]) -> pd.DataFrame:
    """``CHOSEN_BY`` of rounds, each with its number and its ``CHOSEN``; the earliest counts where two chose a pair."""
    parts = [chosen.assign(round=number)[list(CHOSEN_BY)] for number, chosen in rounds]
    if not parts:
        return frame(CHOSEN_BY, {name: [] for name in CHOSEN_BY})
    every = pd.concat(parts, ignore_index=True).sort_values(["pair", "round"], kind="stable")
    first = every.drop_duplicates("pair", ignore_index=True)
    return frame(CHOSEN_BY, {name: first[name] for name in CHOSEN_BY})


def chosen_columns(chosen: pd.DataFrame, pairs: NDArray[np.int64]) -> dict[str, pa.Array]:
    """``round`` and ``strategy`` of each packed pair (n,), null where no round chose it; nothing without rounds."""
    if not len(chosen):
        return {}
    packed = chosen["pair"].to_numpy()
    place = np.minimum(np.searchsorted(packed, pairs), len(packed) - 1)
    rows = pa.array(place, mask=packed[place] != pairs)
    return {
        "round": pa.array(chosen["round"].to_numpy()).take(rows),
        "strategy": pa.array(chosen["strategy"].tolist(), pa.string()).take(rows),
    }

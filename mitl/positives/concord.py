"""How far people agree who answered the same pairs: overlap, repeats, and whatever else was asked of several."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from mitl.core.packed import distinct
from mitl.judgements.agreement import Alpha, table_alpha
from mitl.judgements.answer_table import answer_table
from mitl.judgements.majority import POSITIVE_LABELS
from mitl.records.frames import counts


@dataclass(frozen=True, slots=True)
class Concord:
    """Agreement on the pairs that two people or more answered, gold controls left out."""

    alpha: Alpha
    """Ordinal: a step on the scale of four weighs by the answers that lie between."""
    same_label: int
    """Pairs on which all answers are the same."""
    same_side: int
    """Pairs on which all are positive or all negative."""

    @property
    def pairs(self) -> int:
        """Pairs with usable answers of two people or more."""
        return self.alpha.units

    @property
    def has_interval(self) -> bool:
        """Whether the bootstrap gave one."""
        return self.alpha.low is not None and self.alpha.high is not None

    def as_json(self) -> dict[str, object]:
        """The figures for the manifest; ``alpha`` is null where it cannot be estimated."""
        return {
            "alpha": _rounded(self.alpha.alpha),
            "alpha_low": _rounded(self.alpha.low),
            "alpha_high": _rounded(self.alpha.high),
            "pairs": self.pairs,
            "answers": self.alpha.answers,
            "same_label": self.same_label,
            "same_side": self.same_side,
        }


def concord(judgements: pd.DataFrame) -> Concord:
    """Agreement among the usable answers; a worker who answered a pair twice counts once.

    The rows may come in any order.
    """
    counting = judgements[counts(judgements)]
    pairs, label = counting["pair"].to_numpy(), counting["label"].to_numpy()
    worker = counting["worker"].cat.codes.to_numpy()
    # By label last: which of somebody's two answers counts must not depend on the order of the rows.
    order = np.lexsort((label, worker, pairs))
    table = answer_table(
        np.searchsorted(distinct(pairs), pairs[order]),
        worker[order],
        label[order],
        n_workers=len(judgements["worker"].cat.categories),
    )
    same_label = same_side = 0
    if len(table):
        first = np.append(True, (np.diff(table.item) != 0) | (np.diff(table.worker) != 0))
        item, given = table.item[first], table.label[first]
        starts = np.flatnonzero(np.append(True, np.diff(item) != 0))
        several = np.diff(np.append(starts, len(item))) > 1
        low, high = np.minimum.reduceat(given, starts)[several], np.maximum.reduceat(given, starts)[several]
        same_label = int((low == high).sum())
        same_side = int(((low < POSITIVE_LABELS) == (high < POSITIVE_LABELS)).sum())
    return Concord(table_alpha(table), same_label, same_side)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)

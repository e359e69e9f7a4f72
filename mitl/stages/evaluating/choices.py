"""Which metrics are wanted, and what a ranking means that ends too early."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mitl.errors import UsageError
from mitl.metrics.relevance import Short
from mitl.metrics.retrieval import MAP_AT_R, MEDIAN_RANK, R_PRECISION, recall_name

KS = (1, 5, 10)
KNOWN = "R@K for any K, R-Precision, mAP@R, median-rank"
_RECALL = re.compile(r"r(?:ecall)?@([1-9][0-9]*)")
_BY_R = {"r-precision": R_PRECISION, "r-p": R_PRECISION, "map@r": MAP_AT_R}


@dataclass(frozen=True, slots=True)
class Wanted:
    """The metrics of a set of positives."""

    ks: tuple[int, ...] = KS
    by_r: tuple[str, ...] = (R_PRECISION, MAP_AT_R)
    median_rank: bool = False
    short: Short = "raise"

    def keeps(self, metric: str) -> bool:
        """Whether this metric was asked for."""
        names = {*(recall_name(k) for k in self.ks), *self.by_r}
        return metric in names or (self.median_rank and metric == MEDIAN_RANK)


def parse_metrics(texts: Sequence[str], short: Short) -> Wanted:
    """The metrics named, several in one text parted by commas; the usual ones where none is.

    Raises:
        UsageError: there is no such metric.
    """
    names = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    if not names:
        return Wanted(short=short)
    ks, by_r, median_rank = [], [], False
    for name in names:
        plain = name.lower().replace(" ", "-")
        recall = _RECALL.fullmatch(plain)
        if recall is not None:
            ks.append(int(recall[1]))
        elif plain in _BY_R:
            by_r.append(_BY_R[plain])
        elif plain == MEDIAN_RANK.replace(" ", "-"):
            median_rank = True
        else:
            raise UsageError(f"no metric called {name!r}; known: {KNOWN}")
    return Wanted(tuple(sorted(set(ks))), tuple(dict.fromkeys(by_r)), median_rank, short)

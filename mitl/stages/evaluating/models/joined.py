"""Values of parts of the queries, put together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mitl.metrics.positives import QueryValues


def joined(parts: Sequence[tuple[QueryValues, ...]]) -> tuple[QueryValues, ...]:
    """One of each metric over the queries of all parts; every part has the same metrics, none of them weighted."""
    if not parts:
        return ()
    return tuple(
        QueryValues(
            first.metric,
            np.concatenate([part[place].query_ids for part in parts]),
            np.concatenate([part[place].values for part in parts]),
            first.statistic,
            None,
            sum(part[place].left_out for part in parts),
        )
        for place, first in enumerate(parts[0])
    )

"""How long each worker usually takes for a HIT, whatever was decided about it."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable

from mitl.db.store.ledger import SettledWork
from mitl.judgements.wages import work_time
from mitl.records import Environment
from mitl.settings import ASSIGNMENT_DURATION_S


def usual_seconds(settled: Iterable[SettledWork], environment: Environment) -> dict[str, float]:
    """Worker → median active seconds of a HIT, each cut to what it can have been.

    A page's own claim stands on the sandbox, as it does for wages; a worker whose pages measured nothing is left out.
    """
    times: dict[str, list[int]] = defaultdict(list)
    for row in settled:
        time = work_time(
            row.active_ms,
            row.accepted_at,
            row.submitted_at,
            ASSIGNMENT_DURATION_S,
            trusted=environment is Environment.SANDBOX,
        )
        if time.ms is not None:
            times[row.worker].append(time.ms)
    return {worker: statistics.median(found) / 1000 for worker, found in times.items()}

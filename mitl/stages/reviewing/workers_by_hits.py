"""Table B.1 of the paper: the workers by how many HITs they did."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mitl.analysis.workload import Workload, WorkloadBin, by_workload, together
from mitl.records import Environment, StageResult, Table
from mitl.settings import Settings
from mitl.stages.reviewing.workers import NOBODY, busiest_first, write_rows


def workers_by_hits(
    settings: Settings, environment: Environment | None = None, *, csv: Path | None = None
) -> StageResult:
    """The workers of an environment in the paper's bins, and all together.

    Args:
        csv: where to write one row for each bin.
    """
    chosen, people = busiest_first(settings, environment)
    bins = by_workload(Workload(one.submissions, one.used) for one in people)
    whole = together(bins)
    rows = [_row(one) for one in bins]
    counts: dict[str, object] = {
        "environment": chosen.value,
        "workers": whole.workers,
        "submitted": whole.submitted,
        "approved": whole.approved,
        "rows": rows,
    }
    if not people:
        return StageResult(status="nothing_to_do", counts=counts, lines=(NOBODY,))
    lines = [
        f"{whole.submitted / whole.workers:.2f} HITs a worker; approved: passed by rule or by a person; other work is "
        "paid all the same, unless a person rejected it"
    ]
    waiting = sum(one.queued for one in people)
    if waiting:
        lines.append(f"{waiting:,} of the submitted wait for a person and are not approved yet")
    if csv is not None:
        lines.append(f"written to {csv}")
    return StageResult(
        counts=counts,
        paths=write_rows(csv, rows),
        tables=(_table(chosen, bins, whole),),
        lines=tuple(lines),
    )


def _table(chosen: Environment, bins: Sequence[WorkloadBin], whole: WorkloadBin) -> Table:
    shown = (*((one.text, one) for one in bins), ("all", whole))
    return Table(
        f"workers on {chosen} by their HITs",
        ("HITs a worker", "workers", "submitted", "approved", "approve ratio"),
        tuple(
            (
                name,
                one.workers,
                one.submitted,
                one.approved,
                None if one.ratio is None else f"{100 * one.ratio:.1f} %",
            )
            for name, one in shown
        ),
    )


def _row(one: WorkloadBin) -> dict[str, object]:
    return {
        "above": one.above,
        "most": one.most,
        "workers": one.workers,
        "submitted": one.submitted,
        "approved": one.approved,
        "approve_ratio": None if one.ratio is None else round(one.ratio, 4),
    }

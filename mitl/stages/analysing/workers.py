"""Table B.1: workers by how many HITs they did."""

from __future__ import annotations

from mitl.errors import MetricError
from mitl.records import Table
from mitl.stages.analysing.findings import Findings
from mitl.stages.analysing.material import Material
from mitl.stages.reviewing.workers_by_hits import workers_by_hits


def workers(material: Material) -> Findings:
    """Table B.1: workers by how many HITs they did."""
    result = workers_by_hits(material.settings, material.known.environment)
    if result.status == "nothing_to_do":
        raise MetricError("nobody has submitted a HIT yet; run `mitl publish`, then `mitl harvest`")
    rows = result.counts["rows"]
    assert isinstance(rows, list)
    return Findings(
        counts={key: value for key, value in result.counts.items() if key != "environment"},
        tables=result.tables,
        lines=result.lines,
        rows={"workers": Table("", tuple(rows[0]), tuple(tuple(row.values()) for row in rows))},
    )

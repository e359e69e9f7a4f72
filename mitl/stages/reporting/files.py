"""Where a project's report lies: each environment has a file of its own."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.orm import Session

from mitl.db.store import hits as hit_store
from mitl.records import Environment

REPORT_FILE = "report.html"


def report_file(session: Session, project: Path, environment: Environment) -> Path:
    """The default file of an environment's report.

    The environment that a project posted to first has ``report.html``, the other one ``report-live.html`` or
    ``report-sandbox.html``: which is which never changes, so neither report is written over the other.
    """
    batches = [
        batch for present in hit_store.environments(session) for batch in hit_store.batches(session, present)
    ]
    first = min(batches, key=lambda batch: batch.id, default=None)
    if first is None or first.environment is environment:
        return project / REPORT_FILE
    return project / f"report-{environment.value}.html"

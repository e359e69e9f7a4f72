"""Parsing the stored raw documents again, as after a change of the parser."""

from __future__ import annotations

from sqlalchemy.orm import Session

from mitl.db.session import open_database
from mitl.db.store import hits as hit_store
from mitl.db.store import parses as parse_store
from mitl.db.store.bulk import chunks
from mitl.progress import Progress, no_progress
from mitl.records import Environment, JudgementSource, StageResult, several
from mitl.settings import Settings
from mitl.stages.environment import choose_environment
from mitl.stages.harvesting.judging import judge
from mitl.stages.harvesting.parsing import WINDOW, Parser
from mitl.stages.past_work.deriving import rederive


def reparse_all(
    settings: Settings, environment: Environment | None = None, *, progress: Progress = no_progress
) -> StageResult:
    """Read every raw document of an environment anew, in one transaction, and judge what they say now."""
    with open_database(settings.db_url) as session:
        chosen = choose_environment(session, environment)
        count = _reparse(session, settings, chosen, progress) + rederive(session, settings, chosen, progress)
        judge(session, chosen, settings.gold_rule)
        session.commit()
    return StageResult(
        status="done" if count else "nothing_to_do",
        counts={"environment": chosen.value, "reparsed": count},
        lines=(
            f"parsed the raw answers of {several(count, 'submission')} again"
            if count
            else "nothing to do: no submission is stored",
        ),
    )


def _reparse(session: Session, settings: Settings, environment: Environment, progress: Progress) -> int:
    batches = {batch.id: batch for batch in hit_store.batches(session, environment)}
    parser = Parser(session, environment, batches, settings.wordings)
    ids = parse_store.ids(session, environment, JudgementSource.CROWD)
    with progress("reparse", len(ids)) as advance:
        for window in chunks(ids, WINDOW):
            rows = parse_store.raw(session, window)
            parsed = zip(rows, parser.parsed(rows), strict=True)
            parse_store.set_parses(session, {row.id: one for row, one in parsed})
            advance(len(rows))
    return len(ids) + parser.comparisons.reparse()

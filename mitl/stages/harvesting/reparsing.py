"""Parsing the stored raw documents again, as after a change of the parser."""

from __future__ import annotations

from mitl.db.session import open_database
from mitl.db.store import hits as hit_store
from mitl.progress import Progress, no_progress
from mitl.records import Environment, StageResult, several
from mitl.settings import Settings
from mitl.stages.environment import choose_environment
from mitl.stages.harvesting.judging import judge
from mitl.stages.harvesting.parsing import Parser
from mitl.stages.past_work.deriving import rederive


def reparse_all(
    settings: Settings, environment: Environment | None = None, *, progress: Progress = no_progress
) -> StageResult:
    """Read every raw document of an environment anew, in one transaction, and judge what they say now."""
    with open_database(settings.db_url) as session:
        chosen = choose_environment(session, environment)
        batches = {batch.id: batch for batch in hit_store.batches(session, chosen)}
        count = Parser(session, chosen, batches, settings.wordings).reparse(progress)
        count += rederive(session, settings, chosen, progress)
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

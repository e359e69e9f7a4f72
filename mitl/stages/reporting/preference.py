"""What people preferred of the machines' rankings, where the project asked them."""

from __future__ import annotations

from mitl.analysis.report.inputs import PreferenceTable
from mitl.campaign.kinds.rankings.scores import score_votes
from mitl.errors import MitlError
from mitl.records import BatchKind
from mitl.settings import Settings
from mitl.stages.analysing.snapshot import Snapshot


def preference(settings: Settings, known: Snapshot) -> PreferenceTable | None:
    """The scores as `mitl prefer scores` prints them; None where nobody was asked or nothing can be scored."""
    if not any(batch.kind == BatchKind.RANKINGS for batch in known.batches):
        return None
    try:
        found = score_votes(settings, known.environment)
    except MitlError as error:
        return PreferenceTable("", (), (), (str(error),))
    if not found.tables:
        return PreferenceTable("", (), (), found.lines)
    table = found.tables[0]
    return PreferenceTable(table.title, tuple(table.columns), tuple(table.rows), found.lines)

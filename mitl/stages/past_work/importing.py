"""Bringing past work in from files: the requester site's batch CSV, other tools' results, the official CSV.

All of a file is written in one transaction, its rows word for word, so that a run that dies leaves nothing and
the same file never counts twice. Submissions of HITs of ours are stored raw in it and parsed after, as in a harvest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.orm import Session

from mitl.crowd.batch_csv import BATCH_CSV, Layout, find_layout, require_known
from mitl.crowd.column_map import ColumnMap, read_column_map, shown_columns
from mitl.crowd.environment import choose_environment
from mitl.crowd.parsed_csv import KIND as OFFICIAL
from mitl.crowd.parsed_csv import is_official
from mitl.crowd.result_file import ResultFile, read_result_file
from mitl.db.session import open_database
from mitl.db.store import hits as hit_store
from mitl.db.store import imports as import_store
from mitl.db.store import items as item_store
from mitl.db.store import open_work
from mitl.errors import DatasetError
from mitl.progress import Progress, no_progress
from mitl.records import Environment, StageResult
from mitl.settings import Settings
from mitl.stages.harvesting.deriving import rederive
from mitl.stages.harvesting.judging import judge
from mitl.stages.harvesting.parsing import Parser
from mitl.stages.harvesting.reading import project_items, reading_of
from mitl.stages.past_work.doubling import refuse_doubles
from mitl.stages.past_work.foreign import mapped_reading, past_batch, past_of_foreign, require_mapping
from mitl.stages.past_work.official import read_official, store_proposals
from mitl.stages.past_work.own import store_own
from mitl.stages.past_work.past import PastSubmission, known_only, remember_own, store_past
from mitl.stages.past_work.result import Brought, already_here, import_result
from mitl.stages.past_work.rows import sort_rows, submission_rows


def import_results(
    settings: Settings,
    path: Path,
    environment: Environment | None = None,
    *,
    columns: Path | None = None,
    skip_unknown: bool = False,
    count_again: bool = False,
    progress: Progress = no_progress,
) -> StageResult:
    """Bring the results in a file into the database; a file that is there already changes nothing.

    Args:
        columns: the mapping that a foreign batch needs. Given anew for a file that is there, its rows are read again.
        skip_unknown: leave out what is about images or captions that the project lacks.
        count_again: bring in answers that are here already, answer for answer; they count twice.

    Raises:
        DatasetError: the file is no such file, holds answers that are here already, or has something that cannot
            be told for sure.
        SettingsError: the mapping cannot be meant.
    """
    file = read_result_file(path)
    mapping = None if columns is None else read_column_map(columns)
    with open_database(settings.db_url) as session:
        chosen = choose_environment(session, environment, unposted=Environment.LIVE)
        before = import_store.imports(session).get(file.sha256)
        if before is not None and not _means_else(before, mapping):
            session.rollback()
            _settle(session, settings, chosen)  # an earlier run may have died over it
            return already_here(file, before, chosen)
        with progress("import", len(file.rows)) as advance:
            bring = _bring_official if is_official(file.columns) else _bring_submissions
            asked = _Asked(skip_unknown, count_again)
            brought = bring(session, settings, chosen, file, mapping, asked)
            advance(len(file.rows))
        if before is not None:
            # What the new mapping leaves out was read by the old one.
            rederive(session, settings, chosen, progress)
        session.commit()
        _settle(session, settings, chosen)
    return import_result(file, chosen, brought, read_again=before is not None)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the user insists on."""

    skip_unknown: bool
    count_again: bool


def _bring_official(
    session: Session,
    settings: Settings,
    environment: Environment,
    file: ResultFile,
    mapping: ColumnMap | None,
    asked: _Asked,
) -> Brought:
    items = project_items(session, settings, item_store.dataset(session))
    all_past, proposals, about = read_official(file, mapping, items)
    past = known_only(all_past, file.name, skip_unknown=asked.skip_unknown)
    if not past:
        raise DatasetError(f"{file.name!r} holds no row, so there is nothing to bring in")
    if not asked.count_again:
        refuse_doubles(session, environment, past, file.name)
    judged = _judged_before(session, environment, past)
    stored = store_past(session, settings, environment, file, items, past, about)
    n_proposals = store_proposals(session, file, proposals, items, numbered=about.reading.numbered)
    return Brought(
        past, stored, left_out=len(all_past) - len(past), proposals=n_proposals, judged_before=judged
    )


def _bring_submissions(
    session: Session,
    settings: Settings,
    environment: Environment,
    file: ResultFile,
    mapping: ColumnMap | None,
    asked: _Asked,
) -> Brought:
    layout = _layout(file, mapping)
    rows, unanswered = submission_rows(file, layout)
    if not rows:
        raise DatasetError(f"{file.name!r} holds no submission, so there is nothing to bring in")
    own, foreign = sort_rows(session, settings, environment, rows)
    past: list[PastSubmission] = []
    stored, left_out, judged = None, 0, 0
    if foreign:
        mapping = require_mapping(file, layout, mapping, foreign)
        items = project_items(session, settings, item_store.dataset(session))
        reading = mapped_reading(file, layout, mapping, foreign)
        all_past = past_of_foreign(file, layout, reading, items, foreign)
        past = known_only(all_past, file.name, skip_unknown=asked.skip_unknown)
        left_out = len(all_past) - len(past)
        judged = _judged_before(session, environment, past)
        stored = store_past(session, settings, environment, file, items, past, past_batch(reading, foreign))
    else:
        keep = mapping.keep if mapping else ()
        require_known(layout.kind, layout.knows, file.columns, file.name, keep)
        remember_own(session, file, layout.kind, own[0][0].batch_id)
    n_own = store_own(session, environment, file, layout, own)
    return Brought(past, stored, n_own, len(own), left_out, unanswered, judged_before=judged)


def _layout(file: ResultFile, mapping: ColumnMap | None) -> Layout:
    found = find_layout(file.columns)
    layout = found if mapping is None else mapping.layout(found)
    if layout is None:
        raise DatasetError(
            f"{file.name!r} has no layout that is known: a batch CSV has {', '.join(BATCH_CSV.needed)}; if it holds "
            "submissions all the same, name the columns assignment and worker in the file that --columns names; "
            f"it has {shown_columns(file.columns)}"
        )
    return layout


def _means_else(before: import_store.ImportRow, mapping: ColumnMap | None) -> bool:
    """Whether columns are said to mean something else than when the file was brought in."""
    kept = reading_of(before).mapping
    if mapping is None or before.kind == OFFICIAL:
        return False
    return kept is not None and dict(kept.tables) != dict(mapping.tables)


def _judged_before(session: Session, environment: Environment, past: Sequence[PastSubmission]) -> int:
    judged = open_work.usable_workers(session, environment).keys()
    return len({pair for one in past for pair, _ in one.read.answers} & judged)


def _settle(session: Session, settings: Settings, environment: Environment) -> None:
    """Parse what is stored raw, and decide what the answers mean."""
    batches = {batch.id: batch for batch in hit_store.batches(session, environment)}
    session.rollback()
    Parser(session, environment, batches, settings.wordings).parse_left()
    judge(session, environment, settings.gold_rule)
    session.commit()

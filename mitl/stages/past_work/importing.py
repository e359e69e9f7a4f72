"""Bringing past work in from files: the requester site's batch CSV, other tools' results, the official CSV.

All of a file is written in one transaction, its rows word for word, so that a run that dies leaves nothing and
the same file never counts twice. Submissions of HITs of ours are stored raw in it and parsed after, as in a harvest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mitl.crowd.batch_csv import BATCH_CSV, Layout, find_layout, require_known
from mitl.crowd.column_map import ColumnMap, read_column_map, shown_columns
from mitl.crowd.context import Context, named, open_context
from mitl.crowd.parsed_csv import KIND as OFFICIAL
from mitl.crowd.parsed_csv import is_official
from mitl.crowd.paying import APPROVED, REJECTED
from mitl.crowd.result_file import ResultFile, read_result_file
from mitl.db.store import imports as import_store
from mitl.db.store import items as item_store
from mitl.db.store import open_work
from mitl.errors import DatasetError
from mitl.progress import Progress, no_progress
from mitl.records import Environment, StageResult, several
from mitl.settings import Settings
from mitl.stages.harvesting.deriving import Reading, project_items, reading_of, rederive
from mitl.stages.harvesting.fetching import Parser
from mitl.stages.harvesting.harvest import HarvestCounts
from mitl.stages.harvesting.judging import judge
from mitl.stages.past_work.foreign import (
    mapped_reading,
    past_batch,
    past_of_foreign,
    read_official,
    require_mapping,
    store_proposals,
)
from mitl.stages.past_work.own import sort_rows, store_own, submission_rows
from mitl.stages.past_work.past import (
    MAX_SHOWN,
    PastSubmission,
    StoredPast,
    known_only,
    refuse_doubles,
    remember,
    store_past,
)


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How a file is brought in."""

    columns: Path | None = None
    """The mapping that a foreign batch needs. Given again for a file that is there, its rows are read again."""
    skip_unknown: bool = False
    """Leave out what is about images or captions that the project lacks."""
    count_again: bool = False
    """Bring in answers that are here already, answer for answer; they count twice."""


def import_results(
    settings: Settings,
    path: Path,
    environment: Environment | None = None,
    *,
    options: ImportOptions = ImportOptions(),
    progress: Progress = no_progress,
) -> StageResult:
    """Bring the results in a file into the database; a file that is there already changes nothing.

    Raises:
        DatasetError: the file is no such file, holds answers that are here already, or has something that cannot
            be told for sure.
        SettingsError: the mapping cannot be meant.
    """
    file = read_result_file(path)
    mapping = None if options.columns is None else read_column_map(options.columns)
    with open_context(settings, environment, unposted=Environment.LIVE, progress=progress) as context:
        session = context.session
        known = before = import_store.imports(session).get(file.sha256)
        was_first = before is not None and before.environment is context.environment
        if before and not was_first and not import_store.holds(session, context.environment, file.sha256):
            before = None  # of past work that was brought into the sandbox for practice live knows nothing
        if before is not None and not _means_else(before, mapping):
            session.rollback()
            _settle(context)  # an earlier run may have died over it
            when = f" on {before.imported_at:%Y-%m-%d}, into batch {before.batch}" if was_first else " before"
            return StageResult.nothing(
                f"{file.name} was brought in{when}",
                _counts(context.environment, Brought()),
                f"mitl build-dataset{named(session, context.environment)} --out DIR",
            )
        with progress("import", len(file.rows)) as advance:
            bring = _bring_official if is_official(file.columns) else _bring_submissions
            brought = bring(context, file, mapping, options)
            advance(len(file.rows))
        if known is not None:
            # What the new mapping leaves out was read by the old one, and either environment may hold the file.
            for each in Environment:
                rederive(session, each, progress)
                judge(session, each, settings.gold_rule)
        session.commit()
        _settle(context)
        here = named(session, context.environment)
    told = _result(file, context.environment, brought, read_again=before is not None)
    return replace(told, next=f"mitl harvest{here}" if brought.own else f"mitl build-dataset{here} --out DIR")


def _bring_official(
    context: Context, file: ResultFile, mapping: ColumnMap | None, options: ImportOptions
) -> Brought:
    session = context.session
    items = project_items(session, item_store.dataset(session))
    all_past, proposals, about = read_official(file, mapping, items)
    past = known_only(all_past, file.name, skip_unknown=options.skip_unknown)
    if not past:
        raise DatasetError(f"{file.name!r} holds no row, so there is nothing to bring in")
    if not options.count_again:
        refuse_doubles(context, past, file.name)
    judged = _judged_before(context, past)
    return Brought(
        past,
        judged_before=judged,
        stored=store_past(context, file, items, past, about),
        left_out=len(all_past) - len(past),
        proposals=store_proposals(session, file, proposals, items, numbered=about.reading.numbered),
    )


def _bring_submissions(
    context: Context, file: ResultFile, said: ColumnMap | None, options: ImportOptions
) -> Brought:
    session = context.session
    layout = _layout(file, said)
    rows, unanswered = submission_rows(file, layout)
    if not rows:
        raise DatasetError(f"{file.name!r} holds no submission, so there is nothing to bring in")
    own, foreign = sort_rows(context, rows)
    brought = Brought(own_rows=len(own), unanswered=unanswered)
    if foreign:
        mapping = require_mapping(file, layout, said, foreign)
        items = project_items(session, item_store.dataset(session))
        reading = mapped_reading(file, layout, mapping, foreign)
        all_past = past_of_foreign(file, layout, reading, items, foreign)
        past = known_only(all_past, file.name, skip_unknown=options.skip_unknown)
        judged = _judged_before(context, past)
        brought = replace(
            brought,
            past=past,
            judged_before=judged,
            stored=store_past(context, file, items, past, past_batch(reading, foreign)),
            left_out=len(all_past) - len(past),
        )
    else:
        keep = said.keep if said else ()
        require_known(layout.kind, layout.knows, file.columns, file.name, keep)
        remember(session, file, Reading(layout.kind), own[0][0].batch_id)
    new, settled = store_own(context, file, layout, own)
    return replace(brought, own=new, own_settled=settled)


def _layout(file: ResultFile, mapping: ColumnMap | None) -> Layout:
    recognised = find_layout(file.columns)
    layout = recognised if mapping is None else mapping.layout(recognised)
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


def _judged_before(context: Context, past: Sequence[PastSubmission]) -> int:
    judged = open_work.usable_workers(context.session, context.environment).keys()
    return len({pair for submission in past for pair, _ in submission.read.answers} & judged)


def _settle(context: Context) -> None:
    """Parse what is stored raw, and decide what the answers mean."""
    context.session.rollback()
    Parser(context).parse_left()
    judge(context.session, context.environment, context.settings.gold_rule)
    context.session.commit()


@dataclass(frozen=True, slots=True)
class Brought:
    """What a file brought."""

    past: Sequence[PastSubmission] = ()
    stored: StoredPast | None = None
    own: int = 0
    """New submissions of HITs of ours."""
    own_settled: int = 0
    """Others of these that were approved or rejected since they came."""
    own_rows: int = 0
    left_out: int = 0
    """Submissions about nothing that the project knows (``--skip-unknown``)."""
    unanswered: int = 0
    """Rows of HITs that nobody had answered."""
    proposals: int = 0
    judged_before: int = 0
    """Pairs that already had a usable judgement."""


def _counts(environment: Environment, brought: Brought) -> HarvestCounts:
    new = brought.stored.submissions if brought.stored else 0
    pairs = {pair for submission in brought.past for pair, _ in submission.read.answers}
    return {
        "environment": environment.value,
        "fetched": new + brought.own,
        "own": brought.own,
        "hits": brought.stored.hits if brought.stored else 0,
        "judgements": sum(
            answer is not None for submission in brought.past for _, answer in submission.read.answers
        ),
        "pairs": len(pairs),
        "proposals": brought.proposals,
        "left_out": brought.left_out,
        "unknown": sum(len(submission.read.unknown) for submission in brought.past),
    }


def _result(file: ResultFile, environment: Environment, brought: Brought, *, read_again: bool) -> StageResult:
    """What was brought in, what of it was here already, and what was left out."""
    counts = _counts(environment, brought)
    lines = []
    decided = brought.stored.decided if brought.stored else 0
    if brought.stored is not None:
        verb = "read again" if read_again else "brought in"
        workers = len({one.said.worker_id for one in brought.past})
        place = (
            f"batch {brought.stored.batch}{' of the sandbox' if environment is Environment.SANDBOX else ''}"
        )
        known = 0 if read_again else len(brought.past) - brought.stored.submissions
        brings = f"{verb} {several(len(brought.past), 'submission')} by {several(workers, 'worker')} from {file.name}"
        lines.append(
            f"nothing to do: the {several(known, 'submission')} of {file.name} came before, into {place}"
            if known == len(brought.past) and not decided
            else f"{brings} into {place}: {counts['judgements']:,} judgements on {counts['pairs']:,} pairs"
            + (f"; {known:,} of the submissions were here already" if known else "")
            + (f", {decided:,} of them decided since" if decided else "")
        )
    if brought.own_rows:
        lines.append(
            f"{brought.own:,} new submissions of this project's own HITs, "
            f"{brought.own_rows - brought.own:,} were here already"
            + (f", {brought.own_settled:,} of them decided since" if brought.own_settled else "")
        )
    if brought.proposals:
        lines.append(f"{brought.proposals:,} proposals say who found the pairs")
    return StageResult(
        status="done"
        if counts["fetched"] or read_again or decided or brought.own_settled
        else "nothing_to_do",
        counts=counts,
        warnings=tuple(_warnings(file, brought)),
        lines=tuple(lines),
    )


def _warnings(file: ResultFile, brought: Brought) -> list[str]:
    findings = Counter(finding.code for submission in brought.past for finding in submission.read.findings)
    statuses = (one.said.status for one in brought.past)
    undecided = Counter(status[:40] for status in statuses if status not in (APPROVED, REJECTED, ""))
    said = [
        (file.encoding == "cp1252", f"{file.name} is not in UTF-8; it was read as Windows-1252"),
        (
            bool(brought.left_out),
            f"{brought.left_out:,} submissions were left out: they are about nothing that this project knows",
        ),
        (
            bool(findings["unknown_id"]),
            f"{findings['unknown_id']:,} answers are about images or captions that this project lacks",
        ),
        (bool(brought.unanswered), f"{brought.unanswered:,} rows are of HITs that nobody had answered"),
        (
            bool(brought.judged_before and brought.stored and brought.stored.submissions),
            f"{brought.judged_before:,} of the pairs had been judged here before; all answers count",
        ),
        (
            bool(undecided),
            f"{undecided.total():,} submissions count although the file does not say that they were approved: their "
            f"status is {', '.join(map(ascii, sorted(undecided)[:MAX_SHOWN]))}",
        ),
        (
            bool(findings["missing_answer"]),
            f"{findings['missing_answer']:,} places have no answer that can be used; their cells are kept",
        ),
    ]
    return [words for holds, words in said if holds]

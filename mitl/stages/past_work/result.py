"""What a file brought, in words and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from mitl.crowd.result_file import ResultFile
from mitl.db.store.imports import ImportRow
from mitl.records import Environment, StageResult, several
from mitl.stages.past_work.past import PastSubmission, StoredPast


@dataclass(frozen=True, slots=True)
class Brought:
    """What a file brought."""

    past: Sequence[PastSubmission] = ()
    stored: StoredPast | None = None
    own: int = 0
    """New submissions of HITs of ours."""
    own_rows: int = 0
    left_out: int = 0
    """Submissions about nothing that the project knows (``--skip-unknown``)."""
    unanswered: int = 0
    """Rows of HITs that nobody had answered."""
    proposals: int = 0
    judged_before: int = 0
    """Pairs that already had a usable judgement."""


def already_here(file: ResultFile, before: ImportRow, environment: Environment) -> StageResult:
    """What to say of a file that was brought in before."""
    return StageResult(
        status="nothing_to_do",
        counts={"environment": environment.value, **_counts(Brought())},
        lines=(
            f"nothing to do: {file.name} was brought in on {before.imported_at:%Y-%m-%d}, into batch {before.batch}",
        ),
        next="mitl build-dataset --out DIR",
    )


def _counts(brought: Brought) -> dict[str, object]:
    new = brought.stored.submissions if brought.stored else 0
    pairs = {pair for one in brought.past for pair, _ in one.read.answers}
    return {
        "fetched": new + brought.own,
        "own": brought.own,
        "hits": brought.stored.hits if brought.stored else 0,
        "judgements": sum(answer is not None for one in brought.past for _, answer in one.read.answers),
        "pairs": len(pairs),
        "proposals": brought.proposals,
        "left_out": brought.left_out,
        "unknown": sum(len(one.read.unknown) for one in brought.past),
    }


def import_result(
    file: ResultFile, environment: Environment, brought: Brought, *, read_again: bool
) -> StageResult:
    """What was brought in, what of it was here already, and what was left out."""
    counts = _counts(brought)
    lines = []
    if brought.stored is not None:
        verb = "read again" if read_again else "brought in"
        workers = len({one.worker_id for one in brought.past})
        lines.append(
            f"{verb} {several(len(brought.past), 'submission')} by {several(workers, 'worker')} from {file.name} into "
            f"batch {brought.stored.batch}: {counts['judgements']:,} judgements on "
            f"{counts['pairs']:,} pairs"
        )
    if brought.own_rows:
        lines.append(
            f"{brought.own:,} new submissions of this project's own HITs, "
            f"{brought.own_rows - brought.own:,} were here already"
        )
    if brought.proposals:
        lines.append(f"{brought.proposals:,} proposals say who found the pairs")
    return StageResult(
        status="done" if counts["fetched"] or read_again else "nothing_to_do",
        counts={"environment": environment.value, **counts},
        warnings=tuple(_warnings(file, brought)),
        lines=tuple(lines),
        next="mitl harvest" if brought.own else "mitl build-dataset --out DIR",
    )


def _warnings(file: ResultFile, brought: Brought) -> list[str]:
    findings = Counter(finding.code for one in brought.past for finding in one.read.findings)
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
            bool(brought.judged_before),
            f"{brought.judged_before:,} of the pairs had been judged here before; all answers count",
        ),
        (
            bool(findings["missing_answer"]),
            f"{findings['missing_answer']:,} places have no answer that can be used; their cells are kept",
        ),
    ]
    return [words for holds, words in said if holds]

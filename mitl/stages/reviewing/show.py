"""One submission with its evidence: answers, failed controls, its worker, and what can be decided until when."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, TypedDict

from mitl.core.formats import percent
from mitl.core.pricing import format_dollars
from mitl.crowd.context import Context, named, open_context
from mitl.crowd.paying import APPROVED
from mitl.db.store import items as item_store
from mitl.judgements.conduct import Agreement
from mitl.judgements.gold_records import GOLD_NEGATIVE_FAILED, GOLD_POSITIVE_FAILED, keeps_page
from mitl.records import UNDECIDED, Environment, Finding, Label, StageResult, Table, several
from mitl.records.results import printed_by
from mitl.settings import Settings
from mitl.stages.harvesting.judging import approves_itself_at, reversible_until, utc
from mitl.stages.reviewing.decisions import is_imported
from mitl.stages.reviewing.desk_submission import DeskSubmission, SeenPair, submission, waiting
from mitl.stages.reviewing.evidence import CrowdConduct, WorkerEvidence, crowd, habits


@dataclass(frozen=True, slots=True)
class _Known:
    """What is shown."""

    found: DeskSubmission
    people: CrowdConduct
    worker: WorkerEvidence
    images: Mapping[int, str]
    """Row → external id."""
    also_waiting: tuple[int, ...]
    """Other submissions of the worker in the queue."""
    imported: bool
    """Whether it came from a file of past work."""
    sides: tuple[str, str]
    """What an item of each side is called."""
    here: str
    """What a command needs to mean its environment; see `named`."""


def show(settings: Settings, number: int, environment: Environment | None = None) -> StageResult:
    """All answers of one submission beside what is known, its findings, its worker, and the deadlines.

    Raises:
        StoreError: there is no such submission.
    """
    with open_context(settings, environment, read_only=True) as context:
        seen = _known(context, number)
    submitted = seen.found
    failed = _failed(seen)
    return StageResult(
        counts=_counts(seen),
        tables=(
            submitted.evidence[0] if submitted.evidence else _answers(seen),
            *([failed] if failed.rows else []),
        ),
        lines=(
            *_about_worker(seen, settings.min_seconds_a_pair),
            *map(_finding, submitted.findings),
            *(
                submitted.evidence[1].splitlines()
                if submitted.evidence
                else [f"rule: {settings.gold_rule.text}"]
            ),
            *_fate(seen),
        ),
        next=f"mitl review approve|drop|exclude|reject {number}"
        if submitted.row.decision in UNDECIDED
        else "",
    )


def _known(context: Context, number: int) -> _Known:
    session, environment, settings = context.session, context.environment, context.settings
    people = crowd(session, environment, habits(session, environment, settings.gold_rule))
    submitted = submission(context, number, people.golds)
    worker = people.find(submitted.row.worker_id)
    assert worker is not None, "everyone with a submission is among the crowd"
    dataset = item_store.dataset(session)
    images, _ = item_store.names(session, dataset.id)
    left, right = dataset.pair_sides
    return _Known(
        submitted,
        people,
        worker,
        images=images,
        also_waiting=tuple(
            row.id
            for row in waiting(session, environment)
            if row.worker_id == worker.id and row.id != submitted.row.id
        ),
        imported=is_imported(session, submitted.row),
        sides=(left, "description" if right == "caption" else right),
        here=named(session, environment),
    )


def _answers(known: _Known) -> Table:
    submitted = known.found
    measured = any(pair.played for pair in submitted.pairs)
    played = ["played"] if measured else []
    columns = ("place", "role", "answer", "others", "reasons", "s", *played, *known.sides)
    rows = (
        (
            pair.place,
            _role(pair),
            _answer(pair),
            _counted(pair.others),
            ", ".join([*pair.reasons, *([repr(pair.text)] if pair.text else [])]),
            None if pair.seconds is None else f"{pair.seconds:.1f}",
            *([pair.played or None] if measured else []),
            known.images[pair.image_id],
            pair.caption,
        )
        for pair in submitted.pairs
    )
    row = submitted.row
    title = f"submission {row.id} · HIT {row.batch}:{row.number} · {format_dollars(submitted.reward_cents)}"
    return Table(title, columns, tuple(rows))


def _failed(known: _Known) -> Table:
    columns = ("place", "control", "answered", "expected", "others passed", "s", *known.sides)
    rows = (
        (
            pair.place,
            ("original" if pair.own else "random")
            if pair.texts
            else "own caption"
            if pair.own
            else "foreign caption",
            _answer(pair),
            _words(pair.expected),
            _of(*pair.others_passed),
            None if pair.seconds is None else f"{pair.seconds:.1f}",
            known.images[pair.image_id],
            pair.caption,
        )
        for pair in known.found.failed
    )
    return Table("controls that were not passed", columns, tuple(rows))


def _about_worker(known: _Known, floor_s: float) -> list[str]:
    """Standing, gold record and conduct are those on pairs, and say nothing of other work."""
    worker, usual = known.worker, known.people.habits
    also = ", ".join(map(str, known.also_waiting))
    unused = worker.submissions - worker.used - worker.queued - worker.rejected
    total = (
        f"  {several(worker.submissions, 'submission')}: {worker.used} used, {unused} not used, "
        f"{worker.queued} waiting{f' (also {also})' if also else ''}, "
        f"{worker.rejected} rejected; earned {format_dollars(worker.earned_cents)}"
    )
    capped = ", capped" if worker.capped else ""
    if known.found.evidence is not None:
        return [
            f"worker {worker.worker}{', excluded' if worker.standing == 'excluded' else ''}{capped}",
            total,
        ]
    speed = "" if worker.speed is None else f", {worker.speed:.1f} × the others' median"
    speed += f", under the floor of {floor_s:g} s" if worker.is_under(floor_s) else ""
    speed += (
        "" if worker.unplayed is None else f", {percent(worker.unplayed, 0)} of the answers without playing"
    )
    run = "none" if worker.run is None else f"{worker.run.length} × {_words([worker.run.label])}"
    return [
        f"worker {worker.worker}: {worker.standing}{capped}; {worker.record.text}, pass rate "
        f"{worker.mean:.2f} (90 % interval {worker.low:.2f} to {worker.high:.2f})",
        f"  a pair takes {_number(worker.median_s, ' s', 1)}{speed}; longest run {run} (usual {_number(usual.run)}); "
        f"variety {_number(worker.entropy, ' bits', 2)} (usual {_number(usual.entropy, '', 2)})",
        f"  agrees with others on {_agreed(worker.agreement)}; "
        f"with own earlier answers on {_agreed(worker.consistency)}",
        total,
    ]


def _finding(one: Finding) -> str:
    """Details of failed controls stand in their table, by the data set's own ids."""
    detail = "" if one.code in (GOLD_POSITIVE_FAILED, GOLD_NEGATIVE_FAILED) else f" {one.detail}".rstrip()
    return f"finding: {one.code}{detail}"


def _fate(known: _Known) -> list[str]:
    """What was decided, or until when it can be, and what of it can be undone."""
    row, rejection = known.found.row, known.found.rejection
    if known.imported:
        return [f"decision: {row.decision.value}; it came from a file of past work"]
    if rejection is not None:
        said = "" if rejection.sent else "; the server has not heard of it yet"
        return [
            f"rejected: {rejection.reason!r}{said}",
            f"`mitl review reverse {row.id}{known.here}` can undo that until {utc(rejection.until)}",
        ]
    if row.decision not in UNDECIDED:
        record = None if known.found.evidence is not None else known.worker.record
        aside = row.decision.keeps_answers and not keeps_page(row.decision, record, excluded=row.excluded)
        why = "excluded" if row.excluded else "of poor record"
        said = f"; its answers are not used, because the worker is {why}" if aside else ""
        return [f"decision: {row.decision.value}{said}"]
    if row.status == APPROVED:
        return ["the server paid it by itself, so it can no more be rejected"]
    lines = []
    itself = approves_itself_at(row)
    if itself is not None:
        lines.append(f"unless it is decided before, the server pays it by itself at {utc(itself)}")
    until = reversible_until(row)
    return [*lines, f"a rejection could be reversed until {utc(until)}"]


class FindingCounts(TypedDict):
    """Something that was noticed."""

    code: str
    detail: str


class FailedControl(TypedDict):
    """A control that was not answered as expected."""

    place: int
    image: str
    description: str
    answer: str | None
    expected: list[str]
    others_passed: list[int]


@printed_by("review show")
class SubmissionCounts(TypedDict):
    """One submission with its evidence."""

    assignment: Annotated[int, "number of the submission"]
    decision: Annotated[str, "what was decided about it"]
    worker: Annotated[str, "who sent it"]
    standing: Annotated[str, "good, poor, unproven or excluded"]
    golds: Annotated[int, "controls that the worker has answered"]
    golds_passed: Annotated[int, "those as expected"]
    pass_rate: Annotated[float, "mean of the posterior of the rate"]
    pass_rate_interval: Annotated[list[float], "its 90 % interval"]
    findings: Annotated[list[FindingCounts], "what was noticed: code, detail"]
    failed_controls: Annotated[
        list[FailedControl], "each: place, image, description, answer, expected, others_passed (passed, of)"
    ]
    also_waiting: Annotated[list[int], "numbers of the worker's other submissions in the queue"]
    approves_itself_at: Annotated[
        str | None, "when the server pays it where nobody decides; null where it does not"
    ]
    reversible_until: Annotated[
        str | None, "until when a rejection can be reversed; null for past work from a file"
    ]


def _counts(known: _Known) -> SubmissionCounts:
    submitted, worker = known.found, known.worker
    row = submitted.row
    return SubmissionCounts(
        assignment=row.id,
        decision=row.decision.value,
        worker=worker.worker,
        standing=worker.standing,
        golds=worker.record.golds,
        golds_passed=worker.record.passes,
        pass_rate=round(worker.mean, 4),
        pass_rate_interval=[round(worker.low, 4), round(worker.high, 4)],
        findings=[FindingCounts(code=note.code, detail=note.detail) for note in submitted.findings],
        failed_controls=[
            FailedControl(
                place=pair.place,
                image=known.images[pair.image_id],
                description=pair.caption,
                answer=None if pair.label is None else pair.label.value,
                expected=[label.value for label in pair.expected],
                others_passed=list(pair.others_passed),
            )
            for pair in submitted.failed
        ],
        also_waiting=list(known.also_waiting),
        approves_itself_at=_iso(approves_itself_at(row)) if row.decision in UNDECIDED else None,
        reversible_until=None if known.imported else _iso(reversible_until(row)),
    )


def _role(pair: SeenPair) -> str:
    if not pair.is_control:
        return pair.role.value
    state = {True: "passed", False: "failed", None: "not answered"}[pair.passed]
    return f"{pair.role.value}: {'withdrawn' if pair.withdrawn else state}"


def _answer(pair: SeenPair) -> str:
    return pair.outcome.value.replace("_", " ") if pair.label is None else _words([pair.label])


def _words(labels: Sequence[Label]) -> str:
    return " or ".join(label.value.replace("_", " ") for label in labels)


def _counted(others: Mapping[Label, int]) -> str:
    return ", ".join(f"{others[label]} {_words([label])}" for label in Label if others.get(label)) or "–"


def _of(passed: int, total: int) -> str:
    return f"{passed} of {total}" if total else "nobody else met it"


def _agreed(found: Agreement | None) -> str:
    return "no pair in common" if found is None else f"{found.same} of {found.comparisons}"


def _number(value: float | None, unit: str = "", digits: int = 0) -> str:
    return "–" if value is None else f"{value:.{digits}f}{unit}"


def _iso(moment: dt.datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds")

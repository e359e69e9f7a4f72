"""The workers: how much they did, how they fared on the controls, how they go about it, what they earned.

Of those who rated likeness also where their scores lie, what repeats, how they move and what is odd.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NotRequired

from mitl.analysis.answer_tables import Workload, WorkloadBin, by_workload, together
from mitl.core.formats import csv_text, percent, rounded
from mitl.core.pricing import format_dollars
from mitl.core.whole_files import put_file
from mitl.crowd.context import open_context
from mitl.crowd.paying import paid_work
from mitl.db.session import open_database
from mitl.db.store import ledger
from mitl.judgements.conduct import Agreement
from mitl.judgements.rating_conduct import RatingConduct
from mitl.judgements.wages import worker_pay
from mitl.records import Environment, StageResult, Table
from mitl.records.results import CsvPaths, EnvironmentCounts, printed_by
from mitl.settings import Settings
from mitl.stages.reviewing.evidence import WorkerEvidence, crowd, habits, usual_seconds

NOBODY = "nothing to show: nobody has submitted work yet"


@printed_by("workers")
class WorkersCounts(EnvironmentCounts):
    """The workers of an environment, one by one or by their number of HITs."""

    workers: Annotated[int, "workers with a submission"]
    submitted: NotRequired[Annotated[int, "their submissions (`--by-hits`)"]]
    approved: NotRequired[Annotated[int, "those passed by rule or by a person (`--by-hits`)"]]
    rows: Annotated[
        Sequence[Mapping[str, object]],
        "each worker: worker, submitted, approved, queued, rejected, standing, capped, golds, golds_passed, "
        "pass_rate (posterior mean), pass_rate_low, pass_rate_high (its 90 % interval), seconds_a_pair, speed (over "
        "the others' median), too_fast (whether under `[review] min_seconds_a_pair`), seconds_a_hit, longest_run, "
        "longest_run_of, entropy_bits, agreement, agreement_of (with "
        "others, of so many comparisons), consistency, consistency_of (with own earlier answers), earned_cents, "
        "hourly_cents, and where sounds or videos are asked about unplayed (share of the answers without playing); "
        "with `--by-hits` each bin: above, most, workers, submitted, approved, approve_ratio",
    ]
    raters: NotRequired[
        Annotated[
            Sequence[Mapping[str, object]],
            "those who rated likeness, left out where nobody did; each: worker, ratings (of pairs that were asked), "
            "one_number (around which most scores lie), one_number_share, one_number_others (share of the others' "
            "scores there), spread (standard deviation), repeats, repeats_of (answers equal to the one repeats_lag "
            "places before; 0 is the page before), repeats_expected (by chance), repeats_longest, offset (from the "
            "others), drift (from first to last answer), drift_low, drift_high (its 99.9 % interval), controls, "
            "controls_passed, seconds_a_pair, speed (over the usual), findings (code, detail)",
        ]
    ]


printed_by("workers", key="paths")(CsvPaths)


BITS = (
    "bits: variety of the answers, 0 (always the same) to 2; agrees: same side as others on the same pairs, "
    "controls apart; with own: as the worker's own earlier answer where a pair came again"
)


def workers(
    settings: Settings, environment: Environment | None = None, *, csv: Path | None = None
) -> StageResult:
    """The worker tables of an environment, busiest first; raw worker ids are shown here and never leave the project.

    Args:
        csv: where to write one row for each worker.
    """
    chosen, people = busiest_first(settings, environment)
    with open_database(settings.db_url, read_only=True) as session:
        settled = ledger.settled_work(session, chosen)
    hourly = {person.worker: person.hourly_cents for person in worker_pay(paid_work(settled, chosen))}
    seconds = usual_seconds(settled, chosen)
    floor_s = settings.min_seconds_a_pair
    rows = [_row(person, hourly.get(person.worker), seconds.get(person.worker), floor_s) for person in people]
    if any(person.unplayed is not None for person in people):
        rows = [
            {**row, "unplayed": rounded(person.unplayed)} for row, person in zip(rows, people, strict=True)
        ]
    counts = WorkersCounts(environment=chosen.value, workers=len(people), rows=rows)
    raters = {person.worker: person.rating for person in people if person.rating is not None}
    if raters:
        counts["raters"] = [rater_row(worker, rating) for worker, rating in raters.items()]
    if not people:
        return StageResult(status="nothing_to_do", counts=counts, lines=(NOBODY,))
    of_pairs = [person for person in people if (person.entropy, person.median_s) != (None, None)]
    return StageResult(
        counts=counts,
        paths=write_rows(csv, rows),
        tables=(
            _work(chosen, people, hourly),
            *([_conduct(of_pairs, floor_s)] if of_pairs else []),
            *([rater_table(raters, floor_s)] if raters else []),
        ),
        lines=(*([BITS] if of_pairs else []), *_lines(settings, people, csv), *rater_lines(raters)),
    )


def busiest_first(
    settings: Settings, environment: Environment | None
) -> tuple[Environment, list[WorkerEvidence]]:
    """Every worker with a submission, busiest first."""
    with open_context(settings, environment, read_only=True) as context:
        session, chosen = context.session, context.environment
        people = crowd(session, chosen, habits(session, chosen, settings.gold_rule)).workers
    return chosen, sorted(people, key=lambda one: (-one.submissions, one.worker))


def _row(
    one: WorkerEvidence, hourly_cents: int | None, hit_s: float | None, floor_s: float
) -> dict[str, object]:
    return {
        "worker": one.worker,
        "submitted": one.submissions,
        "approved": one.approved,
        "queued": one.queued,
        "rejected": one.rejected,
        "standing": one.standing,
        "capped": one.capped,
        "golds": one.record.golds,
        "golds_passed": one.record.passes,
        "pass_rate": round(one.mean, 4),
        "pass_rate_low": round(one.low, 4),
        "pass_rate_high": round(one.high, 4),
        "seconds_a_pair": rounded(one.median_s),
        "speed": rounded(one.speed),
        "too_fast": one.is_under(floor_s),
        "seconds_a_hit": rounded(hit_s),
        "longest_run": None if one.run is None else one.run.length,
        "longest_run_of": None if one.run is None else one.run.label.value,
        "entropy_bits": rounded(one.entropy),
        **_agreement_row("agreement", one.agreement),
        **_agreement_row("consistency", one.consistency),
        "earned_cents": one.earned_cents,
        "hourly_cents": hourly_cents,
    }


def _agreement_row(name: str, found: Agreement | None) -> dict[str, object]:
    return {
        name: None if found is None else round(found.share, 4),
        f"{name}_of": 0 if found is None else found.comparisons,
    }


def _work(chosen: Environment, people: Sequence[WorkerEvidence], hourly: Mapping[str, int | None]) -> Table:
    gold_columns = ("golds", "pass rate (90 %)", "record")
    columns = ("worker", "HITs", "used", "waiting", *gold_columns, "earned", "an hour")
    rows = (
        (
            person.worker,
            person.submissions,
            person.used,
            person.queued,
            f"{person.record.passes} of {person.record.golds}" if person.record.golds else None,
            f"{person.mean:.2f} ({person.low:.2f} to {person.high:.2f})" if person.record.golds else None,
            person.standing + (", capped" if person.capped else ""),
            format_dollars(person.earned_cents),
            None if (cents := hourly.get(person.worker)) is None else format_dollars(cents),
        )
        for person in people
    )
    return Table(f"workers on {chosen}: {len(people):,}", columns, tuple(rows))


def _conduct(people: Sequence[WorkerEvidence], floor_s: float) -> Table:
    plays = any(person.unplayed is not None for person in people)
    played = ["not played"] if plays else []
    columns = ("worker", "s a pair", "others = 1", *played, "longest run", "bits", "agrees", "with own")
    rows = (
        (
            person.worker,
            None if person.median_s is None else f"{person.median_s:.1f}{' !' * person.is_under(floor_s)}",
            None if person.speed is None else f"{person.speed:.1f}",
            *([percent(person.unplayed, 0)] if plays else []),
            "–"
            if person.run is None
            else f"{person.run.length} × {person.run.label.value.replace('_', ' ')}",
            None if person.entropy is None else f"{person.entropy:.2f}",
            _share(person.agreement),
            _share(person.consistency),
        )
        for person in people
    )
    return Table("how they go about it: evidence, no verdict", columns, tuple(rows))


def _lines(settings: Settings, people: Sequence[WorkerEvidence], csv: Path | None) -> tuple[str, ...]:
    lines = []
    n_hasty = sum(person.is_under(settings.min_seconds_a_pair) for person in people)
    if n_hasty:
        lines.append(
            f"!: {n_hasty:,} {'takes' if n_hasty == 1 else 'take'} under {settings.min_seconds_a_pair:g} s for half of "
            "the pairs, too short to look at them ([review] min_seconds_a_pair)"
        )
    most = settings.max_hits_per_worker
    if most is not None:
        n_capped = sum(person.capped for person in people)
        lines.append(f"at most {most:,} HITs a worker: {n_capped:,} have done them and are offered no more")
    if csv is not None:
        lines.append(f"written to {csv}; it holds worker ids, so keep it in the project")
    return tuple(lines)


def write_rows(csv: Path | None, rows: Sequence[Mapping[str, object]]) -> CsvPaths:
    """Write the rows where that was asked for; the path by its name."""
    if csv is None or not rows:
        return {}
    text = csv_text([tuple(rows[0]), *(tuple(row.values()) for row in rows)])
    put_file(csv, text.encode("utf-8"), mode=0o600)
    return {"csv": str(csv)}


def _share(found: Agreement | None) -> str:
    return "–" if found is None else f"{percent(found.share, 0)} of {found.comparisons:,}"


def workers_by_hits(
    settings: Settings, environment: Environment | None = None, *, csv: Path | None = None
) -> StageResult:
    """The workers of an environment in the bins of the paper's Table B.1, by how many HITs they did, and all together.

    Args:
        csv: where to write one row for each bin.
    """
    chosen, people = busiest_first(settings, environment)
    bins = by_workload(Workload(person.submissions, person.approved) for person in people)
    whole = together(bins)
    rows = [_bin_row(bin_) for bin_ in bins]
    counts = WorkersCounts(
        environment=chosen.value,
        workers=whole.workers,
        submitted=whole.submitted,
        approved=whole.approved,
        rows=rows,
    )
    if not people:
        return StageResult(status="nothing_to_do", counts=counts, lines=(NOBODY,))
    lines = [
        f"{whole.submitted / whole.workers:.2f} HITs a worker; approved: passed by rule or by a person; other work is "
        "paid all the same, unless a person rejected it"
    ]
    waiting = sum(person.queued for person in people)
    if waiting:
        lines.append(f"{waiting:,} of the submitted waiting for a person, so not approved yet")
    if csv is not None:
        lines.append(f"written to {csv}")
    return StageResult(
        counts=counts,
        paths=write_rows(csv, rows),
        tables=(_bins(chosen, bins, whole),),
        lines=tuple(lines),
    )


def _bins(chosen: Environment, bins: Sequence[WorkloadBin], whole: WorkloadBin) -> Table:
    shown = (*((row.text, row) for row in bins), ("all", whole))
    return Table(
        f"workers on {chosen} by their HITs",
        ("HITs a worker", "workers", "submitted", "approved", "approve ratio"),
        tuple((name, row.workers, row.submitted, row.approved, percent(row.ratio)) for name, row in shown),
    )


def _bin_row(one: WorkloadBin) -> dict[str, object]:
    return {
        "above": one.above,
        "most": one.most,
        "workers": one.workers,
        "submitted": one.submitted,
        "approved": one.approved,
        "approve_ratio": None if one.ratio is None else round(one.ratio, 4),
    }


def rater_row(worker: str, rating: RatingConduct) -> dict[str, object]:
    """One rater under the keys of ``--json``; None for what cannot be said."""
    number, line, drift = rating.one_number, rating.line, rating.drift
    return {
        "worker": worker,
        "ratings": rating.n,
        "one_number": round(number.value, 2),
        "one_number_share": round(number.share, 4),
        "one_number_others": rounded(number.others),
        "spread": round(number.spread, 4),
        "repeats": None if line is None else line.matches,
        "repeats_of": None if line is None else line.n,
        "repeats_lag": None if line is None else line.lag,
        "repeats_expected": None if line is None else round(line.expected, 2),
        "repeats_longest": None if line is None or line.longest < 2 else line.longest,
        "offset": rounded(rating.offset),
        "drift": None if drift is None else round(drift.change, 4),
        "drift_low": None if drift is None else round(drift.low, 4),
        "drift_high": None if drift is None else round(drift.high, 4),
        "controls": rating.controls.all.golds,
        "controls_passed": rating.controls.all.passes,
        "seconds_a_pair": rounded(rating.median_s),
        "speed": rounded(rating.speed),
        "findings": [{"code": finding.code, "detail": finding.detail} for finding in rating.findings],
    }


def rater_table(raters: Mapping[str, RatingConduct], floor_s: float) -> Table:
    """One row for each rater.

    Args:
        floor_s: seconds on a pair under which nobody has looked.
    """
    columns = (
        *("worker", "ratings", "one number", "spread", "longest row", "beside others", "drift (99.9 %)"),
        *("controls", "s a pair", "noticed"),
    )
    rows = tuple(_shown(worker, rating, floor_s) for worker, rating in raters.items())
    return Table(f"raters of likeness: {len(raters):,}", columns, rows)


def _shown(worker: str, rating: RatingConduct, floor_s: float) -> tuple[object, ...]:
    number, line, drift = rating.one_number, rating.line, rating.drift
    is_under = rating.median_s is not None and rating.median_s < floor_s
    return (
        worker,
        rating.n,
        f"{percent(number.share, 0)} at {number.value:.2f}",
        f"{number.spread:.2f}",
        None if line is None or line.longest < 2 else line.longest,
        None if rating.offset is None else f"{round(rating.offset, 2) + 0:+.2f}",
        None
        if drift is None
        else f"{round(drift.change, 2) + 0:+.2f} ({drift.low:+.2f} to {drift.high:+.2f})",
        f"{rating.controls.all.passes} of {rating.controls.all.golds}",
        None if rating.median_s is None else f"{rating.median_s:.1f}{' !' * is_under}",
        ", ".join(finding.code.replace("_", " ") for finding in rating.findings) or "–",
    )


def rater_lines(raters: Mapping[str, RatingConduct]) -> list[str]:
    """What is odd about whom, in words, and what the columns mean; nothing without raters."""
    if not raters:
        return []
    noticed = [
        f"{worker}: {finding.detail}" for worker, rating in raters.items() for finding in rating.findings
    ]
    return [
        "one number: share of the scores within 0.05 of one value; beside others and drift: score minus the others' "
        "median of the same pair, and how that moves from the first answer to the last; noticed: what chance explains "
        "in under 1 of 1,000 cases, and what is large too",
        *noticed,
    ]

"""Those who rated likeness, in `mitl workers`: where their scores lie, what repeats, how they move, what is odd."""

from __future__ import annotations

from collections.abc import Mapping

from mitl.core.formats import rounded
from mitl.judgements.rating_conduct import RatingConduct
from mitl.records import Table


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
        f"{number.share:.0%} at {number.value:.2f}",
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

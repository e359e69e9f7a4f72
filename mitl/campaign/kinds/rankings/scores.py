"""The Bradley-Terry scores of what people preferred, with the counts that they rest on."""

from __future__ import annotations

import csv
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypedDict

import numpy as np
from sqlalchemy.orm import Session

from mitl.analysis.bradley_terry import (
    Ballots,
    Bounds,
    Strengths,
    TieRule,
    bootstrap,
    count_votes,
    first_votes,
    left_share,
    strengths,
)
from mitl.core.arrays import Floats
from mitl.core.formats import csv_bytes, percent
from mitl.core.whole_files import put_file
from mitl.crowd.context import named, open_context
from mitl.datasets.files import refuse_separators
from mitl.db.store import answers as answer_store
from mitl.db.store import comparisons as comparison_store
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store import proposals as proposal_store
from mitl.errors import MetricError, UsageError
from mitl.records import BatchKind, Decision, Direction, Environment, StageResult, Table, Vote, several
from mitl.records.enums import UNDECIDED
from mitl.records.forms import IMAGES
from mitl.records.results import CsvPaths, printed_by
from mitl.settings import Settings

FEW_WORKERS = 10
"""Below this a bootstrap over workers says so: the spread of a few does not stand for that of all."""
_NAMED = 3
_DIGITS = 9
"""Of a count."""


printed_by("prefer scores", key="paths")(CsvPaths)


@printed_by("prefer scores")
class ScoreCounts(TypedDict, total=False):
    """What scores rest on, and what they are."""

    environment: Annotated[str, "sandbox or live"]
    votes: Annotated[int, "preferences that count"]
    workers: Annotated[int, "who gave them"]
    queries: Annotated[int, "queries that they are about"]
    left_share: Annotated[float | None, "share of the left among those for a side; null where there is none"]
    queued: Annotated[int, "submissions that wait for a person and do not count yet"]
    ties: Annotated[int, "of the preferences, those that found both equal"]
    systems: Annotated[
        dict[str, dict[str, float]],
        "name → score, low, high (percent; the scores sum to 100), wins, losses, ties; best first",
    ]
    preferred: Annotated[
        dict[str, dict[str, int]], "name → name → how often the first was preferred to the second"
    ]
    equal: Annotated[dict[str, dict[str, int]], "name → name → how often the two were found equal"]
    tie_strength: Annotated[float | None, "Davidson's ν (`--ties davidson`); null without"]
    without_maximum: Annotated[int, "resamples in which somebody won nothing or everything"]


@dataclass(frozen=True, slots=True)
class Method:
    """How scores and their intervals are made."""

    ties: TieRule = TieRule.HALF
    prior: float = 0.0
    samples: int = 1000
    confidence: float = 0.95
    by_worker: bool = True
    """Whether the bootstrap draws workers, each with all votes; else single votes."""


DEFAULT = Method()
"""Ties as half wins, no prior, 95 % intervals over workers."""


@dataclass(frozen=True, slots=True)
class ScoredSystems:
    """Preferences with the strengths and the intervals that they give."""

    ballots: Ballots
    strengths: Strengths
    bounds: Bounds

    @property
    def order(self) -> list[int]:
        """Best first."""
        return sorted(range(len(self.ballots.systems)), key=lambda i: (-self.strengths.scores[i], i))


def score(ballots: Ballots, method: Method, *, seed: int) -> ScoredSystems:
    """Strengths and bounds of these preferences.

    Raises:
        MetricError: the strengths have no maximum.
    """
    wins, ties = ballots.total_wins, ballots.total_ties
    scored = strengths(wins, ties, rule=method.ties, prior=method.prior, names=ballots.systems)
    bounds = bootstrap(
        ballots.wins,
        ballots.ties,
        samples=method.samples,
        confidence=method.confidence,
        seed=seed,
        rule=method.ties,
        prior=method.prior,
    )
    return ScoredSystems(ballots, scored, bounds)


def score_votes(
    settings: Settings,
    environment: Environment | None = None,
    *,
    batches: Sequence[str] = (),
    direction: Direction | None = None,
    method: Method = DEFAULT,
    to: Path | None = None,
) -> StageResult:
    """Score the systems by the votes that count: of submissions that are kept, controls left out.

    Args:
        batches: count these alone; all where none is named.
        direction: count this direction alone.
        to: CSV file for the scores.

    Raises:
        UsageError: there is no such batch, or a name stands for rankings of different origin.
        MetricError: the scores have no maximum.
    """
    with open_context(settings, environment, read_only=True) as context:
        session, chosen = context.session, context.environment
        names = _batches(session, chosen, batches, direction)
        votes = [
            vote
            for vote in first_votes(comparison_store.votes(session, chosen, batches))
            if direction in (None, vote.comparison.direction)
        ]
        queued = _queued(session, chosen, names)
        _require_one_origin(session, chosen, names, votes)
        if not votes:
            return _nothing(session, environment, chosen, direction, names)
    ballots = count_votes(votes, by_worker=method.by_worker)
    share = left_share(votes)
    about: ScoreCounts = {
        "environment": chosen.value,
        "votes": len(votes),
        "workers": len({vote.worker for vote in votes}),
        "queries": len({(vote.comparison.direction, vote.comparison.query_id) for vote in votes}),
        "left_share": share,
        "queued": queued,
    }
    lines = [
        f"{len(votes):,} preferences of {about['workers']:,} workers on {about['queries']:,} queries count"
        + ("" if share is None else f"; {percent(share, 0)} of those for a side are for the left")
    ]
    if len({vote.comparison.direction for vote in votes}) > 1:
        lines.append("they are of both directions; see --direction for either")
    if method.by_worker and len(ballots.wins) < FEW_WORKERS:
        lines.append(
            f"so few workers ({len(ballots.wins)}) do not tell how far workers differ, so the intervals are likely too "
            "narrow; ask more people, or see --resample answers"
        )
    if queued:
        lines.append(f"{several(queued, 'submission')} waiting for a person and not counted yet")
    return _result(score(ballots, method, seed=settings.seed), method, about, lines, to)


def _nothing(
    session: Session,
    wanted: Environment | None,
    chosen: Environment,
    direction: Direction | None,
    names: Collection[str],
) -> StageResult:
    """Why there is nothing to score, and the step that would change it."""
    asked = {comparison.direction for comparison in comparison_store.asked(session, chosen)}
    if bool(asked) if direction is None else direction in asked:
        why = "no preference counts yet"
        step = "review" if _queued(session, chosen, names, (Decision.QUEUED,)) else "harvest"
        after = f"mitl {step}{named(session, chosen)}"
    else:
        of, way = (
            ("", "") if direction is None else (f" in the direction {direction}", f" --direction {direction}")
        )
        why = f"no preference study was posted{of}"
        where = wanted or (chosen if asked else Environment.SANDBOX)
        after = f"mitl prefer publish --{where}{way}"
    counts: ScoreCounts = {"environment": chosen.value, "votes": 0, "queued": _queued(session, chosen, names)}
    return StageResult(
        status="nothing_to_do",
        counts=counts,
        lines=(f"nothing to score: {why} on {chosen}",),
        next=after if item_store.dataset(session).form is IMAGES else "",
    )


def score_counts(
    settings: Settings,
    path: Path,
    *,
    method: Method = DEFAULT,
    to: Path | None = None,
) -> StageResult:
    """Score a table of counts from a CSV file; its single votes are what the bootstrap draws.

    Raises:
        MetricError: the file is no such table, or the scores have no maximum.
        UsageError: the scores would replace it.
    """
    names, wins = read_counts(path)
    if to is not None and to.exists() and to.samefile(path):
        raise UsageError(
            f"{str(to)!r} is the table of counts itself, which the scores would replace; give --csv another file"
        )
    np.fill_diagonal(wins, 0)
    votes = int(wins.sum())
    lines = [f"{votes:,} preferences of {str(path)!r}"]
    scored = score(Ballots(tuple(names), wins, np.zeros_like(wins)), method, seed=settings.seed)
    return _result(scored, method, {"votes": votes}, lines, to)


def _batches(
    session: Session, environment: Environment, wanted: Sequence[str], direction: Direction | None
) -> list[str]:
    """The batches that are to be counted; UsageError where one that is wanted is none."""
    rows = [row for row in hit_store.batches(session, environment) if row.kind == BatchKind.RANKINGS]
    names = [row.name for row in rows]
    for name in wanted:
        if name not in names:
            raise UsageError(
                f"there is no preference batch {name!r} on {environment}; known: {', '.join(names) or 'none'}"
            )
    return [row.name for row in rows if row.name in (wanted or names) and direction in (None, row.direction)]


def _queued(
    session: Session,
    environment: Environment,
    names: Collection[str],
    decisions: tuple[Decision, ...] = UNDECIDED,
) -> int:
    return sum(row.batch in names for row in answer_store.assignments(session, environment, decisions))


def _require_one_origin(
    session: Session, environment: Environment, batches: Sequence[str], votes: Sequence[Vote]
) -> None:
    """A name must stand for the same rankings in all that is counted together: from one file, or of one annotator."""
    voted = {name for vote in votes for name in (vote.comparison.left, vote.comparison.right)}
    # A run of more queries ranks those before it just so, if the annotator is the same.
    made_by = {
        (one["name"], f"run {run.hash}"): one["fingerprint"]
        for run in proposal_store.runs(session)
        for one in run.config.get("annotators", ())
    }
    origins: dict[str, dict[str, str]] = {}
    for batch, systems in comparison_store.systems(session, environment).items():
        for system in systems:
            if batch in batches and system.name in voted:
                rankings = made_by.get((system.name, system.origin), system.origin)
                origins.setdefault(system.name, {}).setdefault(rankings, f"{system.origin} in {batch}")
    for name, seen_in in sorted(origins.items()):
        if len(seen_in) > 1:
            raise UsageError(
                f"{name!r} stands for different rankings ({', '.join(seen_in.values())}); score one study with --batch "
                "NAME"
            )


def _result(
    scored: ScoredSystems, method: Method, about: ScoreCounts, lines: list[str], to: Path | None
) -> StageResult:
    ballots, strengths, bounds = scored.ballots, scored.strengths, scored.bounds
    names, wins, ties, order = ballots.systems, ballots.total_wins, ballots.total_ties, scored.order
    systems = {
        names[i]: {
            "score": float(strengths.scores[i]),
            "low": float(bounds.low[i]),
            "high": float(bounds.high[i]),
            "wins": int(wins[i].sum()),
            "losses": int(wins[:, i].sum()),
            "ties": int(ties[i].sum()),
        }
        for i in order
    }
    preferred, equal = (
        {names[i]: {names[j]: int(counts[i, j]) for j in order if j != i} for i in order}
        for counts in (wins, ties)
    )
    counts: ScoreCounts = {
        **about,
        "ties": int(ties.sum()) // 2,
        "systems": systems,
        "preferred": preferred,
        "equal": equal,
        "tie_strength": strengths.tie if method.ties is TieRule.DAVIDSON else None,
        "without_maximum": bounds.without_maximum,
    }
    if bounds.without_maximum:
        lines.append(
            f"in {bounds.without_maximum:,} of {method.samples:,} resamples somebody won nothing, or everything; ask "
            "for more answers to narrow the intervals"
        )
    if to is not None:
        _write(to, systems)
    drawn = "workers" if method.by_worker else "preferences"
    return StageResult(
        counts=counts,
        paths=CsvPaths() if to is None else CsvPaths(csv=str(to)),
        tables=(
            Table(
                f"Bradley-Terry scores in percent, with {100 * method.confidence:.6g} % bootstrap intervals over "
                f"{drawn}",
                ("system", "score", "low", "high", "preferred", "equal", "not preferred"),
                tuple(_row(name, figures, 2) for name, figures in systems.items()),
            ),
            Table(
                "how often the row was preferred to the column",
                ("", *systems),
                tuple((a, *("" if a == b else preferred[a][b] for b in systems)) for a in systems),
            ),
        ),
        lines=tuple(lines),
    )


def _row(name: str, figures: dict[str, float], digits: int) -> tuple[object, ...]:
    percent = (f"{figures[key]:.{digits}f}" for key in ("score", "low", "high"))
    return (name, *percent, *(figures[key] for key in ("wins", "ties", "losses")))


def _write(path: Path, systems: dict[str, dict[str, float]]) -> None:
    rows = (_row(name, figures, 4) for name, figures in systems.items())
    put_file(path, csv_bytes([("system", "score", "low", "high", "wins", "ties", "losses"), *rows]))


def read_counts(path: Path) -> tuple[list[str], Floats]:
    """The names and the (N, N) counts of a file whose first row and column name the same things in the same order.

    Row i, column j holds how often i was preferred to j; empty cells count 0.

    Raises:
        MetricError: the file is missing, or is no such table.
    """
    layout = "a CSV table of counts has a first row of names and the same names down its first column"
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if any(cell.strip() for cell in row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror.lower() if isinstance(error, OSError) and error.strerror else str(error)
        raise MetricError(f"cannot read {str(path)!r}: {reason}; {layout}") from error
    refuse_separators(path, rows[0] if rows else ())
    names = [cell.strip() for cell in rows[0][1:]] if rows else []
    down = [row[0].strip() for row in rows[1:]]
    if len(names) < 2 or down != names or len(set(names)) != len(names):
        told = f"{', '.join(names[:_NAMED]) or 'nothing'} across and {', '.join(down[:_NAMED]) or 'nothing'} down"
        raise MetricError(f"{str(path)!r} names {told}; {layout}")
    wins = np.zeros((len(names), len(names)))
    for i, row in enumerate(rows[1:]):
        if len(row) != len(names) + 1:
            raise MetricError(
                f"row {names[i]!r} of {str(path)!r} has {len(row) - 1} counts, not {len(names)}"
            )
        for j, cell in enumerate(row[1:]):
            text = cell.strip() or "0"
            if not text.isascii() or not text.isdigit() or len(text) > _DIGITS:
                raise MetricError(
                    f"{names[i]!r} over {names[j]!r} in {str(path)!r} is {cell[:40]!r}, but counts are 0, 1, 2 …, of "
                    f"{_DIGITS} digits at most"
                )
            wins[i, j] = int(text)
    return names, wins

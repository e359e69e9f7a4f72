"""What people's ratings come to: those that count, scores of pairs, what still lacks ratings, agreement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import numpy as np
import pandas as pd

from mitl.core.formats import csv_bytes, percent
from mitl.core.whole_files import write_kept
from mitl.crowd.context import Context, open_context
from mitl.db.session import reading
from mitl.db.store import answers as answer_store
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store import rating_pages
from mitl.db.store import similarity as similarity_store
from mitl.db.store.hits import LIVE_STATES
from mitl.judgements.similarity import (
    ENOUGH,
    AggregatedRatings,
    Aggregation,
    RaterAgreement,
    aggregate,
    agreement,
    counting,
    listed,
)
from mitl.positives.rating_input import positive_share
from mitl.records import UNDECIDED, Decision, Environment, StageResult, Table, several
from mitl.records.forms import IMAGES
from mitl.records.results import CsvPaths, printed_by
from mitl.records.similarity import METHODS, SIMILARITY, TASKS, Likeness
from mitl.settings import Settings

COLUMNS = ("task", "first", "second", "sampling_method", "score", "sd", "ratings")
"""Of the CSV: a row for each sampled order, those without ratings with an empty score."""


@dataclass(frozen=True, slots=True)
class TaskStanding:
    """What was sampled and rated in an environment."""

    samples: pd.DataFrame
    """``SAMPLES``."""
    ratings: pd.DataFrame
    """``RATINGS``."""
    counted: pd.DataFrame
    """The rows of ``RATINGS`` that count."""
    aggregated: AggregatedRatings
    listed: pd.DataFrame
    """``LISTED``: every sampled order with its score."""
    names: Mapping[str, Mapping[int, str]]
    """Side → number → external id."""

    def of(self, task: Likeness) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The ratings that count and the sampled orders of a task."""
        place = TASKS.index(task)
        return self.counted[self.counted["task"] == place], self.listed[self.listed["task"] == place]

    def named(self, task: Likeness, rows: pd.DataFrame) -> list[tuple[str, str]]:
        """The external ids of first and second items of some rows of ``listed``."""
        first, second = (self.names[side] for side in task.sides)
        return [
            (first[one], second[other])
            for one, other in zip(rows["first"].tolist(), rows["second"].tolist(), strict=True)
        ]


def standing(context: Context, method: Aggregation = Aggregation.MEAN) -> TaskStanding:
    """Read what was sampled and rated, and take it together."""
    session = context.session
    samples = similarity_store.samples(session)
    ratings = similarity_store.ratings(session, context.environment)
    counted = counting(ratings)
    aggregated = aggregate(counted, method)
    sides = item_store.names(session, item_store.dataset(session).id)
    return TaskStanding(
        samples,
        ratings,
        counted,
        aggregated,
        listed(samples, aggregated.scores),
        dict(zip(("image", "caption"), sides, strict=True)),
    )


def scores_csv(known: TaskStanding, tasks: Sequence[Likeness]) -> bytes:
    """The sampled orders of these tasks with their scores (``COLUMNS``), unrounded but for the fourth decimal."""
    rows: list[Sequence[object]] = [COLUMNS]
    for task in tasks:
        orders = known.of(task)[1]
        values = (orders[name].tolist() for name in ("method", "score", "sd", "n_ratings"))
        for names, method, score, sd, count in zip(known.named(task, orders), *values, strict=True):
            numbers = ("" if np.isnan(value) else f"{value:.4f}" for value in (score, sd))
            rows.append((task.value, *names, METHODS[method].value, *numbers, count))
    return csv_bytes(rows)


_NAMED = 10
"""Pairs that are printed by name; the CSV holds them all."""


printed_by("rate scores", key="paths")(CsvPaths)


@printed_by("rate scores")
class RatedCounts(TypedDict, total=False):
    """What the ratings come to."""

    environment: Annotated[str, "sandbox or live"]
    method: Annotated[str, "how several ratings of a pair become one: mean, trimmed, standardised or model"]
    min_ratings: Annotated[int, "ratings that a pair needs to be complete"]
    queued: Annotated[int, "submissions that wait for a person and do not count yet"]
    tasks: Annotated[
        dict[str, dict[str, Any]],
        "sts, sis, sits → sampled, rated (as `pairs`), complete, incomplete, unrated pairs; ratings, raters; mean; "
        "sd (mean standard deviation of a pair's ratings), positive_from, positive_share (of rated pairs); by_method "
        "(rows, mean, positive_share); seconds (median of a rating); icc1, icc1k, icc2, icc2k, icc3, icc3k, alpha "
        "(value, low, high; null where they cannot be had)",
    ]


def score_ratings(
    settings: Settings,
    environment: Environment | None = None,
    *,
    tasks: Sequence[Likeness] = TASKS,
    method: Aggregation = Aggregation.MEAN,
    min_ratings: int = ENOUGH,
    to: Path | None = None,
) -> StageResult:
    """Score the pairs by the ratings that count: of submissions that are kept, controls left out.

    Args:
        min_ratings: a pair with fewer is listed as lacking some.
        to: CSV file for the scores of all sampled pairs.

    Raises:
        UsageError: the CSV file cannot be written.
    """
    with open_context(settings, environment, read_only=True) as context, reading(context.session):
        ratings = standing(context, method)
        waiting = _waiting(context)
        queued = sum(decision is Decision.QUEUED for decision in waiting)
        about: RatedCounts = {
            "environment": context.environment.value,
            "method": method.value,
            "min_ratings": min_ratings,
            "queued": queued,
        }
        rated = [task for task in tasks if len(ratings.of(task)[0])]
        if not rated:
            return _nothing(context, ratings, tasks, about, waiting)
        again = {
            hit.questions[0].task for hit in rating_pages.lacking_hits(context.session, context.environment)
        }
        is_out = bool(hit_store.hits(context.session, context.environment, LIVE_STATES, SIMILARITY))
    agreements = {task: agreement(ratings.of(task)[0], seed=settings.seed) for task in rated}
    figures = {task: _figures(ratings, task, min_ratings, agreements[task]) for task in rated}
    if to is not None:
        write_kept(to, scores_csv(ratings, tasks), replace=True)
    lacking = [task for task in rated if figures[task]["incomplete"]]
    lines = [
        f"{several(figures[task]['unrated'], 'sampled pair')} of {task.upper()} without any rating yet"
        for task in rated
        if figures[task]["unrated"]
    ]
    if queued:
        lines.append(f"{several(queued, 'submission')} waiting for a person and not counted yet")
    following = f"mitl rate release --{about['environment']} --out ratings"
    asked_again = [task for task in lacking if task in again]
    if lacking and queued:
        following = f"mitl review --{about['environment']}, for what waits for a person"
    elif asked_again:
        following = (
            f"mitl rate publish --{about['environment']} --task {asked_again[0]}  (asks these pairs again)"
        )
    elif lacking and is_out:
        following = f"mitl harvest --{about['environment']}"
    return StageResult(
        counts=RatedCounts(**about, tasks={task.value: figures[task] for task in rated}),
        paths=CsvPaths() if to is None else CsvPaths(csv=str(to)),
        warnings=ratings.aggregated.warnings,
        tables=(
            _overview(figures, method, min_ratings),
            _by_method(figures),
            _agreement_table(agreements),
            *(_lacking(ratings, task, min_ratings) for task in lacking),
        ),
        lines=tuple(lines),
        next=following,
    )


def _waiting(context: Context) -> list[Decision]:
    """The decisions of submissions to pages of similarity that have not been taken or wait for a person."""
    batches = {
        batch.name
        for batch in hit_store.batches(context.session, context.environment)
        if batch.kind == SIMILARITY
    }
    rows = answer_store.assignments(context.session, context.environment, UNDECIDED)
    return [row.decision for row in rows if row.batch in batches]


def _nothing(
    context: Context,
    known: TaskStanding,
    tasks: Sequence[Likeness],
    about: RatedCounts,
    waiting: Sequence[Decision],
) -> StageResult:
    """Why there is nothing to score, and the step that would change it."""
    where = context.environment
    sampled = [task for task in tasks if len(known.of(task)[1])]
    posted = {
        batch.direction for batch in hit_store.batches(context.session, where) if batch.kind == SIMILARITY
    }
    if not sampled:
        why, after = "no pair was sampled", "mitl propose --scheme crisscross"
    elif not posted & {task.value for task in sampled}:
        why, after = "no pair was posted", f"mitl rate publish --{where} --task {sampled[0]}"
    elif Decision.QUEUED in waiting:
        why, after = "all submissions wait for a person", f"mitl review --{where}"
    else:
        why, after = "no rating counts yet", f"mitl harvest --{where}"
    return StageResult(
        status="nothing_to_do",
        counts=RatedCounts(**about, tasks={}),
        lines=(f"nothing to score: {why} on {where}",),
        next=after if item_store.dataset(context.session).form is IMAGES else "",
    )


def _figures(known: TaskStanding, task: Likeness, min_ratings: int, agreed: RaterAgreement) -> dict[str, Any]:
    """The figures of a task for ``--json``."""
    rated, orders = known.of(task)
    pairs = orders.drop_duplicates("pair")
    has = pairs[pairs["n_ratings"] > 0]
    times = rated.loc[rated["active_ms"] > 0, "active_ms"]
    lacking = (has["n_ratings"] < min_ratings).sum()
    by_method = {
        METHODS[int(str(place))].value: {
            "rows": len(rows),
            "mean": float(rows["score"].mean()),
            "positive_share": positive_share(rows, task),
        }
        for place, rows in orders[orders["n_ratings"] > 0].groupby("method", sort=True)
    }
    return {
        "sampled": len(pairs),
        "pairs": len(has),
        "complete": len(has) - int(lacking),
        "incomplete": int(lacking),
        "unrated": len(pairs) - len(has),
        "ratings": len(rated),
        "raters": int(rated["worker"].nunique()),
        "mean": _number(has["score"].mean()),
        "sd": _number(has["sd"].mean()),
        "positive_from": task.positive_from,
        "positive_share": _number(positive_share(has, task)),
        "by_method": by_method,
        "seconds": _number(times.median() / 1000),
        **{
            name: None
            if figure.value is None
            else {"value": figure.value, "low": figure.low, "high": figure.high}
            for name, figure in agreed.estimates.items()
        },
    }


def _number(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)


def _overview(figures: Mapping[Likeness, Mapping[str, Any]], method: Aggregation, wanted: int) -> Table:
    return Table(
        f"scores by {method}",
        (
            *("task", "pairs rated", "ratings", "raters", f"pairs under {wanted}", "mean", "sd of a pair"),
            *("positive from", "positive", "median s"),
        ),
        tuple(
            (
                task.value,
                *(of_task[name] for name in ("pairs", "ratings", "raters", "incomplete")),
                *(_shown(of_task[name], 3) for name in ("mean", "sd")),
                f"{task.positive_from:g}",
                percent(of_task["positive_share"]),
                _shown(of_task["seconds"], 1),
            )
            for task, of_task in figures.items()
        ),
    )


def _by_method(figures: Mapping[Likeness, Mapping[str, Any]]) -> Table:
    return Table(
        "by sampling method; a pair that was sampled in both orders has two rows",
        ("method", "rows", "mean", "positive"),
        tuple(
            (method, row["rows"], _shown(row["mean"], 3), percent(row["positive_share"]))
            for of_task in figures.values()
            for method, row in of_task["by_method"].items()
        ),
    )


def _agreement_table(agreements: Mapping[Likeness, RaterAgreement]) -> Table:
    return Table(
        "agreement, with 95 % intervals",
        ("task", "measure", "value", "low", "high"),
        tuple(
            (
                task.value,
                agreed.words[name] + (f" ({figure.reason})" if figure.reason else ""),
                *(_shown(value, 3) for value in (figure.value, figure.low, figure.high)),
            )
            for task, agreed in agreements.items()
            for name, figure in agreed.estimates.items()
        ),
    )


def _lacking(known: TaskStanding, task: Likeness, wanted: int) -> Table:
    pairs = known.of(task)[1].drop_duplicates("pair")
    lacking = pairs[(pairs["n_ratings"] > 0) & (pairs["n_ratings"] < wanted)]
    shown = lacking.head(_NAMED)
    more = f"; the first {_NAMED:,} of {len(lacking):,}, --csv has them all" if len(lacking) > _NAMED else ""
    return Table(
        f"{task.upper()} pairs with fewer than {several(wanted, 'rating')}{more}",
        ("first", "second", "ratings"),
        tuple(
            (first, second, count)
            for (first, second), count in zip(
                known.named(task, shown), shown["n_ratings"].tolist(), strict=True
            )
        ),
    )


def _shown(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"

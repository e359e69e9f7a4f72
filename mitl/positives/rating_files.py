"""The tables of a release of ratings, as bytes: CxC's CSVs, what lacks ratings, and every single rating."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from mitl.core.formats import csv_bytes
from mitl.datasets.cxc import LAYOUT
from mitl.positives.privacy import TIME_STEP_MS, pseudonym
from mitl.positives.rating_input import RatingInput
from mitl.records import Outcome
from mitl.records.similarity import METHODS, SIMILARITY_ROLES, TASKS, Likeness, SimilarityRole

INCOMPLETE = "incomplete.csv"
INCOMPLETE_COLUMNS = ("task", "first", "second", "sampling_method", "ratings")
RATINGS = "ratings.parquet"
COLUMN_NOTES = {
    "task": "sts, sis or sits.",
    "first": "The item that chose the other when the pair was sampled, of sits the image, as the CSVs name it.",
    "second": "The item that was chosen, of sits the caption.",
    "worker": "Pseudonym; the same worker has the same one throughout this release and no other.",
    "score": "0 to 5 as set on the slider; empty unless answered.",
    "outcome": "answered, skipped or image_failed.",
    "reversed": "Whether the second item was shown first.",
    "repeated": "Whether the pair was shown once more on its page, as a control; such ratings never count.",
    "active_ms": "Milliseconds that the worker spent on the pair, as measured by the page, to the nearest second.",
    "usable": "Whether it may count: the work was kept and its worker not excluded.",
    "counted": "Whether it is part of the pair's score.",
    "text": "The worker's own words, after a scan that took addresses, long numbers and ids out.",
}


def task_file(task: Likeness, split: str) -> str:
    """What CxC calls the file of a task."""
    return f"{task.value}_{split}.csv"


def scores_csv(data: RatingInput, task: Likeness) -> bytes | None:
    """The scores of a task in CxC's layout, rounded as CxC's to two decimals; None where no pair has enough ratings.

    A row for each order in which a pair was sampled, by method, first and second item.
    """
    rows = data.complete
    rows = rows[rows["task"] == TASKS.index(task)]
    if not len(rows):
        return None
    layout = LAYOUT[task]
    sides = [f"{side}{n}" if task.sides[0] == task.sides[1] else side for n, side in enumerate(task.sides, 1)]
    columns = dict(zip(sides, _named(data, task, rows), strict=True))
    scores = (str(round(score, 2)) for score in rows["score"].tolist())
    return csv_bytes(
        [layout, *zip(columns[layout[0]], columns[layout[1]], scores, _methods(rows), strict=True)]
    )


def incomplete_csv(data: RatingInput) -> bytes:
    """Every sampled order whose pair has too few ratings, and how many it has."""
    table: list[Sequence[object]] = [INCOMPLETE_COLUMNS]
    for task in TASKS:
        rows = data.incomplete
        rows = rows[rows["task"] == TASKS.index(task)]
        first, second = _named(data, task, rows)
        counts = rows["n_ratings"].tolist()
        table += zip([task.value] * len(rows), first, second, _methods(rows), counts, strict=True)
    return csv_bytes(table)


def ratings_table(data: RatingInput) -> pa.Table:
    """One row per rating of a sampled pair under its worker's pseudonym; nothing tells in which order they came in."""
    orders = data.listed.drop_duplicates("pair")[["pair", "task", "first", "second"]]
    rows = data.given.merge(orders, on="pair", how="inner")
    within = rows["task"] != TASKS.index(Likeness.SITS)
    rows["reversed"] = rows["swapped"] ^ (within & (rows["first"] > rows["second"]))
    rows["repeated"] = rows["role"] == SIMILARITY_ROLES.index(SimilarityRole.REPEATED)
    names = {worker: pseudonym(worker, data.salt) for worker in rows["worker"].cat.categories}
    rows["worker"] = rows["worker"].astype(str).map(names)
    steps = (rows["active_ms"] + TIME_STEP_MS // 2) // TIME_STEP_MS * TIME_STEP_MS
    rows["active_ms"] = steps.where(rows["active_ms"] > 0).astype("Int64")
    texts = ["text"] if "text" in rows else []
    if texts:
        rows["text"] = rows["text"].astype(object).where(rows["text"].notna(), "")
    order = ["task", "first", "second", "worker", "repeated", "outcome", "score", "reversed", "usable"]
    rows = rows.sort_values([*order, "counted", "active_ms", *texts], kind="stable", ignore_index=True)
    first, second = _all_named(data, rows)
    outcomes, score = [outcome.value for outcome in Outcome], rows["score"].to_numpy(np.float64)
    active = rows["active_ms"]
    return pa.table(
        {
            "task": pa.array([TASKS[place].value for place in rows["task"].tolist()], pa.string()),
            "first": pa.array(first, pa.string()),
            "second": pa.array(second, pa.string()),
            "worker": pa.array(rows["worker"].tolist(), pa.string()),
            "score": pa.array(score, mask=np.isnan(score)),
            "outcome": pa.array([outcomes[place] for place in rows["outcome"].tolist()], pa.string()),
            **{name: pa.array(rows[name].to_numpy(np.bool_)) for name in ("reversed", "repeated")},
            "active_ms": pa.array(active.fillna(0).to_numpy(np.int64), mask=active.isna().to_numpy()),
            **{name: pa.array(rows[name].to_numpy(np.bool_)) for name in ("usable", "counted")},
            **{name: pa.array([text or None for text in rows[name]], pa.string()) for name in texts},
        }
    )


def _named(data: RatingInput, task: Likeness, rows: pd.DataFrame) -> tuple[list[str], list[str]]:
    first, second = (data.names[side] for side in task.sides)
    return [first[n] for n in rows["first"].tolist()], [second[n] for n in rows["second"].tolist()]


def _all_named(data: RatingInput, rows: pd.DataFrame) -> tuple[list[str], list[str]]:
    """The names of first and second items of rows of several tasks, in order of the tasks."""
    first: list[str] = []
    second: list[str] = []
    for place, task in enumerate(TASKS):
        of_task = _named(data, task, rows[rows["task"] == place])
        first += of_task[0]
        second += of_task[1]
    return first, second


def _methods(rows: pd.DataFrame) -> list[str]:
    return [METHODS[place].value for place in rows["method"].tolist()]

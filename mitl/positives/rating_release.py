"""A release of ratings of similarity: CxC's CSVs, what lacks ratings, every single rating, and the datasheet.

The folder that others load is made from records alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from mitl.core.formats import csv_bytes
from mitl.datasets.cxc import LAYOUT
from mitl.errors import ReleaseError
from mitl.judgements.similarity import Aggregation
from mitl.positives.croissant import PARQUET, distribution, head, provenance, record_set
from mitl.positives.datasheet import rights
from mitl.positives.folders import MANIFEST, RATINGS_FORMAT, WrittenRelease, put_release
from mitl.positives.markdown import front_matter, listed, percent, plain, table
from mitl.positives.privacy import TIME_STEP_MS, pseudonym, refuse_leaks
from mitl.positives.rating_input import (
    ControlRecord,
    RatingInput,
    RatingSummary,
    as_released,
    check_split,
    summarise_ratings,
)
from mitl.positives.release import configurations, file_listing, manifest
from mitl.positives.sheet_people import texts_told, time_and_pay, workers
from mitl.positives.tables import json_bytes, parquet_bytes
from mitl.records import Environment, Outcome, several
from mitl.records.similarity import METHODS, SIMILARITY_ROLES, TASKS, Likeness, SamplingMethod, SimilarityRole

INCOMPLETE = "incomplete.csv"
INCOMPLETE_COLUMNS = ("task", "first", "second", "sampling_method", "ratings")
RATINGS = "ratings.parquet"
COLUMN_NOTES = {
    "task": "sts, sis or sits.",
    "first": "The item that chose the other when the pair was sampled, of sits the image, as the CSVs name it.",
    "second": "The item that was chosen, of sits the caption.",
    "worker": "Pseudonym; a worker has one throughout this release, and another in a release of another name.",
    "score": "0 to 5 as set on the slider; empty unless answered.",
    "outcome": "answered, skipped or image_failed.",
    "reversed": "Whether the second item was shown first.",
    "repeated": "Whether the pair was shown once more on its page, as a control; such ratings never count.",
    "active_ms": "Milliseconds that the worker spent on the pair, as measured by the page, to the nearest second.",
    "usable": "Whether it may count: the work was kept and its worker not excluded.",
    "counted": "Whether it counts towards the pair's score, which a pair with too few ratings lacks.",
    "text": "The worker's own words, after a scan that took addresses, long numbers and ids out.",
}
_NOTES = {
    RATINGS: (PARQUET, "One row per rating of a sampled pair, under a worker's pseudonym."),
    INCOMPLETE: ("text/csv", "Sampled pairs with too few ratings, which have no score here."),
    "datasheet.md": ("text/markdown", "How the ratings came to be, and what to keep in mind."),
}


def write_ratings(
    folder: Path,
    data: RatingInput,
    *,
    private_ids: Mapping[str, Iterable[str]] | None = None,
    replace: bool = False,
) -> WrittenRelease[RatingSummary]:
    """Write the release folder, whole or not at all; nothing is touched if it already holds these very bytes.

    Args:
        replace: put it in place of an earlier release of ratings that the folder holds.
        private_ids: kind → ids of which no file may hold one, nor a plain hash of one; looked for before writing.

    Raises:
        ReleaseError: no pair has enough ratings; the folder holds another release or something that is not a release's;
            the split, the salt or the configuration is unfit; a file would give a private id away; the place cannot be
            written.
    """
    files, summary = rating_files(data)
    refuse_leaks(files, private_ids or {}, texts=RATINGS)
    return put_release(folder, files, summary, replace=replace, kind=RATINGS_FORMAT)


def rating_files(data: RatingInput) -> tuple[dict[str, bytes], RatingSummary]:
    """The content of each file of the release, and its figures.

    Raises:
        ReleaseError: see :func:`write_ratings`.
    """
    check_split(data.split)
    if not len(data.complete):
        most = int(data.listed["n_ratings"].max()) if len(data.listed) else 0
        raise ReleaseError(
            f"no sampled pair has {several(data.min_ratings, 'rating')} that count (the most is {most}), so there is "
            "nothing to release; `mitl rate scores` says what lacks, and --min-ratings takes fewer"
        )
    summary = summarise_ratings(data)
    files: dict[str, bytes] = {}
    for task in TASKS:
        content = scores_csv(data, task)
        if content is not None:
            files[task_file(task, data.split)] = content
    files[INCOMPLETE] = incomplete_csv(data)
    ratings = ratings_table(data)
    files[RATINGS] = parquet_bytes(ratings)
    files["datasheet.md"] = _datasheet(data, summary).encode()
    files["croissant.json"] = json_bytes(_croissant(data, summary, files, ratings.schema))
    files["README.md"] = _readme(data, files).encode()
    own = {
        "split": data.split,
        "rules": {"method": data.method.value, "min_ratings": data.min_ratings},
        "encoders": {method.value: dict(names) for method, names in data.encoders.items()},
        "counts": dict(summary.counts),
    }
    files[MANIFEST] = manifest(data, RATINGS_FORMAT, files, own)
    return files, summary


def _notes(split: str) -> dict[str, tuple[str, str]]:
    """File → its media type, and what it holds."""
    scores = {
        task_file(task, split): (
            "text/csv",
            f"Scores of {task.value.upper()} pairs from 0 to 5, in the layout of Crisscrossed Captions.",
        )
        for task in TASKS
    }
    return {**scores, **_NOTES}


def _readme(data: RatingInput, files: Mapping[str, bytes]) -> str:
    """What is in the folder; the front matter lets the ``datasets`` library load the scores by task.

    It reads one kind of file in a folder, so it takes the tables of CSV and not the ratings.
    """
    scores = {task.value: task_file(task, data.split) for task in TASKS}
    tables = {task: file for task, file in scores.items() if file in files}
    body = [
        f"# {plain(data.name)}",
        f"How alike items of {plain(data.dataset)} are, rated by people from 0 to 5. How the ratings came to be is "
        "told in `datasheet.md`.",
        file_listing(files, _notes(data.split)),
    ]
    return front_matter(data.name, data.card.license, configurations(tables)) + "\n\n".join(body) + "\n"


def _croissant(
    data: RatingInput, summary: RatingSummary, files: Mapping[str, bytes], schema: pa.Schema
) -> dict[str, object]:
    """The folder described in MLCommons' Croissant."""
    workers = f"{several(summary.counts['workers'], 'worker')} with ratings in this release"
    encoders = sorted({name for some in data.encoders.values() for name in some})
    activities: dict[str, Collection[str]] = (
        {"Encoders ranked pairs to be rated": encoders} if encoders else {}
    )
    activities["People rated pairs from 0 to 5"] = ()
    return {
        **head(data, f"How alike items of {data.dataset} are, rated by people from 0 to 5."),
        **provenance(data.card, [data.dataset], activities),
        "rai:annotationsPerItem": f"{data.min_ratings} or more on each scored pair",
        "rai:dataAnnotationProtocol": "People set a slider from 0 to 5 for two captions, two images, or an image and a "
        "caption; see datasheet.md.",
        "rai:annotatorDemographics": [
            f"Unknown: {workers}; nothing of them is released but their ratings and times."
        ],
        "rai:machineAnnotationTools": encoders,
        "rai:personalSensitiveInformation": [
            "No ids of workers, and no hash of one that could be tried: pseudonyms are keyed by a secret that "
            "stays with the makers."
        ],
        "distribution": distribution(files, _notes(data.split)),
        "recordSet": [record_set("ratings", schema, _NOTES[RATINGS][1], COLUMN_NOTES)],
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
    scores = (str(as_released(score)) for score in rows["score"].tolist())
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
    named = [_named(data, task, rows[rows["task"] == place]) for place, task in enumerate(TASKS)]
    first, second = (list(chain.from_iterable(names)) for names in zip(*named, strict=True))
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


def _methods(rows: pd.DataFrame) -> list[str]:
    return [METHODS[place].value for place in rows["method"].tolist()]


_RATED: Mapping[Likeness, str] = {
    Likeness.STS: "two captions",
    Likeness.SIS: "two images",
    Likeness.SITS: "an image and a caption",
}
_CHOSEN: Mapping[SamplingMethod, str] = {
    SamplingMethod.C2C_ISIM: "two captions, one each of two images that a machine finds alike",
    SamplingMethod.C2C_COCAPTION: "two captions of one image",
    SamplingMethod.I2I_CSIM: "two images whose captions a machine finds alike",
    SamplingMethod.C2I_INTRASIM: "an image and the caption of another one, from the ratings of two captions or of two "
    "images",
    SamplingMethod.C2I_ORIGINAL: "an image and a caption that was written for it",
}
_STANDS_FOR: Mapping[SamplingMethod, str] = {
    SamplingMethod.C2C_ISIM: "CxC: Graph-RISE",
    SamplingMethod.I2I_CSIM: "CxC: Universal Sentence Encoder and averaged GloVe vectors",
}
_METHODS: Mapping[Aggregation, str] = {
    Aggregation.MEAN: "A pair's score is the plain mean of its ratings, as in CxC.",
    Aggregation.TRIMMED: "A pair's score is the mean of its ratings without a fifth of them at each end, rounded down: "
    "of five the middle three.",
    Aggregation.STANDARDISED: "Each rating was told in standard deviations from its rater's mean and put back on the "
    "scale of all raters; a pair's score is the mean of these. Raters with few ratings were taken for average ones.",
    Aggregation.MODEL: "A pair's score comes from a model in which each rater has an offset and a scale, learned with "
    "the scores themselves; both are pulled towards those of an average rater where there are few ratings.",
}


def _datasheet(data: RatingInput, summary: RatingSummary) -> str:
    """How the ratings came to be, what they are and what to keep in mind, in Markdown."""
    card, origins = data.card, data.origins
    parts = [
        f"# Datasheet of {plain(data.name)}",
        plain(card.description) or f"How alike items of {plain(data.dataset)} are, as people see it.",
        "## What it is for",
        "Models of texts, of images and of both give similarities; here people rated pairs from 0 to 5, so that the "
        "two can be compared, and pairs that people find alike can be searched for. The design and the layout "
        "of the CSVs are those of Crisscrossed Captions (Parekh et al., EACL 2021), of which these are not a part.",
        "## What it holds",
        _composition(data, summary),
        "## How pairs were sampled",
        _sampling(data),
        "## How pairs were rated",
        _rating(data),
        "### Controls",
        _controls(data.controls, data.rule),
        "### Workers",
        workers(origins.crowd, RATINGS),
        "### Time and pay",
        time_and_pay(origins, card, data.environment, summary.median_active_s),
        "### Agreement",
        _agreement(data),
        "### Words of the workers",
        texts_told(data.texts, RATINGS),
        "## How ratings became scores",
        _scores(data, summary),
        "## What to keep in mind",
        _cautions(data, summary),
        "## Rights, contact, upkeep",
        rights(card, "ratings and scores"),
        "`manifest.json` holds the configuration, seeds and versions that rebuild these files, and their hashes.",
    ]
    return "\n\n".join(parts) + "\n"


def _composition(data: RatingInput, summary: RatingSummary) -> str:
    money = "practice money" if data.environment is Environment.SANDBOX else "real money"
    of_task = [
        (
            f"`{task_file(Likeness(task), data.split)}`" if figures["rows"] else "–",
            _RATED[Likeness(task)],
            f"{figures['pairs']:,}",
            f"{figures['rows']:,}",
            _number(figures["mean"]),
            f"{percent(figures['positive_share'] or 0)} (from {figures['positive_from']:g})",
            f"{figures['incomplete']:,}",
        )
        for task, figures in summary.counts["tasks"].items()
    ]
    by_method = [
        (f"`{method}`", _CHOSEN[SamplingMethod(method)], f"{row['rows']:,}", _number(row["mean"]))
        for figures in summary.counts["tasks"].values()
        for method, row in figures["by_method"].items()
    ]
    return "\n\n".join(
        [
            table(("file", "rates", "pairs", "rows", "mean score", "positive", "pairs left out"), of_task),
            "A pair that was sampled in both orders is a pair with two rows of the same score. By sampling method:",
            table(("method", "pairs of", "rows", "mean score"), by_method),
            f"`{RATINGS}` holds {several(summary.counts['ratings'], 'rating')} of sampled pairs, "
            f"{summary.counts['ratings_counted']:,} of them counted, by "
            f"{several(summary.counts['workers'], 'worker')}. Environment: "
            f"{data.environment.value} ({money}). Images and captions are named and are not part of the release.",
        ]
    )


def _sampling(data: RatingInput) -> str:
    rows = [
        (
            f"`{method.value}`",
            listed([f"{plain(name)} ({several(count, 'pair')})" for name, count in encoders.items() if name])
            or "none",
            _STANDS_FOR.get(method, "–"),
        )
        for method in METHODS
        if (encoders := data.encoders.get(method))
    ]
    told = (
        "Pairs of one modality were chosen by how alike their partners in the other one are, so that what is rated was "
        "not chosen by a model of itself; pairs of an image and a caption were chosen from the ratings of the first "
        "phase and from the original pairs."
    )
    if not rows:
        return told
    return (
        f"{told} These encoders stand where CxC has its own:\n\n"
        + table(("method", "chosen by", "in place of"), rows)
        + "\n\nSay so when scoring one of them."
    )


def _rating(data: RatingInput) -> str:
    parts = [
        "People set a slider from 0 to 5 in steps of 0.01, whose number they did not see; a slider that was never "
        "touched is no answer. "
        + (
            f"{several(data.min_ratings, 'rating')} by different workers make a score."
            if data.min_ratings > 1
            else "One rating is enough for a score."
        )
    ]
    for task, wordings in data.asked.items():
        for wording in wordings:
            told = f"wording `{plain(wording.template)}`, “{plain(wording.title)}”"
            levels = "\n".join(f"- {value}: {plain(level)}" for value, level in enumerate(wording.levels))
            more = f" The levels:\n\n{levels}" if levels else ""
            parts.append(f"{task.value.upper()}, {_RATED[task]}: {told}.{more}")
    return "\n\n".join(parts)


_EXPECTED: Mapping[SimilarityRole, tuple[str, str]] = {
    SimilarityRole.IDENTICAL: ("an item beside itself, or an image beside its caption", "mean score"),
    SimilarityRole.RANDOM: ("two items that have nothing to do with each other", "mean score"),
    SimilarityRole.REPEATED: ("a pair of the page once more", "mean distance from the first rating"),
}


def _controls(controls: tuple[ControlRecord, ...], rule: str) -> str:
    rows = [
        (
            _EXPECTED[control.role][0],
            f"{control.ratings:,}",
            f"{_EXPECTED[control.role][1]}: {_number(control.figure)}",
        )
        for control in controls
        if control.ratings
    ]
    if not rows:
        return "None of the rated pages held a control, a pair whose score is known beforehand."
    told = f" The rule: {plain(rule)}." if rule else ""
    return (
        "Pages held pairs that check the worker, at places that workers could not tell. A page that failed went to a "
        f"person, and nothing was rejected by rule.{told}\n\n"
        + table(("control", "ratings", "what came of it"), rows)
        + f"\n\nRatings of the first two are in none of these files; those of the third are in `{RATINGS}`, marked, "
        "and never count."
    )


def _agreement(data: RatingInput) -> str:
    if not data.agreements:
        return "Nothing is known of it."
    parts = [
        "ICC after Shrout and Fleiss (1979): ICC(1) takes raters of each pair as drawn anew; ICC(2) and ICC(3) are of "
        "pairs that the same people rated, page by page. Intervals are of 95 %, for alpha by bootstrap over pairs; "
        "they take workers as independent from page to page. All ratings that count are in it, those of "
        "pairs left out too."
    ]
    for task, agreed in data.agreements.items():
        rows = [
            (
                agreed.words[name],
                _number(estimate.value) if estimate.value is not None else plain(estimate.reason),
            )
            + (
                (f"{estimate.low:.3f} to {estimate.high:.3f}",)
                if estimate.low is not None and estimate.high is not None
                else ("–",)
            )
            for name, estimate in agreed.estimates.items()
        ]
        parts.append(table((task.value.upper(), "value", "interval"), rows))
    return "\n\n".join(parts)


def _scores(data: RatingInput, summary: RatingSummary) -> str:
    lines = [
        _METHODS[data.method],
        "Scores are rounded to two decimals. A worker's first rating of a pair counts, controls never do, nor does "
        "work that was not kept or of workers who were excluded.",
    ]
    lines += [f"The fit of {task.value.upper()} {fit.text}." for task, fit in data.fits.items()]
    left = sum(figures["incomplete"] for figures in summary.counts["tasks"].values())
    if left:
        lines.append(
            f"{several(left, 'pair')} with fewer than {several(data.min_ratings, 'rating')} "
            f"{'is' if left == 1 else 'are'} left out and listed in `incomplete.csv`."
        )
    return " ".join(lines)


def _cautions(data: RatingInput, summary: RatingSummary) -> str:
    share = data.origins.busiest_share(summary.largest_share)
    posted = data.origins.crowd is not None
    said = [
        (
            True,
            "Pairs were sampled to be more alike than chance; means and shares say nothing of all pairs of the set.",
        ),
        (True, f"People differ in what they call alike. `{RATINGS}` keeps every rating as given."),
        (
            data.min_ratings < 5,
            "CxC has five ratings of each pair; scores of fewer are less sure, and vary from pair to pair in that.",
        ),
        (
            posted and data.environment is Environment.SANDBOX,
            "The ratings were given for practice money. Scripted workers (`mitl simulate`) rate there as people do, "
            "and nothing in these files tells them apart.",
        ),
        (share is not None and share > 0.2, "More than a fifth of the ratings come from one worker."),
    ]
    return "\n".join(f"- {words}" for holds, words in said if holds)


def _number(value: Any) -> str:
    return "–" if value is None else f"{value:.3f}"

"""A release of ratings of similarity: the folder that others load, made from records alone."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import pyarrow as pa

from mitl.errors import ReleaseError
from mitl.positives.croissant import PARQUET, file_object, head, provenance, record_set
from mitl.positives.folders import MANIFEST, RATINGS_FORMAT, WrittenRelease, put_folder
from mitl.positives.markdown import plain
from mitl.positives.privacy import refuse_leaks
from mitl.positives.rating_input import RatingInput, RatingSummary, check_split, summarise_ratings
from mitl.positives.rating_sheet import (
    COLUMN_NOTES,
    INCOMPLETE,
    RATINGS,
    incomplete_csv,
    rating_sheet,
    ratings_table,
    scores_csv,
    task_file,
)
from mitl.positives.release import file_listing, front_matter, manifest
from mitl.positives.tables import json_bytes, parquet_bytes
from mitl.records import several
from mitl.records.similarity import TASKS

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
    changed = put_folder(folder, files, replace=replace, kind=RATINGS_FORMAT)
    return WrittenRelease(folder, hashlib.sha256(files[MANIFEST]).hexdigest(), changed, summary)


def rating_files(data: RatingInput) -> tuple[dict[str, bytes], RatingSummary]:
    """The content of each file of the release, and its figures.

    Raises:
        ReleaseError: see :func:`write_ratings`.
    """
    if not data.name.strip():
        raise ReleaseError("the release has no name; give it one")
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
    files["datasheet.md"] = rating_sheet(data, summary).encode()
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
    return front_matter(data.name, data.card, tables) + "\n\n".join(body) + "\n"


def _croissant(
    data: RatingInput, summary: RatingSummary, files: Mapping[str, bytes], schema: pa.Schema
) -> dict[str, object]:
    """The folder described in MLCommons' Croissant."""
    notes = _notes(data.split)
    workers = f"{several(summary.counts['workers'], 'worker')} with ratings in this release"
    encoders = sorted({name for some in data.encoders.values() for name in some})
    activities: dict[str, Collection[str]] = (
        {"Encoders ranked pairs to be rated": encoders} if encoders else {}
    )
    activities["People rated pairs from 0 to 5"] = ()
    return {
        **head(
            data.name,
            data.card,
            f"How alike items of {data.dataset} are, rated by people from 0 to 5.",
        ),
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
            "stays with the makers.",
        ],
        "distribution": [
            file_object(name, content, notes[name])
            for name, content in sorted(files.items())
            if name in notes
        ],
        "recordSet": [record_set("ratings", schema, _NOTES[RATINGS][1], COLUMN_NOTES)],
    }

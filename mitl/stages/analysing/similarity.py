"""Graded similarity as CxC shows its own: scores by sampling method, positives of a query, words against ratings."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from mitl.analysis.report.inputs import Section
from mitl.analysis.report.similarity_plots import deviations_svg, positives_svg, scores_svg, words_svg
from mitl.analysis.similarity import (
    DEVIATION_EDGES,
    EDGES,
    RATED,
    QueryPositives,
    Scores,
    WordLikeness,
    positives_of_queries,
    score_tables,
    word_likeness,
)
from mitl.core.arrays import Floats
from mitl.datasets.cxc import read_raw_deviations, read_split, splits_of
from mitl.db.session import open_database
from mitl.db.store import similarity as similarity_store
from mitl.errors import MetricError
from mitl.judgements.similarity import aggregate, counting, listed
from mitl.positives.rating_input import as_released
from mitl.records import Table
from mitl.records.forms import IMAGES
from mitl.records.frames import frame
from mitl.records.similarity import METHODS, TASKS, Likeness
from mitl.stages.analysing.table import (
    Analysis,
    AnalysisInput,
    Column,
    Findings,
    for_files,
    for_json,
    for_people,
    number,
    percent,
)
from mitl.stages.evaluating.project import CaptionTexts, read_texts

NO_RATINGS = "nobody has rated how alike two items are; run `mitl rate publish`, or give --ratings FOLDER"
_SPLIT_ORDER = {"val": 0, "test": 1}
"""As CxC lists them; others follow by name."""


@dataclass(frozen=True, slots=True, eq=False)
class SimilarityFigures:
    """All that is shown of the ratings of a folder, of a project, or of both."""

    scores: tuple[Scores, ...]
    positives: tuple[QueryPositives, ...]
    words: tuple[WordLikeness, ...]
    without_texts: bool
    """Whether captions were rated, but the texts of none are known."""


def _compute(of: AnalysisInput) -> SimilarityFigures:
    """From the folder that is named, and from the project's own ratings where it has some.

    Raises:
        MetricError: there are no ratings.
        DatasetError: the folder, or the file of captions, cannot be read.
        StoreError: no folder is named, and there is no project.
    """
    parts = []
    if of.options.ratings is not None:
        parts.append(_of_folder(of.options.ratings))
    if _has_project(of):
        parts.append(_of_project(of))
    rated = pd.concat([part.astype({"split": "str"}) for part in parts], ignore_index=True)
    if not len(rated):
        if _has_project(of) and (form := of.project.dataset.form) is not IMAGES:
            raise MetricError(f"{' and '.join(form.nouns)} are not rated so far; give --ratings FOLDER")
        raise MetricError(NO_RATINGS)
    texts = _texts(of)
    words = _words(rated, texts)
    captions = rated["task"] == TASKS.index(Likeness.STS)
    return SimilarityFigures(
        tuple(table for part in parts for table in score_tables(part)),
        tuple(positives_of_queries(rated)),
        tuple(words),
        without_texts=bool(captions.any()) and not words,
    )


def _has_project(of: AnalysisInput) -> bool:
    """Whether there is one to look at; where no folder is named there has to be."""
    return of.options.ratings is None or (of.settings.project / "mitl.toml").is_file()


def _of_folder(folder: Path) -> pd.DataFrame:
    """Every split of a folder in CxC's layout (``RATED``)."""
    parts = []
    for split in sorted(splits_of(folder), key=lambda name: (_SPLIT_ORDER.get(name, 2), name)):
        for task, scored in read_split(folder, split).items():
            deviations = read_raw_deviations(folder, task, scored)
            columns = {
                "split": [split] * len(scored),
                "task": np.full(len(scored), TASKS.index(task)),
                "sd": deviations,
                **{name: scored[name] for name in ("first", "second", "score", "method")},
            }
            parts.append(frame(RATED, columns))
    return pd.concat(parts, ignore_index=True)


def _of_project(of: AnalysisInput) -> pd.DataFrame:
    """The pairs that people rated in the project's environment (``RATED``), scored as a release scores them; the split
    is the environment."""
    project = of.project
    with open_database(of.settings.db_url, read_only=True) as session:
        ratings = similarity_store.ratings(session, project.environment)
        if ratings.empty:
            return frame(RATED, dict.fromkeys(RATED, ()))
        samples = similarity_store.samples(session)
    rows = listed(samples, aggregate(counting(ratings)).scores)
    rows = rows[rows["score"].notna()]
    ids = {"image": project.image_ids, "caption": project.caption_ids}
    names = {
        column: [
            ids[TASKS[task].sides[at]][item] for task, item in zip(rows["task"], rows[column], strict=True)
        ]
        for at, column in enumerate(("first", "second"))
    }
    return frame(
        RATED,
        {
            "split": [project.environment.value] * len(rows),
            "task": rows["task"].to_numpy(),
            "score": rows["score"].map(as_released).to_numpy(),
            "method": [METHODS[method].value for method in rows["method"]],
            "sd": rows["sd"].to_numpy(),
            **names,
        },
    )


def _texts(of: AnalysisInput) -> CaptionTexts | None:
    """Of the file that is named, else of the project."""
    if of.options.captions is not None:
        return read_texts(of.options.captions)
    if not _has_project(of):
        return None
    project = of.project
    return CaptionTexts(
        {caption.external_id: caption.text for caption in project.captions},
        project.image_of_caption,
        "the project",
    )


def _words(rated: pd.DataFrame, texts: CaptionTexts | None) -> list[WordLikeness]:
    rows = rated[rated["task"] == TASKS.index(Likeness.STS)]
    if texts is None or not len(rows):
        return []
    return word_likeness(rows, _cosines(rows, texts))


def _cosines(rows: pd.DataFrame, texts: CaptionTexts) -> Floats:
    """(rows,) of the two captions' words, weighted by TF-IDF over all captions; NaN where a text is not known."""
    from annotators.pivot import WeightedWords

    place_of = {name: place for place, name in enumerate(texts.text_of)}
    first, second = (
        np.array([place_of.get(name, -1) for name in rows[column]], np.int64)
        for column in ("first", "second")
    )
    known = (first >= 0) & (second >= 0)
    cosines = np.full(len(rows), np.nan)
    if known.any():
        weights = WeightedWords(longest=1)
        everything = list(texts.text_of.values())
        weights.fit(everything)
        vectors = weights.vectors(everything)
        products = vectors[first[known]].multiply(vectors[second[known]])
        cosines[known] = np.asarray(products.sum(axis=1)).reshape(-1)
    return cosines


_SCORES: tuple[Column[Scores], ...] = (
    Column("split", lambda row: row.split),
    Column("task", lambda row: row.task.value, shown=str.upper),
    Column("method", lambda row: row.method, "sampling method"),
    Column("pairs", lambda row: row.pairs),
    Column("unordered", lambda row: row.unordered, "whichever order"),
    Column("mean", lambda row: row.mean, shown=number),
    Column("positives", lambda row: row.positives),
    Column("share", lambda row: row.positives / row.pairs, "% positive", percent),
    Column("sd", lambda row: row.sd, "mean sd of a pair", number),
)
_POSITIVES: tuple[Column[QueryPositives], ...] = (
    Column("split", lambda row: row.split),
    Column("task", lambda row: row.task),
    Column("queries", lambda row: row.queries),
    Column("mean", lambda row: row.mean, shown=number),
    Column("most", lambda row: row.most),
    Column("without", lambda row: row.histogram[0] / row.queries, "% without", percent),
)
_WORDS: tuple[Column[WordLikeness], ...] = (
    Column("split", lambda row: row.split),
    Column("pairs", lambda row: row.pairs),
    Column("pearson", lambda row: row.pearson, "Pearson", number),
    Column("spearman", lambda row: row.spearman, "Spearman", number),
    Column("slope", lambda row: row.slope, shown=number),
    Column("intercept", lambda row: row.intercept, shown=number),
)


_CAPTIONS = {
    "similarity-scores": "Scores by how the pairs were sampled, in % of the method's pairs",
    "similarity-positives": "Queries by how many rated positives they have",
    "similarity-words": "Ratings of two captions over the likeness of their words, with the line of best fit",
    "similarity-deviations": "How far a pair's ratings lie apart, by how the pairs were sampled",
}


def _show(figures: SimilarityFigures, _: AnalysisInput) -> Findings:
    columns = _SCORES if any(score.sd is not None for score in figures.scores) else _SCORES[:-1]
    tables = [
        for_people("rated pairs; positives score 3 or more, of SIS 2.5 or more", columns, figures.scores),
        for_people(
            "rated positives of a query, over the queries with a rated pair", _POSITIVES, figures.positives
        ),
    ]
    if figures.words:
        tables.append(for_people("STS rating over the cosine of the captions' words", _WORDS, figures.words))
    return Findings(
        counts=_for_json(figures),
        tables=tuple(tables),
        lines=_lines(figures),
        rows=_for_csv(figures),
        captions=_CAPTIONS,
        drawings={
            "similarity-scores": partial(scores_svg, figures.scores),
            "similarity-positives": partial(positives_svg, figures.positives),
            "similarity-words": partial(words_svg, figures.words),
            "similarity-deviations": partial(deviations_svg, figures.scores),
        },
    )


def _lines(figures: SimilarityFigures) -> tuple[str, ...]:
    lines = [
        "a pair stands once for each order in which it was sampled; a line of dots is where positives begin"
    ]
    if figures.without_texts:
        lines.append(
            "the texts of the rated captions are not known here, so words are left out; `mitl analyse similarity "
            "--captions FILE` takes them"
        )
    return tuple(lines)


def _for_json(figures: SimilarityFigures) -> dict[str, object]:
    splits: dict[str, dict[str, dict[str, object]]] = {}
    for score in figures.scores:
        by_method = splits.setdefault(score.split, {}).setdefault(score.task.value, {})
        by_method[score.method] = {
            **for_json(_SCORES[3:], score),
            "histogram": list(score.histogram),
            "deviations": list(score.deviations),
        }
    positives: dict[str, dict[str, object]] = {}
    for query in figures.positives:
        by_task = positives.setdefault(query.split, {})
        by_task[query.task] = {**for_json(_POSITIVES[2:], query), "histogram": list(query.histogram)}
    return {
        "scores": splits,
        "positives": positives,
        "words": {words.split: for_json(_WORDS[1:], words) for words in figures.words},
    }


def _for_csv(figures: SimilarityFigures) -> dict[str, Table]:
    histogram = tuple(
        (score.split, score.task.value, score.method, kind, float(low), float(high), pairs)
        for score in figures.scores
        for kind, edges, counts in (
            ("score", EDGES, score.histogram),
            ("deviation", DEVIATION_EDGES, score.deviations),
        )
        for low, high, pairs in zip(edges[:-1], edges[1:], counts, strict=False)
    )
    queries = tuple(
        (query.split, query.task, positives, count)
        for query in figures.positives
        for positives, count in enumerate(query.histogram)
    )
    head = ("split", "task", "method", "of", "low", "high", "pairs")
    return {
        "similarity": for_files(_SCORES, figures.scores),
        "similarity-histogram": Table("", head, histogram),
        "similarity-positives": Table("", ("split", "task", "positives", "queries"), queries),
        **({"similarity-words": for_files(_WORDS, figures.words)} if figures.words else {}),
    }


SIMILARITY = Analysis(
    "similarity",
    _compute,
    _show,
    section=Section("similarity", "Similarity", "How alike people found two items", "People"),
    optional=True,
)

"""``mitl evaluate``, ``analyse`` and ``report``."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mitl.cli import Command
from mitl.cli.app import FILE, PLACE, App, WayChoice, common, environment_options, refuse_idle
from mitl.errors import UsageError
from mitl.records import Environment

if TYPE_CHECKING:
    from mitl.stages.evaluating.request import ModelFiles


@click.command(
    "evaluate",
    cls=Command,
    sections={
        "--annotator": "What is scored",
        "--release": "What it is scored against",
        "--pseudo-labels": "Further scores",
        "--direction": "Metrics",
        "--intervals": "Intervals and tests",
        "--csv": "Files",
    },
)
@click.option(
    "--annotator",
    "annotators",
    multiple=True,
    metavar="NAME",
    help="Score this annotator of the project [default: all, unless files are given].",
)
@click.option(
    "--image-embeddings",
    type=FILE,
    metavar="FILE",
    help="Embeddings of the images: .npy with the ids beside it, .npz with ids and embedding, or Parquet with id and "
    "embedding. Alone, they are scored on image-to-image tasks.",
)
@click.option(
    "--caption-embeddings",
    type=FILE,
    metavar="FILE",
    help="Embeddings of the captions, with as many dimensions as the images'.",
)
@click.option(
    "--similarities",
    type=FILE,
    metavar="FILE",
    help="Similarities, a row an image, a column a caption: .npz with similarities, image_ids and caption_ids, or .npy "
    "with the ids beside it.",
)
@click.option(
    "--rankings",
    multiple=True,
    type=FILE,
    metavar="FILE",
    help="Rankings, one file of both directions or one each: Parquet with query_id, rank, item_id, JSON "
    "{query id: [item ids]}, or .npz with query_ids and item_ids; the direction stands in the file or in its name "
    "(x.i2t.json).",
)
@click.option(
    "--image-ids",
    type=FILE,
    metavar="FILE",
    help="The images' ids of a .npy, one a line or as .npy [default: beside it, NAME.ids.txt or .npy; of similarities "
    "NAME.image_ids.txt or .npy].",
)
@click.option("--caption-ids", type=FILE, metavar="FILE", help="The captions' ids of a .npy.")
@click.option("--name", metavar="NAME", help="Name of the model in these files [default: the kind of file].")
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME=FILE[,FILE]",
    help="One of several models: IMAGES,CAPTIONS embeddings ('IMAGES,' or ',CAPTIONS' for one side alone), one file of "
    "similarities, or I2T,T2I rankings; what a file holds is read from it.",
)
@click.option(
    "--baseline",
    "baselines",
    multiple=True,
    metavar="bag-of-words|sentences|words|efficientnet-lite0",
    help="Score a built-in model of one side alone: words weighted by TF-IDF, a trained sentence encoder, weighted "
    "words in latent directions, or an image backbone.",
)
@click.option(
    "--captions",
    type=FILE,
    metavar="FILE",
    help="Outside a project, the captions that are searched and what they say, for --baseline and --pseudo-labels: "
    "Parquet or CSV with caption_id, image_id and text.",
)
@click.option(
    "--similarity",
    type=click.Choice(["dot", "cosine"]),
    default="dot",
    help="How embeddings are compared.",
)
@click.option(
    "--release",
    type=PLACE,
    metavar="DIR",
    help="Score against this release, or a folder of image_to_caption.json and caption_to_image.json.",
)
@click.option(
    "--fair",
    is_flag=True,
    help="Estimate from the release's audit what a model would score if every pair of the pool were judged, with "
    "intervals, differences of models and the share of unjudged pairs in each ranking.",
)
@click.option(
    "--official",
    multiple=True,
    metavar="original|original-1k|cxc|eccv|all",
    help="Score against positives of the eccv_caption package; original-1k is COCO 1K, the mean of five folds.",
)
@click.option(
    "--cxc",
    type=PLACE,
    metavar="FOLDER",
    help="Score four retrieval tasks and correlations with people's ratings, from CxC's files or a release of ratings: "
    "sits_<split>.csv, sts_<split>.csv and sis_<split>.csv, as many as there are.",
)
@click.option(
    "--split",
    metavar="NAME",
    help="The split of these files [default: test, else val, else the only one].",
)
@click.option(
    "--task",
    "tasks",
    multiple=True,
    type=WayChoice(["i2t", "t2i", "t2t", "i2i", "sts", "sis", "sits"]),
    help="Score only this task; repeatable [default: all that a model can do]. Other data sets have their "
    "own names for i2t and t2i, e.g. a2t and t2a for sounds.",
)
@click.option(
    "--pseudo-labels",
    is_flag=True,
    help="Score Kendall's tau-b and Pearson's correlation with pseudo-labels: a caption's similarity to the "
    "image's own captions.",
)
@click.option(
    "--label-embeddings",
    type=FILE,
    metavar="FILE",
    help="The captions' embeddings that pseudo-labels are made from [default: the sentence encoder's].",
)
@click.option(
    "--objects",
    multiple=True,
    type=FILE,
    metavar="FILE",
    help="Score plausible matches (PMRP) by the objects of images: COCO's instances_*.json, or a JSON of lists of "
    "names by image id, also .gz.",
)
@click.option(
    "--graded",
    is_flag=True,
    help="Score nDCG@10 and Kendall's tau-b by the answers of the release and by CxC's scores.",
)
@click.option(
    "--direction",
    type=WayChoice(["both", "i2t", "t2i"]),
    default="both",
    help="i2t: images search captions; t2i: captions search images. Other data sets have their own names, "
    "e.g. a2t and t2a for sounds.",
)
@click.option(
    "--metrics",
    multiple=True,
    metavar="NAMES",
    help="Metrics of sets of positives, separated by commas: R@K and P@K for any K, R-Precision, mAP@R, "
    "median-rank [default: R@1,R@5,R@10,R-Precision,mAP@R].",
)
@click.option(
    "--short",
    type=click.Choice(["raise", "zero"]),
    default="raise",
    help="A ranking that ends before K or R: refuse it, or count its missing places as misses.",
)
@click.option(
    "--intervals/--no-intervals",
    default=True,
    help="95 % intervals, from resampling the queries.",
)
@click.option(
    "--samples",
    type=click.IntRange(1, 100_000),
    default=1000,
    help="Resamples of intervals and of the paired test.",
)
@click.option(
    "--against",
    metavar="NAME",
    help="Test every other model against this one, with a paired test over queries.",
)
@click.option("--csv", type=FILE, metavar="FILE", help="Write a row for each figure, shares from 0 to 1.")
@click.option(
    "--latex", type=FILE, metavar="FILE", help="Write a booktabs table for each set, with names escaped."
)
@common
def evaluate(app: App, **given: Any) -> None:
    """Score annotators, or models in files, by Recall@K, R-Precision, mAP@R and more, with intervals.

    In a project its annotators are scored on its originals and on the sets named; files of embeddings, similarities or
    rankings are scored there too, and outside any project on a release, an official set or people's ratings. Ids are
    compared as texts, so that "12" is the integer 12. Scores of a project are kept for mitl report. docs/evaluation.md
    defines every metric.
    """
    from mitl.stages.evaluating.evaluate import evaluate_models
    from mitl.stages.evaluating.figures import Sampling
    from mitl.stages.evaluating.request import (
        Against,
        EvaluationRequest,
        NamedTask,
        directions_of,
        parse_metrics,
    )

    if not any(given[name] for name in ("intervals", "against", "cxc")):
        refuse_idle(
            ("samples",), "is about intervals and tests; leave out --no-intervals, or give --against NAME"
        )
    if not any(given[name] for name in ("image_embeddings", "caption_embeddings", "models")):
        refuse_idle(("similarity",), "is about embeddings in files; name them, or leave this option out")
    tasks = tuple(map(NamedTask, given["tasks"]))
    as_given = ("annotators", "baselines", "captions", "similarity", "csv", "latex")
    request = EvaluationRequest(
        against=Against(**{field.name: given[field.name] for field in fields(Against)}),
        models=_models(given),
        tasks=tasks,
        directions=directions_of(tasks, given["direction"]),
        wanted=parse_metrics(given["metrics"], given["short"]),
        sampling=Sampling(given["samples"], app.settings.seed, given["intervals"]),
        paired_with=given["against"],
        **{name: given[name] for name in as_given},
    )
    app.finish(evaluate_models(app.settings, request, app.progress))


def _models(given: dict[str, Any]) -> list[ModelFiles]:
    """The model of the options that name files, and those of ``--model``."""
    from mitl.stages.evaluating.request import ModelFiles, files_of_options, parse_model

    embeddings = given["image_embeddings"], given["caption_embeddings"]
    single = ModelFiles(
        given["name"] or "",
        embeddings if any(embeddings) else None,
        given["similarities"],
        tuple(given["rankings"]),
        given["image_ids"],
        given["caption_ids"],
    )
    return [*files_of_options(single), *map(parse_model, given["models"])]


@click.command("analyse", cls=Command)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--annotator",
    "annotators",
    multiple=True,
    metavar="NAME",
    help="Only this annotator; repeatable [default: all].",
)
@click.option(
    "--scores",
    type=FILE,
    metavar="FILE",
    help="CSV for correlations: a column `model`, one for each metric, and where wanted `direction`, over which "
    "scores are averaged [default: the scores that `mitl evaluate` keeps].",
)
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="SET",
    help="sets: also include this set, named as for `mitl compare`; repeatable.",
)
@click.option(
    "--subset",
    "subsets",
    multiple=True,
    metavar="NAME,NAME",
    help="One more column for the scores of bias: only the positives that these annotators proposed.",
)
@click.option(
    "--deep",
    is_flag=True,
    help="For bias, rank as deep as the largest number of positives of a query; the annotators are loaded for it.",
)
@click.option(
    "--ratings",
    type=PLACE,
    metavar="FOLDER",
    help="For similarity, ratings in CxC's layout: sts_<split>.csv, sis_<split>.csv, sits_<split>.csv "
    "[default: the project's own].",
)
@click.option(
    "--captions",
    type=FILE,
    metavar="FILE",
    help="For similarity, what these captions say: Parquet or CSV with caption_id, image_id and text "
    "[default: the project's].",
)
@click.option(
    "--csv",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Also write every number as CSV files to this folder.",
)
@click.option(
    "--plots",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Write plots as SVG files to this folder.",
)
@environment_options
@common
def analyse(
    app: App,
    names: tuple[str, ...],
    environment: Environment | None,
    subsets: tuple[str, ...],
    **asked: Any,
) -> None:
    """Print the tables reviewers ask for; all of them if no NAME is given.

    NAME is diversity (how differently the annotators rank), answers (by annotator and rank), rationale
    (shortcomings and wrong concepts), workers (by their number of HITs), sets (precision and recall of existing
    positives), wrong-positives (matches of people with a wrong part, as a list to exclude and as a figure),
    multiplicity (positives of a query, before and after), completeness (how many annotators proposed each match,
    and the recall that follows at most), label-order (rankings against graded answers), correlations (how alike
    metrics rank models, and RSUM), bias (scores by whose proposals make the positives; in a generated world against
    the truth), favour (scores without the positives that only one annotator proposed), uncertainty (an annotator's
    own, against the number of positives), similarity (how alike people found two items, by how the pairs were
    sampled; of the project, or of CxC's files outside any), texts (what became of collected texts) or fusion (how
    well the probabilities of `mitl fuse` separate matches from the rest).

    An analysis that lacks data says so in one line; the others are printed.
    """
    from mitl.stages.analysing.analyse import analyse
    from mitl.stages.analysing.table import AnalysisOptions

    options = AnalysisOptions(
        subsets=tuple(frozenset(part.strip() for part in subset.split(",")) for subset in subsets), **asked
    )
    app.finish(analyse(app.settings, names, environment, options=options, progress=app.progress))


@click.command("report", cls=Command)
@click.option(
    "--out",
    type=PLACE,
    help="The HTML file [default: PROJECT/report.html; PROJECT/report-live.html or report-sandbox.html for an "
    "environment that the project posted to later than to the other].",
)
@click.option(
    "--ratings",
    type=PLACE,
    metavar="FOLDER",
    help="Show these ratings of similarity too: sts_<split>.csv, sis_<split>.csv, sits_<split>.csv as CxC has them.",
)
@click.option(
    "--methods",
    type=FILE,
    is_flag=False,
    flag_value="-",
    metavar="[FILE]",
    help="Write the methods section of a paper instead: FILE.md or FILE.tex with FILE.bib beside it, or print it as "
    "Markdown with its references.",
)
@environment_options
@common
def report(
    app: App, out: Path | None, ratings: Path | None, methods: Path | None, environment: Environment | None
) -> None:
    """Write one self-contained HTML file: funnel, machines, people, scores, examples, disagreements, how to rebuild."""
    from mitl.stages.reporting.report import report

    if methods is not None:
        from mitl.stages.reporting.methods import methods as write_methods

        if out is not None or ratings is not None:
            raise UsageError("--methods writes no report; leave out --out and --ratings, or --methods")
        app.finish(write_methods(app.settings, methods, environment))
        return

    app.finish(report(app.settings, out, environment, ratings=ratings, progress=app.progress))

"""``mitl build-dataset``, ``verify``, ``compare``, ``export`` and ``push``: releases, and where others evaluate."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from mitl.cli import Command
from mitl.cli.app import (
    FILE,
    PLACE,
    App,
    F,
    Number,
    common,
    environment_options,
    refuse_idle,
    refuse_replace,
    together,
)
from mitl.errors import UsageError
from mitl.records import Environment

if TYPE_CHECKING:
    from mitl.positives.merging import MergeRules


privacy_options = together(
    click.option(
        "--check-privacy",
        is_flag=True,
        help="First prove that the files hold no raw id and no plain hash of one.",
    ),
    click.option(
        "--with-texts",
        is_flag=True,
        help="Also release what workers wrote in their own words, after a scan that removes addresses, long "
        "numbers and ids.",
    ),
)
"""What is told of people by the files of a release."""


def release_argument(function: F) -> F:
    """Add the argument ``RELEASE``, which may be given as ``--release`` too, as `mitl evaluate` takes it."""

    @click.argument("release", required=False, metavar="RELEASE", type=PLACE)
    @click.option("--release", "named", metavar="RELEASE", type=PLACE, help="The same as the argument.")
    @functools.wraps(function)
    def wrapper(*args: Any, release: Path | None, named: Path | None, **kwargs: Any) -> Any:
        if (release is None) == (named is None):
            raise UsageError("name the release's folder once: RELEASE alone, or --release RELEASE")
        return function(*args, release=release or named, **kwargs)

    return cast(F, wrapper)


@click.command(
    "build-dataset",
    cls=Command,
    sections={
        "--cxc-threshold": "What is a positive",
        "--image-query-ids": "Which queries",
        "--check-privacy": "What is written",
        "--sandbox": "Whose answers",
    },
)
@click.option("--out", type=PLACE, required=True, help="Folder of the release.")
@click.option("--name", help="Name of the release [default: the folder's].")
@click.option(
    "--recipe",
    type=click.Choice(["repair", "paper"]),
    help="repair: original pairs stay unless people or earlier ratings refused them, verified positives and those of "
    "ratings are added; paper: verified positives and those of ratings alone, as in ECCV Caption [default: repair; "
    "paper with --official-filters].",
)
@click.option(
    "--cxc-threshold",
    type=Number(0, 5),
    default=3.0,
    help="Lowest SITS rating that counts as a match.",
)
@click.option(
    "--aggregate",
    "aggregator",
    type=click.Choice(["majority", "dawid-skene", "ordinal"]),
    default="majority",
    help="How to combine several answers on a pair; the models learn each worker's errors.",
)
@click.option("--with-originals", is_flag=True, help="Same as --recipe repair.")
@click.option("--strict", is_flag=True, help="Count only 100% YES as a positive.")
@click.option("--official-filters", is_flag=True, help="Treat pairs as the released ECCV Caption JSONs do.")
@click.option(
    "--image-query-ids",
    type=PLACE,
    metavar="FILE|eccv",
    help="List the positives of these images: ids one a line, .json or .npy; eccv names ECCV Caption's public "
    "queries [default: the images that searched].",
)
@click.option(
    "--caption-query-ids",
    type=PLACE,
    metavar="FILE|eccv",
    help="List the positives of these captions, in the same way.",
)
@privacy_options
@click.option(
    "--humans-only", is_flag=True, help="Leave out the pairs that a machine labelled (`mitl label`)."
)
@click.option("--replace", "replace_earlier", is_flag=True, help="Overwrite another release in the folder.")
@environment_options
@common
def build_dataset(
    app: App,
    out: Path,
    environment: Environment | None,
    check_privacy: bool,
    replace_earlier: bool,
    **given: Any,
) -> None:
    """Merge judgements with CxC's ratings, apply exclusion lists, and write a release folder.

    The same inputs give the same bytes; a folder that already holds them is left alone, and one that holds another
    release is overwritten only with --replace.
    """
    from mitl.stages.proposing.query_lists import QueryLists
    from mitl.stages.releasing.build_dataset import ReleaseOptions, build_dataset

    options = ReleaseOptions(
        _merge_rules(given),
        given["name"],
        queries=QueryLists(given["image_query_ids"], given["caption_query_ids"]),
        with_texts=given["with_texts"],
        humans_only=given["humans_only"],
    )
    told = build_dataset(
        app.settings,
        out,
        environment,
        options,
        check_privacy=check_privacy,
        replace_earlier=replace_earlier,
    )
    app.finish(told)


def _merge_rules(given: dict[str, Any]) -> MergeRules:
    from mitl.judgements.aggregators import Aggregator
    from mitl.positives.merging import MergeRules

    recipe, with_originals = given["recipe"], given["with_originals"]
    if with_originals and recipe == "paper":
        raise UsageError(
            "--recipe paper leaves originals out and --with-originals keeps them; give one of the two"
        )
    return MergeRules(
        cxc_threshold=given["cxc_threshold"],
        with_originals=True if with_originals else None if recipe is None else recipe == "repair",
        strict=given["strict"],
        official=given["official_filters"],
        aggregator=Aggregator(given["aggregator"]),
    )


@click.command("verify", cls=Command)
@release_argument
@common
def verify(app: App, release: Path) -> int:
    """Check a release from its own files, without a project: their hashes, and its certificate.

    Recomputes the certificate (how complete and how right the release is) from the released answers and compares it
    with every figure that the release states. The exit status is 1 if anything differs.
    """
    from mitl.stages.releasing.verify import verify

    return app.conclude(verify(release))


@click.command("compare", cls=Command)
@click.argument(
    "sets",
    nargs=-1,
    required=True,
    metavar="SET... VERIFIED",
    type=PLACE,  # so that directions are called as the releases among them call them
)
@click.option(
    "--differences",
    type=FILE,
    metavar="FILE",
    help="Write the pairs on which the first and the last set differ, with the evidence, as CSV.",
)
@click.option("--replace", is_flag=True, help="--differences: overwrite a file that holds something else.")
@common
def compare(app: App, sets: tuple[Path, ...], differences: Path | None, replace: bool) -> None:
    """Compare sets of positives with a verified one: counts, overlap, precision and recall.

    A set is official-original, official-cxc or official-eccv (of the package eccv_caption), the folder of a
    release, a folder with image_to_caption.json and caption_to_image.json, cxc:FILE with CxC's ratings of
    images and captions, or plausible:FILE, pairs whose images show the same objects, by COCO's instances_*.json or
    a JSON of lists of names by image id (in a folder: ECCV Caption's pm_*.json). The queries are those of the last
    set; precision and recall are against the pairs that people judged in it.
    """
    from mitl.stages.releasing.compare import compare

    refuse_replace(replace, differences, "--differences")
    names = [str(path) for path in sets]
    app.finish(compare(names, settings=app.settings, differences=differences, replace=replace))


@click.command("export", cls=Command)
@release_argument
@click.option("--out", "--to", "to", type=PLACE, required=True, help="Folder to write, new or empty.")
@click.option(
    "--format",
    "form",
    required=True,
    metavar="trec|beir|mteb|hf",
    help="trec: qrels with explicit zeros and run files; beir: corpus, queries and qrels; mteb: a retrieval task; "
    "hf: tables and a card for Hugging Face datasets.",
)
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME=FILE[,FILE]",
    help="With trec, write a run of this model, in files as for `mitl evaluate --model`.",
)
@click.option(
    "--annotator",
    "annotators",
    multiple=True,
    metavar="NAME",
    help="With trec, write a run of this annotator of the project.",
)
@click.option(
    "--similarity",
    type=click.Choice(["dot", "cosine"]),
    default="dot",
    help="How embeddings are compared.",
)
@click.option(
    "--depth",
    type=click.IntRange(min=1),
    default=1000,
    help="Places of a run, as far as the gallery goes; never fewer than a query's positives.",
)
@click.option(
    "--with-texts", is_flag=True, help="Put the project's texts in; mind their licence. Not with trec."
)
@click.option(
    "--with-media",
    "--with-pictures",
    "with_media",
    is_flag=True,
    help="Put the project's pictures, sounds or videos in; mind their licence. mteb and hf alone.",
)
@click.option(
    "--objects",
    multiple=True,
    type=PLACE,
    help="With mteb, score plausible matches (PMRP) too, by files as for `mitl evaluate --objects`.",
)
@click.option(
    "--language",
    "languages",
    multiple=True,
    metavar="CODE",
    help="With mteb, the language and script of the texts, as eng-Latn, deu-Latn or arb-Arab; may be given again "
    "[default: eng-Latn].",
)
@common
def export(app: App, **given: Any) -> None:
    """Write a release in the formats of other evaluation tools; both directions, complete or not at all.

    Those tools then give the same scores as `mitl evaluate`; docs/exports.md lists them. Pairs that were judged no
    match are written with the relevance 0, so that a tool can tell them from pairs that nobody judged.
    """
    from mitl.stages.evaluating.request import parse_model
    from mitl.stages.releasing.export import ExportRequest, export

    if not (given["models"] or given["annotators"]):
        refuse_idle(
            ("similarity", "depth"), "is about runs, which --model and --annotator name; add one of them"
        )
    request = ExportRequest(**{**given, "models": [parse_model(one) for one in given["models"]]})
    app.finish(export(app.settings, request, app.progress))


@click.command("push", cls=Command)
@release_argument
@click.option("--to", required=True, metavar="hub:NAME", help="Repository: hub:NAME, or hub:OWNER/NAME.")
@click.option("--public", is_flag=True, help="Make a new repository public [default: private].")
@common
def push(app: App, **given: Any) -> None:
    """Upload a release to the Hugging Face hub as a data set, in one commit, with your own token.

    The release is verified first. The token is read by huggingface_hub from HF_TOKEN or from its own login (`hf auth
    login`), and HF_ENDPOINT names another hub. A repository that holds something else is left alone; of an earlier
    release there what this one lacks is removed, and stays in its history.
    """
    from mitl.stages.releasing.push import PushRequest, push

    app.finish(push(PushRequest(**given)))

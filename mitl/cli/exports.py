"""``mitl export`` and ``push``: a release where others evaluate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mitl.cli.app import App, common
from mitl.cli.help import Command


@click.command("export", cls=Command)
@click.argument("release", type=click.Path(path_type=Path))
@click.option("--to", type=click.Path(path_type=Path), required=True, help="Folder to write, new or empty.")
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
    type=click.Path(path_type=Path),
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

    request = ExportRequest(**{**given, "models": [parse_model(one) for one in given["models"]]})
    app.finish(export(app.settings, request, app.progress))


@click.command("push", cls=Command)
@click.argument("release", type=click.Path(path_type=Path))
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

"""``mitl propose`` and ``mitl annotators``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from mitl.cli import Command, CommandGroup
from mitl.cli.app import DOLLARS, PLACE, App, common, environment_options, refuse_idle
from mitl.errors import UsageError
from mitl.records import StageResult
from mitl.settings import BACKENDS, ENGINES, Settings


@click.command(
    "propose",
    cls=Command,
    sections={
        "--backend": "Where it is computed",
        "--estimate": "Estimates",
        "--phase": "Pairs to be rated, of --scheme crisscross",
    },
)
@click.option(
    "--scheme",
    type=click.Choice(("top-k", "crisscross")),
    help="What to propose: the best items of every query, or pairs to rate for similarity [default: top-k].",
)
@click.option(
    "--annotator", "annotators", multiple=True, metavar="NAME", help="Use this annotator; repeatable."
)
@click.option("--top-k", type=click.IntRange(min=1), help="Proposals per query and annotator [default: 5].")
@click.option("--depth", type=click.IntRange(min=1), help="Places kept in the ranking files [default: 25].")
@click.option("--image-queries", type=click.IntRange(min=0), help="How many images search [default: all].")
@click.option(
    "--caption-queries", type=click.IntRange(min=0), help="How many captions search [default: all]."
)
@click.option(
    "--image-query-ids",
    type=PLACE,
    metavar="FILE|eccv",
    help="Which images search: ids one a line, .json or .npy; eccv names ECCV Caption's public queries.",
)
@click.option(
    "--caption-query-ids",
    type=PLACE,
    metavar="FILE|eccv",
    help="Which captions search, in the same way.",
)
@click.option(
    "--backend",
    type=click.Choice(BACKENDS),
    help="Backend of the matrix products; rankings do not depend on it [default: auto].",
)
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    help="Run annotators here or on Ray workers; rankings do not depend on it [default: local].",
)
@click.option(
    "--ray-address",
    metavar="ADDRESS",
    help="Cluster for --engine ray: HOST:PORT, the same behind ray://, or auto [default: this machine's cores].",
)
@click.option("--estimate", is_flag=True, help="Only print the FLOPs, bytes, time and money it would take.")
@click.option("--estimate-images", type=click.IntRange(min=1), help="Estimate for this many images.")
@click.option("--estimate-captions", type=click.IntRange(min=1), help="Estimate for this many captions.")
@click.option(
    "--hardware",
    multiple=True,
    metavar="NAME",
    help="Estimate for this hardware: here (measured now), h200, h100, a100, l40s, rtx4090, t4; repeatable "
    "[default: here and h200].",
)
@click.option("--machines", type=click.IntRange(min=1), help="Estimate for this many machines [default: 1].")
@click.option(
    "--price-per-hour", type=DOLLARS, help="Price of one machine an hour for the estimate, e.g. 3.50."
)
@click.option(
    "--phase",
    type=click.IntRange(1, 2),
    help="crisscross: 1 samples pairs within a side, 2 across sides, from the ratings of phase 1 [default: 2 "
    "once 1 is there].",
)
@click.option(
    "--text-encoder",
    "text_encoders",
    multiple=True,
    metavar="NAME|FILE",
    help="Encoder whose similar captions choose image pairs: sentences, words, a file of embeddings, an annotator, or "
    "none; may be repeated [default: sentences and words].",
)
@click.option(
    "--image-encoder",
    "image_encoders",
    multiple=True,
    metavar="NAME|FILE",
    help="Encoder whose similar images choose caption pairs: efficientnet-lite0, a file of embeddings, an "
    "annotator, or "
    "none; may be repeated [default: efficientnet-lite0, for scenes clip-mini].",
)
@click.option(
    "--neighbours", type=click.IntRange(min=1), help="Nearest neighbours of each image [default: 5]."
)
@click.option(
    "--candidates",
    type=click.IntRange(min=0),
    help="Images with captions of others in phase 2 [default: 4 an image].",
)
@click.option(
    "--min-ratings",
    type=click.IntRange(min=0),
    help="Ratings each pair needs before phase 2; 0 uses whatever is there [default: 5].",
)
@environment_options
@common
def command(app: App, **given: Any) -> None:
    """Rank both directions with every annotator and store candidate pairs.

    With --scheme crisscross, sample pairs within and across sides that are to be rated for their likeness: --sandbox
    and --live say whose ratings phase 2 follows from.

    What is computed is kept in runs/: finished rankings, encoded items by the chunk, scores of pairs; an interrupted
    run goes on where it was. runs/encodings and runs/scores can be deleted at any time.
    """
    if given["scheme"] == "crisscross":
        _crisscross(app, given)
    elif given["estimate"]:
        _estimate(app, given)
    else:
        _propose(app, given)


_RANKED = ("top_k", "depth", "image_query_ids", "caption_query_ids", "engine", "ray_address")
_QUERIES = ("image_queries", "caption_queries")
_OF_CRISSCROSS = ("phase", "text_encoders", "image_encoders", "neighbours", "candidates", "min_ratings")
_ONLY_CRISSCROSS = (*_OF_CRISSCROSS, "sandbox", "live")
_ONLY_ESTIMATING = ("estimate_images", "estimate_captions", "hardware", "machines", "price_per_hour")


def _or_set(given: Mapping[str, Any], settings: Settings, *names: str) -> dict[str, Any]:
    """These options as given, else as the settings have them; None, where those say nothing either."""
    return {name: getattr(settings, name) if given[name] is None else given[name] for name in names}


def _propose(app: App, given: Mapping[str, Any]) -> None:
    from mitl.stages.proposing.computing import Computing
    from mitl.stages.proposing.propose import ProposeRequest, QueryChoice, propose

    settings = app.settings
    refuse_idle(_ONLY_CRISSCROSS, "is for --scheme crisscross; add it, or leave this option out")
    refuse_idle(_ONLY_ESTIMATING, "is for --estimate; add it, or leave this option out")
    engine = given["engine"] or settings.engine
    if given["ray_address"] and engine != "ray":
        raise UsageError(f"--ray-address is for --engine ray, but the engine is {engine!r}")
    queries = _or_set(given, settings, *_QUERIES)
    result = propose(
        settings,
        ProposeRequest(
            annotators=given["annotators"] or settings.annotators,
            **_or_set(given, settings, "top_k", "depth"),
            images=QueryChoice(queries["image_queries"], given["image_query_ids"]),
            captions=QueryChoice(queries["caption_queries"], given["caption_query_ids"]),
        ),
        computing=Computing(
            engine, given["ray_address"] or settings.ray_address, given["backend"] or settings.backend
        ),
        progress=app.progress,
    )
    app.finish(result)


def _crisscross(app: App, given: Mapping[str, Any]) -> None:
    from mitl.stages.proposing.crisscross import CrisscrossOptions, crisscross

    of_top_k = ("annotators", *_RANKED, *_QUERIES)
    refuse_idle(of_top_k, "is for --scheme top-k; crisscross compares all items of a side with each other")
    refuse_idle(
        ("estimate", *_ONLY_ESTIMATING),
        "is for --scheme top-k; crisscross encodes each item once by each encoder and has no estimate",
    )
    options = CrisscrossOptions(
        **{name: given[name] for name in (*_OF_CRISSCROSS, "environment")},
        backend=given["backend"] or app.settings.backend,
    )
    app.finish(crisscross(app.settings, options, progress=app.progress))


def _estimate(app: App, given: Mapping[str, Any]) -> None:
    from mitl.stages.proposing.estimate import EstimateOptions, estimate_proposing

    refuse_idle(_ONLY_CRISSCROSS, "is for --scheme crisscross, which has no estimate; leave it out")
    refuse_idle((*_RANKED, "backend"), "changes nothing in an estimate; leave it out")
    options = EstimateOptions(
        images=given["estimate_images"],
        captions=given["estimate_captions"],
        **_or_set(given, app.settings, *_QUERIES),
        machines=given["machines"] or 1,
        cents_per_hour=given["price_per_hour"],
    )
    if given["hardware"]:
        options = replace(options, hardware=given["hardware"])
    app.finish(estimate_proposing(app.settings, given["annotators"] or app.settings.annotators, options))


_UNASKED_S = 3600.0
"""What a verification may take without a question."""


@click.group("annotators", cls=CommandGroup, invoke_without_command=True)
@common
def annotators(app: App) -> None:
    """List the machine annotators: what each is, what it needs, what to download."""
    from mitl.stages.proposing.check import list_annotators

    app.finish(list_annotators(app.settings))


@annotators.command("check")
@click.argument("name")
@click.argument("file", type=PLACE)
@click.option(
    "--vocabulary",
    type=PLACE,
    metavar="FILE",
    help="Also check this vocabulary against the weights.",
)
@common
def check(app: App, name: str, file: Path, vocabulary: Path | None) -> int:
    """Identify the weights in FILE and check that they fit the annotator NAME.

    NAME is pvse, vsrn, pcme, vilt, clip or an annotator of mitl.toml that says network = one of these. No code in
    FILE is run. The exit status is 1 if it does not fit.
    """
    from mitl.stages.proposing.check import check as stage

    return app.conclude(stage(app.settings, name, file, vocabulary=vocabulary))


@annotators.command("verify")
@click.argument("name")
@click.option(
    "--published", metavar="ROW", help="Published figures to compare with [default: by the weights]."
)
@click.option(
    "--sample",
    type=click.IntRange(min=2),
    metavar="N",
    help="Rank only N images that have pictures, with their captions; this can refute, not confirm.",
)
@click.option("--yes", is_flag=True, help="Do not ask before a run of more than an hour.")
@common
def verify(app: App, name: str, published: str | None, sample: int | None, yes: bool) -> int:
    """Rank COCO's whole test split with the annotator NAME and compare its recall with the published one.

    The exit status is 1 if it is outside the tolerance. On other data it only prints the recall. It announces runs of
    more than a minute and asks before runs of more than an hour.
    """
    from mitl.stages.proposing.verify import VerifyCost
    from mitl.stages.proposing.verify import verify as stage

    def permit(cost: VerifyCost) -> bool:
        if cost.seconds > _UNASKED_S and not yes and not sys.stdin.isatty():
            fewer = cost.images_within(_UNASKED_S)
            raise UsageError(f"{cost.text}; add --yes to go on, or --sample {fewer} for about an hour's work")
        click.echo(cost.text, err=True)
        if yes or cost.seconds <= _UNASKED_S:
            return True
        return click.confirm("go on?", err=True)

    outcome = stage(
        app.settings, name, published=published, sample=sample, permit=permit, progress=app.progress
    )
    if outcome is None:
        app.finish(StageResult(status="nothing_to_do", lines=("nothing was ranked",)))
        return 0
    return app.conclude(outcome)

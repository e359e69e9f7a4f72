"""``mitl fuse`` and ``mitl label``: probabilities of matches, and labels by machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mitl.cli import Command
from mitl.cli.app import FILE, SHARE, App, Number, common, environment_options, refuse_beside
from mitl.records import Environment


@click.command("fuse", cls=Command)
@environment_options
@common
def fuse(app: App, environment: Environment | None) -> None:
    """Give each ranked pair one calibrated probability of a match.

    It is learnt from people's answers so far, cross-fitted so that no answer judges itself, from the annotators'
    similarities and ranks, similarity among captions and among images, and answers to other pairs. Its AUC comes
    first: it tells how well matches are separated, and so how many pairs a machine could take over.
    """
    from mitl.stages.fusing.fuse import fuse

    app.finish(fuse(app.settings, environment, progress=app.progress))


@click.command("label", cls=Command)
@click.option(
    "--error",
    type=SHARE,
    default=0.02,
    help="Tolerated share of each stratum's open pairs with a wrong machine label.",
)
@click.option(
    "--lost",
    type=SHARE,
    metavar="SHARE",
    help="The same for pairs labelled no match, where an error loses a match [default: as --error].",
)
@click.option(
    "--confidence",
    type=SHARE,
    default=0.95,
    help="Confidence that the bound holds, in all strata at once.",
)
@click.option(
    "--loss",
    type=click.Choice(["binary", "ordinal"]),
    default="binary",
    help="Count an error as a wrong side (match or no match), or as a third per level that the label is off.",
)
@click.option(
    "--siding",
    type=Number(0, 0.5),
    metavar="SHARE",
    help="Largest share of workers who side with the machine when it is wrong; 0 bounds only the errors that "
    "answers reveal [default: measured on pairs that two workers answered].",
)
@click.option(
    "--scores",
    type=FILE,
    metavar="FILE",
    help="Probabilities of a match made elsewhere, without the sample's answers: CSV or Parquet with image_id, "
    "caption_id and probability [default: the newest of `mitl fuse`].",
)
@click.option("--dry-run", is_flag=True, help="Print what would be labelled and store nothing.")
@click.option("--withdraw", is_flag=True, help="Remove the machine labels and reopen their pairs.")
@environment_options
@common
def label(
    app: App,
    loss: str,
    scores: Path | None,
    dry_run: bool,
    withdraw: bool,
    environment: Environment | None,
    **promised: Any,
) -> None:
    """Let the machine label the open pairs it is sure of, under an error bound.

    The bound rests on the sample of `mitl audit draw --for labels`, which people have answered, and on the newest
    probabilities of `mitl fuse` or those of a file. Pairs that the machine may not label stay open for `mitl
    publish`.
    """
    from mitl.audits.machine_labels import Loss, Promise
    from mitl.stages.labelling import label as stage

    if withdraw:
        refuse_beside("--withdraw takes labels back and makes none", "withdraw", "sandbox", "live")
        app.finish(stage.withdraw(app.settings, environment))
        return
    promise = Promise(loss=Loss(loss), **promised)
    outcome = stage.label(
        app.settings, environment, promise, scores=scores, dry_run=dry_run, progress=app.progress
    )
    app.finish(outcome)

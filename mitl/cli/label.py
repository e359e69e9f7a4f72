"""``mitl label``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mitl.cli.app import App, common, environment_options
from mitl.cli.help import Command
from mitl.errors import UsageError
from mitl.records import Environment


@click.command("label", cls=Command)
@click.option(
    "--error",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.02,
    help="Share of each stratum's open pairs whose machine label may be wrong.",
)
@click.option(
    "--lost",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="SHARE",
    help="The same where the machine says no match, so that a wrong label loses a match [default: as --error].",
)
@click.option(
    "--confidence",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.95,
    help="That this is kept, in all strata at once.",
)
@click.option(
    "--loss",
    type=click.Choice(["binary", "ordinal"]),
    default="binary",
    help="What is wrong: the side, match or no match; or a third for each level that the label is off.",
)
@click.option(
    "--siding",
    type=click.FloatRange(0, 0.5),
    metavar="SHARE",
    help="Share of workers, at most, who side with the machine where it is wrong; 0 bounds only the errors that asking "
    "shows [default: measured on pairs that two workers answered].",
)
@click.option(
    "--scores",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Probabilities of a match made elsewhere, without the sample's answers: CSV or Parquet with image_id, "
    "caption_id and probability [default: the newest of `mitl fuse`].",
)
@click.option("--dry-run", is_flag=True, help="Print what would be labelled; store nothing.")
@click.option("--withdraw", is_flag=True, help="Take the machine labels back: their pairs are open again.")
@environment_options
@common
def command(
    app: App,
    loss: str,
    scores: Path | None,
    dry_run: bool,
    withdraw: bool,
    environment: Environment | None,
    **promised: Any,
) -> None:
    """Let the machine label the open pairs of which it is sure enough, under a bound.

    The bound rests on the sample of `mitl audit draw --for labels`, which people have answered, and on the newest
    probabilities of `mitl fuse` or those of a file. What the machine may not label stays open for `mitl publish`.
    """
    from mitl.audits.machine_labels import Loss, Promise
    from mitl.stages.labelling import label as stage

    if withdraw:
        if dry_run:
            raise UsageError("--dry-run stores nothing and --withdraw takes labels back; give one of them")
        app.finish(stage.withdraw(app.settings, environment))
        return
    promise = Promise(loss=Loss(loss), **promised)
    found = stage.label(
        app.settings, environment, promise, scores=scores, dry_run=dry_run, progress=app.progress
    )
    app.finish(found)

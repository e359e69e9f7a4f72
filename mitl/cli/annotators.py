"""``mitl annotators``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mitl.cli.app import App, common
from mitl.cli.help import CommandGroup
from mitl.errors import UsageError
from mitl.records import StageResult

_UNASKED_S = 3600.0
"""What a verification may take without a question."""


@click.group("annotators", cls=CommandGroup, invoke_without_command=True)
@common
def command(app: App) -> None:
    """List the machine annotators: what each is, what it needs, what to download. Subcommands look closer."""
    from mitl.stages.proposing.check import list_annotators

    app.finish(list_annotators(app.settings))


@command.command("check")
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--vocabulary",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Hold this list of words against the weights too.",
)
@common
def check(app: App, name: str, file: Path, vocabulary: Path | None) -> int:
    """Say what the weights FILE is and whether it is the network that NAME stands for.

    NAME is pvse, vsrn, pcme, vilt, clip or an annotator of mitl.toml that says network = one of these. Nothing in
    FILE is run. The exit status is 1 where it does not fit.
    """
    from mitl.stages.proposing.check import check as stage

    return app.conclude(stage(app.settings, name, file, vocabulary=vocabulary))


@command.command("verify")
@click.argument("name")
@click.option(
    "--published", metavar="ROW", help="Which published figures to hold against [default: by the weights]."
)
@click.option(
    "--sample",
    type=click.IntRange(min=2),
    metavar="N",
    help="Rank N images with their captions only, of those that have pictures; can refute, not confirm.",
)
@click.option("--yes", is_flag=True, help="Go on although it takes more than an hour.")
@common
def verify(app: App, name: str, published: str | None, sample: int | None, yes: bool) -> int:
    """Rank COCO's whole test split with the annotator NAME and compare its recall with what was published.

    The exit status is 1 where it is outside the tolerance. On other data it prints the recall alone. What takes more
    than a minute is told beforehand, and more than an hour is asked about.
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

    found = stage(
        app.settings, name, published=published, sample=sample, permit=permit, progress=app.progress
    )
    if found is None:
        app.finish(StageResult(status="nothing_to_do", lines=("nothing was ranked",)))
        return 0
    return app.conclude(found)

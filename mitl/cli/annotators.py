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
    """List the machine annotators: what each is, what it needs, what to download."""
    from mitl.stages.proposing.check import list_annotators

    app.finish(list_annotators(app.settings))


@command.command("check")
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--vocabulary",
    type=click.Path(path_type=Path),
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


@command.command("verify")
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

    found = stage(
        app.settings, name, published=published, sample=sample, permit=permit, progress=app.progress
    )
    if found is None:
        app.finish(StageResult(status="nothing_to_do", lines=("nothing was ranked",)))
        return 0
    return app.conclude(found)

"""``mitl review originals``: captions that people or CxC refused for their own images."""

from __future__ import annotations

from pathlib import Path

import click

from mitl.cli.app import App, common, environment_options
from mitl.records import Environment, OriginalVerdict


@click.group("originals", invoke_without_command=True)
@click.option(
    "--cxc-below",
    type=click.FloatRange(0, 5),
    default=3.0,
    show_default=True,
    help="CxC refuses an original that it rates under this.",
)
@environment_options
@common
def command(app: App, cxc_below: float, environment: Environment | None) -> None:
    """Go through originals that people answered no, or that CxC rates low; without a subcommand, list them.

    What a person says of them makes the exclusion lists that releases apply.
    """
    from mitl.stages.releasing.originals import originals

    app.finish(originals(app.settings, environment, cxc_below=cxc_below))


def _verdict(verdict: OriginalVerdict, help_text: str) -> None:
    @command.command(verdict.value, help=help_text)
    @click.argument("captions", nargs=-1, required=True, metavar="CAPTION...")
    @common
    def call(app: App, captions: tuple[str, ...]) -> None:
        from mitl.stages.releasing.originals import decide

        app.finish(decide(app.settings, captions, verdict))


_verdict(OriginalVerdict.KEEP, "The captions do describe their images: they stay.")
_verdict(OriginalVerdict.WRONG, "The captions are wrong for their own images: those pairs go.")
_verdict(OriginalVerdict.MEANINGLESS, "The captions describe nothing: every pair with them goes.")


@command.command("export")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="CSV file.")
@click.option("--replace", is_flag=True, help="Write over a file that holds something else.")
@common
def export(app: App, out: Path, replace: bool) -> None:
    """Write all exclusion lists of the project as one CSV, for `mitl init --exclude`."""
    from mitl.stages.releasing.originals import export as stage

    app.finish(stage(app.settings, out, replace=replace))


@click.command("duplicates")
@click.argument(
    "pictures", type=click.Path(path_type=Path, file_okay=False), required=False, metavar="FOLDER"
)
@click.option(
    "--distance",
    type=click.IntRange(0, 32),
    default=4,
    show_default=True,
    help="Bits of 64 in which the hashes of near copies may differ.",
)
@click.option(
    "--exclude", multiple=True, metavar="IMAGE", help="Take this image out; may be given several times."
)
@common
def duplicates(app: App, pictures: Path | None, distance: int, exclude: tuple[str, ...]) -> None:
    """List images that have a near copy among the pictures of FOLDER, a training set's; or take them out."""
    from mitl.errors import UsageError
    from mitl.stages.releasing import duplicates as stage

    if (pictures is None) == (not exclude):
        raise UsageError("name the FOLDER of a training set's pictures, or images to take out with --exclude")
    if pictures is None:
        app.finish(stage.exclude(app.settings, exclude))
    else:
        app.finish(stage.duplicates(app.settings, pictures, max_distance=distance, progress=app.progress))

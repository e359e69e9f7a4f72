"""``mitl compare``."""

from __future__ import annotations

from pathlib import Path

import click

from mitl.cli.app import App, common
from mitl.errors import UsageError


@click.command("compare")
@click.argument("sets", nargs=-1, required=True, metavar="SET... VERIFIED")
@click.option(
    "--differences",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the pairs on which the first set and the last differ, with what speaks for them, as CSV.",
)
@click.option("--replace", is_flag=True, help="--differences: write over a file that holds something else.")
@common
def command(app: App, sets: tuple[str, ...], differences: Path | None, replace: bool) -> None:
    """Hold sets of positives against a verified one: counts, overlap, precision and recall.

    A set is official-original, official-cxc or official-eccv (of the package eccv_caption), the folder of a
    release, a folder with image_to_caption.json and caption_to_image.json, cxc:FILE with CxC's ratings of
    images and captions, or plausible:FILE, pairs whose images show the same objects, by COCO's instances_*.json or
    a JSON of lists of names by image id (in a folder: ECCV Caption's pm_*.json). The queries are those of the last
    set; precision and recall are against the pairs that people judged in it.
    """
    from mitl.stages.releasing.compare import compare

    if replace and differences is None:
        raise UsageError("--replace is about the file of --differences; add --differences FILE")
    app.finish(compare(sets, settings=app.settings, differences=differences, replace=replace))

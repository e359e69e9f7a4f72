"""``mitl evaluate``."""

from __future__ import annotations

from pathlib import Path

import click

from mitl.cli.app import App, common


@click.command("evaluate")
@click.option("--release", type=click.Path(path_type=Path), help="Folder of a release.")
@click.option(
    "--official", multiple=True, metavar="original|cxc|eccv", help="Positives of the eccv_caption package."
)
@click.option(
    "--annotator", "annotators", multiple=True, metavar="NAME", help="Score this one [default: all]."
)
@common
def command(app: App, release: Path | None, official: tuple[str, ...], annotators: tuple[str, ...]) -> None:
    """Recall@K, R-Precision and mAP@R of annotators, on the originals and on the sets named.

    An annotator may be a set of embeddings or rankings in files: see [annotators.NAME] in docs/cli.md.
    """
    from mitl.stages.releasing.evaluate import evaluate

    app.finish(
        evaluate(
            app.settings, release=release, official=official, annotators=annotators, progress=app.progress
        )
    )

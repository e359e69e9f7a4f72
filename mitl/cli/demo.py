"""``mitl demo``."""

from __future__ import annotations

from pathlib import Path

import click

from mitl.cli.app import App, common


@click.command("demo")
@click.argument("folder", default="mitl-demo", type=click.Path(path_type=Path))
@click.option(
    "--n-images", type=click.IntRange(min=10), default=300, show_default=True, help="Size of the world."
)
@click.option(
    "--workers",
    "population",
    default="careful:0.8,random:0.2",
    show_default=True,
    metavar="SPEC",
    help="Characters of the scripted workers with their shares.",
)
@common
def command(app: App, folder: Path, n_images: int, population: str) -> None:
    """All of it in FOLDER: a generated world, five annotators, scripted workers, a release, a report.

    Everything is real but the workers: the crowd server runs inside the command and is spoken to over HTTP.
    """
    from mitl.stages.demo import demo

    say = None if app.quiet else click.echo
    app.finish(
        demo(
            folder.absolute(),
            n_images=n_images,
            population=population,
            seed=app.settings.seed,
            say=say,
            progress=app.progress,
        )
    )

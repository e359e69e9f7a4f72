"""``mitl demo``."""

from __future__ import annotations

from pathlib import Path

import click

from mitl.cli.app import App, common
from mitl.errors import UsageError


@click.command("demo")
@click.argument("folder", required=False, type=click.Path(path_type=Path))
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
def command(app: App, folder: Path | None, n_images: int, population: str) -> None:
    """All of it in FOLDER (default: mitl-demo): a world, five annotators, scripted workers, release, report.

    Everything is real but the workers: the crowd server runs inside the command and is spoken to over HTTP.
    """
    from mitl.settings import load
    from mitl.stages.demo import demo

    given = click.get_current_context().params
    if given["db"] or given["crowd_db"]:
        raise UsageError("the demo keeps its databases in its own folder; leave out --db and --crowd-db")
    target = (folder or given["project"] or Path("mitl-demo")).absolute()
    if given["project"] and given["project"].absolute() != target:
        raise UsageError(f"both --project {given['project']} and {folder} are given; give one of them")
    say = None if app.quiet else click.echo
    app.finish(
        demo(
            target,
            n_images=n_images,
            population=population,
            seed=load(target, seed=given["seed"]).seed,
            say=say,
            progress=app.progress,
        )
    )

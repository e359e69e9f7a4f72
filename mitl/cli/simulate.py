"""``mitl simulate``."""

from __future__ import annotations

import click

from mitl.cli.app import App, common, environment_options
from mitl.records import Environment


@click.command("simulate")
@environment_options
@click.option(
    "--workers",
    "population",
    default="careful",
    show_default=True,
    metavar="SPEC",
    help="Characters with their shares of the work: careful:0.8,random:0.2 (also hasty, yes-sayer).",
)
@click.option(
    "--truth",
    default=None,
    metavar="scenes|official|original|release:DIR",
    help="What the workers err around [default: that of the data set: scenes, official on coco, else original].",
)
@click.option(
    "--hits-per-worker",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="How many HITs one scripted worker answers.",
)
@click.option("--max-hits", type=click.IntRange(min=1), help="Stop after this many HITs of this run.")
@common
def command(
    app: App,
    environment: Environment | None,
    population: str,
    truth: str | None,
    hits_per_worker: int,
    max_hits: int | None,
) -> None:
    """Let scripted workers answer the open HITs over HTTP, through the same form a person uses.

    They come by invitation link, as people do. Only on mitl's own crowd server, and never on --live.
    """
    from mitl.stages.simulate import simulate

    app.finish(
        simulate(
            app.settings,
            environment,
            population=population,
            truth=truth,
            hits_per_worker=hits_per_worker,
            max_hits=max_hits,
            progress=app.progress,
        )
    )

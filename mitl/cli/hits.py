"""``mitl hits``, ``simulate`` and ``harvest``: what becomes of posted HITs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mitl.cli import Command, CommandGroup
from mitl.cli.app import (
    DOLLARS,
    PLACE,
    SECONDS,
    YES_TOTAL,
    App,
    common,
    endpoint_option,
    environment_options,
    total_confirmed,
)
from mitl.cli.tables import printable
from mitl.errors import UsageError
from mitl.records import Environment


@click.group("hits", cls=CommandGroup)
def hits() -> None:
    """List HITs that were posted, end them, extend them, or delete them on the server. All can be run twice."""


@hits.command("list")
@click.argument("batch", required=False)
@environment_options
@common
def list_command(app: App, batch: str | None, environment: Environment | None) -> None:
    """List the batches, or the HITs of BATCH."""
    from mitl.stages.hits.scope import list_hits

    app.finish(list_hits(app.settings, batch, environment))


@hits.command("expire")
@click.argument("batches", metavar="[BATCH]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All batches.")
@click.option(
    "--orphans",
    is_flag=True,
    help="HITs of this project that are on the server and not in this database, as after restoring a backup.",
)
@environment_options
@endpoint_option
@common
def expire_command(
    app: App, batches: tuple[str, ...], everything: bool, orphans: bool, environment: Environment | None
) -> None:
    """Expire the HITs of BATCH now: nobody new may take them; people already at work may finish and are paid."""
    from mitl.stages.hits.ending import expire

    _require_one(batches, everything, orphans, "end")
    app.finish(expire(app.settings, batches, environment, orphans=orphans, progress=app.progress))


def _require_one(batches: tuple[str, ...], everything: bool, orphans: bool, verb: str) -> None:
    """UsageError where not exactly one way of naming HITs was chosen."""
    if bool(batches) + everything + orphans != 1:
        raise UsageError(
            f"say what to {verb}: batches by name (`mitl hits list` shows them), --all, or --orphans"
        )


@hits.command("extend")
@click.argument("batch")
@click.option("--assignments", type=click.IntRange(min=2), help="Workers per HIT in all.")
@click.option("--days", type=click.IntRange(1, 364), help="Days from now during which the HITs can be taken.")
@click.option("--max-cost", "max_cost_cents", type=DOLLARS, help="Refuse a bill above this.")
@YES_TOTAL
@environment_options
@endpoint_option
@common
def extend_command(app: App, yes_total: int | None, environment: Environment | None, **wish: Any) -> None:
    """Ask more workers for each HIT of BATCH, or give its HITs more time; prints the bill first.

    HITs that were posted for fewer than 10 workers cannot be raised to 10 or more: MTurk refuses it.
    """
    from mitl.stages.hits.extend import ExtensionWish, extend

    app.finish(
        extend(
            app.settings,
            ExtensionWish(**wish),
            environment,
            confirm=total_confirmed(
                yes_total, subject="the extension", verb="extend", undone="nothing was extended"
            ),
            announce=None if app.quiet else click.echo,
            progress=app.progress,
        )
    )


@hits.command("delete")
@click.argument("batches", metavar="[BATCH]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All batches.")
@click.option("--orphans", is_flag=True, help="HITs that `mitl hits expire --orphans` has ended.")
@environment_options
@endpoint_option
@common
def delete_command(
    app: App, batches: tuple[str, ...], everything: bool, orphans: bool, environment: Environment | None
) -> None:
    """Delete BATCH's HITs on the server if all their work is decided; answers and payments stay in the database."""
    from mitl.stages.hits.ending import delete

    _require_one(batches, everything, orphans, "delete")
    app.finish(delete(app.settings, batches, environment, orphans=orphans, progress=app.progress))


@click.command("simulate", cls=Command)
@environment_options
@click.option(
    "--workers",
    "population",
    default="careful",
    metavar="SPEC",
    help="Characters with their shares of the work: careful:0.8,random:0.2 (also hasty, yes-sayer; of those who "
    "rate without looking, or lose their scale, one-number, straight-liner, drifter), or mixed, mixed-raters.",
)
@click.option(
    "--truth",
    metavar="scenes|official|original|release:DIR",
    help="The truth that the workers know, with errors [default: that of the data set: scenes, official on "
    "COCO's test split, else original].",
)
@click.option("--hits-per-worker", type=click.IntRange(min=1), default=10, help="HITs per scripted worker.")
@click.option("--max-hits", type=click.IntRange(min=1), help="Stop after this many HITs.")
@common
def simulate(app: App, environment: Environment | None, **crowd: Any) -> None:
    """Let scripted workers answer the open HITs over HTTP, through the same form a person uses.

    They come by invitation link, as people do. Only on mitl's own crowd server, and never on --live.
    """
    from mitl.stages.hits.simulate import simulate

    app.finish(simulate(app.settings, environment, **crowd, progress=app.progress))


@click.command("harvest", cls=Command)
@environment_options
@click.option("--reparse", is_flag=True, help="Parse the stored raw answers again; fetch nothing.")
@click.option(
    "--watch", is_flag=True, help="Keep polling until nobody works any more, approving as answers arrive."
)
@click.option(
    "--every",
    type=SECONDS,
    metavar="SECONDS",
    help="--watch: time between polls; up to 16 times longer while nothing new arrives [default: 30].",
)
@click.option(
    "--from",
    "file",
    type=PLACE,
    help="Import past work from a file: a batch CSV, results of the command line tools, rows of boto3's "
    "list_assignments_for_hit, or mturk_parsed.csv; each plain or .gz. Nothing is fetched.",
)
@click.option(
    "--columns",
    type=PLACE,
    help="--from: TOML file that says which column of a foreign batch holds what.",
)
@click.option("--skip-unknown", is_flag=True, help="--from: skip answers about items that the project lacks.")
@click.option(
    "--count-again",
    is_flag=True,
    help="--from: import answers even if identical ones are stored already, because other people gave them.",
)
@endpoint_option
@common
def harvest(
    app: App,
    environment: Environment | None,
    reparse: bool,
    watch: bool,
    every: float | None,
    file: Path | None,
    **reading: Any,
) -> None:
    """Fetch answers, keep them raw, parse them, check the gold controls and approve what passes.

    What failed a control waits for a person: see `mitl review`. Nothing is ever rejected here.
    --from imports work that was done before or elsewhere: see docs/past-work.md.
    """
    if watch and (reparse or file is not None):
        raise UsageError(
            "--watch fetches again and again, and --reparse and --from fetch nothing; give one of them"
        )
    if every is not None and not watch:
        raise UsageError("--every says how often --watch looks; add --watch")
    if file is None and any(reading.values()):
        raise UsageError(
            "--columns, --skip-unknown and --count-again say how --from reads a file; add --from FILE"
        )
    if watch:
        _watch(app, environment, every)
        return
    if file is not None:
        if reparse:
            raise UsageError("--from brings a file in, and --reparse reads what is stored; give one of them")
        from mitl.stages.past_work.importing import ImportOptions, import_results

        app.finish(
            import_results(
                app.settings, file, environment, options=ImportOptions(**reading), progress=app.progress
            )
        )
        return
    from mitl.stages.harvesting.harvest import harvest

    app.finish(harvest(app.settings, environment, reparse=reparse, progress=app.progress))


def _watch(app: App, environment: Environment | None, every: float | None) -> None:
    from mitl.stages.harvesting.watching import EVERY_S, watch

    app.tell_how_to_stop()

    def tell(line: str) -> None:
        if not app.quiet:
            click.echo(printable(line), err=True)

    app.finish(watch(app.settings, environment, every_s=EVERY_S if every is None else every, tell=tell))

"""``mitl harvest``."""

from __future__ import annotations

from pathlib import Path

import click

from mitl.cli.app import App, common, endpoint_option, environment_options, printable
from mitl.errors import UsageError
from mitl.records import Environment


@click.command("harvest")
@environment_options
@click.option("--reparse", is_flag=True, help="Parse the stored raw answers again; fetch nothing.")
@click.option(
    "--watch", is_flag=True, help="Look again and again until nobody works any more; approve on the way."
)
@click.option(
    "--every",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="--watch: time between two looks; up to 16 times as long while nothing new comes [default: 30].",
)
@click.option(
    "--from",
    "file",
    type=click.Path(path_type=Path),
    help="Bring in past work from a file: a batch CSV, results of the command line tools, rows of boto3's "
    "list_assignments_for_hit, or mturk_parsed.csv; each plain or .gz. Nothing is fetched.",
)
@click.option(
    "--columns",
    type=click.Path(path_type=Path),
    help="--from: TOML file that says which column of a foreign batch holds what.",
)
@click.option(
    "--skip-unknown", is_flag=True, help="--from: leave out what is about items that the project lacks."
)
@click.option(
    "--count-again",
    is_flag=True,
    help="--from: bring in answers though the same ones are here already; other people gave them.",
)
@endpoint_option
@common
def command(
    app: App,
    environment: Environment | None,
    reparse: bool,
    watch: bool,
    every: float | None,
    file: Path | None,
    columns: Path | None,
    skip_unknown: bool,
    count_again: bool,
) -> None:
    """Fetch answers, keep them raw, parse them, check the gold controls and approve what passes.

    What failed a control waits for a person: see `mitl review`. Nothing is ever rejected here.
    --from brings in work that was done before or elsewhere: see docs/past-work.md.
    """
    if watch and (reparse or file is not None):
        raise UsageError(
            "--watch fetches again and again, and --reparse and --from fetch nothing; give one of them"
        )
    if every is not None and not watch:
        raise UsageError("--every says how often --watch looks; add --watch")
    if file is None and (columns is not None or skip_unknown or count_again):
        raise UsageError(
            "--columns, --skip-unknown and --count-again say how --from reads a file; add --from FILE"
        )
    if watch:
        _watch(app, environment, every)
        return
    if file is not None:
        if reparse:
            raise UsageError("--from brings a file in, and --reparse reads what is stored; give one of them")
        from mitl.stages.past_work.importing import import_results

        app.finish(
            import_results(
                app.settings,
                file,
                environment,
                columns=columns,
                skip_unknown=skip_unknown,
                count_again=count_again,
                progress=app.progress,
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

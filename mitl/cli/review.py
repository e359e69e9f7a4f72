"""``mitl review``, ``desk``, ``explore`` and ``workers``: what people look at and decide."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click

from mitl.cli import Command, CommandGroup
from mitl.cli.app import FILE, App, F, Number, common, endpoint_option, environment_options, together
from mitl.errors import UsageError
from mitl.records import Decision, Environment, OriginalVerdict


@click.group("review", cls=CommandGroup, invoke_without_command=True)
@click.option(
    "--originals", is_flag=True, help="List refused originals instead: see `mitl review originals`."
)
@environment_options
@common
def review(app: App, originals: bool, environment: Environment | None) -> None:
    """Decide about work whose gold controls failed. Without a subcommand, list what waits.

    Everyone who worked is paid unless a person rejects with a reason.
    """
    if originals:
        from mitl.stages.releasing.originals import originals as stage

        app.finish(stage(app.settings, environment))
        return
    from mitl.stages.reviewing.review import queue

    app.finish(queue(app.settings, environment))


@review.command("show")
@click.argument("number", type=int)
@environment_options
@common
def show(app: App, number: int, environment: Environment | None) -> None:
    """Show submission NUMBER with its evidence: answers, failed controls, its worker, the deadlines."""
    from mitl.stages.reviewing.show import show as stage

    app.finish(stage(app.settings, number, environment))


def _ruling(name: str, decision: Decision, help_text: str) -> None:
    @review.command(name, help=help_text)
    @click.argument("numbers", type=int, nargs=-1, required=True)
    @environment_options
    @endpoint_option
    @common
    def call(app: App, numbers: tuple[int, ...], environment: Environment | None) -> None:
        _rule(app, numbers, decision, "", environment)


def _rule(
    app: App,
    numbers: tuple[int, ...],
    decision: Decision,
    reason: str,
    environment: Environment | None,
    *,
    yes: bool = True,
) -> None:
    from mitl.stages.reviewing.review import Ruling, rule

    rulings = [Ruling(number, decision, reason) for number in dict.fromkeys(numbers)]
    result = rule(
        app.settings,
        rulings,
        environment,
        announce=None if app.quiet else click.echo,
        confirm=lambda chosen, count: yes or chosen is Environment.SANDBOX or _confirmed(count),
        progress=app.progress,
    )
    app.finish(result)


def _confirmed(count: int) -> bool:
    """Whether a person says that they mean it."""
    what = "1 submission" if count == 1 else f"{count} submissions"
    if not sys.stdin.isatty():
        raise UsageError(
            f"rejecting {what} refuses real people their pay and nobody is here to confirm it; add --yes; nothing was "
            "rejected"
        )
    return click.confirm(f"reject {what} and pay nothing for the work?", err=True)


_ruling("approve", Decision.APPROVE, "Pay the work and use its answers.")
_ruling("drop", Decision.DROP, "Pay the work, but discard its answers and ask again.")
_ruling(
    "exclude",
    Decision.APPROVE_EXCLUDE,
    "Pay the work, exclude the worker from further HITs (by a qualification, not a block) and discard all of the "
    "worker's answers, earlier ones too.",
)


@review.command("reject")
@click.argument("numbers", type=int, nargs=-1, required=True)
@click.option("--reason", required=True, help="Why, in a sentence; the worker reads it.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation of live work.")
@environment_options
@endpoint_option
@common
def reject(
    app: App, numbers: tuple[int, ...], reason: str, yes: bool, environment: Environment | None
) -> None:
    """Reject the work unpaid. Only for obvious bad faith, after a person has looked at it.

    Prints until when the rejection can be reversed, before and after it is made.
    """
    _rule(app, numbers, Decision.REJECT, reason, environment, yes=yes)


@review.command("reverse")
@click.argument("numbers", type=int, nargs=-1, required=True)
@click.option("--use", is_flag=True, help="Use the answers too; without it the work is paid and not used.")
@environment_options
@endpoint_option
@common
def reverse(app: App, numbers: tuple[int, ...], use: bool, environment: Environment | None) -> None:
    """Pay for rejected work after all, within 30 days of its submission."""
    from mitl.stages.reviewing.decisions import reverse as stage

    decision = Decision.APPROVE if use else Decision.DROP
    app.finish(
        stage(app.settings, tuple(dict.fromkeys(numbers)), decision, environment, progress=app.progress)
    )


@review.command("settle")
@environment_options
@endpoint_option
@common
def settle(app: App, environment: Environment | None) -> None:
    """Pay the whole queue, use none of its answers, exclude workers with a bad gold record; reject nobody."""
    from mitl.stages.reviewing.review import settle as stage

    app.finish(stage(app.settings, environment, progress=app.progress))


@review.group("originals", invoke_without_command=True)
@click.option(
    "--cxc-below",
    type=Number(0, 5),
    default=3.0,
    help="An original that earlier ratings put under this is refused.",
)
@environment_options
@common
def originals(app: App, cxc_below: float, environment: Environment | None) -> None:
    """Review originals that people answered no or that CxC rates low; without a subcommand, list them.

    What a person says of them makes the exclusion lists that releases apply.
    """
    from mitl.stages.releasing.originals import originals

    app.finish(originals(app.settings, environment, cxc_below=cxc_below))


def _verdict(verdict: OriginalVerdict, help_text: str) -> None:
    @originals.command(verdict.value, help=help_text)
    @click.argument("captions", nargs=-1, required=True, metavar="CAPTION...")
    @common
    def call(app: App, captions: tuple[str, ...]) -> None:
        from mitl.stages.releasing.originals import decide

        app.finish(decide(app.settings, captions, verdict))


_verdict(OriginalVerdict.KEEP, "Keep these captions off the exclusion lists: they do describe their images.")
_verdict(
    OriginalVerdict.WRONG, "Remove the original pairs of these captions: they do not describe their images."
)
_verdict(OriginalVerdict.MEANINGLESS, "Remove every pair of these captions: they describe nothing.")


@originals.command("export")
@click.option("--out", type=FILE, required=True, help="CSV file.")
@click.option("--replace", is_flag=True, help="Overwrite a file that holds something else.")
@common
def export(app: App, out: Path, replace: bool) -> None:
    """Write all exclusion lists of the project as one CSV, for `mitl init --exclude`."""
    from mitl.stages.releasing.originals import export as stage

    app.finish(stage(app.settings, out, replace=replace))


@review.command("duplicates")
@click.argument(
    "pictures", type=click.Path(path_type=Path, file_okay=False), required=False, metavar="FOLDER"
)
@click.option(
    "--distance",
    type=click.IntRange(0, 32),
    default=4,
    help="Bits (of 64) by which the hashes of near copies may differ.",
)
@click.option("--exclude", multiple=True, metavar="IMAGE", help="Exclude this image; repeatable.")
@common
def duplicates(app: App, pictures: Path | None, distance: int, exclude: tuple[str, ...]) -> None:
    """List images with a near copy in FOLDER (a training set's pictures), or exclude them."""
    from mitl.stages.releasing import originals as stage

    if (pictures is None) == (not exclude):
        raise UsageError("name the FOLDER of a training set's pictures, or images to take out with --exclude")
    if pictures is None:
        app.finish(stage.exclude(app.settings, exclude))
    else:
        app.finish(stage.duplicates(app.settings, pictures, max_distance=distance, progress=app.progress))


def _page_options(port: int, what: str) -> Callable[[F], F]:
    """Where pages for this machine alone are served, and whether its browser opens them."""
    return together(
        click.option("--host", default="127.0.0.1", help="Loopback address to listen on."),
        click.option("--port", type=click.IntRange(0, 65535), default=port, help="Port; 0 picks a free one."),
        click.option(
            "--browser/--no-browser",
            default=True,
            help=f"Open the {what} in this machine's browser, if it has one.",
        ),
    )


@click.command("desk", cls=Command)
@_page_options(8766, "desk")
@environment_options
@endpoint_option
@common
def desk(app: App, host: str, port: int, browser: bool, environment: Environment | None) -> None:
    """Review workers and their work in the browser, on this machine only.

    Prints a link that opens the desk. What is decided there goes the way of `mitl review`: it is kept first, then
    the crowd server is told.
    """
    from mitl.desk.app import desk

    if app.json:
        app.tell_how_to_stop()
    with app.until_stopped("mitl desk"):
        desk(
            app.settings,
            environment,
            host=host,
            port=port,
            browser=browser and not app.quiet,
            announce=app.finish,
        )


@click.command("explore", cls=Command)
@click.argument("release", type=click.Path(exists=True, file_okay=False, path_type=Path), required=False)
@_page_options(8767, "pages")
@environment_options
@common
def explore(
    app: App, release: Path | None, host: str, port: int, browser: bool, environment: Environment | None
) -> None:
    """Look at the pairs of a project or a release folder in the browser.

    Search the captions, filter by annotator, rank, answer and agreement, and see all that is known of one image or
    caption side by side. A release shows texts and pictures where the project of its data set is at hand. It only
    reads, shows no worker, and listens on this machine alone.
    """
    from mitl.explorer.app import explore
    from mitl.explorer.sources import of_project, of_release

    if release is None:
        title, pairs = app.settings.project.resolve().name, of_project(app.settings, environment)
    elif environment is not None:
        raise UsageError(
            f"{environment} chooses answers of a project; the release {str(release)!r} holds its own"
        )
    else:
        title, pairs = release.resolve().name, of_release(release, app.settings)
    if app.json:
        app.tell_how_to_stop()
    with app.until_stopped("mitl explore"):
        explore(title, pairs, host=host, port=port, browser=browser and not app.quiet, announce=app.finish)


@click.command("workers", cls=Command)
@click.option(
    "--by-hits",
    is_flag=True,
    help="Table B.1 of the paper: workers by how many HITs they did, and the share approved.",
)
@click.option("--csv", type=FILE, metavar="FILE", help="Also write the rows to this file.")
@environment_options
@common
def workers(app: App, environment: Environment | None, by_hits: bool, csv: Path | None) -> None:
    """List the workers: HITs, gold record, pay and working style.

    The pass rate is the mean of its posterior with a 90 % interval. Speed, runs of one answer, variety and agreement
    are evidence for a person; nothing is decided by them.
    """
    from mitl.stages.reviewing.workers import workers, workers_by_hits

    stage = workers_by_hits if by_hits else workers
    app.finish(stage(app.settings, environment, csv=csv))

"""``mitl rate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mitl.cli import CommandGroup
from mitl.cli.app import FILE, PLACE, App, common, environment_options
from mitl.cli.publish import (
    BILL,
    Posting,
    limit_option,
    pilot_options,
    posting_options,
    require_environment,
    workers_option,
)
from mitl.cli.releases import privacy_options
from mitl.records import Environment


@click.group("rate", cls=CommandGroup)
def command() -> None:
    """Ask people how alike two items are, from 0 to 5: two texts, two images, or an image and a text.

    What is asked was sampled by `mitl propose --scheme crisscross`. `mitl harvest` takes the ratings in.
    """


@command.command("publish", sections={"--per-hit": "HITs", **BILL})
@environment_options
@click.option(
    "--task",
    type=click.Choice(["sts", "sis", "sits"]),
    help="What to rate: two texts, two images, or an image and a text; the last needs the ratings of the "
    "first two [default: the first with open pairs].",
)
@click.option("--per-hit", type=click.IntRange(1, 20), default=10, help="Pairs per HIT, controls included.")
@click.option(
    "--controls",
    type=click.Choice(["all", "none"]),
    default="all",
    help="Put an identical, a random and a repeated pair on each page to check the worker, or none.",
)
@workers_option(5)
@limit_option("pairs", "--task and --template")
@pilot_options
@click.option(
    "--template",
    metavar="NAME",
    default="",
    show_default=False,
    help="Wording: a folder of hit_templates [default: similarity-texts, similarity-images or similarity-mixed].",
)
@posting_options
@common
def publish_command(
    app: App,
    environment: Environment | None,
    posting: Posting,
    task: str | None,
    controls: str,
    **asked: Any,
) -> None:
    """Pack the sampled pairs of a task that nobody has rated yet into HITs, print the bill, and post.

    Run again, it completes what was interrupted, alone and under the same bill; else it posts what is missing and
    nothing twice, and asks for the ratings that pairs lack, of as many workers as are wanted. The order of two texts
    or images on the page is random and balanced.
    """
    from mitl.campaign.kinds.similarity.planning import RatePairs, due_task

    where = require_environment(environment)
    request = RatePairs(
        environment=where,
        direction=task or due_task(app.settings, where).value,
        controls=controls == "all",
        **posting.terms,
        **asked,
    )
    posting.post(app, request)


_method_option = click.option(
    "--method",
    type=click.Choice(["mean", "trimmed", "standardised", "model"]),
    default="mean",
    help="How to combine ratings: their mean; the mean of the middle three of five; ratings standardised by "
    "rater; or a model of raters' offsets and scales.",
)


@command.command("scores")
@environment_options
@click.option(
    "--task",
    "tasks",
    type=click.Choice(["sts", "sis", "sits"]),
    multiple=True,
    help="Score only this task: two texts, two images, or an image and a text; repeatable [default: all three].",
)
@_method_option
@click.option("--min-ratings", type=click.IntRange(min=1), default=5, help="List pairs with fewer ratings.")
@click.option(
    "--csv",
    "to",
    type=FILE,
    metavar="FILE",
    help="Write the score of every sampled pair to this file.",
)
@common
def scores_command(
    app: App,
    environment: Environment | None,
    tasks: tuple[str, ...],
    method: str,
    min_ratings: int,
    to: Path | None,
) -> None:
    """Show scores by sampling method, pairs that lack ratings, and how much the raters agree.

    Ratings count if the submission is approved and its worker is not excluded, one per worker and pair; ratings of
    controls never count.
    """
    from mitl.campaign.kinds.similarity.scores import score_ratings
    from mitl.judgements.similarity import Aggregation
    from mitl.records.similarity import TASKS, Likeness

    app.finish(
        score_ratings(
            app.settings,
            environment,
            tasks=[Likeness(task) for task in dict.fromkeys(tasks)] or TASKS,
            method=Aggregation(method),
            min_ratings=min_ratings,
            to=to,
        )
    )


@command.command("release")
@click.option("--out", type=PLACE, required=True, help="Folder of the release.")
@click.option("--name", help="Name of the release [default: the folder's].")
@click.option("--split", default="test", metavar="NAME", help="Split in the file names, as in sts_test.csv.")
@_method_option
@click.option(
    "--min-ratings",
    type=click.IntRange(min=1),
    default=5,
    help="Leave out pairs with fewer ratings and list them in incomplete.csv.",
)
@privacy_options
@click.option("--replace", is_flag=True, help="Overwrite another release of ratings in the folder.")
@environment_options
@common
def release_command(
    app: App,
    out: Path,
    method: str,
    environment: Environment | None,
    check_privacy: bool,
    replace: bool,
    **rules: Any,
) -> None:
    """Write the scores as CSVs in CxC's layout, with every rating under pseudonyms and a datasheet.

    The same inputs give the same bytes; a folder that already holds them is left alone, and one that holds another
    release is overwritten only with --replace.
    """
    from mitl.judgements.similarity import Aggregation
    from mitl.stages.releasing.release_ratings import RatingRules, release_ratings

    app.finish(
        release_ratings(
            app.settings,
            out,
            environment,
            rules=RatingRules(method=Aggregation(method), **rules),
            check_privacy=check_privacy,
            replace_earlier=replace,
        )
    )

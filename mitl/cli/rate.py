"""``mitl rate``."""

from __future__ import annotations

from typing import Any

import click

from mitl.cli.app import App, common, environment_options
from mitl.cli.publish import Posting, posting_options, require_environment
from mitl.records import Environment


@click.group("rate")
def command() -> None:
    """Ask people how alike two items are, from 0 to 5: two texts, two images, or an image and a text.

    What is asked was sampled by `mitl propose --scheme crisscross`. `mitl harvest` takes the ratings in.
    """


@command.command("publish")
@environment_options
@click.option(
    "--task",
    "direction",
    type=click.Choice(["sts", "sis", "sits"]),
    required=True,
    help="What to rate: two texts, two images, or an image and a text; the last needs the ratings of the others.",
)
@click.option(
    "--per-hit",
    type=click.IntRange(1, 20),
    default=10,
    show_default=True,
    help="Pairs of a HIT, controls included.",
)
@click.option(
    "--controls",
    type=click.Choice(["all", "none"]),
    default="all",
    show_default=True,
    help="Whether a page holds an identical, a random and a repeated pair, which check the worker.",
)
@click.option(
    "--assignments",
    type=click.IntRange(1, 100),
    default=5,
    show_default=True,
    help="Workers per HIT; from 10 on, an endpoint that charges takes twice the fee.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help="Have at most this many pairs out at once by runs with a limit and the same --task and --template; a run's "
    "pairs count until its last HIT is closed, so that a repeat completes it and posts no more.",
)
@click.option(
    "--pilot",
    type=click.IntRange(min=1),
    metavar="HITS",
    help="Post so many HITs of random open pairs, counted as --limit does; their median active time a pair prices "
    "what follows of the task.",
)
@click.option(
    "--no-wait-for-pilot",
    "wait_for_pilot",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Post the rest though a pilot of this task and wording is out.",
)
@click.option(
    "--template",
    metavar="NAME",
    default="",
    help="Wording, a folder of hit_templates [default: similarity-texts, similarity-images or similarity-mixed].",
)
@posting_options
@common
def publish_command(
    app: App, environment: Environment | None, posting: Posting, controls: str, **asked: Any
) -> None:
    """Pack the sampled pairs of a task that nobody was asked yet into HITs, print the bill, and post.

    Run again, it completes what was interrupted, alone and under the same bill; else it posts what is missing and
    nothing twice, and asks for the ratings that pairs lack, of as many workers as are wanted. Which item of two texts
    or images is shown first is random and balanced.
    """
    from mitl.campaign.kinds.similarity.planning import RatePairs

    request = RatePairs(
        environment=require_environment(environment), controls=controls == "all", **posting.terms, **asked
    )
    posting.post(app, request)

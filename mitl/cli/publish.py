"""``mitl publish``, and what every command that posts new HITs takes and asks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from mitl.cli import Command
from mitl.cli.app import (
    DOLLARS,
    PLACE,
    App,
    F,
    Number,
    WayChoice,
    common,
    endpoint_option,
    environment_options,
    refuse_beside,
    together,
    total_confirmed,
)
from mitl.errors import UsageError
from mitl.records import Environment

if TYPE_CHECKING:
    from mitl.campaign.kinds.protocol import Request

BILL = {"--reward": "Bill and posting"}
"""The section of help that the options of posting fill."""


@dataclass(frozen=True, slots=True)
class Posting:
    """How HITs are to be posted."""

    reward_cents: int | None
    """Per HIT; None for what the wage floor and the estimate give."""
    max_cost_cents: int | None
    yes_total: int | None
    """With live: the exact total, instead of typing it."""
    probes: int
    """Pictures to fetch beforehand."""
    dry_run: bool
    to: Path | None
    """Where a dry run is written."""

    @property
    def terms(self) -> dict[str, Any]:
        """Those of a request."""
        return {name: getattr(self, name) for name in ("reward_cents", "max_cost_cents", "probes")}

    def post(self, app: App, request: Request) -> None:
        """Show the bill, ask for its total, and post what the request names."""
        from mitl.campaign.publish import publish

        confirmed = total_confirmed(
            self.yes_total, subject="the bill", verb="post", undone="nothing was posted"
        )
        publish(
            app.settings,
            request,
            confirm=lambda total: confirmed(request.environment, total),
            # Whether --yes-total is the bill that the interrupted run of this command was given it for.
            repeats=lambda whole_cents: self.yes_total == whole_cents,
            announce=None if app.quiet else click.echo,
            dry_run=self.dry_run,
            to=self.to,
            tell=app.finish,
            progress=app.progress,
        )


def require_environment(environment: Environment | None) -> Environment:
    """UsageError where neither --sandbox nor --live was given: nothing is owed by default."""
    if environment is None:
        raise UsageError(
            "say where to post: --sandbox is practice (nothing is owed), --live owes real money to "
            "real people; add one of them"
        )
    return environment


def posting_options(function: F) -> F:
    """Add these options and the endpoint; the command gets them as ``posting``."""

    @click.option(
        "--reward",
        "reward_cents",
        type=DOLLARS,
        help="Reward per HIT, e.g. 1.00 [default: 12.00 an hour at the estimated time; asked again, its old one].",
    )
    @click.option(
        "--max-cost",
        "max_cost_cents",
        type=DOLLARS,
        help="Refuse a larger bill; an interrupted run counts in full.",
    )
    @click.option(
        "--yes-total",
        type=DOLLARS,
        help="With --live: the exact total, instead of typing it; repeated after an interruption, it still holds.",
    )
    @click.option(
        "--probe-images",
        "probes",
        type=click.IntRange(min=0),
        default=5,
        help="Pictures to fetch, as a worker's browser would, before posting.",
    )
    @click.option(
        "--dry-run",
        is_flag=True,
        help="Check and price everything, write every request and page to disk, and post nothing.",
    )
    @click.option(
        "--out",
        "--to",
        "to",
        type=PLACE,
        metavar="DIR",
        help="With --dry-run: folder for the requests and pages [default: PROJECT/dry-run].",
    )
    @endpoint_option
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        posting = Posting(**{field.name: kwargs.pop(field.name) for field in fields(Posting)})
        if posting.to is not None and not posting.dry_run:
            raise UsageError("--out says where a dry run is written; add --dry-run, or leave it out")
        return function(*args, posting=posting, **kwargs)

    return cast(F, wrapper)


def workers_option(default: int, most: int | None = 100) -> Callable[[F], F]:
    """Add ``--assignments``."""
    return click.option(
        "--assignments",
        type=click.IntRange(1, most),
        default=default,
        help="Workers per HIT; from 10 on, an endpoint that charges doubles its fee.",
    )


def limit_option(asked: str, same: str) -> Callable[[F], F]:
    """Add ``--limit``.

    Args:
        asked: what it counts.
        same: the options that are the same in all runs that it counts.
    """
    return click.option(
        "--limit",
        type=click.IntRange(min=1),
        help=f"Keep at most this many {asked} out at once, over all limited runs with the same {same}. "
        f"A run's {asked} count until its last HIT is closed, so a repeat completes the run and posts no more.",
    )


pilot_options = together(
    click.option(
        "--pilot",
        type=click.IntRange(min=1),
        metavar="HITS",
        help="Post this many HITs of random open pairs, counted as for --limit; their median active time "
        "sets the price of later HITs.",
    ),
    click.option(
        "--no-wait-for-pilot",
        "wait_for_pilot",
        is_flag=True,
        flag_value=False,
        default=True,
        show_default=False,
        help="Post the rest even while a pilot of this wording is out.",
    ),
)


_BESIDE_RECONCILE = ("sandbox", "live", "endpoint_url", "reconcile")
"""Of its own options, those that `mitl publish --reconcile` can follow: the others are about posting."""


@click.command("publish", cls=Command, sections={"--limit": "How many pairs, and which", **BILL})
@environment_options
@click.option(
    "--direction",
    type=WayChoice(["i2t", "t2i", "both"]),
    default="both",
    help="Direction whose proposals to ask about; other data sets have their own names, e.g. a2t and t2a for sounds.",
)
@click.option("--template", default="pairs-plain", help="Wording: a folder of hit_templates.")
@workers_option(1)
@limit_option("pairs", "--direction and --template")
@click.option(
    "--overlap",
    type=Number(0, 1),
    default=0.0,
    help="Share of the pairs to ask a second worker too, to measure agreement.",
)
@pilot_options
@click.option(
    "--drawn",
    is_flag=True,
    help="Post only the pairs that `mitl audit draw` drew; other candidates stay open.",
)
@click.option(
    "--chosen",
    is_flag=True,
    help="Post only the pairs that the open round chose, in its order, plus the audit's; see `mitl round`.",
)
@click.option(
    "--reconcile",
    is_flag=True,
    help="Post nothing: compare the server's HITs with the database and adopt those it lost.",
)
@posting_options
@common
def publish(
    app: App,
    environment: Environment | None,
    posting: Posting,
    reconcile: bool,
    **asked: Any,
) -> None:
    """Pack the open pairs into HITs of 18 candidates and 2 controls, print the bill, and post.

    Run again after an interruption, it completes that plan under the same bill and plans nothing beside it; what
    else is open comes with the run after that. Work that was rejected, dropped or excluded is asked again on new HITs.
    """
    chosen = require_environment(environment)
    if reconcile:
        from mitl.campaign.publish import reconcile as stage

        refuse_beside("--reconcile posts nothing", *_BESIDE_RECONCILE)
        app.finish(stage(app.settings, chosen, app.progress))
        return
    from mitl.campaign.kinds.pairs.planning import Campaign

    posting.post(app, Campaign(environment=chosen, **posting.terms, **asked))

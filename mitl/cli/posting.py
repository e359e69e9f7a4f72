"""What every command that posts new HITs takes and asks: reward, limits of the bill, dry run, confirmation."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from mitl.cli.app import DOLLARS, endpoint_option
from mitl.cli.confirming import confirmed
from mitl.errors import UsageError
from mitl.records import Environment

F = TypeVar("F", bound=Callable[..., Any])


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

    def confirmed(self, environment: Environment, total_cents: int) -> bool:
        """Whether this bill may be posted: practice money always, real money by its exact total."""
        return environment is Environment.SANDBOX or confirmed(
            total_cents, self.yes_total, subject="the bill", verb="post", undone="nothing was posted"
        )

    def repeats(self, whole_cents: int) -> bool:
        """Whether ``--yes-total`` is the bill that the interrupted run of this command was given it for."""
        return self.yes_total == whole_cents


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
        type=DOLLARS,
        metavar="DOLLARS",
        help="Per HIT, as 1.00 [default: 12.00 an hour at the estimate].",
    )
    @click.option(
        "--max-cost",
        type=DOLLARS,
        metavar="DOLLARS",
        help="Refuse a bill above this; that of an interrupted run counts whole.",
    )
    @click.option(
        "--yes-total",
        type=DOLLARS,
        metavar="DOLLARS",
        help="With --live: the exact total, instead of typing it; repeated after an interruption, it still holds.",
    )
    @click.option(
        "--probe-images",
        "probes",
        type=click.IntRange(min=0),
        default=5,
        show_default=True,
        help="Pictures to fetch as a worker would before anything is posted.",
    )
    @click.option(
        "--dry-run",
        is_flag=True,
        help="Check and price everything and write every request and page; post and plan nothing.",
    )
    @click.option(
        "--to",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="With --dry-run: where the requests and pages go [default: PROJECT/dry-run].",
    )
    @endpoint_option
    @functools.wraps(function)
    def wrapper(
        *args: Any,
        reward: int | None,
        max_cost: int | None,
        yes_total: int | None,
        probes: int,
        dry_run: bool,
        to: Path | None,
        **kwargs: Any,
    ) -> Any:
        if to is not None and not dry_run:
            raise UsageError("--to says where a dry run is written; add --dry-run, or leave it out")
        return function(*args, posting=Posting(reward, max_cost, yes_total, probes, dry_run, to), **kwargs)

    return cast(F, wrapper)

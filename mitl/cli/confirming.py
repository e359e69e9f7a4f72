"""Asking for the exact total before real money is owed."""

from __future__ import annotations

import sys

import click

from mitl.cli.app import DOLLARS
from mitl.errors import UsageError


def confirmed(total_cents: int, yes_total: int | None, *, subject: str, verb: str, undone: str) -> bool:
    """Whether the exact total was given as ``--yes-total`` or is typed now.

    Args:
        subject: what the total is called: ``the bill``.
        verb: what typing it does: ``post``.
        undone: what holds where it was not confirmed: ``nothing was posted``.

    Raises:
        UsageError: another total was given, or none and nobody is here to type it.
    """
    from mitl.core.pricing import format_dollars

    total = format_dollars(total_cents)
    if yes_total is not None:
        if yes_total != total_cents:
            raise UsageError(
                f"--yes-total is {format_dollars(yes_total)}, but {subject} is {total}; {undone}"
            )
        return True
    if not sys.stdin.isatty():
        raise UsageError(
            f"{subject} is {total} of real money and nobody is here to type it; confirm it with "
            f"--yes-total {total.replace('$', '').replace(',', '')}; {undone}"
        )
    typed: int = click.prompt(
        f"this owes real money; type the total ({total}) to {verb}", type=DOLLARS, err=True
    )
    return typed == total_cents

"""What publishing counts whatever it asks, and in which order ``--json`` has it."""

from __future__ import annotations

from typing import Annotated, TypedDict

_MONEY = ("assignments", "rewards_cents", "fees_cents", "total_cents")


class PostingCounts(TypedDict, total=False):
    """What every kind counts; each adds what its pages hold."""

    environment: Annotated[str, "sandbox or live"]
    batch: Annotated[str | None, "name of the new batch; null where only earlier HITs were posted"]
    hits: Annotated[int, "HITs that would be posted (`--dry-run`)"]
    hits_posted: Annotated[int, "HITs created by this run"]
    hits_adopted: Annotated[int, "HITs of an interrupted run, or of an older database, found on the server"]
    assignments: Annotated[int, "assignments of all HITs on the bill"]
    rewards_cents: Annotated[int, "all rewards on the bill"]
    fees_cents: Annotated[int, "all fees on the bill"]
    total_cents: Annotated[int, "the bill, fees included"]
    reward_cents: Annotated[int | None, "reward of the new batch's HITs; null without one"]
    estimate_s: Annotated[int | None, "seconds that one of them is expected to take; null without one"]
    committed_cents: Annotated[int, "spent and promised on this environment after posting"]
    balance_cents: Annotated[int, "the balance after posting; the sandbox always says 10,000.00"]
    requests: Annotated[int, "requests written (`--dry-run`)"]
    largest_question_bytes: Annotated[int, "size of the largest page (`--dry-run`); 65,535 are allowed"]


def dry_keys(*own: str) -> tuple[str, ...]:
    """The keys of a dry run, a kind's own in their place."""
    return ("environment", *own, *_MONEY, "requests", "largest_question_bytes")


def posted_keys(*own: str, after: tuple[str, ...] = (), pilots: bool = False) -> tuple[str, ...]:
    """The keys of a run that posts.

    Args:
        own, after: a kind's own, before and after the numbers of HITs.
        pilots: whether the kind has pilots.
    """
    return (
        *("batch", "environment", *own, "hits_posted", "hits_adopted", "hits_again", *after, *_MONEY),
        *("reward_cents", "estimate_s", *(("pilot",) if pilots else ()), "committed_cents", "balance_cents"),
    )

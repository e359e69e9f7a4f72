"""The bill of a plan: what each batch costs, what it pays an hour, and whether it may be posted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mitl.crowd.endpoint import Endpoint
from mitl.db.store.hits import BatchRow
from mitl.errors import FundsError, UsageError
from mitl.hits.pricing import Bill, bill, format_dollars, reward_for_floor
from mitl.hits.templates import HitTemplate
from mitl.records import Environment
from mitl.settings import PRICING_FLOOR_CENTS_PER_HOUR, WAGE_FLOOR_CENTS_PER_HOUR, Settings
from mitl.stages.pages import templates_of
from mitl.stages.planning import Campaign, Plan

PAIRS_PER_HIT = 20


@dataclass(frozen=True, slots=True)
class Terms:
    """What the HITs of one batch are posted under."""

    template: HitTemplate
    reward_cents: int
    assignments: int


def reward_of(campaign: Campaign, template: HitTemplate) -> int:
    """Cents for one HIT: as asked for, else the least that pays the floor at the wording's estimate."""
    if campaign.reward_cents is not None:
        return campaign.reward_cents
    return reward_for_floor(PRICING_FLOOR_CENTS_PER_HOUR, PAIRS_PER_HIT * template.seconds_per_pair)


def make_bills(
    plan: Plan, terms: Terms, batches: dict[int, BatchRow], folder: Path, *, charges_fee: bool
) -> list[tuple[str, Bill]]:
    """A bill for each group of HITs with one price: the new batch's (``new``), then those of earlier batches."""
    groups: list[tuple[str, int, HitTemplate, int, int]] = []
    if plan.fresh:
        groups.append(("new", len(plan.fresh), terms.template, terms.reward_cents, terms.assignments))
    old = [(replacement.replaces.batch_id, replacement.assignments) for replacement in plan.again]
    old += [(hit.batch_id, hit.assignments) for hit in plan.leftover]
    templates = templates_of(batches, folder)
    for key in sorted(set(old)):
        batch, assignments = batches[key[0]], key[1]
        groups.append((batch.name, old.count(key), templates[batch.id], batch.reward_cents, assignments))
    return [
        (
            name,
            bill(
                hits,
                assignments=assignments,
                reward_cents=reward,
                estimate_s=PAIRS_PER_HIT * template.seconds_per_pair,
                charges_fee=charges_fee,
            ),
        )
        for name, hits, template, reward, assignments in groups
    ]


def bill_text(
    settings: Settings,
    campaign: Campaign,
    plan: Plan,
    terms: Terms,
    bills: Sequence[tuple[str, Bill]],
    endpoint: Endpoint,
    balance: int,
) -> list[str]:
    """The bill, line by line, before anything is posted."""
    total = sum(part.total_cents for _, part in bills)
    rewards = sum(part.rewards_cents for _, part in bills)
    fees = sum(part.fees_cents for _, part in bills)
    filled = f"; last filled with {plan.n_repeats} repeats" if plan.n_repeats else ""
    if plan.n_overlap:
        filled += f"; {plan.n_overlap:,} pairs asked of a second worker too"
    where = "an endpoint that charges a fee" if endpoint.charges_fee else "this endpoint charges none"
    lines = [
        f"{campaign.environment} · template {terms.template.name} · seed {settings.seed} · {endpoint.url}",
        _columns("pairs", f"{plan.n_pairs:,}")
        + _columns("HITs", f"{plan.n_hits:,}")
        + f" ({_page_text(plan)}{filled})",
    ]
    if plan.again:
        lines.append(f"  {len(plan.again):,} of the HITs ask again what could not be used")
    if plan.leftover:
        lines.append(f"  {len(plan.leftover):,} of the HITs were planned by an earlier run and not posted")
    for name, part in bills:
        label = "" if len(bills) == 1 else f" {'new batch' if name == 'new' else name}"
        lines.append(
            _columns(f"reward{label}", format_dollars(part.reward_cents))
            + _columns("estimate", f"{part.estimate_s} s a HIT")
            + f", {format_dollars(part.hourly_cents)} an hour"
        )
    lines.append(
        _columns("rewards", format_dollars(rewards)) + _columns("fee", format_dollars(fees)) + f" ({where})"
    )
    after = f"{format_dollars(balance)} → {format_dollars(balance - total)}"
    if campaign.environment is Environment.SANDBOX:
        after = f"{format_dollars(balance)} of practice money, always"
    lines.append(_columns("total", format_dollars(total)) + f"  balance       {after}")
    return lines


def _page_text(plan: Plan) -> str:
    """What stands on the pages: 18 candidates and 2 controls, less on pages that ask again."""
    asked = {sum(not item.role.is_gold for item in page) for page in plan.pages}
    least, most = min(asked), max(asked)
    return f"{most if least == most else f'{least} to {most}'} candidates + 2 controls"


def _columns(label: str, value: str) -> str:
    return f"  {label:<13} {value:>14}"


def check_money(
    settings: Settings, campaign: Campaign, total: int, balance: int, bills: Sequence[tuple[str, Bill]]
) -> None:
    """Refuse a bill above the maximum, below the wage floor or beyond the balance.

    Raises:
        UsageError: the total exceeds ``max_cost_cents``, or a reward pays less an hour than the floor.
        FundsError: the total exceeds the balance.
    """
    if campaign.max_cost_cents is not None and total > campaign.max_cost_cents:
        raise UsageError(
            f"the bill is {format_dollars(total)}, above --max-cost {format_dollars(campaign.max_cost_cents)}; "
            "raise it, or ask fewer pairs with --limit"
        )
    floor = settings.wage_floor_cents
    if floor is None:
        floor = WAGE_FLOOR_CENTS_PER_HOUR[campaign.environment]
    for _, part in bills:
        if part.hourly_cents < floor:
            raise UsageError(
                f"a reward of {format_dollars(part.reward_cents)} at {part.estimate_s} s a HIT is "
                f"{format_dollars(part.hourly_cents)} an hour, below the wage floor of {format_dollars(floor)}; "
                "raise --reward, or set wage_floor_cents in [crowd] of mitl.toml"
            )
    if total > balance:
        raise FundsError(
            f"the bill is {format_dollars(total)}, but the balance is {format_dollars(balance)}; "
            "raise the budget with `mitl crowd budget`, or ask fewer pairs with --limit"
        )

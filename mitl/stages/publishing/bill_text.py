"""The bill, line by line, as it is printed before anything is posted."""

from __future__ import annotations

from mitl.crowd.endpoint import Endpoint
from mitl.hits.pricing import fee_rule, format_dollars
from mitl.records import Environment, several
from mitl.settings import Settings
from mitl.stages.publishing.bill import Part, Quote
from mitl.stages.publishing.campaign import Campaign
from mitl.stages.publishing.planning import Plan
from mitl.stages.publishing.purse import Purse


def bill_text(
    settings: Settings,
    campaign: Campaign,
    plan: Plan,
    quote: Quote,
    endpoint: Endpoint,
    balance: int,
    purse: Purse,
) -> list[str]:
    """What would be posted, what it costs and pays, and what is left then."""
    pilot = " · pilot" if campaign.pilot is not None and plan.fresh else ""
    lines = [
        f"{campaign.environment} · template {campaign.template}{pilot} · seed {settings.seed} · {endpoint.url}",
        *_pages(plan),
    ]
    return lines + price_lines(quote, campaign.environment, balance, purse, charges_fee=endpoint.charges_fee)


def price_lines(
    quote: Quote, environment: Environment, balance: int, purse: Purse, *, charges_fee: bool
) -> list[str]:
    """What each price group costs and pays, the total, and what is left of balance and ceiling then."""
    lines = []
    for part in quote.parts:
        if len(quote.parts) > 1:
            lines.append(f"  {part.name}: {_count(part.bill.hits, 'HIT')}")
        lines += part_lines(part, charges_fee=charges_fee)
    if len(quote.parts) > 1:
        lines.append(
            _columns("rewards in all", format_dollars(quote.rewards_cents))
            + _columns("fees in all", format_dollars(quote.fees_cents))
        )
    total = quote.total_cents
    after = f"{format_dollars(balance)} → {format_dollars(balance - total)}"
    if environment is Environment.SANDBOX:
        after = f"{format_dollars(balance)} of practice money, always"
    lines.append(_columns("total", format_dollars(total)) + f"  {'balance':<14} {after}")
    if quote.posted_cents:
        lines.append(
            _columns("posted before", format_dollars(quote.posted_cents))
            + _columns("whole bill", format_dollars(quote.whole_cents))
            + " (as it was confirmed)"
        )
    return lines + _ceiling(quote, purse)


def again_lines(again: int, leftover: int) -> list[str]:
    """How many of the HITs are not asked for the first time, or were planned before."""
    lines = []
    if again:
        lines.append(f"  {again:,} of the HITs ask again what could not be used")
    if leftover:
        lines.append(f"  {leftover:,} of the HITs were planned by an earlier run and not posted")
    return lines


def part_lines(part: Part, *, charges_fee: bool) -> list[str]:
    """What HITs of one price cost and pay: assignments, reward, wage, rewards, fee by rule."""
    bill = part.bill
    return [
        _columns("assignments", f"{bill.submissions:,}")
        + f"  ({_count(bill.hits, 'HIT')} × {_count(bill.assignments, 'worker')})",
        _columns("reward", format_dollars(bill.reward_cents))
        + _columns("an hour", format_dollars(bill.hourly_cents))
        + f" at {bill.estimate_s:,} s a HIT ({part.note})",
        _columns("rewards", format_dollars(bill.rewards_cents))
        + _columns("fee", format_dollars(bill.fees_cents))
        + f" ({fee_rule(bill, charges_fee=charges_fee)})",
    ]


def _pages(plan: Plan) -> list[str]:
    filled = f"; last filled with {_count(plan.n_repeats, 'repeat')}" if plan.n_repeats else ""
    if plan.n_overlap:
        filled += f"; {several(plan.n_overlap, 'pair')} asked of a second worker too"
    asked = {sum(not item.role.is_gold for item in page) for page in plan.pages}
    least, most = min(asked), max(asked)
    on_page = f"{most if least == most else f'{least} to {most}'} candidates + 2 controls"
    head = (
        _columns("pairs", f"{plan.n_pairs:,}")
        + _columns("HITs", f"{plan.n_hits:,}")
        + f" ({on_page}{filled})"
    )
    lines = [head, *again_lines(len(plan.again), len(plan.leftover))]
    if plan.out:
        lines.append(
            f"  the limit counts {sum(stored.asked for stored in plan.out):,} pairs that are out "
            f"({', '.join(stored.name for stored in plan.out)})"
        )
    return lines


def _ceiling(quote: Quote, purse: Purse) -> list[str]:
    left = purse.left()
    if purse.ceiling_cents is None or left is None:
        return []
    return [
        _columns("ceiling", format_dollars(purse.ceiling_cents))
        + _columns("left then", format_dollars(left - quote.new_cents))
        + f" ({format_dollars(purse.committed())} spent or promised before)"
    ]


def _columns(label: str, value: str) -> str:
    return f"  {label:<14} {value:>13}"


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"

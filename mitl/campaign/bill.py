"""The bill of a plan: what each group of HITs costs and pays an hour, whether it may be posted, and how it is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mitl.campaign.kinds.protocol import Estimate, Plan, Request, Wording, columns
from mitl.campaign.spending import SpendingLimit
from mitl.core.pricing import Bill, bill, fee_rule, format_dollars, reward_for_floor
from mitl.crowd.wages import floor_cents
from mitl.db.store.hits import BatchRow
from mitl.errors import FundsError, UsageError
from mitl.hits.templates import HitTemplate
from mitl.records import Environment, several
from mitl.settings import PRICING_FLOOR_CENTS_PER_HOUR, Settings

NEW = "new batch"


@dataclass(frozen=True, slots=True)
class Terms:
    """What the HITs of a new batch are posted under."""

    template: HitTemplate
    reward_cents: int
    assignments: int
    estimate: Estimate

    @property
    def wording(self) -> Wording:
        """In what words it asks, with the time that its pages name."""
        return Wording(self.template, self.estimate.seconds)


@dataclass(frozen=True, slots=True)
class Part:
    """HITs of one price."""

    name: str
    """``new batch``, or the earlier batch that they belong to."""
    bill: Bill
    note: str
    """Where the estimate comes from."""
    n_planned: int = 0
    """HITs that an earlier run planned; their cost is promised already."""


@dataclass(frozen=True, slots=True)
class Quote:
    """The whole bill."""

    parts: tuple[Part, ...]
    posted_cents: int = 0
    """What the interrupted run that planned these HITs has posted of the same bill."""

    @property
    def rewards_cents(self) -> int:
        """All rewards."""
        return sum(part.bill.rewards_cents for part in self.parts)

    @property
    def fees_cents(self) -> int:
        """All fees."""
        return sum(part.bill.fees_cents for part in self.parts)

    @property
    def total_cents(self) -> int:
        """What posting costs if every assignment is approved."""
        return self.rewards_cents + self.fees_cents

    @property
    def whole_cents(self) -> int:
        """The bill of the whole plan, however often its run was interrupted; what its bounds are held against."""
        return self.posted_cents + self.total_cents

    @property
    def submissions(self) -> int:
        """Assignments of all HITs."""
        return sum(part.bill.submissions for part in self.parts)

    @property
    def new_cents(self) -> int:
        """What is not promised yet: the total without the HITs that an earlier run planned."""
        return sum(
            (part.bill.hits - part.n_planned) * part.bill.assignments * part.bill.each_cents
            for part in self.parts
        )


def terms_of(settings: Settings, request: Request, template: HitTemplate, estimate: Estimate) -> Terms:
    """The terms of a new batch; the reward as asked for, else the least that pays the floor at the estimate."""
    reward = request.reward_cents
    if reward is None:
        floor = settings.wage_floor_cents or PRICING_FLOOR_CENTS_PER_HOUR
        reward = reward_for_floor(floor, estimate.seconds)
    return Terms(template, reward, request.assignments, estimate)


def make_quote(
    plan: Plan,
    terms: Terms,
    batches: Mapping[int, BatchRow],
    estimates: Mapping[int, int],
    *,
    charges_fee: bool,
) -> Quote:
    """A part for each group of HITs with one price: the new batch's, then those of earlier batches.

    Args:
        estimates: seconds a HIT of each earlier batch.
    """
    parts = []
    if plan.fresh:
        new = bill(
            len(plan.fresh),
            assignments=terms.assignments,
            reward_cents=terms.reward_cents,
            estimate_s=terms.estimate.seconds,
            charges_fee=charges_fee,
        )
        parts.append(Part(NEW, new, terms.estimate.note))
    planned = Counter((hit.batch_id, hit.assignments) for hit in plan.left.hits)
    again = Counter((one.replaces.batch_id, one.assignments) for one in plan.again)
    for batch_id, assignments in sorted(planned.keys() | again.keys()):
        batch = batches[batch_id]
        count = planned[batch_id, assignments]
        priced = bill(
            count + again[batch_id, assignments],
            assignments=assignments,
            reward_cents=batch.reward_cents,
            estimate_s=estimates[batch_id],
            charges_fee=charges_fee,
        )
        parts.append(Part(batch.name, priced, "as when it was planned", count))
    total = sum(part.bill.rewards_cents + part.bill.fees_cents for part in parts)
    return Quote(tuple(parts), max(sum(stored.cents for stored in plan.left.plans) - total, 0))


def require_confirmed(
    quote: Quote, confirm: Callable[[int], bool], repeats: Callable[[int], bool] | None
) -> None:
    """Ask whether to go on with a bill.

    Args:
        confirm: is shown the total in cents.
        repeats: is asked first about the whole bill of an interrupted run: whether this command confirms it as that
            run's did.

    Raises:
        UsageError: no.
    """
    repeated = repeats is not None and quote.posted_cents > 0 and repeats(quote.whole_cents)
    if not repeated and not confirm(quote.total_cents):
        raise UsageError("the total was not confirmed; nothing was posted")


def check_money(
    settings: Settings, request: Request, quote: Quote, balance: int, limit: SpendingLimit
) -> None:
    """Refuse a bill above the maximum, below the wage floor, beyond the ceiling or beyond the balance.

    Raises:
        UsageError: the total exceeds ``max_cost_cents``, or a reward pays less an hour than the floor.
        FundsError: the total exceeds the balance, or with what is spent and promised the ceiling.
    """
    total, whole = quote.total_cents, quote.whole_cents
    if request.max_cost_cents is not None and whole > request.max_cost_cents:
        also = " in all, with what an interrupted run posted of it" if quote.posted_cents else ""
        raise UsageError(
            f"the bill is {format_dollars(whole)}{also}, above --max-cost {format_dollars(request.max_cost_cents)}; "
            f"raise it{'' if quote.posted_cents else ', or ask fewer pairs with --limit'}"
        )
    floor = floor_cents(settings, request.environment)
    for part in quote.parts:
        if part.bill.hourly_cents < floor:
            raise UsageError(
                f"a reward of {format_dollars(part.bill.reward_cents)} at {part.bill.estimate_s} s a HIT is "
                f"{format_dollars(part.bill.hourly_cents)} an hour, below the wage floor of {format_dollars(floor)}; "
                "raise --reward, or set wage_floor_cents in [crowd] of mitl.toml"
            )
    limit.require(quote.new_cents, "the bill")
    limit.recheck()
    if total > balance:
        raise FundsError(
            f"the bill is {format_dollars(total)}, but the balance is {format_dollars(balance)}; "
            "raise the budget with `mitl crowd budget`, or ask fewer pairs with --limit"
        )


def bill_text(
    quote: Quote, environment: Environment, balance: int, limit: SpendingLimit, *, charges_fee: bool
) -> list[str]:
    """What each price group costs and pays, the total, and what is left of balance and ceiling then."""
    lines = []
    for part in quote.parts:
        if len(quote.parts) > 1:
            lines.append(f"  {part.name}: {several(part.bill.hits, 'HIT')}")
        lines += part_lines(part, charges_fee=charges_fee)
    if len(quote.parts) > 1:
        lines.append(
            columns("rewards in all", format_dollars(quote.rewards_cents))
            + columns("fees in all", format_dollars(quote.fees_cents))
        )
    total = quote.total_cents
    after = f"{format_dollars(balance)} → {format_dollars(balance - total)}"
    if environment is Environment.SANDBOX:
        after = f"{format_dollars(balance)} of practice money, always"
    lines.append(columns("total", format_dollars(total)) + f"  {'balance':<14} {after}")
    if quote.posted_cents:
        lines.append(
            columns("posted before", format_dollars(quote.posted_cents))
            + columns("whole bill", format_dollars(quote.whole_cents))
            + " (as it was confirmed)"
        )
    return lines + _ceiling(quote, limit)


def part_lines(part: Part, *, charges_fee: bool) -> list[str]:
    """What HITs of one price cost and pay: assignments, reward, wage, rewards, fee by rule."""
    bill = part.bill
    return [
        columns("assignments", f"{bill.submissions:,}")
        + f"  ({several(bill.hits, 'HIT')} × {several(bill.assignments, 'worker')})",
        columns("reward", format_dollars(bill.reward_cents))
        + columns("an hour", format_dollars(bill.hourly_cents))
        + f" at {bill.estimate_s:,} s a HIT ({part.note})",
        columns("rewards", format_dollars(bill.rewards_cents))
        + columns("fee", format_dollars(bill.fees_cents))
        + f" ({fee_rule(bill, charges_fee=charges_fee)})",
    ]


def _ceiling(quote: Quote, limit: SpendingLimit) -> list[str]:
    left = limit.left()
    if limit.ceiling_cents is None or left is None:
        return []
    return [
        columns("ceiling", format_dollars(limit.ceiling_cents))
        + columns("left then", format_dollars(left - quote.new_cents))
        + f" ({format_dollars(limit.committed())} spent or promised before)"
    ]

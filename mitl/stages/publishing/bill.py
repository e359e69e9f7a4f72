"""The bill of a plan: what each group of HITs costs, what it pays an hour, and whether it may be posted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Protocol

from mitl.db.store.hits import BatchRow, HitRow
from mitl.errors import FundsError, UsageError
from mitl.hits.pricing import Bill, bill, format_dollars, reward_for_floor
from mitl.hits.templates import HitTemplate
from mitl.settings import PRICING_FLOOR_CENTS_PER_HOUR, Settings
from mitl.stages.paying.wages import floor_cents
from mitl.stages.publishing.campaign import Campaign
from mitl.stages.publishing.pages import Wording
from mitl.stages.publishing.pilot import Estimate
from mitl.stages.publishing.purse import Purse

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


def terms_of(settings: Settings, campaign: Campaign, template: HitTemplate, estimate: Estimate) -> Terms:
    """The terms of a new batch; the reward as asked for, else the least that pays the floor at the estimate."""
    reward = campaign.reward_cents
    if reward is None:
        floor = settings.wage_floor_cents or PRICING_FLOOR_CENTS_PER_HOUR
        reward = reward_for_floor(floor, estimate.seconds)
    return Terms(template, reward, campaign.assignments, estimate)


class Again(Protocol):
    """A HIT that asks what another HIT could not bring."""

    @property
    def replaces(self) -> HitRow:
        """That HIT, whose batch's terms hold."""

    @property
    def assignments(self) -> int:
        """Workers who are still wanted."""


class Planned(Protocol):
    """A plan of whatever is asked, pairs or comparisons."""

    @property
    def fresh(self) -> Sized:
        """The pages of the new batch."""

    @property
    def leftover(self) -> Sequence[HitRow]:
        """HITs that an earlier run planned and did not post."""

    @property
    def again(self) -> Sequence[Again]:
        """HITs that replace others."""


def make_quote(
    plan: Planned,
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
    planned = Counter((hit.batch_id, hit.assignments) for hit in plan.leftover)
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
    return Quote(tuple(parts))


def check_money(settings: Settings, campaign: Campaign, quote: Quote, balance: int, purse: Purse) -> None:
    """Refuse a bill above the maximum, below the wage floor, beyond the ceiling or beyond the balance.

    Raises:
        UsageError: the total exceeds ``max_cost_cents``, or a reward pays less an hour than the floor.
        FundsError: the total exceeds the balance, or with what is spent and promised the ceiling.
    """
    total = quote.total_cents
    if campaign.max_cost_cents is not None and total > campaign.max_cost_cents:
        raise UsageError(
            f"the bill is {format_dollars(total)}, above --max-cost {format_dollars(campaign.max_cost_cents)}; "
            "raise it, or ask fewer pairs with --limit"
        )
    floor = floor_cents(settings, campaign.environment)
    for part in quote.parts:
        if part.bill.hourly_cents < floor:
            raise UsageError(
                f"a reward of {format_dollars(part.bill.reward_cents)} at {part.bill.estimate_s} s a HIT is "
                f"{format_dollars(part.bill.hourly_cents)} an hour, below the wage floor of {format_dollars(floor)}; "
                "raise --reward, or set wage_floor_cents in [crowd] of mitl.toml"
            )
    purse.require(quote.new_cents, "the bill")
    purse.recheck()
    if total > balance:
        raise FundsError(
            f"the bill is {format_dollars(total)}, but the balance is {format_dollars(balance)}; "
            "raise the budget with `mitl crowd budget`, or ask fewer pairs with --limit"
        )

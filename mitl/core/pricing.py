"""What a batch costs, in integer cents, and what it pays a worker."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from mitl.core.formats import percent
from mitl.errors import UsageError
from mitl.records import several

REWARD_STEP_CENTS = 5
"""Rewards are rounded up to a multiple of this."""

_FEE_PERCENT = 20
_FEE_PERCENT_MANY = 40
_MANY_ASSIGNMENTS = 10
_LEAST_FEE_CENTS = 1
# A comma only before three digits: `0,20` means 20 cents where people write a comma before the cents.
_DOLLARS = re.compile(r"\$?([0-9]+|[0-9]{1,3}(?:,[0-9]{3})+)(?:\.([0-9]{1,2}))?")

_MOST_DIGITS = 9
"""Of whole dollars; sums of such amounts fit into a database's numbers."""


@dataclass(frozen=True, slots=True)
class Bill:
    """What a batch costs if every assignment is approved."""

    hits: int
    assignments: int
    """Different workers per HIT."""
    reward_cents: int
    """For one assignment."""
    estimate_s: int
    """Expected working time of one assignment."""
    fee_cents: int
    """What the endpoint charges for one assignment on top of the reward."""

    def __post_init__(self) -> None:
        assert self.hits >= 0 and self.assignments >= 1 and self.estimate_s > 0
        assert self.reward_cents >= 0 and self.fee_cents >= 0

    @property
    def submissions(self) -> int:
        """Assignments of all HITs."""
        return self.hits * self.assignments

    @property
    def each_cents(self) -> int:
        """One assignment, reward and fee."""
        return self.reward_cents + self.fee_cents

    @property
    def rewards_cents(self) -> int:
        """All rewards."""
        return self.submissions * self.reward_cents

    @property
    def fees_cents(self) -> int:
        """All fees."""
        return self.submissions * self.fee_cents

    @property
    def total_cents(self) -> int:
        """Rewards and fees."""
        return self.rewards_cents + self.fees_cents

    @property
    def hourly_cents(self) -> int:
        """What an hour of work pays at the estimate, rounded down: never promise more than is paid."""
        return self.reward_cents * 3600 // self.estimate_s


def bill(hits: int, *, assignments: int, reward_cents: int, estimate_s: int, charges_fee: bool) -> Bill:
    """The bill of ``hits`` HITs; ``charges_fee`` says whether the endpoint takes MTurk's fee."""
    fee = fee_cents(reward_cents, assignments) if charges_fee else 0
    return Bill(hits, assignments, reward_cents, estimate_s, fee)


def fee_cents(reward_cents: int, assignments: int) -> int:
    """MTurk's fee for one assignment: 20 %, from 10 assignments 40 %; rounded half up, at least a cent."""
    percent = _FEE_PERCENT_MANY if assignments >= _MANY_ASSIGNMENTS else _FEE_PERCENT
    return max(_LEAST_FEE_CENTS, (reward_cents * percent + 50) // 100)


def fee_rule(bill: Bill, *, charges_fee: bool) -> str:
    """The rule behind a bill's fees, in words."""
    if not charges_fee:
        return "this endpoint charges none"
    if bill.assignments >= _MANY_ASSIGNMENTS:
        rule = f"{_FEE_PERCENT_MANY} % of each reward, since a HIT asks {_MANY_ASSIGNMENTS} workers or more"
    else:
        rule = f"{_FEE_PERCENT} % of each reward"
    return f"{rule}, at least 1 cent: {format_dollars(bill.fee_cents)} each"


def reward_for_floor(floor_cents_per_hour: int, estimate_s: int) -> int:
    """The least reward in steps of 5 cents that pays the floor at the estimated working time."""
    step_s = REWARD_STEP_CENTS * 3600
    return -(-floor_cents_per_hour * estimate_s // step_s) * REWARD_STEP_CENTS


@dataclass(frozen=True, slots=True)
class LostPages:
    """Pages that were answered in vain, and what that makes of a plan: they are paid, and asked again.

    What is asked again may be lost again, so a page is expected to be asked 1 / (1 - ``share``) times.
    """

    answered: int = 0
    """Submissions about pairs that are settled."""
    lost: int = 0
    """Those of which no answer can be used."""
    same_worker: float = 0.0
    """How likely two of these submissions are by one worker, 0 to 1: the squares of the workers' shares together."""

    @property
    def so_far(self) -> float:
        """The share of the answered pages that was lost, 0 to 1; 0 before there is one."""
        return self.lost / self.answered if self.answered else 0.0

    @property
    def share(self) -> float:
        """Expected of further pages, 0 to `MOST_LOST`; `ASSUMED_LOST` while too few are answered."""
        return min(self.so_far, MOST_LOST) if self.is_known else ASSUMED_LOST

    @property
    def is_known(self) -> bool:
        """Whether enough pages are answered to go by."""
        return self.answered >= FEWEST_PAGES

    def hits(self, pages: float) -> int:
        """HITs that are expected to be paid until so many pages are answered usably; pages may be broken."""
        return math.ceil(pages / (1 - self.share) - 1e-9)

    @property
    def counted(self) -> str:
        """The share so far, in words."""
        pages = several(self.answered, "answered page")
        return f"of {pages} {self.lost:,} had to be asked again: {percent(self.so_far, 0)}"

    @property
    def words(self) -> str:
        """What the expected share rests on."""
        if self.is_known:
            return self.counted
        few = f"{several(self.answered, 'page')} so far" if self.answered else "no page so far"
        return f"{100 * ASSUMED_LOST:.0f} % of the pages are assumed to be asked again ({few})"


FEWEST_PAGES = 20
"""Answered pages below which their losses say too little."""
ASSUMED_LOST = 0.2
"""Share of lost pages until then."""
MOST_LOST = 0.9
"""Share that is expected at most, whatever was lost so far."""
NO_PAGE_LOST = LostPages(FEWEST_PAGES)


def format_dollars(cents: int) -> str:
    """``$1,234.50``; ``-$0.05`` below zero."""
    dollars, rest = divmod(abs(cents), 100)
    return f"{'-' if cents < 0 else ''}${dollars:,}.{rest:02d}"


def parse_dollars(text: str) -> int:
    """Cents of an amount as people write it: ``1``, ``1.5``, ``1.00``, ``$1,234.50``.

    Raises:
        UsageError: it is not an amount of dollars with at most two decimals, or more than any budget.
    """
    match = _DOLLARS.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"{text!r} is not an amount of dollars; write it as 1.00, with a point before the cents"
        )
    whole, decimals = match[1].replace(",", "").lstrip("0") or "0", (match[2] or "").ljust(2, "0")
    if len(whole) > _MOST_DIGITS:
        raise UsageError(f"{text[:40]!r} is over $999,999,999.99, the most that can be given")
    return int(whole) * 100 + int(decimals)


def amount(cents: int) -> str:
    """Decimal dollars, as panels read them: ``1.50``."""
    assert cents >= 0, "nobody is owed less than nothing"
    return f"{cents // 100}.{cents % 100:02d}"

"""The bill of a plan: what it costs, what it pays an hour, and the ceiling that no command may pass.

Committed is what the ledger has booked and what is promised: assignments of HITs that are planned, out or not settled,
and calls that are journalled and not made (bonuses, additional assignments). So whoever plans something that costs asks
``SpendingLimit.require`` *first, in the transaction that stores the plan*; from then on it is committed, and
``SpendingLimit.recheck`` before each window of calls sees whether it still fits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sqlalchemy.orm import Session

from mitl.campaign.kinds.protocol import Plan, PostedBatch, Request, Wording, WorkingTime, columns
from mitl.core.pricing import Bill, bill, fee_rule, format_dollars, reward_for_floor
from mitl.crowd.paying import floor_cents
from mitl.db.store import commitments, journal
from mitl.db.store import hits as hit_store
from mitl.db.store.hits import BatchRow
from mitl.errors import FundsError, UsageError
from mitl.hits.templates import HitTemplate
from mitl.records import Environment, JudgementSource, several
from mitl.settings import PRICING_FLOOR_CENTS_PER_HOUR, Settings

_RAISE = "raise ceiling_cents in [crowd] of mitl.toml"


def expects_fee(session: Session, settings: Settings, environment: Environment) -> bool:
    """Whether to reckon with a fee where no endpoint is asked: mitl's servers say who they are, and take none."""
    posted = [
        batch.server_id
        for batch in hit_store.batches(session, environment)
        if batch.source is JudgementSource.CROWD
    ]
    known = posted[-1] if posted else settings.endpoint_server_id
    return settings.endpoint is not None and known is None


def committed_cents(session: Session, environment: Environment, *, charges_fee: bool) -> int:
    """Cents spent and promised in an environment: all batches, fees and bonuses together.

    Args:
        charges_fee: whether the endpoint takes a fee, so that promises hold it; what is booked holds it already.
    """
    promised = sum(
        promise.cents(charges_fee=charges_fee)
        for promise in (
            *commitments.promises(session, environment),
            *commitments.extension_promises(session, environment),
        )
    )
    spent = sum(journal.spent(session, environment).values())
    return spent + promised + commitments.promised_bonus_cents(session, environment)


class SpendingLimit:
    """The money of one environment: what may still be promised, and a check before each window of calls."""

    def __init__(
        self, session: Session, settings: Settings, environment: Environment, *, charges_fee: bool
    ) -> None:
        self._session, self.environment, self.charges_fee = session, environment, charges_fee
        self.ceiling_cents = settings.ceiling_cents
        """The most that may be spent and promised; None sets no limit."""

    def committed(self) -> int:
        """Cents spent and promised so far."""
        return committed_cents(self._session, self.environment, charges_fee=self.charges_fee)

    def left(self) -> int | None:
        """Cents that may still be promised, never below 0; None without a ceiling."""
        return None if self.ceiling_cents is None else max(self.ceiling_cents - self.committed(), 0)

    def require(self, cents: int, what: str) -> None:
        """Refuse to promise ``cents`` more where that would pass the ceiling.

        Args:
            cents: what is new, fees included; what is stored or journalled as planned counts already.
            what: as the message names it: ``the bill``.

        Raises:
            FundsError: it would.
        """
        if self.ceiling_cents is None:
            return
        committed = self.committed()
        if cents > 0 and committed + cents > self.ceiling_cents:
            raise FundsError(
                f"{what} is {format_dollars(cents)}, but {format_dollars(committed)} of the ceiling of "
                f"{format_dollars(self.ceiling_cents)} on {self.environment} are spent or promised, which leaves "
                f"{format_dollars(max(self.ceiling_cents - committed, 0))}; {_RAISE}, or ask for less"
            )

    def require_balance(self, cents: int, balance: int, what: str, instead: str) -> None:
        """Refuse to promise more than the server's balance.

        Args:
            what: as the message names it: ``the bill``.
            instead: what else to do than to raise the budget, which only real money allows.

        Raises:
            FundsError: it is more.
        """
        if cents <= balance:
            return
        lacks = f"{what} is {format_dollars(cents)}, but the balance is {format_dollars(balance)}"
        if self.environment is Environment.SANDBOX:
            raise FundsError(f"{lacks} of practice money, always; {instead}")
        raise FundsError(f"{lacks}; raise the budget with `mitl crowd budget --set`, or {instead}")

    def recheck(self) -> None:
        """Before a window of calls: what is planned must still fit, though others may have spent meanwhile.

        Raises:
            FundsError: what is spent and promised is above the ceiling.
        """
        if self.ceiling_cents is None:
            return
        committed = self.committed()
        if committed > self.ceiling_cents:
            raise FundsError(
                f"{format_dollars(committed)} are spent or promised on {self.environment}, above the ceiling of "
                f"{format_dollars(self.ceiling_cents)}, so no further call is made; what is planned is kept; {_RAISE}, "
                "and run the command again"
            )


NEW = "new batch"


@dataclass(frozen=True, slots=True)
class PostingTerms:
    """What the HITs of a new batch are posted under."""

    template: HitTemplate
    reward_cents: int
    assignments: int
    estimate: WorkingTime

    @property
    def wording(self) -> Wording:
        """In what words it asks, with the time that its pages name."""
        return Wording(self.template, self.estimate.seconds)


@dataclass(frozen=True, slots=True)
class BillPart:
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

    parts: tuple[BillPart, ...]
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
        """The bill of the whole plan, however often its run was interrupted; what its bounds are compared with."""
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


def terms_of(
    settings: Settings, request: Request, template: HitTemplate, estimate: WorkingTime
) -> PostingTerms:
    """The terms of a new batch; the reward as asked for, else the least that pays the floor at the estimate."""
    reward = request.reward_cents
    if reward is None:
        floor = settings.wage_floor_cents or PRICING_FLOOR_CENTS_PER_HOUR
        reward = reward_for_floor(floor, estimate.seconds)
    return PostingTerms(template, reward, request.assignments, estimate)


def reward_again(batch: BatchRow, asked_cents: int | None) -> int:
    """What a HIT pays that asks again what one of the batch asked: what the command line names, else as before."""
    return batch.reward_cents if asked_cents is None else asked_cents


def make_quote(
    plan: Plan,
    terms: PostingTerms,
    earlier: Mapping[int, PostedBatch],
    *,
    charges_fee: bool,
    asked_cents: int | None = None,
) -> Quote:
    """A part for each group of HITs with one price: the new batch's, then those of earlier batches.

    Args:
        earlier: by their rows.
        asked_cents: the reward that the command line names.
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
        parts.append(BillPart(NEW, new, terms.estimate.note))
    planned = Counter(
        (hit.batch_id, earlier[hit.batch_id].row.reward_cents, hit.assignments) for hit in plan.left.hits
    )
    again = Counter(
        (old, reward_again(earlier[old].row, asked_cents), page.assignments)
        for page in plan.again
        for old in [page.replaces.batch_id]
    )
    for key in sorted(planned.keys() | again.keys()):
        batch_id, reward, assignments = key
        batch, wording = earlier[batch_id].row, earlier[batch_id].wording
        priced = bill(
            planned[key] + again[key],
            assignments=assignments,
            reward_cents=reward,
            estimate_s=wording.estimate_s,
            charges_fee=charges_fee,
        )
        note = "as when it was planned"
        if reward != batch.reward_cents:
            note += f"; asked again at --reward, no longer at {format_dollars(batch.reward_cents)}"
        elif asked_cents not in (None, reward):
            note += "; --reward is for what is planned after it"
        parts.append(BillPart(batch.name, priced, note, planned[key]))
    quote = Quote(tuple(parts))
    posted_cents = sum(stored.cents for stored in plan.left.plans) - quote.total_cents
    return replace(quote, posted_cents=max(posted_cents, 0))


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
        left = " (a round: what its --budget leaves)" if request.own_words.get("chosen") else ""
        raise UsageError(
            f"the bill is {format_dollars(whole)}{also}, above --max-cost {format_dollars(request.max_cost_cents)}"
            f"{left}; raise it{'' if quote.posted_cents else ', or ask less with --limit'}"
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
    limit.require_balance(
        total, balance, "the bill", "ask about fewer pairs (--limit, or a round's --budget)"
    )


def bill_text(quote: Quote, balance: int, limit: SpendingLimit) -> list[str]:
    """What each price group costs and pays, the total, and what is left of balance and ceiling then."""
    lines = []
    for part in quote.parts:
        if len(quote.parts) > 1:
            lines.append(f"  {part.name}: {several(part.bill.hits, 'HIT')}")
        lines += part_lines(part, charges_fee=limit.charges_fee)
    if len(quote.parts) > 1:
        lines.append(
            columns("rewards in all", format_dollars(quote.rewards_cents))
            + columns("fees in all", format_dollars(quote.fees_cents))
        )
    total = quote.total_cents
    after = f"{format_dollars(balance)} → {format_dollars(balance - total)}"
    if limit.environment is Environment.SANDBOX:
        after = f"{format_dollars(balance)} of practice money, always"
    lines.append(columns("total", format_dollars(total)) + f"  {'balance':<14} {after}")
    if quote.posted_cents:
        lines.append(
            columns("posted before", format_dollars(quote.posted_cents))
            + columns("whole bill", format_dollars(quote.whole_cents))
            + " (as it was confirmed)"
        )
    left = limit.left()
    if limit.ceiling_cents is not None and left is not None:
        lines.append(
            columns("ceiling", format_dollars(limit.ceiling_cents))
            + columns("left then", format_dollars(left - quote.new_cents))
            + f" ({format_dollars(limit.committed())} spent or promised before)"
        )
    return lines


def part_lines(part: BillPart, *, charges_fee: bool) -> list[str]:
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

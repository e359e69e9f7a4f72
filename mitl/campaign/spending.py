"""What a project has committed itself to pay, and the ceiling that no command may pass.

Committed is what the ledger has booked and what is promised: assignments of HITs that are planned, out or not
settled, and calls that are journalled and not made (bonuses, additional assignments). So whoever plans something
that costs asks ``SpendingLimit.require`` *first, in the transaction that stores the plan*; from then on it is committed
and ``SpendingLimit.recheck`` before each window of calls sees whether it still fits.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from mitl.core.pricing import fee_cents, format_dollars
from mitl.db.store import commitments, journal
from mitl.errors import FundsError
from mitl.records import Environment
from mitl.settings import Settings

_RAISE = "raise ceiling_cents in [crowd] of mitl.toml"


def committed_cents(session: Session, environment: Environment, *, charges_fee: bool) -> int:
    """Cents spent and promised in an environment: all batches, fees and bonuses together.

    Args:
        charges_fee: whether the endpoint takes a fee, so that promises hold it; what is booked holds it already.
    """
    promised = sum(
        promise.count
        * (
            promise.reward_cents
            + (fee_cents(promise.reward_cents, promise.hit_assignments) if charges_fee else 0)
        )
        for promise in commitments.promises(session, environment)
    )
    spent = sum(journal.spent(session, environment).values())
    return spent + promised + commitments.promised_calls_cents(session, environment)


class SpendingLimit:
    """The money of one environment: what may still be promised, and a check before each window of calls."""

    def __init__(
        self, session: Session, settings: Settings, environment: Environment, *, charges_fee: bool
    ) -> None:
        self._session, self._environment, self._charges_fee = session, environment, charges_fee
        self.ceiling_cents = settings.ceiling_cents
        """The most that may be spent and promised; None sets no limit."""

    def committed(self) -> int:
        """Cents spent and promised so far."""
        return committed_cents(self._session, self._environment, charges_fee=self._charges_fee)

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
                f"{format_dollars(self.ceiling_cents)} on {self._environment} are spent or promised, which leaves "
                f"{format_dollars(max(self.ceiling_cents - committed, 0))}; {_RAISE}, or ask for less"
            )

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
                f"{format_dollars(committed)} are spent or promised on {self._environment}, above the ceiling of "
                f"{format_dollars(self.ceiling_cents)}, so no further call is made; what is planned is kept; {_RAISE}, "
                "and run the command again"
            )

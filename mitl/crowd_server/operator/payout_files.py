"""Payment files: what panels take for a bulk payment, and tables that a spreadsheet can open without harm."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mitl.core.formats import csv_text
from mitl.core.pricing import amount
from mitl.crowd_server.store.reports import Payee

CURRENCY = "USD"
MESSAGE = "Thank you for your work."


@dataclass(frozen=True, slots=True)
class PayFormat:
    """One kind of payment file."""

    name: str
    words: str
    """What it is, for the operator."""
    header: Sequence[str]
    """Empty where the panel wants none."""
    per_file: int | None
    """The most lines that the panel takes at once."""
    needs_id: bool
    """Whether people whose panel id was deleted are left out."""
    row: Callable[[Payee, int], Sequence[object]]
    """One line for a person and the cents to pay them."""


PROLIFIC = PayFormat(
    name="prolific",
    words="Prolific's bulk bonuses: participant id and amount",
    header=(),
    per_file=200,
    needs_id=True,
    row=lambda payee, cents: (payee.external_id, amount(cents)),
)
CONNECT = PayFormat(
    name="connect",
    words="Connect: participant id, amount and message, to copy into the project's own template",
    header=("id", "amount", "message"),
    per_file=None,
    needs_id=True,
    row=lambda payee, cents: (payee.external_id, amount(cents), MESSAGE),
)
GENERIC = PayFormat(
    name="generic",
    words="Everything: panel id, worker, approved HITs, rewards, bonuses, amount to pay",
    header=("id", "worker", "approved_hits", "rewards", "bonuses", "amount", "currency"),
    per_file=None,
    needs_id=False,
    row=lambda payee, cents: (
        payee.external_id,
        payee.worker,
        payee.approved,
        amount(payee.reward_cents),
        amount(payee.bonus_cents),
        amount(cents),
        CURRENCY,
    ),
)
CHOICES: dict[str, Callable[[Payee], int]] = {
    "all": lambda payee: payee.total_cents,
    "bonuses": lambda payee: payee.bonus_cents,
}
"""What to pay: everything owed, or the bonuses alone where the panel pays the reward by itself."""


def formats_of(profile: str) -> tuple[PayFormat, ...]:
    """The files that make sense for a panel of this kind."""
    own = {kind.name: kind for kind in (PROLIFIC, CONNECT)}
    return (own[profile], GENERIC) if profile in own else (GENERIC,)


def to_pay(payees: Iterable[Payee], kind: PayFormat, choice: str) -> list[tuple[Payee, int]]:
    """Whom such a file pays how many cents; people who are owed nothing are left out."""
    cents_of = CHOICES[choice]
    return [
        (payee, cents)
        for payee in payees
        if (cents := cents_of(payee)) > 0 and (payee.external_id or not kind.needs_id)
    ]


def parts(lines: Sequence[tuple[Payee, int]], kind: PayFormat) -> list[Sequence[tuple[Payee, int]]]:
    """The lines, split as the panel takes them."""
    size = kind.per_file or max(1, len(lines))
    return [lines[start : start + size] for start in range(0, len(lines), size)]


def pay_file(lines: Sequence[tuple[Payee, int]], kind: PayFormat) -> str:
    """The text of one file."""
    rows = (kind.row(payee, cents) for payee, cents in lines)
    return csv_text([kind.header, *rows] if kind.header else rows)

"""Who is owed what, ``/operator/payments/<environment>``, and the files to take away: bulk payments and safe tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias, TypeVar

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from mitl.core.formats import csv_text
from mitl.core.pricing import amount
from mitl.crowd_server.operator.session import nothing_here, page
from mitl.crowd_server.pages.site import NoticeError, Site, download_headers
from mitl.crowd_server.store import panels, reports
from mitl.crowd_server.store.panels import PanelRow
from mitl.crowd_server.store.reports import LateRow, LedgerRow, Payment
from mitl.records import Environment

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
    row: Callable[[Payment, int], Sequence[object]]
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
CHOICES: dict[str, Callable[[Payment], int]] = {
    "all": lambda payee: payee.total_cents,
    "bonuses": lambda payee: payee.bonus_cents,
}
"""What to pay: everything owed, or the bonuses alone where the panel pays the reward by itself."""


def formats_of(profile: str) -> tuple[PayFormat, ...]:
    """The files that make sense for a panel of this kind."""
    by_name = {kind.name: kind for kind in (PROLIFIC, CONNECT)}
    return (by_name[profile], GENERIC) if profile in by_name else (GENERIC,)


def to_pay(payees: Iterable[Payment], kind: PayFormat, choice: str) -> list[tuple[Payment, int]]:
    """Whom such a file pays how many cents; people who are owed nothing are left out."""
    cents_of = CHOICES[choice]
    return [
        (payee, cents)
        for payee in payees
        if (cents := cents_of(payee)) > 0 and (payee.external_id or not kind.needs_id)
    ]


def parts(lines: Sequence[tuple[Payment, int]], kind: PayFormat) -> list[Sequence[tuple[Payment, int]]]:
    """The lines, split as the panel takes them."""
    size = kind.per_file or max(1, len(lines))
    return [lines[start : start + size] for start in range(0, len(lines), size)]


def pay_file(lines: Sequence[tuple[Payment, int]], kind: PayFormat) -> str:
    """The text of one file."""
    rows = (kind.row(payee, cents) for payee, cents in lines)
    return csv_text([kind.header, *rows] if kind.header else rows)


SHOWN = 500
"""Workers on the page; the file names all."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


RowT = TypeVar("RowT")
Columns: TypeAlias = Mapping[str, Callable[[RowT], object]]
"""The columns of a CSV file: header to value."""
_LEDGER: Columns[LedgerRow] = {
    "number": lambda row: row.id,
    "time": lambda row: f"{row.at:%Y-%m-%dT%H:%M:%SZ}",
    "kind": lambda row: row.kind,
    "hit": lambda row: row.hit,
    "assignment": lambda row: row.assignment,
    "worker": lambda row: row.worker,
    "amount": lambda row: Decimal(row.cents).scaleb(-2),
    "currency": lambda row: CURRENCY,
}
_LATE: Columns[LateRow] = {
    "environment": lambda row: row.environment,
    "received": lambda row: f"{row.received_at:%Y-%m-%dT%H:%M:%SZ}",
    "worker": lambda row: row.worker,
    "panel_id": lambda row: row.external_id,
    "hit": lambda row: row.hit,
    "assignment": lambda row: row.assignment,
    "title": lambda row: row.title,
    "counted": lambda row: row.counted,
    "reward": lambda row: amount(row.due_cents),
    "currency": lambda row: CURRENCY,
}


def _lines(columns: Columns[RowT], rows: Iterable[RowT]) -> str:
    return csv_text([value(row) for value in columns.values()] for row in rows)


@page
def ledger_csv(site: Site, request: Request) -> Response:
    """Every movement of an environment's money, oldest first; sent in portions, however long it is."""
    environment = _environment(request)

    def portions() -> Iterator[str]:
        yield csv_text([tuple(_LEDGER)])
        after = 0
        while True:
            with site.database.read() as connection:
                rows = reports.ledger(connection, environment, after=after)
            if not rows:
                return
            after = rows[-1].id
            yield _lines(_LEDGER, rows)

    headers = download_headers(f"ledger-{environment}.csv")
    return StreamingResponse(portions(), headers=headers, media_type="text/csv")


@page
def payments_csv(site: Site, request: Request) -> Response:
    """What each worker of an environment is owed."""
    environment = _environment(request)
    with site.database.read() as connection:
        rows = reports.payments(connection, environment)
    lines = [GENERIC.header, *(GENERIC.row(row, row.total_cents) for row in rows)]
    return _file(f"payments-{environment}", csv_text(line[1:] for line in lines))  # by the worker's id alone


@page
def panel_csv(site: Site, request: Request) -> Response:
    """One part of a panel's bulk payment: ``format``, ``pay`` (all or bonuses) and ``part`` in the query."""
    with site.database.read() as connection:
        row = panels.find(connection, request.path_params["slug"])
        if row is None:
            raise _no_file()
        payees = reports.payees(connection, row)
    query = request.query_params
    kind = next((kind for kind in formats_of(row.profile) if kind.name == query.get("format")), None)
    choice, part = query.get("pay", ""), query.get("part", "1")
    if kind is None or choice not in CHOICES:
        raise _no_file()
    files = parts(to_pay(payees, kind, choice), kind)
    if not (part.isascii() and part.isdigit() and 1 <= int(part[:9]) <= len(files)):
        raise _no_file()
    name = f"{row.slug}-{kind.name}-{choice}" + (f"-{part}" if len(files) > 1 else "")
    return _file(name, pay_file(files[int(part[:9]) - 1], kind))


@page
def late_csv(site: Site, request: Request) -> Response:
    """Answers that came after their assignment's time, with what to pay for each by hand."""
    with site.database.read() as connection:
        rows = reports.late_answers(connection)
    return _file("late-answers", csv_text([tuple(_LATE)]) + _lines(_LATE, rows))


def _no_file() -> NoticeError:
    return nothing_here(
        "There is no such file, or nobody is owed anything in it. Use the links of the operator's page."
    )


def _environment(request: Request) -> Environment:
    name = request.path_params["environment"]
    if name not in list(Environment):
        raise _no_file()
    return Environment(name)


def _file(name: str, text: str) -> Response:
    headers = download_headers(f"{_UNSAFE.sub('-', name)}.csv")
    return Response(text.encode("utf-8", "replace"), headers=headers, media_type="text/csv")


@dataclass(frozen=True, slots=True)
class Bundle:
    """The files of one format and one choice of what to pay."""

    kind: PayFormat
    choice: str
    people: int
    cents: int
    sizes: list[int]
    """Lines in each part."""


@dataclass(frozen=True, slots=True)
class PanelPay:
    """One panel's files."""

    panel: PanelRow
    people: int
    nameless: int
    """Owed something, but their panel id was deleted."""
    bundles: list[Bundle]


@page
def payments(site: Site, request: Request) -> Response:
    """The table of workers and the panels' files."""
    environment = _environment(request)
    with site.database.read() as connection:
        rows = reports.payments(connection, environment)
        of_panels = [
            _panel_pay(row, reports.payees(connection, row))
            for row, _ in panels.list_panels(connection)
            if row.environment is environment
        ]
    return site.page(
        "operator_payments.html.j2",
        environment=environment,
        practice=environment is Environment.SANDBOX,
        rows=rows[:SHOWN],
        hidden=max(0, len(rows) - SHOWN),
        total=sum(row.total_cents for row in rows),
        panels=of_panels,
    )


def _panel_pay(row: PanelRow, payees: list[Payment]) -> PanelPay:
    bundles = []
    for kind in formats_of(row.profile):
        for choice in CHOICES:
            lines = to_pay(payees, kind, choice)
            sizes = [len(part) for part in parts(lines, kind)]
            bundles.append(Bundle(kind, choice, len(lines), sum(cents for _, cents in lines), sizes))
    nameless = sum(not payee.external_id for payee in payees)
    return PanelPay(row, len(payees), nameless, bundles)


ROUTES = (
    ("/operator/ledger/{environment}.csv", ledger_csv),
    ("/operator/payments/{environment}.csv", payments_csv),
    ("/operator/panels/{slug}/payments.csv", panel_csv),
    ("/operator/late.csv", late_csv),
    ("/operator/payments/{environment}", payments),  # last, for it takes the name of a file too
)

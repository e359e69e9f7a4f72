"""Who is owed what: ``/operator/payments/<environment>``, and the files to take away."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from mitl.crowd_server.operator import board as boards
from mitl.crowd_server.operator import payout_files
from mitl.crowd_server.operator.payout_files import CURRENCY, PayFormat, amount, table
from mitl.crowd_server.operator.session import nothing_here, page
from mitl.crowd_server.pages.site import Site
from mitl.crowd_server.store import panels, reports
from mitl.crowd_server.store.panels import PanelRow
from mitl.crowd_server.store.reports import Payee
from mitl.records import Environment

SHOWN = 500
"""Workers on the page; the file names all."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


@page
def ledger_csv(site: Site, request: Request) -> Response:
    """Every movement of an environment's money, oldest first; sent in portions, however long it is."""
    environment = _environment(request)
    if environment is None:
        return unknown(site)
    boards.settle(site)

    def portions() -> Iterator[str]:
        yield table([("number", "time", "kind", "hit", "assignment", "worker", "amount", "currency")])
        after = 0
        while True:
            with site.database.read() as connection:
                rows = reports.ledger(connection, environment, after=after)
            if not rows:
                return
            after = rows[-1].id
            yield table(
                (
                    row.id,
                    f"{row.at:%Y-%m-%dT%H:%M:%SZ}",
                    row.kind,
                    row.hit,
                    row.assignment,
                    row.worker,
                    ("-" if row.cents < 0 else "") + amount(abs(row.cents)),
                    CURRENCY,
                )
                for row in rows
            )

    return StreamingResponse(portions(), headers=_headers(f"ledger-{environment}"), media_type="text/csv")


@page
def payments_csv(site: Site, request: Request) -> Response:
    """What each worker of an environment is owed."""
    environment = _environment(request)
    if environment is None:
        return unknown(site)
    boards.settle(site)
    with site.database.read() as connection:
        rows = reports.payments(connection, environment)
    body = [
        (
            row.worker,
            row.approved,
            amount(row.reward_cents),
            amount(row.bonus_cents),
            amount(row.total_cents),
            CURRENCY,
        )
        for row in rows
    ]
    header = ("worker", "approved_hits", "rewards", "bonuses", "amount", "currency")
    return _file(f"payments-{environment}", table([header, *body]))


@page
def panel_csv(site: Site, request: Request) -> Response:
    """One part of a panel's bulk payment: ``format``, ``pay`` (all or bonuses) and ``part`` in the query."""
    boards.settle(site)
    with site.database.read() as connection:
        slug = request.path_params["slug"]
        row = None if "\0" in slug else panels.find(connection, slug)
        if row is None:
            return unknown(site)
        payees = reports.payees(connection, row)
    wanted = request.query_params
    kind = next(
        (one for one in payout_files.formats_of(row.profile) if one.name == wanted.get("format")), None
    )
    choice, part = wanted.get("pay", ""), wanted.get("part", "1")
    if kind is None or choice not in payout_files.CHOICES:
        return unknown(site)
    files = payout_files.parts(payout_files.to_pay(payees, kind, choice), kind)
    if not (part.isascii() and part.isdigit() and 1 <= int(part[:9]) <= len(files)):
        return unknown(site)
    name = f"{row.slug}-{kind.name}-{choice}" + (f"-{part}" if len(files) > 1 else "")
    return _file(name, payout_files.pay_file(files[int(part[:9]) - 1], kind))


@page
def late_csv(site: Site, request: Request) -> Response:
    """Answers that came after their assignment's time, with the reward that each would have earned."""
    with site.database.read() as connection:
        rows = list(reports.late_answers(connection))
    header = (
        "environment",
        "received",
        "worker",
        "panel_id",
        "hit",
        "assignment",
        "title",
        "reward",
        "currency",
    )
    body = [
        (
            row.environment,
            f"{row.received_at:%Y-%m-%dT%H:%M:%SZ}",
            row.worker,
            row.external_id,
            row.hit,
            row.assignment,
            row.title,
            amount(row.reward_cents),
            CURRENCY,
        )
        for row in rows
    ]
    return _file("late-answers", table([header, *body]))


def unknown(site: Site) -> Response:
    """The page for an address that leads to no file."""
    text = "There is no such file, or nobody is owed anything in it. Use the links of the operator's page."
    return nothing_here(site, text)


def _environment(request: Request) -> Environment | None:
    given = request.path_params["environment"]
    return Environment(given) if given in list(Environment) else None


def _file(name: str, text: str) -> Response:
    return Response(text.encode("utf-8", "replace"), headers=_headers(name), media_type="text/csv")


def _headers(name: str) -> dict[str, str]:
    return {
        "Content-Disposition": f'attachment; filename="{_UNSAFE.sub("-", name)}.csv"',
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
    }


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
    given = request.path_params["environment"]
    if given not in list(Environment):
        return unknown(site)
    environment = Environment(given)
    boards.settle(site)
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


def _panel_pay(row: PanelRow, payees: list[Payee]) -> PanelPay:
    bundles = []
    for kind in payout_files.formats_of(row.profile):
        for choice in payout_files.CHOICES:
            lines = payout_files.to_pay(payees, kind, choice)
            sizes = [len(part) for part in payout_files.parts(lines, kind)]
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

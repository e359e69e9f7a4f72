"""``/operator/payments/<environment>``: who is owed what, and the files to pay them by."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from mitl.crowd_server.operator import board as operator_board
from mitl.crowd_server.operator import csv_files as operator_csv
from mitl.crowd_server.operator import payout_files
from mitl.crowd_server.operator.payout_files import PayFormat
from mitl.crowd_server.operator.session import page
from mitl.crowd_server.site import Site
from mitl.crowd_server.store import panels, payouts, reports
from mitl.crowd_server.store.panels import PanelRow
from mitl.crowd_server.store.payouts import Payee
from mitl.records import Environment

SHOWN = 500


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
        return operator_csv.unknown(site)
    environment = Environment(given)
    operator_board.settle(site)
    with site.database.read() as connection:
        rows = reports.payments(connection, environment)
        found = [
            _panel_pay(row, payouts.payees(connection, row))
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
        panels=found,
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


ROUTES = (("/operator/payments/{environment}", payments),)

"""Files to take away: the ledger, what is owed, a panel's bulk payment, late answers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from mitl.crowd_server.operator import board as operator_board
from mitl.crowd_server.operator import payout_files
from mitl.crowd_server.operator.payout_files import CURRENCY, amount, table
from mitl.crowd_server.operator.session import page
from mitl.crowd_server.site import Site
from mitl.crowd_server.store import panels, payouts, reports
from mitl.records import Environment

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


@page
def ledger(site: Site, request: Request) -> Response:
    """Every movement of an environment's money, oldest first; sent in portions, however long it is."""
    environment = _environment(request)
    if environment is None:
        return unknown(site)
    operator_board.settle(site)

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
def payments(site: Site, request: Request) -> Response:
    """What each worker of an environment is owed."""
    environment = _environment(request)
    if environment is None:
        return unknown(site)
    operator_board.settle(site)
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
def panel(site: Site, request: Request) -> Response:
    """One part of a panel's bulk payment: ``format``, ``pay`` (all or bonuses) and ``part`` in the query."""
    operator_board.settle(site)
    with site.database.read() as connection:
        slug = request.path_params["slug"]
        row = None if "\0" in slug else panels.find(connection, slug)
        if row is None:
            return unknown(site)
        payees = payouts.payees(connection, row)
    wanted = request.query_params
    kind = next(
        (one for one in payout_files.formats_of(row.profile) if one.name == wanted.get("format")), None
    )
    choice, part = wanted.get("pay", ""), wanted.get("part", "1")
    if kind is None or choice not in payout_files.CHOICES:
        return unknown(site)
    found = payout_files.parts(payout_files.to_pay(payees, kind, choice), kind)
    if not (part.isascii() and part.isdigit() and 1 <= int(part[:9]) <= len(found)):
        return unknown(site)
    name = f"{row.slug}-{kind.name}-{choice}" + (f"-{part}" if len(found) > 1 else "")
    return _file(name, payout_files.pay_file(found[int(part[:9]) - 1], kind))


@page
def late(site: Site, request: Request) -> Response:
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
    return site.notice(404, "Nothing here", text, ("/operator", "Back to the operator's page"))


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


ROUTES = (
    ("/operator/ledger/{environment}.csv", ledger),
    ("/operator/payments/{environment}.csv", payments),
    ("/operator/panels/{slug}/payments.csv", panel),
    ("/operator/late.csv", late),
)

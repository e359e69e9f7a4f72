"""``/operator``: what the person who runs the server looks at; reads only, behind the operator's token."""

from __future__ import annotations

import hmac
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mitl.crowd_server.ids import seal, unseal
from mitl.crowd_server.models import LedgerKind
from mitl.crowd_server.site import Site
from mitl.crowd_server.store import accounts, reports, settling, workers
from mitl.records import Environment

COOKIE = "mitl_operator"
COOKIE_AGE_S = 12 * 3600


@dataclass(frozen=True, slots=True)
class Money:
    """One environment's sums in cents, and whether the ledger's rows add up to them."""

    environment: Environment
    budget: int
    held: int
    rewards: int
    bonuses: int
    available: str
    balances: bool


def operator(site: Site, request: Request) -> Response:
    """Progress, money, what is owed, invitations; ``?token=`` opens a session of half a day."""
    token = request.query_params.get("token")
    if token is not None:
        return _enter(site, request, token)
    if unseal(site.secret, "operator", request.cookies.get(COOKIE, "")) != site.operator_token[:8]:
        return site.notice(
            403, "For the operator", "Open the operator's link that `mitl serve` prints when it starts."
        )
    now = site.clock()
    for environment in Environment:
        with site.database.write(environment) as connection:
            if settling.is_due(connection, environment, now):
                settling.settle(connection, environment, now)
    with site.database.read() as connection:
        sums = reports.ledger_sums(connection)
        balances = {environment: accounts.balance(connection, environment) for environment in Environment}
        progress = reports.progress(connection, now)
        payments = reports.payments(connection, Environment.LIVE)
        invitations = workers.list_invitations(connection)
    money = [_money(environment, balances[environment], sums) for environment in Environment]
    return site.page(
        "operator.html.j2",
        server_id=site.server_id,
        now=now,
        money=money,
        progress=progress,
        payments=payments,
        invitations=invitations,
    )


def _enter(site: Site, request: Request, token: str) -> Response:
    if not hmac.compare_digest(token.encode(), site.operator_token.encode()):
        return site.notice(403, "For the operator", "This operator's link is not this server's.")
    response = RedirectResponse("/operator", 303)
    response.set_cookie(
        COOKIE,
        seal(site.secret, "operator", site.operator_token[:8]),
        max_age=COOKIE_AGE_S,
        path="/operator",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )
    return response


def _money(
    environment: Environment, balance: accounts.Balance, sums: dict[tuple[Environment, LedgerKind], int]
) -> Money:
    moved = {kind: sums.get((environment, kind), 0) for kind in LedgerKind}
    spent = moved[LedgerKind.REWARD] + moved[LedgerKind.BONUS]
    held = moved[LedgerKind.HOLD] - moved[LedgerKind.RELEASE]
    practice = environment is Environment.SANDBOX
    return Money(
        environment=environment,
        budget=balance.budget,
        held=balance.held,
        rewards=moved[LedgerKind.REWARD],
        bonuses=moved[LedgerKind.BONUS],
        available="always $10,000.00" if practice else f"${balance.available / 100:,.2f}",
        balances=(moved[LedgerKind.BUDGET], held, spent) == (balance.budget, balance.held, balance.spent),
    )


ROUTES = (("/operator", operator),)

"""``mitl serve`` and ``mitl crowd``: the crowd server."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import click

from mitl.cli import Command, CommandGroup
from mitl.cli.app import DOLLARS, FILE, App, common, environment_options, refuse_beside, refuse_idle
from mitl.cli.crowd_panel import BASE_URL, needed, panel, study
from mitl.errors import UsageError
from mitl.records import Environment

_SPAN = re.compile(r"([0-9]{1,6})\s*(m|h|d|w)", re.ASCII)
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
LONGEST = dt.timedelta(days=3650)


class Lifetime(click.ParamType[dt.timedelta, Any]):
    """``90m``, ``12h``, ``30d``, ``2w`` or a date, which is meant to its end in UTC; from now on."""

    name = "lifetime"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dt.timedelta:
        """The time from now; a usage error that names the option where the text is none."""
        if isinstance(value, dt.timedelta):
            return value
        span = _span(value) or _until(value)
        if span is None:
            self.fail(f"{value!r} is no time; use 12h, 30d or a date as 2027-01-31", param, ctx)
        if not dt.timedelta() < span <= LONGEST:
            self.fail(f"{value!r} is past, or more than ten years away", param, ctx)
        return span


def _span(text: str) -> dt.timedelta | None:
    match = _SPAN.fullmatch(text.strip().lower())
    return None if match is None else dt.timedelta(**{_UNITS[match[2]]: int(match[1])})


def _until(text: str) -> dt.timedelta | None:
    try:
        day = dt.date.fromisoformat(text.strip())
    except ValueError:
        return None
    end = dt.datetime.combine(day, dt.time.max, dt.UTC)
    return end - dt.datetime.now(dt.UTC)


@click.command("serve", cls=Command)
@click.option(
    "--host",
    default="127.0.0.1",
    help="Address to listen on; beyond this machine only with TLS or behind a proxy.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=8765, help="Port; 0 picks a free one.")
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    help="Server processes, about one per core; more than one needs PostgreSQL.",
)
@click.option(
    "--public",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of pictures to serve under /i/; may be repeated [default: PROJECT/public].",
)
@click.option(
    "--allow-host",
    "allowed_hosts",
    metavar="HOST",
    multiple=True,
    help="Let requesters' pages load scripts, styles and fonts from this host by https; may be repeated "
    "[default: [crowd] allowed_hosts, to which it adds].",
)
@click.option(
    "--vendored",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of copies that answer for such addresses, as FOLDER/code.jquery.com/jquery-3.7.1.min.js "
    "[default: PROJECT/vendored, where it exists].",
)
@click.option("--tls-cert", type=FILE, help="PEM file of the certificate chain to speak TLS with.")
@click.option("--tls-key", type=FILE, help="PEM file of its private key, without a password.")
@click.option(
    "--public-url",
    metavar="URL",
    help="How people reach the server, https://NAME; requests for other names are refused.",
)
@click.option(
    "--plain-http-behind-proxy",
    is_flag=True,
    help="Speak plain HTTP to a proxy that ends TLS; nobody else is answered.",
)
@click.option(
    "--trusted-proxy",
    "trusted_proxies",
    metavar="ADDRESS",
    multiple=True,
    help="Address or network of that proxy, whose X-Forwarded-For and -Proto are believed; may be repeated "
    "[default: this machine].",
)
@common
def serve(
    app: App,
    host: str,
    port: int,
    workers: int,
    public: tuple[Path, ...],
    allowed_hosts: tuple[str, ...],
    vendored: Path | None,
    **reached: Any,
) -> None:
    """Run the crowd server for people: requester API under /, worker pages under /w, operator page.

    Needs only the crowd database, no pipeline database. Invite people with `mitl crowd invite`. Without further
    options only this machine reaches it; docs/security.md says how to open it to a network.
    """
    from mitl.crowd_server.middleware.exposure import plan
    from mitl.crowd_server.protocol.html_page import allow
    from mitl.stages.serve import Serving, serve

    exposure = plan(host, **reached)
    sources = allow(allowed_hosts, vendored or app.settings.vendored, configured=app.settings.allowed_hosts)
    if app.json:
        app.tell_how_to_stop()
    with app.until_stopped("mitl serve"):
        serve(app.settings, Serving(exposure, port, public, sources, workers), app.finish)


@click.group("crowd", cls=CommandGroup)
def crowd() -> None:
    """Administer the crowd server: invitations, panels, the study's text, keys, budget, payments.

    Works while it runs or not.
    """


@crowd.command("invite")
@environment_options
@click.option("--people", type=click.IntRange(1, 1000), default=1, help="Number of links.")
@click.option(
    "--uses",
    "--open",
    "open_uses",
    type=click.IntRange(1, 1_000_000),
    help="Each link admits this many people; without it, a link is one person's.",
)
@click.option(
    "--expires",
    "lasts",
    type=Lifetime(),
    metavar="WHEN",
    help="When links end: 12h, 30d or a date as 2027-01-31 [default: 30d].",
)
@click.option("--days", type=click.IntRange(1, 3650), help="How many days links last, as --expires.")
@click.option("--label", default="", show_default=False, help="Your own note, shown on the operator page.")
@BASE_URL
@click.option("--list", "listing", is_flag=True, help="List the invitations and make none.")
@click.option("--revoke", "revoked", type=int, metavar="NUMBER", help="Close this invitation and make none.")
@common
def invite(
    app: App,
    environment: Environment | None,
    lasts: dt.timedelta | None,
    days: int | None,
    listing: bool,
    revoked: int | None,
    **links: Any,
) -> None:
    """Make invitation links; each is for one person, or for several with --uses."""
    from mitl.stages import serve

    if listing:
        refuse_beside("--list shows all invitations and makes none", "listing")
        app.finish(serve.list_invitations(app.settings))
        return
    if revoked is not None:
        refuse_beside("--revoke closes an invitation and makes none", "revoked")
        app.finish(serve.revoke(app.settings, revoked))
        return
    if lasts is not None and days is not None:
        raise UsageError("give --expires or --days, not both")
    lasts = lasts or dt.timedelta(days=days or 30)
    app.finish(serve.invite(app.settings, needed(environment), lasts=lasts, **links))


@crowd.command("invitations")
@common
def invitations(app: App) -> None:
    """List the invitations."""
    from mitl.stages.serve import list_invitations

    app.finish(list_invitations(app.settings))


@crowd.command("revoke")
@click.argument("number", type=int)
@common
def revoke(app: App, number: int) -> None:
    """Revoke invitation NUMBER and shut out everyone who joined by it."""
    from mitl.stages.serve import revoke as stage

    app.finish(stage(app.settings, number))


@crowd.command("keys")
@environment_options
@click.option(
    "--export",
    "credentials",
    type=FILE,
    metavar="FILE",
    help="Write one environment's pair as a new AWS credentials file (mode 600), for programs on other machines.",
)
@common
def keys(app: App, environment: Environment | None, credentials: Path | None) -> None:
    """Show the requester access keys and where their secrets are."""
    from mitl.stages import serve

    if credentials is None:
        refuse_idle(
            ("sandbox", "live"), "says whose pair --export writes; add --export FILE, or leave it out"
        )
        app.finish(serve.keys(app.settings))
    else:
        app.finish(serve.export_keys(app.settings, needed(environment), credentials))


@crowd.command("operator")
@BASE_URL
@common
def operator(app: App, base_url: str | None) -> None:
    """Show the link to the operator page; whoever has it may pause, expire and invite."""
    from mitl.stages.serve import operator_link

    app.finish(operator_link(app.settings, base_url))


@crowd.command("budget")
@click.option("--set", "amount", type=DOLLARS, help="The live budget; the sandbox always has 10,000.00.")
@common
def budget(app: App, amount: int | None) -> None:
    """Show the money of both environments, or set the live budget."""
    from mitl.stages.serve import budget as stage

    app.finish(stage(app.settings, amount))


@crowd.command("payments")
@environment_options
@common
def payments(app: App, environment: Environment | None) -> None:
    """Show what each worker is owed."""
    from mitl.stages.serve import payments as stage

    app.finish(stage(app.settings, needed(environment)))


@crowd.command("person")
@click.argument("name", metavar="WORKER")
@click.option("--out", type=FILE, required=True, metavar="FILE.zip", help="Where to write it (mode 600).")
@click.option("--replace", is_flag=True, help="Overwrite another file that is there.")
@common
def person(app: App, name: str, out: Path, replace: bool) -> None:
    """Write all that is held about WORKER, by the worker id or the panel's id, to give to that person.

    A ZIP archive of JSON files, with a page that says what each is: from the crowd server's database, and from this
    project's.
    """
    from mitl.stages.disclosing import person as stage

    app.finish(stage(app.settings, name, out, replace=replace))


crowd.add_command(study)
crowd.add_command(panel)

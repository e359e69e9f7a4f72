"""``mitl serve``."""

from __future__ import annotations

from pathlib import Path

import click

from mitl.cli.app import EXIT_INTERRUPTED, App, common

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("serve")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; beyond this machine only with TLS or behind a proxy.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="Port; 0 takes a free one."
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
@click.option("--tls-cert", type=_FILE, help="PEM file of the certificate chain to speak TLS with.")
@click.option("--tls-key", type=_FILE, help="PEM file of its private key, without a password.")
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
def command(
    app: App,
    host: str,
    port: int,
    public: tuple[Path, ...],
    allowed_hosts: tuple[str, ...],
    vendored: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    public_url: str | None,
    plain_http_behind_proxy: bool,
    trusted_proxies: tuple[str, ...],
) -> None:
    """Run the crowd server for people: requester API under /, worker pages under /w, operator page.

    Needs only the crowd database, no pipeline database. Invite people with `mitl crowd invite`. Without further
    options only this machine reaches it; docs/security.md says how to open it to a network.
    """
    from mitl.crowd_server.middleware.exposure import plan
    from mitl.crowd_server.protocol.html_page import allow
    from mitl.stages.serve import serve

    exposure = plan(
        host,
        tls_cert=tls_cert,
        tls_key=tls_key,
        plain_http_behind_proxy=plain_http_behind_proxy,
        trusted_proxies=trusted_proxies,
        public_url=public_url,
    )
    sources = allow(allowed_hosts, vendored or app.settings.vendored, configured=app.settings.allowed_hosts)
    if app.json:
        app.tell_how_to_stop()
    try:
        serve(app.settings, exposure=exposure, port=port, public=public, sources=sources, announce=app.finish)
    except KeyboardInterrupt:
        # Not a failure: with --json, the object was printed when the server began.
        click.echo("stopped; start it again with `mitl serve`", err=True)
        click.get_current_context().exit(EXIT_INTERRUPTED)

"""How a server may be reached, decided before it listens: on this machine alone, or beyond it and then with care."""

from __future__ import annotations

import re
import socket
import ssl
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from sqlalchemy import Engine

from mitl.addresses import is_loopback, names_loopback, parse_address
from mitl.crowd_server.middleware.callers import Network, parse_networks
from mitl.crowd_server.middleware.limits import Policy, host_name
from mitl.crowd_server.store import accounts
from mitl.crowd_server.store.database import Database
from mitl.errors import SettingsError, UsageError
from mitl.records import Environment

MIN_SECRET = 32
_EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - named in order to be recognised
_LOOPBACK_PROXIES = ("127.0.0.0/8", "::1")
_AS_SENT = re.compile(r"[\w.:\[\]-]+", re.ASCII)
"""A host and port as browsers send them."""


@dataclass(frozen=True, slots=True)
class Tls:
    """A certificate chain and its key, both PEM files."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Exposure:
    """Where a server listens, and how people reach it."""

    host: str = "127.0.0.1"
    tls: Tls | None = None
    behind_proxy: bool = False
    proxies: tuple[Network, ...] = ()
    public_url: str | None = None
    """The start of every address that people see, without a slash at the end; None on this machine alone."""

    @property
    def is_public(self) -> bool:
        """Whether anyone but this machine's own programs can come."""
        return self.public_url is not None or not listens_near(self.host)

    @property
    def policy(self) -> Policy:
        """What the outermost layer checks requests by."""
        names = set()
        if self.host not in _EVERYWHERE:
            names.add(host_name(self.host) if ":" not in self.host else self.host)
        if self.public_url is not None:
            names.add(host_name(urlsplit(self.public_url).netloc))
        return Policy(
            hosts=frozenset(names),
            proxies=self.proxies,
            only_by_proxy=self.behind_proxy,
            public_scheme=urlsplit(self.public_url).scheme if self.public_url else None,
        )


def plan(
    host: str,
    *,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    plain_http_behind_proxy: bool = False,
    trusted_proxies: Sequence[str] = (),
    public_url: str | None = None,
) -> Exposure:
    """How a server is exposed by these options.

    Raises:
        UsageError: the options would carry answers and sessions over a network unencrypted, or contradict
            each other.
        SettingsError: the certificate or its key cannot be used.
    """
    if (tls_cert is None) != (tls_key is None):
        raise UsageError("--tls-cert and --tls-key belong together; give both files")
    tls = None if tls_cert is None or tls_key is None else Tls(tls_cert, tls_key)
    url = None if public_url is None else public_address(public_url, "--public-url")
    local = listens_near(host)
    if tls is not None and plain_http_behind_proxy:
        raise UsageError("--plain-http-behind-proxy and --tls-cert exclude each other; keep one of them")
    if tls is None and not plain_http_behind_proxy:
        if not local:
            raise UsageError(
                f"--host {host} is open to the network, so answers and sessions must be encrypted: give "
                "--tls-cert and --tls-key, or --plain-http-behind-proxy with --trusted-proxy where a proxy does it"
            )
        if trusted_proxies:
            raise UsageError("--trusted-proxy needs --plain-http-behind-proxy, or the proxy is not believed")
        if url is not None and not is_loopback(url):
            raise UsageError(
                f"--public-url {url} is not this machine's; say --plain-http-behind-proxy if a proxy leads here, or "
                "give --host, --tls-cert and --tls-key"
            )
    if plain_http_behind_proxy:
        if url is None or not url.startswith("https://"):
            raise UsageError(
                "--plain-http-behind-proxy needs --public-url https://NAME, the address at which people "
                "reach the proxy"
            )
        if not local and not trusted_proxies:
            raise UsageError(
                f"--host {host} is open to the network: name the proxy by --trusted-proxy ADDRESS, so that nobody "
                "else is answered"
            )
    elif tls is not None:
        url = _tls_url(host, url)
    if tls is not None:
        _check_tls(tls)
    behind = plain_http_behind_proxy
    networks = parse_networks(tuple(trusted_proxies) or (_LOOPBACK_PROXIES if behind else ()))
    if tls is not None and trusted_proxies:
        raise UsageError("--trusted-proxy does not go with --tls-cert; end TLS either here or at the proxy")
    return Exposure(host, tls, behind, networks, url)


def listens_near(host: str) -> bool:
    """Whether only programs of this machine can connect to this address."""
    if host in _EVERYWHERE:
        return False
    if parse_address(f"[{host}]") is not None:
        return names_loopback(host)
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(names_loopback(str(entry[4][0])) for entry in addresses)


def check_secrets(engine: Engine) -> None:
    """Check that the server's secrets are fit for a network.

    Raises:
        SettingsError: other users of this machine can read the database, or a secret or key pair is missing,
            short or used twice.
    """
    path = engine.url.database
    if engine.dialect.name == "sqlite" and path and path != ":memory:":
        mode = stat.S_IMODE(Path(path).stat().st_mode)
        if mode & 0o077:
            raise SettingsError(
                f"{path} holds the server's secrets, but others may read it (mode {mode:o}); close it with: "
                f"chmod 600 {path}"
            )
    with Database(engine).read() as connection:
        settings = accounts.settings(connection)
        pairs = accounts.key_pairs(connection)
    secrets = [settings.get("secret", ""), settings.get("operator_token", "")]
    secrets += [pairs[environment][1] if environment in pairs else "" for environment in Environment]
    if min(len(secret) for secret in secrets) < MIN_SECRET or len(set(secrets)) < len(secrets):
        raise SettingsError(
            "the crowd database lacks a secret or key pair, or has a short or repeated one; a server open to the "
            "network needs those that `mitl serve` makes: start with a new --crowd-db"
        )


def public_address(text: str, option: str) -> str:
    """Where people reach a server, as an option names it: scheme, host and port alone.

    Raises:
        UsageError: it is anything else.
    """
    try:
        parts = urlsplit(text)
        port_ok = parts.port is None or parts.port > 0
    except ValueError:
        parts, port_ok = urlsplit(""), False
    plain = parts.path in ("", "/") and not parts.query and not parts.fragment and "@" not in parts.netloc
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_ok or not plain:
        raise UsageError(
            f"{option} is {text!r}; write https://NAME or https://NAME:PORT and nothing after it"
        )
    if not _AS_SENT.fullmatch(parts.netloc):
        raise UsageError(
            f"{option} is {text!r}; write its name as browsers send it, in letters, digits, hyphens and points of "
            "ASCII (xn--…)"
        )
    return f"{parts.scheme}://{parts.netloc.lower()}"


def _tls_url(host: str, url: str | None) -> str | None:
    if url is None and host in _EVERYWHERE:
        raise UsageError(
            f"--host {host or '(all)'} listens everywhere: say by --public-url https://NAME which name people use"
        )
    if url is not None and not url.startswith("https://"):
        raise UsageError(f"--public-url {url} is not https, but this server speaks TLS; write https:// there")
    return url


def _check_tls(tls: Tls) -> None:
    """Load both files now, so that a mistake is one line and no traceback of the server."""
    for path in (tls.certificate, tls.key):
        if not path.is_file():
            raise SettingsError(f"{path} does not exist; give a PEM file")
    if tls.key.stat().st_mode & stat.S_IROTH:
        raise SettingsError(
            f"{tls.key} is a private key that everybody may read; close it with: chmod 600 {tls.key}"
        )

    def no_password() -> str:
        raise SettingsError(
            f"{tls.key} is encrypted; give a key without a password, readable by this user alone"
        )

    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls.certificate, tls.key, no_password)
    except OSError as error:
        reason = getattr(error, "reason", None) or error.strerror or error
        raise SettingsError(
            f"{tls.certificate} and {tls.key} cannot be used for TLS ({reason}); give a PEM certificate chain and "
            "the key that belongs to it"
        ) from error

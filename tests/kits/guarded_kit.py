"""A crowd server behind its outermost layer, as `mitl serve` runs it, for one test."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from crowd_kit import Crowd, ManualClock
from sqlalchemy import Engine

from mitl.crowd_server.app import create_app
from mitl.crowd_server.middleware.exposure import Tls
from mitl.crowd_server.middleware.limits import Policy, wrap
from mitl.crowd_server.serving import RunningServer

TRUST = ssl.create_default_context()
"""For ``verify=``: httpx otherwise reads all certificates of the world for each request of a test."""


@contextlib.contextmanager
def guarded_crowd(
    engine: Engine,
    policy: Policy | None = None,
    public: Path | None = None,
    *,
    tls: Tls | None = None,
    **changes: Any,
) -> Iterator[Crowd]:
    """A crowd server whose limits hold on this machine too; ``changes`` are fields of the policy."""
    clock = ManualClock()
    policy = replace(policy or Policy(exempt_loopback=False), **changes)
    with contextlib.ExitStack() as stack:
        app = create_app(engine, clock=clock, public=[] if public is None else [public])
        server = stack.enter_context(RunningServer(wrap(app, policy), tls=tls))
        clients = stack.enter_context(contextlib.ExitStack())
        yield Crowd(server.url, engine, clock, clients)

"""What is the same for every client and every engine is made once a process: importing this sees to it.

Commands open and close all they use; tests, and the children they fork, call hundreds of them in one process.
"""

from __future__ import annotations

import functools
import os
import ssl
from typing import Any

import botocore.session
import httpx
from sqlalchemy import Engine
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

_transport = httpx.HTTPTransport.__init__.__globals__
_make_context = _transport["create_ssl_context"]


@functools.cache
def _context(*given: object) -> ssl.SSLContext:
    *arguments, _ = given
    return _make_context(*arguments)


def _context_now(verify: object = True, cert: object = None, trust_env: bool = True) -> ssl.SSLContext:
    """Each httpx client reads the machine's certificates again, which takes longer than most requests here."""
    return _context(verify, cert, trust_env, os.environ.get("SSL_CERT_FILE"))


_transport["create_ssl_context"] = _context_now

# The requester API's description.
botocore.session.create_loader = functools.cache(botocore.session.create_loader)

# Statements are compiled once, and not again for each engine: one SQLite is like another.
_compiled: LRUCache[Any, Any] = LRUCache(2000)
Engine._compiled_cache = property(lambda self: _compiled, lambda self, own: None)  # type: ignore[assignment]
SQLiteDialect_pysqlite.__eq__ = lambda self, other: type(self) is type(other)  # type: ignore[method-assign]
SQLiteDialect_pysqlite.__hash__ = lambda self: hash(type(self))  # type: ignore[method-assign]

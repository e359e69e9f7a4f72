"""How the fork server of the kill tests is set up before it forks.

Waiting is cut short in the children: how long a client waits before it tries again is no matter here, only that it
does. What costs time and is the same for every client is made once: the API's description, the certificates.
"""

# ruff: noqa: E402 - waiting is cut short before any module takes hold of it

import functools
import time

_sleep = time.sleep
time.sleep = lambda seconds: _sleep(seconds / 50)

import botocore.session
import httpx
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

import mitl.db.engine
from mitl.crowd.populations import CHARACTERS, Character

_transports = httpx.HTTPTransport.__init__.__globals__
_transports["create_ssl_context"] = functools.cache(_transports["create_ssl_context"])
botocore.session.create_loader = functools.cache(botocore.session.create_loader)
_session = botocore.session.Session
_sessions = {}


def _shared_session(session_vars=None):
    name = repr(session_vars)
    if name not in _sessions:
        _sessions[name] = _session(session_vars=session_vars)
    return _sessions[name]


botocore.session.Session = _shared_session

# Statements are compiled once, and not again for each engine: all are of one kind.
_create_engine = mitl.db.engine.create_engine
_compiled = LRUCache(1000)


def _engine_that_remembers(*args, **kwargs):
    engine = _create_engine(*args, **kwargs)
    engine._compiled_cache = _compiled
    return engine


mitl.db.engine.create_engine = _engine_that_remembers
SQLiteDialect_pysqlite.__eq__ = lambda self, other: type(other) is SQLiteDialect_pysqlite
SQLiteDialect_pysqlite.__hash__ = lambda self: 1

# People without chance, so that as many submissions wait for a person in every run.
_RIGHT = ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1))
CHARACTERS["right"] = Character("right", _RIGHT, reads=1.0, seconds_per_pair=9.0)
CHARACTERS["wrong"] = Character("wrong", _RIGHT[::-1], reads=0.0, seconds_per_pair=3.0)

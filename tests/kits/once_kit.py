"""What is the same for every client and every engine is made once a process: importing this sees to it.

Commands open and close all they use; tests, and the children they fork, call hundreds of them in one process.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import logging
import os
import pickle
import shutil
import sqlite3
import ssl
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import botocore.session
import httpx
import jinja2
import numpy as np
from botocore import hooks
from botocore.client import ClientCreator
from numpy.typing import ArrayLike
from sqlalchemy import Connection, Engine, Table
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

from annotators import registry
from annotators.pivot import LatentWords
from mitl.analysis.report import loop_plots, machine_plots, plots, similarity_plots, views
from mitl.audits import bounds
from mitl.audits.finite import Method, total_upper
from mitl.campaign import pages
from mitl.core.arrays import Floats
from mitl.datasets.scenes import files
from mitl.db import engine, tables

_transport = httpx.HTTPTransport.__init__.__globals__
_make_context = _transport["create_ssl_context"]


@functools.cache
def _context(*given: object) -> ssl.SSLContext:
    *arguments, _ = given
    return _make_context(*arguments)


def _context_now(verify: object = True, cert: object = None, trust_env: bool = True) -> ssl.SSLContext:
    """Each httpx client and each look at pictures reads the machine's certificates again, longer than most requests."""
    return _context(verify, cert, trust_env, os.environ.get("SSL_CERT_FILE"))


_transport["create_ssl_context"] = httpx.create_ssl_context = _context_now

# The requester API's description and what its events are called.
botocore.session.create_loader = functools.cache(botocore.session.create_loader)
_read_model = ClientCreator._load_service_model


@functools.cache
def _model(loader: Any, *names: str) -> Any:
    return _read_model(SimpleNamespace(_loader=loader), *names)


ClientCreator._load_service_model = lambda self, *names: _model(self._loader, *names)
_names: dict[str, str] = {}
hooks.EventAliaser._alias_name_cache = property(lambda self: _names, lambda self, own: None)
_accepts_kwargs = hooks.accepts_kwargs


def _accepts_kwargs_by_code(handler: Any) -> bool:
    """What signature inspection says of a function; nothing is kept, as most handlers hold their client."""
    code = getattr(handler, "__code__", None)
    return bool(_accepts_kwargs(handler) if code is None else code.co_flags & inspect.CO_VARKEYWORDS)


hooks.accepts_kwargs = _accepts_kwargs_by_code

# Each level that is set, by each command and server, has the hundreds of loggers of all libraries forget theirs.
_set_level = logging.Logger.setLevel


def _set_level_if_other(self: logging.Logger, level: int | str) -> None:
    if self.level != level:
        _set_level(self, level)


logging.Logger.setLevel = _set_level_if_other  # type: ignore[method-assign]


@functools.cache
def _points(group: str, *folders: str) -> Any:
    return entry_points(group=group)


def _points_now(group: str) -> Any:
    """What each of some two hundred installed packages adds, which every annotator that is no mini looks up."""
    return _points(group, *sys.path)


registry.entry_points = _points_now  # type: ignore[assignment]

# Statements are compiled once, and not again for each engine: those of one database system are alike here.
_compiled: LRUCache[Any, Any] = LRUCache(2000)
Engine._compiled_cache = property(lambda self: _compiled, lambda self, own: None)  # type: ignore[assignment]
for _dialect in (SQLiteDialect_pysqlite, PGDialect_psycopg):
    _dialect.__eq__ = lambda self, other: type(self) is type(other)  # type: ignore[method-assign]
    _dialect.__hash__ = lambda self: hash(type(self))  # type: ignore[method-assign]


@functools.lru_cache(2000)
def _bound(risk: float, method: Method, *counts: tuple[tuple[int, ...], bytes]) -> Floats:
    size, sampled, marked, expected, *planned = (np.frombuffer(data).reshape(shape) for shape, data in counts)
    last = planned[0] if planned else None
    return total_upper(size, sampled, marked, expected, risk, method, planned=last)


def _bound_once(
    size: ArrayLike,
    sampled: ArrayLike,
    marked: ArrayLike,
    expected: ArrayLike,
    risk: float,
    method: Method,
    *,
    planned: ArrayLike | None = None,
) -> Floats:
    """A release, its check and its report bound the same counts, which takes most of their time on small projects."""
    counts = (
        np.asarray(values, np.float64)
        for values in (size, sampled, marked, expected, planned)
        if values is not None
    )
    return _bound(risk, method, *((values.shape, values.tobytes()) for values in counts)).copy()


bounds.total_upper = _bound_once


_fit = LatentWords.fit


@functools.lru_cache(16)
def _directions(texts: tuple[str, ...]) -> tuple[Any, Any]:
    model = LatentWords()
    _fit(model, texts)
    return model._vectorizer, model._svd


def _fit_once(self: LatentWords, texts: Sequence[str]) -> None:
    """Each fusion of a project weighs the words of the same captions."""
    self._vectorizer, self._svd = _directions(tuple(texts))


LatentWords.fit = _fit_once  # type: ignore[method-assign]


def _once_a_content(make: Callable[..., Any]) -> Callable[..., Any]:
    """Most projects that publish or report show the pictures of the same worlds."""
    made: dict[tuple[object, ...], Any] = {}

    @functools.wraps(make)
    def once(path: Path, **how: object) -> Any:
        try:
            key = hashlib.sha256(path.read_bytes()).digest(), *how.items()
        except OSError:  # which is for the page to say
            return make(path, **how)
        if key not in made:
            made[key] = make(path, **how)
        return made[key]

    return once


pages.page_jpeg = _once_a_content(pages.page_jpeg)
views.data_uri = _once_a_content(views.data_uri)


# Worlds of one seed begin with the same scenes, whatever their size.
for _suffix, _render in list(files._RENDERERS.items()):
    files._RENDERERS[_suffix] = functools.lru_cache(1000)(_render)


# Most files of a project are its pictures: copies of a folder share them, as hard links.
_shared: dict[str, os.stat_result] = {}


def _shared_or_copied(source: str, target: str) -> None:
    if not source.endswith((".png", ".jpg")):
        shutil.copy2(source, target)
        return
    is_now = Path(source).stat()
    before = _shared.setdefault(source, is_now)
    assert before.st_ino != is_now.st_ino or before.st_mtime_ns == is_now.st_mtime_ns, (
        f"a test wrote into {source}, which others have too; give it other content by world_kit's `spoil`"
    )
    os.link(source, target)


_given = shutil.copytree.__defaults__ or ()
shutil.copytree.__defaults__ = tuple(_shared_or_copied if way is shutil.copy2 else way for way in _given)


# Each server, desk and report compiles its templates, of which all make the same code.
_compile = jinja2.Environment.compile
_codes: dict[tuple[object, ...], Any] = {}


def _compile_once(self: jinja2.Environment, *arguments: Any, **named: Any) -> Any:
    kinds = (type(extension) for extension in self.extensions.values())
    key = (self.trim_blocks, self.autoescape, *kinds, *self.filters, *arguments, *named.items())
    if key not in _codes:
        _codes[key] = _compile(self, *arguments, **named)
    return _codes[key]


jinja2.Environment.compile = _compile_once  # type: ignore[method-assign]


# Most of a report's time goes into its drawings, which the next one of the same numbers shows again.
drawn: dict[bytes, str] = {}


def _drawn_once(draw: Callable[..., str]) -> Callable[..., str]:
    @functools.wraps(draw)
    def once(*given: object, **named: object) -> str:
        key = pickle.dumps((draw.__module__, draw.__name__, given, named))
        if key not in drawn:
            drawn[key] = draw(*given, **named)
        return drawn[key]

    return once


for _module in (loop_plots, machine_plots, plots, similarity_plots):
    for _name in [name for name in vars(_module) if name.endswith("_svg")]:
        setattr(_module, _name, _drawn_once(getattr(_module, _name)))


# SQLite's tables are read from its words for them: half of what a backup of a small database takes.
_reflected = tables.reflected
_tables: dict[tuple[str | None, ...], list[Table]] = {}


def _reflected_once(connection: Connection) -> list[Table]:
    if connection.dialect.name != "sqlite":
        return _reflected(connection)
    words = tuple(connection.exec_driver_sql("SELECT sql FROM sqlite_master ORDER BY name").scalars())
    if words not in _tables:
        _tables[words] = _reflected(connection)
    return _tables[words]


tables.reflected = _reflected_once


# Tests kill programs and never the machine, so what they and SQLite write need not have reached the disk.
os.fsync = lambda handle: None
_prepare = engine._prepare_sqlite


def _prepare_without_disk(connection: sqlite3.Connection, record: object) -> None:
    _prepare(connection, record)
    connection.execute("PRAGMA synchronous=OFF")


engine._prepare_sqlite = _prepare_without_disk

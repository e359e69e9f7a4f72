"""``mitl.toml``: which tables and keys it may hold, reading it, and making files whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mitl.errors import SettingsError

CONFIG_FILE = "mitl.toml"

_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP}
"""How file systems without hard links refuse one."""

_KNOWN: dict[str, set[str] | None] = {
    "project": {"name", "id", "seed"},
    "database": {"url", "crowd_url"},
    "dataset": None,
    "propose": {
        "annotators",
        "image_queries",
        "caption_queries",
        "top_k",
        "depth",
        "backend",
        "engine",
        "ray_address",
    },
    "annotators": None,
    "crowd": {
        "endpoint",
        "environment",
        "contact",
        "image_base_url",
        "wage_floor_cents",
        "server_id",
        "ceiling_cents",
        "max_hits_per_worker",
        "allowed_hosts",
    },
    "review": {"gold_positive_passes", "gold_negative_passes", "min_seconds_a_pair"},
    "release": {
        "description",
        "version",
        "license",
        "items_license",
        "creators",
        "contact",
        "url",
        "citation",
        "date_published",
        "pay",
        "ethics",
    },
}
_TEXTS = {
    "name",
    "id",
    "url",
    "crowd_url",
    "endpoint",
    "environment",
    "contact",
    "image_base_url",
    "server_id",
    "backend",
    "engine",
    "ray_address",
    *(_KNOWN["release"] or ()),
} - {"creators"}


def read_config(folder: Path) -> dict[str, Any]:
    """The tables of ``mitl.toml``; empty where there is no such file."""
    path = folder / CONFIG_FILE
    try:
        config = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except NotADirectoryError as error:
        raise SettingsError(f"{folder} is no folder; name the project's folder with --project") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from error
    for table, content in config.items():
        _check_table(path, table, content)
    return config


def _check_table(path: Path, table: str, content: object) -> None:
    if table not in _KNOWN:
        raise SettingsError(f"{path} sets {table!r}; known tables: {', '.join(sorted(_KNOWN))}")
    if not isinstance(content, dict):
        raise SettingsError(f"{path} sets {table!r} to {content!r}, but it is a table; write [{table}]")
    known = _KNOWN[table]
    for key in content if known is not None else ():
        if known is not None and key not in known:
            raise SettingsError(f"{path} sets {table}.{key}; known in [{table}]: {', '.join(sorted(known))}")
    for key in _TEXTS & content.keys():
        if known is not None and not isinstance(content[key], str):
            raise SettingsError(
                f"{path} sets {table}.{key} to {content[key]!r}, but text in quotes is wanted"
            )
    if table == "annotators":
        for name, config in content.items():
            if not isinstance(config, dict):
                raise SettingsError(
                    f"{path} sets annotators.{name} to {config!r}, but an annotator's settings are a table; "
                    f"write [annotators.{name}]"
                )


def write_config(folder: Path, tables: Mapping[str, Mapping[str, Any]]) -> Path:
    """Write ``mitl.toml`` as a new file; SettingsError where one exists."""
    import tomlkit

    document = tomlkit.document()
    for name, content in tables.items():
        table = tomlkit.table()
        for key, value in content.items():
            if value is not None:
                table[key] = value
        document[name] = table
    path = folder / CONFIG_FILE
    try:
        write_new(path, tomlkit.dumps(document))
    except FileExistsError as error:
        raise SettingsError(f"{path} exists already; edit it, or choose another folder") from error
    return path


def write_new(path: Path, text: str, *, mode: int = 0o666) -> None:
    """Make a file, whole or not at all; FileExistsError where there is one."""
    # Opening it exclusively and then writing would leave an empty file behind where the process dies between.
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        _write_exclusively(part, text, mode)
        try:
            path.hardlink_to(part)
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            _write_exclusively(path, text, mode)
    finally:
        part.unlink(missing_ok=True)


def _write_exclusively(path: Path, text: str, mode: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())

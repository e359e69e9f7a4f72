"""The one place that reads the environment and ``mitl.toml``.

Precedence: option, environment (``MITL_*``), ``mitl.toml``, default.
"""

from __future__ import annotations

import errno
import os
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mitl.errors import SettingsError
from mitl.records import Environment

CONFIG_FILE = "mitl.toml"

# Defaults of the project as a whole; docs/cli.md names them too.
SEED = 0
TOP_K = 5
DEPTH = 25
WAGE_FLOOR_CENTS_PER_HOUR = {Environment.LIVE: 1200, Environment.SANDBOX: 0}
PRICING_FLOOR_CENTS_PER_HOUR = 1200
"""What the proposed reward is computed from where none is given, in both environments."""
ASSIGNMENT_DURATION_S = 60 * 60
LIFETIME_S = 7 * 24 * 60 * 60
AUTO_APPROVAL_S = 7 * 24 * 60 * 60
SERVER_PORT = 8765
MIN_SECRET_BYTES = 16
BACKENDS = ("auto", "numpy", "torch", "bf16", "int8", "cuda", "faiss")
"""What multiplies embeddings in exact search."""
ENGINES = ("local", "ray")
"""Where annotators work."""

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
    "crowd": {"endpoint", "environment", "contact", "image_base_url", "wage_floor_cents", "server_id"},
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
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What a command runs with."""

    project: Path
    """Folder that holds ``mitl.toml``, ``mitl.db`` and ``runs/``."""
    db_url: str
    crowd_db_url: str
    project_id: str
    """Part of every RequesterAnnotation and token; letters, digits and hyphens."""
    seed: int = SEED
    annotators: tuple[str, ...] = ()
    """What ``mitl propose`` asks by default, in this order."""
    annotator_config: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    top_k: int = TOP_K
    depth: int = DEPTH
    image_queries: int | None = None
    caption_queries: int | None = None
    backend: str = "auto"
    """One of ``BACKENDS``."""
    engine: str = "local"
    """One of ``ENGINES``."""
    ray_address: str | None = None
    """Of the cluster that the engine ``ray`` joins; None starts one of this machine's cores."""
    endpoint: str | None = None
    """An explicit endpoint; None for mitl's own crowd server."""
    endpoint_environment: Environment = Environment.LIVE
    endpoint_server_id: str | None = None
    contact: str | None = None
    image_base_url: str | None = None
    wage_floor_cents: int | None = None

    @property
    def runs(self) -> Path:
        """Where rankings lie."""
        return self.project / "runs"

    @property
    def wordings(self) -> Path:
        """The project's own HIT wordings, a folder each; may be missing."""
        return self.project / "hit_templates"

    @property
    def public(self) -> Path:
        """Where the pictures lie that pages show."""
        return self.project / "public"

    def secret(self) -> bytes:
        """The project's own secret (made at first use, mode 600); names of public images derive from it."""
        path = self.project / "project.key"
        try:
            known = bytes.fromhex(path.read_text(encoding="ascii").strip())
            if len(known) >= MIN_SECRET_BYTES:
                return known
            raise SettingsError(
                f"{path} holds {len(known)} bytes, too few for a key; restore it from a backup"
            )
        except FileNotFoundError:
            pass
        except ValueError as error:
            raise SettingsError(f"{path} is not a hexadecimal key; restore it from a backup") from error
        key = secrets.token_bytes(32)
        try:
            _write_new(path, key.hex() + "\n", mode=0o600)
        except FileExistsError:
            return self.secret()
        return key


def load(
    project: Path | None = None,
    *,
    db: str | None = None,
    crowd_db: str | None = None,
    seed: int | None = None,
    endpoint_url: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Settings of a project folder; a folder without ``mitl.toml`` gives the defaults.

    Raises:
        SettingsError: a file that is no TOML, an unknown key, a value of the wrong type.
    """
    given = os.environ if environ is None else environ
    env = {name: value for name, value in given.items() if value}  # set to nothing is not set
    folder = Path(project if project is not None else env.get("MITL_PROJECT", ".")).absolute()
    config = read_config(folder)
    about, database = config.get("project", {}), config.get("database", {})
    propose, crowd = config.get("propose", {}), config.get("crowd", {})
    endpoint = (
        endpoint_url
        or env.get("MITL_ENDPOINT_URL")
        or crowd.get("endpoint")
        or env.get("AWS_ENDPOINT_URL_MTURK")
    )
    return Settings(
        project=folder,
        db_url=db or env.get("MITL_DB") or database.get("url") or f"sqlite:///{folder / 'mitl.db'}",
        crowd_db_url=crowd_db
        or env.get("MITL_CROWD_DB")
        or database.get("crowd_url")
        or f"sqlite:///{folder / 'crowd.db'}",
        project_id=str(about.get("id", "unnamed")),
        seed=seed if seed is not None else _integer(env.get("MITL_SEED", about.get("seed", SEED)), "seed"),
        annotators=_names(propose.get("annotators", []), "propose.annotators"),
        annotator_config=config.get("annotators", {}),
        top_k=_integer(propose.get("top_k", TOP_K), "propose.top_k", least=1),
        depth=_integer(propose.get("depth", DEPTH), "propose.depth", least=1),
        image_queries=_optional_integer(propose.get("image_queries"), "propose.image_queries"),
        caption_queries=_optional_integer(propose.get("caption_queries"), "propose.caption_queries"),
        backend=_one_of(propose.get("backend", "auto"), "propose.backend", BACKENDS),
        engine=_one_of(propose.get("engine", "local"), "propose.engine", ENGINES),
        ray_address=propose.get("ray_address"),
        endpoint=endpoint,
        endpoint_environment=_environment(crowd.get("environment", "live")),
        endpoint_server_id=crowd.get("server_id"),
        contact=env.get("MITL_CONTACT") or crowd.get("contact"),
        image_base_url=env.get("MITL_IMAGE_BASE_URL") or crowd.get("image_base_url"),
        wage_floor_cents=_optional_integer(crowd.get("wage_floor_cents"), "crowd.wage_floor_cents"),
    )


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
        _write_new(path, tomlkit.dumps(document))
    except FileExistsError as error:
        raise SettingsError(f"{path} exists already; edit it, or choose another folder") from error
    return path


def _write_new(path: Path, text: str, *, mode: int = 0o666) -> None:
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


def _integer(value: object, name: str, *, least: int | None = None) -> int:
    try:
        number = int(str(value))
    except ValueError as error:
        raise SettingsError(f"{name} is {value!r}, but a whole number is wanted") from error
    if least is not None and number < least:
        raise SettingsError(f"{name} is {number}, but {least} is the least")
    return number


def _optional_integer(value: object, name: str) -> int | None:
    return None if value is None else _integer(value, name, least=0)


def _one_of(value: str, name: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise SettingsError(f"{name} is {value!r}; known: {', '.join(known)}")
    return value


def _names(value: object, name: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise SettingsError(f'{name} is {value!r}, but a list of names is wanted, as ["clip-mini"]')
    return tuple(value)


def _environment(value: object) -> Environment:
    try:
        return Environment(str(value))
    except ValueError as error:
        raise SettingsError(f"crowd.environment is {value!r}; known: sandbox, live") from error

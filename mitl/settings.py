"""The one place that reads the environment and ``mitl.toml``.

Precedence: option, environment (``MITL_*``), ``mitl.toml``, default.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mitl.config_file import read_config, write_new
from mitl.errors import SettingsError
from mitl.logs import FORMATS
from mitl.records import Environment, Label
from mitl.records.gold_rule import GoldRule

# Defaults of the project as a whole; docs/cli.md names them too.
SEED = 0
MOST_SEED = 2**31 - 1
"""Batches keep their seed, and PostgreSQL keeps no larger number there."""
TOP_K = 5
DEPTH = 25
WAGE_FLOOR_CENTS_PER_HOUR = {Environment.LIVE: 1200, Environment.SANDBOX: 0}
PRICING_FLOOR_CENTS_PER_HOUR = 1200
"""What the proposed reward is computed from where none is given, in both environments."""
ASSIGNMENT_DURATION_S = 60 * 60
LIFETIME_S = 7 * 24 * 60 * 60
AUTO_APPROVAL_S = 7 * 24 * 60 * 60
SERVER_PORT = 8765
MIN_SECONDS_A_PAIR = 2.0
"""Nobody reads a description of ten words and looks at a picture in less; Huang et al. 2012 take the same for an item
of a questionnaire ("Detecting and deterring insufficient effort responding to surveys")."""
MIN_SECRET_BYTES = 16
WORLD_FOLDER = "dataset"
"""Folder of the project that holds a generated world and its pictures, or those that were inside a table."""
BACKENDS = ("auto", "numpy", "torch", "bf16", "int8", "cuda", "faiss")
"""What multiplies embeddings in exact search."""
ENGINES = ("local", "ray")
"""Where annotators work."""


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
    ceiling_cents: int | None = None
    """The most that may be spent and promised in one environment, all batches, fees and bonuses together."""
    allowed_hosts: tuple[str, ...] = ()
    """From which requesters' pages may load scripts, styles and fonts, besides those that an option names."""
    max_hits_per_worker: int | None = None
    """In one environment; None sets no limit."""
    gold_positive_passes: tuple[Label, ...] = (Label.YES, Label.WEAK_YES)
    """The answers with which a gold positive passes."""
    gold_negative_passes: tuple[Label, ...] = (Label.WEAK_NO, Label.NO)
    """The answers with which a gold negative passes."""
    min_seconds_a_pair: float = MIN_SECONDS_A_PAIR
    """Answers faster than this are told as evidence, however fast the others are; 0 tells nothing."""
    release: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    """What the makers say of their releases; the fields of ``ReleaseCard``."""

    @property
    def gold_rule(self) -> GoldRule:
        """Which answers pass a control."""
        return GoldRule(self.gold_positive_passes, self.gold_negative_passes)

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

    @property
    def vendored(self) -> Path | None:
        """Copies of scripts and styles that requesters' pages name elsewhere; None where the folder is missing."""
        folder = self.project / "vendored"
        return folder if folder.is_dir() else None

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
            write_new(path, key.hex() + "\n", mode=0o600)
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
    propose, crowd, review = (config.get(name, {}) for name in ("propose", "crowd", "review"))
    endpoint = (
        endpoint_url
        or env.get("MITL_ENDPOINT_URL")
        or crowd.get("endpoint")
        or env.get("AWS_ENDPOINT_URL_MTURK")
    )
    return Settings(
        project=folder,
        db_url=db or _secret(env, "MITL_DB") or database.get("url") or f"sqlite:///{folder / 'mitl.db'}",
        crowd_db_url=crowd_db
        or _secret(env, "MITL_CROWD_DB")
        or database.get("crowd_url")
        or f"sqlite:///{folder / 'crowd.db'}",
        project_id=str(about.get("id", "unnamed")),
        seed=_seed(seed if seed is not None else env.get("MITL_SEED", about.get("seed", SEED))),
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
        ceiling_cents=_optional_integer(crowd.get("ceiling_cents"), "crowd.ceiling_cents"),
        allowed_hosts=_names(crowd.get("allowed_hosts", []), "crowd.allowed_hosts", "cdn.jsdelivr.net"),
        max_hits_per_worker=_optional_integer(
            crowd.get("max_hits_per_worker"), "crowd.max_hits_per_worker", least=1
        ),
        gold_positive_passes=_labels(review, "gold_positive_passes", (Label.YES, Label.WEAK_YES)),
        gold_negative_passes=_labels(review, "gold_negative_passes", (Label.WEAK_NO, Label.NO)),
        min_seconds_a_pair=_seconds(
            review.get("min_seconds_a_pair", MIN_SECONDS_A_PAIR), "review.min_seconds_a_pair"
        ),
        release={
            key: _names(value, "release.creators") if key == "creators" else str(value)
            for key, value in config.get("release", {}).items()
        },
    )


def _secret(env: Mapping[str, str], name: str) -> str | None:
    """A variable, or the text of the file that ``NAME_FILE`` names: a URL with a password belongs in no environment.

    Raises:
        SettingsError: both are set, or the file cannot be read or is empty.
    """
    path = env.get(f"{name}_FILE")
    if path is None:
        return env.get(name)
    if name in env:
        raise SettingsError(f"{name} and {name}_FILE are both set; unset one of them")
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{name}_FILE names {path}, which cannot be read: {error}") from error
    if not text:
        raise SettingsError(f"{name}_FILE names {path}, which is empty; write the URL into it")
    return text


def log_form(option: str | None, environ: Mapping[str, str] | None = None) -> str:
    """How to log: the option's, or the environment's, or as text.

    Raises:
        SettingsError: the environment asks for an unknown form.
    """
    env = os.environ if environ is None else environ
    return option or _one_of(env.get("MITL_LOG_FORMAT") or "text", "MITL_LOG_FORMAT", FORMATS)


def _integer(value: object, name: str, *, least: int | None = None) -> int:
    try:
        number = int(str(value))
    except ValueError as error:
        raise SettingsError(f"{name} is {value!r}, but a whole number is wanted") from error
    if least is not None and number < least:
        raise SettingsError(f"{name} is {number}, but {least} is the least")
    return number


def _seed(value: object) -> int:
    number = _integer(value, "seed", least=0)
    if number > MOST_SEED:
        raise SettingsError(f"seed is {number}, but {MOST_SEED} is the most")
    return number


def _optional_integer(value: object, name: str, *, least: int = 0) -> int | None:
    return None if value is None else _integer(value, name, least=least)


def _seconds(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 3600:
        raise SettingsError(f"{name} is {value!r}, but seconds from 0 to 3600 are wanted")
    return float(value)


def _labels(table: Mapping[str, Any], key: str, default: tuple[Label, ...]) -> tuple[Label, ...]:
    names = _names(table.get(key, [label.value for label in default]), f"review.{key}")
    wrong = next((name for name in names if name not in set(Label)), None)
    if wrong is not None or not names:
        raise SettingsError(f"review.{key} names {wrong or 'nothing'}; known answers: {', '.join(Label)}")
    return tuple(label for label in Label if label.value in names)


def _one_of(value: str, name: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise SettingsError(f"{name} is {value!r}; known: {', '.join(known)}")
    return value


def _names(value: object, name: str, such: str = "clip-mini") -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise SettingsError(f'{name} is {value!r}, but a list of names is wanted, as ["{such}"]')
    return tuple(value)


def _environment(value: object) -> Environment:
    try:
        return Environment(str(value))
    except ValueError as error:
        raise SettingsError(f"crowd.environment is {value!r}; known: sandbox, live") from error

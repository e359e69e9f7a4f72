"""The one place that reads the environment and ``mitl.toml``.

Precedence: option, environment (``MITL_*``), ``mitl.toml``, default. `TABLES` describes each setting once: how it is
read and what it means, from which docs/cli.md is made. A model of pydantic would hold the same with our lines for its
errors beside it, and add its import, 0.1 s, to every command.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mitl.core.whole_files import write_new
from mitl.errors import SettingsError
from mitl.logs import FORMATS
from mitl.records import Environment, Label
from mitl.records.questions import GoldRule

CONFIG_FILE = "mitl.toml"
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
BACKENDS = ("auto", "numpy", "torch", "bf16", "int16", "int8", "cuda", "faiss")
"""What multiplies embeddings in exact search."""
ENGINES = ("local", "ray")
"""Where annotators work."""

Read = Callable[[Any, str], Any]
"""Makes a setting's value of what TOML holds; given its name too, for the SettingsError where it cannot be meant."""


def _text(value: str, name: str) -> str:
    """As it is; `read_config` has looked that it is text."""
    return value


def _integer(least: int | None = None, most: int | None = None) -> Read:
    def read(value: object, name: str) -> int:
        try:
            number = int(str(value))
        except ValueError as error:
            raise SettingsError(f"{name} is {value!r}, but a whole number is wanted") from error
        for limit, word in ((least, "least"), (most, "most")):
            if limit is not None and (number < limit if word == "least" else number > limit):
                raise SettingsError(f"{name} is {number}, but {limit} is the {word}")
        return number

    return read


def _project_id(value: object, name: str) -> str:
    """As long as annotations and names of qualifications have room for. A colon tells their parts apart: the project
    ``a`` would take the HITs of ``a:b`` for its own."""
    if (
        not isinstance(value, str)
        or not re.fullmatch(r"[^\s:]([^:]{0,148}[^\s:])?", value)
        or not value.isprintable()
    ):
        raise SettingsError(
            f"{name} is {value!r}, but 1 to 150 letters, digits and hyphens are wanted, as `mitl init` writes it"
        )
    return value


def _seed(value: object, name: str) -> int:
    """Named as the option is, which sets it too."""
    number: int = _integer(0, MOST_SEED)(value, "seed")
    return number


def _seconds(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 3600:
        raise SettingsError(f"{name} is {value!r}, but seconds from 0 to 3600 are wanted")
    return float(value)


def _names(such: str) -> Read:
    def read(value: object, name: str) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            raise SettingsError(f'{name} is {value!r}, but a list of names is wanted, as ["{such}"]')
        return tuple(value)

    return read


def _labels(value: object, name: str) -> tuple[Label, ...]:
    names = _names("yes")(value, name)
    wrong = next((label for label in names if label not in set(Label)), None)
    if wrong is not None or not names:
        raise SettingsError(f"{name} names {wrong or 'nothing'}; known answers: {', '.join(Label)}")
    return tuple(label for label in Label if label.value in names)


def _one_of(*known: str) -> Read:
    def read(value: object, name: str) -> str:
        if value not in known:
            raise SettingsError(f"{name} is {value!r}; known: {', '.join(known)}")
        return str(value)

    return read


def _environment(value: object, name: str) -> Environment:
    return Environment(_one_of("sandbox", "live")(value, name))


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """A key of ``mitl.toml``."""

    means: str
    read: Read = _text
    held_as: str = ""
    """Field of `Settings`, where it is not called as the key is."""


TABLES: dict[str, dict[str, ConfigKey]] = {
    "project": {
        "name": ConfigKey("what the data set is called"),
        "id": ConfigKey(
            "part of every HIT's annotation and request token; made by `mitl init`, never change it",
            _project_id,
            held_as="project_id",
        ),
        "seed": ConfigKey("seed of everything that is drawn (0)", _seed),
    },
    "database": {
        "url": ConfigKey("pipeline database (`sqlite:///PROJECT/mitl.db`)"),
        "crowd_url": ConfigKey("crowd server's database (`sqlite:///PROJECT/crowd.db`)"),
    },
    "dataset": {"kind": ConfigKey("what was loaded; for the record")},
    "propose": {
        "annotators": ConfigKey("names that `mitl propose` asks, in this order", _names("clip-mini")),
        "image_queries": ConfigKey("how many images search (all)", _integer(0)),
        "caption_queries": ConfigKey("how many captions search (all)", _integer(0)),
        "top_k": ConfigKey("proposed per query and annotator (5)", _integer(1)),
        "depth": ConfigKey("kept in the ranking files (25)", _integer(1)),
        "backend": ConfigKey(
            "what multiplies embeddings: auto, numpy, torch, bf16, int16, int8, cuda or faiss; no ranking depends on "
            "it (auto)",
            _one_of(*BACKENDS),
        ),
        "engine": ConfigKey(
            "where annotators work: `local`, or `ray` workers; no ranking depends on it (local)",
            _one_of(*ENGINES),
        ),
        "ray_address": ConfigKey("cluster that the engine `ray` joins (none: this machine's cores)"),
    },
    "crowd": {
        "endpoint": ConfigKey("requester API to use instead of mitl's own crowd server"),
        "environment": ConfigKey(
            "what that endpoint is: `sandbox` or `live` (live)", _environment, "endpoint_environment"
        ),
        "server_id": ConfigKey(
            "refuse another server than this one at that endpoint", held_as="endpoint_server_id"
        ),
        "contact": ConfigKey("e-mail address that HIT pages and the release's datasheet show"),
        "image_base_url": ConfigKey(
            "https address at which `public/` is served, for an endpoint on another machine"
        ),
        "wage_floor_cents": ConfigKey(
            "least pay an hour at the template's estimate (1200 on live, 0 on sandbox)", _integer(0)
        ),
        "ceiling_cents": ConfigKey(
            "most that may be spent and promised in one environment, fees and bonuses included (no limit)",
            _integer(0),
        ),
        "max_hits_per_worker": ConfigKey(
            "HITs that one worker may do in one environment; harvests see to it (no limit)", _integer(1)
        ),
        "allowed_hosts": ConfigKey(
            "hosts from which requesters' pages may load scripts, styles and fonts by https; "
            "`mitl serve --allow-host` adds to them (none)",
            _names("cdn.jsdelivr.net"),
        ),
    },
    "review": {
        "gold_positive_passes": ConfigKey(
            'answers with which a gold positive passes (`["yes", "weak_yes"]`)', _labels
        ),
        "gold_negative_passes": ConfigKey(
            'answers with which a gold negative passes (`["weak_no", "no"]`)', _labels
        ),
        "min_seconds_a_pair": ConfigKey(
            "`review` and the desk say who takes less time for half of the pairs, however fast the others are; 0 says "
            "nothing (2)",
            _seconds,
        ),
    },
    "release": {
        "description": ConfigKey("what the data set is, in a sentence"),
        "version": ConfigKey("of the release (1.0.0)"),
        "license": ConfigKey("of judgements and positives, as an SPDX name or a URL"),
        "items_license": ConfigKey("of the images and captions, which the release names and does not hold"),
        "creators": ConfigKey("list of names", _names("Ada Lovelace")),
        "contact": ConfigKey("e-mail address ([crowd] contact)"),
        "url": ConfigKey("where the release is found"),
        "citation": ConfigKey("how to cite it"),
        "date_published": ConfigKey("ISO date; never taken from the clock"),
        "pay": ConfigKey("what workers were paid and how the time was measured (rewards and median time)"),
        "ethics": ConfigKey("consent and ethics review"),
    },
}
"""Table of ``mitl.toml`` → key → what it means and how it is read; beside them there is [annotators.NAME]."""
_FREE = ("dataset", "annotators")
"""Tables whose keys are not for us to know."""

VARIABLES: dict[str, str] = {
    "MITL_PROJECT": "project folder, as `--project`",
    "MITL_DB": "pipeline database, as `--db`",
    "MITL_CROWD_DB": "crowd server's database, as `--crowd-db`",
    "MITL_DB_FILE": "file that holds what `MITL_DB` would, for a URL with a password",
    "MITL_CROWD_DB_FILE": "the same of `MITL_CROWD_DB`",
    "MITL_SEED": "seed, as `--seed`",
    "MITL_ENDPOINT_URL": "requester API, as `--endpoint-url`",
    "MITL_CONTACT": "as `contact` in `[crowd]`",
    "MITL_LOG_FORMAT": "`text` or `json`, as `--log-format`",
    "MITL_IMAGE_BASE_URL": "as `image_base_url` in `[crowd]`",
    "AWS_ENDPOINT_URL_MTURK": "requester API, where no option, no `MITL_ENDPOINT_URL` and no `mitl.toml` names one",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What a command runs with; `TABLES` says what each field means that ``mitl.toml`` sets."""

    project: Path
    """Folder that holds ``mitl.toml``, ``mitl.db`` and ``runs/``."""
    db_url: str
    crowd_db_url: str
    project_id: str = "unnamed"
    seed: int = SEED
    annotators: tuple[str, ...] = ()
    annotator_config: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    top_k: int = TOP_K
    depth: int = DEPTH
    image_queries: int | None = None
    caption_queries: int | None = None
    backend: str = "auto"
    engine: str = "local"
    ray_address: str | None = None
    endpoint: str | None = None
    endpoint_environment: Environment = Environment.LIVE
    endpoint_server_id: str | None = None
    contact: str | None = None
    image_base_url: str | None = None
    wage_floor_cents: int | None = None
    ceiling_cents: int | None = None
    allowed_hosts: tuple[str, ...] = ()
    max_hits_per_worker: int | None = None
    gold_positive_passes: tuple[Label, ...] = (Label.YES, Label.WEAK_YES)
    gold_negative_passes: tuple[Label, ...] = (Label.WEAK_NO, Label.NO)
    min_seconds_a_pair: float = MIN_SECONDS_A_PAIR
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
            secret = bytes.fromhex(path.read_text(encoding="ascii").strip())
            if len(secret) >= MIN_SECRET_BYTES:
                return secret
            raise SettingsError(
                f"{path} holds {len(secret)} bytes, too few for a key; restore it from a backup"
            )
        except FileNotFoundError:
            pass
        except ValueError as error:
            raise SettingsError(f"{path} is not a hexadecimal key; restore it from a backup") from error
        key = os.urandom(32)
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
        SettingsError: a file that is not TOML, an unknown key, a value of the wrong type, a folder whose name is no
            text.
    """
    variables = os.environ if environ is None else environ
    env = {name: value for name, value in variables.items() if value}  # set to nothing is not set
    folder = Path(project if project is not None else env.get("MITL_PROJECT", ".")).absolute()
    try:
        str(folder).encode()
    except UnicodeEncodeError as error:
        raise SettingsError(f"the folder {str(folder)!a} has a name that is not UTF-8; rename it") from error
    config = read_config(folder)
    drawn_with = env.get("MITL_SEED") if seed is None else seed
    if drawn_with is not None:
        config.setdefault("project", {})["seed"] = drawn_with
    database, crowd = config.get("database", {}), config.get("crowd", {})
    values = {
        setting.held_as or key: setting.read(config[table][key], f"{table}.{key}")
        for table in ("project", "propose", "crowd", "review")
        for key, setting in TABLES[table].items()
        if key in config.get(table, {}) and key != "name"
    }
    return Settings(
        **values
        | {
            "project": folder,
            "db_url": db or _secret(env, "MITL_DB") or database.get("url") or sqlite_url(folder / "mitl.db"),
            "crowd_db_url": crowd_db
            or _secret(env, "MITL_CROWD_DB")
            or database.get("crowd_url")
            or sqlite_url(folder / "crowd.db"),
            "annotator_config": config.get("annotators", {}),
            "endpoint": endpoint_url
            or env.get("MITL_ENDPOINT_URL")
            or crowd.get("endpoint")
            or env.get("AWS_ENDPOINT_URL_MTURK"),
            "contact": env.get("MITL_CONTACT") or crowd.get("contact"),
            "image_base_url": env.get("MITL_IMAGE_BASE_URL") or crowd.get("image_base_url"),
            "release": {
                key: TABLES["release"][key].read(value, f"release.{key}")
                for key, value in config.get("release", {}).items()
            },
        }
    )


def sqlite_url(path: Path) -> str:
    """A file as a database's URL, in which a question mark would begin the options and %20 be a space."""
    return "sqlite:///" + str(path).replace("%", "%25").replace("?", "%3F")


def read_config(folder: Path) -> dict[str, Any]:
    """The tables of ``mitl.toml``; empty where there is no such file.

    Raises:
        SettingsError: no TOML, or a table or a key that there is not, or something else than text where text is wanted.
    """
    path = folder / CONFIG_FILE
    try:
        config = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        repr(config)  # ValueError where a number in hexadecimal has more digits than any message could show
    except FileNotFoundError:
        return {}
    except NotADirectoryError as error:
        raise SettingsError(f"{folder} is not a folder; name the project's folder with --project") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from error
    except ValueError as error:
        raise SettingsError(
            f"{path} sets a whole number of thousands of digits; write a smaller one"
        ) from error
    tables = sorted({*TABLES, *_FREE})
    for table, content in config.items():
        if table not in tables:
            raise SettingsError(f"{path} sets {table!r}; known tables: {', '.join(tables)}")
        if not isinstance(content, dict):
            raise SettingsError(
                f"{path} sets {table!r} to a single value, but it is a table; write [{table}]"
            )
        for key, value in content.items() if table not in _FREE else ():
            setting = TABLES[table].get(key)
            if setting is None:
                keys = ", ".join(sorted(TABLES[table]))
                raise SettingsError(f"{path} sets {table}.{key}; known in [{table}]: {keys}")
            if setting.read is _text and not isinstance(value, str):
                raise SettingsError(f"{path} sets {table}.{key} to {value!r}, but text in quotes is wanted")
    for name, annotator in config.get("annotators", {}).items():
        if not isinstance(annotator, dict):
            raise SettingsError(
                f"{path} sets annotators.{name} to {annotator!r}, but an annotator's settings are a table; "
                f"write [annotators.{name}]"
            )
    return config


def write_config(folder: Path, tables: Mapping[str, Mapping[str, Any]], comments: str = "") -> Path:
    """Write ``mitl.toml`` as a new file, with comments at its end; SettingsError where one exists."""
    import tomlkit

    document = tomlkit.document()
    for name, content in tables.items():
        document[name] = {key: value for key, value in content.items() if value is not None}
    path = folder / CONFIG_FILE
    try:
        write_new(path, tomlkit.dumps(document) + comments)
    except FileExistsError as error:
        raise SettingsError(f"{path} exists already; edit it, or choose another folder") from error
    return path


def log_form(option: str | None) -> str:
    """How to log: the option's, or the environment's, or as text.

    Raises:
        SettingsError: the environment asks for an unknown form.
    """
    return option or str(_one_of(*FORMATS)(os.environ.get("MITL_LOG_FORMAT") or "text", "MITL_LOG_FORMAT"))


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

"""Which column of a foreign batch means what: the file that ``--columns`` names."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mitl.crowd.batch_csv import Layout
from mitl.datasets.files import readable
from mitl.errors import DatasetError, SettingsError
from mitl.records import Direction, Label, Outcome, PairRole
from mitl.records.questions import RATIONALE
from mitl.records.results import listed

ANY = "*"
"""Stands for every value that the table does not name."""
MAX_PLACES = 10_000
"""More than any page has: a question of 65,535 bytes names no more pairs."""
MAX_SHOWN_COLUMNS = 60

_PLACE = re.compile(r"\{place(?::0(\d))?\}", re.ASCII)
_SOURCES = (
    "image",
    "caption",
    "caption_text",
    "label",
    *(question.name for question in RATIONALE),
    "active_ms",
    "role",
)
_REQUIRED = ("image", "caption", "caption_text", "label")
_SUBMISSION = ("hit", "assignment", "worker", "status", "accepted", "submitted", "annotation", "reward")
_SOURCE_KEYS = {"column", "value", "split", "pattern"}
_WORDS: dict[str, tuple[str, ...]] = {
    "labels": (*Label, *Outcome),
    **{question.column: question.values for question in RATIONALE if question.choices},
    "roles": tuple(PairRole),
}
_NO_WORDS = (Outcome.ANSWERED, PairRole.REPEAT, PairRole.OVERLAP, PairRole.AUDIT)
"""What a file does not say: it follows from the answers."""
_KEYS = (*_SOURCES, *_SUBMISSION, "direction", "keep", *_WORDS)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a value stands: a column, whose name may hold ``{place}``, or one and the same text for every row."""

    column: str | None = None
    value: str | None = None
    split: re.Pattern[str] | None = None
    """Separates the values of several places within the cell."""
    pattern: re.Pattern[str] | None = None
    """Its first group, or all that it finds, is the value."""

    @property
    def per_place(self) -> bool:
        """Whether every place has a column of its own."""
        return self.column is not None and _PLACE.search(self.column) is not None

    def column_at(self, place: int) -> str:
        """The column's name at a place: ``{place}`` gives 1, ``{place:02}`` gives 01."""
        assert self.column is not None
        return _PLACE.sub(lambda found: str(place).zfill(int(found[1] or 0)), self.column)


@dataclass(frozen=True, slots=True)
class ColumnMap:
    """What ``--columns`` says."""

    name: str
    tables: Mapping[str, Any]
    """As read, to be kept as JSON."""
    sources: Mapping[str, Source]
    words: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """labels, shortcomings, concepts, roles: the file's value → our word."""
    submission: Mapping[str, str] = field(default_factory=dict)
    """Columns that take the layout's own place."""
    keep: tuple[str, ...] = ()
    """Shell patterns of columns that hold nothing to be read."""
    direction: Direction | None = None
    """Which side searched, in the official layout, which does not say."""

    def layout(self, found: Layout | None) -> Layout | None:
        """The file's layout with the columns that the mapping names; one of its own where it names ids enough."""
        columns: Any = self.submission
        if found is not None:
            return replace(found, **columns)
        if not {"assignment", "worker"} <= columns.keys():
            return None
        return Layout(kind="table", **{"hit": None, **columns})

    def places(self, present: Collection[str]) -> tuple[int, ...]:
        """The places that have a column for every source; (0,) where the columns are not numbered."""
        numbered = [source for source in self.sources.values() if source.per_place]
        if not numbered:
            return (0,)
        needed = [source for name, source in self.sources.items() if source.per_place and name in _REQUIRED]
        return tuple(
            place
            for place in range(MAX_PLACES)
            if all(source.column_at(place) in present for source in needed or numbered)
        )

    def columns(self, present: Collection[str]) -> set[str]:
        """The columns that it reads.

        Raises:
            DatasetError: one of them is not in the file.
        """
        named = set(self.submission.values())
        for source in self.sources.values():
            if source.per_place:
                named |= {source.column_at(place) for place in range(MAX_PLACES)} & set(present)
            elif source.column is not None:
                named.add(source.column)
        missing = sorted(named - set(present))
        if missing:
            raise DatasetError(
                f"{self.name!r} names the column {missing[0]!r}, which the file lacks; it has {shown_columns(present)}"
            )
        if not self.places(present):
            columns = ", ".join(repr(source.column) for source in self.sources.values() if source.per_place)
            raise DatasetError(f"no place has all of {columns}; the file has {shown_columns(present)}")
        return named


def shown_columns(columns: Collection[str]) -> str:
    """The names for a message, a bounded number of them."""
    return listed([column for column in columns if column], MAX_SHOWN_COLUMNS)


def read_column_map(path: Path) -> ColumnMap:
    """The mapping in a TOML file.

    Raises:
        DatasetError: there is no such file.
        SettingsError: it is not TOML, has an unknown key or a value that cannot be meant.
    """
    with readable(path, "what the columns mean"):
        data = path.read_bytes()
    try:
        tables = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{str(path)!r} is not TOML: {error}") from error
    return column_map(tables, path.name)


def column_map(tables: Mapping[str, Any], name: str) -> ColumnMap:
    """The mapping in what a TOML file says, or in the JSON that was kept of it."""
    for key in tables:
        if key not in _KEYS:
            raise SettingsError(f"{name!r} sets {key!r}; known: {', '.join(_KEYS)}")
    submission = {key: tables[key] for key in _SUBMISSION if key in tables}
    for key, value in submission.items():
        if not isinstance(value, str):
            raise SettingsError(f"{name!r} sets {key} to {value!r}, but a column's name is wanted")
    return ColumnMap(
        name=name,
        tables=tables,
        sources={key: _source(tables[key], key, name) for key in _SOURCES if key in tables},
        words={key: _words(tables[key], key, name) for key in _WORDS if key in tables},
        submission=submission,
        keep=_patterns(tables.get("keep", []), name),
        direction=_direction(tables.get("direction"), name),
    )


def require_pairs(mapping: ColumnMap) -> None:
    """Refuse a mapping that does not say where pairs and answers stand.

    Raises:
        SettingsError: naming what is missing.
    """
    missing = [key for key in ("image", "label") if key not in mapping.sources]
    if not {"caption", "caption_text"} & mapping.sources.keys():
        missing.insert(len(missing) - ("label" in missing), "caption (or caption_text)")
    if missing:
        raise SettingsError(
            f"{mapping.name!r} does not say which column holds {' and '.join(missing)}; write {missing[0].split()[0]}"
            ' = "COLUMN"'
        )


def _source(value: object, key: str, name: str) -> Source:
    if isinstance(value, str):
        return Source(column=value)
    if not isinstance(value, dict) or not all(isinstance(part, str) for part in value.values()):
        raise SettingsError(f"{name!r} sets {key} to {value!r}, but a column's name or a table is wanted")
    unknown = value.keys() - _SOURCE_KEYS
    if unknown or len({"column", "value"} & value.keys()) != 1:
        wrong = f"names {sorted(unknown)[0]!r}" if unknown else "needs either column or value"
        raise SettingsError(f"{key} in {name!r} {wrong}; known: column or value, split, pattern")
    return Source(
        value.get("column"),
        value.get("value"),
        _regex(value.get("split"), f"{key}.split", name),
        _regex(value.get("pattern"), f"{key}.pattern", name),
    )


def _regex(text: str | None, key: str, name: str) -> re.Pattern[str] | None:
    try:
        return None if not text else re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise SettingsError(f"{key} in {name!r} is not a regular expression: {error}") from error


def _words(table: object, key: str, name: str) -> dict[str, str]:
    if not isinstance(table, dict):
        raise SettingsError(f"{name!r} sets {key} to {table!r}, but it is a table; write [{key}]")
    words = [str(word) for word in _WORDS[key] if word not in _NO_WORDS]
    for value, word in table.items():
        if word not in words:
            raise SettingsError(f"[{key}] in {name!r} maps {value!r} to {word!r}; known: {', '.join(words)}")
    return dict(table)


def _patterns(value: object, name: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise SettingsError(f'{name!r} sets keep to {value!r}, but a list of columns is wanted, as ["note*"]')
    return tuple(value)


def _direction(value: object, name: str) -> Direction | None:
    if value is not None and value not in list(Direction):
        raise SettingsError(f"{name!r} sets direction to {value!r}; known: {', '.join(Direction)}")
    return None if value is None else Direction(str(value))

"""What a stage did, for people and for machines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, TypedDict, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T", bound=type)

PRINTED: dict[str, dict[str, type]] = {"counts": {}, "paths": {}}
"""Key of ``--json`` → command → the `TypedDict` that it prints there; filled as use cases are imported."""


def printed_by(*commands: str, key: str = "counts") -> Callable[[T], T]:
    """Register a `TypedDict` as what these commands print under ``counts``, or ``paths``, of ``--json``.

    Each of its keys is ``Annotated`` with what it means, from which ``docs/cli.md`` is made.
    """

    def register(keys: T) -> T:
        PRINTED[key].update(dict.fromkeys(commands, keys))
        return keys

    return register


def meanings(keys: type) -> Mapping[str, str]:
    """What each key of a registered `TypedDict` means, in its order; one of a base class first."""
    hints = get_type_hints(keys, include_extras=True)
    return {name: _meaning(hint) for name, hint in hints.items()}


def _meaning(hint: object) -> str:
    """The text of ``Annotated[T, text]``, also within ``NotRequired``."""
    if get_origin(hint) is Annotated:
        return str(get_args(hint)[1])
    [inner] = get_args(hint)
    return _meaning(inner)


class EnvironmentCounts(TypedDict):
    """What each command of one environment prints."""

    environment: Annotated[str, "sandbox or live"]


class CsvPaths(TypedDict, total=False):
    """What a command wrote that writes nothing but a table."""

    csv: Annotated[str, "the CSV file, with `--csv`"]


def several(count: int, noun: str, nouns: str = "") -> str:
    """``1 page``, ``2,000 pages``; ``nouns`` is the plural that is not made by an s."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def listed(names: Sequence[str], most: int, between: str = ", ") -> str:
    """``a, b and 2 more``: so many names at most, and how many others there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return between.join(names[:most]) + more


class ImageName(str):
    """An image's name in a table, with the number of its row, by which a page can show it."""

    image_id: int

    @classmethod
    def of(cls, name: str, image_id: int) -> ImageName:
        """The name of this row."""
        made = cls(name)
        made.image_id = image_id
        return made


@dataclass(frozen=True, slots=True)
class Table:
    """Rows for people to read; numbers stay numbers until they are printed."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]


@dataclass(frozen=True, slots=True)
class StageResult:
    """What one run of a stage did, for people and for ``--json``."""

    status: str = "done"
    """done, nothing_to_do or error."""
    counts: Mapping[str, object] = field(default_factory=dict)
    """A `TypedDict` that ``printed_by`` registers."""
    paths: Mapping[str, object] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    """For people; never part of ``--json``."""
    lines: tuple[str, ...] = ()
    """For people, printed after the tables."""
    next: str = ""
    """What a person would do next."""

    @classmethod
    def nothing(cls, why: str, counts: Mapping[str, object] | None = None, next: str = "") -> StageResult:
        """Of a run that found nothing to do."""
        return cls("nothing_to_do", counts or {}, lines=(f"nothing to do: {why}",), next=next)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check found, and in one line why it will not do; None where it will."""

    result: StageResult
    refusal: str | None = None

"""One annotator's configuration, read with checks: a dictionary from ``[annotators.NAME]`` of mitl.toml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mitl.errors import AnnotatorError


@dataclass(frozen=True, slots=True)
class Options:
    """The settings of the annotator called ``annotator``; relative paths start at ``folder``."""

    annotator: str
    values: Mapping[str, object] = field(default_factory=dict)
    folder: Path = field(default_factory=Path)

    def only(self, *known: str) -> None:
        """Raise AnnotatorError for a setting that is not among ``known``, so that no typing error is ignored."""
        unknown = sorted(set(self.values) - set(known))
        if unknown:
            raise AnnotatorError(
                f"annotator {self.annotator!r} has no setting {unknown[0]!r}; "
                f"known: {', '.join(sorted(known))}"
            )

    def text(self, key: str, default: str | None = None, *, choices: Sequence[str] = ()) -> str:
        """A string, one of ``choices`` where there are any; without a default it must be given."""
        value = self.values.get(key, default)
        if value is None:
            raise AnnotatorError(f"annotator {self.annotator!r} needs the setting {key!r}")
        if not isinstance(value, str) or not value:
            raise self._wrong(key, value, "a text")
        if choices and value not in choices:
            raise self._wrong(key, value, f"one of {', '.join(choices)}")
        return value

    def whole(self, key: str, default: int, *, least: int = 1) -> int:
        """A whole number of at least ``least``."""
        value = self.values.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self._wrong(key, value, f"a whole number from {least}")
        return value

    def number(self, key: str, default: float) -> float:
        """A number from 0."""
        value = self.values.get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < float("inf"):
            raise self._wrong(key, value, "a number from 0")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def path(self, key: str) -> Path:
        """The path of a file or folder that exists."""
        return self.existing(key, self.values.get(key))

    def paths(self, key: str, names: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Path]:
        """A table of paths, one for each of ``names`` and perhaps of ``optional``; every file must exist."""
        table = self.values.get(key)
        if not isinstance(table, Mapping):
            raise self._wrong(key, table, "a table {" + ", ".join(f"{n} = PATH" for n in names) + "}")
        missing = [name for name in names if name not in table]
        if missing:
            raise AnnotatorError(f"{key!r} of annotator {self.annotator!r} lacks {missing[0]!r}")
        unknown = sorted(set(table) - {*names, *optional})
        if unknown:
            raise self._wrong(key, unknown[0], f"one of {', '.join([*names, *optional])}")
        keys = [*names, *(name for name in optional if name in table)]
        return {name: self.existing(f"{key}.{name}", table[name]) for name in keys}

    def existing(self, key: str, value: object) -> Path:
        """``value`` as a path below ``folder``; AnnotatorError where nothing is there."""
        if not isinstance(value, str | Path) or not str(value):
            raise self._wrong(key, value, "a path")
        path = self.folder / Path(value).expanduser()
        if not path.exists():
            raise AnnotatorError(
                f"{key!r} of annotator {self.annotator!r} names {str(path)!r}, which is missing"
            )
        return path

    def _wrong(self, key: str, value: object, right: str) -> AnnotatorError:
        return AnnotatorError(f"{key!r} of annotator {self.annotator!r} is {value!r}; it should be {right}")

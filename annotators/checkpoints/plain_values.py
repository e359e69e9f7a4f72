"""The plain values that a pickle may make by a call, each made by a function of ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from reprlib import Repr
from typing import Any

import numpy as np

NUMBER_TYPE = re.compile(r"[<>=|]?[biuf][1248]")


class Table(dict[Any, Any]):
    """An OrderedDict or another mapping of the standard library, whose attributes do not matter."""


class Attributes(dict[Any, Any]):
    """A Namespace: its attributes as a dictionary."""


class ByteString(str):
    """A string of Python 2 with other than ASCII letters, as text; ``raw`` are its bytes."""

    __slots__ = ("raw",)
    raw: bytes


class NumpyType:
    """The type of a NumPy scalar; ``order`` is set by the state that follows it in the pickle."""

    __slots__ = ("code", "order")

    def __init__(self, code: str, *_: object) -> None:
        if not NUMBER_TYPE.fullmatch(as_text(code)):
            raise ValueError(f"a NumPy type {code!r:.40} that is no number")
        self.code, self.order = code, "="


def text_of_python_2(latin_1: str) -> str:
    """The text of a Python 2 string whose bytes were read as Latin-1: UTF-8 where that fits, else Latin-1."""
    if latin_1.isascii():
        return latin_1
    raw = latin_1.encode("latin-1")
    try:
        text = ByteString(raw.decode())
    except UnicodeDecodeError:
        text = ByteString(latin_1)
    text.raw = raw
    return text


def as_key(value: Any) -> Any:
    """``value`` where it may be a key; hashing tuples of tuples of tuples could take for ever."""
    parts = value if isinstance(value, tuple) else (value,)
    if any(isinstance(part, tuple | list | dict | set | frozenset | bytearray) for part in parts):
        raise ValueError(f"a key that is a {type(value).__name__}")
    return value


def as_text(value: Any) -> str:
    """``value`` where it is a text; a list that holds itself many times over would take for ever to print."""
    if not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__} where a text belongs")
    return value


class _Short(Repr):
    """Some sixty characters of a value, whatever it holds."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother = 2, 60, 60

    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if x.bit_length() <= 128 else f"a number of {x.bit_length():,} bits"


def in_short(value: object) -> str:
    """What a message says of a value in a file; a list that holds itself many times over would never be printed."""
    return f"{_Short().repr(value):.60}"


def _bytes_of(value: Any) -> bytes:
    if isinstance(value, ByteString):
        return value.raw
    return value.encode("latin-1") if isinstance(value, str) else bytes(memoryview(value))


def _table(first: Any = (), *_: object) -> Table:
    """A mapping from nothing, from another or from pairs (Python 2 writes an OrderedDict as a list of lists)."""
    pairs: Iterable[Any] = first.items() if isinstance(first, dict) else first
    return Table({as_key(key): value for key, value in pairs})


def _scalar(kind: NumpyType, raw: Any = b"") -> object:
    order = kind.order if kind.order in ("<", ">") else "="
    (value,) = np.frombuffer(_bytes_of(raw), dtype=np.dtype(order + kind.code.lstrip("<>=|")))
    return value.item()


def _encoded(text: str, encoding: str = "latin1") -> bytes:
    if as_text(encoding) not in ("latin1", "latin-1"):
        raise ValueError(f"bytes written as {encoding!r:.20}")
    return as_text(text).encode("latin-1")


def _members(values: Any = ()) -> list[Any]:
    if not isinstance(values, list | tuple | set | frozenset):
        raise TypeError(f"members that are a {type(values).__name__}")
    return list(values)


def _device(kind: str, index: int | None = None) -> str:
    return as_text(kind) if index is None else f"{as_text(kind)}:{int(index)}"


PLAIN: dict[str, Callable[..., object]] = {
    "argparse.Namespace": lambda *_: Attributes(),
    "types.SimpleNamespace": lambda *_: Attributes(),
    "collections.OrderedDict": _table,
    "collections.Counter": _table,
    "collections.defaultdict": lambda *_: Table(),
    "builtins.dict": _table,
    "builtins.list": _members,
    "builtins.tuple": lambda *given: tuple(_members(*given)),
    "builtins.set": lambda *given: {as_key(value) for value in _members(*given)},
    "builtins.frozenset": lambda *given: frozenset(as_key(value) for value in _members(*given)),
    "builtins.complex": complex,
    "builtins.bytearray": lambda raw=b"", *_: bytearray(_bytes_of(raw)),
    "builtins.bytes": lambda raw=b"", *_: _bytes_of(raw),
    "_codecs.encode": _encoded,
    "numpy.dtype": NumpyType,
    "numpy.core.multiarray.scalar": _scalar,
    "numpy._core.multiarray.scalar": _scalar,
    "torch.Size": lambda *given: tuple(_members(*given)),
    "torch.device": _device,
}
"""Path in Python 3 words -> what makes the value. A class of the standard library is never instantiated through
its name: a Namespace becomes a dictionary of its attributes, a NumPy scalar a Python number."""

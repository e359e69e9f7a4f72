"""The stack machine of pickles, with nothing in it that can be called but our own makers of plain values."""

from __future__ import annotations

import pickletools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from annotators.checkpoints.inert import Inert, Reference
from annotators.checkpoints.plain_values import (
    Attributes,
    NumpyType,
    Table,
    as_key,
    as_text,
    text_of_python_2,
)
from mitl.errors import AnnotatorError

Call = Callable[..., object]
"""Makes a plain value from the arguments of a call in a pickle; ValueError or TypeError where they are wrong."""

PYTHON_2_MODULES = frozenset({"__builtin__", "copy_reg", "commands", "cPickle", "urllib2", "popen2"})
VALUE_MODULES = frozenset({"collections", "datetime", "decimal", "enum", "fractions", "pathlib", "uuid"})
"""Modules of the standard library whose objects are values: they are written down, not refused."""
NUMPY_VALUES = ("numpy.core.multiarray.", "numpy._core.multiarray.", "numpy.random.")
"""Calls that make NumPy's arrays and random states, which are written down as well."""


class Readable(Protocol):
    """A file whose pickle starts where it stands and ends at its own STOP."""

    def read(self, n: int, /) -> bytes:
        """At most n bytes."""
        ...

    def readline(self) -> bytes:
        """The rest of the line."""
        ...


class Machine:
    """The stack, the memo and one method for each kind of instruction."""

    def __init__(
        self, source: Path, calls: Mapping[str, Call], persistent: Callable[[Any], object] | None
    ) -> None:
        self.source, self.calls, self.persistent = source, calls, persistent
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, object] = {}

    def run(self, file: Readable) -> object:
        """The value that the program leaves when it stops."""
        for opcode, argument, _ in pickletools.genops(file):  # type: ignore[arg-type]
            name = opcode.name
            if name == "STOP":
                return self.stack.pop()
            if name in _PUSHES:
                self.stack.append(argument)
            elif name in _STEPS:
                _STEPS[name](self, argument)
            else:
                raise self.refusal(f"uses the instruction {name}, which no weights need")
        raise ValueError("no end")

    def refusal(self, what: str) -> AnnotatorError:
        return AnnotatorError(
            f"{str(self.source)!r} {what}; nothing of it was run: take the file from its authors again"
        )

    def top(self, kinds: type | tuple[type, ...], doing: str) -> Any:
        if not isinstance(self.stack[-1], kinds):
            raise self.refusal(f"wants to {doing} a {type(self.stack[-1]).__name__}")
        return self.stack[-1]

    def above_mark(self) -> list[Any]:
        start = self.marks.pop()
        found = self.stack[start:]
        del self.stack[start:]
        return found

    def call(self, what: object, arguments: object, *, function: bool) -> object:
        """The value of a call; ``function`` where the program may mean one, not only the making of an object."""
        if not isinstance(what, Reference) or not isinstance(arguments, tuple):
            raise self.refusal(f"asks to call a {type(what).__name__}")
        if what.path == "copyreg._reconstructor":
            return self.call(arguments[0], (), function=False)
        if what.path in self.calls:
            return self.calls[what.path](*arguments)
        module = what.module.partition(".")[0]
        if module in VALUE_MODULES or what.path.startswith(NUMPY_VALUES):
            return Inert(what, arguments)
        library = module in sys.stdlib_module_names or module in PYTHON_2_MODULES
        if library or (function and module in ("torch", "numpy")):
            raise self.refusal(f"asks to call {what.path!r}, which no weights need")
        return Inert(what, arguments)

    def reduce(self, _: object) -> None:
        arguments = self.stack.pop()
        self.stack.append(self.call(self.stack.pop(), arguments, function=True))

    def new(self, _: object) -> None:
        arguments = self.stack.pop()
        self.stack.append(self.call(self.stack.pop(), arguments, function=False))

    def new_with_keywords(self, _: object) -> None:
        keywords, arguments = self.stack.pop(), self.stack.pop()
        made = self.call(self.stack.pop(), arguments, function=False)
        if keywords and isinstance(made, Inert):
            made.arguments = (made.arguments, keywords)
        self.stack.append(made)

    def make(self, _: object) -> None:
        what, *arguments = self.above_mark()
        self.stack.append(self.call(what, tuple(arguments), function=False))

    def instance(self, argument: str) -> None:
        self.stack.append(self.call(_reference(argument), tuple(self.above_mark()), function=False))

    def build(self, _: object) -> None:
        state = self.stack.pop()
        target = self.top((Inert, Table, Attributes, NumpyType), "set the state of")
        if isinstance(target, Inert):
            target.state = state
        elif isinstance(target, NumpyType):
            target.order = as_text(state[1])
        elif isinstance(target, Attributes):
            target.update({str(key): value for key, value in state.items()})

    def put(self, place: int) -> None:
        self.memo[place] = self.stack[-1]

    def memoize(self, _: object) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def get(self, place: int) -> None:
        self.stack.append(self.memo[place])

    def append(self, _: object) -> None:
        self.extend([self.stack.pop()])

    def appends(self, _: object) -> None:
        self.extend(self.above_mark())

    def extend(self, values: Sequence[object]) -> None:
        target = self.top((list, Inert), "append to")
        (target.items if isinstance(target, Inert) else target).extend(values)

    def add_items(self, _: object) -> None:
        values = self.above_mark()
        target = self.top((set, Inert), "add to")
        if isinstance(target, Inert):
            target.items.extend(values)
        else:
            target.update(as_key(value) for value in values)

    def set_item(self, _: object) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.set_pairs([key, value])

    def set_items(self, _: object) -> None:
        self.set_pairs(self.above_mark())

    def set_pairs(self, flat: Sequence[object]) -> None:
        target = self.top((dict, Inert), "set an item of")
        for key, value in _pairs(flat):
            if isinstance(target, Inert):
                target.items.append((key, value))
            else:
                target[as_key(key)] = value

    def global_(self, argument: str) -> None:
        self.stack.append(_reference(argument))

    def stack_global(self, _: object) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise self.refusal("names something by other than words")
        self.stack.append(Reference(module, name))

    def persistent_id(self, _: object) -> None:
        if self.persistent is None:
            raise self.refusal("refers to something outside itself")
        self.stack.append(self.persistent(self.stack.pop()))

    def python_2_string(self, argument: str) -> None:
        self.stack.append(text_of_python_2(argument))

    def mark(self, _: object) -> None:
        self.marks.append(len(self.stack))

    def tuple_of(self, count: int) -> None:
        found = tuple(self.stack[-count:])
        if len(found) != count:
            raise ValueError("too few values for a tuple")
        self.stack[-count:] = [found]


def _reference(argument: str) -> Reference:
    # pickletools gives the two lines of GLOBAL and INST as one text with a blank between them.
    module, _, name = argument.partition(" ")
    return Reference(module, name)


def _pairs(flat: Sequence[object]) -> Iterator[tuple[object, object]]:
    if len(flat) % 2:
        raise ValueError("a key without a value")
    return zip(flat[::2], flat[1::2], strict=True)


_PUSHES = frozenset(
    {
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    }
)
"""Instructions whose argument is the value."""

_STEPS: dict[str, Callable[[Machine, Any], object]] = {
    "NONE": lambda m, _: m.stack.append(None),
    "NEWTRUE": lambda m, _: m.stack.append(True),
    "NEWFALSE": lambda m, _: m.stack.append(False),
    "STRING": Machine.python_2_string,
    "BINSTRING": Machine.python_2_string,
    "SHORT_BINSTRING": Machine.python_2_string,
    "EMPTY_LIST": lambda m, _: m.stack.append([]),
    "EMPTY_TUPLE": lambda m, _: m.stack.append(()),
    "EMPTY_DICT": lambda m, _: m.stack.append({}),
    "EMPTY_SET": lambda m, _: m.stack.append(set()),
    "LIST": lambda m, _: m.stack.append(m.above_mark()),
    "TUPLE": lambda m, _: m.stack.append(tuple(m.above_mark())),
    "TUPLE1": lambda m, _: m.tuple_of(1),
    "TUPLE2": lambda m, _: m.tuple_of(2),
    "TUPLE3": lambda m, _: m.tuple_of(3),
    "DICT": lambda m, _: m.stack.append({as_key(key): value for key, value in _pairs(m.above_mark())}),
    "FROZENSET": lambda m, _: m.stack.append(frozenset(as_key(value) for value in m.above_mark())),
    "MARK": Machine.mark,
    "POP": lambda m, _: m.stack.pop(),
    "POP_MARK": lambda m, _: m.above_mark(),
    "DUP": lambda m, _: m.stack.append(m.stack[-1]),
    "PUT": Machine.put,
    "BINPUT": Machine.put,
    "LONG_BINPUT": Machine.put,
    "MEMOIZE": Machine.memoize,
    "GET": Machine.get,
    "BINGET": Machine.get,
    "LONG_BINGET": Machine.get,
    "APPEND": Machine.append,
    "APPENDS": Machine.appends,
    "ADDITEMS": Machine.add_items,
    "SETITEM": Machine.set_item,
    "SETITEMS": Machine.set_items,
    "GLOBAL": Machine.global_,
    "STACK_GLOBAL": Machine.stack_global,
    "REDUCE": Machine.reduce,
    "NEWOBJ": Machine.new,
    "NEWOBJ_EX": Machine.new_with_keywords,
    "OBJ": Machine.make,
    "INST": Machine.instance,
    "BUILD": Machine.build,
    "BINPERSID": Machine.persistent_id,
    "PROTO": lambda m, _: None,
    "FRAME": lambda m, _: None,
}

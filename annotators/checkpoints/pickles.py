"""Pickles read without importing, calling or building anything that they name.

A pickle is a program for a stack machine, and Python's own machine runs whatever function the program names. The
machine here has the same instructions, but a name in the pickle stays a pair of words (``NamedThing``): nothing is
looked up by it. What happens when the program "calls" such a name is one of three things:

* the name stands in a table of plain values (an OrderedDict, a Namespace, a NumPy scalar, a tensor): then our own
  function, found by that name in the table and nowhere else, makes the value from the arguments;
* the name belongs to the standard library, or is a function of torch or NumPy that the table lacks: no weights
  need such a call, and this is how a payload looks, so the file is refused in one line;
* any other name (Lightning's, Sacred's, an author's own class): the call is written down as an ``Inert`` value
  with its arguments, state and items, and that is all that ever happens to it.

So safety rests on nothing being callable, not on a list of bad names; the refusals only make an attack visible.
Instructions that set attributes touch ``Inert`` values and our own tables alone, never a class, a function or a
module. The instructions are decoded by ``pickletools``, for all protocols, Python 2's strings included.

Python's own ``pickle.Unpickler`` with a ``find_class`` that gives inert classes would be shorter and is not enough. Its
memo is as long as the greatest index in the file (nine bytes ask for 64 GiB), it hashes whatever is a key (sixty nested
pairs never end), and it sets states and items of whatever stands on the stack, of tensors too.
"""

from __future__ import annotations

import pickletools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from reprlib import Repr
from typing import Any, Protocol

import numpy as np

from mitl.errors import AnnotatorError

NUMBER_TYPE = re.compile(r"[<>=|]?[biuf][1248]")


class MappingValue(dict[Any, Any]):
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
            raise ValueError(f"a NumPy type {code!r:.40} that is not a number")
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
    if any(isinstance(part, int) and part.bit_length() > 128 for part in parts):
        raise ValueError(f"a key that is {in_short(value)}")  # nor can Python print it
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


def _table(first: Any = (), *_: object) -> MappingValue:
    """A mapping from nothing, from another or from pairs (Python 2 writes an OrderedDict as a list of lists)."""
    pairs: Iterable[Any] = first.items() if isinstance(first, dict) else first
    return MappingValue({as_key(key): value for key, value in pairs})


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
    "collections.defaultdict": lambda *_: MappingValue(),
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


Call = Callable[..., object]
"""Makes a plain value from the arguments of a call in a pickle; ValueError or TypeError where they are wrong."""

PYTHON_2_MODULES = frozenset({"__builtin__", "copy_reg", "commands", "cPickle", "urllib2", "popen2"})
VALUE_MODULES = frozenset({"collections", "datetime", "decimal", "enum", "fractions", "pathlib", "uuid"})
"""Modules of the standard library whose objects are values: they are written down, not refused."""
NUMPY_VALUES = ("numpy.core.multiarray.", "numpy._core.multiarray.", "numpy.random.")
"""Calls that make NumPy's arrays and random states, which are written down as well."""


@dataclass(frozen=True, slots=True, eq=False)
class NamedThing:
    """A name in a pickle; nothing was imported for it."""

    module: str
    name: str

    @property
    def path(self) -> str:
        """Both words, as one would write them in Python 3."""
        module = {"__builtin__": "builtins", "copy_reg": "copyreg"}.get(self.module, self.module)
        return f"{module}.{self.name}"

    def __repr__(self) -> str:
        return f"<{self.path}, not imported>"


class Inert:
    """What a pickle says of an object that was not made: its class, arguments, state and items."""

    __slots__ = ("arguments", "items", "state", "what")

    def __init__(self, what: NamedThing, arguments: object = ()) -> None:
        self.what = what
        self.arguments = arguments
        self.state: object = None
        self.items: list[object] = []
        """Members of a list or set; (key, value) pairs of a mapping."""

    def __repr__(self) -> str:
        return f"<{self.what.path}, not made>"


class Readable(Protocol):
    """A file whose pickle starts where it stands and ends at its own STOP."""

    def read(self, n: int, /) -> bytes:
        """At most n bytes."""
        ...

    def readline(self) -> bytes:
        """The rest of the line."""
        ...


def unpickle(
    file: Readable,
    source: Path,
    *,
    calls: Mapping[str, Call] | None = None,
    persistent: Callable[[Any], object] | None = None,
) -> object:
    """The plain values of one pickle, with ``Inert`` for all else; the file then stands behind it.

    Args:
        source: named in messages.
        calls: further plain values, by their path in Python 3 words.
        persistent: makes a value from a persistent id; without it a pickle with such ids is refused.

    Raises:
        AnnotatorError: the pickle is cut off or damaged, or asks for a call that only a payload needs.
    """
    machine = PickleMachine(source, {**PLAIN, **(calls or {})}, persistent)
    try:
        return machine.run(file)
    # A damaged program can fail in any of these ways, and only in a value of ours.
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RuntimeError) as error:
        line = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise AnnotatorError(
            f"the pickle in {str(source)!r} is cut off or damaged ({line}); fetch the file again"
        ) from error


class PickleMachine:
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
        """What is raised where a file wants more than weights need; ``what`` says what that is."""
        return AnnotatorError(
            f"{str(self.source)!r} {what}; nothing of it was run: take the file from its authors again"
        )

    def top(self, kinds: type | tuple[type, ...], doing: str) -> Any:
        """The value on top of the stack, refused where it is none of these kinds."""
        if not isinstance(self.stack[-1], kinds):
            raise self.refusal(f"wants to {doing} a {type(self.stack[-1]).__name__}")
        return self.stack[-1]

    def above_mark(self) -> list[Any]:
        """Take the values above the last mark off the stack, in the order in which they came."""
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def call(self, what: object, arguments: object, *, function: bool) -> object:
        """The value of a call; ``function`` where the program may mean one, not only the making of an object."""
        if not isinstance(what, NamedThing) or not isinstance(arguments, tuple):
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

    def called(self, *, function: bool) -> None:
        """Put what a call gives in place of its function and arguments."""
        arguments = self.stack.pop()
        self.stack.append(self.call(self.stack.pop(), arguments, function=function))

    def new_with_keywords(self, _: object) -> None:
        """As `called`, of an object that is made with keywords too."""
        keywords, arguments = self.stack.pop(), self.stack.pop()
        instance = self.call(self.stack.pop(), arguments, function=False)
        if keywords and isinstance(instance, Inert):
            instance.arguments = (instance.arguments, keywords)
        self.stack.append(instance)

    def make(self, _: object) -> None:
        """As `called`, of an object whose class and arguments stand above the mark."""
        what, *arguments = self.above_mark()
        self.stack.append(self.call(what, tuple(arguments), function=False))

    def instance(self, argument: str) -> None:
        """As `make`, of a class that the instruction names."""
        self.stack.append(self.call(_reference(argument), tuple(self.above_mark()), function=False))

    def build(self, _: object) -> None:
        """Give the object below its state."""
        state = self.stack.pop()
        target = self.top((Inert, MappingValue, Attributes, NumpyType), "set the state of")
        if isinstance(target, Inert):
            target.state = state
        elif isinstance(target, NumpyType):
            target.order = as_text(state[1])
        elif isinstance(target, Attributes):
            target.update({str(key): value for key, value in state.items()})

    def put(self, place: int) -> None:
        """Remember the value on top under a number."""
        self.memo[place] = self.stack[-1]

    def extend(self, values: Sequence[object]) -> None:
        """Append the values to the list below them."""
        target = self.top((list, Inert), "append to")
        (target.items if isinstance(target, Inert) else target).extend(values)

    def add_items(self, _: object) -> None:
        """Add the values above the mark to the set below them."""
        values = self.above_mark()
        target = self.top((set, Inert), "add to")
        if isinstance(target, Inert):
            target.items.extend(values)
        else:
            target.update(as_key(value) for value in values)

    def set_pairs(self, flat: Sequence[object]) -> None:
        """Set keys and values, which take turns, in the dictionary below them."""
        target = self.top((dict, Inert), "set an item of")
        for key, value in _pairs(flat):
            if isinstance(target, Inert):
                target.items.append((key, value))
            else:
                target[as_key(key)] = value

    def stack_global(self, _: object) -> None:
        """Put a reference in place of the names of a module and of something in it."""
        name, module = self.stack.pop(), self.stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise self.refusal("names something by other than words")
        self.stack.append(NamedThing(module, name))

    def persistent_id(self, _: object) -> None:
        """Put what stands outside the pickle in place of its key."""
        if self.persistent is None:
            raise self.refusal("refers to something outside itself")
        self.stack.append(self.persistent(self.stack.pop()))

    def tuple_of(self, count: int) -> None:
        """Put a tuple in place of so many values."""
        values = tuple(self.stack[-count:])
        if len(values) != count:
            raise ValueError("too few values for a tuple")
        self.stack[-count:] = [values]


def _reference(argument: str) -> NamedThing:
    # pickletools gives the two lines of GLOBAL and INST as one text with a blank between them.
    module, _, name = argument.partition(" ")
    return NamedThing(module, name)


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

_STEPS: dict[str, Callable[[PickleMachine, Any], object]] = {
    "NONE": lambda m, _: m.stack.append(None),
    "NEWTRUE": lambda m, _: m.stack.append(True),
    "NEWFALSE": lambda m, _: m.stack.append(False),
    **dict.fromkeys(
        ("STRING", "BINSTRING", "SHORT_BINSTRING"), lambda m, text: m.stack.append(text_of_python_2(text))
    ),
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
    "MARK": lambda m, _: m.marks.append(len(m.stack)),
    "POP": lambda m, _: m.stack.pop(),
    "POP_MARK": lambda m, _: m.above_mark(),
    "DUP": lambda m, _: m.stack.append(m.stack[-1]),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), PickleMachine.put),
    "MEMOIZE": lambda m, _: m.put(len(m.memo)),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda m, place: m.stack.append(m.memo[place])),
    "APPEND": lambda m, _: m.extend([m.stack.pop()]),
    "APPENDS": lambda m, _: m.extend(m.above_mark()),
    "ADDITEMS": PickleMachine.add_items,
    "SETITEM": lambda m, _: m.set_pairs([m.stack.pop(), m.stack.pop()][::-1]),
    "SETITEMS": lambda m, _: m.set_pairs(m.above_mark()),
    "GLOBAL": lambda m, name: m.stack.append(_reference(name)),
    "STACK_GLOBAL": PickleMachine.stack_global,
    "REDUCE": lambda m, _: m.called(function=True),
    "NEWOBJ": lambda m, _: m.called(function=False),
    "NEWOBJ_EX": PickleMachine.new_with_keywords,
    "OBJ": PickleMachine.make,
    "INST": PickleMachine.instance,
    "BUILD": PickleMachine.build,
    "BINPERSID": PickleMachine.persistent_id,
    "PROTO": lambda m, _: None,
    "FRAME": lambda m, _: None,
}

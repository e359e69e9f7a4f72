"""Pickles read without importing, calling or building anything that they name.

A pickle is a program for a stack machine, and Python's own machine runs whatever function the program names. The
machine here has the same instructions, but a name in the pickle stays a pair of words (``Reference``): nothing is
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
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from annotators.checkpoints.inert import Inert as Inert
from annotators.checkpoints.inert import Reference as Reference
from annotators.checkpoints.pickle_machine import Call as Call
from annotators.checkpoints.pickle_machine import Machine, Readable
from annotators.checkpoints.plain_values import PLAIN
from mitl.errors import AnnotatorError


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
    machine = Machine(source, {**PLAIN, **(calls or {})}, persistent)
    try:
        return machine.run(file)
    # A damaged program can fail in any of these ways, and only in a value of ours.
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RuntimeError) as error:
        raise AnnotatorError(
            f"the pickle in {str(source)!r} is cut off or damaged ({_line(error)}); fetch the file again"
        ) from error


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]

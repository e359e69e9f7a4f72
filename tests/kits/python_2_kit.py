"""Pickles as Python 2 wrote them."""

from __future__ import annotations

import collections
import pickle
import struct
import types
from typing import Any, ClassVar


class Python2Pickler(pickle._Pickler):
    """Writes texts as Python 2 did: as byte strings, and an OrderedDict as a list of lists."""

    dispatch: ClassVar[dict[Any, Any]] = dict(pickle._Pickler.dispatch)

    def save_str(self, obj: str) -> None:
        raw = obj.encode()
        if len(raw) < 256:
            self.write(pickle.SHORT_BINSTRING + bytes([len(raw)]) + raw)
        else:
            self.write(pickle.BINSTRING + struct.pack("<i", len(raw)) + raw)
        self.memoize(obj)

    def save_ordered(self, obj: Any) -> None:
        self.save_reduce(collections.OrderedDict, ([[k, v] for k, v in obj.items()],), obj=obj)

    dispatch[str] = save_str
    dispatch[collections.OrderedDict] = save_ordered


PYTHON_2 = types.SimpleNamespace(
    Pickler=Python2Pickler,
    dump=lambda obj, file, protocol: Python2Pickler(file, protocol).dump(obj),
    __name__="pickle",
)

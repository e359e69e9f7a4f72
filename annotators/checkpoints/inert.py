"""What a pickle names and describes, written down and never made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
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

    def __init__(self, what: Reference, arguments: object = ()) -> None:
        self.what = what
        self.arguments = arguments
        self.state: object = None
        self.items: list[object] = []
        """Members of a list or set; (key, value) pairs of a mapping."""

    def __repr__(self) -> str:
        return f"<{self.what.path}, not made>"

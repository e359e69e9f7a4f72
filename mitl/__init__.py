"""mitl: machine-in-the-loop repair of image-caption retrieval datasets.

``mitl.load("release")`` opens a release, ``mitl.show(pairs)`` shows pairs in a notebook. Names are imported when they
are first used, so that ``import mitl`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mitl.stages.evaluating.opened import Release as Release
    from mitl.stages.evaluating.opened import Scoring as Scoring
    from mitl.stages.evaluating.opened import load as load
    from mitl.stages.evaluating.shown import ShownPairs as ShownPairs
    from mitl.stages.evaluating.shown import show as show

_HOMES = {
    **dict.fromkeys(("Release", "Scoring", "load"), "mitl.stages.evaluating.opened"),
    **dict.fromkeys(("ShownPairs", "show"), "mitl.stages.evaluating.shown"),
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

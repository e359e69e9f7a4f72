"""Builders of the five small annotators, from the weights that come with the package."""

from __future__ import annotations

from pathlib import Path

from annotators.devices import device_of
from annotators.fingerprint import file_sha256, fingerprint
from annotators.minis import pixels
from annotators.minis.mini import MiniAnnotator
from annotators.minis.weights import load
from annotators.options import Options
from mitl.errors import AnnotatorError

WEIGHTS = Path(__file__).resolve().parent.parent / "weights"
VERSION = 1
"""Raised when the same weights and pixels give other similarities."""
THREADS = 1
"""The networks are so small that a second thread costs more than it brings."""


def build(options: Options) -> MiniAnnotator:
    """The small annotator of this name, with ``weights`` (a safetensors file), ``device`` and ``threads`` as set."""
    options.only("weights", "device", "threads")
    device, threads = device_of(options), options.whole("threads", THREADS)
    name = options.annotator
    path = options.path("weights") if "weights" in options.values else WEIGHTS / f"{name}.safetensors"
    if not path.is_file():
        raise AnnotatorError(
            f"the weights of {name!r} should be in {str(path)!r}, which is missing; reinstall mitl"
        )
    mark = fingerprint(name=name, weights=file_sha256(path), pixels=pixels.VERSION, version=VERSION)
    return MiniAnnotator(name, load(path, name), mark, device, threads)

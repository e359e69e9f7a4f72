"""Builders of the five small twins: the full-size networks' own, with the weights that come with the package."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import cast

from annotators.base import Annotator
from annotators.options import Options
from mitl.errors import AnnotatorError

WEIGHTS = Path(__file__).resolve().parent.parent / "weights"
SUFFIX = "-mini"
THREADS = 1
"""The networks are so small that a second thread costs more than it brings."""


def build(options: Options) -> Annotator:
    """The twin of this name; all settings of the full-size network are its own, ``weights`` included."""
    name = options.annotator
    path = WEIGHTS / f"{name}.safetensors"
    if "weights" not in options.values and not path.is_file():
        raise AnnotatorError(
            f"the weights of {name!r} should be in {str(path)!r}, which is missing; reinstall mitl"
        )
    full_size = importlib.import_module(f"annotators.{name.removesuffix(SUFFIX)}")
    values = {"weights": str(path), "threads": THREADS, **options.values}
    return cast("Annotator", full_size.build(replace(options, values=values)))

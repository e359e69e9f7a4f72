"""Which class each small twin is of, and how it is trained."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from annotators.minis.twin import Twin

    AnyTwin = Twin[Any]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one network is trained."""

    steps: int
    batch: int
    rate: float
    captions: int = 3
    """Captions an image in each batch."""
    weight_decay: float = 1e-4


RECIPES = {
    "pvse-mini": Recipe(steps=1000, batch=96, rate=2e-3),
    "vsrn-mini": Recipe(steps=1200, batch=96, rate=1.5e-3),
    "pcme-mini": Recipe(steps=1000, batch=96, rate=2e-3),
    "vilt-mini": Recipe(steps=1500, batch=32, rate=1e-3, captions=1, weight_decay=0.01),
    "clip-mini": Recipe(steps=1500, batch=96, rate=1.2e-3, weight_decay=0.01),
}
TWINS = {
    "pvse-mini": "annotators.minis.pvse:PvseMini",
    "vsrn-mini": "annotators.minis.vsrn:VsrnMini",
    "pcme-mini": "annotators.minis.pcme:PcmeMini",
    "vilt-mini": "annotators.minis.vilt:ViltMini",
    "clip-mini": "annotators.minis.clip:ClipMini",
}


def twin_class(name: str) -> type[AnyTwin]:
    """The class of the twin of this name."""
    module, _, found = TWINS[name].partition(":")
    return cast("type[AnyTwin]", getattr(importlib.import_module(module), found))

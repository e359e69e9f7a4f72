"""Scenes of a split as arrays: pictures as pixels, captions as numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from annotators.minis.twin import Captions, Twin
from mitl.datasets.scenes import World, draw

TRAINING, HELD_OUT = "train", "held-out"
"""Splits; a demonstration has its own."""


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Pictures (N, 3, S, S) float16 and each one's captions, one after the other: C for each, N C in all."""

    pixels: NDArray[np.float16]
    captions: Captions

    @property
    def captions_per_image(self) -> int:
        """C."""
        return len(self.captions) // len(self.pixels)

    def batch(self, rows: NDArray[np.int64], dy: int = 0, dx: int = 0) -> Tensor:
        """(B, 3, S, S) float32: these pictures, moved by some pixels with the border repeated."""
        pixels = torch.from_numpy(self.pixels[rows]).float()
        for axis, by in ((2, dy), (3, dx)):
            size = pixels.shape[axis]
            pixels = pixels.index_select(axis, (torch.arange(size) - by).clamp(0, size - 1))
        return pixels


def texts_of(world: World) -> list[str]:
    """The captions of a world, image by image."""
    return [caption.text for caption in world.captions.values()]


def pairs_of(world: World, twin: Twin[Any]) -> Pairs:
    """The world as this twin's network reads it, with the captions that the world gives, defects included."""
    pixels = np.stack([twin.pixels(draw(scene)).astype(np.float16) for scene in world.scenes.values()])
    rows = [twin.encode(text) for text in texts_of(world)]
    lengths = np.array([len(row) for row in rows])
    tokens = np.zeros((len(rows), lengths.max()), np.int64)
    for row, numbers in zip(tokens, rows, strict=True):
        row[: len(numbers)] = numbers
    return Pairs(pixels, Captions(torch.from_numpy(tokens), torch.from_numpy(lengths)))

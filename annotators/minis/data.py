"""Training pairs from the generator of scenes, as small squares of pixels and token numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from annotators.minis.pixels import square
from annotators.minis.vocabulary import Vocabulary

SPLIT = "train"
"""Never the split of a demonstration."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainingPairs:
    """Images (N, S, S, 3) bytes and each one's captions as token numbers (N, C, L)."""

    squares: NDArray[np.uint8]
    tokens: NDArray[np.int64]
    vocabulary: Vocabulary


def training_pairs(n_images: int, *, seed: int, size: int, length: int) -> TrainingPairs:
    """``n_images`` scenes of the training split with the captions that the world gives them, defects included."""
    from mitl.datasets.scenes import draw, generate

    world = generate(n_images, seed=seed, split=SPLIT)
    squares = np.stack([square(draw(scene), size) for scene in world.scenes.values()])
    texts: dict[str, list[str]] = {image_id: [] for image_id in world.scenes}
    for caption in world.captions.values():
        texts[caption.image_id].append(caption.text)
    vocabulary = Vocabulary.of(text for captions in texts.values() for text in captions)
    tokens = np.stack([vocabulary.encode(captions, length) for captions in texts.values()])
    return TrainingPairs(squares, tokens, vocabulary)

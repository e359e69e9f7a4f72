"""Built-in models of one modality, asked for by name: weighted words, encoders of captions, a backbone of pictures.

They stand where CxC's tables 3 to 5 have a bag of words, a sentence encoder and image networks, made from what can be
installed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError, UsageError
from mitl.metrics.positives import Ids
from mitl.progress import Progress
from mitl.records import CaptionItem
from mitl.settings import Settings
from mitl.stages.evaluating.models import EVERY, Modality, Model, ModelVectors, Rows, Sides, Similarities
from mitl.stages.evaluating.project import CaptionTexts, Project

BAG_OF_WORDS, SENTENCES, WORDS, BACKBONE = "bag-of-words", "sentences", "words", "efficientnet-lite0"
BASELINES: dict[str, Modality] = {
    BAG_OF_WORDS: "caption",
    SENTENCES: "caption",
    WORDS: "caption",
    BACKBONE: "image",
}
"""Name → the side that it knows; all but the first are encoders that proposals use too."""


@dataclass(frozen=True, slots=True, eq=False)
class WordVectors:
    """Sparse unit rows over words, (C, vocabulary), in the order of the captions."""

    weights: Any
    vectors: Any

    def between(self, modality: Modality, rows: Ids, other: Modality, columns: Rows = EVERY) -> NDArray[Any]:
        """(B, G) cosines of captions; 0 where they share no word."""
        products: NDArray[np.float64] = self.weights.products(self.vectors[rows], self.vectors[columns])
        return products


@dataclass(frozen=True, slots=True, eq=False)
class BaselineInput:
    """What baselines are made from."""

    settings: Settings
    sides: Sides
    project: Project | None
    texts: CaptionTexts | None
    """Of the captions, where they are at hand."""
    progress: Progress

    def words(self, what: str) -> list[str]:
        """The captions' texts in their order; UsageError where there are none."""
        if self.texts is None:
            raise UsageError(
                f"{what} reads the captions' words; give --captions FILE with caption_id, image_id and text, or work "
                "in a project"
            )
        return self.texts.of(self.sides.captions)


def check_baselines(names: Sequence[str]) -> None:
    """UsageError where there is none of a name."""
    unknown = next((name for name in names if name not in BASELINES), None)
    if unknown is not None:
        raise UsageError(f"no baseline called {unknown!r}; known: {', '.join(BASELINES)}")


def fitted_baseline(name: str, of: BaselineInput) -> Model:
    """The baseline of that name.

    Raises:
        UsageError: the captions' texts, or the pictures, are not at hand.
        AnnotatorError: what it needs is not installed.
    """
    if name == BAG_OF_WORDS:
        similarities: Similarities = bag_of_words(of.words(f"the baseline {name}"))
    else:
        similarities = ModelVectors({BASELINES[name]: encoder_vectors(name, of, f"the baseline {name}")})
    return Model(name, similarities=similarities, within_sides=True, sides=frozenset({BASELINES[name]}))


def bag_of_words(texts: Sequence[str]) -> WordVectors:
    """Words weighted by TF-IDF over these captions, without their order."""
    from annotators.pivot import WeightedWords

    weights = WeightedWords(longest=1)
    try:
        weights.fit(texts)
    except ValueError as error:
        raise MetricError(f"the words of these captions cannot be weighed: {error}") from error
    return WordVectors(weights, weights.vectors(texts))


def encoder_vectors(name: str, of: BaselineInput, what: str) -> NDArray[np.float32]:
    """(N, D) unit rows of an encoder of captions, or of pictures, in the order of its side; a project keeps them.

    Args:
        what: who asks, for messages.
    """
    from annotators.item_encoders import OneSided, build_encoder
    from mitl.stages.proposing.computing import ComputeContext
    from mitl.stages.proposing.ranking import require_pictures

    modality: Any = BASELINES[name]
    texts = of.words(what) if modality == "caption" else []
    if of.project is None and modality == "image":
        raise UsageError(
            f"{what} looks at pictures; work in a project with `mitl init --images FOLDER`, or give --image-embeddings"
        )
    encoder = build_encoder(name, modality, {}, Path())
    assert isinstance(encoder, OneSided)
    if of.project is None:
        side = of.sides.captions
        items = zip(side.numbers.tolist(), side.ids, texts, strict=True)
        return encoder.vectors(
            [CaptionItem(number, caption_id, 0, text) for number, caption_id, text in items]
        )
    if modality == "image":
        require_pictures(encoder, of.project.items.images)
    compute = ComputeContext.of(of.settings, progress=of.progress)
    held = of.project.items.images if modality == "image" else of.project.items.captions
    rows: NDArray[np.float32] = compute.encoded(encoder, modality, held).arrays["embedding"]
    return rows

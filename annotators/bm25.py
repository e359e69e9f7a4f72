"""BM25, the measure of words in common, between the texts of both sides; needs no weights.

Source: Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond, 2009, equation 3.15, in the
variant of Lucene that Kamphuis et al., Which BM25 Do You Mean?, ECIR 2020, table 1, describe; computed by ``bm25s``
(Lù 2024, arXiv:2407.03618).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.metadata import version

import bm25s
import numpy as np

from annotators.base import Ranking, fingerprint, ids_of
from annotators.options import Options
from mitl.errors import AnnotatorError
from mitl.records import AnnotatorKind, CaptionItem, Direction, ImageItem

VERSION = 1
"""Raised when the same texts give another ranking."""
logging.getLogger("bm25s").setLevel(logging.WARNING)  # it tells on stderr how it builds each index

METHODS = ("lucene", "robertson", "atire")
STOPWORDS = ("none", "en", "de", "fr", "es", "pt", "it", "nl", "ru", "sv", "no", "zh", "tr")


class Bm25:
    """Similarity is BM25's score; whoever asks is the query, so that long documents ask with all of their words."""

    kind = AnnotatorKind.RANKING

    def __init__(self, name: str, *, method: str, k1: float, b: float, stopwords: str) -> None:
        self.name = name
        self.fingerprint = fingerprint(
            bm25=VERSION, bm25s=version("bm25s"), method=method, k1=k1, b=b, stopwords=stopwords
        )
        self._method, self._k1, self._b = method, k1, b
        self._stopwords = [] if stopwords == "none" else stopwords

    def ranking(
        self,
        direction: Direction,
        images: Sequence[ImageItem],
        captions: Sequence[CaptionItem],
        query_ids: Sequence[int],
        depth: int,
    ) -> Ranking:
        """Each query's ``depth`` best texts of the other side; those without a word in common come last, by their ids.

        Raises:
            AnnotatorError: a side has no texts, or what is searched has no words.
        """
        if not all(image.texts for image in images):
            raise AnnotatorError(
                f"annotator {self.name!r} compares words, but the images of this data set have none; use it where both "
                "sides are texts"
            )
        left = dict(zip(ids_of(images).tolist(), ("\n".join(image.texts) for image in images), strict=True))
        right = {caption.id: caption.text for caption in captions}
        asking, searched = direction.ordered(left, right)
        ids = np.array(list(searched), np.int64)
        index = bm25s.BM25(k1=self._k1, b=self._b, method=self._method)
        all_words = self._words(list(searched.values()))
        if not any(all_words):
            raise AnnotatorError(
                f"annotator {self.name!r} finds no word of two letters or more, stop words apart, in any text that is "
                "searched; use minilm, or embeddings or rankings from files"
            )
        index.index(all_words, show_progress=False)
        items = np.empty((len(query_ids), depth), np.int64)
        scores = np.empty((len(query_ids), depth), np.float32)
        for row, words in enumerate(self._words([asking[query] for query in query_ids])):
            # An index without the words of a query gives no scores of its own.
            indexed = [word for word in words if word in index.vocab_dict]
            of_all = index.get_scores(indexed) if indexed else np.zeros(len(ids), np.float32)
            # Only what reaches the last place is sorted, with all that ties with it.
            last = len(ids) - depth
            near = np.flatnonzero(of_all >= np.partition(of_all, last)[last])
            best = near[np.lexsort((ids[near], -of_all[near]))[:depth]]
            items[row], scores[row] = ids[best], of_all[best]
        return Ranking(np.array(query_ids, np.int64), items, scores)

    def _words(self, texts: list[str]) -> list[list[str]]:
        words: list[list[str]] = bm25s.tokenize(
            texts, stopwords=self._stopwords, return_ids=False, show_progress=False
        )
        return words


def build(options: Options) -> Bm25:
    """From ``bm25`` (the variant), ``k1``, ``b`` and ``stopwords``."""
    return Bm25(
        options.annotator,
        method=options.text("bm25", METHODS[0], choices=METHODS),
        k1=options.number("k1", 1.5),
        b=options.number("b", 0.75),
        stopwords=options.text("stopwords", STOPWORDS[0], choices=STOPWORDS),
    )

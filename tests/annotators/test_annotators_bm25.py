"""BM25 between texts: the scores of the formula, ties by id, both directions, one line where there are no texts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotators import registry
from mitl.errors import AnnotatorError
from mitl.records import CaptionItem, Direction, ImageItem

pytest.importorskip("bm25s", reason="the extra mitl[texts] is missing")

WORDS = ("apple", "pear", "plum", "fig", "lime")
TEXTS = st.lists(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join), min_size=1, max_size=7
)


def documents(texts):
    return [ImageItem(number, f"d{number}", texts=(text,)) for number, text in enumerate(texts, start=1)]


def queries(texts):
    return [CaptionItem(number, f"q{number}", 1, text) for number, text in enumerate(texts, start=1)]


def bm25(query, texts, k1=1.5, b=0.75):
    """Equation 3.15 with Lucene's idf, word by word."""
    split = [text.split() for text in texts]
    mean = sum(map(len, split)) / len(split)
    scores = []
    for words in split:
        score = 0.0
        for word in query.split():
            n, count = sum(word in other for other in split), words.count(word)
            idf = math.log(1 + (len(split) - n + 0.5) / (n + 0.5))
            score += idf * count / (count + k1 * (1 - b + b * len(words) / mean))
        scores.append(score)
    return scores


@given(texts=TEXTS, asked=TEXTS)
def test_scores_are_those_of_the_formula_and_equal_ones_go_by_id(texts, asked):
    annotator = registry.build("bm25")
    ids = list(range(1, len(asked) + 1))

    found = annotator.ranking(Direction.T2I, documents(texts), queries(asked), ids, len(texts))

    for row, query in enumerate(asked):
        expected = np.array(bm25(query, texts), np.float32)
        np.testing.assert_allclose(
            found.similarities[row], expected[found.item_ids[row] - 1], rtol=1e-5, atol=1e-6
        )
        order = list(zip(-found.similarities[row], found.item_ids[row], strict=True))
        assert order == sorted(order)


def test_documents_ask_too_with_their_titles():
    asking = [
        ImageItem(1, "d1", texts=("Plum", "a stone fruit")),
        ImageItem(2, "d2", texts=("nothing known",)),
    ]

    found = registry.build("bm25").ranking(
        Direction.I2T, asking, queries(["apple pie", "plum jam"]), [1, 2], 2
    )

    assert found.item_ids.tolist() == [[2, 1], [1, 2]]
    assert found.similarities[1].tolist() == [0, 0]


def test_pictures_have_no_words():
    with pytest.raises(AnnotatorError, match="compares words, but the images of this data set have none"):
        registry.build("bm25").ranking(Direction.T2I, [ImageItem(1, "a")], queries(["x"]), [1], 1)


def test_texts_without_words_are_one_line():
    documents = [ImageItem(1, "d1", texts=("?",)), ImageItem(2, "d2", texts=("a b",))]

    with pytest.raises(AnnotatorError, match="finds no word of two letters or more"):
        registry.build("bm25").ranking(Direction.T2I, documents, queries(["apple"]), [1], 1)


def test_settings_make_another_one():
    other = registry.build("words", {"bm25": "atire", "k1": 0.9, "b": 0.4, "stopwords": "en"})

    assert other.name == "words"
    assert other.fingerprint != registry.build("bm25").fingerprint
    with pytest.raises(AnnotatorError, match="'k1' of annotator 'bm25' is -1; it should be a number from 0"):
        registry.build("bm25", {"k1": -1})


def test_it_is_listed_as_ready():
    (listed,) = [one for one in registry.describe() if one.name == "bm25"]

    assert listed.ready

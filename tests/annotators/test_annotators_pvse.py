"""PVSE: its names, its computation, every layout of its weights, and independence of batch, order and padding."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch
from dual_encoder_kit import (
    TEXTS,
    WORDS,
    Reference,
    State,
    captions,
    made_by_rule,
    padded,
    pcme_shapes,
    pictures,
    pvse_shapes,
    write_ours,
    write_vocabulary,
)
from hypothesis import given
from hypothesis import strategies as st

from annotators import registry
from annotators.dual_encoders import ResNet
from annotators.inputs.vocabularies import Vocabulary
from annotators.pvse import Pvse, examine, load
from annotators.sizes import PvseConfig
from mitl.errors import AnnotatorError
from mitl.records import AnnotatorKind

SMALL = {"words": len(WORDS), "word": 10, "embed": 12, "blocks": (2, 1), "width": 4}
VOCABULARY = Vocabulary(WORDS)
TOKENS = [VOCABULARY.encode(text).tolist() for text in TEXTS]


def config(k: int = 2, **sizes: object) -> PvseConfig:
    return PvseConfig(**{**SMALL, "image_size": 32, "k": k, **sizes})


def state(k: int = 2) -> State:
    return made_by_rule(pvse_shapes(config(k), k))


def network(k: int = 2, **sizes: object) -> Pvse:
    made = Pvse(config(k, **sizes))
    made.load_state_dict(state(k))
    return made.eval()


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    return write_ours(tmp_path / "pvse.safetensors", "pvse", config(), state())


def annotator(path: Path, **settings: object):
    return registry.build("pvse", {"weights": str(path), "device": "cpu", "threads": 1, **settings})


@pytest.mark.parametrize(("k", "numbers"), [(1, 70_974_338), (2, 70_975_512)])
def test_full_size_has_the_released_names_and_shapes(k: int, numbers: int):
    """All 953 entries bear the released names, shapes and order; counters aside they hold as many numbers."""
    with torch.device("meta"):
        found = {name: tuple(tensor.shape) for name, tensor in Pvse(PvseConfig(k=k)).state_dict().items()}

    assert list(found.items()) == list(pvse_shapes(PvseConfig(), k).items())
    assert len(found) == 953
    counted = (shape for name, shape in found.items() if not name.endswith("num_batches_tracked"))
    assert sum(int(np.prod(shape)) for shape in counted) == numbers


def test_the_backbone_has_930_entries_and_gives_7_by_7_cells():
    """ResNet-152 without its classifier makes 2048 x 7 x 7 of 224 pixels."""
    with torch.device("meta"):
        backbone = ResNet().eval()

        assert len(backbone.state_dict()) == 930
        assert backbone(torch.empty(1, 3, 224, 224)).shape == (1, 2048, 7, 7)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_pictures_are_embedded_as_published(k: int):
    """Residual network, mean, attention, PIE block and plain norm agree with a second implementation in float64."""
    reference = Reference(state(k))
    pixels = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))

    with torch.no_grad():
        found = network(k).images(pixels)["embedding"].reshape(3, k, -1)

    for picture, embedding in zip(pixels, found, strict=True):
        cells = reference.cells(picture)
        vectors = reference.pie("img_enc.pie_net", reference.linear("img_enc.fc", cells.mean(0)), cells)
        expected = vectors / vectors.pow(2).sum(1, keepdim=True).sqrt()
        assert (embedding - expected).abs().max() < 1e-6


@pytest.mark.parametrize("pooling", ["legacy", "full"])
@pytest.mark.parametrize("k", [1, 2])
def test_captions_are_embedded_as_published(k: int, pooling: str):
    """Captions of several lengths in one padded batch agree with a second implementation that reads one at a time."""
    reference = Reference(state(k))

    with torch.no_grad():
        found = network(k, pooling=pooling).captions(*padded(TOKENS))["embedding"].reshape(len(TOKENS), k, -1)

    for tokens, embedding in zip(TOKENS, found, strict=True):
        words = reference.words(tokens)
        whole = reference.gru("txt_enc.rnn", words, full=pooling == "full")
        vectors = reference.pie("txt_enc.pie_net", whole, words)
        expected = vectors / vectors.pow(2).sum(1, keepdim=True).sqrt()
        assert (embedding - expected).abs().max() < 1e-6


def test_legacy_pooling_reads_one_word_backwards():
    """The backward half depends on the last word alone; with the full sentence it depends on the others too."""
    gru = network().txt_enc.rnn
    words, lengths = torch.randn(1, 5, 10), torch.tensor([5])
    other = words.clone()
    other[:, :4] += 1

    with torch.no_grad():
        legacy = [gru.last_position(text, lengths)[0, 6:] for text in (words, other)]
        full = [gru.last_states(text, lengths)[0, 6:] for text in (words, other)]

    assert torch.equal(*legacy)
    assert not torch.allclose(*full)


@pytest.mark.parametrize("pooling", ["legacy", "full"])
def test_padding_and_neighbours_change_nothing(pooling: str):
    """A caption alone, among others in any order, padded with anything and to any length has one embedding."""
    pvse = network(pooling=pooling)
    order = [4, 0, 6, 2, 5, 1, 3]

    with torch.no_grad():
        alone = torch.cat([pvse.captions(*padded([text]))["embedding"] for text in TOKENS])
        together = pvse.captions(*padded([TOKENS[i] for i in order], pad=5, more=9))["embedding"]

    assert (alone[order] - together).abs().max() < 1e-6


def test_every_parameter_learns():
    """Nothing in the forward pass cuts a gradient off, so that small networks of this class can be trained."""
    pvse = Pvse(config()).train()
    images = pvse.images(torch.randn(2, 3, 32, 32))["embedding"]
    texts = pvse.captions(*padded(TOKENS[:2]))["embedding"]

    (images * texts).square().sum().backward()

    assert all(parameter.grad is not None for parameter in pvse.parameters())


def released(tmp_path: Path, layout: str) -> Path:
    """The same weights as each script of the authors writes them."""
    path, flat = tmp_path / f"{layout}.pth", state()
    image = {name.removeprefix("img_enc."): t for name, t in flat.items() if name.startswith("img_enc.")}
    text = {name.removeprefix("txt_enc."): t for name, t in flat.items() if name.startswith("txt_enc.")}
    if layout == "flat":
        torch.save(flat, path, _use_new_zipfile_serialization=False)
    elif layout == "training":
        training = {
            "args": Namespace(num_embeds=2, legacy=True),
            "epoch": 3,
            "best_score": 1.0,
            "model": flat,
        }
        torch.save(training, path)
    elif layout == "parallel":
        torch.save({f"module.{name}": tensor for name, tensor in flat.items()}, path)
    else:
        parts = [
            {f"module.{name.replace('pie_net', 'our_model')}": tensor for name, tensor in part.items()}
            for part in (image, text)
        ]
        torch.save(parts, path)
    return path


@pytest.mark.parametrize("layout", ["flat", "training", "parallel", "two dicts"])
def test_each_official_layout_gives_the_same_network(tmp_path: Path, layout: str):
    """Wrappers, prefixes and the old name of the PIE block are seen through; sizes are read off the shapes."""
    path = released(tmp_path, layout)

    found, examination = load(path).network, examine(path)

    assert found.config == PvseConfig(**SMALL, k=2)
    assert all(torch.equal(tensor, state()[name]) for name, tensor in found.state_dict().items())
    assert examination.fits
    assert examination.matched == len(state())
    assert examination.settings == {"k": 2, "words": len(WORDS), "embed": 12, "pooling": "legacy"}
    assert examination.what == "PVSE, K = 2, 13 words"


def test_our_own_layout_brings_sizes_and_words(ours: Path):
    """A file of ours needs no other file and may have any sizes."""
    trained = load(ours)

    assert trained.network.config == config()
    assert trained.vocabulary == VOCABULARY


def test_a_released_file_of_full_size_loads(tmp_path: Path):
    """coco_pvse.pth as its script writes it (flat, the older serialisation, 11,755 words) loads and embeds."""
    path = tmp_path / "coco_pvse.pth"
    shapes = pvse_shapes(PvseConfig(), 2)
    torch.save(made_by_rule(shapes), path, _use_new_zipfile_serialization=False)

    trained = load(path)
    with torch.inference_mode():
        image = trained.network.images(torch.randn(1, 3, 224, 224))["embedding"]
        text = trained.network.captions(*padded(TOKENS[:2]))["embedding"]

    assert trained.network.config == PvseConfig()
    assert image.shape == (1, 2, 1024)
    assert text.shape == (2, 2, 1024)
    assert torch.allclose(image.norm(dim=-1), torch.ones(1, 2))
    path.unlink()


def test_the_training_script_says_how_it_pooled(tmp_path: Path):
    """A training checkpoint without the legacy switch is pooled in full, unless the setting says otherwise."""
    path = tmp_path / "trained.pth"
    torch.save({"args": Namespace(legacy=False), "model": state()}, path)

    assert load(path).network.config.pooling == "full"
    assert load(path, pooling="legacy").network.config.pooling == "legacy"
    assert examine(path).settings["pooling"] == "full"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("order", True),
        ("num_embeds", 1),
        ("embed_size", 1024),
        ("word_dim", 300),
        ("vocab_size", 11_755),
        ("crop_size", 256),
        ("cnn_type", "resnet152"),
        ("img_attention", False),
        ("txt_attention", False),
        ("max_video_length", 4),
    ],
)
def test_options_of_another_computation_are_refused(tmp_path: Path, option: str, value: object):
    """Weights whose training options are not those of what is computed do not fit, and the line says which."""
    path = tmp_path / "trained.pth"
    torch.save({"args": Namespace(**{option: value}), "model": state()}, path)

    with pytest.raises(
        AnnotatorError, match=f"it was trained with {option} = {value!r}, but what is computed is"
    ):
        load(path)


def test_options_of_training_alone_are_passed_over(tmp_path: Path):
    """What the loss and the optimiser were told, and all options that say what is computed."""
    said = Namespace(
        max_violation=True, dropout=0.1, wemb_type="glove", num_embeds=2, crop_size=224, order=False
    )
    torch.save({"args": said, "model": state()}, tmp_path / "trained.pth")

    assert examine(tmp_path / "trained.pth").fits


def lacking(made: State) -> State:
    return {name: t for name, t in made.items() if name != "txt_enc.rnn.bias_hh_l0"}


def too_many(made: State) -> State:
    return {**made, "txt_enc.extra": torch.zeros(1)}


def misshapen(made: State) -> State:
    return {**made, "img_enc.fc.bias": torch.zeros(5)}


def not_finite(made: State) -> State:
    made["img_enc.cnn.layer1.1.conv2.weight"][0, 0, 0, 0] = torch.nan
    return made


def of_pcme(made: State) -> State:
    return made_by_rule(pcme_shapes(config()))


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (lacking, "it lacks 'txt_enc.rnn.bias_hh_l0'"),
        (too_many, "it has 'txt_enc.extra' too many"),
        (misshapen, r"img_enc.fc.bias: \(5,\) where \(12,\) is expected"),
        (not_finite, "not finite; first: 'img_enc.cnn.layer1.1.conv2.weight'"),
        (of_pcme, "it has 'img_enc.uncertain_net"),
    ],
)
def test_weights_that_do_not_fit_are_refused_in_one_line(tmp_path: Path, spoil, line: str):
    """A missing, extra, misshapen or broken tensor, or another network's file, is never half loaded."""
    path = tmp_path / "spoilt.pth"
    torch.save(spoil(state()), path)

    with pytest.raises(AnnotatorError, match=line) as found:
        load(path)

    assert "\n" not in str(found.value)
    assert not examine(path).fits


def test_a_file_of_something_else_is_no_pvse(tmp_path: Path):
    """``examine`` describes a file of foreign weights without failing."""
    path = tmp_path / "other.pth"
    torch.save({"weight": torch.zeros(3, 3)}, path)

    found = examine(path)

    assert found.what == "no weights of PVSE"
    assert (len(found.missing), len(found.absent)) == (798, 155)
    assert not found.fits


@pytest.mark.parametrize(
    ("metadata", "line"),
    [
        ({"network": "pcme"}, "holds 'pcme'; it should hold 'pvse'"),
        ({"config": "{"}, "no readable 'config'"),
        ({"config": "[]"}, "not a table of sizes"),
        pytest.param({"config": "[" * 100_000}, "no readable 'config'", id="deep"),
        ({"config": '{"depth": 3}'}, "unexpected keyword argument 'depth'"),
        ({"config": '{"embed": 11}'}, "even number"),
        ({"config": '{"words": -2}'}, "'words' is -2"),
        ({"config": '{"blocks": []}'}, "'blocks' is"),
        ({"config": '{"blocks": [1000000]}'}, "'blocks' is"),
        ({"config": '{"blocks": [1, 1, 1, 1, 1, 1, 1, 1], "width": 10000000}'}, "describes no pvse"),
        ({"config": '{"k": 0}'}, "'k' is 0"),
        ({"config": '{"pooling": "mean"}'}, "'pooling' is 'mean'"),
    ],
)
def test_a_file_of_ours_must_state_sizes_of_this_network(tmp_path: Path, metadata: dict[str, str], line: str):
    """Another network's name or sizes that no network has are one clear line."""
    from safetensors.torch import save_file

    path = tmp_path / "pvse.safetensors"
    stated = {"format": "mitl-annotator-1", "network": "pvse", "config": config().to_json()}
    save_file(state(), path, {**stated, **metadata})

    with pytest.raises(AnnotatorError, match=line) as found:
        load(path)

    assert "\n" not in str(found.value)


@given(
    st.builds(
        PvseConfig,
        words=st.integers(4, 20_000),
        embed=st.integers(1, 2000).map(lambda half: 2 * half),
        blocks=st.lists(st.integers(1, 40), min_size=1, max_size=4).map(tuple),
        k=st.integers(1, 9),
        pooling=st.sampled_from(["legacy", "full"]),
    )
)
def test_sizes_survive_a_file(made: PvseConfig):
    """What a file of ours states is what was written."""
    assert PvseConfig.from_json(made.to_json()) == made


@pytest.mark.parametrize(("k", "kind"), [(1, AnnotatorKind.INNER_PRODUCT), (2, AnnotatorKind.MULTI_VECTOR)])
def test_similarity_is_the_best_of_all_products(tmp_path: Path, k: int, kind: AnnotatorKind):
    """K = 1 is searched as one inner product, K = 2 as the greatest of four; either way round."""
    path = write_ours(tmp_path / "pvse.safetensors", "pvse", config(k), state(k))
    pvse = annotator(path)
    images, texts = pvse.encode_images(pictures(tmp_path)), pvse.encode_captions(captions())

    found = pvse.similarities(images, texts)

    a, b = (side.arrays["embedding"].reshape(len(side), k, -1).astype(np.float64) for side in (images, texts))
    expected = np.array([[(x @ y.T).max() for y in b] for x in a])
    assert pvse.kind is kind
    assert images.arrays["embedding"].shape == ((5, 12) if k == 1 else (5, k, 12))
    assert images.arrays["embedding"].dtype == np.float32
    assert found == pytest.approx(expected, abs=1e-6)
    assert np.array_equal(pvse.similarities(texts, images).T, found)


def test_batch_and_company_change_no_embedding(tmp_path: Path, ours: Path):
    """Another batch size, order or subset gives the same embeddings."""
    items, texts = pictures(tmp_path), captions()
    whole = annotator(ours, batch=4)
    images, told = whole.encode_images(items), whole.encode_captions(texts)

    for batch in (1, 3):
        other = annotator(ours, batch=batch)
        few, some = other.encode_images(items[2:4]), other.encode_captions(texts[::-2])
        assert np.abs(few.arrays["embedding"] - images.arrays["embedding"][2:4]).max() < 1e-6
        assert np.abs(some.arrays["embedding"] - told.arrays["embedding"][::-2]).max() < 1e-6
    again = whole.encode_captions(texts[3:5])
    assert np.array_equal(again.arrays["embedding"], told.arrays["embedding"][3:5])


def test_the_vocabulary_must_have_the_embedding_s_size(tmp_path: Path):
    """Another number of words than the table has rows is refused; so is no vocabulary at all."""
    path, wrong = released(tmp_path, "flat"), write_vocabulary(tmp_path / "wrong.json", [*WORDS, "zebra"])

    with pytest.raises(AnnotatorError, match="trained with 13 words, but the vocabulary has 14 words"):
        annotator(path, vocabulary=str(wrong))
    with pytest.raises(AnnotatorError, match="needs the setting 'vocabulary'"):
        annotator(path)


def test_a_vocabulary_that_contradicts_the_weights_is_refused(tmp_path: Path, ours: Path):
    """Where the weights hold their words, a setting may repeat them but not replace them."""
    same = write_vocabulary(tmp_path / "same.json")
    other = write_vocabulary(tmp_path / "other.json", [*WORDS[:5], "cat", "dog", *WORDS[7:]])

    assert annotator(ours, vocabulary=str(same)).fingerprint == annotator(ours).fingerprint
    with pytest.raises(AnnotatorError, match="leave 'vocabulary' out"):
        annotator(ours, vocabulary=str(other))


def test_settings_are_checked(ours: Path):
    """A misspelt setting or an unknown pooling is an error."""
    with pytest.raises(AnnotatorError, match="no setting 'poling'"):
        annotator(ours, poling="full")
    with pytest.raises(AnnotatorError, match="'pooling' of annotator 'pvse' is 'mean'"):
        annotator(ours, pooling="mean")


def test_the_fingerprint_knows_what_changes_results(ours: Path):
    """Pooling changes it; batch, threads and device do not."""
    mark = annotator(ours).fingerprint

    assert annotator(ours, batch=5, threads=2).fingerprint == mark
    assert annotator(ours, pooling="legacy").fingerprint == mark
    assert annotator(ours, pooling="full").fingerprint != mark


def test_it_is_built_by_name(ours: Path):
    """The registry builds it from its settings."""
    built = registry.build("pvse", {"weights": str(ours)})

    assert built.name == "pvse"
    assert built.kind is AnnotatorKind.MULTI_VECTOR


def test_a_caption_of_300_words_is_read_whole(ours: Path):
    """Nothing is cut off, so the last words count."""
    long = "a dog on the mat " * 60
    found = annotator(ours).encode_captions(captions([long, long + "red", "a dog"]))

    assert not np.allclose(found.arrays["embedding"][0], found.arrays["embedding"][1], atol=1e-4)


def test_a_picture_that_does_not_decode_is_one_line(tmp_path: Path, ours: Path):
    """The message names the file."""
    items = pictures(tmp_path, 2)
    assert items[1].path is not None
    items[1].path.write_bytes(b"no picture")

    with pytest.raises(AnnotatorError, match=r"1\.png.*not readable as an image"):
        annotator(ours).encode_images(items)

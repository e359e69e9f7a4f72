"""ViLT: every layout of its weights, scores equal to the module's own, and what they must not depend on."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import save_file

from annotators import linear_kernels, registry, vilt
from annotators.base import Annotator
from annotators.inputs import wordpieces
from annotators.inputs.pixels import vilt_pixels
from annotators.sizes import ViltConfig
from annotators.vilt import Vilt
from annotators.vilt_core import ViltCore
from annotators.vilt_scorer import PairScorer
from mitl.errors import AnnotatorError
from mitl.records import CaptionItem, ImageItem

WORDS = "a the red blue green dog cat man woman rides holds bike horse on in street field two three ##s ##ing"
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split()]
SMALL = ViltConfig(
    vocab_size=len(PIECES),
    hidden_size=128,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=256,
    image_size=96,
    patch_size=32,
    max_position_embeddings=12,
)
"""Heads of 64, so that shapes tell all sizes."""
SIZES = ((160, 120), (120, 160), (100, 100), (200, 110), (96, 300), (97, 96))
"""Widths and heights of pictures: five grids, one of them twice."""
TEXTS = (
    "a dog",
    "two cats in the street",
    "a man rides the red bike",
    "a woman holds the blue horse in the green field",
    "zebra!",
    "a cat",
    "the man and the dog and the cat and the horse and the bike in the street on the field",
)


def filled(network: Vilt, seed: int = 0) -> Vilt:
    """Weights so large that the parts of the computation matter, norms near 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.normal_(0, 0.07, generator=generator)
            if "norm" in name.lower() and name.endswith("weight"):
                parameter.add_(1)
    network.train(False)
    return network


def authors_layout(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same weights under the names of the specification's table, written independently of the reader."""
    out = {}
    for name, tensor in state.items():
        new = name.removeprefix("vilt.").removeprefix("embeddings.")
        if new.startswith("encoder.layer."):
            number, rest = new.removeprefix("encoder.layer.").split(".", 1)
            kind = rest.rsplit(".", 1)[1]
            place = {
                "layernorm_before": "norm1",
                "layernorm_after": "norm2",
                "attention.output.dense": "attn.proj",
                "intermediate.dense": "mlp.fc1",
                "output.dense": "mlp.fc2",
                "attention.attention.query": "attn.qkv",
            }.get(rest.rsplit(".", 1)[0])
            if place is None:
                continue
            if place == "attn.qkv":
                tensor = torch.cat([state[name.replace("query", part)] for part in ("query", "key", "value")])
            new = f"transformer.blocks.{number}.{place}.{kind}"
        for old, theirs in (
            ("cls_token", "transformer.cls_token"),
            ("position_embeddings", "transformer.pos_embed"),
            ("patch_embeddings.projection", "transformer.patch_embed.proj"),
            ("layernorm", "transformer.norm"),
        ):
            if new.startswith(old):
                new = theirs + new.removeprefix(old)
        out[new] = tensor
    width = state["rank_output.weight"].shape[1]
    return {**out, "itm_score.fc.weight": torch.ones(2, width), "itm_score.fc.bias": torch.ones(2)}


@dataclass
class World:
    """Small weights in three layouts, pictures and captions."""

    network: Vilt
    authors: Path
    hub: Path
    ours: Path
    pieces: Path
    images: list[ImageItem]
    captions: list[CaptionItem]

    def annotator(self, **settings: object) -> vilt.ViltAnnotator:
        given = {"weights": str(self.ours), "threads": 1, "device": "cpu", **settings}
        return registry.build("vilt", given)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    folder = tmp_path_factory.mktemp("vilt")
    network = filled(Vilt(SMALL))
    state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    authors, hub, ours = folder / "vilt_irtr_coco.ckpt", folder / "hub", folder / "small.safetensors"
    positions = {"text_embeddings.position_ids": torch.arange(12)[None]}
    torch.save({"epoch": 9, "state_dict": {**authors_layout(state), **positions}}, authors)
    hub.mkdir()
    torch.save(state, hub / "pytorch_model.bin")
    (hub / "config.json").write_text(network.config.to_json_string())
    (hub / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    metadata = {"format": "mitl-annotator-1", "network": "vilt", "config": SMALL.to_json()}
    save_file(state, ours, {**metadata, "wordpieces": "\n".join(PIECES)})
    rng = np.random.default_rng(0)
    images = []
    for place, (width, height) in enumerate(SIZES):
        path = folder / f"{place}.png"
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(path)
        images.append(ImageItem(place + 1, str(100 + place), path))
    captions = [CaptionItem(place + 1, str(place), 1, text) for place, text in enumerate(TEXTS)]
    return World(network, authors, hub, ours, hub / "vocab.txt", images, captions)


@pytest.fixture(scope="module")
def encoded(world):
    annotator = world.annotator()
    return annotator, annotator.encode_images(world.images), annotator.encode_captions(world.captions)


@pytest.fixture(scope="module")
def full_size(tmp_path_factory) -> Path:
    """The authors' checkpoint at full size, with rule-made weights."""
    with torch.device("meta"):
        network = Vilt(ViltConfig())
    state = network.state_dict()
    assert (len(state), sum(tensor.numel() for tensor in state.values())) == (208, 111_595_777)
    layout = authors_layout(state)
    path = tmp_path_factory.mktemp("full") / "vilt_irtr_coco.ckpt"
    rule = torch.linspace(-0.05, 0.05, 30_522 * 768)
    whole = {name: rule[: tensor.numel()].view(tensor.shape) for name, tensor in layout.items()}
    torch.save(
        {"state_dict": {name: tensor.clone() for name, tensor in whole.items()}, "global_step": 1}, path
    )
    return path


def test_the_released_layout_fits_at_full_size_by_every_key(full_size):
    """162 names: 160 are used, the pre-training head is set aside with its reason, nothing is missing."""
    found = vilt.examine(full_size)

    assert found.fits, found
    assert found.matched == 160
    assert sorted(found.ignored) == ["itm_score.fc.bias", "itm_score.fc.weight"]
    assert found.settings["layer_norm_eps"] == 1e-6
    assert "12 layers of width 768, 30,522 word pieces" in found.what


def test_heads_of_pre_training_may_be_left_over(world, tmp_path):
    """``mlm_score`` and its like stay aside with their reasons, in either layout; other names are refused."""
    authors = torch.load(world.authors)
    heads = {
        f"mlm_score.{name}": torch.ones(3) for name in ("bias", "transform.dense.weight", "decoder.weight")
    }
    torch.save({**authors, "state_dict": {**authors["state_dict"], **heads}}, tmp_path / "left.ckpt")
    hub = torch.load(world.hub / "pytorch_model.bin")
    torch.save({**hub, **heads}, tmp_path / "left.bin")
    torch.save({**hub, "mlm_scores.bias": torch.ones(3)}, tmp_path / "other.bin")

    found = [vilt.examine(tmp_path / name) for name in ("left.ckpt", "left.bin", "other.bin")]

    assert [one.fits for one in found] == [True, True, False]
    assert all(set(heads) <= set(one.ignored) for one in found[:2])
    assert "guesses masked words" in found[0].ignored["mlm_score.bias"]
    loaded = vilt.load(tmp_path / "left.ckpt").network.state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in world.network.state_dict().items())


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("image_size", 480),
        ("max_image_len", 200),
        ("num_heads", 4),
        ("tokenizer", "bert-base-cased"),
        ("max_text_len", 50),
        ("val_transform_keys", ["square"]),
    ],
)
def test_a_configuration_of_another_computation_is_refused(world, tmp_path, option, value):
    """Lightning keeps what the authors' file was trained with; the line says what differs."""
    authors = torch.load(world.authors)
    path = tmp_path / "other.ckpt"
    stated = {"image_size": SMALL.image_size, "num_heads": SMALL.num_attention_heads, "learning_rate": 1e-4}
    torch.save({**authors, "hyper_parameters": {"config": stated}}, path)
    assert vilt.examine(path).fits

    torch.save({**authors, "hyper_parameters": {"config": {**stated, option: value}}}, path)

    with pytest.raises(AnnotatorError, match=f"it was trained with {option} = "):
        vilt.load(path)


def test_the_released_weights_go_where_they_belong(full_size):
    """A fused query, key and value is cut in this order; every number of the file is in the network."""
    network = vilt.load(full_size).network

    rule = torch.linspace(-0.05, 0.05, 30_522 * 768)
    own = network.vilt.encoder.layer[11].attention.attention
    assert torch.equal(own.query.weight.flatten(), rule[: 768 * 768])
    assert torch.equal(own.value.weight.flatten(), rule[2 * 768 * 768 : 3 * 768 * 768])
    assert torch.equal(network.vilt.embeddings.position_embeddings.flatten(), rule[: 145 * 768])
    assert torch.equal(network.rank_output.weight.flatten(), rule[:768])
    assert network.vilt.encoder.layer[3].layernorm_before.eps == 1e-6
    assert network.vilt.embeddings.text_embeddings.LayerNorm.eps == 1e-12


def module_scores(network: Vilt, world: World, pieces: wordpieces.WordPieces) -> np.ndarray:
    """All pairs by the module's own forward: a picture with all captions, everything padded and masked."""
    most = network.sizes.max_position_embeddings
    ids, words = torch.zeros(len(world.captions), most).long(), torch.zeros(len(world.captions), most).long()
    for row, caption in enumerate(world.captions):
        tokens = pieces.encode(caption.text, most)
        ids[row, : len(tokens)], words[row, : len(tokens)] = torch.from_numpy(tokens), 1
    pictures = [torch.from_numpy(vilt_pixels(item, 96, 32)) for item in world.images]
    height, width = (max(p.shape[axis] for p in pictures) for axis in (1, 2))
    pixels, mask = (
        torch.zeros(len(pictures), 3, height, width),
        torch.zeros(len(pictures), height, width).long(),
    )
    for row, picture in enumerate(pictures):
        pixels[row, :, : picture.shape[1], : picture.shape[2]] = picture
        mask[row, : picture.shape[1], : picture.shape[2]] = 1
    columns = []
    with torch.no_grad():
        for row in range(len(ids)):
            beside = {
                "input_ids": ids[row].expand(len(pixels), -1),
                "attention_mask": words[row].expand(len(pixels), -1),
            }
            columns.append(network(**beside, pixel_values=pixels, pixel_mask=mask).logits[:, 0])
    return torch.stack(columns, 1).numpy()


def test_scores_are_the_modules_own(world, encoded):
    """Pictures of five grids and captions of seven lengths: within 1e-5 of the padded forward of transformers."""
    annotator, images, captions = encoded

    found = annotator.similarities(images, captions)

    wanted = module_scores(world.network, world, wordpieces.read_wordpieces(world.pieces))
    assert wanted.std() > 0.01
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_all_layouts_give_equal_scores(world, encoded):
    """The authors' file, a folder of the hub and our own file; the hub's other epsilon changes nothing visible."""
    annotator, images, captions = encoded
    wanted = annotator.similarities(images, captions)
    pieces = {"wordpieces": str(world.pieces)}
    config = json.loads((world.hub / "config.json").read_text())
    (world.hub / "config.json").write_text(json.dumps({**config, "layer_norm_eps": 1e-12}))

    authors = world.annotator(weights=str(world.authors), **pieces)
    hub = world.annotator(weights=str(world.hub))
    lone = world.annotator(weights=str(world.hub / "pytorch_model.bin"), **pieces)

    np.testing.assert_array_equal(authors.similarities(images, captions), wanted)
    for other in (hub, lone):
        np.testing.assert_allclose(other.similarities(images, captions), wanted, atol=1e-5)
    examinations = [vilt.examine(path) for path in (world.authors, world.hub, world.ours)]
    assert all(one.fits for one in examinations)
    assert [one.settings["layer_norm_eps"] for one in examinations] == [1e-6, 1e-12, 1e-6]
    assert "text_embeddings.position_ids" in examinations[0].ignored
    assert hub.fingerprint == lone.fingerprint
    assert len({one.fingerprint for one in (annotator, authors, hub)}) == 3


def test_an_annotator_as_the_registry_expects_it(encoded):
    """It keeps the protocol, and a caption query's block is an image query's, transposed."""
    annotator, images, captions = encoded

    assert isinstance(annotator, Annotator)
    found = annotator.similarities(captions, images)
    np.testing.assert_allclose(found, annotator.similarities(images, captions).T, atol=1e-6)
    assert found.dtype == np.float32
    assert found.shape == (len(TEXTS), len(SIZES))


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_score_does_not_depend_on_its_neighbours(encoded, data):
    """Any pairs in any order and any number of them give the scores of all pairs at once, to the last bit."""
    annotator, images, captions = encoded
    whole = annotator.similarities(images, captions)
    pairs = data.draw(
        st.lists(
            st.tuples(st.integers(0, len(SIZES) - 1), st.integers(0, len(TEXTS) - 1)), min_size=1, max_size=20
        )
    )
    rows, columns = np.array(pairs).T

    found = annotator.scores(images, captions, rows, columns)

    np.testing.assert_array_equal(found, whole[rows, columns])


@pytest.mark.parametrize("options", [{"batch": 1}, {"batch": 3}, {"threads": 3, "batch": 2}])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_scores_do_not_depend_on_batch_size_or_threads(world, encoded, options, precision):
    """Not by a bit, whatever the batch."""
    _, images, captions = encoded
    whole = world.annotator(precision=precision).similarities(images, captions)

    found = world.annotator(precision=precision, **options).similarities(images, captions)

    np.testing.assert_array_equal(found, whole)


def test_an_encoding_does_not_depend_on_other_items(world, encoded):
    """Alone or with all the others, an item has the same bytes, and all arrays of one side have one shape."""
    annotator, images, captions = encoded

    for row, item in enumerate(world.images):
        alone = annotator.encode_images([item])
        for name, array in alone.arrays.items():
            np.testing.assert_array_equal(array[0], images.arrays[name][row])
    alone = annotator.encode_captions(world.captions[2:3])
    np.testing.assert_array_equal(alone.arrays["tokens"][0], captions.arrays["tokens"][2])


def test_a_caption_of_300_words_is_cut_as_officially(world, encoded):
    """To as many pieces as there are positions, the last of them [SEP]; what was cut changes no score."""
    annotator, images, _ = encoded
    long = " ".join(["the red dog rides a bike"] * 50)
    texts = (long, long + " in the field", " ".join(["the red dog rides a bike"] * 2))
    captions = annotator.encode_captions([CaptionItem(i, str(i), 1, text) for i, text in enumerate(texts)])

    assert captions.arrays["length"].tolist() == [12, 12, 12]
    assert captions.arrays["tokens"][0, -1] == PIECES.index("[SEP]")
    found = annotator.similarities(images, captions)
    np.testing.assert_allclose(found, found[:, :1].repeat(3, 1), atol=1e-6)


def test_half_precision_is_near_and_can_be_made_exact(world, encoded):
    """bfloat16 moves scores by little against their spread; the same annotator rescores in float32."""
    annotator, images, captions = encoded
    wanted = annotator.similarities(images, captions)
    fast = world.annotator(precision="bfloat16")
    assert fast.fingerprint != world.annotator().fingerprint
    assert fast.encoding_fingerprint == world.annotator().encoding_fingerprint
    rows, columns = np.divmod(np.arange(wanted.size), wanted.shape[1])

    near = fast.scores(images, captions, rows, columns)
    exact = fast.scores(images, captions, rows, columns, exact=True)

    assert annotator.is_exact and not fast.is_exact
    assert fast.fingerprint != annotator.fingerprint
    assert 0 < np.abs(near - wanted.ravel()).max() < 0.1 * wanted.std()
    np.testing.assert_allclose(exact, wanted.ravel(), atol=1e-6)


def test_images_that_entered_are_kept_within_a_budget(world, encoded):
    """Scores are the same with room for all images, for two, and for none."""
    annotator, images, captions = encoded
    wanted = annotator.similarities(images, captions)
    for kept in (1 << 30, 200_000, 1):
        scorer = vilt.PairScorer(
            ViltCore(world.network), torch.device("cpu"), threads=2, batch=4, kept_bytes=kept
        )
        for _ in range(2):
            rows, columns = np.divmod(np.arange(wanted.size), wanted.shape[1])
            found = scorer.scores(images, captions, rows, columns)
            np.testing.assert_allclose(found, wanted.ravel(), atol=1e-6)
        other = replace(images, arrays={name: array[::-1] for name, array in images.arrays.items()})
        found = scorer.scores(other, captions, rows, columns)
        np.testing.assert_allclose(found, wanted[::-1].ravel(), atol=1e-6)


def test_training_sees_the_same_scores_with_padding_and_gradients(world):
    """Padded captions under their mask score as unpadded ones, and every parameter but unused rows learns."""
    network = filled(Vilt(SMALL), 1)
    pixels, pieces = torch.randn(3, 3, 96, 128), torch.randint(5, len(PIECES), (3, 7))
    padded, words = torch.zeros(3, 12).long(), torch.zeros(3, 12, dtype=torch.bool)
    padded[:, :7], words[:, :7] = pieces, True
    i, c = torch.tensor([0, 1, 2, 0, 1]), torch.tensor([0, 1, 2, 2, 0])

    found = network.score(network.images(pixels), network.captions(padded, words), i, c)
    found.square().sum().backward()

    with torch.no_grad():
        lean = network.score(network.images(pixels), network.captions(pieces), i, c)
        whole = network(
            input_ids=padded[c],
            attention_mask=words[c].long(),
            pixel_values=pixels[i],
            pixel_mask=torch.ones(5, 96, 128).long(),
        ).logits[:, 0]
    torch.testing.assert_close(found.detach(), lean, atol=1e-5, rtol=0)
    torch.testing.assert_close(found.detach(), whole, atol=1e-5, rtol=0)
    still = [name for name, p in network.named_parameters() if p.grad is None or not p.grad.abs().sum()]
    # A key's bias moves all of a query's products alike, which a softmax does not see.
    assert still == ["vilt.encoder.layer.2.attention.attention.key.bias"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_all_kernels_compute_the_same_maps(dtype):
    """oneDNN's kernels agree with torch's own, where this torch has them."""
    if not linear_kernels._has_onednn(dtype):
        pytest.skip("this torch has no oneDNN operators")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5, 24, generator=generator).to(dtype)
    weight, bias = (
        torch.randn(16, 24, generator=generator).to(dtype),
        torch.randn(16, generator=generator).to(dtype),
    )
    plain = linear_kernels.PlainLinear(weight, bias)

    with torch.inference_mode():
        packed = linear_kernels.OneDnnLinear(weight, bias)
        near = {"atol": 1e-5, "rtol": 1e-5} if dtype == torch.float32 else {"atol": 0.1, "rtol": 0.02}
        torch.testing.assert_close(packed(x), plain(x), **near)
        torch.testing.assert_close(packed.gelu(x), plain.gelu(x), **near)
        torch.testing.assert_close(linear_kernels.softmax(x), x.softmax(-1), atol=0.005, rtol=0.01)


def test_float32_stays_float32_where_the_process_allows_less(world, encoded):
    """torch may be told to round float32 products to bfloat16; scores are not touched by it."""
    annotator, images, captions = encoded
    wanted = annotator.similarities(images, captions)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        found = annotator.similarities(images, captions)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    np.testing.assert_allclose(found, wanted, atol=1e-6)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_cuda_scores_as_the_processor_does(world, encoded, precision):
    """The same path in half precision on a card is near float32, and exact where asked."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    annotator, images, captions = encoded
    wanted = annotator.similarities(images, captions)
    card = world.annotator(device="cuda", precision=precision)
    rows, columns = np.divmod(np.arange(wanted.size), wanted.shape[1])

    assert np.abs(card.similarities(images, captions) - wanted).max() < 0.1 * wanted.std()
    exact = card.scores(images, captions, rows, columns, exact=True)
    np.testing.assert_allclose(exact, wanted.ravel(), atol=1e-5)
    for is_exact in (False, True):
        whole = card.scores(images, captions, rows, columns, exact=is_exact)
        some = card.scores(images, captions, rows[3:7], columns[3:7], exact=is_exact)
        np.testing.assert_array_equal(some, whole[3:7])


def test_pairs_that_fill_a_card_have_the_same_scores(world, encoded):
    """As on a card, here: products of one size, whatever is asked; more pairs than go through together, too."""
    annotator, images, captions = encoded
    wanted = annotator.similarities(images, captions)
    core = ViltCore(world.network)
    core.fills = True
    scorer = PairScorer(core, torch.device("cpu"), threads=1, kept_bytes=1 << 20)
    rows, columns = np.divmod(np.arange(3 * wanted.size) % wanted.size, wanted.shape[1])

    found = scorer.scores(images, captions, rows, columns)

    np.testing.assert_allclose(found, wanted[rows, columns], atol=1e-5)
    for few in ([5], [17, 2, 2], list(range(40, 8, -3))):
        np.testing.assert_array_equal(scorer.scores(images, captions, rows[few], columns[few]), found[few])


def refusal(world: World, **settings: object) -> str:
    with pytest.raises(AnnotatorError) as raised:
        world.annotator(**settings)
    message = str(raised.value)
    assert "\n" not in message
    return message


def test_wrong_settings_are_one_clear_line(world, tmp_path):
    """Word pieces of another size or none at all, a precision for cards, a switch that is not a switch."""
    other = tmp_path / "vocab.txt"
    other.write_text("[UNK]\n[CLS]\n[SEP]\na\n")
    assert "holds 4 word pieces, but the weights" in refusal(world, wordpieces=str(other))
    assert "needs the setting 'wordpieces'" in refusal(world, weights=str(world.authors))
    assert "use 'bfloat16' or 'float32'" in refusal(world, precision="float16")
    assert "should be one of float32" in refusal(world, precision="int4")
    assert "no setting 'wordpiece'" in refusal(world, wordpiece="x")
    other.write_text("just\nwords\n")
    assert "without [CLS]" in refusal(world, wordpieces=str(other))
    other.write_text("[UNK]\n[CLS]\n[SEP]\na\na\n")
    assert "'a' twice" in refusal(world, wordpieces=str(other))
    other.write_bytes(b"\xff\xfe\x00")
    assert "not readable as word pieces" in refusal(world, wordpieces=str(other))


def test_wrong_weights_are_one_clear_line(world, tmp_path):
    """A ViLT of another task, another network's config, a folder without weights, a lost key."""
    whole = torch.load(world.authors, weights_only=True)["state_dict"]
    path = tmp_path / "vilt.ckpt"
    headless = {name: tensor for name, tensor in whole.items() if not name.startswith("rank_output")}
    torch.save({"state_dict": headless}, path)
    assert any("ViLT of another task" in problem for problem in vilt.examine(path).problems)
    assert "does not fit vilt" in refusal(world, weights=str(path))
    torch.save({"state_dict": {k: v for k, v in whole.items() if "blocks.1.norm1.bias" not in k}}, path)
    assert "lacks 'transformer.blocks.1.norm1.bias'" in refusal(world, weights=str(path))
    torch.save({"fc.weight": torch.ones(3, 3)}, path)
    assert vilt.examine(path).what == "no weights of ViLT"
    folder = tmp_path / "folder"
    folder.mkdir()
    assert "holds no model.safetensors or pytorch_model.bin" in refusal(world, weights=str(folder))
    torch.save(whole, folder / "pytorch_model.bin")
    (folder / "config.json").write_text('{"model_type": "clip"}')
    torch.save({"vilt.layernorm.weight": torch.ones(3)}, folder / "pytorch_model.bin")
    assert "should be 'vilt'" in refusal(world, weights=str(folder))
    (folder / "config.json").write_text('{"hidden_act": "relu"}')
    assert "hidden_act is 'relu'" in refusal(world, weights=str(folder))
    (folder / "config.json").write_text('{"max_image_length": 40}')
    assert "max_image_length is 40; known is -1" in refusal(world, weights=str(folder))
    (folder / "config.json").write_text('{"hidden_size": 0}')
    assert "does not describe a ViLT" in refusal(world, weights=str(folder))
    for unreadable in ("{", "[" * 100_000):
        (folder / "config.json").write_text(unreadable)
        assert "config.json' is not readable as JSON" in refusal(world, weights=str(folder))
    save_file({"a": torch.ones(1)}, path, {"format": "mitl-annotator-1", "network": "clip"})
    assert "it should hold 'vilt'" in refusal(world, weights=str(path))
    for sizes in ('{"hidden_size": 0}', '{"num_hidden_layers": 10000000}'):
        stated = {"format": "mitl-annotator-1", "network": "vilt", "config": sizes}
        save_file({"a": torch.ones(1)}, path, stated)
        assert "no readable 'config'" in refusal(world, weights=str(path))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_score_that_is_not_finite_names_its_pair(world, encoded, precision):
    """NaN in an encoding comes out as one line with the pair's ids."""
    _, images, captions = encoded
    annotator = world.annotator(precision=precision)
    broken = images.arrays["state"].copy()
    broken[4] = np.nan
    images = replace(images, arrays={**images.arrays, "state": broken})

    with pytest.raises(AnnotatorError, match="no finite score for image 5 and caption 1;"):
        annotator.similarities(images, captions)


def test_nothing_to_encode_is_said(encoded):
    """Empty sides are an error, not an empty array."""
    annotator, _, _ = encoded
    with pytest.raises(AnnotatorError, match="no images"):
        annotator.encode_images([])
    with pytest.raises(AnnotatorError, match="no captions"):
        annotator.encode_captions([])


@pytest.mark.parametrize(
    "stated",
    [
        {"hidden_size": 100},
        {"patch_size": 36},
        {"max_position_embeddings": 1},
        {"layer_norm_eps": 0},
        {"vocab_size": 1.5},
    ],
)
def test_sizes_that_make_no_network_are_refused(stated):
    """Heads that do not divide the width, patches the image, no room for a word, no numbers."""
    with pytest.raises(ValueError, match=r"multiple|no room|should be"):
        ViltConfig(**stated)


ODD = (
    "Naïve café — 3.5€!",
    "犬と猫",
    "x" * 101,
    "don't [MASK] a [SEP] b",
    "\ttabs\u00a0and\u200bmore ",
    "",
    "😀 dog",
)


def test_word_pieces_are_those_of_transformers(shared_data):
    """Real captions and odd texts: the same ids, cut alike."""
    pytest.importorskip("transformers", minversion="5.3", reason="5.0 cuts otherwise")
    import pyarrow.parquet as pq

    path = wordpieces.installed_wordpieces()
    if path is None:
        pytest.skip("no installed package brings BERT's word pieces")
    texts = pq.read_table(shared_data / "coco_karpathy_test_captions" / "captions.parquet")[
        "text"
    ].to_pylist()
    texts = [*ODD, *texts[::25]]
    pieces, theirs = wordpieces.read_wordpieces(path), transformers.BertTokenizer(str(path))

    wanted = theirs(texts, truncation=True, max_length=40)["input_ids"]

    assert len(pieces) == wordpieces.BERT_SIZE
    assert [pieces.encode(text, 40).tolist() for text in texts] == wanted

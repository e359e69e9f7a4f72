"""Dual encoders of transformers, by local folder or hub name; the models here are tiny and random."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Picture

from annotators import registry
from annotators.base import Annotator
from mitl.errors import AnnotatorError
from mitl.records import AnnotatorKind, CaptionItem, ImageItem

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
import families_kit  # noqa: E402 - needs both

TEXTS = ["a red dot", "a blue square", "dot", "a red red blue dot", "a red dot"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    """A folder of each family."""
    return {
        "clip": families_kit.write_clip(tmp_path_factory.mktemp("clip")),
        "siglip": families_kit.write_siglip(tmp_path_factory.mktemp("siglip")),
    }


@pytest.fixture
def clip(folders, tmp_path) -> Path:
    """A copy of the CLIP folder that a test may spoil."""
    return shutil.copytree(folders["clip"], tmp_path / "model")


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> list[ImageItem]:
    folder = tmp_path_factory.mktemp("images")
    generator = np.random.default_rng(0)
    for number, (width, height) in enumerate([(64, 48), (33, 90), (32, 32)], 1):
        pixels = generator.integers(0, 255, (height, width, 3), dtype=np.uint8)
        Picture.fromarray(pixels).save(folder / f"{number}.png")
    return [ImageItem(n, str(n), folder / f"{n}.png") for n in (1, 2, 3)]


def captions(*texts):
    return [CaptionItem(place, str(place), 1, text) for place, text in enumerate(texts or TEXTS, 1)]


def build(folder, **settings):
    return registry.build("mine", {"transformers": str(folder), **settings})


@pytest.mark.parametrize("family", ["clip", "siglip"])
def test_embeddings_are_those_of_the_family(folders, images, family):
    """Cosines equal those that the family's own model and processor give item by item."""
    annotator = build(folders[family])

    left, right = annotator.encode_images(images), annotator.encode_captions(captions())
    got = annotator.similarities(left, right)

    assert isinstance(annotator, Annotator)
    assert annotator.kind is AnnotatorKind.INNER_PRODUCT
    np.testing.assert_allclose(np.linalg.norm(right.arrays["embedding"], axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(got, reference(folders[family], family, images), atol=1e-6)


def reference(folder, family, items):
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    images = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    padding = {"padding": "max_length"} if family == "siglip" else {}
    with torch.no_grad():
        left = [
            model.get_image_features(**images(Picture.open(item.path), return_tensors="pt")).pooler_output
            for item in items
        ]
        right = [
            model.get_text_features(**tokenizer(text, return_tensors="pt", **padding)).pooler_output
            for text in TEXTS
        ]
    left, right = (torch.nn.functional.normalize(torch.cat(side)) for side in (left, right))
    return (left @ right.T).numpy()


def test_a_siglip_reads_lower_case_whatever_its_tokeniser_does(folders):
    """It was trained on nothing else."""
    found = build(folders["siglip"]).encode_captions(captions("A Red DOT", "a red dot"))
    assert np.array_equal(*found.arrays["embedding"])


def test_an_items_bits_do_not_depend_on_its_neighbours(folders, images):
    """Order and company leave every embedding as it is."""
    annotator = build(folders["clip"], batch=2)
    whole = annotator.encode_captions(captions()).arrays["embedding"]
    pictures = annotator.encode_images(images).arrays["embedding"]

    for place, text in enumerate(TEXTS):
        np.testing.assert_array_equal(
            annotator.encode_captions(captions(text)).arrays["embedding"][0], whole[place]
        )
    np.testing.assert_array_equal(annotator.encode_images(images[::-1]).arrays["embedding"], pictures[::-1])


def test_the_fingerprint_is_that_of_the_files(folders, clip, tmp_path):
    """The same files give the same fingerprint wherever they lie; other weights or settings files another."""
    first = build(folders["clip"]).fingerprint

    assert build(clip).fingerprint == first
    assert build(families_kit.write_clip(tmp_path / "other", seed=1)).fingerprint != first
    config = json.loads((clip / "processor_config.json").read_text())
    config["image_processor"]["do_center_crop"] = False
    (clip / "processor_config.json").write_text(json.dumps(config))
    assert build(clip).fingerprint != first


def test_a_hub_name_is_read_from_the_cache(folders, tmp_path, monkeypatch):
    """Offline, a name that the user's cache holds gives the same annotator as its folder."""
    import huggingface_hub

    asked = []

    def snapshot_download(name, *, revision, allow_patterns):
        asked.append((name, revision, allow_patterns))
        return str(folders["clip"])

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)

    found = registry.build("mine", {"transformers": "someone/tiny", "revision": "abc"}, folder=tmp_path)

    assert found.fingerprint == build(folders["clip"]).fingerprint
    assert asked == [("someone/tiny", "abc", ["*.json", "*.txt", "*.model", "*.safetensors"])]


def test_a_hub_name_that_cannot_be_had_is_one_line(tmp_path, monkeypatch):
    """Offline and not in the cache: what was asked for and what to do."""
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HOME", str(tmp_path))

    with pytest.raises(
        AnnotatorError, match=r"needs the model 'someone/nothing', which is neither .* connect"
    ) as caught:
        registry.build("mine", {"transformers": "someone/nothing"}, folder=tmp_path)

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", ["./gone", "/nowhere/at/all", "models/gone/there", "~/gone"])
def test_a_missing_folder_is_not_looked_up_on_the_hub(tmp_path, value):
    """What can only be a path is named as a missing folder."""
    with pytest.raises(
        AnnotatorError, match="which is not a folder; give a folder that save_pretrained wrote"
    ):
        registry.build("mine", {"transformers": value}, folder=tmp_path)


def test_a_model_of_one_side_is_refused(tmp_path):
    """A text model embeds no images."""
    config = transformers.BertConfig(
        vocab_size=30, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1
    )
    transformers.BertModel(config).save_pretrained(tmp_path)

    with pytest.raises(
        AnnotatorError, match="holds a BertModel, which does not embed images and texts apart"
    ):
        build(tmp_path)


def test_a_model_with_a_vector_for_each_word_is_refused(folders, tmp_path):
    """FLAVA's features are of all patches and of all words, which no cosine compares."""
    folder = shutil.copytree(folders["siglip"], tmp_path / "flava")
    side = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = transformers.FlavaConfig(
        text_config={**side, "vocab_size": 8, "max_position_embeddings": 16},
        image_config={**side, "image_size": 32, "patch_size": 16},
        multimodal_config=side,
        projection_dim=8,
    )
    transformers.FlavaModel(config).save_pretrained(folder)

    with pytest.raises(AnnotatorError, match="is a FlavaModel, which does not give one vector an item"):
        build(folder).encode_captions(captions())


def test_a_revision_of_a_folder_is_refused(clip):
    """A folder has the one that it has; another one that was asked for would be read in its place."""
    with pytest.raises(
        AnnotatorError, match=r"'revision' .* names the folder '.*model'; leave 'revision' out"
    ):
        build(clip, revision="v2")


def test_weights_that_do_not_fill_the_model_are_refused(clip):
    """transformers would draw random numbers for what is missing; here that is an error."""
    from safetensors.torch import load_file, save_file

    weights = load_file(clip / "model.safetensors")
    del weights["visual_projection.weight"]
    save_file(weights, clip / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(
        AnnotatorError, match=r"do not fill a CLIPModel: 1 keys .* first 'visual_projection\.weight'"
    ):
        build(clip)


class Payload:
    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return Path.touch, (self.place,)


@pytest.mark.parametrize("spoil", ["truncated", "pickle", "code", "empty"])
def test_a_spoiled_folder_is_one_line_and_runs_nothing(clip, tmp_path, spoil):
    """A cut-off file, a pickle with a payload, a model that brings code, a folder with nothing in it."""
    mark = tmp_path / "it-ran"
    weights = clip / "model.safetensors"
    if spoil == "truncated":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif spoil == "pickle":
        weights.unlink()
        (clip / "pytorch_model.bin").write_bytes(pickle.dumps({"logit_scale": Payload(mark)}))
    elif spoil == "code":
        (clip / "config.json").write_text(
            json.dumps({"model_type": "mine", "auto_map": {"AutoConfig": "m.C", "AutoModel": "m.M"}})
        )
        (clip / "m.py").write_text(f"open({str(mark)!r}, 'w')\nclass C: ...\nclass M: ...\n")
    else:
        shutil.rmtree(clip)
        clip.mkdir()

    with pytest.raises(
        AnnotatorError, match=r"^annotator 'mine' cannot use .*AutoModel of transformers says: "
    ) as caught:
        build(clip)

    assert "\n" not in str(caught.value)
    assert not mark.exists()


def test_a_caption_that_is_too_long_is_named(folders):
    """Nothing is cut off in silence."""
    for family, tokens in (("clip", 302), ("siglip", 301)):
        with pytest.raises(
            AnnotatorError, match=f"caption '2' has {tokens} tokens, but 'mine' reads 16 at most"
        ):
            build(folders[family]).encode_captions(captions("a dot", " ".join(["a"] * 300)))

        cut = build(folders[family], truncate=True)
        rows = cut.encode_captions(captions("a " * 15 + "dot", "a " * 300, "a " * 301)).arrays["embedding"]
        np.testing.assert_array_equal(rows[1], rows[2])
        assert cut.fingerprint != build(folders[family]).fingerprint


def test_an_image_that_cannot_be_read_is_named(folders, images, tmp_path):
    """A file that is not an image, or no file at all, is one line."""
    (tmp_path / "x.jpg").write_text("no image")

    for path in (tmp_path / "x.jpg", tmp_path / "gone.jpg"):
        with pytest.raises(AnnotatorError, match=path.name):
            build(folders["clip"]).encode_images([*images, ImageItem(9, "9", path)])

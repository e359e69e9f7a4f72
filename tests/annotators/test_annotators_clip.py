"""CLIP: every layout of its weights, its tokens, its embeddings, and what can be wrong with them."""

from __future__ import annotations

import gzip
import hashlib
import json
import socket
import warnings
from collections.abc import Mapping
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import load_file, save_file
from suite_kit import examples
from torch import Tensor, nn
from torch.nn import functional as F

from annotators import registry
from annotators.checkpoints.checkpoint import Checkpoint, as_ours, config_of, read_checkpoint, shapes_in
from annotators.clip import (
    Clip,
    ClipAnnotator,
    LayerNorm32,
    LoadedClip,
    examine,
    for_transformers,
    load,
    official_name,
)
from annotators.inputs import bpe
from annotators.inputs.bpe import (
    LETTERS,
    BytePairEncoder,
    clean,
    find_official,
    joined,
    learn_merges,
    read_encoder,
    words,
)
from annotators.options import Options
from annotators.sizes import ClipConfig
from mitl.errors import AnnotatorError
from mitl.records import CaptionItem, ImageItem

TEXTS = [
    "A man riding a wave on top of a surfboard.",
    "A man rides a small wave on his surfboard!",
    "Two dogs don't run; they're sleeping on a red couch.",
    "a red car parked next to a parking meter in 2014",
    "A plate with rice, broccoli and a fork.",
]
SMALL = ClipConfig(
    embed_dim=24,
    image_size=32,
    patch_size=8,
    vision_width=128,
    vision_layers=2,
    vision_heads=2,
    vision_mlp=96,
    context_length=40,
    vocab_size=512 + 60 + 2,
    text_width=64,
    text_layers=3,
    text_heads=1,
    text_mlp=80,
)
OFFICIAL = replace(ClipConfig(), **dict.fromkeys(("vision_layers", "text_layers"), examples(2, 12)))
"""CLIP ViT-B/32; but for the thorough run with two layers a side, as every layer has the same entries."""
MERGES = learn_merges(TEXTS, 60)
HALVES = ("conv1", "attn.", "mlp.", "proj", "text_projection")
"""What of CLIP's own file is half precision: all but LayerNorm, embeddings and the temperature."""


def without_weights(config: ClipConfig) -> Clip:
    """A network whose weights take no memory."""
    with torch.device("meta"):
        return Clip(config)


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch):
    """Nothing here may look for a hub."""

    def refuse(*_: Any) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def rule_made(config: ClipConfig, *, halves: bool = False) -> dict[str, Tensor]:
    """A state dict with CLIP's own names; every weight matters, none is extreme."""
    ours = {name: tuple(t.shape) for name, t in without_weights(config).state_dict().items()}
    generator, found = torch.Generator().manual_seed(5), {}
    for name, shape in shapes_in(official_name, ours).items():
        noise = torch.randn(shape, generator=generator)
        if ".ln_" in name or name.startswith("ln_"):
            tensor = noise.mul_(0.1).add_(1.0 if name.endswith("weight") else 0.0)
        else:
            tensor = noise.mul_(0.4 / max(shape[-1] if shape else 1, 1) ** 0.5)
        half = halves and any(word in name for word in HALVES)
        found[name] = tensor.half() if half else tensor
    return found


def official_images(state: Mapping[str, Tensor], pixels: Tensor) -> Tensor:
    """The vision transformer written from its description, on CLIP's own names; unit vectors."""
    state = {name: tensor.float() for name, tensor in state.items()}
    kernel = state["visual.conv1.weight"]
    x = F.conv2d(pixels, kernel, stride=kernel.shape[-1]).flatten(2).transpose(1, 2)
    first = state["visual.class_embedding"].expand(len(x), 1, -1)
    x = torch.cat([first, x], 1) + state["visual.positional_embedding"]
    x = official_blocks(state, norm(state, "visual.ln_pre", x), "visual.transformer.resblocks.", None)
    return F.normalize(norm(state, "visual.ln_post", x[:, 0]) @ state["visual.proj"], dim=-1)


def official_captions(state: Mapping[str, Tensor], tokens: Tensor) -> Tensor:
    """The text transformer likewise; the state at the greatest token number counts."""
    state = {name: tensor.float() for name, tensor in state.items()}
    x = state["token_embedding.weight"][tokens] + state["positional_embedding"][: tokens.shape[1]]
    mask = torch.full((tokens.shape[1],) * 2, -torch.inf).triu(1)
    x = norm(state, "ln_final", official_blocks(state, x, "transformer.resblocks.", mask))
    ends = x[torch.arange(len(x)), tokens.argmax(-1)]
    return F.normalize(ends @ state["text_projection"], dim=-1)


def norm(state: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], state[f"{name}.weight"], state[f"{name}.bias"], 1e-5)


def official_blocks(state: Mapping[str, Tensor], x: Tensor, prefix: str, mask: Tensor | None) -> Tensor:
    layers = 1 + max(int(name[len(prefix) :].split(".")[0]) for name in state if name.startswith(prefix))
    for layer in range(layers):
        p = f"{prefix}{layer}."
        heads = x.shape[-1] // 64
        y = norm(state, f"{p}ln_1", x)
        q, k, v = F.linear(y, state[f"{p}attn.in_proj_weight"], state[f"{p}attn.in_proj_bias"]).chunk(3, -1)
        q, k, v = (t.unflatten(-1, (heads, 64)).transpose(1, 2) for t in (q, k, v))
        scores = q @ k.transpose(-1, -2) / 8 + (0 if mask is None else mask)
        y = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        x = x + F.linear(y, state[f"{p}attn.out_proj.weight"], state[f"{p}attn.out_proj.bias"])
        y = F.linear(norm(state, f"{p}ln_2", x), state[f"{p}mlp.c_fc.weight"], state[f"{p}mlp.c_fc.bias"])
        y = y * torch.sigmoid(1.702 * y)
        x = x + F.linear(y, state[f"{p}mlp.c_proj.weight"], state[f"{p}mlp.c_proj.bias"])
    return x


def close(found: Tensor, expected: Tensor) -> bool:
    return torch.allclose(found, expected, rtol=0, atol=1e-5)


# Names


def test_the_official_layout_has_the_published_entries():
    """302 entries and 151,277,313 numbers in CLIP's own files, 398 in transformers' layout."""
    ours = {name: tuple(t.shape) for name, t in without_weights(ClipConfig()).state_dict().items()}
    official = shapes_in(official_name, ours)

    assert len(ours) == 398
    assert len(official) == 302
    assert sum(int(np.prod(shape)) for shape in official.values()) == 151_277_313
    assert official["visual.transformer.resblocks.11.attn.in_proj_weight"] == (2304, 768)
    assert official["visual.proj"] == (768, 512)
    assert official["transformer.resblocks.0.mlp.c_fc.bias"] == (2048,)
    assert official["positional_embedding"] == (77, 512)
    assert official["logit_scale"] == ()


def test_every_weight_has_its_place_in_both_layouts():
    """From CLIP's names to ours and back, no number is lost, doubled or moved."""
    state = rule_made(SMALL)
    names = list(without_weights(SMALL).state_dict())
    ours = as_ours(official_name, state, names)

    back: dict[str, list[Tensor]] = {}
    for name in sorted(ours, key=lambda name: official_name(name)[1].value):
        official, part = official_name(name)
        back.setdefault(official, []).append(ours[name].T if part.name == "TRANSPOSED" else ours[name])

    assert {name: torch.cat(p) if len(p) > 1 else p[0] for name, p in back.items()}.keys() == state.keys()
    assert all(torch.equal(torch.cat(p) if len(p) > 1 else p[0], state[name]) for name, p in back.items())


# The full-size archive


class Node(nn.Module):
    """A module with any names below it."""

    def forward(self, x: Tensor) -> Tensor:
        """Use the only thing that every archive needs: an output."""
        return x * 2


def module_tree(state: Mapping[str, Tensor]) -> nn.Module:
    """A tree of modules whose state dict is ``state``."""
    top = Node()
    for name, tensor in state.items():
        *path, last = name.split(".")
        node: nn.Module = top
        for part in path:
            if part not in node._modules:
                node.add_module(part, Node())
            node = node.get_submodule(part)
        if tensor.is_floating_point():
            node.register_parameter(last, nn.Parameter(tensor, requires_grad=False))
        else:
            node.register_buffer(last, tensor)
    return top


@pytest.fixture(scope="module")
def official_file(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Tensor]]:
    """A TorchScript archive like ``ViT-B-32.pt`` with rule-made weights, and the weights."""
    state = rule_made(OFFICIAL, halves=True)
    numbers = {"input_resolution": 224, "context_length": 77, "vocab_size": 49408}
    tree = module_tree({**state, **{name: torch.tensor(number) for name, number in numbers.items()}})
    path = tmp_path_factory.mktemp("clip") / "ViT-B-32.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated
        torch.jit.trace(tree, torch.ones(1)).save(str(path))
    return path, state


@pytest.fixture(scope="module")
def full_size_merges(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As many merges as CLIP has, of two letters each."""
    path = tmp_path_factory.mktemp("bpe") / "merges.txt.gz"
    lines = [f"{a} {b}" for a in LETTERS for b in LETTERS][:48894]
    path.write_bytes(gzip.compress("\n".join(["bpe#version: 0.2", *lines, "more merges"]).encode()))
    return path


def test_the_official_archive_gives_the_official_embeddings(
    official_file: tuple[Path, dict[str, Tensor]], full_size_merges: Path
):
    """Half-precision weights of the archive, computed in float32, equal CLIP's description to 1e-5."""
    path, state = official_file
    loaded = load(path, bpe=full_size_merges)
    pixels = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(1))
    tokens = torch.tensor([[49406, 320, 1125, 539, 49407, 0, 0], [49406, 5, 6, 7, 8, 9, 49407]])

    with torch.inference_mode():
        images, captions = loaded.network.images(pixels), loaded.network.captions(tokens)

    assert close(images["embedding"], official_images(state, pixels))
    assert close(captions["embedding"], official_captions(state, tokens))
    assert loaded.network.config == OFFICIAL
    assert loaded.encoder.end == 49407
    assert all(weight.dtype == torch.float32 for weight in loaded.network.state_dict().values())


def test_scalars_that_the_weights_contradict_are_refused(
    official_file: tuple[Path, dict[str, Tensor]], tmp_path: Path
):
    """The resolution, length and vocabulary that a file states must be those of its weights."""
    state = {**official_file[1], "input_resolution": torch.tensor(288), "context_length": torch.tensor(77)}
    torch.save(state, tmp_path / "clip.pt")

    found = examine(tmp_path / "clip.pt")

    assert found.problems == (
        "it was trained with input_resolution = 288, but what is computed is input_resolution = 224",
    )
    assert not found.fits


def test_the_official_archive_is_examined(official_file: tuple[Path, dict[str, Tensor]]):
    """All keys match, and the three scalars are known."""
    found = examine(official_file[0])

    assert found.fits
    assert found.matched == len(official_file[1])
    assert found.layout == "TorchScript archive"
    assert sorted(found.ignored) == ["context_length", "input_resolution", "vocab_size"]
    assert found.what == "CLIP ViT-B/32 in CLIP's own names, 224 pixels, 49,408 tokens, embeddings of 512"


# Layouts, in small


def hub_state(config: ClipConfig = SMALL) -> dict[str, Tensor]:
    names = list(without_weights(config).state_dict())
    return {k: t.contiguous() for k, t in as_ours(official_name, rule_made(config), names).items()}


def merges_file(folder: Path, name: str = "merges.txt") -> Path:
    path = folder / name
    path.write_text("#version: 0.2\n" + "\n".join(map(" ".join, MERGES)) + "\n", encoding="utf-8")
    return path


def hub_folder(folder: Path, *, old: bool) -> Path:
    """As transformers writes it, or as the hub's oldest CLIP folders are."""
    from transformers import CLIPModel

    model = CLIPModel(for_transformers(SMALL))
    model.load_state_dict(hub_state())
    model.save_pretrained(folder)
    encoder = BytePairEncoder(MERGES)
    if old:
        state = load_file(folder / "model.safetensors")
        state["text_model.embeddings.position_ids"] = torch.arange(40)[None]
        state["vision_model.embeddings.position_ids"] = torch.arange(17)[None]
        (folder / "model.safetensors").unlink()
        torch.save(state, folder / "pytorch_model.bin")
        config = json.loads((folder / "config.json").read_text())
        text = config["text_config"]
        text["eos_token_id"] = 2
        config["text_config_dict"] = {**text}
        text["hidden_size"] = 32
        (folder / "config.json").write_text(json.dumps(config))
        merges_file(folder)
        (folder / "vocab.json").write_text(json.dumps(encoder.number_of))
    else:
        body = {"model": {"type": "BPE", "merges": [list(merge) for merge in MERGES]}}
        (folder / "tokenizer.json").write_text(json.dumps(body))
    return folder


def our_file(folder: Path, sizes: ClipConfig = SMALL, /, **metadata: str) -> Path:
    path = folder / "clip.safetensors"
    described = {
        "format": "mitl-annotator-1",
        "network": "clip",
        "config": json.dumps(asdict(sizes)),
        "bpe_merges": "\n".join(map(" ".join, MERGES)),
    }
    save_file(hub_state(sizes), path, {**described, **metadata})
    return path


def weights_in(layout: str, folder: Path) -> Path:
    state = rule_made(SMALL)
    if layout == "state dict":
        torch.save(state, folder / "clip.pt")
    elif layout == "training checkpoint of open_clip":
        wrapped = {f"module.{name}": tensor for name, tensor in state.items()}
        torch.save(
            {"epoch": 3, "name": "ViT", "state_dict": wrapped, "optimizer": {"lr": 1e-3}}, folder / "clip.pt"
        )
    elif layout == "safetensors of open_clip":
        save_file(state, folder / "open_clip_model.safetensors")
        return folder / "open_clip_model.safetensors"
    elif layout == "a file of the hub":
        torch.save(
            {**hub_state(), "text_model.embeddings.position_ids": torch.arange(40)[None]}, folder / "clip.pt"
        )
    elif layout == "our own":
        return our_file(folder)
    else:
        return hub_folder(folder, old="old" in layout)
    return folder / "clip.pt"


LAYOUTS = [
    "state dict",
    "training checkpoint of open_clip",
    "safetensors of open_clip",
    "a file of the hub",
    "our own",
    "a new folder of the hub",
    "an old folder of the hub",
]


@pytest.fixture(scope="module")
def inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(0, SMALL.vocab_size - 2, (3, 12), generator=generator)
    tokens[:, 0] = SMALL.vocab_size - 2
    tokens[torch.arange(3), torch.tensor([11, 7, 4])] = SMALL.vocab_size - 1
    return torch.randn(3, 3, 32, 32, generator=generator), tokens


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_embeddings(
    tmp_path: Path, layout: str, inputs: tuple[Tensor, Tensor], tmp_path_factory: pytest.TempPathFactory
):
    """Whatever names and wrappers a file has, it is the same network."""
    path = weights_in(layout, tmp_path)
    own = "folder" in layout or layout == "our own"
    loaded = load(path, bpe=None if own else merges_file(tmp_path_factory.mktemp("bpe")))

    with torch.inference_mode():
        images, captions = loaded.network.images(inputs[0]), loaded.network.captions(inputs[1])

    state = rule_made(SMALL)
    assert examine(path).fits
    assert close(images["embedding"], official_images(state, inputs[0]))
    assert close(captions["embedding"], official_captions(state, inputs[1]))
    assert loaded.encoder.merges == tuple(MERGES)
    if not own:
        assert loaded.network.config == replace(SMALL, vision_heads=2, text_heads=1)


@pytest.mark.parametrize("old", [True, False])
def test_transformers_own_forward_agrees(tmp_path: Path, inputs: tuple[Tensor, Tensor], old: bool):
    """The folder loaded by transformers gives the same vectors."""
    from transformers import CLIPModel

    folder = hub_folder(tmp_path, old=old)
    port = CLIPModel.from_pretrained(folder, local_files_only=True, dtype=torch.float32).eval()
    network = load(folder).network

    with torch.inference_mode():
        theirs = port(pixel_values=inputs[0], input_ids=inputs[1])
        assert close(network.images(inputs[0])["embedding"], theirs.image_embeds)
        assert close(network.captions(inputs[1])["embedding"], theirs.text_embeds)


def test_a_file_inside_a_hub_folder_is_read_with_its_folder(tmp_path: Path):
    """Heads and merges are taken from what lies beside it."""
    folder = hub_folder(tmp_path, old=False)

    assert load(folder / "model.safetensors").encoder.merges == tuple(MERGES)


def test_padding_after_the_end_of_a_text_does_not_matter(tmp_path: Path, inputs: tuple[Tensor, Tensor]):
    """Zeros as CLIP pads, end tokens as transformers pads, or nothing: one embedding."""
    network = load(our_file(tmp_path)).network
    end = SMALL.vocab_size - 1
    bare = torch.tensor([[end - 1, 5, 6, end]])

    with torch.inference_mode():
        found = [
            network.captions(F.pad(bare, (0, places), value=value))["embedding"]
            for places, value in ((0, 0), (20, 0), (20, end), (20, 7))
        ]

    assert all(torch.allclose(one, found[0], rtol=0, atol=1e-6) for one in found)


def test_gelu_must_be_asked_for(tmp_path: Path, inputs: tuple[Tensor, Tensor]):
    """A state dict does not say which activation it was trained with."""
    path = weights_in("state dict", tmp_path)
    merges = merges_file(tmp_path)

    quick, other = load(path, bpe=merges), load(path, bpe=merges, activation="gelu")

    with torch.inference_mode():
        assert not close(
            quick.network.images(inputs[0])["embedding"], other.network.images(inputs[0])["embedding"]
        )


def test_the_activation_is_what_open_clip_says_beside_its_weights(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """Where neither it nor the setting says it, one line asks; OpenAI's archives need no such line."""
    path, merges = weights_in("safetensors of open_clip", tmp_path), merges_file(tmp_path)
    described = tmp_path / "open_clip_config.json"
    found = []
    for model in ({"quick_gelu": True}, {"embed_dim": SMALL.embed_dim}):
        described.write_text(json.dumps({"model_cfg": model}))
        found.append(load(path, bpe=merges).network.config.activation)
    assert found == ["quick_gelu", "gelu"]
    assert load(path, bpe=merges, activation="quick_gelu").network.config.activation == "quick_gelu"
    torch.save(rule_made(SMALL) | {"input_resolution": torch.tensor(SMALL.image_size)}, tmp_path / "clip.pt")
    assert load(tmp_path / "clip.pt", bpe=merges).network.config.activation == "quick_gelu"
    assert not caplog.records

    for nothing in ("{}", '{"model_cfg": []}'):
        described.write_text(nothing)
        assert load(path, bpe=merges).network.config.activation == "quick_gelu"
    described.unlink()
    load(path, bpe=merges, activation="gelu")
    load(path, bpe=merges)
    assert len(caplog.records) == 3
    assert "says which activation" in caplog.messages[-1]


@pytest.mark.parametrize(("name", "width", "heads"), [("H", 1280, 16), ("g", 1408, 16), ("bigG", 1664, 16)])
def test_open_clips_largest_vision_transformers_have_wider_heads(name: str, width: int, heads: int):
    """Shapes do not show heads, and 64 would be a network of another kind; their text heads are as usual."""
    sizes = ClipConfig(
        patch_size=14, vision_width=width, vision_heads=heads, text_width=1280, text_heads=20, vision_layers=1
    )
    held = Checkpoint(Path(f"{name}.bin"), "torch zip", without_weights(sizes).state_dict())

    assert config_of(held, "clip", ClipConfig()) == sizes


# Weights that do not fit


@pytest.mark.parametrize(
    ("described", "message"),
    [
        ({"model_cfg": {"vision_cfg": {"head_width": 32}}}, "head_width = 32, .* head_width = 64"),
        ({"model_cfg": {"text_cfg": {"heads": 4}}}, "heads = 4, .* heads = 1"),
        (
            {"preprocess_cfg": {"resize_mode": "squash"}},
            "resize_mode = 'squash', .* resize_mode = 'shortest'",
        ),
        ({"preprocess_cfg": {"mean": [0.5, 0.5, 0.5]}}, r"mean = \[0.5, 0.5, 0.5\]"),
    ],
)
def test_what_open_clip_says_beside_its_weights_must_be_what_is_computed(
    tmp_path: Path, described: dict[str, Any], message: str
):
    """Heads that no shape shows, and pictures that are prepared in another way."""
    path = weights_in("safetensors of open_clip", tmp_path)
    said = {"model_cfg": {}, **described}
    (tmp_path / "open_clip_config.json").write_text(json.dumps(said))

    with pytest.raises(AnnotatorError, match=message):
        load(path, bpe=merges_file(tmp_path))


def test_a_missing_a_strange_and_a_misshapen_weight_are_named(tmp_path: Path):
    """Strictly: every key is used and every key is accounted for."""
    state = rule_made(SMALL)
    del state["transformer.resblocks.1.attn.in_proj_bias"]
    state["visual.proj"] = torch.ones(128, 25)
    state["extra"] = torch.ones(1)
    torch.save(state, tmp_path / "clip.pt")

    found = examine(tmp_path / "clip.pt")

    assert found.missing == ("transformer.resblocks.1.attn.in_proj_bias",)
    assert found.unexpected == ("extra",)
    assert found.misshapen == ("text_projection: (64, 24) where (64, 25) is expected",)
    with pytest.raises(
        AnnotatorError, match=r"does not fit clip: .* keys match; it lacks 'transformer.resblocks.1"
    ):
        load(tmp_path / "clip.pt", bpe=merges_file(tmp_path))


def test_another_networks_weights_are_no_clip(tmp_path: Path):
    """A checkpoint for another name matches nothing."""
    torch.save({"model": {"img_enc.fc.weight": torch.ones(1024, 2048)}}, tmp_path / "coco_pvse.pth")

    found = examine(tmp_path / "coco_pvse.pth")

    assert (found.matched, len(found.missing), found.unexpected) == (0, 302, ("img_enc.fc.weight",))
    assert found.what == "no weights of a CLIP"
    with pytest.raises(AnnotatorError, match=r"'.*coco_pvse.pth' .* does not fit clip: 0 of 302 keys match"):
        load(tmp_path / "coco_pvse.pth")


def test_weights_that_are_not_finite_are_refused(tmp_path: Path):
    """One NaN spoils every embedding."""
    state = rule_made(SMALL)
    state["ln_final.bias"][3] = float("nan")
    torch.save(state, tmp_path / "clip.pt")

    with pytest.raises(AnnotatorError, match=r"not finite; first: 'ln_final.bias'"):
        load(tmp_path / "clip.pt", bpe=merges_file(tmp_path))


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"network": "pvse"}, "weights of 'pvse'"),
        ({"format": "mitl-mini-1"}, "'mitl-mini-1' weights"),
        ({"config": "{"}, "not readable as JSON"),
        ({"config": "[]"}, "is a list; it should be an object"),
        ({"config": '{"depth": 3}'}, "unknown size 'depth'"),
        ({"config": '{"vision_width": 1000000000000}'}, "'vision_width' is 1000000000000"),
        ({"config": '{"text_heads": 5}'}, "a width of 512 for 5 heads"),
        ({"config": '{"patch_size": 30}'}, "224 pixels for patches of 30"),
        ({"config": '{"activation": "relu"}'}, "the activation 'relu'"),
        ({"bpe_merges": "a b c"}, "line 1 has 3 words"),
        ({"bpe_merges": "a b"}, "has 1 merges, but a vocabulary of 574 tokens needs 60"),
        ({"bpe_merges": "\n".join(["zz top"] * 60)}, "joins 'zz' and 'top', which no earlier merge made"),
    ],
)
def test_our_own_layout_is_checked(tmp_path: Path, metadata: dict[str, str], message: str):
    """Metadata that does not belong to a CLIP gives one line."""
    with pytest.raises(AnnotatorError, match=message) as caught:
        load(our_file(tmp_path, **metadata))

    assert "\n" not in str(caught.value)


def test_a_hub_folder_is_checked(tmp_path: Path):
    """No weights, no description, another family, a vocabulary that is not of these merges."""
    with pytest.raises(AnnotatorError, match=r"holds no model.safetensors or pytorch_model.bin"):
        load(tmp_path)
    folder = hub_folder(tmp_path, old=True)
    (folder / "preprocessor_config.json").write_text('{"do_center_crop": false, "size": 32}')
    with pytest.raises(AnnotatorError, match=r"trained with do_center_crop = False, but what is computed"):
        load(folder)
    (folder / "preprocessor_config.json").write_text('{"do_center_crop": true, "size": 32}')
    (folder / "vocab.json").write_text(json.dumps({"a": 1}))
    with pytest.raises(AnnotatorError, match=r"vocab.json' does not belong to the merges beside it"):
        load(folder)
    (folder / "config.json").write_text('{"model_type": "siglip"}')
    with pytest.raises(AnnotatorError, match="describes a 'siglip', not a CLIP"):
        load(folder)
    (folder / "config.json").unlink()
    with pytest.raises(AnnotatorError, match=r"lacks 'config.json'"):
        load(folder)


# Tokens


def test_words_are_cut_as_clip_cuts_them():
    """Contractions apart, digits one by one, other signs together, in lower case."""
    assert words("Don't  STOP... it's 42!?") == ["don", "'t", "stop", "...", "it", "'s", "4", "2", "!?"]
    assert words("Tom &amp;amp; Jerry&#39;s") == ["tom", "&", "jerry", "'s"]
    assert words("a “quoted” man’s ﬁsh") == ["a", '"', "quoted", '"', "man", "'s", "fish"]
    assert words("") == []


def test_cleaning_is_plain_rules():
    """Quotes, ligatures, full-width letters, control characters and composed accents; no guessing."""
    assert clean("cafe\u0301\x00 ＡＢＣ\u3000ok\n") == "café abc ok"
    assert clean("schÃ¶n") == "schã¶n"
    assert clean("a \ud83d\udc36 and \ud83d") == "a 🐶 and \ufffd"


def test_the_highest_merge_is_done_first():
    """Merges apply in the order of the list, to every occurrence, and a word's last letter is another symbol."""
    encoder = BytePairEncoder([("b", "a"), ("a", "b"), ("ab", "a</w>"), ("ba", "ba")])

    def symbols(text: str) -> list[str]:
        by_number = {number: symbol for symbol, number in encoder.number_of.items()}
        return [by_number[number] for number in encoder.encode(text)[1:-1]]

    assert symbols("aba") == ["aba</w>"]
    assert symbols("bababa") == ["baba", "b", "a</w>"]
    assert symbols("ab") == ["a", "b</w>"]
    assert encoder.size == 512 + 4 + 2
    assert list(encoder.encode("")) == [encoder.end - 1, encoder.end]


def merged(merges: list[tuple[str, str]], word: str) -> list[str]:
    """The symbols of a word: the pair that stands highest on the list is joined, from the left, again and again."""
    symbols, rank = [*word[:-1], word[-1] + "</w>"], {merge: place for place, merge in enumerate(merges)}
    while known := [pair for pair in pairwise(symbols) if pair in rank]:
        symbols = joined(symbols, min(known, key=rank.__getitem__))
    return symbols


@given(st.data())
def test_merges_of_any_list_are_done_in_its_order(data: st.DataObject):
    """Lists that join the same symbols in several ways, and twice, give the tokens of the plain rule."""
    symbols, merges = [f"{letter}{end}" for letter in "abc" for end in ("", "</w>")], []
    for _ in range(data.draw(st.integers(0, 14))):
        left = data.draw(st.sampled_from([symbol for symbol in symbols if "<" not in symbol]))
        merges.append((left, data.draw(st.sampled_from(symbols))))
        symbols.append("".join(merges[-1]))
    encoder = BytePairEncoder(merges)

    for word in data.draw(st.lists(st.text("abc", min_size=1, max_size=12), max_size=8)):
        expected = [encoder.number_of[symbol] for symbol in merged(merges, word)]
        assert encoder.encode(word)[1:-1].tolist() == expected


@settings(max_examples=examples(15))
@given(st.text(max_size=40))
def test_any_caption_becomes_the_tokens_of_the_plain_rule(text: str):
    """Whatever it holds: other scripts, signs, halves of letters, control characters."""
    encoder = BytePairEncoder(MERGES)
    special = ("<|startoftext|>", "<|endoftext|>")
    parts = [[word] if word in special else merged(MERGES, word) for word in words(text)]

    assert encoder.encode(text)[1:-1].tolist() == [encoder.number_of[s] for part in parts for s in part]


def test_any_text_can_be_read_back_from_its_tokens():
    """No text is out of the vocabulary: the symbols' bytes are the cleaned words."""
    encoder = BytePairEncoder(MERGES)
    by_number = {number: symbol for symbol, number in encoder.number_of.items()}
    byte_of = {letter: byte for byte, letter in enumerate(LETTERS)}
    for text in [*TEXTS, "日本語 🐶 naïve Straße", "\u2028x\u00a0y", "!\"#$%&'()*+"]:
        joined = "".join(by_number[int(n)] for n in encoder.encode(text)[1:-1])
        raw = bytes(byte_of[letter] for letter in joined.replace("</w>", "").replace(" ", ""))
        assert raw.decode() == clean(text).replace(" ", "").replace("\u00a0", "")


def test_special_tokens_in_a_text_are_those_tokens():
    """As in CLIP's own code, their spelling stands for them."""
    encoder = BytePairEncoder(MERGES)

    assert list(encoder.encode("<|endoftext|>")) == [encoder.end - 1, encoder.end, encoder.end]


def test_transformers_tokenizer_gives_the_same_numbers(tmp_path: Path):
    """Made of the same merges, on drawn and on odd texts."""
    from transformers import CLIPTokenizer

    encoder = BytePairEncoder(MERGES)
    theirs = CLIPTokenizer(vocab=dict(encoder.number_of), merges=[tuple(merge) for merge in MERGES])

    for text in [
        *TEXTS,
        "It's 12:30, isn't it?",
        "naïve  CAFÉ",
        "one\ttwo\nthree",
        "state-of-the-art (2014)",
    ]:
        assert list(encoder.encode(text)) == theirs(text)["input_ids"]


@pytest.mark.shared
def test_transformers_tokenizer_agrees_on_real_captions(shared_data: Path):
    """2,500 captions of COCO with merges learned from some of them."""
    import pyarrow.parquet as pq
    from transformers import CLIPTokenizer

    folder = shared_data / "coco_karpathy_test_captions"
    texts = pq.read_table(folder / "captions.parquet")["text"].to_pylist()
    encoder = BytePairEncoder(learn_merges(texts[:800], 150))
    theirs = CLIPTokenizer(vocab=dict(encoder.number_of), merges=list(encoder.merges))

    assert [list(encoder.encode(text)) for text in texts[::10]] == [
        theirs(text)["input_ids"] for text in texts[::10]
    ]


def test_learned_merges_join_the_most_frequent_pairs():
    """Counted by words; ties go to the pair that comes first in the alphabet."""
    merges = learn_merges(["low low low lower", "newest newest"], 4)

    assert merges == [("l", "o"), ("lo", "w</w>"), ("w", "e"), ("e", "we")]
    assert learn_merges(["a"], 5) == []


def packed(text: str) -> bytes:
    return gzip.compress(text.encode(), mtime=0)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "bpe.txt.gz",
            packed("#version: 0.2\na b\n"),
            "has 1 merges, but a vocabulary of 574 tokens needs 60",
        ),
        ("bpe.txt.gz", packed("x" * 9000)[:-20], "cut off"),
        ("bpe.txt.gz", b"\x1f\x8b\x08garbage", "not readable as a list of merges"),
        ("bpe.txt.gz", b"<!DOCTYPE html>\n<html lang=en>", "not a list of merges|has 2 merges"),
        ("bpe.txt", b"a b\nc d e\n", "line 2 has 3 words, not two"),
        ("bpe.txt", b"\xff\xfe\x00", "not readable as a list of merges"),
        ("tokenizer.json", b'{"model": {"vocab": {}}}', "not a tokenizer.json with merges"),
        ("tokenizer.json", b"[", "not a tokenizer.json with merges"),
    ],
)
def test_a_wrong_list_of_merges_gives_one_line(tmp_path: Path, name: str, content: bytes, message: str):
    """Too short, cut off, a web page, other lines: named with the file."""
    (tmp_path / name).write_bytes(content)

    with pytest.raises(AnnotatorError, match=message) as caught:
        read_encoder(tmp_path / name, SMALL.vocab_size)

    assert "\n" not in str(caught.value)


def test_a_bomb_is_not_unpacked(tmp_path: Path):
    """A list that unpacks to far more than any vocabulary is refused."""
    (tmp_path / "bpe.gz").write_bytes(gzip.compress(b"a b\n" * (1 << 25)))

    with pytest.raises(AnnotatorError, match="far too long"):
        read_encoder(tmp_path / "bpe.gz", 1000)


def test_the_official_list_is_found_in_an_installed_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, official_file: tuple[Path, dict[str, Tensor]]
):
    """By its hash and without an import; where there is none, the line says where it lies."""
    package = tmp_path / "open_clip"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    raw = packed("bpe#version: 0.2\n" + "\n".join(f"{a} {b}" for a in LETTERS for b in LETTERS))
    (package / bpe.OFFICIAL_NAME).write_bytes(raw)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(bpe, "PACKAGES", ("open_clip",))

    assert find_official() is None
    with pytest.raises(
        AnnotatorError, match=r"named? .*the setting 'bpe': bpe_simple_vocab_16e6.txt.gz lies in"
    ):
        load(official_file[0])

    monkeypatch.setattr(bpe, "OFFICIAL_SHA256", hashlib.sha256(raw).hexdigest())
    assert find_official() == package / bpe.OFFICIAL_NAME
    assert len(load(official_file[0]).encoder.merges) == 48894


# The annotator


@pytest.fixture
def pictures(tmp_path: Path) -> list[ImageItem]:
    rng, items = np.random.default_rng(8), []
    for number in range(7):
        path = tmp_path / f"{number}.png"
        blocks = rng.integers(0, 256, (5, 6, 3), dtype=np.uint8)
        Image.fromarray(blocks).resize((60 + 7 * number, 50), Image.Resampling.NEAREST).save(path)
        items.append(ImageItem(number, f"i{number}", path))
    return items


CAPTIONS = [
    CaptionItem(i, f"c{i}", 0, t)
    for i, t in enumerate([*TEXTS, "a wave", "a dog", "two dogs run on a red couch", "a " * 11])
]


def made(folder: Path, **values: object) -> ClipAnnotator:
    found = registry.build("clip", {"weights": str(our_file(folder)), "threads": 1, **values})
    assert isinstance(found, ClipAnnotator)
    return found


def test_embeddings_do_not_depend_on_batch_or_order(tmp_path: Path, pictures: list[ImageItem]):
    """Alone, in other batches or turned round: the same unit vectors."""
    small, large = made(tmp_path, batch=2), made(tmp_path, batch=5)

    for items, how in ((pictures, "encode_images"), (CAPTIONS, "encode_captions")):
        whole = getattr(small, how)(items).arrays["embedding"]
        others = getattr(large, how)(items).arrays["embedding"]
        turned = getattr(small, how)(items[::-1]).arrays["embedding"][::-1]
        alone = np.concatenate([getattr(small, how)([item]).arrays["embedding"] for item in items])

        assert np.array_equal(whole, turned)
        assert np.array_equal(whole, alone)
        assert np.abs(whole - others).max() < 1e-6
        assert whole.dtype == np.float32
        assert np.abs(np.linalg.norm(whole, axis=1) - 1).max() < 1e-6


def test_similarity_is_the_cosine(tmp_path: Path, pictures: list[ImageItem]):
    """Either side may be the images."""
    annotator = made(tmp_path)
    images, captions = annotator.encode_images(pictures), annotator.encode_captions(CAPTIONS)

    found = annotator.similarities(captions, images)

    expected = captions.arrays["embedding"] @ images.arrays["embedding"].T
    assert found.shape == (9, 7)
    assert np.abs(found - expected).max() < 1e-6
    assert np.array_equal(found.T, annotator.similarities(images, captions))


def test_a_caption_of_300_words_gives_one_line_or_is_cut_on_request(tmp_path: Path):
    """CLIP's own code cuts only when it is asked to; the end of the text stays."""
    long = CaptionItem(3, "318", 0, "wave " * 300)

    with pytest.raises(
        AnnotatorError, match=r"caption '318' has \d+ tokens, but 'clip' reads 40; shorten it"
    ):
        made(tmp_path).encode_captions([long])

    cut = made(tmp_path, truncate=True)
    tokens = cut.read_caption(long)["tokens"]
    assert len(tokens) == 40
    assert tokens[-1] == SMALL.vocab_size - 1
    assert np.isfinite(cut.encode_captions([long]).arrays["embedding"]).all()


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_lower_precision_is_chosen_and_part_of_the_fingerprint(
    tmp_path: Path, pictures: list[ImageItem], precision: str
):
    """Near the float32 embeddings, LayerNorm kept in float32."""
    exact, rough = made(tmp_path), made(tmp_path, precision=precision)

    found = rough.encode_images(pictures).arrays["embedding"]

    norms = [module for module in rough.network.modules() if isinstance(module, nn.LayerNorm)]
    assert all(type(one) is LayerNorm32 and one.weight.dtype == torch.float32 for one in norms)
    assert rough.network.visual_projection.weight.dtype == getattr(torch, precision)
    assert found.dtype == np.float32
    assert 0 < np.abs(found - exact.encode_images(pictures).arrays["embedding"]).max() < 0.02
    assert rough.fingerprint != exact.fingerprint


def test_the_fingerprint_is_that_of_weights_and_settings_alone(tmp_path: Path):
    """Batch, threads and device change no result; other weights do."""
    path = our_file(tmp_path)
    one = registry.build("clip", {"weights": str(path)})
    other = registry.build("clip", {"weights": str(path), "batch": 3, "threads": 2, "device": "cpu"})
    state = hub_state()
    state["logit_scale"] = state["logit_scale"] + 1
    save_file(state, path, dict(read_checkpoint(path).values))
    changed = registry.build("clip", {"weights": str(path)})

    assert one.fingerprint == other.fingerprint != changed.fingerprint


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"truncate": "yes"}, "'truncate' of annotator 'clip' is 'yes'; it should be true or false"),
        ({"precision": "float64"}, "one of float32, float16, bfloat16"),
        ({"activation": "relu"}, "one of quick_gelu, gelu"),
        ({"weight": "x"}, "has no setting 'weight'"),
        ({"bpe": "none.gz"}, "names 'none.gz', which is missing"),
        ({"weights": "none.pt"}, "names 'none.pt', which is missing"),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, values: dict[str, object], message: str):
    """Nothing is ignored."""
    with pytest.raises(AnnotatorError, match=message):
        made(tmp_path, **values)


def test_an_image_that_does_not_decode_is_named(tmp_path: Path, pictures: list[ImageItem]):
    """The good ones are no reason to go on without it."""
    assert pictures[3].path is not None
    pictures[3].path.write_bytes(b"\x89PNG")

    with pytest.raises(AnnotatorError, match=r"3.png' is not readable as an image.*--check-items"):
        made(tmp_path).encode_images(pictures)


def test_a_new_network_can_be_trained(inputs: tuple[Tensor, Tensor]):
    """Gradients reach both sides and the temperature; padded texts are allowed."""
    torch.manual_seed(1)
    network = Clip(SMALL)

    images, captions = network.images(inputs[0]), network.captions(inputs[1])
    logits = network.logit_scale.exp() * images["embedding"] @ captions["embedding"].T
    F.cross_entropy(logits, torch.arange(3)).backward()

    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in network.parameters())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
def test_cuda_gives_the_cpus_embeddings(tmp_path: Path, pictures: list[ImageItem]):
    """The device is no part of the fingerprint, so it must not matter."""
    on_cpu, on_cuda = made(tmp_path, device="cpu"), made(tmp_path, device="cuda")

    for items, how in ((pictures, "encode_images"), (CAPTIONS, "encode_captions")):
        difference = (
            getattr(on_cpu, how)(items).arrays["embedding"] - getattr(on_cuda, how)(items).arrays["embedding"]
        )
        assert np.abs(difference).max() < 1e-5


def test_build_takes_options(tmp_path: Path):
    """Relative paths start at the project's folder."""
    from annotators.clip import build

    our_file(tmp_path)

    assert build(Options("mine", {"weights": "clip.safetensors"}, tmp_path)).name == "mine"
    assert isinstance(load(tmp_path / "clip.safetensors"), LoadedClip)

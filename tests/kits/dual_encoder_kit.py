"""Weights, vocabularies, pictures and a plain second implementation for the tests of PVSE and PCME.

Names and shapes are written out here from the published checkpoints' description, not taken from our classes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from annotators.sizes import WordsAndCells
from mitl.records import CaptionItem, ImageItem

WORDS = ("<pad>", "<start>", "<end>", "<unk>", "a", "dog", "cat", "on", "the", "mat", "red", "ball", "two")
WORD2IDX = {word: number for number, word in enumerate(WORDS)}
TEXTS = (
    "A dog",
    "a cat on the mat",
    "Two red",
    "the red ball on the mat",
    "zebra",
    "a dog on the red mat",
    "a cat",
)

Shapes = dict[str, tuple[int, ...]]
State = dict[str, Tensor]


def resnet_shapes(blocks: Sequence[int] = (3, 8, 36, 3), width: int = 64) -> Shapes:
    """torchvision's names without ``fc``, in torchvision's order."""

    def norm(name: str, size: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        for part in ("weight", "bias", "running_mean", "running_var"):
            yield f"{name}.{part}", (size,)
        yield f"{name}.num_batches_tracked", ()

    def entries() -> Iterator[tuple[str, tuple[int, ...]]]:
        yield "conv1.weight", (width, 3, 7, 7)
        yield from norm("bn1", width)
        inside = width
        for stage, count in enumerate(blocks):
            wide = width * 2**stage
            for block in range(count):
                at = f"layer{stage + 1}.{block}"
                yield f"{at}.conv1.weight", (wide, inside, 1, 1)
                yield from norm(f"{at}.bn1", wide)
                yield f"{at}.conv2.weight", (wide, wide, 3, 3)
                yield from norm(f"{at}.bn2", wide)
                yield f"{at}.conv3.weight", (4 * wide, wide, 1, 1)
                yield from norm(f"{at}.bn3", 4 * wide)
                if block == 0:
                    yield f"{at}.downsample.0.weight", (4 * wide, inside, 1, 1)
                    yield from norm(f"{at}.downsample.1", 4 * wide)
                inside = 4 * wide

    return dict(entries())


def gru_shapes(name: str, word: int, embed: int) -> Shapes:
    """The eight tensors of a bi-directional layer."""
    gates, hidden = 3 * embed // 2, embed // 2
    return {
        f"{name}.{part}_l0{side}": shape
        for side in ("", "_reverse")
        for part, shape in (
            ("weight_ih", (gates, word)),
            ("weight_hh", (gates, hidden)),
            ("bias_ih", (gates,)),
            ("bias_hh", (gates,)),
        )
    }


def pie_shapes(name: str, width: int, embed: int, k: int) -> Shapes:
    """Attention, projection and norm of a PIE block."""
    return {
        f"{name}.attention.w_1.weight": (width // 2, width),
        f"{name}.attention.w_2.weight": (k, width // 2),
        f"{name}.fc.weight": (embed, width),
        f"{name}.fc.bias": (embed,),
        f"{name}.layer_norm.weight": (embed,),
        f"{name}.layer_norm.bias": (embed,),
    }


def pvse_shapes(sizes: WordsAndCells, k: int) -> Shapes:
    """The flat state dict of PVSE."""
    channels = 4 * sizes.width * 2 ** (len(sizes.blocks) - 1)
    return {
        **{f"img_enc.cnn.{name}": shape for name, shape in resnet_shapes(sizes.blocks, sizes.width).items()},
        "img_enc.fc.weight": (sizes.embed, channels),
        "img_enc.fc.bias": (sizes.embed,),
        **pie_shapes("img_enc.pie_net", channels, sizes.embed, k),
        "txt_enc.embed.weight": (sizes.words, sizes.word),
        **gru_shapes("txt_enc.rnn", sizes.word, sizes.embed),
        **pie_shapes("txt_enc.pie_net", sizes.word, sizes.embed, k),
    }


def pcme_shapes(sizes: WordsAndCells) -> Shapes:
    """The flat state dict of PCME: PVSE's of one head and two uncertainty blocks."""
    channels = 4 * sizes.width * 2 ** (len(sizes.blocks) - 1)
    image = {
        "img_enc.uncertain_net.attention.w_1.weight": (channels // 2, channels),
        "img_enc.uncertain_net.attention.w_2.weight": (1, channels // 2),
        "img_enc.uncertain_net.fc.weight": (sizes.embed, channels),
        "img_enc.uncertain_net.fc.bias": (sizes.embed,),
        "img_enc.uncertain_net.fc2.weight": (sizes.embed, channels),
        "img_enc.uncertain_net.fc2.bias": (sizes.embed,),
    }
    text = {
        "txt_enc.uncertain_net.attention.w_1.weight": (sizes.word // 2, sizes.word),
        "txt_enc.uncertain_net.attention.w_2.weight": (1, sizes.word // 2),
        "txt_enc.uncertain_net.fc.weight": (sizes.embed, sizes.word),
        "txt_enc.uncertain_net.fc.bias": (sizes.embed,),
        **gru_shapes("txt_enc.uncertain_net.rnn", sizes.word, sizes.embed),
    }
    pvse = pvse_shapes(sizes, 1)
    images = {name: shape for name, shape in pvse.items() if name.startswith("img_enc.")}
    return {**images, **image, **{n: s for n, s in pvse.items() if n not in images}, **text}


def made_by_rule(shapes: Shapes, seed: int = 0) -> State:
    """Weights that keep signals at their size; norms with statistics that are not those of a fresh network."""
    generator = torch.Generator().manual_seed(seed)

    def made(name: str, shape: tuple[int, ...]) -> Tensor:
        if name.endswith("num_batches_tracked"):
            return torch.tensor(7)
        noise = torch.randn(shape, generator=generator)
        if name.endswith("running_var"):
            return 1 + 0.3 * noise.abs()
        if len(shape) > 1:
            return noise / math.sqrt(math.prod(shape[1:]))
        return (
            1 if name.endswith(("norm.weight", "bn1.weight", "bn2.weight", "bn3.weight")) else 0
        ) + 0.1 * noise

    return {name: made(name, shape) for name, shape in shapes.items()}


class Reference:
    """The published computation, item by item, straight from a state dict."""

    def __init__(self, state: State) -> None:
        self.state = {name: tensor.double() for name, tensor in state.items()}

    def under(self, prefix: str) -> State:
        """The tensors below a name."""
        return {n.removeprefix(prefix): t for n, t in self.state.items() if n.startswith(prefix)}

    def cells(self, pixels: Tensor) -> Tensor:
        """(3, S, S) -> (cells, channels): the residual network."""
        s = self.under("img_enc.cnn.")

        def norm(x: Tensor, name: str) -> Tensor:
            mean, var = (s[f"{name}.running_{what}"].view(1, -1, 1, 1) for what in ("mean", "var"))
            weight, bias = (s[f"{name}.{what}"].view(1, -1, 1, 1) for what in ("weight", "bias"))
            return (x - mean) / (var + 1e-5).sqrt() * weight + bias

        x = F.conv2d(pixels.double()[None], s["conv1.weight"], stride=2, padding=3)
        x = F.max_pool2d(norm(x, "bn1").relu(), 3, 2, 1)
        blocks = sorted({tuple(map(int, n[5:].split(".")[:2])) for n in s if n.startswith("layer")})
        for stage, block in blocks:
            at, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            y = norm(F.conv2d(x, s[f"{at}.conv1.weight"]), f"{at}.bn1").relu()
            y = norm(F.conv2d(y, s[f"{at}.conv2.weight"], stride=stride, padding=1), f"{at}.bn2").relu()
            y = norm(F.conv2d(y, s[f"{at}.conv3.weight"]), f"{at}.bn3")
            if block == 0:
                x = norm(F.conv2d(x, s[f"{at}.downsample.0.weight"], stride=stride), f"{at}.downsample.1")
            x = (x + y).relu()
        return x[0].flatten(1).T

    def attend(self, prefix: str, x: Tensor) -> Tensor:
        """(L, d) -> (heads, d), a weight at a time."""
        w_1, w_2 = (self.state[f"{prefix}.attention.w_{i}.weight"] for i in (1, 2))
        scores = w_2 @ torch.tanh(w_1 @ x.T)  # (heads, L)
        odds = scores.exp()
        return (odds / odds.sum(1, keepdim=True)) @ x

    def linear(self, name: str, x: Tensor) -> Tensor:
        """W x + b."""
        return x @ self.state[f"{name}.weight"].T + self.state[f"{name}.bias"]

    def pie(self, prefix: str, whole: Tensor, x: Tensor) -> Tensor:
        """(embed,) and (L, d) -> (heads, embed)."""
        y = whole + 1 / (1 + (-self.linear(f"{prefix}.fc", self.attend(prefix, x))).exp())
        y = (y - y.mean(1, keepdim=True)) / (y.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        return y * self.state[f"{prefix}.layer_norm.weight"] + self.state[f"{prefix}.layer_norm.bias"]

    def words(self, tokens: Sequence[int]) -> Tensor:
        """(L, word)."""
        return self.state["txt_enc.embed.weight"][list(tokens)]

    def gru(self, prefix: str, x: Tensor, *, full: bool = False) -> Tensor:
        """[forward | backward]: both outputs at the last word, or (``full``) both final states."""
        ahead = self._run(prefix, "_l0", list(x))
        back = self._run(prefix, "_l0_reverse", list(x.flip(0)) if full else [x[-1]])
        return torch.cat([ahead, back])

    def _run(self, prefix: str, side: str, steps: Sequence[Tensor]) -> Tensor:
        w_i, w_h, b_i, b_h = (
            self.state[f"{prefix}.{part}{side}"] for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        h = torch.zeros(w_h.shape[1], dtype=torch.float64)
        for x in steps:
            r_i, z_i, n_i = (w_i @ x + b_i).chunk(3)
            r_h, z_h, n_h = (w_h @ h + b_h).chunk(3)
            z = torch.sigmoid(z_i + z_h)
            h = (1 - z) * torch.tanh(n_i + torch.sigmoid(r_i + r_h) * n_h) + z * h
        return h


def padded(texts: Sequence[Sequence[int]], pad: int = 0, more: int = 0) -> tuple[Tensor, Tensor]:
    """Texts as one batch (B, L) with their lengths (B,)."""
    longest = max(map(len, texts)) + more
    rows = [[*text, *([pad] * (longest - len(text)))] for text in texts]
    return torch.tensor(rows), torch.tensor([len(text) for text in texts])


def write_ours(
    path: Path, network: str, config: WordsAndCells, state: State, words: Sequence[str] = WORDS
) -> Path:
    """Weights in our own layout."""
    metadata = {
        "format": "mitl-annotator-1",
        "network": network,
        "config": config.to_json(),
        "vocabulary": "\n".join(words),
    }
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, path, metadata)
    return path


def write_vocabulary(path: Path, words: Sequence[str] = WORDS) -> Path:
    """A vocabulary as JSON."""
    path.write_text(json.dumps(list(words)))
    return path


def pictures(folder: Path, count: int = 5) -> list[ImageItem]:
    """Picture files of several sizes."""
    rng = np.random.default_rng(0)
    items = []
    for number in range(count):
        shape = (70 + 9 * number, 90 - 7 * number, 3)
        path = folder / f"{number}.png"
        Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8)).save(path)
        items.append(ImageItem(number + 1, f"picture {number}", path))
    return items


def captions(texts: Sequence[str] = TEXTS) -> list[CaptionItem]:
    """One caption for each text."""
    return [CaptionItem(number + 1, f"caption {number}", 1, text) for number, text in enumerate(texts)]

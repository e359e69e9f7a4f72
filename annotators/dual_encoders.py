"""What PVSE, PCME and VSRN share: layers under the names of official checkpoints, words, and items on the way.

Shapes: B items, L places (grid cells or words), D their width, K vectors per item.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from annotators.checkpoints.checkpoint import Checkpoint
from annotators.devices import Running
from annotators.encoding import Inputs, NetworkAnnotator
from annotators.inputs import pixels, vocabularies
from annotators.inputs.vocabularies import Vocabulary, read_vocabulary
from annotators.options import Options
from annotators.sizes import WordsAndCells
from mitl.errors import AnnotatorError
from mitl.records import CaptionItem, ImageItem

EXPANSION = 4
"""A block's last convolution is this many times as wide as its first two."""


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions around a shortcut; the 3 x 3 one strides.

    Source: He et al., Deep residual learning for image recognition, CVPR 2016, figure 5; the stride's place as
    in torchvision.
    """

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        outside = EXPANSION * width
        self.conv1 = nn.Conv2d(inside, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outside, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outside)
        self.downsample: nn.Module | None = None
        if stride != 1 or inside != outside:
            shortcut = nn.Conv2d(inside, outside, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outside))

    def forward(self, x: Tensor) -> Tensor:
        """(B, inside, H, W) -> (B, 4 * width, H / stride, W / stride)."""
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """A residual network without its average pooling and classifier: pictures to grids of cells.

    ``blocks`` says how many bottlenecks each stage has, (3, 8, 36, 3) for ResNet-152; the first stage is ``width``
    wide and every further one twice the one before, at half the size of the grid.
    """

    def __init__(self, blocks: Sequence[int] = (3, 8, 36, 3), width: int = 64) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.stages = len(blocks)
        inside = width
        for stage, count in enumerate(blocks):
            wide = width << stage
            first = Bottleneck(inside, wide, 1 if stage == 0 else 2)
            rest = (Bottleneck(EXPANSION * wide, wide, 1) for _ in range(count - 1))
            self.add_module(f"layer{stage + 1}", nn.Sequential(first, *rest))
            inside = EXPANSION * wide
        self.channels = inside
        """How many numbers a cell has: 2048 for ResNet-152."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, pixels: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, channels, H / 32, W / 32) for four stages; 224 pixels become 7 cells."""
        x: Tensor = self.maxpool(F.relu(self.bn1(self.conv1(pixels))))
        for stage in range(self.stages):
            x = self.get_submodule(f"layer{stage + 1}")(x)
        return x


def cells_of(grid: Tensor) -> Tensor:
    """(B, D, H, W) -> (B, H * W, D), row by row."""
    return grid.flatten(2).transpose(1, 2)


class AttentionPooling(nn.Module):
    """K weighted sums of the places; a small network gives the weights: softmax(W2 tanh(W1 X^T)).

    Source: Lin et al., A structured self-attentive sentence embedding, ICLR 2017, section 2; half the
    width inside as in PVSE's code.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.w_1 = nn.Linear(width, width // 2, bias=False)
        self.w_2 = nn.Linear(width // 2, heads, bias=False)
        nn.init.xavier_uniform_(self.w_1.weight)
        nn.init.xavier_uniform_(self.w_2.weight)

    def forward(self, places: Tensor, padding: Tensor | None = None) -> Tensor:
        """(B, L, D) -> (B, K, D); places where ``padding`` (B, L) is true get no weight."""
        scores = self.w_2(torch.tanh(self.w_1(places)))  # (B, L, K)
        if padding is not None:
            scores = scores.masked_fill(padding[..., None], -torch.inf)
        pooled: Tensor = scores.softmax(1).transpose(1, 2) @ places
        return pooled


class Pie(nn.Module):
    """Polysemous instance embedding: local detail joins the whole, LayerNorm(whole + sigmoid(FC(attended))).

    Source: Song and Soleymani, PVSE, CVPR 2019, its PIE-Net.
    """

    def __init__(self, places: int, width: int, heads: int) -> None:
        super().__init__()
        self.attention = AttentionPooling(places, heads)
        self.fc = nn.Linear(places, width)
        self.layer_norm = nn.LayerNorm(width)
        xavier(self.fc)

    def forward(self, whole: Tensor, places: Tensor, padding: Tensor | None = None) -> Tensor:
        """(B, width) and (B, L, D) -> (B, K, width)."""
        detail = torch.sigmoid(self.fc(self.attention(places, padding)))
        fused: Tensor = self.layer_norm(whole[:, None] + detail)
        return fused


class SentenceGru(nn.GRU):
    """One layer of gated recurrent units in both directions over the words of each text, and its one vector.

    The two directions stand side by side in the vector, forward first. Texts of one batch may differ in length;
    what lies past a text's end is not read.
    """

    def __init__(self, word: int, width: int) -> None:
        super().__init__(word, width // 2, batch_first=True, bidirectional=True)

    def last_position(self, words: Tensor, lengths: Tensor) -> Tensor:
        """(B, L, word) and (B,) -> (B, width): the output at each text's last word.

        The backward half has read that one word only. PVSE calls this its legacy mode, in which all released
        weights were trained; PCME has no other.
        """
        states, _ = self._run(words, lengths)
        rows = torch.arange(len(states), device=states.device)
        return states[rows, lengths.to(states.device) - 1]

    def last_states(self, words: Tensor, lengths: Tensor) -> Tensor:
        """(B, L, word) and (B,) -> (B, width): what either direction holds after its last word."""
        _, final = self._run(words, lengths)
        return torch.cat([final[0], final[1]], 1)

    def _run(self, words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        # Packing wants the lengths on the CPU, wherever the words are.
        packed = pack_padded_sequence(words, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, final = self(packed)
        return pad_packed_sequence(states, batch_first=True)[0], final


def padding_of(lengths: Tensor, places: int) -> Tensor:
    """(B,) -> (B, places): true past the end of each text."""
    return torch.arange(places, device=lengths.device) >= lengths[:, None]


def l2norm(x: Tensor, axis: int) -> Tensor:
    """Divide by the plain length along an axis, with nothing added to it, as the released codes do."""
    unit: Tensor = x / x.square().sum(axis, keepdim=True).sqrt()
    return unit


def xavier(linear: nn.Linear) -> None:
    """Start a linear layer with Xavier's uniform weights and no bias, as PVSE's code does."""
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)


BATCH = 32
_RESNETS: dict[tuple[int, ...], str] = {
    (3, 4, 6, 3): "resnet50",
    (3, 4, 23, 3): "resnet101",
    (3, 8, 36, 3): "resnet152",
}
"""torchvision's names of residual networks by their bottlenecks."""
BACKBONE_HEAD = {"img_enc.cnn.fc.": "ImageNet's classifier, which the authors take off the residual network"}
"""What may be left over in a file: name or, with a dot at its end, beginning of names -> why it is not needed."""


def computed_with(sizes: WordsAndCells) -> dict[str, object]:
    """The options of the training scripts of PVSE and PCME under which these sizes are computed."""
    return {
        "word_dim": sizes.word,
        "crop_size": sizes.image_size,
        "cnn_type": _RESNETS.get(sizes.blocks, f"a residual network of {sizes.blocks} bottlenecks"),
        "img_attention": True,
        "txt_attention": True,
    }


class TwoEncoders(Protocol):
    """A network with an image and a text encoder; what it keeps of an item are named tensors."""

    @property
    def config(self) -> Any:
        """Its sizes."""
        ...

    def images(self, image: Tensor) -> dict[str, Tensor]:
        """Of (B, 3, S, S) pixels, or of what else it reads of an image."""
        ...

    def captions(self, tokens: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """Of (B, L) word numbers, each of its own length (B,)."""
        ...


AnyNetwork = TypeVar("AnyNetwork", bound=TwoEncoders)


@dataclass(frozen=True, slots=True)
class Trained(Generic[AnyNetwork]):
    """A network with its weights, and the words it knows where the file says them."""

    network: AnyNetwork
    vocabulary: Vocabulary | None


def held_vocabulary(checkpoint: Checkpoint) -> Vocabulary | None:
    """The words that lie beside the weights: PCME's ``word2idx``, the text in a file of ours; None without them."""
    source = repr(str(checkpoint.path))
    word2idx, text = checkpoint.values.get("word2idx"), checkpoint.values.get("vocabulary")
    if isinstance(word2idx, Mapping):
        return Vocabulary.from_word2idx(word2idx, f"'word2idx' of {source}")
    return Vocabulary.from_text(text, source) if isinstance(text, str) else None


def vocabulary_of(options: Options, trained: Mapping[Path, Trained[AnyNetwork]], released: str) -> Vocabulary:
    """The words of the setting ``vocabulary`` or else of the weights.

    Args:
        trained: what each weights file holds.
        released: the name of the file that came with the authors' weights.

    Raises:
        AnnotatorError: there are none, their number is wrong, the setting and the weights disagree, or NLTK is missing.
    """
    vocabularies.require_nltk()
    word_lists = [model.vocabulary for model in trained.values() if model.vocabulary is not None]
    if "vocabulary" in options.values:
        word_lists.insert(0, read_vocabulary(options.path("vocabulary")))
    if not word_lists:
        raise AnnotatorError(
            f"annotator {options.annotator!r} needs the setting 'vocabulary': the file {released} that the weights "
            f"were trained with (`mitl annotators` says where it is), for {str(next(iter(trained)))!r} does not hold "
            "its words"
        )
    for path, model in trained.items():
        word_lists[0].require_size(model.network.config.words, path)
    if any(other.words != word_lists[0].words for other in word_lists):
        raise AnnotatorError(
            f"the weights of annotator {options.annotator!r} bring their words, and 'vocabulary' or the other weights "
            "have others; leave 'vocabulary' out, or take weights that were trained with the same words"
        )
    return word_lists[0]


@dataclass(frozen=True, slots=True, eq=False)
class Ready(Generic[AnyNetwork]):
    """A network where it runs, the words it knows, and what it is called."""

    name: str
    fingerprint: str
    network: AnyNetwork
    vocabulary: Vocabulary
    running: Running


class DualEncoder(NetworkAnnotator, Generic[AnyNetwork]):
    """An annotator's half that encodes: picture files and captions, through a network, to arrays."""

    def __init__(self, ready: Ready[AnyNetwork]) -> None:
        super().__init__(ready.name, ready.fingerprint, ready.running)
        self.network, self.vocabulary = ready.network, ready.vocabulary

    def read_image(self, item: ImageItem) -> Inputs:
        """``image`` (3, S, S)."""
        return {"image": pixels.imagenet_pixels(item, self.network.config.image_size)}

    def read_caption(self, item: CaptionItem) -> Inputs:
        """``tokens`` (L,), word numbers."""
        return {"tokens": self.vocabulary.encode(item.text)}

    def _encode_images(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return self.network.images(inputs["image"])

    def _encode_captions(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        words = inputs["tokens"]
        lengths = torch.full((len(words),), words.shape[1], device=words.device)
        return self.network.captions(words, lengths)


def preprocessing() -> dict[str, object]:
    """The versions of what turns files and captions into the networks' inputs, for fingerprints."""
    return {"pixels": pixels.VERSION, "tokens": vocabularies.VERSION}

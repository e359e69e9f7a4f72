"""What PVSE and PCME share around their networks: sizes, weights files, words, and items on their way through."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor

from annotators.base import Encoded
from annotators.checkpoints.checkpoint import Checkpoint, Shape, own_name, shapes_of, stated_config
from annotators.devices import Running
from annotators.encoding import Inputs, NetworkAnnotator
from annotators.inputs import pixels, tokens
from annotators.inputs.vocabularies import Vocabulary, read_vocabulary
from annotators.options import Options
from mitl.errors import AnnotatorError
from mitl.records import CaptionItem, ImageItem

BATCH = 32
_LARGEST = 10_000_000
_MOST_STAGES, _MOST_BLOCKS = 8, 1000
_BLOCK = re.compile(r"img_enc\.cnn\.layer(\d+)\.(\d+)\.conv1\.weight")
_RESNETS: dict[tuple[int, ...], str] = {
    (3, 4, 6, 3): "resnet50",
    (3, 4, 23, 3): "resnet101",
    (3, 8, 36, 3): "resnet152",
}
"""torchvision's names of residual networks by their bottlenecks."""
BACKBONE_HEAD = {"img_enc.cnn.fc.": "ImageNet's classifier, which the authors take off the residual network"}
"""What may be left over in a file: name or, with a dot at its end, beginning of names -> why it is not needed."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a residual network over pixels and a recurrent one over words; the defaults are the released ones.

    Raises:
        ValueError: sizes that no network has.
    """

    words: int = 11_755
    word: int = 300
    """Width of a word's vector."""
    embed: int = 1024
    """Width of an embedding; even, for the text's GRU has two directions."""
    blocks: tuple[int, ...] = (3, 8, 36, 3)
    """Bottlenecks of each stage: ResNet-152."""
    width: int = 64
    image_size: int = 224

    def __post_init__(self) -> None:
        for name in ("words", "word", "embed", "width", "image_size"):
            require_size(name, getattr(self, name))
        if not 1 <= len(self.blocks) <= _MOST_STAGES or sum(self.blocks) > _MOST_BLOCKS:
            raise ValueError(f"'blocks' is {self.blocks!r}, which no residual network has")
        for count in self.blocks:
            require_size("blocks", count)
        if self.embed % 2:
            raise ValueError(f"'embed' is {self.embed}, but two directions need an even number")

    def to_json(self) -> str:
        """As ``from_json`` reads it."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The sizes in a weights file of ours; ValueError or TypeError where there are none."""
        stated = json.loads(text)
        if not isinstance(stated, dict) or not isinstance(stated.get("blocks", []), list):
            raise ValueError(f"{text!r:.80} is no table of sizes")
        return cls(**{**stated, "blocks": tuple(stated.get("blocks", cls().blocks))})

    @classmethod
    def of_shapes(cls, shapes: Mapping[str, Shape]) -> Self:
        """The sizes of the network that has these shapes, by its own names; released ones where a name is missing."""
        return cls(**sizes_in(shapes))


def require_size(name: str, value: object) -> None:
    """Raise ValueError for what is no whole number that a network can have as a size."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _LARGEST:
        raise ValueError(f"{name!r} is {value!r}, but should be a whole number from 1")


def sizes_in(shapes: Mapping[str, Shape]) -> dict[str, Any]:
    """The fields of ``Sizes`` that these shapes show."""
    sizes: dict[str, Any] = {}
    table, fc, stem = (
        shapes.get(name, ())
        for name in ("txt_enc.embed.weight", "img_enc.fc.weight", "img_enc.cnn.conv1.weight")
    )
    if len(table) == 2:
        sizes["words"], sizes["word"] = table
    if len(fc) == 2:
        sizes["embed"] = fc[0]
    if len(stem) == 4:
        sizes["width"] = stem[0]
    blocks = [match.groups() for name in shapes if (match := _BLOCK.fullmatch(name))]
    stages = {int(stage) for stage, _ in blocks}
    if stages and stages == set(range(1, len(stages) + 1)):
        sizes["blocks"] = tuple(sum(int(stage) == number for stage, _ in blocks) for number in sorted(stages))
    return sizes


def computed_with(sizes: Sizes) -> dict[str, object]:
    """The options of the training scripts of PVSE and PCME under which these sizes are computed."""
    return {
        "word_dim": sizes.word,
        "crop_size": sizes.image_size,
        "cnn_type": _RESNETS.get(sizes.blocks, f"a residual network of {sizes.blocks} bottlenecks"),
        "img_attention": True,
        "txt_attention": True,
    }


AnySizes = TypeVar("AnySizes", bound=Sizes)


def config_of(checkpoint: Checkpoint, network: str, config: type[AnySizes]) -> AnySizes:
    """What a file of ours states, or what a released file's shapes show.

    Raises:
        AnnotatorError: a file of ours holds another network or states no sizes.
    """
    stated = stated_config(checkpoint, network, config.from_json)
    if stated is not None:
        return stated
    try:
        return config.of_shapes(shapes_of(checkpoint.tensors))
    except ValueError:
        return config()  # the comparison with the released sizes says what is wrong


def with_own_names(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint under the network's own names.

    An older layout of PVSE is a list of an image encoder's and a text encoder's weights that calls the PIE block
    ``our_model``.
    """
    tensors = checkpoint.tensors.items()
    renamed = {own_name(name).replace(".our_model.", ".pie_net.", 1): tensor for name, tensor in tensors}
    return replace(checkpoint, tensors=renamed)


def held_vocabulary(checkpoint: Checkpoint) -> Vocabulary | None:
    """The words that lie beside the weights: PCME's ``word2idx``, the text in a file of ours; None without them."""
    source = repr(str(checkpoint.path))
    word2idx, text = checkpoint.values.get("word2idx"), checkpoint.values.get("vocabulary")
    if isinstance(word2idx, Mapping):
        return Vocabulary.from_word2idx(word2idx, f"'word2idx' of {source}")
    return Vocabulary.from_text(text, source) if isinstance(text, str) else None


def vocabulary_of(options: Options, held: Vocabulary | None, words: int) -> Vocabulary:
    """The words of the setting ``vocabulary`` or else of the weights; they must fit the ``words`` of the weights.

    Raises:
        AnnotatorError: there are none, their number is wrong, or the setting and the weights disagree.
    """
    weights = options.path("weights")
    if "vocabulary" in options.values:
        given = read_vocabulary(options.path("vocabulary"))
    elif held is not None:
        given = held
    else:
        raise AnnotatorError(
            f"annotator {options.annotator!r} needs the setting 'vocabulary': the file coco_vocab.pkl that the weights "
            f"were trained with (`mitl annotators` says where it is), for {str(weights)!r} does not hold its words"
        )
    given.require_size(words, weights)
    if held is not None and held.words != given.words:
        raise AnnotatorError(
            f"'vocabulary' of annotator {options.annotator!r} has other words than {str(weights)!r} was trained "
            "with and holds itself; leave 'vocabulary' out"
        )
    return given


class TwoEncoders(Protocol):
    """A network with an image and a text encoder; what it keeps of an item are named tensors."""

    @property
    def config(self) -> Sizes:
        """Its sizes."""
        ...

    def images(self, pixels: Tensor) -> dict[str, Tensor]:
        """Of (B, 3, S, S)."""
        ...

    def captions(self, tokens: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """Of (B, L) word numbers, each of its own length (B,)."""
        ...


AnyNetwork = TypeVar("AnyNetwork", bound=TwoEncoders)


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
        self.network, self._vocabulary = ready.network, ready.vocabulary

    def encode_captions(self, items: Sequence[CaptionItem]) -> Encoded:
        """What the network keeps of each caption."""
        tokens.require_nltk()
        return super().encode_captions(items)

    def _read_image(self, item: ImageItem) -> Inputs:
        return {"pixels": pixels.imagenet_pixels(item, self.network.config.image_size)}

    def _tokens(self, item: CaptionItem) -> Inputs:
        return {"tokens": self._vocabulary.encode(item.text)}

    def _encode_images(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return self.network.images(inputs["pixels"])

    def _encode_captions(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        words = inputs["tokens"]
        return self.network.captions(words, torch.full((len(words),), words.shape[1]))


def preprocessing() -> dict[str, object]:
    """The versions of what turns files and captions into the networks' inputs, for fingerprints."""
    return {"pixels": pixels.VERSION, "tokens": tokens.VERSION}

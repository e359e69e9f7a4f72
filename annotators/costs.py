"""What annotators cost: floating point operations, two to a multiply-add, and bytes; neither torch nor numpy.

Counted are convolutions, linear layers, recurrent gates and attention, more than 99 % of the work; norms, activations
and pooling are not. ``sizes`` has the costs of the five networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

CAPTION_TOKENS = 13
"""Words and punctuation of a COCO caption, its start and end included."""


@dataclass(frozen=True, slots=True)
class Costs:
    """FLOP to encode an image and a caption and to compare a pair; bytes that are kept of each."""

    image: float
    caption: float
    pair: float
    image_bytes: int
    caption_bytes: int
    pair_bytes: int = 0
    """Only where every pair is a forward pass and its score is kept."""
    reads_pictures: bool = True
    vectors: bool = True
    """Whether pairs are compared by a matrix product of embeddings."""
    products: int = 1
    """How many inner products a pair has that a search writes and reads again."""
    fast_pass: bool = True
    """Whether a product of low precision may look first, because what it lets through can be rescored."""

    def times(self, checkpoints: int) -> Self:
        """Of checkpoints that run one after the other, whose vectors stand side by side."""
        grown = ("image", "caption", "pair", "image_bytes", "caption_bytes")
        return replace(self, **{name: checkpoints * getattr(self, name) for name in grown})


def linear(inputs: int, outputs: int, rows: float = 1) -> float:
    """A linear layer: 2 rows inputs outputs."""
    return 2.0 * rows * inputs * outputs


def resnet(blocks: Sequence[int] = (3, 8, 36, 3), width: int = 64, image_size: int = 224) -> float:
    """A residual network of bottlenecks without its classifier: 23 GFLOP for ResNet-152 at 224 pixels.

    The stem, then per block 1 x 1, 3 x 3 and 1 x 1 convolutions at the stage's resolution (the first 1 x 1 of a
    stage before the stride) and a projection in each stage's first block.
    """
    side = half(image_size)
    flop = linear(3 * 49, width, side * side)
    side = half(side)  # max pooling
    inside = width
    for stage, count in enumerate(blocks):
        wide = width << stage
        for block in range(count):
            before = side
            if block == 0 and stage > 0:
                side = half(side)
            flop += linear(inside, wide, before * before)
            flop += linear(9 * wide, wide, side * side) + linear(wide, 4 * wide, side * side)
            if block == 0:
                flop += linear(inside, 4 * wide, side * side)
            inside = 4 * wide
    return flop


def transformer(tokens: int, width: int, layers: int, mlp: int) -> float:
    """Layers of attention (4 projections, 2 products of tokens x tokens) and a two-layer perceptron."""
    whole = linear(width, 4 * width, tokens) + 2 * linear(width, mlp, tokens) + 4.0 * tokens * tokens * width
    return layers * whole


def gru(steps: float, inputs: int, width: int, directions: int = 1) -> float:
    """Gated recurrent units: three gates over the input and the state at each step."""
    return directions * linear(inputs + width, 3 * width, steps)


def attention_pooling(places: float, width: int, heads: int) -> float:
    """A perceptron of half the width for the weights, and the weighted sums."""
    return (
        linear(width, width // 2, places) + linear(width // 2, heads, places) + linear(width, heads, places)
    )


def half(side: int) -> int:
    """What a stride of 2 with padding leaves."""
    return -(-side // 2)


def grid(blocks: Sequence[int], width: int, image_size: int) -> tuple[int, int]:
    """Channels of a residual network's last stage, and the side of its square of cells."""
    side = image_size
    for _ in range(1 + len(blocks)):
        side = half(side)
    return 4 * (width << (len(blocks) - 1)), side


def pivot(text_model: str, tokens: int = CAPTION_TOKENS) -> Costs:
    """A machine caption stands for each image: both sides are texts, and no picture is read.

    ``minilm``: six transformer layers of width 384; ``lsa``: a projection of the words on 256 directions; ``tfidf``:
    a product of sparse rows, at most one multiply-add a word of the query.
    """
    if text_model == "minilm":
        text = transformer(tokens + 2, 384, 6, 1536)
        return Costs(text, text, linear(385, 1), 4 * 385, 4 * 385, reads_pictures=False)
    width, pair = (256, linear(256, 1)) if text_model == "lsa" else (1, linear(tokens, 1))
    text = linear(tokens, width)
    return Costs(text, text, pair, 0, 0, reads_pictures=False, fast_pass=False)


def embeddings(width: int, k: int = 1) -> Costs:
    """Embeddings from files, ``k`` an item: nothing is encoded, K x K inner products a pair."""
    return Costs(0.0, 0.0, linear(width, k * k), 4 * k * width, 4 * k * width, reads_pictures=False)


RANKINGS = Costs(0.0, 0.0, 0.0, 0, 0, reads_pictures=False)
"""Rankings from files: nothing is left to compare."""

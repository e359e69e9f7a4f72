"""What annotators cost, from their sizes: floating point operations, two to a multiply-add.

Counted are convolutions, linear layers, recurrent gates and attention, more than 99 % of the work; norms, activations
and pooling are not. The default sizes are those of the released weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CAPTION_TOKENS = 13
"""Words and punctuation of a COCO caption, its start and end included."""
VILT_PIXELS = (384, 512)
"""The size that a 480 x 640 picture gets."""


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


def linear(inputs: int, outputs: int, rows: float = 1) -> float:
    """A linear layer: 2 rows inputs outputs."""
    return 2.0 * rows * inputs * outputs


def resnet(blocks: Sequence[int] = (3, 8, 36, 3), width: int = 64, image_size: int = 224) -> float:
    """A residual network of bottlenecks without its classifier: 23 GFLOP for ResNet-152 at 224 pixels.

    The stem, then per block 1 x 1, 3 x 3 and 1 x 1 convolutions at the stage's resolution (the first 1 x 1 of a
    stage before the stride) and a projection in each stage's first block.
    """
    side = _half(image_size)
    found = linear(3 * 49, width, side * side)
    side = _half(side)  # max pooling
    inside = width
    for stage, count in enumerate(blocks):
        wide = width << stage
        for block in range(count):
            before = side
            if block == 0 and stage > 0:
                side = _half(side)
            found += linear(inside, wide, before * before)
            found += linear(9 * wide, wide, side * side) + linear(wide, 4 * wide, side * side)
            if block == 0:
                found += linear(inside, 4 * wide, side * side)
            inside = 4 * wide
    return found


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


def pvse(
    *,
    k: int = 2,
    embed: int = 1024,
    word: int = 300,
    blocks: Sequence[int] = (3, 8, 36, 3),
    width: int = 64,
    image_size: int = 224,
    tokens: int = CAPTION_TOKENS,
) -> Costs:
    """ResNet and a PIE block over its cells; a bidirectional GRU and a PIE block over words; K x K inner products."""
    channels, cells = _grid(blocks, width, image_size)
    image = resnet(blocks, width, image_size) + linear(channels, embed)
    image += attention_pooling(cells, channels, k) + linear(channels, embed, k)
    caption = gru(tokens, word, embed // 2, 2) + attention_pooling(tokens, word, k) + linear(word, embed, k)
    return Costs(image, caption, linear(embed, k * k), 4 * k * embed, 4 * k * embed)


def pcme(
    *,
    embed: int = 1024,
    word: int = 300,
    blocks: Sequence[int] = (3, 8, 36, 3),
    width: int = 64,
    image_size: int = 224,
    samples: int = 7,
    tokens: int = CAPTION_TOKENS,
) -> Costs:
    """As PVSE with one embedding, as much again for the variance, and samples x samples inner products a pair."""
    one = pvse(k=1, embed=embed, word=word, blocks=blocks, width=width, image_size=image_size, tokens=tokens)
    channels, cells = _grid(blocks, width, image_size)
    image = one.image + attention_pooling(cells, channels, 1) + 2 * linear(channels, embed)
    caption = (
        one.caption
        + attention_pooling(tokens, word, 1)
        + linear(word, embed)
        + gru(tokens, word, embed // 2, 2)
    )
    kept = 4 * ((samples + 1) * embed + samples)  # the samples, their mean, their lengths
    pair = linear(embed, samples * samples)
    return Costs(image, caption, pair, kept, kept, products=samples * samples, fast_pass=False)


def vsrn(
    *,
    region_width: int = 2048,
    width: int = 2048,
    word_width: int = 300,
    blocks: int = 4,
    regions: int = 36,
    checkpoints: int = 1,
    tokens: int = CAPTION_TOKENS,
    extractor: Mapping[str, Any] | None = None,
) -> Costs:
    """Projection, graph blocks (4 convolutions, 2 products of regions x regions), a GRU over regions, one over words.

    ``checkpoints`` whose similarities are averaged are run one after the other, and their vectors stand side by side.
    Where regions are features from elsewhere, making them is not counted.
    """
    graph = linear(width, 4 * width, regions) + 2 * linear(width, regions, regions)
    image = linear(region_width, width, regions) + blocks * graph + gru(regions, width, width)
    if extractor is not None:
        sizes = dict(extractor)
        window = int(sizes.pop("window", 3))
        image += resnet(**sizes) + linear(
            window * window * (sizes["width"] << (len(sizes["blocks"]) + 1)), region_width, regions
        )
    caption = gru(tokens, word_width, width)
    kept = 4 * width * checkpoints
    return Costs(
        checkpoints * image,
        checkpoints * caption,
        linear(width, checkpoints),
        kept,
        kept,
        reads_pictures=extractor is not None,
    )


def clip(
    *,
    embed_dim: int = 512,
    image_size: int = 224,
    patch_size: int = 32,
    vision_width: int = 768,
    vision_layers: int = 12,
    vision_mlp: int = 3072,
    text_width: int = 512,
    text_layers: int = 12,
    text_mlp: int = 2048,
    tokens: int = CAPTION_TOKENS + 2,
) -> Costs:
    """Patches and a transformer, words and a transformer, a projection of each: 8.8 GFLOP an image for ViT-B/32."""
    patches = (image_size // patch_size) ** 2
    image = linear(3 * patch_size**2, vision_width, patches) + linear(vision_width, embed_dim)
    image += transformer(patches + 1, vision_width, vision_layers, vision_mlp)
    caption = transformer(tokens, text_width, text_layers, text_mlp) + linear(text_width, embed_dim)
    return Costs(image, caption, linear(embed_dim, 1), 4 * embed_dim, 4 * embed_dim)


def vilt(
    *,
    hidden_size: int = 768,
    num_hidden_layers: int = 12,
    num_attention_heads: int = 12,
    intermediate_size: int = 3072,
    image_size: int = 384,
    patch_size: int = 32,
    max_position_embeddings: int = 40,
    tokens: int = CAPTION_TOKENS + 2,
) -> Costs:
    """Patches once an image; one transformer over patches and words a pair: 38 GFLOP at 384 x 512 pixels in full.

    Less here: queries, keys and values of the first layer are made once an item, and the last layer is computed for
    [CLS] alone, whose one query meets the states themselves (``annotators.networks.vilt_core``).
    """
    long = image_size * VILT_PIXELS[1] // VILT_PIXELS[0] // patch_size * patch_size
    patches = (image_size // patch_size) * (long // patch_size)
    most = (image_size // patch_size) * (int(1333 / 800 * image_size) // patch_size) + 1
    tokens = min(tokens, max_position_embeddings)
    joint, heads = patches + 1 + tokens, num_attention_heads
    pair = transformer(joint, hidden_size, num_hidden_layers - 1, intermediate_size)
    if num_hidden_layers > 1:
        pair -= linear(hidden_size, 3 * hidden_size, joint)
    pair += 4 * linear(hidden_size, hidden_size) + 2 * linear(heads * joint, hidden_size)
    pair += 2 * linear(hidden_size, intermediate_size)
    pair += linear(hidden_size, hidden_size) + linear(hidden_size, 1)
    return Costs(
        image=linear(3 * patch_size**2, hidden_size, patches),
        caption=0.0,  # looked up with each batch
        pair=pair,
        image_bytes=4 * most * hidden_size,
        caption_bytes=4 * max_position_embeddings,
        pair_bytes=12,
        vectors=False,
    )


def pivot(text_model: str, *, tokens: int = CAPTION_TOKENS) -> Costs:
    """A machine caption stands for each image: both sides are texts, and no picture is read.

    ``minilm``: six transformer layers of width 384; ``lsa``: a projection of the words on 256 directions; ``tfidf``:
    a product of sparse rows, at most one multiply-add a word of the query.
    """
    if text_model == "minilm":
        one = transformer(tokens + 2, 384, 6, 1536)
        return Costs(one, one, linear(385, 1), 4 * 385, 4 * 385, reads_pictures=False)
    width, pair = (256, linear(256, 1)) if text_model == "lsa" else (1, linear(tokens, 1))
    text = linear(tokens, width)
    return Costs(text, text, pair, 0, 0, reads_pictures=False, fast_pass=False)


def embeddings(width: int, k: int = 1) -> Costs:
    """Embeddings from files, ``k`` an item: nothing is encoded, K x K inner products a pair."""
    return Costs(0.0, 0.0, linear(width, k * k), 4 * k * width, 4 * k * width, reads_pictures=False)


RANKINGS = Costs(0.0, 0.0, 0.0, 0, 0, reads_pictures=False)
"""Rankings from files: nothing is left to compare."""


NETWORKS: dict[str, Callable[..., Costs]] = {
    "pvse": pvse,
    "vsrn": vsrn,
    "pcme": pcme,
    "vilt": vilt,
    "clip": clip,
}
"""By the network's name; each takes its sizes under the names of its configuration."""


def _half(side: int) -> int:
    """What a stride of 2 with padding leaves."""
    return -(-side // 2)


def _grid(blocks: Sequence[int], width: int, image_size: int) -> tuple[int, int]:
    """Channels and cells of a residual network's last stage."""
    side = image_size
    for _ in range(1 + len(blocks)):
        side = _half(side)
    return 4 * (width << (len(blocks) - 1)), side * side

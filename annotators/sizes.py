"""The sizes of the five networks, as weights files state or show them, and what they cost; neither torch nor numpy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, Literal, Protocol, Self, get_args

from annotators.costs import CAPTION_TOKENS, Costs, attention_pooling, grid, gru, linear, resnet, transformer

CAPTION_PIECES = CAPTION_TOKENS + 2
"""Of a COCO caption, in word pieces or byte pairs."""
VILT_PIXELS = (384, 512)
"""The size that a 480 x 640 picture gets."""
PCME_SAMPLES = 7
"""Samples an item at evaluation, as in PCME's paper."""
LARGEST = 10_000_000
"""No size of a network is greater."""
MOST_LAYERS = 1000
"""No network has more, nor more bottlenecks in all its stages; each is an object even where it has no memory."""


Places = Mapping[str, tuple[str, int]]
"""Size → the tensor and the axis whose length it is."""


class ShownSizes(Protocol):
    """What the shapes in a weights file show, by the network's own names."""

    def size(self, name: str, axis: int) -> int | None:
        """The length of a tensor along an axis; None where the file has no such tensor or axis."""
        ...

    def layers(self, prefix: str) -> int:
        """How many layers go by this name with a number behind it."""
        ...


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes of a network; the defaults are those of the released weights.

    Raises:
        ValueError: sizes that no network has.
    """

    shown_by: ClassVar[Places] = {}

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Raise ValueError where a whole number is not a size, or ``blocks`` are no stages of bottlenecks."""
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "int":
                require_size(field.name, value, MOST_LAYERS if field.name.endswith("_layers") else LARGEST)
            elif field.type == "tuple[int, ...]":
                if not isinstance(value, tuple) or not 1 <= len(value) <= 8:
                    raise ValueError(f"{field.name!r} is {value!r:.80}, which no residual network has")
                for count in value:
                    require_size(field.name, count)
                require_size(field.name, sum(value), MOST_LAYERS)

    def to_json(self) -> str:
        """As ``from_json`` reads it."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The sizes that a weights file of ours states; ValueError or TypeError where there are none."""
        stated = json.loads(text)
        if not isinstance(stated, dict):
            raise ValueError(f"{text!r:.80} is not a table of sizes")
        return cls(**{name: tuple(v) if isinstance(v, list) else v for name, v in stated.items()})

    def shown(self, by: ShownSizes) -> Self:
        """These sizes but for those that a file shows; unchanged where what it shows makes no network."""
        sizes = {name: by.size(*place) for name, place in self.shown_by.items()}
        known: dict[str, Any] = {name: size for name, size in sizes.items() if size}
        try:
            return replace(self, **known, **self.counted(by, known))
        except ValueError:
            # The comparison with the released sizes says best what is wrong with the file.
            return self

    def counted(self, by: ShownSizes, known: Mapping[str, int]) -> dict[str, Any]:
        """The sizes that follow from several shapes; ``known`` are those of ``shown_by``."""
        return {}


def require_size(name: str, value: object, most: int = LARGEST) -> None:
    """Raise ValueError for what is not a whole number that a network can have as a size."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ValueError(
            f"{name!r} is {value!r:.40}, a size that no network has; it should be a whole number from 1 to {most:,}"
        )


@dataclass(frozen=True, slots=True)
class WordsAndCells(Config):
    """Sizes of PVSE and PCME: a residual network over pixels and a recurrent one over words."""

    shown_by: ClassVar[Places] = {
        "words": ("txt_enc.embed.weight", 0),
        "word": ("txt_enc.embed.weight", 1),
        "embed": ("img_enc.fc.weight", 0),
        "width": ("img_enc.cnn.conv1.weight", 0),
    }
    words: int = 11_755
    word: int = 300
    """Width of a word's vector."""
    embed: int = 1024
    """Width of an embedding; even, for the text's GRU has two directions."""
    blocks: tuple[int, ...] = (3, 8, 36, 3)
    """Bottlenecks of each stage: ResNet-152."""
    width: int = 64
    image_size: int = 224

    def check(self) -> None:
        """Raise ValueError for sizes that no network has."""
        Config.check(self)
        if self.embed % 2:
            raise ValueError(f"'embed' is {self.embed}, but two directions need an even number")

    def counted(self, by: ShownSizes, known: Mapping[str, int]) -> dict[str, Any]:
        """The bottlenecks of each stage."""
        stages = range(1, by.layers("img_enc.cnn.layer") or 1)
        blocks = tuple(by.layers(f"img_enc.cnn.layer{stage}.") for stage in stages)
        return {"blocks": blocks} if blocks and all(blocks) else {}

    def encoders(self, tokens: int, k: int) -> tuple[float, float]:
        """FLOP of an image and of a caption of so many tokens with ``k`` embeddings each."""
        channels, side = grid(self.blocks, self.width, self.image_size)
        cells = side**2
        image = resnet(self.blocks, self.width, self.image_size) + linear(channels, self.embed)
        image += attention_pooling(cells, channels, k) + linear(channels, self.embed, k)
        caption = gru(tokens, self.word, self.embed // 2, 2) + attention_pooling(tokens, self.word, k)
        return image, caption + linear(self.word, self.embed, k)


Pooling = Literal["legacy", "full"]


@dataclass(frozen=True, slots=True)
class PvseConfig(WordsAndCells):
    """Sizes of PVSE; the defaults are those of ``coco_pvse.pth``."""

    shown_by: ClassVar[Places] = {**WordsAndCells.shown_by, "k": ("img_enc.pie_net.attention.w_2.weight", 0)}
    k: int = 2
    """Embeddings of an item."""
    pooling: Pooling = "legacy"
    """What stands for a whole caption: the GRU's outputs at its last word, of which the backward one has read that
    word only (``legacy``, as all released weights), or what both directions end with (``full``)."""

    def check(self) -> None:
        """Raise ValueError for sizes that no network has."""
        WordsAndCells.check(self)
        if self.pooling not in get_args(Pooling):
            raise ValueError(f"'pooling' is {self.pooling!r}, but should be legacy or full")

    def costs(self, tokens: int = CAPTION_TOKENS) -> Costs:
        """ResNet and a PIE block over its cells; a bidirectional GRU and a PIE block over words; K x K products."""
        kept = 4 * self.k * self.embed
        return Costs(*self.encoders(tokens, self.k), linear(self.embed, self.k * self.k), kept, kept)


@dataclass(frozen=True, slots=True)
class PcmeConfig(WordsAndCells):
    """Sizes of PCME."""

    def costs(self, tokens: int = CAPTION_TOKENS) -> Costs:
        """As PVSE with one embedding, as much again for the variance, and samples x samples products a pair."""
        channels, side = grid(self.blocks, self.width, self.image_size)
        cells = side**2
        image, caption = self.encoders(tokens, 1)
        image += attention_pooling(cells, channels, 1) + 2 * linear(channels, self.embed)
        caption += attention_pooling(tokens, self.word, 1) + linear(self.word, self.embed)
        caption += gru(tokens, self.word, self.embed // 2, 2)
        # The samples, their mean and their squared lengths.
        kept = 4 * ((PCME_SAMPLES + 1) * self.embed + PCME_SAMPLES)
        products = PCME_SAMPLES**2
        pair = linear(self.embed, products)
        return Costs(image, caption, pair, kept, kept, products=products, fast_pass=False)


@dataclass(frozen=True, slots=True)
class GridConfig(Config):
    """Sizes of the network that stands for a detector."""

    blocks: tuple[int, ...] = (1, 1)
    """Bottlenecks of each stage; the picture is halved twice, and once more by every stage but the first."""
    width: int = 16
    window: int = 3
    """Side of the square of cells that one region looks at; 64 pixels give 8 x 8 cells and 6 x 6 regions."""
    image_size: int = 64

    @property
    def regions(self) -> int:
        """How many regions a picture has."""
        _, side = grid(self.blocks, self.width, self.image_size)
        return max(0, side - self.window + 1) ** 2


@dataclass(frozen=True, slots=True)
class VsrnConfig(Config):
    """Sizes of VSRN; the defaults are those of the released COCO weights."""

    shown_by: ClassVar[Places] = {
        "words": ("txt_enc.embed.weight", 0),
        "word_width": ("txt_enc.embed.weight", 1),
        "width": ("img_enc.fc.weight", 0),
        "region_width": ("img_enc.fc.weight", 1),
    }
    words: int = 10_006
    word_width: int = 300
    region_width: int = 2048
    width: int = 2048
    """Of the graph, of both GRUs and of the embedding."""
    blocks: int = 4
    regions: int = 36
    flickr: bool = False
    """The Flickr30k weights leave out the first norm over regions and have a batch norm behind the GRU."""
    extractor: GridConfig | None = None
    """Where the network makes its regions itself, from pixels."""

    def check(self) -> None:
        """Raise ValueError for sizes that no network has."""
        Config.check(self)
        if self.blocks > 100:
            raise ValueError(f"{self.blocks} blocks, which no network has")
        if self.extractor is not None and self.extractor.regions != self.regions:
            raise ValueError(f"{self.regions} regions, but an extractor of {self.extractor.regions}")

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The sizes that a weights file of ours states; ValueError or TypeError where there are none."""
        stated = json.loads(text)
        extractor = stated.pop("extractor", None)
        return cls(
            **stated, extractor=None if extractor is None else GridConfig.from_json(json.dumps(extractor))
        )

    def counted(self, by: ShownSizes, known: Mapping[str, int]) -> dict[str, Any]:
        """Which data set the file was trained for."""
        return {"flickr": by.size("img_enc.bn.weight", 0) is not None}

    @property
    def reads(self) -> str:
        """What an image is to the network, in words."""
        if self.extractor is not None:
            return f"pictures of {self.extractor.image_size} x {self.extractor.image_size} pixels"
        return f"{self.regions} regions of {self.region_width:,} numbers"

    def costs(self, tokens: int = CAPTION_TOKENS) -> Costs:
        """Projection, graph blocks (4 convolutions, 2 products of regions x regions), a GRU over regions, one of words.

        Where regions are features from elsewhere, making them is not counted.
        """
        width, extractor = self.width, self.extractor
        graph = linear(width, 4 * width, self.regions) + 2 * linear(width, self.regions, self.regions)
        image = linear(self.region_width, width, self.regions) + self.blocks * graph
        image += gru(self.regions, width, width)
        if extractor is not None:
            channels, _ = grid(extractor.blocks, extractor.width, extractor.image_size)
            image += resnet(extractor.blocks, extractor.width, extractor.image_size)
            image += linear(extractor.window**2 * channels, self.region_width, self.regions)
        caption = gru(tokens, self.word_width, width)
        return Costs(
            image, caption, linear(width, 1), 4 * width, 4 * width, reads_pictures=extractor is not None
        )


HEAD = 64
"""Width of an attention head where only shapes are known; all released CLIPs and ViLTs have it but those below."""
VISION_HEADS = {1280: 80, 1408: 88, 1664: 104, 1792: 112}
"""The same of open_clip's largest vision transformers (H, g, bigG, e), by their width."""


def _square(patch: int | None, places: int | None) -> dict[str, int]:
    """The side of the picture whose patches and class token have these places."""
    return {"image_size": patch * round(max(places - 1, 1) ** 0.5)} if patch and places else {}


@dataclass(frozen=True, slots=True)
class ViltConfig(Config):
    """Sizes of ViLT under their names on the hub; the defaults are those of the released COCO weights."""

    shown_by: ClassVar[Places] = {
        "vocab_size": ("vilt.embeddings.text_embeddings.word_embeddings.weight", 0),
        "hidden_size": ("vilt.embeddings.text_embeddings.word_embeddings.weight", 1),
        "max_position_embeddings": ("vilt.embeddings.text_embeddings.position_embeddings.weight", 0),
        "type_vocab_size": ("vilt.embeddings.text_embeddings.token_type_embeddings.weight", 0),
        "modality_type_vocab_size": ("vilt.embeddings.token_type_embeddings.weight", 0),
        "intermediate_size": ("vilt.encoder.layer.0.intermediate.dense.weight", 0),
        "patch_size": ("vilt.embeddings.patch_embeddings.projection.weight", 2),
    }
    vocab_size: int = 30_522
    """Word pieces."""
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    image_size: int = 384
    """The shorter side of an image, and the side of the square that positions were learnt on; pixels."""
    patch_size: int = 32
    max_position_embeddings: int = 40
    """Word pieces of a caption, [CLS] and [SEP] included; longer ones are cut."""
    modality_type_vocab_size: int = 2
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-6
    """Of the transformer's norms: 1e-6 in the authors' network, 1e-12 in the port on the hub."""
    text_layer_norm_eps: float = 1e-12
    """Of the norm of the word embeddings, BERT's own."""

    def check(self) -> None:
        """Raise ValueError for sizes that no network has."""
        Config.check(self)
        for name in ("layer_norm_eps", "text_layer_norm_eps"):
            eps = getattr(self, name)
            if not isinstance(eps, float | int) or not 0 < eps < 1:
                raise ValueError(f"{name} is {eps!r}; it should be a small positive number")
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is not a multiple of {self.num_attention_heads} attention heads"
            )
        if self.image_size % self.patch_size:
            raise ValueError(
                f"image_size {self.image_size} is not a multiple of patches of {self.patch_size}"
            )
        if self.max_position_embeddings < 2:
            raise ValueError("max_position_embeddings leaves no room for [CLS] and [SEP]")

    @property
    def most_image_tokens(self) -> int:
        """Patches of the longest image that preprocessing lets through, and the class token."""
        longest = int(1333 / 800 * self.image_size) // self.patch_size
        return (self.image_size // self.patch_size) * longest + 1

    @classmethod
    def from_hub(cls, stated: Mapping[str, object]) -> ViltConfig:
        """The configuration in a ``config.json`` of the hub, whose port has one epsilon for all norms.

        What the file leaves out is as in ``transformers``.

        Raises:
            ValueError: it is of another kind of network, or asks for what is not computed here.
        """
        if stated.get("model_type", "vilt") != "vilt":
            raise ValueError(f"model_type is {stated['model_type']!r}; it should be 'vilt'")
        computed = {"hidden_act": "gelu", "qkv_bias": True, "num_channels": 3, "max_image_length": -1}
        for key, right in computed.items():
            if stated.get(key, right) != right:
                raise ValueError(f"{key} is {stated[key]!r}; known is {right!r}")
        eps: Any = stated.get("layer_norm_eps", 1e-12)
        sizes: Any = {field.name: stated[field.name] for field in fields(cls) if field.name in stated}
        return cls(**{**sizes, "layer_norm_eps": eps, "text_layer_norm_eps": eps})

    def counted(self, by: ShownSizes, known: Mapping[str, int]) -> dict[str, Any]:
        """Layers, heads of the usual width, and the square of positions."""
        width = known.get("hidden_size", self.hidden_size)
        places = by.size("vilt.embeddings.position_embeddings", 1)
        return {
            "num_hidden_layers": by.layers("vilt.encoder.layer.") or self.num_hidden_layers,
            "num_attention_heads": max(1, width // HEAD),
            **_square(known.get("patch_size", self.patch_size), places),
        }

    def costs(self, tokens: int = CAPTION_PIECES) -> Costs:
        """Patches once an image; one transformer over patches and words a pair: 38 GFLOP at 384 x 512 pixels in full.

        Less here: queries, keys and values of the first layer are made once an item, and the last layer is computed for
        [CLS] alone, whose one query meets the states themselves (``annotators.vilt_core``).
        """
        width, patch, mlp = self.hidden_size, self.patch_size, self.intermediate_size
        long = self.image_size * VILT_PIXELS[1] // VILT_PIXELS[0] // patch * patch
        patches = (self.image_size // patch) * (long // patch)
        joint = patches + 1 + min(tokens, self.max_position_embeddings)
        pair = transformer(joint, width, self.num_hidden_layers - 1, mlp)
        if self.num_hidden_layers > 1:
            pair -= linear(width, 3 * width, joint)
        pair += 4 * linear(width, width) + 2 * linear(self.num_attention_heads * joint, width)
        pair += 2 * linear(width, mlp)
        pair += linear(width, width) + linear(width, 1)
        return Costs(
            image=linear(3 * patch**2, width, patches),
            caption=0.0,  # looked up with each batch
            pair=pair,
            image_bytes=4 * self.most_image_tokens * width,
            caption_bytes=4 * self.max_position_embeddings,
            pair_bytes=12,
            vectors=False,
        )


ACTIVATIONS = ("quick_gelu", "gelu")


@dataclass(frozen=True, slots=True)
class ClipConfig(Config):
    """Sizes of both transformers of a CLIP; the defaults are those of ViT-B/32."""

    shown_by: ClassVar[Places] = {
        "embed_dim": ("visual_projection.weight", 0),
        "vocab_size": ("text_model.embeddings.token_embedding.weight", 0),
        "context_length": ("text_model.embeddings.position_embedding.weight", 0),
        "patch_size": ("vision_model.embeddings.patch_embedding.weight", 3),
        "vision_width": ("vision_model.embeddings.position_embedding.weight", 1),
        "vision_mlp": ("vision_model.encoder.layers.0.mlp.fc1.weight", 0),
        "text_width": ("text_model.embeddings.position_embedding.weight", 1),
        "text_mlp": ("text_model.encoder.layers.0.mlp.fc1.weight", 0),
    }
    embed_dim: int = 512
    image_size: int = 224
    patch_size: int = 32
    vision_width: int = 768
    vision_layers: int = 12
    vision_heads: int = 12
    vision_mlp: int = 3072
    context_length: int = 77
    vocab_size: int = 49408
    text_width: int = 512
    text_layers: int = 12
    text_heads: int = 8
    text_mlp: int = 2048
    activation: str = "quick_gelu"
    """x * sigmoid(1.702 x), which all weights of OpenAI need; ``gelu`` for those that were trained with it."""

    def check(self) -> None:
        """Raise ValueError for sizes that no network has."""
        Config.check(self)
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"the activation {self.activation!r}; known: {', '.join(ACTIVATIONS)}")
        for width, heads in ((self.vision_width, self.vision_heads), (self.text_width, self.text_heads)):
            if width % heads:
                raise ValueError(f"a width of {width} for {heads} heads, which do not divide it")
        if self.image_size % self.patch_size:
            raise ValueError(f"images of {self.image_size} pixels for patches of {self.patch_size}")

    def counted(self, by: ShownSizes, known: Mapping[str, int]) -> dict[str, Any]:
        """Layers, heads of the usual width, and the square of positions."""
        sizes: dict[str, Any] = {}
        for side in ("vision", "text"):
            if layers := by.layers(f"{side}_model.encoder.layers."):
                sizes[f"{side}_layers"] = layers
            if width := known.get(f"{side}_width"):
                head = VISION_HEADS.get(width, HEAD) if side == "vision" else HEAD
                sizes[f"{side}_heads"] = max(width // head, 1)
        places = by.size("vision_model.embeddings.position_embedding.weight", 0)
        return {**sizes, **_square(known.get("patch_size"), places)}

    @property
    def name(self) -> str:
        """As the paper would call it: "ViT-B/32"."""
        size = {768: "B", 1024: "L", 1280: "H"}.get(self.vision_width, f"{self.vision_width} wide")
        return f"ViT-{size}/{self.patch_size}"

    def costs(self, tokens: int = CAPTION_PIECES) -> Costs:
        """Patches and a transformer, words and a transformer, a projection of each: 8.8 GFLOP an image for ViT-B/32."""
        patches = (self.image_size // self.patch_size) ** 2
        image = linear(3 * self.patch_size**2, self.vision_width, patches)
        image += linear(self.vision_width, self.embed_dim)
        image += transformer(patches + 1, self.vision_width, self.vision_layers, self.vision_mlp)
        caption = transformer(tokens, self.text_width, self.text_layers, self.text_mlp)
        caption += linear(self.text_width, self.embed_dim)
        kept = 4 * self.embed_dim
        return Costs(image, caption, linear(self.embed_dim, 1), kept, kept)

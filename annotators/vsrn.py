"""VSRN as a machine annotator: the released checkpoints or weights of ours over features of regions.

Source: Li et al., Visual semantic reasoning for image-text matching, ICCV 2019, with the computation of its code,
which divides regions by their norm over the regions, not over the features; the released weights need that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotators.base import Encoded, file_sha256, fingerprint
from annotators.checkpoints.checkpoint import (
    OURS,
    Examination,
    TensorPart,
    Weights,
    config_of,
    contradictions,
    options_of,
    read_checkpoint,
    renamed,
    same_name,
)
from annotators.devices import Running
from annotators.dual_encoders import (
    DualEncoder,
    Ready,
    ResNet,
    Trained,
    cells_of,
    held_vocabulary,
    l2norm,
    vocabulary_of,
)
from annotators.encoding import Inputs
from annotators.inputs import pixels, vocabularies
from annotators.inputs.regions import NO_EXTRACTOR, RegionFeatures, open_regions
from annotators.options import Options
from annotators.sizes import GridConfig, VsrnConfig
from mitl.errors import AnnotatorError
from mitl.records import ImageItem


class GridRegions(nn.Module):
    """A grid of overlapping windows as regions; non-negative, as a detector's pooled features are."""

    def __init__(self, config: GridConfig, region_width: int) -> None:
        super().__init__()
        self.cnn = ResNet(config.blocks, config.width)
        self.look = nn.Conv2d(self.cnn.channels, region_width, config.window)

    def forward(self, pixels: Tensor) -> Tensor:
        """(B, 3, S, S) -> (B, R, region_width), row by row from the upper left."""
        return F.relu(cells_of(self.look(self.cnn(pixels))))


class RegionGraph(nn.Module):
    """Each region takes from all others by their affinity; a residual block (equations 2 to 4)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.g, self.theta, self.phi = (nn.Conv1d(width, width, 1) for _ in range(3))
        self.W = nn.Sequential(nn.Conv1d(width, width, 1), nn.BatchNorm1d(width))
        # An untrained block is the identity.
        nn.init.zeros_(self.W.get_parameter("1.weight"))

    def forward(self, v: Tensor) -> Tensor:
        """(B, D, N) -> (B, D, N)."""
        R = self.theta(v).transpose(1, 2) @ self.phi(v)  # (B, N, N)
        related = (R / v.shape[2]) @ self.g(v).transpose(1, 2)  # (B, N, D)
        reasoned: Tensor = self.W(related.transpose(1, 2)) + v
        return reasoned


class ImageEncoder(nn.Module):
    """Regions to one vector: projection, graph blocks, and a GRU that reads the regions in their order."""

    def __init__(self, config: VsrnConfig) -> None:
        super().__init__()
        self.flickr, self.blocks = config.flickr, config.blocks
        self.fc = nn.Linear(config.region_width, config.width)
        self.img_rnn = nn.GRU(config.width, config.width, batch_first=True)
        for place in range(config.blocks):
            self.add_module(f"Rs_GCN_{place + 1}", RegionGraph(config.width))
        if config.flickr:
            self.bn = nn.BatchNorm1d(config.width)
        nn.init.xavier_uniform_(self.fc.weight)
        nn.init.zeros_(self.fc.bias)

    def forward(self, regions: Tensor) -> Tensor:
        """(B, N, region_width) -> (B, D) of unit vectors."""
        v = self.fc(regions)  # (B, N, D)
        if not self.flickr:
            v = l2norm(v, 1)  # over the regions
        v = v.transpose(1, 2)  # (B, D, N)
        for place in range(self.blocks):
            v = self.get_submodule(f"Rs_GCN_{place + 1}")(v)
        _, last = self.img_rnn(l2norm(v.transpose(1, 2), 1))  # (1, B, D)
        return l2norm(self.bn(last[0]) if self.flickr else last[0], 1)


class TextEncoder(nn.Module):
    """Words to one vector: the state of a GRU at the last word."""

    def __init__(self, config: VsrnConfig) -> None:
        super().__init__()
        self.embed = nn.Embedding(config.words, config.word_width)
        self.rnn = nn.GRU(config.word_width, config.width, batch_first=True)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """(B, L) and (B,) -> (B, D) of unit vectors; what lies behind a caption's end does not matter."""
        states, _ = self.rnn(self.embed(tokens))  # (B, L, D)
        return l2norm(states[torch.arange(len(states), device=states.device), lengths - 1], 1)


class Vsrn(nn.Module):
    """Both encoders; a similarity is the inner product of an image's and a caption's unit vector."""

    def __init__(self, config: VsrnConfig) -> None:
        super().__init__()
        self.config = config
        self.extractor = GridRegions(config.extractor, config.region_width) if config.extractor else None
        self.img_enc = ImageEncoder(config)
        self.txt_enc = TextEncoder(config)

    def images(self, regions: Tensor) -> dict[str, Tensor]:
        """``embedding`` (B, D) of regions (B, N, region_width); of pixels (B, 3, S, S) where there is an extractor."""
        return {"embedding": self.img_enc(self.extractor(regions) if self.extractor else regions)}

    def captions(self, tokens: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """``embedding`` (B, D) of captions (B, L) int64, each of its own length (B,) and padded with anything."""
        return {"embedding": self.txt_enc(tokens, lengths)}


NETWORK = "vsrn"


_FLICKR = "f30k_precomp"
"""The ``data_name`` for which the training script leaves out the first norm and adds a batch norm."""


_IN_A_LIST = renamed({"img_enc.": ("0.", TensorPart.ALL), "txt_enc.": ("1.", TensorPart.ALL)})
"""Released files are lists of both encoders' weights."""


def examine(path: Path) -> Examination:
    """Compare a weights file with VSRN; AnnotatorError where it is not a weights file at all."""
    return _weights_of(path).examination


def load(path: Path) -> Trained[Vsrn]:
    """The network of a released checkpoint or of a safetensors file of ours.

    Raises:
        AnnotatorError: unreadable, or any key is missing, left over or of another shape.
    """
    weights = _weights_of(path)
    return Trained(weights.load(), held_vocabulary(weights.checkpoint))


def _weights_of(path: Path) -> Weights[Vsrn]:
    checkpoint = read_checkpoint(path)
    values = checkpoint.values
    ours = values.get("format") == OURS
    naming = same_name if ours else _IN_A_LIST
    config = config_of(checkpoint, NETWORK, VsrnConfig(), naming)
    trained_on = "" if ours else " for Flickr30k" if config.flickr else " for COCO"
    return Weights(
        NETWORK,
        checkpoint,
        lambda: Vsrn(config),
        what=f"VSRN{trained_on}: {config.blocks} graph blocks over {config.reads}, {config.words:,} words",
        settings={
            "words": config.words,
            "width": config.width,
            "blocks": config.blocks,
            "flickr": config.flickr,
            **{key: values[key] for key in ("epoch", "best_rsum") if key in values},
        },
        problems=tuple(_strange_options(values.get("opt"), config)),
        otherwise="no weights of VSRN",
        naming=naming,
    )


def _strange_options(opt: object, config: VsrnConfig) -> Iterator[str]:
    """What the training script's options say and the weights, or the computation, do not."""
    yield from contradictions(
        opt,
        {
            "no_imgnorm": False,
            "use_abs": False,
            "measure": "cosine",
            "num_layers": 1,
            "embed_size": config.width,
            "img_dim": config.region_width,
            "word_dim": config.word_width,
            "vocab_size": config.words,
        },
    )
    data = options_of(opt).get("data_name")
    if not isinstance(data, str):
        return
    said = f"it was trained with data_name = {data!r:.60}"
    if not data.endswith("_precomp"):
        yield f"{said}, whose network reads pixels, not the regions of coco_precomp and {_FLICKR}"
    elif config.flickr and data != _FLICKR:
        yield f"{said}, but holds 0.bn, the batch norm that only {_FLICKR} has; its authors' code would leave it out"
    elif data == _FLICKR and not config.flickr:
        yield f"{said}, but lacks 0.bn, the batch norm that belongs to it"


BATCH = 64


class Averaged:
    """One or two networks; two average their similarities, as the published figures do.

    The mean of two inner products is one inner product, of both embeddings side by side divided by the square root
    of two, so two networks are searched exactly like one.
    """

    def __init__(self, networks: Sequence[Vsrn]) -> None:
        self.networks = networks
        self.config = networks[0].config

    def images(self, image: Tensor) -> dict[str, Tensor]:
        """``embedding`` (B, D) of regions or of pixels."""
        return self._mean([network.images(image) for network in self.networks])

    def captions(self, tokens: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """``embedding`` (B, D) of captions (B, L) int64 of lengths (B,)."""
        return self._mean([network.captions(tokens, lengths) for network in self.networks])

    def _mean(self, sides: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        joined = torch.cat([side["embedding"] for side in sides], 1)
        return {"embedding": joined / math.sqrt(len(sides))}


class VsrnAnnotator(DualEncoder[Averaged]):
    """Networks over one set of regions; over pixels where they make their regions themselves."""

    def __init__(self, ready: Ready[Averaged], features: RegionFeatures | None) -> None:
        super().__init__(ready)
        self._features = features
        self.reads_pictures = features is None

    def encode_images(self, items: Sequence[ImageItem]) -> Encoded:
        """``embedding`` (N, D) float32; AnnotatorError where an image has no features or no readable file."""
        if self._features is not None:
            self._features.require(items)
        return super().encode_images(items)

    def read_image(self, item: ImageItem) -> Inputs:
        """``image``: pixels, or the features of its regions where they come from a file."""
        if self._features is not None:
            return {"image": self._features.read(item)}
        extractor = self.network.config.extractor
        assert extractor is not None
        return {"image": pixels.imagenet_pixels(item, extractor.image_size)}


def build(options: Options) -> VsrnAnnotator:
    """The annotator of the settings ``weights`` (a path, or two), ``vocabulary`` and ``features``.

    Further settings: ``feature_ids``, ``device``, ``threads``, ``batch``. Weights of ours bring their vocabulary,
    and their extractor where they have one.
    """
    running = Running.of(options, batch=BATCH)
    paths = _weights(options)
    trained = [load(path) for path in paths]
    vocabulary = vocabulary_of(options, dict(zip(paths, trained, strict=True)), "coco_precomp_vocab.pkl")
    features = _features(options, trained)
    digest = fingerprint(
        network=NETWORK,
        weights=[file_sha256(path) for path in paths],
        vocabulary=vocabulary.fingerprint,
        tokens=vocabularies.VERSION,
        images=features.fingerprint if features else pixels.VERSION,
    )
    network = Averaged([model.network.to(running.device) for model in trained])
    return VsrnAnnotator(Ready(options.annotator, digest, network, vocabulary, running), features)


def _weights(options: Options) -> list[Path]:
    setting = options.values["weights"]
    several = setting if isinstance(setting, list | tuple) else [setting]
    if not 1 <= len(several) <= 2:
        raise AnnotatorError(
            f"'weights' of annotator {options.annotator!r} lists {len(several)} files; it should be one, "
            "or two whose similarities are averaged"
        )
    return [options.existing("weights", path) for path in several]


def _features(options: Options, trained: Sequence[Trained[Vsrn]]) -> RegionFeatures | None:
    """The features of the setting; None where the weights make their regions from pixels."""
    config, other = trained[0].network.config, trained[-1].network.config
    if other.reads != config.reads:
        raise AnnotatorError(
            f"the two weights of annotator {options.annotator!r} read different things, {config.reads} and "
            f"{other.reads}"
        )
    named = [key for key in ("features", "feature_ids") if key in options.values]
    if config.extractor is not None:
        if named:
            raise AnnotatorError(
                f"the weights of annotator {options.annotator!r} make their regions from pixels; leave out {named[0]!r}"
            )
        return None
    if "features" not in options.values:
        raise AnnotatorError(
            f"annotator {options.annotator!r} needs the setting 'features', the {config.reads} of each image "
            f"as .npy, a folder or the tsv of origin; {NO_EXTRACTOR}"
        )
    ids = options.path("feature_ids") if "feature_ids" in options.values else None
    return open_regions(options.path("features"), ids, (config.regions, config.region_width))

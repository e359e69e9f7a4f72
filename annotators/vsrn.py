"""VSRN as a machine annotator: the released checkpoints or weights of ours over features of regions.

Source: Li et al., Visual semantic reasoning for image-text matching, ICCV 2019. ``networks.vsrn`` is the network.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from annotators.base import Encoded
from annotators.checkpoints.checkpoint import (
    ENCODERS,
    OURS,
    Checkpoint,
    Examination,
    compare,
    contradictions,
    load_strictly,
    options_of,
    own_name,
    read_checkpoint,
    shapes_of,
    stated_config,
    without_memory,
)
from annotators.devices import Running
from annotators.encoding import Inputs, NetworkAnnotator
from annotators.fingerprint import file_sha256, fingerprint
from annotators.inputs import pixels
from annotators.inputs import tokens as caption_words
from annotators.inputs.regions import NO_EXTRACTOR, RegionFeatures, open_regions
from annotators.inputs.vocabularies import Vocabulary, read_vocabulary
from annotators.networks.vsrn import Vsrn, VsrnConfig
from annotators.options import Options
from mitl.errors import AnnotatorError
from mitl.records import CaptionItem, ImageItem

NETWORK = "vsrn"


@dataclass(frozen=True, slots=True)
class Trained:
    """A network with its weights, and the words it knows where the file says them."""

    network: Vsrn
    vocabulary: Vocabulary | None


_FLICKR = "f30k_precomp"
"""The ``data_name`` for which the training script leaves out the first norm and adds a batch norm."""


def examine(path: Path) -> Examination:
    """Hold a weights file against VSRN; AnnotatorError where it is no weights file at all."""
    checkpoint = read_checkpoint(path)
    return _examined(checkpoint, _config_of(checkpoint))


def load(path: Path) -> Trained:
    """The network of a released checkpoint or of a safetensors file of ours.

    Raises:
        AnnotatorError: unreadable, or any key is missing, left over or of another shape.
    """
    checkpoint = read_checkpoint(path)
    config = _config_of(checkpoint)
    network = without_memory(Vsrn, config)
    load_strictly(
        network, {own_name(name): t for name, t in checkpoint.tensors.items()}, _examined(checkpoint, config)
    )
    text = checkpoint.values.get("vocabulary")
    vocabulary = Vocabulary.from_text(text, repr(str(path))) if isinstance(text, str) else None
    return Trained(network.eval(), vocabulary)


def _released_name(name: str) -> str:
    place = next(place for place, encoder in ENCODERS.items() if name.startswith(encoder))
    return place + name.removeprefix(ENCODERS[place])


def _config_of(checkpoint: Checkpoint) -> VsrnConfig:
    """The configuration that a file states, or that its shapes and names show; the released one where they do not."""
    stated = stated_config(checkpoint, NETWORK, VsrnConfig.from_json)
    if stated is not None:
        return stated
    shapes = shapes_of(checkpoint.tensors)
    config = VsrnConfig(flickr="0.bn.weight" in shapes)
    table, projection = shapes.get("1.embed.weight", ()), shapes.get("0.fc.weight", ())
    if len(table) == 2:
        config = replace(config, words=table[0], word_width=table[1])
    if len(projection) == 2:
        config = replace(config, width=projection[0], region_width=projection[1])
    return config


def _examined(checkpoint: Checkpoint, config: VsrnConfig) -> Examination:
    ours = checkpoint.values.get("format") == OURS
    shapes = shapes_of(without_memory(Vsrn, config).state_dict())
    expected = shapes if ours else {_released_name(name): shape for name, shape in shapes.items()}
    trained_on = "" if ours else " for Flickr30k" if config.flickr else " for COCO"
    what = f"VSRN{trained_on}: {config.blocks} graph blocks over {config.reads}, {config.words:,} words"
    settings = {
        "words": config.words,
        "width": config.width,
        "blocks": config.blocks,
        "flickr": config.flickr,
        **{key: checkpoint.values[key] for key in ("epoch", "best_rsum") if key in checkpoint.values},
    }
    examination = compare(NETWORK, checkpoint, expected, what=what, settings=settings)
    problems = _strange_options(checkpoint.values.get("opt"), config)
    return examination.with_problems(problems, otherwise="no weights of VSRN")


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


class VsrnAnnotator(NetworkAnnotator):
    """One or two networks over one set of regions; two average their similarities, as the published figures do.

    The mean of two inner products is one inner product, of both embeddings side by side divided by the square root
    of two, so two networks are searched exactly like one.
    """

    def __init__(
        self,
        name: str,
        digest: str,
        networks: Sequence[Vsrn],
        inputs: tuple[Vocabulary, RegionFeatures | None],
        running: Running,
    ) -> None:
        """``inputs``: the words that the networks know, and the regions they read; None where they read pixels."""
        super().__init__(name, digest, running)
        self._networks = [network.to(running.device) for network in networks]
        self._vocabulary, self._features = inputs
        self.reads_pictures = self._features is None

    def encode_images(self, items: Sequence[ImageItem]) -> Encoded:
        """``embedding`` (N, D) float32; AnnotatorError where an image has no features or no readable file."""
        if self._features is not None:
            self._features.require(items)
        return super().encode_images(items)

    def _read_image(self, item: ImageItem) -> Inputs:
        if self._features is not None:
            return {"regions": self._features.read(item)}
        extractor = self._networks[0].config.extractor
        assert extractor is not None
        return {"regions": pixels.imagenet_pixels(item, extractor.image_size)}

    def _tokens(self, item: CaptionItem) -> Inputs:
        return {"tokens": self._vocabulary.encode(item.text)}

    def _encode_images(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return self._mean([network.images(inputs["regions"]) for network in self._networks])

    def _encode_captions(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        tokens = inputs["tokens"]
        lengths = torch.full((len(tokens),), tokens.shape[1], device=tokens.device)
        return self._mean([network.captions(tokens, lengths) for network in self._networks])

    def _mean(self, sides: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        joined = torch.cat([side["embedding"] for side in sides], 1)
        return {"embedding": joined / math.sqrt(len(sides))}


def build(options: Options) -> VsrnAnnotator:
    """The annotator of the settings ``weights`` (a path, or two), ``vocabulary`` and ``features``.

    Further settings: ``feature_ids``, ``device``, ``threads``, ``batch``. Weights of ours bring their vocabulary,
    and their extractor where they have one.
    """
    options.only("weights", "vocabulary", "features", "feature_ids", "device", "threads", "batch")
    caption_words.require_nltk()
    running = Running.of(options, batch=BATCH)
    paths = _weights(options)
    trained = [load(path) for path in paths]
    vocabulary = _vocabulary(options, paths, trained)
    features = _features(options, trained)
    digest = fingerprint(
        network=NETWORK,
        weights=[file_sha256(path) for path in paths],
        vocabulary=vocabulary.fingerprint,
        tokens=caption_words.VERSION,
        images=features.fingerprint if features else pixels.VERSION,
    )
    networks = [each.network for each in trained]
    return VsrnAnnotator(options.annotator, digest, networks, (vocabulary, features), running)


def _weights(options: Options) -> list[Path]:
    given = options.values.get("weights")
    if given is None:
        raise AnnotatorError(
            f"annotator {options.annotator!r} needs the setting 'weights': model_coco_1.pth.tar, or a list of it and "
            "model_coco_2.pth.tar, whose similarities are averaged"
        )
    several = given if isinstance(given, list | tuple) else [given]
    if not 1 <= len(several) <= 2:
        raise AnnotatorError(
            f"'weights' of annotator {options.annotator!r} lists {len(several)} files; it should be one, "
            "or two whose similarities are averaged"
        )
    return [options.existing("weights", path) for path in several]


def _vocabulary(options: Options, paths: Sequence[Path], trained: Sequence[Trained]) -> Vocabulary:
    """The words of the setting, or of the weights; AnnotatorError where they do not fit all of the weights."""
    held = [each.vocabulary for each in trained if each.vocabulary is not None]
    if "vocabulary" in options.values:
        held.insert(0, read_vocabulary(options.path("vocabulary")))
    if not held:
        raise AnnotatorError(
            f"annotator {options.annotator!r} needs the setting 'vocabulary': the file coco_precomp_vocab.pkl "
            "that was released with the weights, which do not hold their words"
        )
    for path, each in zip(paths, trained, strict=True):
        held[0].require_size(each.network.config.words, path)
    if any(other.words != held[0].words for other in held):
        raise AnnotatorError(
            f"the weights of annotator {options.annotator!r} bring their words, and 'vocabulary' or the other weights "
            "have others; leave 'vocabulary' out, or take weights that were trained with the same words"
        )
    return held[0]


def _features(options: Options, trained: Sequence[Trained]) -> RegionFeatures | None:
    """The features of the setting; None where the weights make their regions from pixels."""
    config = trained[0].network.config
    for other in (each.network.config for each in trained):
        if other.reads != config.reads:
            raise AnnotatorError(
                f"the two weights of annotator {options.annotator!r} read different things, {config.reads} and "
                f"{other.reads}"
            )
    given = [key for key in ("features", "feature_ids") if key in options.values]
    if config.extractor is not None:
        if given:
            raise AnnotatorError(
                f"the weights of annotator {options.annotator!r} make their regions from pixels; leave out {given[0]!r}"
            )
        return None
    if "features" not in options.values:
        raise AnnotatorError(
            f"annotator {options.annotator!r} needs the setting 'features', the {config.reads} of each image "
            f"as .npy, a folder or the tsv of origin; {NO_EXTRACTOR}"
        )
    ids = options.path("feature_ids") if "feature_ids" in options.values else None
    return open_regions(options.path("features"), ids, (config.regions, config.region_width))

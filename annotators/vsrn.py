"""VSRN as a machine annotator: the released checkpoints or weights of ours over features of regions.

Source: Li et al., Visual semantic reasoning for image-text matching, ICCV 2019. ``networks.vsrn`` is the network.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from annotators.base import Encoded
from annotators.checkpoints.vsrn_layouts import NETWORK, Trained, load
from annotators.devices import Running
from annotators.encoding import Inputs, NetworkAnnotator
from annotators.fingerprint import file_sha256, fingerprint
from annotators.inputs import pixels
from annotators.inputs import tokens as caption_words
from annotators.inputs.regions import NO_EXTRACTOR, RegionFeatures, open_regions
from annotators.inputs.vocabularies import Vocabulary, read_vocabulary
from annotators.networks.vsrn import Vsrn
from annotators.options import Options
from mitl.errors import AnnotatorError
from mitl.records import CaptionItem, ImageItem

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

    def _read_caption(self, item: CaptionItem) -> Inputs:
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
    networks = [one.network for one in trained]
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
    found = [one.vocabulary for one in trained if one.vocabulary is not None]
    if "vocabulary" in options.values:
        found.insert(0, read_vocabulary(options.path("vocabulary")))
    if not found:
        raise AnnotatorError(
            f"annotator {options.annotator!r} needs the setting 'vocabulary': the file coco_precomp_vocab.pkl "
            "that was released with the weights, which do not hold their words"
        )
    for path, one in zip(paths, trained, strict=True):
        found[0].require_size(one.network.config.words, path)
    if any(other.words != found[0].words for other in found):
        raise AnnotatorError(
            f"the weights of annotator {options.annotator!r} bring their words, and 'vocabulary' or the other weights "
            "have others; leave 'vocabulary' out, or take weights that were trained with the same words"
        )
    return found[0]


def _features(options: Options, trained: Sequence[Trained]) -> RegionFeatures | None:
    """The features of the setting; None where the weights make their regions from pixels."""
    config = trained[0].network.config
    for other in (one.network.config for one in trained):
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

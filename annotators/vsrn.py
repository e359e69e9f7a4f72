"""VSRN as a machine annotator: the released checkpoints or weights of ours over features of regions.

Source: Li et al., Visual semantic reasoning for image-text matching, ICCV 2019. ``networks.vsrn`` is the network.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from annotators.base import Encoded
from annotators.checkpoints.checkpoint import (
    OURS,
    Checkpoint,
    Examination,
    compare,
    load_strictly,
    read_checkpoint,
)
from annotators.devices import device_of
from annotators.encoding import Inputs, encode_in_batches
from annotators.fingerprint import file_sha256, fingerprint
from annotators.inputs import pixels
from annotators.inputs import tokens as caption_words
from annotators.inputs.region_files import open_regions
from annotators.inputs.regions import NO_EXTRACTOR, RegionFeatures
from annotators.inputs.vocabularies import Vocabulary, read_vocabulary
from annotators.networks.vsrn import Vsrn, VsrnConfig
from annotators.options import Options
from annotators.scoring.similarity import inner_products
from mitl.errors import AnnotatorError
from mitl.records import AnnotatorKind, CaptionItem, ImageItem

NETWORK = "vsrn"


@dataclass(frozen=True, slots=True)
class Trained:
    """A network with its weights, and the words it knows where the file says them."""

    network: Vsrn
    vocabulary: Vocabulary | None


_PLACES = {"0.": "img_enc.", "1.": "txt_enc."}
"""The released files hold a list of two state dicts: its places -> whose weights they are."""

_TRAINED_WITH = {"no_imgnorm": False, "use_abs": False, "measure": "cosine", "num_layers": 1}
"""Options of the training script that would change the computation, at the values that are computed here."""


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
    with torch.device("meta"):
        network = Vsrn(config)
    load_strictly(
        network, {_own_name(name): t for name, t in checkpoint.tensors.items()}, _examined(checkpoint, config)
    )
    text = checkpoint.values.get("vocabulary")
    vocabulary = Vocabulary.from_text(text, repr(str(path))) if isinstance(text, str) else None
    return Trained(network.eval(), vocabulary)


def _own_name(name: str) -> str:
    return _PLACES.get(name[:2], name[:2]) + name[2:]


def _released_name(name: str) -> str:
    place = next(place for place, encoder in _PLACES.items() if name.startswith(encoder))
    return place + name.removeprefix(_PLACES[place])


def _config_of(checkpoint: Checkpoint) -> VsrnConfig:
    """The configuration that a file states, or that its shapes and names show; the released one where they do not."""
    if checkpoint.values.get("format") == OURS:
        if checkpoint.values.get("network") != NETWORK:
            raise AnnotatorError(
                f"{str(checkpoint.path)!r} holds {checkpoint.values.get('network')!r}; it should hold {NETWORK!r}"
            )
        try:
            return VsrnConfig.from_json(str(checkpoint.values.get("config")))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise AnnotatorError(
                f"{str(checkpoint.path)!r} has no readable 'config' of {NETWORK}: {error}"
            ) from error
    shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}
    config = VsrnConfig(flickr="0.bn.weight" in shapes)
    table, projection = shapes.get("1.embed.weight", ()), shapes.get("0.fc.weight", ())
    if len(table) == 2:
        config = replace(config, words=table[0], word_width=table[1])
    if len(projection) == 2:
        config = replace(config, width=projection[0], region_width=projection[1])
    return config


def _examined(checkpoint: Checkpoint, config: VsrnConfig) -> Examination:
    ours = checkpoint.values.get("format") == OURS
    with torch.device("meta"):
        shapes = {name: tuple(t.shape) for name, t in Vsrn(config).state_dict().items()}
    expected = shapes if ours else {_released_name(name): shape for name, shape in shapes.items()}
    found = compare(
        NETWORK, checkpoint, expected, what=_what(config, ours), settings=_settings(checkpoint, config)
    )
    problems = (*found.problems, *_strange_options(checkpoint.values.get("opt")))
    return replace(found, problems=problems, what=found.what if found.matched else "no weights of VSRN")


def _what(config: VsrnConfig, ours: bool) -> str:
    trained_on = "" if ours else " for Flickr30k" if config.flickr else " for COCO"
    return f"VSRN{trained_on}: {config.blocks} graph blocks over {config.reads}, {config.words:,} words"


def _settings(checkpoint: Checkpoint, config: VsrnConfig) -> dict[str, object]:
    stated = {key: checkpoint.values[key] for key in ("epoch", "best_rsum") if key in checkpoint.values}
    return {
        "words": config.words,
        "width": config.width,
        "blocks": config.blocks,
        "flickr": config.flickr,
        **stated,
    }


def _strange_options(opt: object) -> list[str]:
    stated = opt if isinstance(opt, Mapping) else {}
    return [
        f"it was trained with {key} = {stated[key]!r}, which changes the computation; known is {right!r}"
        for key, right in _TRAINED_WITH.items()
        if key in stated and stated[key] != right
    ]


class VsrnAnnotator:
    """One or two networks over one set of regions; two average their similarities, as the published figures do.

    The mean of two inner products is one inner product, of both embeddings side by side divided by the square root
    of two, so two networks are searched exactly like one.
    """

    kind = AnnotatorKind.INNER_PRODUCT
    reusable_encodings = True

    def __init__(
        self,
        name: str,
        networks: Sequence[Vsrn],
        vocabulary: Vocabulary,
        features: RegionFeatures | None,
        digest: str,
        *,
        device: torch.device,
        threads: int,
        batch: int,
    ) -> None:
        self.name, self.fingerprint = name, digest
        self._networks = [network.to(device) for network in networks]
        self.reads_pictures = features is None
        self._vocabulary, self._features = vocabulary, features
        self._device, self._threads, self._batch = device, threads, batch

    def encode_images(self, items: Sequence[ImageItem]) -> Encoded:
        """``embedding`` (N, D) float32; AnnotatorError where an image has no features or no readable file."""
        if self._features is not None:
            self._features.require(items)

        def encode(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
            return self._mean([network.images(inputs["regions"]) for network in self._networks])

        return encode_in_batches(
            "image",
            items,
            self._read_image,
            encode,
            batch=self._batch,
            device=self._device,
            threads=self._threads,
        )

    def encode_captions(self, items: Sequence[CaptionItem]) -> Encoded:
        """``embedding`` (N, D) float32."""

        def read(item: CaptionItem) -> Inputs:
            return {"tokens": self._vocabulary.encode(item.text)}

        def encode(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
            tokens = inputs["tokens"]
            lengths = torch.full((len(tokens),), tokens.shape[1], device=tokens.device)
            return self._mean([network.captions(tokens, lengths) for network in self._networks])

        return encode_in_batches(
            "caption",
            items,
            read,
            encode,
            batch=self._batch,
            device=self._device,
            threads=self._threads,
        )

    def similarities(self, queries: Encoded, gallery: Encoded) -> NDArray[np.float32]:
        """(Q, G) cosines, or means of two cosines."""
        return inner_products(queries.arrays["embedding"], gallery.arrays["embedding"])

    def _read_image(self, item: ImageItem) -> Inputs:
        if self._features is not None:
            return {"regions": self._features.read(item)}
        extractor = self._networks[0].config.extractor
        assert extractor is not None
        return {"regions": pixels.imagenet_pixels(item, extractor.image_size)}

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
    device, threads = device_of(options), options.whole("threads", torch.get_num_threads())
    batch = options.whole("batch", 64)
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
    return VsrnAnnotator(
        options.annotator,
        [one.network for one in trained],
        vocabulary,
        features,
        digest,
        device=device,
        threads=threads,
        batch=batch,
    )


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

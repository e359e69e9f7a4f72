"""Weights files of VSRN: the released layouts and ours.

Source: Li et al., Visual semantic reasoning for image-text matching, ICCV 2019. ``networks.vsrn`` is the network.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from annotators.checkpoints.checkpoint import (
    OURS,
    Checkpoint,
    Examination,
    compare,
    contradictions,
    load_strictly,
    options_of,
    read_checkpoint,
)
from annotators.inputs.vocabularies import Vocabulary
from annotators.networks.vsrn import Vsrn, VsrnConfig
from mitl.errors import AnnotatorError

NETWORK = "vsrn"


@dataclass(frozen=True, slots=True)
class Trained:
    """A network with its weights, and the words it knows where the file says them."""

    network: Vsrn
    vocabulary: Vocabulary | None


_PLACES = {"0.": "img_enc.", "1.": "txt_enc."}
"""The released files hold a list of two state dicts: its places -> whose weights they are."""

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
    problems = (*found.problems, *_strange_options(checkpoint.values.get("opt"), config))
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

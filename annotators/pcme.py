"""PCME as a machine annotator: the released checkpoints or weights of ours, and the probability of a match.

Source: Chun et al., Probabilistic embeddings for cross-modal retrieval, CVPR 2021. ``networks.pcme`` is the network.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from annotators.checkpoints.checkpoint import (
    OURS,
    Checkpoint,
    Examination,
    compare,
    contradictions,
    load_strictly,
    options_of,
    read_checkpoint,
    shapes_of,
    without_memory,
)
from annotators.checkpoints.plain_values import in_short
from annotators.devices import Running
from annotators.dual_encoders import (
    BACKBONE_HEAD,
    BATCH,
    Ready,
    computed_with,
    config_of,
    held_vocabulary,
    preprocessing,
    vocabulary_of,
)
from annotators.fingerprint import file_sha256, fingerprint
from annotators.inputs.vocabularies import Vocabulary
from annotators.networks.pcme import INITIAL, Pcme, PcmeConfig
from annotators.options import Options
from annotators.scoring import sampling
from annotators.scoring.match_shortlist import COUNT
from annotators.scoring.pcme import (
    SAMPLES,
    ClosedFormPcme,
    Odds,
    PcmeAnnotator,
    SampledPcme,
    ShortlistedPcme,
)
from mitl.errors import AnnotatorError

NETWORK = "pcme"
_ODDS = ("shift", "negative_scale")
_CRITERION = "criterion."
"""Before the names of the criterion's parameters in a file of ours."""


@dataclass(frozen=True, slots=True)
class Trained:
    """A network with its weights, and what else the file says."""

    network: Pcme
    odds: Odds | None
    """None where the file holds the network's state alone."""
    vocabulary: Vocabulary | None
    samples: int = SAMPLES
    """Of an item, as the file was trained."""


def examine(path: Path) -> Examination:
    """Hold a weights file against PCME; AnnotatorError where it is no weights file at all."""
    checkpoint = read_checkpoint(path)
    return _examined(checkpoint, without_memory(Pcme, config_of(checkpoint, NETWORK, PcmeConfig)))


def load(path: Path) -> Trained:
    """The network of a released checkpoint, of its bare state dict, or of a safetensors file of ours.

    Raises:
        AnnotatorError: unreadable, or any key is missing, left over, of another shape or not finite.
    """
    checkpoint = read_checkpoint(path)
    network = without_memory(Pcme, config_of(checkpoint, NETWORK, PcmeConfig))
    examination = _examined(checkpoint, network)
    weights = {name: t for name, t in checkpoint.tensors.items() if not name.startswith(_CRITERION)}
    load_strictly(network, weights, examination)
    samples = _stated(checkpoint).get("n_samples_inference", SAMPLES)
    return Trained(network.eval(), _odds(checkpoint), held_vocabulary(checkpoint), samples)


def _examined(checkpoint: Checkpoint, network: Pcme) -> Examination:
    config = network.config
    expected = shapes_of(network.state_dict())
    if checkpoint.values.get("format") == OURS:
        expected |= {_CRITERION + name: (1,) for name in _ODDS}
    try:
        odds, problems = _odds(checkpoint), []
    except AnnotatorError as error:
        odds, problems = None, [str(error)]
    what = f"PCME, {config.words:,} words"
    if odds is None and not problems:
        what += f", without the criterion (set {' and '.join(map(repr, _ODDS))})"
    settings = {
        "words": config.words,
        "embed": config.embed,
        "shift": odds and odds.shift,
        "negative_scale": odds and odds.negative_scale,
        "word2idx": isinstance(checkpoint.values.get("word2idx"), Mapping),
    }
    examination = compare(NETWORK, checkpoint, expected, what=what, ignored=BACKBONE_HEAD, settings=settings)
    problems += _strange_options(checkpoint, config)
    return examination.with_problems(problems, otherwise="no weights of PCME")


def _stated(checkpoint: Checkpoint) -> Mapping[str, Any]:
    """The options of the network beside released weights."""
    return options_of(options_of(checkpoint.values.get("config")).get("model"))


def _strange_options(checkpoint: Checkpoint, config: PcmeConfig) -> Iterator[str]:
    stated, computed = _stated(checkpoint), computed_with(config)
    # eval_method does not count: the released files say matmul, of validation, and were published by matching_prob.
    yield from contradictions(
        stated, {**computed, "embed_dim": config.embed, "img_probemb": True, "txt_probemb": True}
    )
    yield from contradictions(options_of(checkpoint.values.get("config")).get("dataloader"), computed)
    samples = stated.get("n_samples_inference", SAMPLES)
    if not isinstance(samples, int) or isinstance(samples, bool) or samples < 1:
        yield (
            f"it was trained with n_samples_inference = {in_short(samples)}, so that nothing is drawn from its "
            "Gaussians; known are whole numbers from 1"
        )


def _odds(checkpoint: Checkpoint) -> Odds | None:
    """The criterion's parameters beside the weights; None where the file has no criterion at all."""
    criterion = checkpoint.values.get("criterion")
    if checkpoint.values.get("format") == OURS:
        criterion = {name: checkpoint.tensors.get(_CRITERION + name) for name in _ODDS}
    if criterion is None:
        return None
    parameters = criterion if isinstance(criterion, Mapping) else {}
    numbers = {name.removeprefix("module."): _number(value) for name, value in parameters.items()}
    for name in _ODDS:
        if numbers.get(name) is None:
            raise AnnotatorError(f"its criterion holds no finite number {name!r}")
    return Odds(*(numbers[name] or 0.0 for name in _ODDS))


def _number(value: object) -> float | None:
    """A finite number, given as such or as a tensor of one; None for anything else."""
    if isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex():
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def build(options: Options) -> PcmeAnnotator:
    """The annotator of the setting ``weights``, and ``vocabulary`` where the weights do not hold their words.

    ``similarity`` is ``sampled`` (default; with ``samples``, by default as in training, 7, and ``seed``, 0) or
    ``closed_form``. Sampled ones are
    searched by ``search``: ``exact`` (default) or ``shortlist`` (with ``shortlist``, 100 items). ``shift`` and
    ``negative_scale`` go before those of the weights, and must be given where these have none. Further settings:
    ``device``, ``threads``, ``batch``.
    """
    options.only(
        *("weights", "vocabulary", "similarity", "samples", "seed", "search", "shortlist"),
        *(*_ODDS, "device", "threads", "batch"),
    )
    similarity = options.text("similarity", "sampled", choices=("sampled", "closed_form"))
    search = options.text("search", "exact", choices=("exact", "shortlist"))
    _require_meaning(options, similarity, search)
    running = Running.of(options, batch=BATCH)
    path = options.path("weights")
    trained = load(path)
    odds = _chosen_odds(options, trained.odds)
    vocabulary = vocabulary_of(options, trained.vocabulary, trained.network.config.words)
    ways: dict[str, object] = {"similarity": similarity}
    count = options.whole("shortlist", COUNT)
    samples, seed = options.whole("samples", trained.samples), options.whole("seed", 0, least=0)
    if similarity == "sampled":
        ways |= {"samples": samples, "seed": seed, "noise": sampling.VERSION}
    encoding = fingerprint(
        network=NETWORK,
        weights=file_sha256(path),
        vocabulary=vocabulary.fingerprint,
        **ways,
        **preprocessing(),
    )
    searched = {"shortlist": count} if search == "shortlist" else {}
    digest = fingerprint(encoding=encoding, odds=[odds.shift, odds.negative_scale], **searched)
    network = trained.network.to(running.device)
    ready = Ready(options.annotator, digest, network, vocabulary, running)
    annotator: PcmeAnnotator
    if similarity == "closed_form":
        annotator = ClosedFormPcme(ready, odds)
    elif search == "exact":
        annotator = SampledPcme(ready, odds, samples=samples, seed=seed)
    else:
        annotator = ShortlistedPcme(ready, odds, samples=samples, seed=seed, shortlist=count)
    annotator.encoding_fingerprint = encoding
    return annotator


def _require_meaning(options: Options, similarity: str, search: str) -> None:
    """Raise AnnotatorError for a setting that would do nothing beside the others."""
    idle = {
        **dict.fromkeys(("samples", "seed", "search"), ("similarity", "sampled", similarity)),
        "shortlist": ("search", "shortlist", search),
    }
    for key, (other, needed, found) in idle.items():
        if key in options.values and found != needed:
            raise AnnotatorError(
                f"{key!r} of annotator {options.annotator!r} means nothing with {other} = {found!r}; "
                f"leave it out or set {other} = {needed!r}"
            )


def _chosen_odds(options: Options, learned: Odds | None) -> Odds:
    given = {name: options.values[name] for name in _ODDS if name in options.values}
    for name, value in given.items():
        if _number(value) is None:
            raise AnnotatorError(
                f"{name!r} of annotator {options.annotator!r} is {value!r}; it should be a number"
            )
    if learned is None and len(given) < len(_ODDS):
        missing = next(name for name in _ODDS if name not in given)
        raise AnnotatorError(
            f"annotator {options.annotator!r} needs the setting {missing!r}: {str(options.path('weights'))!r} holds a "
            f"network without its criterion, whose learned 'shift' and 'negative_scale' decide the ranking (training "
            f"starts both from {INITIAL:g})"
        )
    shift, scale = (_number(given[name] if name in given else getattr(learned, name)) for name in _ODDS)
    assert shift is not None and scale is not None, "checked above"
    return Odds(shift, scale)

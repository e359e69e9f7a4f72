"""PCME as a machine annotator: the released checkpoints or weights of ours, and the probability of a match.

Source: Chun et al., Probabilistic embeddings for cross-modal retrieval, CVPR 2021, sections 3.1.2 and 3.2.3: three
ways to say how probably two Gaussians match, by samples, by samples of a shortlist, in closed form. Parameters bear
the names of the released weights.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from annotators.base import Encoded, Ranking, file_sha256, fingerprint
from annotators.checkpoints.checkpoint import (
    OURS,
    Checkpoint,
    Examination,
    Weights,
    config_of,
    contradictions,
    options_of,
    read_checkpoint,
)
from annotators.checkpoints.pickles import in_short
from annotators.devices import Running
from annotators.dual_encoders import (
    BACKBONE_HEAD,
    BATCH,
    AttentionPooling,
    DualEncoder,
    Pie,
    Ready,
    ResNet,
    SentenceGru,
    Trained,
    cells_of,
    computed_with,
    held_vocabulary,
    padding_of,
    preprocessing,
    vocabulary_of,
    xavier,
)
from annotators.match_probability import (
    EPSILON,
    NOISE_VERSION,
    Odds,
    SampleSet,
    closed_form_probabilities,
    match_probabilities,
    noise,
    samples,
)
from annotators.match_shortlist import COUNT, MeasuredShortlist, ShortlistSearch
from annotators.options import Options
from annotators.sizes import PCME_SAMPLES, PcmeConfig
from mitl.errors import AnnotatorError
from mitl.progress import Progress
from mitl.records import AnnotatorKind, CaptionItem, ImageItem

INITIAL = 15.0
"""Where ``shift`` and ``negative_scale`` start in training on COCO."""


class ImageUncertainty(nn.Module):
    """The log-sigma of a picture: attention of its own over the cells, and the cells' mean; both linear."""

    def __init__(self, channels: int, embed: int) -> None:
        super().__init__()
        self.attention = AttentionPooling(channels, 1)
        self.fc = nn.Linear(channels, embed)
        self.fc2 = nn.Linear(channels, embed)
        xavier(self.fc)
        xavier(self.fc2)

    def forward(self, mean: Tensor, cells: Tensor) -> Tensor:
        """(B, D) and (B, L, D) -> (B, embed)."""
        log_sigma: Tensor = self.fc(self.attention(cells)[:, 0]) + self.fc2(mean)
        return log_sigma


class TextUncertainty(nn.Module):
    """The log-sigma of a caption: attention of its own over the words, and a recurrent network of its own."""

    def __init__(self, word: int, embed: int) -> None:
        super().__init__()
        self.attention = AttentionPooling(word, 1)
        self.fc = nn.Linear(word, embed)
        self.rnn = SentenceGru(word, embed)
        xavier(self.fc)

    def forward(self, words: Tensor, lengths: Tensor, padding: Tensor) -> Tensor:
        """(B, L, word), (B,) and (B, L) -> (B, embed)."""
        attended = self.attention(words, padding)[:, 0]
        log_sigma: Tensor = self.fc(attended) + self.rnn.last_position(words, lengths)
        return log_sigma


class PcmeImages(nn.Module):
    """A picture's cells to the mean and the log-sigma of its Gaussian."""

    def __init__(self, config: PcmeConfig) -> None:
        super().__init__()
        self.cnn = ResNet(config.blocks, config.width)
        self.fc = nn.Linear(self.cnn.channels, config.embed)
        self.pie_net = Pie(self.cnn.channels, config.embed, 1)
        self.uncertain_net = ImageUncertainty(self.cnn.channels, config.embed)
        xavier(self.fc)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """(B, 3, S, S) -> means (B, embed) of length 1 and log-sigmas (B, embed)."""
        grid = self.cnn(pixels)  # (B, D, 7, 7)
        pooled, cells = grid.mean((2, 3)), cells_of(grid)
        mean = self.pie_net(self.fc(pooled), cells)[:, 0]
        return F.normalize(mean, dim=-1), self.uncertain_net(pooled, cells)


class PcmeCaptions(nn.Module):
    """A caption's words to the mean and the log-sigma of its Gaussian."""

    def __init__(self, config: PcmeConfig) -> None:
        super().__init__()
        self.embed = nn.Embedding(config.words, config.word)
        self.rnn = SentenceGru(config.word, config.embed)
        self.pie_net = Pie(config.word, config.embed, 1)
        self.uncertain_net = TextUncertainty(config.word, config.embed)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)

    def forward(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """(B, L) and (B,) -> means (B, embed) of length 1 and log-sigmas (B, embed)."""
        words = self.embed(tokens)  # (B, L, word)
        padding = padding_of(lengths.to(words.device), words.shape[1])
        mean = self.pie_net(self.rnn.last_position(words, lengths), words, padding)[:, 0]
        return F.normalize(mean, dim=-1), self.uncertain_net(words, lengths, padding)


class Pcme(nn.Module):
    """Both encoders; ``MatchProbability`` compares what they give."""

    def __init__(self, config: PcmeConfig) -> None:
        super().__init__()
        self.config = config
        self.img_enc = PcmeImages(config)
        self.txt_enc = PcmeCaptions(config)

    def images(self, image: Tensor) -> dict[str, Tensor]:
        """``mean`` and ``log_sigma`` (B, D) of pixels (B, 3, S, S)."""
        mean, log_sigma = self.img_enc(image)
        return {"mean": mean, "log_sigma": log_sigma}

    def captions(self, tokens: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """``mean`` and ``log_sigma`` (B, D) of captions (B, L) int64 of lengths (B,), padded with anything."""
        mean, log_sigma = self.txt_enc(tokens, lengths)
        return {"mean": mean, "log_sigma": log_sigma}


class MatchProbability(nn.Module):
    """The learned odds of a match by distance, the criterion's two parameters; trainable.

    To rank, ``match_probabilities`` gives the same numbers far faster.
    Source: section 3.1.2; the factor 2 and the 1e-6 as in its code (criterions/probemb.py).
    """

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.full((1,), INITIAL))
        self.negative_scale = nn.Parameter(torch.full((1,), INITIAL))

    def half_log_odds(self, left: Tensor, right: Tensor) -> Tensor:
        """(Q, G, S, T) of samples (Q, S, D) and (G, T, D): shift - negative_scale d."""
        squares = left.square().sum(-1)[:, None, :, None] + right.square().sum(-1)[None, :, None]
        products = torch.einsum("qsd,gtd->qgst", left, right)
        distance = ((squares - 2 * products).clamp(min=0) + EPSILON).sqrt()
        return self.shift - self.negative_scale * distance

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """(Q, G) probabilities: the mean over all pairs of samples."""
        return torch.sigmoid(2 * self.half_log_odds(left, right)).mean((2, 3))


TRAINING_SAMPLES = 4
"""Samples an item that its own loss draws."""


def drawn_samples(gaussians: Mapping[str, Tensor], noise: Generator) -> Tensor:
    """(B, S, D) samples in float32 of ``mean`` and ``log_sigma`` (B, D), with gradients."""
    mean, sigma = gaussians["mean"].float()[:, None], gaussians["log_sigma"].float().exp()[:, None]
    drawn = torch.randn(len(mean), TRAINING_SAMPLES, mean.shape[2], generator=noise)
    return mean + sigma * drawn.to(mean.device)


logger = logging.getLogger(__name__)


class PcmeAnnotator(DualEncoder[Pcme]):
    """Two Gaussians match with a probability; what is kept of them, and how it is computed, says the subclass."""

    kind = AnnotatorKind.PROBABILITY

    def __init__(self, ready: Ready[Pcme], odds: Odds) -> None:
        super().__init__(ready)
        self.odds = odds
        self.encoding_fingerprint = ready.fingerprint
        """Of what the Gaussians and their samples depend on: not on how they are compared and searched."""


class SampledPcme(PcmeAnnotator):
    """The probability averaged over all pairs of samples, as the paper ranks.

    Encoded are ``samples`` (N, S, D), their ``squares`` (N, S), the squared lengths, and their ``mean`` (N, D). An
    item's noise depends on the seed and the item alone (``noise``), not on what else is encoded.
    """

    def __init__(self, ready: Ready[Pcme], odds: Odds, *, samples: int, seed: int) -> None:
        super().__init__(ready, odds)
        self.samples, self.seed = samples, seed

    def similarities(self, queries: Encoded, gallery: Encoded) -> NDArray[np.float32]:
        """(Q, G) probabilities from 0 to 1."""
        return match_probabilities(
            sample_set(queries),
            sample_set(gallery),
            self.odds,
            device=self._running.device,
            threads=self._running.threads,
        )

    def _kept(self, gaussians: Encoded, items: Sequence[ImageItem] | Sequence[CaptionItem]) -> Encoded:
        external_ids = [item.external_id for item in items]
        mean, log_sigma = gaussians.arrays["mean"], gaussians.arrays["log_sigma"]
        drawn_noise = noise(self.seed, gaussians.modality, external_ids, self.samples, mean.shape[1])
        drawn = SampleSet.of(samples(mean, log_sigma, drawn_noise))
        _require_finite(drawn.squares, gaussians.modality, external_ids)
        arrays = {"samples": drawn.samples, "squares": drawn.squares, "mean": drawn.mean}
        return Encoded(gaussians.modality, gaussians.ids, arrays)


class ShortlistedPcme(SampledPcme):
    """The same probabilities, computed for each query's shortlist alone (``match_shortlist``)."""

    def __init__(self, ready: Ready[Pcme], odds: Odds, *, samples: int, seed: int, shortlist: int) -> None:
        super().__init__(ready, odds, samples=samples, seed=seed)
        self.shortlist = shortlist
        self.measured: MeasuredShortlist | None = None
        """How much of the exact top k the shortlists of the last search held, on a sample of its queries."""

    def top_k(
        self, queries: Encoded, gallery: Encoded, k: int, *, block_bytes: int, progress: Progress
    ) -> Ranking:
        """Each query's ``k`` most probable matches; equal probabilities go to the smaller id.

        The shortlist is doubled until it holds 0.999 of the exact top k of a random sample of the queries.
        """
        left, right = sample_set(queries), sample_set(gallery)
        for side, encoded in ((left, queries), (right, gallery)):
            _require_finite(side.squares, encoded.modality, encoded.ids.tolist())
        search = ShortlistSearch(left, right, k, self.odds)
        self.measured = search.measured(self.shortlist, seed=self.seed)
        logger.info("%s: %s", self.name, self.measured)
        positions, probabilities = search.exact(
            self.measured.count,
            block_bytes=block_bytes,
            threads=self._running.threads,
            progress=progress,
        )
        return Ranking(np.asarray(queries.ids, np.int64), gallery.ids[positions], probabilities)


class ClosedFormPcme(PcmeAnnotator):
    """The probability at the expected distance of two samples, on means and variances alone; not the paper's.

    Encoded are ``mean`` (N, D) and ``spread`` (N,), the sum of an item's variances.
    """

    def similarities(self, queries: Encoded, gallery: Encoded) -> NDArray[np.float32]:
        """(Q, G) probabilities from 0 to 1."""
        left, right = queries.arrays, gallery.arrays
        return closed_form_probabilities(
            left["mean"], left["spread"], right["mean"], right["spread"], self.odds
        )

    def _kept(self, gaussians: Encoded, items: Sequence[ImageItem] | Sequence[CaptionItem]) -> Encoded:
        with np.errstate(over="ignore"):
            spread = np.exp(2 * gaussians.arrays["log_sigma"].astype(np.float64)).sum(1).astype(np.float32)
        _require_finite(spread[:, None], gaussians.modality, [item.external_id for item in items])
        return Encoded(
            gaussians.modality, gaussians.ids, {"mean": gaussians.arrays["mean"], "spread": spread}
        )


def sample_set(encoded: Encoded) -> SampleSet:
    """The samples that ``SampledPcme`` encoded."""
    return SampleSet(encoded.arrays["samples"], encoded.arrays["squares"], encoded.arrays["mean"])


def _require_finite(numbers: NDArray[np.float32], modality: str, ids: Sequence[str] | Sequence[int]) -> None:
    bad = np.flatnonzero(~np.isfinite(numbers).all(1))
    if len(bad):
        raise AnnotatorError(
            f"the Gaussian of {modality} {ids[bad[0]]!r} is too wide to be computed with; "
            "check the weights, or encode again"
        )


NETWORK = "pcme"
_ODDS = ("shift", "negative_scale")
_CRITERION = "criterion."
"""Before the names of the criterion's parameters in a file of ours."""


@dataclass(frozen=True, slots=True)
class TrainedPcme(Trained[Pcme]):
    """And what else the file says."""

    odds: Odds | None
    """None where the file holds the network's state alone."""
    samples: int
    """Of an item, as the file was trained."""


def examine(path: Path) -> Examination:
    """Compare a weights file with PCME; AnnotatorError where it is not a weights file at all."""
    return _weights(path).examination


def load(path: Path) -> TrainedPcme:
    """The network of a released checkpoint, of its bare state dict, or of a safetensors file of ours.

    Raises:
        AnnotatorError: unreadable, or any key is missing, left over, of another shape or not finite.
    """
    weights = _weights(path)
    network, checkpoint = weights.load(), weights.checkpoint
    samples = _stated(checkpoint).get("n_samples_inference", PCME_SAMPLES)
    return TrainedPcme(network, held_vocabulary(checkpoint), _odds(checkpoint), samples)


def _weights(path: Path) -> Weights[Pcme]:
    checkpoint = read_checkpoint(path)
    config = config_of(checkpoint, NETWORK, PcmeConfig())
    ours = checkpoint.values.get("format") == OURS
    problems: list[str] = []
    try:
        odds = _odds(checkpoint)
    except AnnotatorError as error:
        odds, problems = None, [str(error)]
    what = f"PCME, {config.words:,} words"
    if odds is None and not problems:
        what += f", without the criterion (set {' and '.join(map(repr, _ODDS))})"
    return Weights(
        NETWORK,
        checkpoint,
        lambda: Pcme(config),
        what=what,
        settings={
            "words": config.words,
            "embed": config.embed,
            "shift": odds and odds.shift,
            "negative_scale": odds and odds.negative_scale,
            "word2idx": isinstance(checkpoint.values.get("word2idx"), Mapping),
        },
        problems=(*problems, *_strange_options(checkpoint, config)),
        ignored=BACKBONE_HEAD,
        otherwise="no weights of PCME",
        beside={_CRITERION + name: (1,) for name in _ODDS} if ours else {},
    )


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
    samples = stated.get("n_samples_inference", PCME_SAMPLES)
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
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
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
    similarity = options.text("similarity", "sampled", choices=("sampled", "closed_form"))
    search = options.text("search", "exact", choices=("exact", "shortlist"))
    _require_meaning(options, similarity, search)
    running = Running.of(options, batch=BATCH)
    path = options.path("weights")
    trained = load(path)
    odds = _chosen_odds(options, trained.odds)
    vocabulary = vocabulary_of(options, {path: trained}, "coco_vocab.pkl")
    ways: dict[str, object] = {"similarity": similarity}
    count = options.whole("shortlist", COUNT)
    samples, seed = options.whole("samples", trained.samples), options.whole("seed", 0, least=0)
    if similarity == "sampled":
        ways |= {"samples": samples, "seed": seed, "noise": NOISE_VERSION}
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
    for key, (other, needed, chosen) in idle.items():
        if key in options.values and chosen != needed:
            raise AnnotatorError(
                f"{key!r} of annotator {options.annotator!r} means nothing with {other} = {chosen!r}; "
                f"leave it out or set {other} = {needed!r}"
            )


def _chosen_odds(options: Options, learned: Odds | None) -> Odds:
    chosen = {name: options.values[name] for name in _ODDS if name in options.values}
    for name, value in chosen.items():
        if _number(value) is None:
            raise AnnotatorError(
                f"{name!r} of annotator {options.annotator!r} is {value!r}; it should be a number"
            )
    if learned is None and len(chosen) < len(_ODDS):
        missing = next(name for name in _ODDS if name not in chosen)
        raise AnnotatorError(
            f"annotator {options.annotator!r} needs the setting {missing!r}: {str(options.path('weights'))!r} holds a "
            f"network without its criterion, whose learned 'shift' and 'negative_scale' decide the ranking (training "
            f"starts both from {INITIAL:g})"
        )
    shift, scale = (_number(chosen[name] if name in chosen else getattr(learned, name)) for name in _ODDS)
    assert shift is not None and scale is not None, "checked above"
    return Odds(shift, scale)

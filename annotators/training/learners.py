"""The five networks as learners, and how one is made of an annotator's settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import Generator, Tensor, nn

from annotators import registry
from annotators.catalog import BEGINNERS, MINIS, NETWORKS
from annotators.dual_encoders import DualEncoder, TwoEncoders
from annotators.encoding import Inputs
from annotators.options import Options
from annotators.pcme import MatchProbability, PcmeAnnotator, drawn_samples
from annotators.towers import TowersLearner
from annotators.training.continuous import graded_contrast, soft_grades
from annotators.training.learner import TEMPERATURE, Learner, Side
from annotators.training.losses import Labels
from annotators.vilt_core import ViltCore
from annotators.vsrn import VsrnAnnotator
from mitl.errors import TrainingError

if TYPE_CHECKING:
    # Both bring transformers, which takes longer to import than the other networks need to begin.
    from annotators.clip import ClipAnnotator
    from annotators.vilt import ViltAnnotator


class WordLearner(Learner):
    """One of the networks that know words by their numbers."""

    def __init__(
        self,
        annotator: DualEncoder[Any],
        options: Options,
        module: Any = None,
        more: Mapping[str, nn.Module] | None = None,
    ) -> None:
        """With the annotator's weights: ``module`` is what learns of its network, all of it by default."""
        self._module: TwoEncoders = module or annotator.network
        super().__init__(annotator, options, {"": cast("nn.Module", self._module), **(more or {})})
        self._vocabulary = annotator.vocabulary

    def images(self, inputs: Sequence[Inputs]) -> Side:
        """As the network keeps them."""
        return self._module.images(self.stacked(inputs, "image"))

    def captions(self, inputs: Sequence[Inputs]) -> Side:
        """As the network keeps them."""
        return self._module.captions(*self.padded(inputs))

    def metadata(self) -> dict[str, str]:
        """Sizes and words."""
        return {
            "config": str(self._module.config.to_json()),
            "vocabulary": self._vocabulary.to_text(),
        }


class PvseLearner(WordLearner):
    """PVSE; its residual network is the backbone."""

    network = "pvse"
    backbone = ("img_enc.cnn.",)

    def compare(self, images: Side, captions: Side) -> Tensor:
        """(I, C) the best of the K x K cosines."""
        one, other = images["embedding"], captions["embedding"]
        if one.ndim == 2:
            return one @ other.T
        return torch.einsum("ikd,cld->ickl", one, other).flatten(2).amax(2)


class VsrnLearner(WordLearner):
    """VSRN; where it makes its regions itself, what makes them is the backbone."""

    network = "vsrn"
    backbone = ("extractor.",)

    def __init__(self, annotator: VsrnAnnotator, options: Options) -> None:
        """With the annotator's weights; TrainingError for two networks whose similarities are averaged."""
        networks = annotator.network.networks
        if len(networks) > 1:
            raise TrainingError(
                f"annotator {annotator.name!r} averages {len(networks)} weights files, and one network learns at a "
                "time; name one file as 'weights' of an annotator of its own and train that"
            )
        super().__init__(annotator, options, networks[0])


class PcmeLearner(WordLearner):
    """PCME; the odds of its criterion learn by its own loss alone, the residual network is the backbone."""

    network = "pcme"
    backbone = ("img_enc.cnn.",)

    def __init__(self, annotator: PcmeAnnotator, options: Options) -> None:
        """With the annotator's weights and odds."""
        self._odds = MatchProbability()
        nn.init.constant_(self._odds.shift, annotator.odds.shift)
        nn.init.constant_(self._odds.negative_scale, annotator.odds.negative_scale)
        super().__init__(annotator, options, more={"criterion.": self._odds})

    def compare(self, images: Side, captions: Side) -> Tensor:
        """(I, C) 1 minus half the expected squared distance of two samples: the cosine of the means, less the spreads.

        The probability of a match falls with that distance, so both rank alike but for the noise of samples.
        """
        spread, other = ((2 * side["log_sigma"]).exp().sum(1) / 2 for side in (images, captions))
        return images["mean"] @ captions["mean"].T - spread[:, None] - other

    def logits(self, similarities: Tensor) -> Tensor:
        """(I, C) log-odds of a match at that distance."""
        distance = ((2 - 2 * similarities).clamp(min=0) + 1e-6).sqrt()
        return 2 * (self._odds.shift - self._odds.negative_scale * distance)

    def loss(self, name: str, images: Side, captions: Side, labels: Labels, noise: Generator) -> Tensor:
        """Its own loss draws samples of both Gaussians; any other reads the similarities."""
        if name != "probabilistic":
            return super().loss(name, images, captions, labels, noise)
        drawn = [drawn_samples(side, noise) for side in (images, captions)]
        grades = soft_grades(labels.relevance)
        loss = graded_contrast(self._odds.half_log_odds(*drawn), grades, labels.known)
        return loss / max(1, labels.matches.shape[1])


class ClipLearner(Learner):
    """CLIP; its projections, last norms and temperature are the head."""

    network = "clip"
    head = (
        "visual_projection.",
        "text_projection.",
        "logit_scale",
        "vision_model.post_layernorm.",
        "text_model.final_layer_norm.",
    )

    def __init__(self, annotator: ClipAnnotator, options: Options) -> None:
        """With the annotator's weights."""
        self._module, self._encoder = annotator.network, annotator.encoder
        super().__init__(annotator, options, {"": self._module})

    def images(self, inputs: Sequence[Inputs]) -> Side:
        """``embedding``."""
        return self._module.images(self.stacked(inputs, "pixels"))

    def captions(self, inputs: Sequence[Inputs]) -> Side:
        """``embedding``; what stands behind a text's end token is not seen."""
        return self._module.captions(self.padded(inputs)[0])

    def logits(self, similarities: Tensor) -> Tensor:
        """(I, C) at the learnt temperature."""
        from annotators.clip import LARGEST_SCALE

        return self._module.logit_scale.clamp(max=LARGEST_SCALE).exp() * similarities

    def metadata(self) -> dict[str, str]:
        """Sizes and merges."""
        return {"config": self._module.config.to_json(), "bpe_merges": self._encoder.to_text()}


class ViltLearner(Learner):
    """ViLT: each pair goes through the network; rank head, pooler and last norm are the head.

    Its logits are multiplied by the temperature, so that a margin means of them what it means of cosines.
    """

    network = "vilt"
    head = ("rank_output.", "vilt.pooler.", "vilt.layernorm.")
    _TOGETHER: ClassVar[Mapping[str, int]] = {"cpu": 256, "cuda": 4096}
    """Pairs scored at a time, of captions of similar length: little padding, and all fits into the cache."""

    def __init__(self, annotator: ViltAnnotator, options: Options) -> None:
        """With the weights of the settings: the annotator has laid its own out for kernels without gradients."""
        from annotators.vilt import open_weights, wordpieces_of

        opened = open_weights(options.path("weights"))
        pieces = wordpieces_of(options, opened)
        assert pieces is not None, "the annotator was made with them"
        self._module, self._pieces = opened.weights.load(), pieces.pieces
        super().__init__(annotator, options, {"": self._module})

    def images(self, inputs: Sequence[Inputs]) -> Side:
        """``state`` (B, N, D) and ``patches`` (B, N), false behind the last patch of a smaller picture."""
        by_shape: dict[tuple[int, ...], list[int]] = {}
        for place, item in enumerate(inputs):
            by_shape.setdefault(item["pixels"].shape, []).append(place)
        core, states = ViltCore(self._module), dict[int, Tensor]()
        for places in by_shape.values():
            of_shape = core.images(self.stacked([inputs[place] for place in places], "pixels"))["state"]
            states.update(zip(places, of_shape, strict=True))
        in_order = [states[place] for place in range(len(inputs))]
        lengths = torch.tensor([len(state) for state in in_order], device=self.device)
        state = nn.utils.rnn.pad_sequence(in_order, batch_first=True)
        return {
            "state": state,
            "patches": torch.arange(state.shape[1], device=self.device) < lengths[:, None],
        }

    def captions(self, inputs: Sequence[Inputs]) -> Side:
        """``tokens`` (B, L) and ``length`` (B,); pieces are embedded with the pairs."""
        tokens, lengths = self.padded(inputs)
        return {"tokens": tokens, "length": lengths}

    def compare(self, images: Side, captions: Side) -> Tensor:
        """(I, C) rank-head logits of all pairs, times the temperature."""
        core, lengths = ViltCore(self._module), captions["length"]
        if bool(images["patches"].all()):
            images = {"state": images["state"]}
        entered, order = core.entered(images), lengths.argsort(stable=True)
        count = len(images["state"])
        scores = []
        for part in torch.split(order, max(1, self._TOGETHER[self.device.type] // count)):
            length = lengths[part]
            tokens = captions["tokens"][part, : int(length.max())]
            words = torch.arange(tokens.shape[1], device=self.device) < length[:, None]
            texts = core.entered(core.captions(tokens, words))
            i, c = torch.cartesian_prod(
                torch.arange(count, device=self.device), torch.arange(len(part), device=self.device)
            ).unbind(1)
            scores.append(core.joint(entered, texts, i, c).view(count, len(part)))
        return TEMPERATURE * torch.cat(scores, 1)[:, order.argsort()]

    def metadata(self) -> dict[str, str]:
        """Sizes and word pieces."""
        return {"config": self._module.sizes.to_json(), "wordpieces": "\n".join(self._pieces)}


LEARNERS: Mapping[str, Any] = {
    learner.network: learner for learner in (PvseLearner, VsrnLearner, PcmeLearner, ViltLearner, ClipLearner)
}
"""By the network: an annotator and its settings to what learns from its weights."""


def load(
    name: str,
    config: Mapping[str, Any] | None = None,
    *,
    folder: Path | None = None,
    device: str | None = None,
) -> Learner:
    """What learns from the weights that an annotator has.

    Args:
        config: its settings, as mitl.toml has them; paths start at ``folder``.
        device: goes before that of the settings.

    A name of ``BEGINNERS`` gives towers that have not learnt, always the same ones.

    Raises:
        TrainingError: it is none of the five networks and no towers, or two networks averaged.
        AnnotatorError: no annotator of this name, a wrong setting, a missing file or a missing package.
    """
    # Weights are learnt in float32, whatever they are to score in.
    settings = {key: value for key, value in (config or {}).items() if key != "precision"}
    if device is not None:
        settings["device"] = device
    if "towers" in settings or name in BEGINNERS:
        with registry.naming_extras(name):
            return TowersLearner.of(Options(name, settings, folder or Path()))
    of_network = registry.network_options(name, settings, folder=folder)
    if of_network is None:
        known = name in registry.names() or registry.pivot_parts(name)
        if not settings and not known and registry.NAME.fullmatch(name):
            registry.build(name, settings, folder=folder)  # says which names there are
        raise TrainingError(
            f"annotator {name!r} cannot learn, for it has no weights of its own; those that can: "
            f"{', '.join([*MINIS, *BEGINNERS])}, and every name whose table in mitl.toml says towers = PATH, or "
            f"network = one of {', '.join(NETWORKS)}"
        )
    network, options = of_network
    with registry.naming_extras(name):
        annotator = registry.build(name, settings, folder=folder)
        return cast("Learner", LEARNERS[network](annotator, options))

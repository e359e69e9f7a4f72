"""Three ways to say how probably two of PCME's Gaussians match: by samples, by samples of a shortlist, in closed form.

Source: Chun et al., Probabilistic embeddings for cross-modal retrieval, CVPR 2021, sections 3.1.2 and 3.2.3.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from annotators.base import Encoded, Ranking
from annotators.dual_encoders import DualEncoder, Ready
from annotators.networks.pcme import Pcme
from annotators.scoring import sampling
from annotators.scoring.match_probability import closed_form_probabilities, match_probabilities
from annotators.scoring.match_shortlist import (
    MeasuredShortlist,
    SampleSet,
    measured_shortlist,
    shortlist_then_exact,
)
from mitl.errors import AnnotatorError
from mitl.progress import Progress
from mitl.records import AnnotatorKind, CaptionItem, ImageItem

SAMPLES = 7
"""Samples an item at evaluation, as in the paper."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Odds:
    """The learned parameters of the match probability sigmoid(2 (shift - negative_scale d))."""

    shift: float
    negative_scale: float


class PcmeAnnotator(DualEncoder[Pcme], ABC):
    """Two Gaussians match with a probability; how it is computed says the subclass."""

    kind = AnnotatorKind.PROBABILITY

    def __init__(self, ready: Ready[Pcme], odds: Odds) -> None:
        super().__init__(ready)
        self.odds = odds
        self.encoding_fingerprint = ready.fingerprint
        """Of what the Gaussians and their samples depend on: not on how they are compared and searched."""

    def encode_images(self, items: Sequence[ImageItem]) -> Encoded:
        """What is compared of each picture; AnnotatorError for a file that is missing or no image."""
        return self._kept(super().encode_images(items), [item.external_id for item in items])

    def encode_captions(self, items: Sequence[CaptionItem]) -> Encoded:
        """What is compared of each caption."""
        return self._kept(super().encode_captions(items), [item.external_id for item in items])

    @abstractmethod
    def _kept(self, gaussians: Encoded, external_ids: Sequence[str]) -> Encoded:
        """What is compared, of ``mean`` and ``log_sigma``."""


class SampledPcme(PcmeAnnotator):
    """The probability averaged over all pairs of samples, as the paper ranks.

    Encoded are ``samples`` (N, S, D), their ``squares`` (N, S), the squared lengths, and their ``mean`` (N, D). An
    item's noise depends on the seed and the item alone (``sampling.noise``), not on what else is encoded.
    """

    def __init__(self, ready: Ready[Pcme], odds: Odds, *, samples: int, seed: int) -> None:
        super().__init__(ready, odds)
        self.samples, self.seed = samples, seed

    def similarities(self, queries: Encoded, gallery: Encoded) -> NDArray[np.float32]:
        """(Q, G) probabilities from 0 to 1."""
        left, right = sample_set(queries), sample_set(gallery)
        return match_probabilities(
            left.samples,
            right.samples,
            self.odds.negative_scale,
            self.odds.shift,
            squares=(left.squares, right.squares),
            device=self._running.device,
            threads=self._running.threads,
        )

    def _kept(self, gaussians: Encoded, external_ids: Sequence[str]) -> Encoded:
        mean, log_sigma = gaussians.arrays["mean"], gaussians.arrays["log_sigma"]
        noise = sampling.noise(self.seed, gaussians.modality, external_ids, self.samples, mean.shape[1])
        drawn = SampleSet.of(sampling.samples(mean, log_sigma, noise))
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
        scale, shift = self.odds.negative_scale, self.odds.shift
        measured = measured_shortlist(left, right, k, scale, shift, count=self.shortlist, seed=self.seed)
        logger.info("%s: %s", self.name, measured)
        self.measured = measured
        positions, probabilities = shortlist_then_exact(
            left,
            right,
            k,
            scale,
            shift,
            count=measured.count,
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
            left["mean"],
            left["spread"],
            right["mean"],
            right["spread"],
            self.odds.negative_scale,
            self.odds.shift,
        )

    def _kept(self, gaussians: Encoded, external_ids: Sequence[str]) -> Encoded:
        with np.errstate(over="ignore"):
            spread = np.exp(2 * gaussians.arrays["log_sigma"].astype(np.float64)).sum(1).astype(np.float32)
        _require_finite(spread[:, None], gaussians.modality, external_ids)
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

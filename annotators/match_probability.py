"""The probability that two sets of samples match, as one matrix product instead of explicit differences.

Shapes: Q and G items on either side, S samples an item, D their width.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from annotators.base import Modality
from annotators.devices import full_precision, to_device
from mitl.errors import AnnotatorError

NOISE_VERSION = 1
"""Raised when the same seed gives an item other noise."""


def samples(
    mean: NDArray[np.float32], log_sigma: NDArray[np.float32], noise: NDArray[np.float32]
) -> NDArray[np.float32]:
    """(N, S, D) mean + exp(log_sigma) noise, for (N, D), (N, D) and (N, S, D); samples are not normalised again.

    Source: Chun et al., PCME, CVPR 2021, section 3.1.2. ``log_sigma`` is the logarithm of the standard deviation.
    """
    sigma = torch.from_numpy(log_sigma).exp()
    drawn: NDArray[np.float32] = (
        torch.from_numpy(noise).mul(sigma[:, None]).add_(torch.from_numpy(mean)[:, None]).numpy()
    )
    return drawn


def noise(
    seed: int, modality: Modality, external_ids: Sequence[str], samples: int, width: int
) -> NDArray[np.float32]:
    """(N, S, D) standard normal numbers; an item's depend on the seed, its side and its own id alone.

    PCME's code draws from torch's global generator in the order in which items come, images first, so that there a
    sample depends on all items before it, on their batches and on the version of torch. Here a subset, another order
    or another batch changes nothing. NumPy promises that ``RandomState`` gives the same numbers in every version.
    """
    drawn = np.empty((len(external_ids), samples, width), np.float32)
    for row, external_id in enumerate(external_ids):
        digest = hashlib.sha256(f"{seed}\n{modality}\n{external_id}".encode(errors="surrogatepass")).digest()
        state = np.random.RandomState(np.frombuffer(digest, "<u4"))
        drawn[row] = state.standard_normal((samples, width))
    return drawn


EPSILON = 1e-6
"""Added to a squared distance before its root is taken, as in PCME's code (criterions/probemb.py)."""

_ROWS = 64
_PIECE = 1 << 15
"""Numbers that one thread takes through all steps while they lie in its cache. Up to so many torch starts no threads
of its own, which would wait for each other after every step."""
_NEAR = 2.0**-5
"""A squared distance below this share of both squared lengths has lost too much to their rounding."""
_TOGETHER = 4096
"""Samples that are subtracted at once."""
_DEVICE_NUMBERS = 1 << 26
"""Products of a tile on another device than the CPU, at least."""
_DEVICE_BYTES = 48
"""Of a card's free memory for each product of a tile: some numbers of 4 bytes, and as much for everything else."""

Samples = NDArray[Any]
"""(N, S, D) float32; other floats are converted a block at a time."""


@dataclass(frozen=True, slots=True)
class Odds:
    """The learned parameters of the match probability sigmoid(2 (shift - negative_scale d))."""

    shift: float
    negative_scale: float


@dataclass(frozen=True, slots=True, eq=False)
class SampleSet:
    """Items by their samples: ``samples`` (N, S, D), ``squares`` (N, S) squared lengths, ``mean`` (N, D) of samples."""

    samples: Samples
    squares: NDArray[np.float32]
    mean: NDArray[np.float32]

    @classmethod
    def of(cls, samples: Samples) -> SampleSet:
        """With its squared lengths and means, which take one pass over the samples.

        Raises:
            AnnotatorError: an array is no (N, S, D).
        """
        if samples.ndim != 3 or samples.dtype.kind != "f":
            raise AnnotatorError(
                f"samples are {samples.dtype} {samples.shape}; they should be float32 (N, S, D)"
            )
        mean = np.empty((samples.shape[0], samples.shape[2]), np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # whoever ranks says which item is not finite
            for part in blocks(len(samples), 1024):
                mean[part] = samples[part].mean(1)
            return cls(samples, squared_lengths(samples), mean)

    def __len__(self) -> int:
        return len(self.samples)

    def rows(self, index: slice | NDArray[np.int64]) -> SampleSet:
        """The items at these positions, in that order."""
        return SampleSet(self.samples[index], self.squares[index], self.mean[index])


def match_probabilities(
    left: SampleSet,
    right: SampleSet,
    odds: Odds,
    *,
    device: torch.device | None = None,
    threads: int | None = None,
    out: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """(Q, G) float32 from 0 to 1: the mean over all pairs of samples of sigmoid(2 (shift - scale d)).

    d is the Euclidean distance sqrt(|a - b|^2 + 1e-6). |a - b|^2 = |a|^2 + |b|^2 - 2 ab turns the S x S differences
    of D numbers into inner products in float32, hundreds of times faster; only samples that nearly coincide, of whose
    distance rounding would leave nothing, are subtracted. At PCME's odds (15 and 15) and lengths (about 1) a
    probability moves by less than 1e-6, at any odds up to scale 20 by less than 1e-5. Memory: ``out`` and a block of
    constant size.

    Args:
        left, right: samples (Q, S, D) and (G, T, D), memory maps too.
        odds: halves of the log-odds, hence the factor 2.
        device: where the products are made, the CPU by default.
        threads: threads of the CPU beside those of the matrix product, torch's number by default.
        out: (Q, G) float32 to be filled.

    Source: Chun et al., PCME, CVPR 2021, section 3.1.2; the factor 2 and the 1e-6 as in its code.

    Raises:
        AnnotatorError: the widths differ.
    """
    if left.samples.shape[2] != right.samples.shape[2]:
        raise AnnotatorError(
            f"samples are {left.samples.shape[2]} wide on one side and {right.samples.shape[2]} on the other; "
            "encode both with the same weights"
        )
    probabilities = np.empty((len(left), len(right)), np.float32) if out is None else out
    if device is None or device.type == "cpu":
        sums = _Sums.of(odds, left.squares, right.squares)
        work = _OnCpu(left.samples.shape[1], sums, threads or torch.get_num_threads())
        work.fill(probabilities, (left.samples, left.squares), (right.samples, right.squares))
    else:
        _fill_on_device(device, probabilities, left, right, odds)
    return probabilities


def probabilities_of_one(
    query: Samples,
    query_squares: NDArray[np.float32],
    items: Samples,
    squares: NDArray[np.float32],
    odds: Odds,
) -> NDArray[np.float32]:
    """(G,) float32: ``match_probabilities`` of one query (S, D), (S,) with items (G, T, D), (G, T), all float32."""
    g, t, d = items.shape
    left, right = torch.from_numpy(query), torch.from_numpy(items.reshape(g * t, d))
    with full_precision():
        products = left @ right.T  # (S, G T)
    own = torch.from_numpy(query_squares + np.float32(EPSILON))[:, None]
    other = torch.from_numpy(squares.reshape(g * t))
    sums = _Sums.of(odds, query_squares, squares)
    total = sums.in_place(products, own, other, left, right).view(g, t).sum(1)
    mean: NDArray[np.float32] = total.div_(t * len(query)).numpy()
    return mean


def squared_lengths(samples: Samples) -> NDArray[np.float32]:
    """(N, S) squared Euclidean lengths of (N, S, D), summed in float64: a small distance hangs on them."""
    lengths = np.empty(samples.shape[:2], np.float32)
    for part in blocks(len(samples), 256):
        rows = np.asarray(samples[part], np.float64)
        lengths[part] = np.einsum("nsd,nsd->ns", rows, rows)
    return lengths


def closed_form_probabilities(
    left_mean: NDArray[Any],
    left_spread: NDArray[Any],
    right_mean: NDArray[Any],
    right_spread: NDArray[Any],
    odds: Odds,
) -> NDArray[np.float32]:
    """(Q, G) float32: sigmoid(2 (shift - scale d)) of the expected squared distance d^2 of two independent samples.

    d^2 = |mean_a - mean_b|^2 + spread_a + spread_b + 1e-6, where a spread is the sum of an item's variances. Not
    equal to the mean over samples, whose sigmoid is taken sample by sample. Computed in float64, so that the shape
    of a block leaves no trace after rounding.

    Args:
        left_mean, right_mean: (Q, D) and (G, D).
        left_spread, right_spread: (Q,) and (G,).

    Source: the distance as in Chun, PCME++, ICLR 2024, section 2.2.
    """
    a, b = left_mean.astype(np.float64), right_mean.astype(np.float64)
    squared = a @ b.T
    squared *= -2
    squared += (np.einsum("qd,qd->q", a, a) + left_spread)[:, None]
    squared += np.einsum("gd,gd->g", b, b) + right_spread
    distance = torch.from_numpy(squared).clamp_(min=0).add_(EPSILON).sqrt_()
    matches: NDArray[np.float32] = (
        distance.mul_(-2 * odds.negative_scale).add_(2 * odds.shift).sigmoid_().float().numpy()
    )
    return matches


def blocks(count: int, step: int) -> Iterator[slice]:
    """Slices of at most ``step`` that cover ``count``."""
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


Side = tuple[Samples, NDArray[np.float32]]
"""Samples with their squared lengths."""


class _OnCpu:
    """NumPy's product, whose BLAS knows every processor, then the odds in place while a piece lies in the cache."""

    def __init__(self, samples: int, sums: _Sums, threads: int) -> None:
        self._columns = max(1, _PIECE // samples)
        self._memory = np.empty(_ROWS * samples * self._columns, np.float32)
        self._sums, self._threads = sums, threads

    def fill(self, out: NDArray[np.float32], left: Side, right: Side) -> None:
        """All blocks of ``out``."""
        with ThreadPoolExecutor(self._threads) as pool:
            for rows in blocks(len(left[0]), _ROWS):
                queries = np.ascontiguousarray(left[0][rows], np.float32), left[1][rows]
                for columns in blocks(len(right[0]), self._columns):
                    gallery = np.asarray(right[0][columns], np.float32), right[1][columns]
                    out[rows, columns] = self._block(pool, queries, gallery)

    def _block(self, pool: ThreadPoolExecutor, left: Side, right: Side) -> NDArray[np.float32]:
        (q, s, d), (g, t) = left[0].shape, right[1].shape
        flat = self._memory[: q * s * g].reshape(q * s, g)
        products = torch.from_numpy(flat).view(q, s, g)
        own = torch.from_numpy(left[1] + np.float32(EPSILON))[:, :, None]
        total = torch.zeros(q, g)
        for sample in range(t):
            np.matmul(left[0].reshape(q * s, d), right[0][:, sample].T, out=flat)
            other = torch.from_numpy(right[1][:, sample].copy())

            def finish(part: slice, other: Tensor = other, sample: int = sample) -> None:
                for row in range(part.start, part.stop):
                    sides = left[0][row], right[0][:, sample]
                    total[row] += self._sums.in_place(products[row], own[row], other, *sides)

            list(pool.map(finish, blocks(q, -(-q // self._threads))))
        summed: NDArray[np.float32] = total.div_(s * t).numpy()
        return summed


def _fill_on_device(
    device: torch.device, out: NDArray[np.float32], left: SampleSet, right: SampleSet, odds: Odds
) -> None:
    """The same on a GPU: torch's product, larger blocks."""
    samples, other_samples = left.samples.shape[1], right.squares.shape[1]
    numbers = _DEVICE_NUMBERS
    if device.type == "cuda":
        numbers = max(numbers, torch.cuda.mem_get_info(device)[0] // _DEVICE_BYTES)
    step = max(1, int((numbers / samples) ** 0.5))
    sums = _Sums.of(odds, left.squares, right.squares, device)
    tiles = [(rows, columns) for rows in blocks(len(left), step) for columns in blocks(len(right), step)]
    queries = own = torch.empty(0)
    with ThreadPoolExecutor(1) as ahead:
        coming = [ahead.submit(to_device, right.samples[columns], device) for _, columns in tiles[:1]]
        for number, (rows, columns) in enumerate(tiles):
            if columns.start == 0:
                queries = to_device(left.samples[rows], device)  # (q, S, D)
                own = to_device(left.squares[rows], device)[:, :, None] + EPSILON
            gallery = coming.pop().result()  # (g, T, D)
            # The next block is copied while this one is multiplied.
            coming += [
                ahead.submit(to_device, right.samples[after], device) for _, after in tiles[number + 1 :][:1]
            ]
            others = to_device(right.squares[columns], device)
            total = torch.zeros(len(queries), len(gallery), device=device)
            for sample in range(other_samples):
                items = gallery[:, sample]
                with full_precision():
                    products = (queries.flatten(0, 1) @ items.T).view(len(queries), samples, -1)
                total += sums.in_place(products, own, others[:, sample], queries, items)
            out[rows, columns] = total.div_(samples * other_samples).cpu().numpy()


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """What makes sums of probabilities of inner products."""

    scale: float
    twice_shift: Tensor
    near: float
    """A squared distance from which on none has lost much, whatever the lengths."""

    @classmethod
    def of(
        cls,
        odds: Odds,
        squares: NDArray[np.float32],
        others: NDArray[np.float32],
        device: torch.device | None = None,
    ) -> _Sums:
        near = _NEAR * float(squares.max(initial=0) + others.max(initial=0))
        return cls(odds.negative_scale, torch.tensor(2 * odds.shift, device=device), near)

    def in_place(self, products: Tensor, own: Tensor, other: Tensor, left: Any, right: Any) -> Tensor:
        """Inner products (..., S, G) to the sums of probabilities over S (..., G), on the products' own memory.

        Args:
            own, other: (..., S, 1) and (G,) squared lengths, ``own`` with ``EPSILON``.
            left, right: (..., S, D) and (G, D) samples.
        """
        torch.add(own, products, alpha=-2, out=products).add_(other)
        if not products.amin() >= self.near:
            places = (products < _NEAR * (own + other)).nonzero()
            for part in blocks(len(places), _TOGETHER):
                place = places[part].unbind(1)
                # numpy would take a tensor of one number for that number.
                *row, item = map(np.asarray, place) if isinstance(left, np.ndarray) else place
                apart = torch.as_tensor(left[tuple(row)] - right[item])
                products[place] = apart.square().sum(1) + EPSILON
        products.sqrt_()
        torch.add(self.twice_shift, products, alpha=-2 * self.scale, out=products).sigmoid_()
        return products.sum(-2)

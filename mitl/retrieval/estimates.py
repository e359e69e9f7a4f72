"""What ranking a data set takes on some hardware: operations, bytes, time and money, as a pure function.

Time is a sum of what is done one after the other: pictures are read and decoded, items encoded, pairs compared,
results written; each at the hardware's rate times the share of it that programs reach. It is a plan, not a promise:
rates of named hardware are public peaks, those of ``here`` were measured just before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mitl.retrieval.network_costs import Costs

PICTURE_BYTES = 160_000
"""A COCO picture as a file, on average."""
_SIMILARITY_BYTES = 8
"""Memory traffic of an inner product in a block: written once, read once, 4 bytes each."""
_RANKED_BYTES = 16
"""An entry of a ranking file, about."""
DEPTH = 25


@dataclass(frozen=True, slots=True)
class Hardware:
    """Rates of one machine; ``share``s say how much of them programs reach."""

    name: str
    float32: float
    """FLOP a second of a float32 matrix product."""
    low: float
    """The same in bfloat16 or another type that halves the bytes at least."""
    memory: float
    """Bytes a second."""
    disk: float
    """Bytes a second, reading."""
    pictures: float
    """Pictures decoded and scaled a second, by all cores."""
    source: str
    """Where the rates are from: measured, or whose public figures."""
    network_share: float = 0.5
    """Of the matrix product's rate, in a network's forward pass."""
    search_share: float = 0.8
    """The same in exact search, selection and rescoring included."""


@dataclass(frozen=True, slots=True)
class Workload:
    """How much is asked: all items are encoded, the queries search."""

    images: int
    captions: int
    image_queries: int
    caption_queries: int

    def __post_init__(self) -> None:
        assert self.image_queries <= self.images, "queries are some of the images"
        assert self.caption_queries <= self.captions, "queries are some of the captions"

    @property
    def compared(self) -> int:
        """Pairs that both directions compare, each searching by itself."""
        return self.image_queries * self.captions + self.caption_queries * self.images

    @property
    def distinct(self) -> int:
        """Pairs that are compared at least once."""
        return self.compared - self.image_queries * self.caption_queries

    @property
    def results(self) -> int:
        """Queries of both directions."""
        return self.image_queries + self.caption_queries


@dataclass(frozen=True, slots=True)
class Plan:
    """An annotator's costs and how it is run."""

    costs: Costs
    low_precision: bool = False
    """Whether its network runs in bfloat16 or float16."""
    shortlist: int | None = None
    """Pairs scored for a query where pairs are scored one by one; all by default."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one annotator takes on one hardware."""

    encode_flop: float
    compare_flop: float
    pairs: int
    kept_bytes: int
    """Encodings, scores of pairs and rankings on disk."""
    read_bytes: int
    """Pictures, and what is kept, read once."""
    seconds: float
    cents: float | None
    """None without a price."""

    @property
    def flop(self) -> float:
        """All operations."""
        return self.encode_flop + self.compare_flop


def estimate(
    plan: Plan,
    work: Workload,
    hardware: Hardware,
    *,
    machines: int = 1,
    cents_per_hour: float | None = None,
) -> Estimate:
    """What one annotator takes on ``machines`` of one hardware, which share the work evenly.

    ``cents_per_hour``: of one machine.
    """
    costs = plan.costs
    pairs = _pairs(plan, work)
    encode_flop = work.images * costs.image + work.captions * costs.caption
    compare_flop = pairs * costs.pair
    kept = work.images * costs.image_bytes + work.captions * costs.caption_bytes
    kept += pairs * costs.pair_bytes + work.results * DEPTH * _RANKED_BYTES
    pictures = work.images if costs.reads_pictures else 0
    read = pictures * PICTURE_BYTES + kept
    network = (hardware.low if plan.low_precision else hardware.float32) * hardware.network_share
    seconds = pictures / hardware.pictures + read / hardware.disk + encode_flop / network
    if costs.vectors:
        rate = max(hardware.low, hardware.float32) if costs.fast_pass else hardware.float32
        product = compare_flop / (rate * hardware.search_share)
        seconds += max(product, pairs * costs.products * _SIMILARITY_BYTES / hardware.memory)
    else:
        seconds += compare_flop / network
    seconds /= machines
    cents = None if cents_per_hour is None else seconds / 3600 * machines * cents_per_hour
    return Estimate(encode_flop, compare_flop, pairs, kept, read, seconds, cents)


def total(parts: Mapping[str, Estimate]) -> Estimate:
    """All annotators, one after the other."""
    found = list(parts.values())
    priced = [part.cents for part in found if part.cents is not None]
    return Estimate(
        sum(part.encode_flop for part in found),
        sum(part.compare_flop for part in found),
        sum(part.pairs for part in found),
        sum(part.kept_bytes for part in found),
        sum(part.read_bytes for part in found),
        sum(part.seconds for part in found),
        sum(priced) if len(priced) == len(found) and found else None,
    )


def _pairs(plan: Plan, work: Workload) -> int:
    """How many pairs are compared; where each is scored and kept, no pair twice."""
    if plan.costs.vectors:
        whole = (work.image_queries, work.caption_queries) == (work.images, work.captions)
        return work.distinct if whole else work.compared  # one pass serves both directions
    if plan.shortlist is None:
        return work.distinct
    image_side = work.image_queries * min(plan.shortlist, work.captions)
    caption_side = work.caption_queries * min(plan.shortlist, work.images)
    return min(image_side + caption_side, work.distinct)


_DECODED_PER_CORE = 120.0
"""Pictures a second and core; 16 cores beside a card."""

NAMED = {
    found.name: found
    for found in (
        Hardware("h200", 67e12, 989e12, 4.8e12, 2e9, 16 * _DECODED_PER_CORE, "NVIDIA, H200 SXM", 0.4, 0.4),
        Hardware("h100", 67e12, 989e12, 3.35e12, 2e9, 16 * _DECODED_PER_CORE, "NVIDIA, H100 SXM", 0.4, 0.4),
        Hardware(
            "a100", 19.5e12, 312e12, 2.04e12, 2e9, 16 * _DECODED_PER_CORE, "NVIDIA, A100 80GB SXM", 0.4, 0.4
        ),
        Hardware("l40s", 91.6e12, 362e12, 0.864e12, 2e9, 16 * _DECODED_PER_CORE, "NVIDIA, L40S", 0.4, 0.4),
        Hardware(
            "rtx4090", 82.6e12, 165e12, 1.008e12, 2e9, 16 * _DECODED_PER_CORE, "NVIDIA, RTX 4090", 0.4, 0.4
        ),
        Hardware("t4", 8.1e12, 65e12, 0.3e12, 5e8, 4 * _DECODED_PER_CORE, "NVIDIA, T4 (float16)", 0.4, 0.4),
    )
}
"""Public dense peaks of one card in a machine with a fast disk, and an assumed share of them."""

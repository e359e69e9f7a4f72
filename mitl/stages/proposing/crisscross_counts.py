"""What was sampled to be rated for likeness, beside what CxC sampled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, TypedDict

import numpy as np
import pandas as pd

from annotators.base import Modality
from mitl.core.arrays import distinct, pack_ids
from mitl.records import Table
from mitl.records.similarity import METHODS, SamplingMethod

COCO_IMAGES, COCO_CAPTIONS = 5_000, 25_000
"""Of each of the splits that CxC rated."""

CXC_ROWS: Mapping[SamplingMethod, tuple[int, int]] = {
    SamplingMethod.C2C_ISIM: (19_009, 19_045),
    SamplingMethod.C2C_COCAPTION: (25_000, 25_000),
    SamplingMethod.I2I_CSIM: (42_767, 46_719),
    SamplingMethod.C2I_INTRASIM: (19_722, 19_833),
    SamplingMethod.C2I_ORIGINAL: (25_000, 25_000),
}
"""Rows of CxC's published files, val and test."""
CXC_IMAGE_PAIRS = (40_514, 43_856)
"""Distinct image pairs among its rows: the others are there in both orders."""


class MethodCounts(TypedDict):
    """What one way of sampling brought, as ``--json`` prints it."""

    task: str
    rows: int
    pairs: int
    new: int
    cxc_val: float
    cxc_test: float


class EncoderCounts(TypedDict):
    """What one encoder chose, as ``--json`` prints it."""

    encoder: str
    side: str
    what: str
    chosen: int
    exclusive: int


class RatingCounts(TypedDict):
    """How far the ratings of one way of sampling are, as ``--json`` prints it."""

    pairs: int
    complete: int
    by_ratings: dict[str, int]


class CrisscrossCounts(TypedDict, total=False):
    """What ``--scheme crisscross`` counts."""

    phase: Annotated[int, "1 for pairs within a side, 2 for pairs across (`--scheme crisscross`)"]
    samples: Annotated[int, "rows (pair, order, sampling method, encoder) that the project has now"]
    new_samples: Annotated[int, "those that this run added"]
    methods: Annotated[
        dict[str, MethodCounts],
        "by sampling method: task, rows (a pair in one order counts once, whichever encoders chose it), pairs "
        "whatever the order, new rows of this run, and CxC's rows per split, scaled to the number of images",
    ]
    encoders: Annotated[
        list[EncoderCounts],
        "each encoder of this run: its name, the side that it compares, what it is, pairs of the other side that it "
        "chose, those that no other one chose",
    ]
    ratings: Annotated[
        dict[str, RatingCounts],
        "by sampling method that phase 2 waits for: pairs, those with enough ratings, and pairs by how many "
        "ratings they have",
    ]


def method_counts(samples: pd.DataFrame, new: pd.DataFrame, *, n_images: int) -> dict[str, MethodCounts]:
    """Counts by sampling method.

    Args:
        samples: ``SAMPLES`` of the project, with or without ``pair``.
        new: those of them that this run added.
        n_images: of the data set.
    """
    counts: dict[str, MethodCounts] = {}
    for place, method in enumerate(METHODS):
        of_method, of_run = (table[table["method"] == place] for table in (samples, new))
        val, test = (round(rows * n_images / COCO_IMAGES, 1) for rows in CXC_ROWS[method])
        counts[method.value] = {
            "task": method.task.value,
            "rows": n_orders(of_method),
            "pairs": n_pairs(of_method, within=method.phase == 1),
            "new": n_orders(of_run),
            "cxc_val": val,
            "cxc_test": test,
        }
    return counts


def n_orders(samples: pd.DataFrame) -> int:
    """Distinct pairs in one order, as a release lists them."""
    return len(distinct(pack_ids(samples["first"].to_numpy(), samples["second"].to_numpy())))


def n_pairs(samples: pd.DataFrame, *, within: bool) -> int:
    """Distinct pairs whatever their order, where both items are of one side."""
    first, second = samples["first"].to_numpy(), samples["second"].to_numpy()
    if not within:
        return n_orders(samples)
    return len(distinct(pack_ids(np.minimum(first, second), np.maximum(first, second))))


def methods_table(counts: Mapping[str, MethodCounts], phase: int, *, n_images: int, n_captions: int) -> Table:
    """The counts of one phase for people, beside CxC's own or what CxC would have for so many images."""
    is_split = (n_images, n_captions) == (COCO_IMAGES, COCO_CAPTIONS)
    of_cxc = ("CxC val", "CxC test") if is_split else ("CxC's share, val", "test")
    rows = tuple(
        (
            of_method["task"].upper(),
            name,
            of_method["rows"],
            of_method["pairs"],
            of_method["new"],
            round(of_method["cxc_val"]),
            round(of_method["cxc_test"]),
        )
        for name, of_method in counts.items()
        if SamplingMethod(name).phase == phase
    )
    return Table(
        f"phase {phase} · {n_images:,} images, {n_captions:,} captions",
        ("task", "sampled by", "rows", "pairs", "new", *of_cxc),
        rows,
    )


def encoder_counts(
    samples: pd.DataFrame, encoders: Sequence[tuple[Modality, str, str]]
) -> list[EncoderCounts]:
    """What each encoder chose, and chose alone.

    Args:
        samples: ``SAMPLES`` of this run.
        encoders: the side that each compares, its name, and what it is.
    """
    counts: list[EncoderCounts] = []
    for side, name, what in encoders:
        method = SamplingMethod.I2I_CSIM if side == "caption" else SamplingMethod.C2C_ISIM
        of_method = samples[samples["method"] == METHODS.index(method)]
        own, others = of_method[of_method["encoder"] == name], of_method[of_method["encoder"] != name]
        exclusive = n_pairs(of_method, within=True) - n_pairs(others, within=True)
        counts.append(
            {
                "encoder": name,
                "side": side,
                "what": what,
                "chosen": n_pairs(own, within=True),
                "exclusive": exclusive,
            }
        )
    return counts


def encoders_table(counts: Sequence[EncoderCounts]) -> Table:
    """The same for people."""
    return Table(
        "encoders that chose",
        ("encoder", "what it is", "compared", "pairs chosen", "only this one"),
        tuple((of["encoder"], of["what"], f"{of['side']}s", of["chosen"], of["exclusive"]) for of in counts),
    )

"""A release with its audit, in the numbers of the images and captions that are searched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mitl.audits.evidence import answered, confirmed, refused
from mitl.core.arrays import Flags, Floats
from mitl.core.packed import unpack_ids
from mitl.errors import MetricError
from mitl.metrics.answer_rates import CorrectedLabels, Rates
from mitl.metrics.positives import Ids
from mitl.positives.audit_files import ReleasedAudit, read_audit
from mitl.positives.folders import read_checked, read_manifest
from mitl.records import Direction
from mitl.stages.evaluating.models import ModelSide, Sides
from mitl.stages.evaluating.positive_sets import ByQuery

Pairs = tuple[Ids, Ids]
"""Numbers of images and of captions."""


@dataclass(frozen=True, slots=True, eq=False)
class AuditedRelease:
    """What people judged, and the random sample of the pool."""

    queries: Mapping[Direction, Ids]
    """Those that the release lists: the audit's pool is these with all that they search."""
    held: Pairs
    """Positives of the release but for those that only the audit found."""
    refused: Pairs
    """Pairs that people called no match."""
    audited: Pairs
    matches: Flags
    """(n,) of the audited pairs: held ones unless two of three refuse them, others where they were confirmed."""
    reading: CorrectedLabels
    strata: NDArray[np.integer]
    inclusion: Floats
    rates: Rates | None
    """How often the audit's answers err; None where it holds too few to tell."""


def read_audited_release(folder: Path, by_query: ByQuery, sides: Sides) -> AuditedRelease:
    """The release's audit and what it was held against.

    Raises:
        MetricError: the release has no audit, or the models lack an item of it.
        ReleaseError: a file is missing, changed or malformed.
    """
    manifest = read_manifest(folder)
    audit = read_audit(folder, manifest)
    if audit is None:
        raise MetricError(
            f"the release {str(folder)!r} has no audit, so what its holes hide cannot be estimated; draw one with "
            "`mitl audit draw`, have all of it answered and build the release again"
        )
    rows = audit.audited
    held = rows["held"].to_numpy()
    matches = np.where(held, ~refused(rows), confirmed(rows))
    rates = Rates.measured(answered(rows)[1], rows["recheck"].to_numpy(), held)
    return AuditedRelease(
        queries={
            direction: np.unique(_numbers(sides.queries(direction), list(by_query.get(direction, {}))))
            for direction in Direction
        },
        held=_released(audit, audit.held["pair"].to_numpy(), sides),
        refused=_negatives(read_checked(folder, manifest, "negatives.parquet"), sides),
        audited=_released(audit, rows["pair"].to_numpy(), sides),
        matches=matches,
        reading=CorrectedLabels.of(matches, held, rates),
        strata=rows["stratum"].to_numpy(),
        inclusion=rows["inclusion"].to_numpy(),
        rates=rates,
    )


def _released(audit: ReleasedAudit, packed: Ids, sides: Sides) -> Pairs:
    images, captions = unpack_ids(packed)
    return (
        _numbers(sides.images, audit.image_ids[images].tolist()),
        _numbers(sides.captions, audit.caption_ids[captions].tolist()),
    )


def _negatives(content: bytes, sides: Sides) -> Pairs:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(pa.BufferReader(content), columns=["image_id", "caption_id"])
    return (
        _numbers(sides.images, table["image_id"].to_pylist()),
        _numbers(sides.captions, table["caption_id"].to_pylist()),
    )


def _numbers(side: ModelSide, ids: Sequence[object]) -> Ids:
    missing = [str(one) for one in ids if str(one) not in side.number_of]
    if missing:
        raise MetricError(
            f"{len(missing):,} {side.plural} of the release's pool are not among the {len(side):,} searched, first "
            f"{missing[0]!r}; a fair comparison takes models of the whole gallery: embeddings, similarities, or "
            "rankings beside one of these"
        )
    return np.array([side.number_of[str(one)] for one in ids], np.int64)

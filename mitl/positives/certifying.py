"""An audit held against a release: what only the audit found, what it refused, and the certificate of the rest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mitl.audits.certificate import Certificate, certify
from mitl.audits.chao import chao
from mitl.audits.evidence import confirmed, refused
from mitl.audits.pool import Pool
from mitl.core.arrays import Ints, contains, distinct, places
from mitl.errors import AuditError
from mitl.positives.exclusions import Exclusions
from mitl.positives.merging import REFUSES, SOURCES, Merged
from mitl.proposals.candidates import distinct_pairs, finders
from mitl.records import PositiveSource
from mitl.records.audits import AUDITED, HELD, AuditDesign
from mitl.records.frames import MERGED, NONE, Schema, frame

RELEASED_AUDIT: Schema = {
    **AUDITED,
    "held": ("bool", "whether the release holds it, whatever the audit says"),
    "found": ("bool", "confirmed, and not held"),
    "label": ("int8", "people's answer in the release, place in Label; NONE where nobody was asked"),
}
"""An audited pair as a release tells of it."""


@dataclass(frozen=True, slots=True, eq=False)
class AuditRecord:
    """A recall audit of the pool as it is, by surrogate ids."""

    number: int
    """Within its environment, from 1."""
    design: AuditDesign
    pool_sha256: str
    pool: Pool
    listed: pd.DataFrame
    """``LISTED``."""
    audited: pd.DataFrame
    """``AUDITED``."""
    answers: pd.DataFrame
    """``AUDIT_ANSWERS``."""


@dataclass(frozen=True, slots=True, eq=False)
class CertifiedAudit:
    """What certifies a release."""

    record: AuditRecord
    audited: pd.DataFrame
    """``RELEASED_AUDIT``, in the order of drawing."""
    held: pd.DataFrame
    """``HELD``."""
    outside: int
    """Positives that the release holds outside the pool, of which the certificate says nothing."""
    certificate: Certificate

    @property
    def named(self) -> dict[str, object]:
        """Which audit it is, as the manifest and the certificate say."""
        return {
            "number": self.record.number,
            "pool_sha256": self.record.pool_sha256,
            "design": asdict(self.record.design),
        }


def matches_at_least(
    found_by: NDArray[np.integer], annotators: Collection[str], runs: Iterable[Mapping[str, Any]]
) -> tuple[float, float] | None:
    """Held positives that some annotator proposed, and Chao's estimate of how many matches there are at least.

    Args:
        found_by: (held,) how many annotators proposed each.
        annotators: those that proposed anything.
        runs: what the manifest tells of them: ``annotators``, and the hash of the ``queries`` of each direction.

    Returns:
        None where fewer than two annotators proposed anything, or nothing that is held, and where two did not search
        the same queries, or nothing tells which, as of past work: what one alone searched would look as if the other
        had missed it.
    """
    searched: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for run in runs:
        queries = {(way, asked["sha256"]) for way, asked in run.get("queries", {}).items() if asked["count"]}
        for annotator in run.get("annotators", ()):
            searched[annotator["name"]] |= queries
    alike = len({frozenset(searched[name]) for name in annotators}) == 1
    if len(annotators) < 2 or not alike or not all(searched.values()) or not found_by.any():
        return None
    known = chao(found_by, len(annotators))
    return float(known.found), known.total


def certified(
    record: AuditRecord,
    merged: Merged,
    exclusions: Exclusions,
    proposals: pd.DataFrame,
    runs: Iterable[Mapping[str, Any]],
    *,
    strict: bool = False,
) -> tuple[Merged, CertifiedAudit]:
    """The release with what only the audit found, and the certificate of what it held before.

    Args:
        proposals: ``PROPOSALS``, in order.
        runs: see ``matches_at_least``.
        strict: whether a ``weak_yes`` brings no pair into the release; the certificate counts it as a match all the
            same.

    Raises:
        AuditError: the audit cannot certify it: answers are open, a stratum has none, one worker gave most of them, or
            its strata are not the whole pool.
    """
    if record.design.size != record.pool.size:  # drawn by an earlier version for models that rank alike
        raise AuditError(
            f"the strata of audit {record.number} hold {record.design.size:,} of the {record.pool.size:,} pairs of the "
            "pool, so its answers say nothing of the others; draw another with `mitl audit draw`"
        )
    kept = merged.where("kept")
    inside = kept[record.pool.holds(kept)]
    held = frame(HELD, {"pair": inside, "stratum": strata_of(inside, record)})
    known = merged.pairs[merged.pairs["label"] != NONE]
    labels = known[["pair", "label"]]
    certificate = certify(
        record.audited,
        record.design,
        held,
        labels,
        workers=record.answers["worker"],
        chao=matches_at_least(np.diff(finders(proposals, inside)[0]), distinct_pairs(proposals), runs),
    )
    pairs, is_confirmed = record.audited["pair"].to_numpy(), confirmed(record.audited)
    answered = places(known["pair"].to_numpy(), pairs)
    is_held = contains(inside, pairs)
    audited = record.audited.assign(
        held=is_held,
        found=is_confirmed & ~is_held,
        label=np.where(answered < 0, NONE, np.append(known["label"], NONE)[answered]).astype(np.int8),
    )
    taken = pairs[confirmed(record.audited, strict=strict)]
    whole = with_audit(merged, taken, pairs[refused(record.audited)], exclusions)
    return whole, CertifiedAudit(record, audited, held, len(kept) - len(inside), certificate)


def strata_of(pairs: Ints, record: AuditRecord) -> Ints:
    """Where each pair of the pool stood when the sample was drawn; what was not listed is in the last stratum."""
    at = places(record.listed["pair"].to_numpy(), pairs)
    listed = np.append(record.listed["stratum"].to_numpy(), NONE)[at]
    return np.where(at < 0, len(record.design.strata) - 1, listed)


def with_audit(merged: Merged, confirmed: Ints, refused: Ints, exclusions: Exclusions) -> Merged:
    """The release with the pairs that an audit confirmed; those that it refused stay, and are told as conflicts.

    What an exclusion list names stays out.

    Args:
        confirmed, refused: packed, in any order.
    """
    confirmed, refused = distinct(confirmed), distinct(refused)
    new = confirmed[~contains(merged.pairs["pair"].to_numpy(), confirmed)]
    rows = merged.pairs
    if len(new):
        rows = pd.concat([rows, _unknown(new)]).sort_values("pair", ignore_index=True)
    pairs, kept = rows["pair"].to_numpy(), rows["kept"].to_numpy()
    out = exclusions.name(pairs)
    wanted = contains(confirmed, pairs) & ~kept
    found, doubted = wanted & ~out, contains(refused, pairs) & kept
    says_none = REFUSES[rows["label"]] | REFUSES[rows["machine"]] | (rows["score"].notna() & ~rows["rated"])
    audit = np.int8(SOURCES.index(PositiveSource.AUDIT))
    whole = rows.assign(
        found=found,
        doubted=doubted,
        kept=kept | found,
        excluded=rows["excluded"] | (wanted & out),
        negative=rows["negative"] & ~found,
        conflict=rows["conflict"] | (found & says_none) | doubted,
        decided_by=rows["decided_by"].mask(found, audit),
    )
    return Merged(whole, merged.query_filter)


def _unknown(pairs: Ints) -> pd.DataFrame:
    """Rows of pairs of which no source but the audit knows anything (``MERGED``)."""
    empty = {
        "label": NONE,
        "machine": NONE,
        "probability": np.nan,
        "machine_probability": np.nan,
        "score": np.nan,
    }
    values = {
        "pair": pairs,
        **{name: np.full(len(pairs), empty.get(name, 0)) for name in MERGED if name != "pair"},
    }
    return frame(MERGED, values)

"""Drawing an audit: from each stratum a simple random sample without replacement, in a random order over all strata."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from mitl.audits.pool import RemainderOf
from mitl.core.packed import Ints, contains
from mitl.errors import AuditError
from mitl.records import several
from mitl.records.audits import AUDITED, AuditDesign, Stratum
from mitl.records.frames import frame

_NOBODY: Ints = np.empty(0, np.int64)


def draw(
    design: AuditDesign, members: Sequence[Ints | RemainderOf], *, positives: Ints = _NOBODY
) -> pd.DataFrame:
    """The sample of a design: ``AUDITED`` without the answers, in the order of drawing; equal for equal arguments.

    Args:
        members: of each stratum in the design's order, the packed pairs, distinct and in an order that is always the
            same, or what remains of a pool.
        positives: packed and ascending: the matches that are known now. They always get three answers, since precision
            needs them, whatever share of their stratum is rechecked.

    Raises:
        AuditError: a stratum holds pairs and none is to be drawn, more are to be drawn than it holds, it does not hold
            as many as the design says, or nothing at all is drawn.
    """
    check_design(design)
    assert len(members) == len(design.strata)
    drawn = [
        _drawn(design, number, member)
        for number, member in enumerate(members)
        if design.strata[number].sample
    ]
    pairs = np.concatenate([pairs for pairs, _ in drawn])
    strata = np.repeat(np.arange(len(design.strata)), [stratum.sample for stratum in design.strata])  # (n,)
    order = np.random.default_rng([design.seed, len(design.strata)]).permutation(len(pairs))
    known = contains(positives, pairs[order])
    inclusion = np.array([stratum.inclusion for stratum in design.strata])
    return frame(
        AUDITED,
        {
            "pair": pairs[order],
            "place": np.arange(1, len(pairs) + 1),
            "stratum": strata[order],
            "inclusion": inclusion[strata[order]],
            "recheck": np.concatenate([recheck for _, recheck in drawn])[order] | known,
            "known": known,
        },
    )


def check_design(design: AuditDesign) -> None:
    """Refuse a design that no sample can have, or that would leave a part of its pool unseen.

    Raises:
        AuditError: see `draw`.
    """
    for stratum in design.strata:
        if stratum.size and stratum.sample < 1:
            raise AuditError(
                f"stratum {stratum.name!r} holds {several(stratum.size, 'pair')} and none of them is drawn, so each "
                "could be a match; draw at least 1"
            )
        if stratum.sample > stratum.size:
            raise AuditError(
                f"{stratum.sample:,} pairs are to be drawn from stratum {stratum.name!r}, but it holds {stratum.size:,}"
            )
    if not design.sample:
        raise AuditError("the design draws no pair; give it a stratum that holds some")


def _drawn(design: AuditDesign, number: int, member: Ints | RemainderOf) -> tuple[Ints, np.ndarray]:
    """The pairs of one stratum with whether a no is rechecked; its random numbers are its own."""
    stratum: Stratum = design.strata[number]
    size = member.size
    if size != stratum.size:
        raise AuditError(
            f"stratum {stratum.name!r} was designed with {stratum.size:,} pairs and holds {size:,}; plan again"
        )
    rng = np.random.default_rng([design.seed, number])
    numbers = np.asarray(rng.choice(size, stratum.sample, replace=False), np.int64)
    pairs = member.nth(numbers) if isinstance(member, RemainderOf) else np.asarray(member, np.int64)[numbers]
    return pairs, rng.random(stratum.sample) < stratum.recheck_share

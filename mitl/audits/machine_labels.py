"""Machine labels of open pairs by strata, each under its own threshold, from a score and an answered sample.

Within each stratum of the sample's design, pairs that the score calls a match and pairs that it does not have each a
threshold of their own: a wrong match and a lost one are errors of different kinds. The risk is dealt in equal parts
beforehand, so that all bounds hold at once. The score must not have read the sample's answers: the caller sees to that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mitl.audits.thresholds import (
    MOST_SIDING,
    Drawn,
    Threshold,
    Tolerance,
    find_threshold,
    find_threshold_of_loss,
)
from mitl.core.arrays import Floats, Ints, places
from mitl.core.statistics import clopper_pearson
from mitl.errors import AuditError
from mitl.records import Label, several
from mitl.records.audits import AuditDesign
from mitl.records.frames import LABELS, NONE

Places = NDArray[np.int8]

SIDING_SHARE = 0.1
"""Of the risk, what goes to measuring how many workers side with the machine."""
FEW_REPEATS = 20
"""Pairs that two workers answered, below which they say nothing."""
NO_MATCH = "no match"
"""What the name of a part ends in that the machine calls no match."""
LEAST_PART = 0.02
"""Of a stratum's open pairs; a side with no more is left to people, and no risk is spent on it."""
_POSITIVE = np.array([label.is_positive for label in LABELS] + [False])  # the last is for NONE
_WEAK = np.array([label in (Label.WEAK_YES, Label.WEAK_NO) for label in LABELS] + [False])


class Loss(StrEnum):
    """What a wrong machine label costs."""

    BINARY = "binary"
    """1 where it is on the other side than people's answer: a match that is none, or the other way round."""
    ORDINAL = "ordinal"
    """A third for each level that it is off."""


@dataclass(frozen=True, slots=True)
class Promise:
    """What is promised of the labels."""

    error: float = 0.02
    """Share of a stratum's open pairs whose machine label may be wrong, or their mean loss."""
    lost: float | None = None
    """The same for what the machine calls no match, where another share is tolerated."""
    confidence: float = 0.95
    """That all strata keep it."""
    loss: Loss = Loss.BINARY
    siding: float | None = None
    """Share of the workers, at most, who side with the machine where it is wrong; None is measured."""


@dataclass(frozen=True, slots=True)
class LabelledStratum:
    """One stratum's threshold."""

    name: str
    threshold: Threshold
    drawn: int
    """Answers of the design's stratum that it is part of."""


@dataclass(frozen=True, slots=True, eq=False)
class MachineLabels:
    """What a machine may label, and under which bounds."""

    strata: tuple[LabelledStratum, ...]
    labels: pd.DataFrame
    """pair (ascending), label, probability, stratum."""
    siding: float
    """The share of siding workers that the bounds reckon with."""
    disputed: Ints
    """Sampled pairs whose first answer contradicts the machine and that lack the two further ones: taken for errors."""


def label_pairs(
    scored: pd.DataFrame,
    audited: pd.DataFrame,
    design: AuditDesign,
    promise: Promise,
    *,
    siding: float,
    cuts: Sequence[float] = (0.75, 0.5, 0.25),
) -> MachineLabels:
    """The labels that stand.

    Args:
        scored: of the open pairs and the sampled ones pair (ascending), probability and stratum of the design.
        audited: ``AUDITED``, complete.
        siding: see `siding_upper`; plays no part in ordinal losses.
        cuts: the probabilities from which a pair is labelled ``yes``, ``weak_yes`` and ``weak_no``; the second is 1/2.

    Raises:
        AuditError: the sample is incomplete or not drawn from these pairs, or the score is constant.
    """
    pairs, probability = scored["pair"].to_numpy(), scored["probability"].to_numpy(np.float64)
    sampled = places(pairs, audited["pair"].to_numpy())
    _check(scored, audited, sampled)
    label = (probability[:, None] < np.asarray(cuts)).sum(axis=1).astype(np.int8)
    match = _POSITIVE[label]
    uncertainty = np.where(match, 1 - probability, probability)
    answers = audited[["first", "second", "third"]].to_numpy()
    wrong, disputed = _contradicted(answers, match[sampled])
    levels = np.abs(label[sampled] - _level(answers)) / (len(LABELS) - 1)
    risk = (1 - promise.confidence) * (1 - SIDING_SHARE if siding and promise.siding is None else 1)
    stratum, of_audited = scored["stratum"].to_numpy(), audited["stratum"].to_numpy()
    parts = list(_parts(design, stratum, match))
    kept = np.zeros(len(pairs), np.bool_)
    names = np.full(len(pairs), "", object)
    strata = []
    for name, number, own in parts:
        members = np.flatnonzero(own)
        here = of_audited == number
        drawn = Drawn(design.strata[number].size, places(members, sampled[here]))
        error = promise.error if promise.lost is None or match[own].all() else promise.lost
        tolerance = Tolerance(error, risk / len(parts), siding)
        of_own = drawn.places >= 0
        if promise.loss is Loss.BINARY:
            threshold = find_threshold(uncertainty[members], drawn, wrong[here] & of_own, tolerance)
        else:
            loss = np.where(of_own, levels[here], 0.0)
            threshold = find_threshold_of_loss(uncertainty[members], drawn, loss, tolerance)
        strata.append(LabelledStratum(name, threshold, drawn.sample))
        kept[members] = uncertainty[members] < threshold.cut
        names[members] = name
    kept[sampled] = False
    columns = {"pair": pairs, "label": label, "probability": probability, "stratum": names.astype(str)}
    labels = pd.DataFrame({column: values[kept] for column, values in columns.items()})
    return MachineLabels(tuple(strata), labels, siding, audited["pair"].to_numpy()[disputed])


def siding_upper(first: Places, second: Places, risk: float) -> float:
    """How many workers, at most, would side with the machine where it is wrong, from two workers' answers on each pair.

    With t the share of workers who call a pair a match, two of them disagree with probability 2 t (1 - t), which is at
    least the smaller of t and 1 - t: so the mean share of a minority is at most the share of disagreements. Machine
    errors are taken to be as hard as the pairs of which either worker said ``weak_yes`` or ``weak_no``; where those are
    few, as all pairs; where all are few, half of the workers.
    """
    weak = _WEAK[first] | _WEAK[second]
    apart = _POSITIVE[first] != _POSITIVE[second]
    for chosen in (weak, np.ones_like(weak)):
        if int(chosen.sum()) >= FEW_REPEATS:
            seen = clopper_pearson(int(apart[chosen].sum()), int(chosen.sum()), 1 - 2 * risk)
            return min(seen[1], MOST_SIDING)
    return MOST_SIDING


def level_cuts(probability: Floats, label: Places) -> tuple[float, float, float]:
    """From which probabilities ``yes``, ``weak_yes`` and ``weak_no`` are given, with people's answers least far.

    The loss is a sum over the three steps between levels, so each cut is best on its own; that of the sides is 1/2.
    """
    order = np.argsort(-probability, kind="stable")
    rising = np.concatenate([[1.0], probability[order]])
    cuts = []
    for step in (0, 2):
        above = label[order] <= step
        # Cut after k pairs: the k first are given the better level, the others the worse.
        losses = (
            np.concatenate([[0], np.cumsum(~above)]) + above.sum() - np.concatenate([[0], np.cumsum(above)])
        )
        cuts.append(float(rising[int(losses.argmin())]))
    return max(cuts[0], 0.5), 0.5, min(cuts[1], 0.5)


def _parts(
    design: AuditDesign, stratum: NDArray[np.int16], match: NDArray[np.bool_]
) -> Iterator[tuple[str, int, NDArray[np.bool_]]]:
    """Name, the design's stratum and members of each part that has a threshold; too small ones are left to people."""
    for number, drawn in enumerate(design.strata):
        for side, flags in (("match", match), (NO_MATCH, ~match)):
            own = (stratum == number) & flags
            if own.sum() > LEAST_PART * (stratum == number).sum():
                yield (side if len(design.strata) == 1 else f"{drawn.name}, {side}"), number, own


def _check(scored: pd.DataFrame, audited: pd.DataFrame, sampled: Ints) -> None:
    missing = int((audited["first"] == NONE).sum())
    if missing:
        raise AuditError(
            f"no usable answer yet on {missing:,} of the {several(len(audited), 'sampled pair')}; run `mitl publish "
            "--drawn`, and `mitl harvest` and `mitl review` when they are answered"
        )
    if (sampled < 0).any():
        raise AuditError(
            f"no score for {int((sampled < 0).sum()):,} of the {several(len(audited), 'sampled pair')}; run `mitl "
            "fuse` again, or score them in the file too"
        )
    probability = scored["probability"]
    if not len(scored) or probability.max() == probability.min():
        raise AuditError(
            f"all {len(scored):,} open pairs have the same probability, so none is surer than another; "
            "fuse scores that tell pairs apart"
        )


def _contradicted(answers: Places, match: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(m,) whether people contradict the machine, and where two further answers are still wanted to say so."""
    given = answers != NONE
    against = given & (_POSITIVE[answers] != match[:, None])
    votes, first = against.sum(axis=1), against[:, 0]
    open_ = first & (votes < 2) & (given.sum(axis=1) < 3)
    return first & ((votes >= 2) | open_), open_


def _level(answers: Places) -> Places:
    """(m,) the middle of three answers, else the first."""
    all_given = (answers != NONE).all(axis=1)
    return np.where(all_given, np.median(answers, axis=1), answers[:, 0]).astype(np.int8)


def refusal(found: MachineLabels, promise: Promise, design: AuditDesign) -> str | None:
    """In one line why no threshold can pass, and how many answers are wanted; None where one can.

    A larger sample is shared among the strata as this one is, so that all of it grows as one of them has to.
    """
    refused = [part for part in found.strata if part.threshold.refused]
    if len(refused) < len(found.strata) or not refused:
        return None

    def further(part: LabelledStratum, wanted: int) -> int:
        return -(-wanted * design.sample // max(part.drawn, 1)) - design.sample

    least, best = min(
        ((further(part, part.threshold.wanted or part.drawn), part) for part in refused),
        key=lambda one: one[0],
    )
    error = promise.error if promise.lost is None or not best.name.endswith(NO_MATCH) else promise.lost
    line = (
        f"{design.sample:,} sampled answers are too few to promise at most {100 * error:.12g}% wrong labels of "
        f"{best.name!r} with confidence {100 * promise.confidence:.12g}%; at least {least:,} more are wanted"
    )
    still_open = sum(part.threshold.pairs - part.threshold.audited for part in found.strata)
    if least >= still_open:
        line += f", but only {still_open:,} pairs are open"
    elif best.threshold.wanted_for_all is not None:
        line += f", and {further(best, best.threshold.wanted_for_all):,} more to label all at the errors seen"
    return (
        f"{line}, and a sample cannot grow once its answers are known: raise --error (a round's --label-error), or let "
        "people answer the open pairs"
    )

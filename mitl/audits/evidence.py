"""From the frames of an audit to what its bounds read: counts by stratum and the groups that tell how workers err."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mitl.audits.bounds import AuditEvidence, Counts
from mitl.audits.workers import FEWEST, Errors
from mitl.core.arrays import Flags, Ints, places
from mitl.errors import AuditError
from mitl.records import Label, several
from mitl.records.audits import ANSWERS_EACH, AuditDesign
from mitl.records.frames import LABELS, NONE

if TYPE_CHECKING:
    import pandas as pd

EXPECTED_REFUSED = 0.05
"""Share of a release's positives that people are guessed to refuse, before anything is asked."""
_POSITIVE = np.array([label.is_positive for label in LABELS])


class AnswerGroup(StrEnum):
    """Whose first answers tell a rate of error."""

    WEAK_YES = (
        "positives of the release that people had called weak_yes and that one of two further workers accepts"
    )
    HELD = "positives of the release that one of two further workers accepts"
    WEAK_NO = "pairs that people had called weak_no"
    NOBODY = "nobody: too few such pairs are in the sample"


@dataclass(frozen=True, slots=True)
class Recheck:
    """What two further workers made of first noes outside the release, a test of the rate of false noes."""

    noes: int
    """First noes that went to two more."""
    overturned: int
    """Of them those that both called a match."""
    accepted: int
    """Pairs drawn for a recheck that two of three workers called a match, whatever the first said."""


def answered(audited: pd.DataFrame, *, strict: bool = False) -> tuple[Flags, Flags]:
    """(3, n) which answers of ``AUDITED`` are given, and which call the pair a match; strictly, yes alone does."""
    answers = np.stack([audited[name].to_numpy() for name in ("first", "second", "third")])
    given = np.asarray(answers != NONE)
    return given, given & (answers == LABELS.index(Label.YES) if strict else _POSITIVE[answers])


def wanted_each(audited: pd.DataFrame) -> Ints:
    """(n,) answers that each pair needs as it stands: 3 where it is rechecked or the first says yes, else 1."""
    first = answered(audited)[1][0]
    return np.where(audited["recheck"].to_numpy() | first, ANSWERS_EACH, 1)


def confirmed(audited: pd.DataFrame, *, strict: bool = False) -> Flags:
    """(n,) of ``AUDITED``: whether the first answer is a match and one of the two further ones is."""
    yes = answered(audited, strict=strict)[1]
    return _by_majority(yes[0], yes.sum(axis=0))


def refused(audited: pd.DataFrame) -> Flags:
    """(n,) of ``AUDITED``: whether two of three answers, all given, are no match."""
    given, yes = answered(audited)
    return np.asarray(given.all(axis=0) & (yes.sum(axis=0) < 2))


def _by_majority(first: Flags, yeses: Ints) -> Flags:
    return np.asarray(first & (yeses >= 2))


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """An audit's answers beside a release; (n,) each, in the order of drawing."""

    place: Ints
    stratum: Ints
    recheck: Flags
    held: Flags
    """Whether the release holds the pair."""
    label: NDArray[np.int8]
    """What people had answered before; NONE where nobody was asked."""
    answered: Flags
    """Whether it has all the answers that it wants."""
    first: Flags
    """Whether the first answer is a yes."""
    yeses: Ints
    """Positive answers of at most three."""
    open: Ints
    """Answers that are still to come, as far as is known: the first may yet ask for two more."""

    @classmethod
    def of(cls, audited: pd.DataFrame, held: pd.DataFrame, labels: pd.DataFrame) -> Sample:
        """The sample of the frames ``AUDITED`` and ``HELD``; ``labels`` has the columns ``pair`` and ``label``."""
        audited = audited.sort_values("place")
        pairs = audited["pair"].to_numpy()
        known = labels.sort_values("pair")
        at = places(known["pair"].to_numpy(), pairs)
        label = np.full(len(pairs), NONE, np.int8)
        label[at >= 0] = known["label"].to_numpy()[at[at >= 0]]
        given, yes = answered(audited)
        open_ = np.maximum(wanted_each(audited) - given.sum(axis=0), ~given[0])
        return cls(
            audited["place"].to_numpy(),
            audited["stratum"].to_numpy().astype(np.int64),
            audited["recheck"].to_numpy(),
            places(np.sort(held["pair"].to_numpy()), pairs) >= 0,
            label,
            open_ == 0,
            yes[0],
            yes.sum(axis=0),
            open_,
        )

    @property
    def confirmed(self) -> Flags:
        """(2, n) a first yes and at least one of two more; three yeses."""
        return np.stack([_by_majority(self.first, self.yeses), self.yeses == ANSWERS_EACH])

    @property
    def refused(self) -> Flags:
        """(2, n) fewer than two yeses of three; none. A lone first no counts as either, which is the careful side."""
        return np.stack([self.yeses < 2, self.yeses == 0])

    def prefix(self) -> int:
        """How many pairs stand before the first one that lacks an answer."""
        lacking = np.flatnonzero(~self.answered)
        return int(lacking[0]) if len(lacking) else len(self.answered)

    def groups(self) -> dict[str, tuple[AnswerGroup, Flags, int]]:
        """The groups of `workers.Errors` by part, who is in them, and how many were drawn that might be.

        Which group is taken hangs on numbers drawn alone.
        """
        thrice = self.held & self.recheck
        weak_yes = thrice & (self.label == LABELS.index(Label.WEAK_YES))
        weak_no = ~self.held & (self.label == LABELS.index(Label.WEAK_NO))
        accepted = self.yeses > self.first
        kind, could = (
            (AnswerGroup.WEAK_YES, weak_yes) if weak_yes.sum() >= FEWEST else (AnswerGroup.HELD, thrice)
        )
        no_kind, no = (
            (AnswerGroup.WEAK_NO, weak_no)
            if weak_no.sum() >= FEWEST
            else (AnswerGroup.NOBODY, np.zeros_like(weak_no))
        )
        return {
            "false_no": (kind, could & accepted, int(could.sum())),
            "false_yes": (no_kind, no, int(no.sum())),
        }

    def evidence(self, design: AuditDesign, held_sizes: Ints, first: int) -> AuditEvidence:
        """What the ``first`` so many pairs in the order of drawing say; all of them must be answered."""
        seen = np.arange(len(self.held)) < first
        size = np.array([stratum.size for stratum in design.strata], np.float64)
        expected = np.array([stratum.expected for stratum in design.strata])
        rates = {
            part: Errors((members & seen & wrong).sum(), (members & seen).sum(), drawn)
            for (part, (_, members, drawn)), wrong in zip(
                self.groups().items(), (~self.first, self.first), strict=True
            )
        }
        return AuditEvidence(
            Counts(
                size - held_sizes,
                self.by_stratum(seen & ~self.held, len(size)),
                np.stack([self.by_stratum(seen & ~self.held & by, len(size)) for by in self.confirmed]),
                expected,
                self.by_stratum(~self.held, len(size)),
            ),
            Counts(
                held_sizes.astype(np.float64),
                self.by_stratum(seen & self.held, len(size)),
                np.stack([self.by_stratum(seen & self.held & by, len(size)) for by in self.refused]),
                np.full(len(size), EXPECTED_REFUSED),
                self.by_stratum(self.held, len(size)),
            ),
            rates["false_no"],
            rates["false_yes"],
        )

    def by_stratum(self, flags: Flags, strata: int) -> NDArray[np.float64]:
        """(H,) how many of the flagged pairs each stratum holds."""
        return np.bincount(self.stratum[flags], minlength=strata).astype(np.float64)

    def rechecked(self) -> Recheck:
        """What the rechecks outside the release found."""
        drawn = self.recheck & ~self.held
        noes = drawn & ~self.first
        return Recheck(
            int(noes.sum()), int((noes & (self.yeses >= 2)).sum()), int((drawn & (self.yeses >= 2)).sum())
        )


def held_sizes(design: AuditDesign, held: pd.DataFrame) -> Ints:
    """(H,) positives of the release in each stratum.

    Raises:
        AuditError: they stand in a stratum that the design does not have, or are more than it holds.
    """
    strata = held["stratum"].to_numpy()
    if len(strata) and not (strata.min() >= 0 and strata.max() < len(design.strata)):
        raise AuditError(
            f"a positive of the release stands in stratum {strata.max()}, but the audit has {len(design.strata)}"
        )
    sizes = np.bincount(strata, minlength=len(design.strata)).astype(np.int64)
    for stratum, size in zip(design.strata, sizes.tolist(), strict=True):
        if size > stratum.size:
            raise AuditError(
                f"the release holds {several(size, 'positive')} in stratum {stratum.name!r} of {stratum.size:,} pairs; "
                "it is of another pool than the audit"
            )
    return sizes


def check_sample(design: AuditDesign, audited: pd.DataFrame) -> None:
    """Refuse a sample that is not the one that was drawn.

    Raises:
        AuditError: a stratum has another number of pairs than were drawn from it, or none at all, a pair or a place
            stands twice, or an inclusion probability is not the design's.
    """
    drawn = np.bincount(audited["stratum"].to_numpy(), minlength=len(design.strata))
    for stratum, number in zip(design.strata, drawn.tolist(), strict=True):
        if stratum.size and not number:
            raise AuditError(
                f"stratum {stratum.name!r} of {stratum.size:,} pairs has no audited pair, so nothing bounds it; draw a "
                "new audit with at least 1 of each stratum"
            )
        if number != stratum.sample:
            raise AuditError(
                f"stratum {stratum.name!r} was to have {several(stratum.sample, 'audited pair')} and has {number:,}: "
                "the sample was changed after it was drawn, which voids it; draw a new one"
            )
    if audited["pair"].duplicated().any() or audited["place"].duplicated().any():
        raise AuditError("a pair of the audit stands twice; its file was changed after it was drawn")
    inclusion = np.array([stratum.inclusion for stratum in design.strata])[audited["stratum"].to_numpy()]
    if not np.allclose(audited["inclusion"].to_numpy(), inclusion, rtol=1e-9, atol=0):
        raise AuditError("inclusion probabilities of the audit are not those of its design; restore the file")


def check_complete(sample: Sample) -> None:
    """Refuse an audit that lacks answers: who leaves them out chooses by hand.

    Raises:
        AuditError: some pair lacks an answer that it wants.
    """
    lacking = int((sample.open > 0).sum())
    if lacking:
        raise AuditError(
            f"the audit lacks {several(int(sample.open.sum()), 'answer')} on {lacking:,} of its "
            f"{several(len(sample.open), 'pair')}; ask for them before it certifies anything"
        )

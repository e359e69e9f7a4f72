"""Audits of a pool of pairs: how a sample is designed, and the frames of what was drawn and answered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from mitl.records.enums import AuditPurpose

if TYPE_CHECKING:
    from mitl.records.frames import Schema  # importing it brings numpy

ANSWERS_EACH = 3
"""Different workers who answer an audited pair that the first calls a match, or that is rechecked."""


@dataclass(frozen=True, slots=True)
class Stratum:
    """One part of the pool, from which a simple random sample is drawn without replacement."""

    name: str
    size: int
    """Pairs of the pool."""
    sample: int
    """Pairs drawn; at least 1 where the stratum holds any."""
    recheck_share: float
    """Of the pairs whose first answer is no, how many go to two further workers, 0 to 1."""
    expected: float
    """Share of matches among those pairs that the release lacks, guessed before anything was asked, 0 to 1."""

    @property
    def inclusion(self) -> float:
        """Probability that a pair of it is drawn."""
        return self.sample / self.size if self.size else 0.0


@dataclass(frozen=True, slots=True)
class AuditDesign:
    """All that is fixed before the first answer; the bounds read nothing else of the design."""

    purpose: AuditPurpose
    seed: int
    strata: tuple[Stratum, ...]
    """In order of their numbers; the last of a pool of recall is the remainder that no ranking lists."""
    confidence: float = 0.95
    """Of the bound of recall, one-sided."""
    shares: Mapping[str, float] | None = None
    """How the risk 1 - confidence is dealt to the parts of the bound, which sum to 1; None as the bound's default."""
    simple: bool = False
    """Whether it is one simple random sample of the pool: a single stratum."""

    @property
    def size(self) -> int:
        """Pairs of the pool."""
        return sum(stratum.size for stratum in self.strata)

    @property
    def sample(self) -> int:
        """Pairs drawn."""
        return sum(stratum.sample for stratum in self.strata)

    def to_json(self) -> str:
        """As the database and releases keep it."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> AuditDesign:
        """The design that `to_json` wrote; KeyError, TypeError or ValueError where it is none."""
        stored: dict[str, Any] = json.loads(text)
        strata = tuple(Stratum(**stratum) for stratum in stored.pop("strata"))
        design = cls(strata=strata, **stored)
        return replace(design, purpose=AuditPurpose(design.purpose))


LISTED: Schema = {
    "pair": ("int64", "packed, ascending and distinct"),
    "stratum": ("int16", "place among the design's strata; pairs that are not listed are in the last"),
}
"""Where the pairs of a pool stand that some ranking or the release named when the sample was drawn."""

AUDITED: Schema = {
    "pair": ("int64", "packed, distinct"),
    "place": ("int64", "in the order of drawing, from 1; ascending"),
    "stratum": ("int16", "place among the design's strata"),
    "inclusion": ("float64", "probability that the draw holds it, above 0"),
    "recheck": ("bool", "whether a no of the first worker goes to two further ones"),
    "known": ("bool", "whether it was a positive when the sample was drawn"),
    "first": ("int8", "place in Label of the first usable answer; NONE where there is none yet"),
    "second": ("int8", "of the second, by another worker; NONE where none is wanted or there is none yet"),
    "third": ("int8", "of the third, by one more"),
}
"""A drawn pair with its blind answers, in the order in which they came."""

AUDIT_ANSWERS: Schema = {
    "place": ("int64", "of the pair, in the order of drawing; ascending"),
    "pair": ("int64", "packed"),
    "number": ("int8", "1 to 3, in the order in which the answers came"),
    "label": ("int8", "place in Label"),
    "worker": ("str", "id on the requester API"),
}
"""The answers of an audit that count, each by another worker."""

HELD: Schema = {
    "pair": ("int64", "packed, ascending and distinct: a positive of the release within the pool"),
    "stratum": ("int16", "place among the design's strata"),
}
"""What the release holds, where the audit looks for it; positives that only the audit found are not among these."""

FUSED: Schema = {
    "pair": ("int64", "packed, ascending and distinct"),
    "probability": ("float64", "0 to 1, calibrated, that the pair is a match"),
    "fold": ("int16", "whose answers no part of the model that gave this probability has read"),
}
"""A probability for each ranked pair, fused from annotators, similarities and the answers on other queries' pairs."""

"""Everything that a release is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mitl.positives.merging import Merged, MergeRules
from mitl.records import Direction, Environment, IdKind, Judgement, Proposal


@dataclass(frozen=True, slots=True)
class ReleaseCard:
    """What only the makers of a data set can say of it; what is left out is shown as not stated."""

    description: str = ""
    version: str = "1.0.0"
    license: str = ""
    """Of the judgements and positives, as an SPDX name or a URL."""
    items_license: str = ""
    """Of the images and captions, which the release names but does not hold."""
    creators: tuple[str, ...] = ()
    contact: str = ""
    url: str = ""
    citation: str = ""
    date_published: str = ""
    """ISO date chosen by the makers; never the clock's."""
    pay: str = ""
    """What workers were paid and how the time was measured."""
    ethics: str = ""
    """Consent and ethics review."""


@dataclass(frozen=True, slots=True)
class ReleaseInput:
    """What a release is made of, by surrogate ids; the same input gives the same bytes, in whatever order.

    ``image_ids`` and ``caption_ids`` give the external id of *every* item of the data set, since string ids
    get their stand-in integers from the whole set. ``salt`` keys the pseudonyms; it never enters the
    release.
    """

    name: str
    dataset: str
    environment: Environment
    id_kind: IdKind
    image_ids: Mapping[int, str]
    caption_ids: Mapping[int, str]
    queries: Mapping[Direction, tuple[int, ...]]
    merged: Merged
    rules: MergeRules
    judgements: tuple[Judgement, ...]
    proposals: tuple[Proposal, ...]
    salt: bytes
    seeds: Mapping[str, int] = field(default_factory=dict)
    configuration: Mapping[str, object] = field(default_factory=dict)
    """Whatever else decided the outcome, as JSON: annotators, batches, templates, exclusion lists."""
    crowd_facts: Mapping[str, str] = field(default_factory=dict)
    """Lines for the datasheet's account of the crowd: gold pass rate, median time, wages."""
    card: ReleaseCard = field(default_factory=ReleaseCard)

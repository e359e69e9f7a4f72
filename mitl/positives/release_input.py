"""Everything that a release is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd

from mitl.judgements.aggregators import Posterior
from mitl.positives.merging import Merged
from mitl.positives.origins import Origins
from mitl.positives.rules import MergeRules
from mitl.positives.shown_texts import TextScan
from mitl.proposals.columns import ProposalColumns
from mitl.records import Direction, Environment, IdKind


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
    judgements: pd.DataFrame
    """``JUDGEMENTS``."""
    proposals: ProposalColumns
    salt: bytes
    seeds: Mapping[str, int] = field(default_factory=dict)
    configuration: Mapping[str, object] = field(default_factory=dict)
    """Whatever else decided the outcome, as JSON: annotators, batches, templates, exclusion lists."""
    origins: Origins = field(default_factory=Origins)
    """How the answers came to be, for the datasheet."""
    texts: TextScan | None = None
    """What the scan of the judgements' texts found; None where they are left out."""
    card: ReleaseCard = field(default_factory=ReleaseCard)
    fit: str = ""
    """How the fit of the aggregator ended; empty for the majority, which fits nothing."""
    posterior: Posterior | None = None
    """What the aggregator holds possible for each answered pair, in their order; None for the majority."""
    warnings: tuple[str, ...] = ()
    """Why its answers should be taken with care."""

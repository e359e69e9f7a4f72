"""The figures of a release, counted once for the manifest, the datasheet and the README."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from mitl.judgements.aggregation import counts_for_pair
from mitl.positives.release_input import ReleaseInput
from mitl.records import Direction, Label, PositiveSource


@dataclass(frozen=True, slots=True)
class Summary:
    """What a release holds."""

    positives: int
    by_source: Mapping[PositiveSource, int]
    """Positives that each source speaks for; one pair may have several."""
    queries_asked: Mapping[Direction, int]
    queries_listed: Mapping[Direction, int]
    query_positives: Mapping[Direction, int]
    """Positives in the two JSONs."""
    judgements: int
    usable: int
    pairs_judged: int
    labels: Mapping[Label, int]
    """Usable judgements by answer."""
    workers: int
    largest_share: float | None
    """Share of the judgements that the busiest worker gave; None without judgements."""
    median_active_s: float | None
    proposed_by: Mapping[str, int]
    """Distinct pairs that each annotator proposed."""
    conflicts: int
    excluded: int

    def as_json(self) -> dict[str, object]:
        """The figures for the manifest."""
        return {
            "positives": self.positives,
            "positives_by_source": {source.value: count for source, count in self.by_source.items()},
            "queries_asked": {direction.value: count for direction, count in self.queries_asked.items()},
            "queries_listed": {direction.value: count for direction, count in self.queries_listed.items()},
            "query_positives": {direction.value: count for direction, count in self.query_positives.items()},
            "judgements": self.judgements,
            "judgements_usable": self.usable,
            "pairs_judged": self.pairs_judged,
            "labels": {label.value: count for label, count in self.labels.items()},
            "workers": self.workers,
            "pairs_proposed_by": dict(self.proposed_by),
            "conflicts": self.conflicts,
            "excluded_positives": self.excluded,
        }


def summarise(data: ReleaseInput, listed: Mapping[Direction, Mapping[int, tuple[int, ...]]]) -> Summary:
    """Count a release; gold controls are in no figure."""
    shown = [judgement for judgement in data.judgements if not judgement.role.is_gold]
    counting = [judgement for judgement in shown if counts_for_pair(judgement)]
    sources = Counter(source for positive in data.merged.positives for source in positive.sources)
    labels = Counter(judgement.label for judgement in counting)
    work = Counter(judgement.worker for judgement in shown)
    times = [judgement.active_ms / 1000 for judgement in shown if judgement.active_ms is not None]
    pairs = {(proposal.annotator, proposal.pair) for proposal in data.proposals}
    proposed_by = Counter(annotator for annotator, _ in pairs)
    return Summary(
        positives=len(data.merged.positives),
        by_source={source: sources[source] for source in PositiveSource},
        queries_asked={d: len(set(data.queries.get(d, ()))) for d in Direction},
        queries_listed={d: len(listed[d]) for d in Direction},
        query_positives={d: sum(map(len, listed[d].values())) for d in Direction},
        judgements=len(shown),
        usable=len(counting),
        pairs_judged=len({judgement.pair for judgement in counting}),
        labels={label: labels[label] for label in Label},
        workers=len(work),
        largest_share=max(work.values()) / len(shown) if shown else None,
        median_active_s=statistics.median(times) if times else None,
        proposed_by=dict(sorted(proposed_by.items())),
        conflicts=len(data.merged.conflicts),
        excluded=len(data.merged.excluded),
    )

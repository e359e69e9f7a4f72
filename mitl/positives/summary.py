"""The figures of a release, counted once for the manifest, the datasheet and the README."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mitl.core.packed import contains, distinct
from mitl.positives.concord import Concord, concord
from mitl.positives.release_input import ReleaseInput
from mitl.positives.shown_texts import TextScan
from mitl.records import Direction, Label, PositiveSource
from mitl.records.frames import NONE, counts, is_gold


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
    proposed: int
    """Distinct pairs that any of them proposed."""
    unanswered: int
    """Those without a usable judgement: whether they match is not known."""
    conflicts: int
    excluded: int
    negatives: int
    """Pairs that people called no match."""
    agreement: Concord
    texts: TextScan | None
    """None where texts are left out."""

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
            "pairs_proposed": self.proposed,
            "pairs_unanswered": self.unanswered,
            "conflicts": self.conflicts,
            "excluded_positives": self.excluded,
            "negatives": self.negatives,
            "agreement": self.agreement.as_json(),
            "texts": None if self.texts is None else self.texts.as_json(),
        }


def summarise(data: ReleaseInput, listed: Mapping[Direction, Mapping[int, tuple[int, ...]]]) -> Summary:
    """Count a release; gold controls are in no figure."""
    shown = data.judgements[~is_gold(data.judgements)]
    counting, merged = shown.loc[counts(shown), ["pair", "label"]], data.merged.pairs
    kept = merged[merged["kept"]]
    work = shown["worker"].value_counts(sort=False)
    times = shown.loc[shown["active_ms"] != NONE, "active_ms"]
    proposed, answered = distinct(data.proposals.pairs), distinct(counting["pair"].to_numpy())
    return Summary(
        positives=len(kept),
        by_source={
            source: int(kept[speaks].sum())
            for source, speaks in zip(PositiveSource, ("verified", "rated", "original"), strict=True)
        },
        queries_asked={d: len(set(data.queries.get(d, ()))) for d in Direction},
        queries_listed={d: len(listed[d]) for d in Direction},
        query_positives={d: sum(map(len, listed[d].values())) for d in Direction},
        judgements=len(shown),
        usable=len(counting),
        pairs_judged=len(answered),
        labels={label: int((counting["label"] == place).sum()) for place, label in enumerate(Label)},
        workers=int((work > 0).sum()),
        largest_share=float(work.max() / len(shown)) if len(shown) else None,
        median_active_s=float(np.median(times)) / 1000 if len(times) else None,
        proposed_by=data.proposals.distinct_pairs(),
        proposed=len(proposed),
        unanswered=len(proposed) - int(contains(answered, proposed).sum()),
        conflicts=int(merged["conflict"].sum()),
        excluded=int(merged["excluded"].sum()),
        negatives=int(merged["negative"].sum()),
        agreement=concord(shown),
        texts=data.texts,
    )

"""The figures of a release, counted once for the manifest, the datasheet and the README."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, TypedDict

import numpy as np

from mitl.core.arrays import contains, distinct
from mitl.judgements.agreement import PairAgreement, pair_agreement
from mitl.positives.release_input import Collecting, ReleaseInput
from mitl.positives.scrubbing import TextScan
from mitl.proposals.candidates import distinct_pairs
from mitl.records import Direction, Label, PositiveSource
from mitl.records.frames import NONE, counts, is_asked


class SummaryCounts(TypedDict):
    """The figures of a release."""

    positives: Annotated[int, "positive pairs"]
    positives_by_source: Annotated[dict[str, int], "by source; a pair may have several"]
    queries_asked: Annotated[dict[str, int], "by direction: queries of the runs, or those of the lists given"]
    queries_listed: Annotated[dict[str, int], "by direction: queries with a positive"]
    query_positives: Annotated[dict[str, int], "by direction: positives of the listed queries"]
    judgements: Annotated[int, "answers in the release; those on gold controls are left out"]
    judgements_usable: Annotated[int, "those that count"]
    pairs_judged: Annotated[int, "pairs with a usable judgement"]
    labels: Annotated[dict[str, int], "usable answers by label"]
    workers: Annotated[
        int, "workers with answers in judgements.parquet, which holds none on controls and in audits"
    ]
    pairs_proposed_by: Annotated[dict[str, int], "pairs by annotator"]
    pairs_proposed: Annotated[int, "distinct pairs that they proposed"]
    pairs_unanswered: Annotated[int, "those without a usable judgement or a machine's label"]
    conflicts: Annotated[int, "pairs on which sources disagree"]
    excluded_positives: Annotated[int, "positives that an exclusion list took out"]
    negatives: Annotated[int, "pairs that people, or else a machine, called no match"]
    agreement: Annotated[
        dict[str, Any],
        "alpha (Krippendorff's, ordinal; null where it cannot be estimated), alpha_low, alpha_high (95 % bootstrap "
        "interval), pairs answered by several people, their answers, same_label, same_side (pairs)",
    ]
    collected: Annotated[
        dict[str, int] | None,
        "of `mitl collect`: items chosen, texts written, images picked, faulty, refused, accepted, paid_cents; null "
        "where no item was chosen",
    ]
    texts: Annotated[
        dict[str, Any] | None,
        "with `--with-texts`: texts released, texts_changed, removed (by kind); null without it",
    ]


SPEAKS = {
    PositiveSource.JUDGEMENT: "verified",
    PositiveSource.CXC: "rated",
    PositiveSource.ORIGINAL: "original",
    PositiveSource.MACHINE: "labelled",
    PositiveSource.AUDIT: "found",
}
"""The column of ``MERGED`` in which each source speaks for a pair."""


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
    """Those without a usable judgement or a machine's label; other sources may tell of some whether they match."""
    conflicts: int
    excluded: int
    negatives: int
    """Pairs that people, or else a machine, called no match."""
    agreement: PairAgreement
    collecting: Collecting | None
    """None where no item was chosen to get a partner."""
    texts: TextScan | None
    """None where texts are left out."""

    @property
    def sources(self) -> tuple[PositiveSource, ...]:
        """Those that a release is told of: machines and audits where they gave something."""
        always = (PositiveSource.JUDGEMENT, PositiveSource.CXC, PositiveSource.ORIGINAL)
        return tuple(source for source in PositiveSource if source in always or self.by_source[source])

    @property
    def held(self) -> dict[str, int]:
        """The figures that tell a release from one of later answers."""
        own = {"positives": self.positives, "negatives": self.negatives, "answers": self.judgements}
        return {**own, "usable": self.usable, **{way.value: n for way, n in self.query_positives.items()}}

    def as_json(self) -> SummaryCounts:
        """The figures for the manifest and for ``--json``."""
        return {
            "positives": self.positives,
            "positives_by_source": {source.value: self.by_source[source] for source in self.sources},
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
            "collected": None if self.collecting is None else asdict(self.collecting),
            "texts": None if self.texts is None else self.texts.as_json(),
        }


def summarise(data: ReleaseInput, listed: Mapping[Direction, Mapping[int, tuple[int, ...]]]) -> Summary:
    """Count a release; gold controls and answers of audits are in no figure of judgements."""
    shown = data.judgements[is_asked(data.judgements)]
    counting, merged = shown.loc[counts(shown), ["pair", "label"]], data.merged.pairs
    kept = merged[merged["kept"]]
    work = shown["worker"].value_counts(sort=False)
    times = shown.loc[shown["active_ms"] != NONE, "active_ms"]
    proposed, answered = distinct(data.proposals["pair"].to_numpy()), distinct(counting["pair"].to_numpy())
    labelled = merged.loc[merged["machine"] != NONE, "pair"].to_numpy()
    told = distinct(np.concatenate([answered, labelled]))
    return Summary(
        positives=len(kept),
        by_source={source: int(kept[speaks].sum()) for source, speaks in SPEAKS.items()},
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
        proposed_by=distinct_pairs(data.proposals),
        proposed=len(proposed),
        unanswered=len(proposed) - int(contains(told, proposed).sum()),
        conflicts=int(merged["conflict"].sum()),
        excluded=int(merged["excluded"].sum()),
        negatives=int(merged["negative"].sum()),
        agreement=pair_agreement(shown),
        collecting=data.collecting,
        texts=data.texts,
    )

"""The keys of ``counts`` of releases and what is said of a project, and what they mean."""

from __future__ import annotations

_ENVIRONMENT = {"environment": "sandbox or live"}

_HEADLINE = {
    "pairs": "candidate pairs",
    "judgements": "stored answers on pairs, controls included",
    "positives": "candidate pairs that people called a match",
    "positives_beyond_originals": "those that the original annotation lacks",
    "alpha": "Krippendorff's alpha of the usable answers, ordinal; null where it cannot be estimated",
    "alpha_low": "lower end of its 95 % bootstrap interval",
    "alpha_high": "upper end",
    "recall_before": "original annotation against the known truth",
    "precision_before": "the same",
    "recall_after": "release against the known truth",
    "precision_after": "the same",
    "recall_hit_rule_alone": "recall by each page's own controls, without the workers' gold records",
    "precision_hit_rule_alone": "precision by that rule",
}

COUNTS: dict[str, dict[str, str]] = {
    "status": {
        **_ENVIRONMENT,
        "images": "images of the data set",
        "captions": "captions of the data set",
        "pairs": "candidate pairs",
        "pairs_open": "pairs on no live HIT and without a usable judgement",
        "pairs_judged": "pairs with a usable judgement",
        "hits": "HITs by state: planned, sending, posted, closed",
        "submissions": "assignments submitted",
        "queued": "submissions that wait for a person",
        "calls_open": "decided submissions that the server has not heard of; `mitl harvest` carries that out",
        "hits_to_ask_again": "closed HITs whose answers could not be used",
        "golds_answered": "answers on gold controls",
        "golds_passed": "those as expected",
        "golds_withdrawn": "controls that workers of good record fail; what was answered there is forgiven",
        "paid_cents": "rewards and fees paid",
        "hits_out": "posted HITs that still wait for a worker",
        "held_cents": "rewards promised for work that is not decided",
    },
    "build-dataset": {
        **_ENVIRONMENT,
        "manifest_sha256": "hash of the release's manifest.json",
        "with_originals": "whether originals were added",
        "aggregator": "how several answers became one",
        "positives": "positive pairs",
        "positives_by_source": "by source; a pair may have several",
        "queries_asked": "by direction: queries of the runs",
        "queries_listed": "by direction: queries with a positive",
        "query_positives": "by direction: positives of the listed queries",
        "judgements": "answers in the release; those on gold controls are left out",
        "judgements_usable": "those that count",
        "pairs_judged": "pairs with a usable judgement",
        "labels": "pairs by aggregated answer",
        "workers": "workers in the release",
        "pairs_proposed_by": "pairs by annotator",
        "conflicts": "pairs on which sources disagree",
        "excluded_positives": "positives that an exclusion list took out",
        "negatives": "pairs that people called no match",
        "agreement": "alpha (Krippendorff's, ordinal; null where it cannot be estimated), alpha_low, alpha_high (95 % "
        "bootstrap interval), pairs answered by several people, their answers, same_label, same_side (pairs)",
        "texts": "with `--with-texts`: texts released, texts_changed, removed (by kind); null without it",
        "ids_checked": "ids that `--check-privacy` looked for; 0 without it",
    },
    "compare": {
        "queries": "direction → queries of the last set",
        "positives": "set → direction → positives of those queries",
        "quality": "set → direction → precision and recall (0 to 1 or null), queries that count, queries dropped",
        "overlap": "set → direction → pairs in both, in the set alone, in the last alone",
    },
    "evaluate": {
        "scores": "set of positives → model → direction → metric → value, shares from 0 to 1",
        "intervals": "the same with [low, high], the ends of the 95 % interval; empty with `--no-intervals`",
        "queries": "set → direction → queries that count",
        "environments": "set that comes of a release → the environment whose answers it holds",
        "rsum": "set → model → value, low and high of R@1 + R@5 + R@10 of both directions, from 0 to 6",
        "correlations": "with `--cxc`: model → sts, sis, sits → mean, std, low, high of Spearman's correlation",
        "paired": "with `--against`: a list of positives, model, against, direction, metric, difference, low, high, "
        "p_value, queries",
        "rankings_computed": "rankings not found in `runs/`",
    },
    "report": {**_ENVIRONMENT, "bytes": "size of the file", **_HEADLINE},
    "demo": {**_ENVIRONMENT, "bytes": "size of the report", **_HEADLINE},
}

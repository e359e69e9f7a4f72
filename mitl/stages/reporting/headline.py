"""The report's numbers that matter, for machines."""

from __future__ import annotations

from mitl.analysis.report.inputs import ReportInput


def headline(data: ReportInput) -> dict[str, object]:
    """The numbers that matter: pairs, judgements, positives, and recall and precision where truth is known."""
    numbers: dict[str, object] = {
        "pairs": data.funnel.distinct,
        "judgements": data.judgements,
        "positives": data.funnel.positive,
        "positives_beyond_originals": data.funnel.beyond_originals,
    }
    shared = None if data.crowd is None else data.crowd.agreement
    if shared is not None:
        numbers |= {"alpha": shared.alpha, "alpha_low": shared.low, "alpha_high": shared.high}
    if data.truth is not None:
        numbers["recall_before"] = data.truth.original.together.recall
        numbers["precision_before"] = data.truth.original.together.precision
        if data.truth.release is not None:
            numbers["recall_after"] = data.truth.release.together.recall
            numbers["precision_after"] = data.truth.release.together.precision
        if data.truth.asked is not None:
            numbers["recall_of_asked"] = data.truth.asked.recall
        if data.truth.hit_rule is not None:
            numbers["precision_hit_rule_alone"] = data.truth.hit_rule.together.precision
            numbers["recall_hit_rule_alone"] = data.truth.hit_rule.together.recall
    return numbers

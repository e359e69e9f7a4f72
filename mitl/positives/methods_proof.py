"""What a methods section says of bounds and scores: machine labels, the audit, the evaluation."""

from __future__ import annotations

from collections.abc import Iterator

from mitl.core.formats import lower_bound
from mitl.positives.markdown import listed, percent
from mitl.positives.methods_facts import Cite, Facts, Sentence
from mitl.positives.sheet_audit import machine_counts
from mitl.records import several


def machine_labels(of: Facts) -> Iterator[Sentence]:
    """What a machine labelled, under which bound."""
    data = of.data
    if not data.has_machine_labels:
        return
    total, yes, no = machine_counts(data)
    yield (
        f"A machine labelled {several(total, 'pair')} that nobody was asked about, {yes:,} as matches and {no:,} as "
        "none; they are marked.",
    )
    bound = data.machine
    if bound is not None:
        parts = "; ".join(
            f"{percent(part.bound)} of {several(part.labelled, 'pair')} of {part.name}, by a random sample of "
            f"{part.sampled:,}"
            for part in bound.parts
            if part.labelled
        )
        yield (
            f"With {100 * bound.confidence:.3g} % confidence no more of them are wrong ({bound.loss} loss) than "
            f"{parts}; the labels stand below sequential thresholds on the score's uncertainty, a task of probably "
            "approximately correct labels",
            Cite(("candes2025labels",)),
            " with exact bounds",
            Cite(("clopper1934",)),
            ".",
        )


def audited(of: Facts) -> Iterator[Sentence]:
    """How the release was audited, and what its certificate says."""
    audit = of.data.audit
    if audit is None:
        return
    design, proof = audit.record.design, audit.certificate
    strata = "" if design.simple else f", stratified into {len(design.strata)} parts"
    yield (
        f"For an audit, {several(design.sample, 'pair')} of all {design.size:,} were drawn at random{strata}, each "
        f"with a known probability, and answered blind ({several(proof.answers, 'answer')}; every match, and a random "
        "part of the others, by three people); nothing that proposed, learned or merged read these answers.",
    )
    yield (
        f"With {100 * proof.confidence:.3g} % confidence the recall of the release is at least "
        f"{lower_bound(100 * proof.measured.recall, 1)} % and, separately, its precision at least "
        f"{lower_bound(100 * proof.measured.precision, 1)} %, with workers' rates of "
        "error bounded from the same answers; whatever these rates are, at least "
        f"{lower_bound(100 * proof.worst.recall, 1)} % and {lower_bound(100 * proof.worst.precision, 1)} %.",
    )
    yield (
        "The bounds treat the samples as drawn without replacement ",
        *(
            ("from finite strata by bets", Cite(("waudbysmith2020",)))
            if proof.method != "exact"
            else ("from finite strata exactly", Cite(("clopper1934",)))
        ),
        " and the answers as independent of unequal chances",
        Cite(("hoeffding1956",)),
        ".",
    )
    if proof.at_most is not None:
        yield (
            "By how many annotators proposed each positive, recall is at most",
            Cite(("chao1987",)),
            f" {percent(proof.at_most)}.",
        )
    if proof.found:
        yield (
            f"{several(proof.found, 'match', 'matches')} that only the audit found "
            f"{'is' if proof.found == 1 else 'are'} in the release and not in this recall.",
        )


def evaluated(of: Facts) -> Iterator[Sentence]:
    """What was scored, on what, by what."""
    if not of.scores:
        return
    models = list(dict.fromkeys(score.annotator for score in of.scores))
    sets = list(dict.fromkeys(score.positives for score in of.scores))
    metrics = list(dict.fromkeys(score.metric for score in of.scores))
    graded = any(metric in ("R-Precision", "mAP@R") for metric in metrics)
    yield (
        f"{listed(models)} {'was' if len(models) == 1 else 'were'} scored on {listed(sets)} by {listed(metrics)}",
        *([Cite(("musgrave2020",))] if graded else []),
        ".",
    )
    if any(score.low is not None for score in of.scores):
        yield ("Intervals are 95 % bootstrap intervals over queries", Cite(("efron1993",)), ".")

"""The report in a few sentences, each with the section that tells more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mitl.analysis.report.inputs import DisputeKind, EvaluationScore, ReportInput
from mitl.analysis.report.views import multiplicity_rows
from mitl.core.formats import count, money, percent
from mitl.records import Direction
from mitl.records.forms import of_form

_QUERIES = {Direction.I2T: "image queries", Direction.T2I: "caption queries"}
_MATCHES = {Direction.I2T: ("An image query", "captions"), Direction.T2I: ("A caption query", "images")}


@dataclass(frozen=True, slots=True)
class Highlight:
    """One sentence."""

    text: str
    section: str
    """Id of the section that it sums up."""


def findings(data: ReportInput) -> tuple[Highlight, ...]:
    """What a reader in a hurry should take along, as far as it is known."""
    return (
        *_positives(data),
        *_missing(data),
        *_originals(data),
        *_people(data),
        *_money(data),
        *_machines(data),
    )


def _positives(data: ReportInput) -> Iterator[Highlight]:
    rows = multiplicity_rows(data.multiplicity)
    parts = [
        f"{_MATCHES[row.direction][0]} has {row.means[1]} matching {_MATCHES[row.direction][1]} on average "
        f"instead of {row.means[0]}"
        for row in rows
    ]
    if parts:
        text = ", ".join([parts[0], *(part[0].lower() + part[1:] for part in parts[1:])]) + "."
        coverage = [
            f"{count(entry.answered)} of {count(entry.candidates)} candidate pairs of "
            f"{count(len(entry.after))} of {count(entry.queries)} {_QUERIES[entry.direction]}"
            for entry in data.multiplicity
            if data.funnel.usable and not entry.complete
        ]
        if coverage:
            text += f" So far: answered are {' and '.join(coverage)}; queries that nobody was asked about do not count."
        yield Highlight(of_form(text, data.form), "multiplicity")


def _missing(data: ReportInput) -> Iterator[Highlight]:
    """Chao's bound; a bound of nothing says nothing."""
    bounds = {way: bound for way, bound in data.completeness.items() if round(bound.missing)}
    if bounds:
        missing = " and ".join(
            of_form(f"{count(round(b.missing))} of {_QUERIES[way]}", data.form) for way, b in bounds.items()
        )
        recall = " and ".join(percent(bound.at_most) for bound in bounds.values())
        yield Highlight(
            f"Matches that no annotator proposed: at least {missing} (Chao's bound), so the recall is at most "
            f"{recall}.",
            "completeness",
        )


def _originals(data: ReportInput) -> Iterator[Highlight]:
    for dispute in data.disputes:
        if dispute.kind is DisputeKind.ORIGINAL and dispute.total:
            yield Highlight(
                f"People refused {count(dispute.total)} of the {count(dispute.of)} original pairs that they were "
                "asked about.",
                "disputes",
            )


def _people(data: ReportInput) -> Iterator[Highlight]:
    crowd = data.crowd
    if crowd is None or crowd.gold is None:
        return
    seen = crowd.gold.positive_seen + crowd.gold.negative_seen
    right = crowd.gold.positive_right + crowd.gold.negative_right
    if not seen:
        return
    text = f"Workers answered {percent(right / seen)} of {count(seen)} hidden controls as expected"
    shared = crowd.agreement
    if shared is not None and shared.alpha is not None:
        text += f"; on the {count(shared.pairs)} pairs that several answered, their agreement is α = {shared.alpha:.2f}"
    elif shared is not None and not shared.pairs:
        text += "; no pair was asked of two people, so their agreement is not known"
    yield Highlight(text + ".", "workers")


def _money(data: ReportInput) -> Iterator[Highlight]:
    paid = data.money
    if paid is None:
        return
    spent = paid.paid_cents
    if not spent or not data.funnel.positive:
        return
    text = f"{money(spent)} were paid, {money(round(spent / data.funnel.positive))} for each positive pair"
    if paid.median_hourly_cents is not None:
        text += f"; an hour of work brought {money(paid.median_hourly_cents)} in the median"
    yield Highlight(text + ".", "money")


def _machines(data: ReportInput) -> Iterator[Highlight]:
    """Whether the order of the machines is another one on the release; by mAP@R, the mean of both directions."""
    first = {positives: _best(data.evaluation, positives) for positives in ("original", "release")}
    before, after = first["original"], first["release"]
    if before is None or after is None:
        return
    taught = any(score.annotator == after and score.taught_by for score in data.evaluation)
    known = f"; {after} was trained on answers of this release" if taught else ""
    if before == after:
        yield Highlight(f"{after} ranks best by mAP@R, before and after{known}.", "evaluation")
    else:
        yield Highlight(
            f"By mAP@R {after} ranks best on the release, {before} on the original annotation{known}.",
            "evaluation",
        )


def _best(scores: tuple[EvaluationScore, ...], positives: str) -> str | None:
    sums: dict[str, float] = {}
    for score in scores:
        if score.positives == positives and score.metric == "mAP@R":
            sums[score.annotator] = sums.get(score.annotator, 0.0) + score.value
    return max(sums, key=lambda name: (sums[name], name)) if len(sums) > 1 else None

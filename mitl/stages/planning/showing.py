"""A plan for people and for machines: tables, lines, numbers of ``--json`` and the drawing."""

from __future__ import annotations

from typing import Annotated, TypedDict

import numpy as np

from mitl.analysis.report.loop_plots import frontier_svg
from mitl.audits.frontier import TOLERATED, ResampledEstimate, share_left
from mitl.audits.planning import AuditPlan
from mitl.core.formats import lower_bound, percent
from mitl.core.pricing import format_dollars
from mitl.records import Table
from mitl.records.results import printed_by
from mitl.stages.planning.options import PlannedWays, not_reachable


class PlannedInterval(TypedDict):
    """A number with its 95 % interval, over resamples of the queries and of how the open pairs turn out."""

    value: float
    low: float
    high: float


class PlannedNeed(TypedDict):
    """What a pair of tolerances leaves to people."""

    lost: float
    wrong: float
    answers: PlannedInterval
    share: float
    cents: int
    share_by_auc: float


class PlanRow(TypedDict):
    """One plan."""

    plan: str
    answers: PlannedInterval
    hits: int
    cents: int
    recall: PlannedInterval
    wrong: PlannedInterval
    sample: int | None


class PlannedAudit(TypedDict):
    """An audit of recall."""

    recall: float
    reached: float
    affordable: bool
    answers: int
    hits: int
    cents: int


class Point(TypedDict):
    """One point of a curve."""

    answers: int
    cents: int
    recall: PlannedInterval


@printed_by("plan")
class PlanCounts(TypedDict, total=False):
    """What `mitl plan` counts."""

    environment: Annotated[str, "sandbox or live"]
    candidates: Annotated[int, "candidate pairs"]
    answered: Annotated[int, "those with a usable answer: what the plan rests on"]
    open: Annotated[int, "those without"]
    random: Annotated[bool, "whether every answered candidate was drawn at random"]
    scored_by: Annotated[str, "fusion, or annotators where ranks alone were calibrated on the answers"]
    auc: Annotated[
        PlannedInterval,
        "chance that a match scores above another candidate: value, low and high of its 95 % interval",
    ]
    matches: Annotated[PlannedInterval, "expected matches among all candidates"]
    needs: Annotated[
        list[PlannedNeed],
        "for lost recall and wrong matches tolerated (shares): the open pairs that people must judge, the share and "
        "price of them, and the share that the AUC alone would say (share_by_auc)",
    ]
    plans: Annotated[
        list[PlanRow],
        "exhaustive, score_only, two_thresholds and bounded_labels: further answers, HITs and cents, recall of the "
        "candidates' matches, wrong matches as a share of those kept, and the sample that bounds machine labels",
    ]
    curves: Annotated[
        dict[str, list[Point]],
        "recall by further answers, as people alone (score_only) and with machine labels (two_thresholds)",
    ]
    within_budget: Annotated[dict[str, Point] | None, "what each curve reaches for --budget; null without it"]
    not_reachable: Annotated[list[str], "what these scores cannot do, in words"]
    audit: Annotated[
        PlannedAudit | None,
        "what certifying the recall of a release of today would take of the whole pool, as `mitl audit plan` reckons; "
        "null without `--certify`, or where it cannot be reckoned",
    ]


def about(planned: PlannedWays) -> list[str]:
    """What the plan rests on, in words."""
    frontier, pool = planned.frontier, planned.found
    matches, auc = frontier.matches, frontier.auc
    by = (
        "fused scores"
        if planned.sampled.scored_by == "fusion"
        else "the annotators' ranks, calibrated on the answers"
    )
    return [
        f"{len(pool.pairs):,} candidates, {len(pool.answered):,} answered, {pool.open:,} open; expected matches "
        f"{matches.value:,.0f} ({matches.low:,.0f}–{matches.high:,.0f}), of which {frontier.known:,} are found",
        f"AUC of {by}: {auc.value:.3f} ({auc.low:.3f}–{auc.high:.3f}); {planned.sampled.note}",
        "recall is that of the candidates' matches; what no annotator proposed is beyond any plan here (`mitl audit "
        "plan`)",
        planned.price.words,
    ]


def audit_lines(audit: AuditPlan | None) -> list[str]:
    """What a certificate would cost beside all of this."""
    if audit is None:
        return []
    best = audit.best
    certificate = f"a certificate of recall of at least {100 * audit.target:.4g}% of the whole pool"
    beside = (
        f"would take {best.answers:,} answers more, {format_dollars(best.cents)}"
        if audit.cost is not None
        else "cannot be had for a release of today"
    )
    return [f"{certificate} {beside} (`mitl audit plan`)"]


def budget_lines(planned: PlannedWays) -> list[str]:
    """What the budget reaches; nothing without one."""
    points = within_budget(planned)
    if points is None:
        return []
    dollars = format_dollars(planned.wish.budget_cents or 0)
    names = {curve.key: curve.name for curve in planned.curves}
    return [
        f"for {dollars}, {point['answers']:,} further answers: {names[key]}, recall "
        f"{lower_bound(100 * point['recall']['value'], 1)} % "
        f"({100 * point['recall']['low']:.1f}–{100 * point['recall']['high']:.1f} %)"
        + (
            ""
            if point["recall"]["value"] >= planned.wish.target_recall
            else f": {100 * planned.wish.target_recall:g} % is not reachable"
        )
        for key, point in points.items()
    ]


def within_budget(planned: PlannedWays) -> dict[str, Point] | None:
    """What each curve reaches for the budget; None without one."""
    if planned.wish.budget_cents is None:
        return None
    answers = min(planned.price.answers_for(planned.wish.budget_cents), planned.frontier.open)
    wrong = {"score_only": 0.0, "two_thresholds": planned.wish.max_error}
    at = np.array([float(answers)])
    return {
        curve.key: Point(
            answers=answers,
            cents=planned.price.cents(answers),
            recall=_interval(planned.frontier.recall(at, wrong[curve.key])[0]),
        )
        for curve in planned.curves
    }


def _interval(one: ResampledEstimate) -> PlannedInterval:
    return PlannedInterval(value=one.value, low=one.low, high=one.high)


def needs(planned: PlannedWays) -> list[PlannedNeed]:
    """What the usual tolerances, and those wished for, leave to people."""
    frontier = planned.frontier
    rows = []
    for lost, wrong in dict.fromkeys([*TOLERATED, planned.wish.tolerated]):
        answers = frontier.people(lost, wrong)
        rows.append(
            PlannedNeed(
                lost=lost,
                wrong=wrong,
                answers=_interval(answers),
                share=answers.value / frontier.open,
                cents=planned.price.cents(answers.value),
                share_by_auc=share_left(max(frontier.auc.value, 0.5), lost, wrong, planned.prevalence),
            )
        )
    return rows


def counts(planned: PlannedWays, audit: AuditPlan | None) -> PlanCounts:
    """What ``--json`` prints."""
    frontier, pool, price = planned.frontier, planned.found, planned.price
    return {
        "environment": planned.environment.value,
        "candidates": len(pool.pairs),
        "answered": len(pool.answered),
        "open": pool.open,
        "random": planned.sampled.random,
        "scored_by": planned.sampled.scored_by,
        "auc": _interval(frontier.auc),
        "matches": _interval(frontier.matches),
        "needs": needs(planned),
        "plans": [
            PlanRow(
                plan=option.key,
                answers=_interval(option.answers),
                hits=price.hits(option.answers.value),
                cents=price.cents(option.answers.value),
                recall=_interval(option.recall),
                wrong=_interval(option.wrong),
                sample=option.sample,
            )
            for option in planned.options
        ],
        "curves": {
            curve.key: [
                Point(
                    answers=round(answers),
                    cents=price.cents(answers),
                    recall=PlannedInterval(value=value, low=low, high=high),
                )
                for answers, value, low, high in zip(
                    curve.answers, curve.recall, curve.low, curve.high, strict=True
                )
            ]
            for curve in planned.curves
        },
        "within_budget": within_budget(planned),
        "not_reachable": not_reachable(planned),
        "audit": None
        if audit is None
        else PlannedAudit(
            recall=audit.target,
            reached=audit.best.recall,
            affordable=audit.cost is not None,
            answers=audit.best.answers,
            hits=audit.best.hits,
            cents=audit.best.cents,
        ),
    }


def needs_table(planned: PlannedWays) -> Table:
    """Tolerances by what they leave to people."""
    rows = tuple(
        (
            f"{100 * need['lost']:.3g} %",
            f"{100 * need['wrong']:.3g} %",
            f"{need['answers']['value']:,.0f} ({need['answers']['low']:,.0f}–{need['answers']['high']:,.0f})",
            percent(need["share"], 0),
            percent(need["share_by_auc"], 0),
            format_dollars(need["cents"]),
        )
        for need in needs(planned)
    )
    columns = ("lost recall", "wrong matches", "people must judge", "of the open", "by AUC alone", "price")
    return Table("what a tolerated loss and error leave to people, audits apart", columns, rows)


def plans_table(planned: PlannedWays) -> Table:
    """The options by what they take and keep."""
    rows = tuple(
        (
            option.name + ("" if option.sample is None else f", sample of {option.sample:,}"),
            _answers(option.answers),
            format_dollars(planned.price.cents(option.answers.value)),
            _share(option.recall),
            _share(option.wrong),
        )
        for option in planned.options
    )
    return Table("plans", ("plan", "further answers", "price", "recall, %", "wrong matches, %"), rows)


def _answers(one: ResampledEstimate) -> str:
    return (
        f"{one.value:,.0f}" if one.low == one.high else f"{one.value:,.0f} ({one.low:,.0f}–{one.high:,.0f})"
    )


def _share(one: ResampledEstimate) -> str:
    shown = f"{100 * one.value:.2f}".rstrip("0").rstrip(".")
    return shown if one.low == one.high else f"{shown} ({100 * one.low:.2f}–{100 * one.high:.2f})"


def draw(planned: PlannedWays) -> str:
    """The curves as SVG."""
    return frontier_svg(
        planned.curves,
        target=planned.wish.target_recall,
        cents_each=planned.price.cents(planned.frontier.open) / max(planned.frontier.open, 1),
    )

"""What an audit costs, and drawing it: once for a pool, before anybody has seen an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, TypedDict

import numpy as np

from mitl.audits.planning import AuditPlan, Guess, Price, cost_of, deal, plan_audit
from mitl.audits.pool import Pool, draw
from mitl.campaign.kinds.pairs.planning import Campaign
from mitl.core.arrays import Ints
from mitl.core.pricing import NO_PAGE_LOST
from mitl.crowd.context import Context, open_context
from mitl.db.store import audits as audit_store
from mitl.db.store import open_work
from mitl.db.store import proposals as proposal_store
from mitl.db.store.audits import AuditRow
from mitl.db.store.rounds import pairs_command
from mitl.errors import AuditError, UsageError
from mitl.hits.packing import CANDIDATES_PER_HIT
from mitl.progress import Progress, no_progress
from mitl.records import PAIRS_COMMAND, AuditPurpose, Direction, Environment, StageResult, Table, several
from mitl.records.audits import AuditDesign, Stratum
from mitl.records.frames import NONE
from mitl.records.results import EnvironmentCounts, printed_by
from mitl.settings import Settings
from mitl.stages.auditing.comparing import BANDS, METRIC, Compared, compared_models, shares
from mitl.stages.auditing.hit_price import latest_wording, price_of
from mitl.stages.auditing.pools import (
    UNANSWERED,
    Strata,
    merged_now,
    pool_of,
    strata_for_labels,
    strata_for_recall,
)
from mitl.stages.fusing.scores import fused_scores

RECALL = 0.9
"""The bound that is planned for where none is named."""


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """What an audit is to prove, or how large it is to be."""

    purpose: AuditPurpose = AuditPurpose.RECALL
    size: int | None = None
    """Pairs to draw; None takes as many as ``recall`` needs."""
    recall: float | None = None
    confidence: float = 0.95
    max_cost_cents: int | None = None
    simple: bool = False
    """Draw from the pool as a whole."""
    compare: tuple[str, ...] = ()
    """Models, annotators or ``NAME=FILE[,FILE]``: draw where they rank differently."""

    def __post_init__(self) -> None:
        others = (self.recall, self.max_cost_cents, self.simple or None)
        if self.compare and (others != (None, None, None) or self.purpose is AuditPurpose.LABELS):
            raise UsageError(
                "--compare draws a sample for models, as large as --size says; leave --recall, --max-cost, --simple "
                "and --for labels out"
            )
        if self.size is not None and (self.recall is not None or self.max_cost_cents is not None):
            raise UsageError(
                "--size says how many pairs are drawn, --recall and --max-cost compute it; give one or the other"
            )
        if self.purpose is AuditPurpose.LABELS and self.size is None:
            raise UsageError("a sample for machine labels is as large as you say; add --size")


class StratumFigures(TypedDict):
    """One stratum of a plan or of a sample."""

    stratum: Annotated[str, "its name"]
    pairs: Annotated[int, "pairs of the pool in it"]
    expected: Annotated[float, "guessed share of matches, 0 to 1"]
    drawn: Annotated[int, "pairs drawn"]
    inclusion: Annotated[float, "probability that a pair of it is drawn"]


@printed_by("audit plan")
class AuditPlanCounts(TypedDict, total=False):
    """What an audit would take."""

    environment: Annotated[str, "sandbox or live"]
    pool: Annotated[int, "pairs of the pool"]
    recall: Annotated[float, "the lower bound that is wanted"]
    confidence: Annotated[float, "of the bound"]
    affordable: Annotated[bool, "whether a sample reaches it below the ceiling"]
    pairs: Annotated[int, "pairs to draw"]
    answers: Annotated[int, "answers that are expected to be needed, follow-ups among them"]
    hits: Annotated[int, "HITs that are expected to be paid for them, those that are asked again included"]
    total_cents: Annotated[int, "their price, fees included"]
    cents_once: Annotated[int, "the price if no page had to be asked again"]
    lost_share: Annotated[float, "share of the pages that the price expects to be asked again, 0 to 1"]
    same_worker: Annotated[float, "how likely two answered pages are by one worker, 0 to 1"]
    reached: Annotated[float, "the bound that the sample is expected to reach"]
    simple_pairs: Annotated[
        int | None, "pairs of a simple random sample for the same; null where none reaches it"
    ]
    simple_cents: Annotated[int | None, "its price"]
    strata: Annotated[list[StratumFigures], "the strata, the remainder last"]
    comparisons: Annotated[
        list[dict[str, object]],
        "with `--compare`, instead of what a bound takes: a list of model, against, direction, the difference of mAP@R "
        "that is expected, and pairs, the audited pairs that tell the two apart if it is that, or null",
    ]


@printed_by("audit draw")
class DrawCounts(EnvironmentCounts):
    """What was drawn."""

    audit: Annotated[int, "number of the audit within its environment"]
    purpose: Annotated[str, "recall or labels"]
    pool: Annotated[int, "pairs of the pool, or open candidates"]
    pairs: Annotated[int, "pairs drawn"]
    strata: Annotated[list[StratumFigures], "the strata, the remainder last"]


def plan(
    settings: Settings,
    wish: AuditRequest,
    environment: Environment | None = None,
    progress: Progress = no_progress,
) -> StageResult:
    """What the wanted bound, or telling models apart, takes, before anything is drawn or asked.

    Raises:
        AuditError: nothing was asked, or there are no positives yet.
    """
    with open_context(settings, environment, read_only=True, progress=progress) as context:
        pool = pool_of(context)
        earlier = audit_store.current(context.session, context.environment, AuditPurpose.RECALL)
        result = _plan(context, pool, wish)
        if earlier is None:
            return result
        if not _is_under_way(context, earlier):
            warning = "is drawn and nothing of it is out or answered; `mitl audit draw` of another sample replaces it"
            return replace(result, warnings=(f"audit {earlier.number} of this pool {warning}",))
        _, state = _state(context, earlier)
        warning = (
            f"audit {earlier.number} of this pool {state} since it was drawn on {earlier.drawn_at:%Y-%m-%d}, so no "
            "other sample of it can be drawn; this plan is for another pool, as after further queries"
        )
        return replace(result, warnings=(warning,), next="mitl audit show")


def _plan(context: Context, pool: Pool, wish: AuditRequest) -> StageResult:
    if wish.compare:
        return _comparison(context, pool, wish)
    strata = _in_pool(context, pool, wish)
    planned = _planned(context, strata.guesses, wish)
    counts: AuditPlanCounts = {
        "environment": context.environment.value,
        "pool": pool.size,
        "recall": planned.target,
        "confidence": planned.confidence,
        "affordable": planned.cost is not None,
        "pairs": planned.best.first,
        "answers": planned.best.answers,
        "hits": planned.best.hits,
        "total_cents": planned.best.cents,
        "cents_once": planned.best.cents_once,
        "lost_share": planned.lost.share,
        "same_worker": planned.lost.same_worker,
        "reached": planned.best.recall,
        "simple_pairs": None if planned.simple is None else planned.simple.first,
        "simple_cents": None if planned.simple is None else planned.simple.cents,
        "strata": _figures(planned.best.strata),
    }
    return StageResult(
        counts=counts,
        tables=(_table(planned.best.strata, f"a pool of {pool.size:,} pairs"),),
        lines=(*planned.lines(), *_waiting(context, strata.guesses)),
        next="mitl audit draw" if planned.cost is not None else "",
    )


def _comparison(context: Context, pool: Pool, wish: AuditRequest) -> StageResult:
    models, positives = _compared(context, wish)
    strata = models.strata(pool, positives)
    differences = models.wanted(strata)
    size = min(max([len(strata.guesses), *(pairs or 0 for *_, pairs in differences)]), pool.size)
    drawn = _scaled(strata.guesses, shares(strata.guesses), size)
    counts: AuditPlanCounts = {
        "environment": context.environment.value,
        "pool": pool.size,
        "strata": _figures(drawn),
        "comparisons": [
            {
                "model": model,
                "against": other,
                "direction": direction.value,
                "difference": gap,
                "pairs": pairs,
            }
            for model, other, direction, gap, pairs in differences
        ],
    }
    rows = tuple(
        (model, other, direction.value, f"{100 * gap:+.1f}", f"{pairs:,}" if pairs else "no audit")
        for model, other, direction, gap, pairs in differences
    )
    heads = ("model", "minus", "direction", f"expected {METRIC}", "told apart by audited pairs")
    return StageResult(
        counts=counts,
        tables=(
            Table("differences of models, in points", heads, rows),
            _table(drawn, f"a pool of {pool.size:,} pairs, {size:,} of them drawn"),
        ),
        lines=(
            "in four of five audits, if models differ as expected by their ranks and by what is judged; where they "
            "differ less, it takes more, with the square",
        ),
        next="mitl audit draw --size N --compare " + " --compare ".join(wish.compare),
    )


def _compared(context: Context, wish: AuditRequest) -> tuple[Compared, Ints]:
    """The models, and the positives of a release of today."""
    merged, asked = merged_now(context), proposal_store.queries(context.session)
    judged = merged.where("kept"), merged.where("negative")
    queries = {direction: np.array(sorted(asked[direction]), np.int64) for direction in Direction}
    return compared_models(context.settings, wish.compare, queries, judged, context.progress), judged[0]


def _waiting(context: Context, guesses: Sequence[Guess]) -> list[str]:
    """What a plan would be better off without."""
    matches = sum(guess.size * guess.expected for guess in guesses if guess.name.startswith(UNANSWERED))
    if round(matches) < 1:
        return []
    labels = len(audit_store.labelled_rows(context.session, context.environment))
    kept = (
        f" ({several(labels, 'candidate')} with a machine label only after `mitl label --withdraw`)"
        if labels
        else ""
    )
    return [
        f"some {matches:,.0f} matches count as missing because nobody has answered their candidates yet: ask these"
        f"{kept}, and plan again"
    ]


def draw_audit(
    settings: Settings,
    wish: AuditRequest,
    environment: Environment | None = None,
    progress: Progress = no_progress,
) -> StageResult:
    """Draw the sample and write it down; the same wish again is nothing to do.

    Raises:
        AuditError: an audit of this pool is under way, so that another one would be drawn after looking; no sample
            reaches the bound below the ceiling; or there is nothing to draw from.
    """
    if wish.compare and wish.size is None:
        raise UsageError("a sample that compares models is as large as you say; add --size")
    with open_context(settings, environment, progress=progress) as context:
        earlier = audit_store.current(context.session, context.environment, wish.purpose)
        started = earlier is not None and _is_under_way(context, earlier)
        if earlier is not None and started:
            _require_same(context, earlier, wish)
            # A design knows how many pairs were drawn, and no longer what for.
            computed = (wish.recall, wish.max_cost_cents) != (None, None)
            whatever = ", whatever --recall and --max-cost say now" if computed else ""
            return _nothing_to_do(context, earlier, f"is under way{whatever}")
        strata = _strata(context, wish)
        design = AuditDesign(
            purpose=wish.purpose,
            seed=settings.seed,
            strata=_samples(context, strata.guesses, wish),
            confidence=wish.confidence,
            simple=wish.simple,
        )
        if earlier is not None and earlier.design == design:
            return _nothing_to_do(context, earlier, "is this one")
        drawn = draw(design, strata.members, positives=strata.positives)
        audit = audit_store.add_audit(
            context.session, context.environment, design, strata.listed(), drawn, context.now()
        )
        context.session.commit()
        following = _asked_by(context, audit)
        is_guess = wish.purpose is AuditPurpose.LABELS and fused_scores(context) is None
        told = [f"audit {audit.number}: {several(design.sample, 'pair')} drawn of {design.size:,}"]
        if wish.purpose is AuditPurpose.RECALL and any(guess.held for guess in strata.guesses):
            cost = cost_of(strata.guesses, design.strata, price=answer_price(context))
            told.append(f"expected to take {cost.words}")
    replaced = (
        [] if earlier is None else [f"audit {earlier.number}, of which nothing is out or answered, gives way"]
    )
    return _result(
        audit,
        following,
        "done",
        (*told, *replaced),
        (_UNFUSED,) if is_guess else (),
    )


_UNFUSED = (
    "there are no probabilities yet, so two more workers are asked where a first answer contradicts the guess above, "
    "and not where it will contradict the machine; before anything of it is answered, run `mitl fuse` and draw again"
)


def _is_under_way(context: Context, audit: AuditRow) -> bool:
    """Whether anything of it was asked or answered."""
    session, environment = context.session, context.environment
    if audit_store.has_answers(session, audit.id):
        return True
    if audit.purpose is AuditPurpose.RECALL:
        return bool(audit_store.wanted(session, environment)["out"].any())
    out = open_work.live_pairs(session, environment)  # none of them was, when it was drawn
    return not out.isdisjoint(audit_store.drawn_for_labels(session, environment))


def _require_same(context: Context, audit: AuditRow, wish: AuditRequest) -> None:
    design = audit.design
    sample = design.sample if wish.size is None else wish.size
    compares = any(stratum.name in BANDS for stratum in design.strata)
    asked = (context.settings.seed, wish.simple, wish.confidence, sample, bool(wish.compare))
    if asked != (design.seed, design.simple, design.confidence, design.sample, compares):
        complete, state = _state(context, audit)
        here = context.environment
        reader = f"build-dataset --{here} --out DIR` certifies a release"
        if audit.purpose is AuditPurpose.LABELS:
            reader = f"label --{here}` bounds labels"
        then = (
            f"`mitl {reader} by this one" if complete else f"complete it with `mitl publish --{here} --drawn`"
        )
        raise AuditError(
            f"audit {audit.number} of this pool {state} since it was drawn on {audit.drawn_at:%Y-%m-%d}: "
            f"another sample would be drawn after looking, and prove nothing; {then}"
        )


def _state(context: Context, audit: AuditRow) -> tuple[bool, str]:
    """Whether an audit under way has all its answers, and the words for it."""
    if audit.purpose is AuditPurpose.RECALL:
        complete = not len(audit_store.wanted(context.session, context.environment))
    else:
        complete = bool((audit_store.audited(context.session, audit.id)["first"] != NONE).all())
    return complete, "was answered" if complete else "is being answered"


def _nothing_to_do(context: Context, audit: AuditRow, why: str) -> StageResult:
    drawn = f"{several(audit.design.sample, 'pair')} drawn on {audit.drawn_at:%Y-%m-%d}"
    lines = (f"nothing to do: audit {audit.number} {why}, {drawn}",)
    return _result(audit, _asked_by(context, audit), "nothing_to_do", lines)


def _asked_by(context: Context, audit: AuditRow) -> str:
    """The command that asks it."""
    # A machine is to label the other open pairs, so only the sample for labels is asked.
    if audit.purpose is AuditPurpose.LABELS:
        return f"{PAIRS_COMMAND} --{audit.environment.value} --drawn"
    return f"{pairs_command(context.session, audit.environment)} --{audit.environment.value}"


def _result(
    audit: AuditRow, following: str, status: str, lines: tuple[str, ...], warnings: tuple[str, ...] = ()
) -> StageResult:
    design = audit.design
    counts: DrawCounts = {
        "environment": audit.environment.value,
        "audit": audit.number,
        "purpose": audit.purpose.value,
        "pool": design.size,
        "pairs": design.sample,
        "strata": _figures(design.strata),
    }
    return StageResult(
        status=status,
        counts=counts,
        tables=(_table(design.strata, f"audit {audit.number}, for {audit.purpose.value}"),),
        lines=lines,
        warnings=warnings,
        next=following,
    )


def _strata(context: Context, wish: AuditRequest) -> Strata:
    if wish.purpose is AuditPurpose.LABELS:
        if wish.simple:
            raise UsageError("--simple is for audits of recall; a sample for machine labels has its strata")
        return strata_for_labels(context)
    return _in_pool(context, pool_of(context), wish)


def _in_pool(context: Context, pool: Pool, wish: AuditRequest) -> Strata:
    if wish.compare:
        models, positives = _compared(context, wish)
        strata = models.strata(pool, positives)
    else:
        strata = strata_for_recall(context, pool)
        strata = strata.simple(pool) if wish.simple else strata
    return strata.met_by(pool, open_work.own_answers(context.session, context.environment))


def _samples(context: Context, guesses: Sequence[Guess], wish: AuditRequest) -> tuple[Stratum, ...]:
    """How many pairs each stratum gives."""
    if wish.purpose is AuditPurpose.LABELS:
        # In proportion: what is sampled beyond a threshold is an answer that people would have given anyway.
        sizes = np.array([float(guess.size) for guess in guesses])
        return _scaled(guesses, sizes, wish.size or 0, recheck=False)
    if wish.compare:
        return _scaled(guesses, shares(guesses), wish.size or 0)
    if wish.size is None:
        planned = _planned(context, guesses, wish)
        if planned.cost is None:
            raise AuditError(f"{planned.reason}; nothing was drawn, and `mitl audit plan` shows the rest")
        return planned.cost.strata
    # What is lost changes no sample of a given size.
    price = replace(answer_price(context), lost=NO_PAGE_LOST)
    dealt = deal(guesses, price.cents(wish.size * 2), price=price, confidence=wish.confidence)
    return _scaled(guesses, np.array([float(stratum.sample) for stratum in dealt.strata]), wish.size)


def _scaled(
    guesses: Sequence[Guess], weights: np.ndarray, size: int, *, recheck: bool = True
) -> tuple[Stratum, ...]:
    """So many pairs in the proportion of the weights: of each stratum at least 1 and at most all."""
    pairs = np.array([guess.size for guess in guesses], np.int64)
    least = np.minimum(pairs, 1)
    if not least.sum() <= size <= pairs.sum():
        raise AuditError(
            f"a sample of {several(size, 'pair')} is wanted, but {int(least.sum()):,} to {int(pairs.sum()):,} "
            f"pairs can be drawn: each of {several(len(guesses), 'stratum', 'strata')} gives at least one"
        )
    sample = least.copy()
    while (rest := size - int(sample.sum())) > 0:
        room = pairs - sample
        share = np.where(room > 0, np.maximum(weights, 1e-9), 0.0)
        sizes = rest * share / share.sum()
        step = np.minimum(np.floor(sizes).astype(np.int64), room)
        if not step.sum():  # fewer are left than strata: the largest shares first
            order = np.argsort(-sizes, kind="stable")[:rest]
            step[order] = np.minimum(1, room[order])
        sample += step
    return tuple(
        Stratum(guess.name, guess.size, int(n), guess.recheck_share if recheck else 0.0, guess.expected)
        for guess, n in zip(guesses, sample, strict=True)
    )


def _planned(context: Context, guesses: Sequence[Guess], wish: AuditRequest) -> AuditPlan:
    return plan_audit(
        guesses,
        RECALL if wish.recall is None else wish.recall,
        price=answer_price(context),
        confidence=wish.confidence,
        ceiling_cents=wish.max_cost_cents,
    )


def answer_price(context: Context) -> Price:
    """What a HIT costs in the wording of the latest batch, as publishing would price it, and how many are lost."""
    request = Campaign(context.environment, template=latest_wording(context))
    hit = price_of(context, request)
    return Price(hit.bill(1).total_cents, CANDIDATES_PER_HIT, hit.lost)


def _figures(strata: Sequence[Stratum]) -> list[StratumFigures]:
    return [
        {
            "stratum": stratum.name,
            "pairs": stratum.size,
            "expected": stratum.expected,
            "drawn": stratum.sample,
            "inclusion": stratum.inclusion,
        }
        for stratum in strata
    ]


def _table(strata: Sequence[Stratum], title: str) -> Table:
    rows = tuple(
        (
            stratum.name,
            f"{stratum.size:,}",
            f"{100 * stratum.expected:.3g} %",
            f"{stratum.sample:,}",
            f"{stratum.inclusion:.3g}",
        )
        for stratum in strata
    )
    return Table(title, ("stratum", "pairs", "expected matches", "to draw", "inclusion"), rows)

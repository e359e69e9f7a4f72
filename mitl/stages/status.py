"""One screen on where a project stands."""

from __future__ import annotations

from mitl.db.session import open_database
from mitl.db.store import answers as answer_store
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store import journal, open_work
from mitl.db.store import judgements as judgement_store
from mitl.db.store import proposals as proposal_store
from mitl.hits.pricing import format_dollars
from mitl.records import Decision, Direction, Environment, HitState, StageResult, Table
from mitl.settings import Settings
from mitl.stages.environment import choose_environment
from mitl.stages.golds import gold_state


def status(settings: Settings, environment: Environment | None = None) -> StageResult:
    """Pairs, HITs, answers, gold pass rate, money, and the next step."""
    with open_database(settings.db_url, read_only=True) as session:
        dataset = item_store.dataset(session)
        chosen = choose_environment(session, environment)
        candidates = proposal_store.candidate_pairs(session, tuple(Direction))
        asked = open_work.asked_pairs(session, chosen)
        judgements = judgement_store.judgements(session, chosen)
        states = hit_store.state_counts(session, chosen)
        work = open_work.open_work(session, chosen)
        decisions = answer_store.decision_counts(session, chosen)
        barren = len(open_work.barren_hits(session, chosen))
        spent = journal.spent(session, chosen)
        batches = hit_store.batches(session, chosen)
    usable = {row.record.pair for row in judgements if row.record.usable and not row.record.role.is_gold}
    records = gold_state(judgements).records.values()
    golds, passes = sum(r.golds for r in records), sum(r.passes for r in records)
    open_pairs = sum(pair not in asked for pair in candidates)
    queued = decisions.get(Decision.QUEUED, 0)
    submitted = sum(decisions.values())
    out = work.hits
    paid = sum(spent.values())
    counts: dict[str, object] = {
        "environment": chosen.value,
        "images": dataset.n_images,
        "captions": dataset.n_captions,
        "pairs": len(candidates),
        "pairs_open": open_pairs,
        "pairs_judged": len(usable),
        "hits": {state.value: states[state] for state in HitState},
        "submissions": submitted,
        "queued": queued,
        "hits_to_ask_again": barren,
        "golds_answered": golds,
        "golds_passed": passes,
        "paid_cents": paid,
        "hits_out": out,
        "held_cents": work.held_cents,
    }
    rate = f"{passes:,} of {golds:,} passed ({100 * passes / golds:.1f} %)" if golds else "none answered yet"
    n_batches = "1 batch" if len(batches) == 1 else f"{len(batches)} batches"
    rows: tuple[tuple[object, ...], ...] = (
        ("data set", f"{dataset.name}: {dataset.n_images:,} images, {dataset.n_captions:,} captions"),
        ("pairs", f"{len(candidates):,} proposed, {len(usable):,} judged, {open_pairs:,} open"),
        ("HITs", f"{sum(states.values()):,} in {n_batches}, {out:,} out, {barren:,} to ask again"),
        ("answers", f"{submitted:,} submissions, {queued:,} wait for a person"),
        ("controls", rate),
        (
            "money",
            f"{format_dollars(paid)} paid, {format_dollars(work.held_cents)} held for work that is not decided",
        ),
    )
    return StageResult(
        counts=counts,
        tables=(Table(f"{settings.project.name} · {chosen}", ("what", "now"), rows),),
        next=_next(
            has_pairs=bool(candidates),
            queued=queued,
            out=out,
            again=barren,
            open_pairs=open_pairs,
            judged=bool(usable),
            publish=f"mitl publish --{chosen if batches or environment else Environment.SANDBOX}",
            live=chosen is Environment.LIVE,
        ),
    )


def _next(
    *,
    has_pairs: bool,
    queued: int,
    out: int,
    again: int,
    open_pairs: int,
    judged: bool,
    publish: str,
    live: bool,
) -> str:
    if not has_pairs:
        return "mitl propose"
    if queued:
        return "mitl review"
    if out:
        helpers = "" if live else " (or mitl simulate)"
        return f"mitl serve for people{helpers}, then mitl harvest"
    if again or open_pairs:
        return publish
    return "mitl build-dataset --out DIR" if judged else "mitl harvest"

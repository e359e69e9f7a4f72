"""One screen on where a project stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mitl.core.pricing import format_dollars
from mitl.crowd.environment import choose_environment
from mitl.crowd.golds import gold_state
from mitl.db.session import open_database
from mitl.db.store import answers as answer_store
from mitl.db.store import desk as desk_store
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store import journal, open_work
from mitl.db.store.columns import answer_columns
from mitl.db.store.items import DatasetRow
from mitl.db.store.open_work import OpenWork
from mitl.records import Decision, Environment, HitState, StageResult, Table, several
from mitl.settings import Settings
from mitl.stages.reviewing.result import in_words
from mitl.stages.setup.init import first_step


@dataclass(frozen=True, slots=True)
class _Now:
    """What is counted of one environment."""

    environment: Environment
    dataset: DatasetRow
    n_pairs: int
    n_open: int
    n_judged: int
    states: Mapping[HitState, int]
    n_batches: int
    work: OpenWork
    n_again: int
    n_submissions: int
    n_queued: int
    n_unsent: int
    golds: int
    passes: int
    n_withdrawn: int
    paid_cents: int


def status(settings: Settings, environment: Environment | None = None) -> StageResult:
    """Pairs, HITs, answers, gold pass rate, money, and the next step."""
    with open_database(settings.db_url, read_only=True) as session:
        now = _look(session, settings, choose_environment(session, environment))
    return StageResult(
        counts=_counts(now),
        tables=(Table(f"{settings.project.name} · {now.environment}", ("what", "now"), _rows(now)),),
        next=_next(now, settings.annotators, publish=f"mitl publish --{now.environment}"),
    )


def _look(session: Session, settings: Settings, chosen: Environment) -> _Now:
    answers = answer_columns(session, chosen)
    pairs = open_work.pair_counts(session, chosen, answers)
    decisions = answer_store.decision_counts(session, chosen)
    golds = gold_state(session, chosen, settings.gold_rule, answers)
    return _Now(
        environment=chosen,
        dataset=item_store.dataset(session),
        n_pairs=pairs.candidates,
        n_open=pairs.open,
        n_judged=pairs.judged,
        states=hit_store.state_counts(session, chosen),
        n_batches=len(hit_store.batches(session, chosen)),
        work=open_work.open_work(session, chosen),
        n_again=len(open_work.hits_to_replace(session, chosen, answers)),
        n_submissions=sum(decisions.values()),
        n_queued=decisions.get(Decision.QUEUED, 0),
        n_unsent=desk_store.unsent(session, chosen),
        golds=sum(record.golds for record in golds.records.values()),
        passes=sum(record.passes for record in golds.records.values()),
        n_withdrawn=len(golds.withdrawn),
        paid_cents=sum(journal.spent(session, chosen).values()),
    )


def _counts(now: _Now) -> dict[str, object]:
    return {
        "environment": now.environment.value,
        "images": now.dataset.n_images,
        "captions": now.dataset.n_captions,
        "pairs": now.n_pairs,
        "pairs_open": now.n_open,
        "pairs_judged": now.n_judged,
        "hits": {state.value: now.states[state] for state in HitState},
        "submissions": now.n_submissions,
        "queued": now.n_queued,
        "calls_open": now.n_unsent,
        "hits_to_ask_again": now.n_again,
        "golds_answered": now.golds,
        "golds_passed": now.passes,
        "golds_withdrawn": now.n_withdrawn,
        "paid_cents": now.paid_cents,
        "hits_out": now.work.hits,
        "held_cents": now.work.held_cents,
    }


def _rows(now: _Now) -> tuple[tuple[object, ...], ...]:
    rate = "none answered yet"
    if now.golds:
        rate = f"{now.passes:,} of {now.golds:,} passed ({100 * now.passes / now.golds:.1f} %)"
    if now.n_withdrawn:
        rate += f"; {now.n_withdrawn:,} withdrawn, because workers of good record fail them"
    batches = "1 batch" if now.n_batches == 1 else f"{now.n_batches} batches"
    hits = sum(now.states.values())
    paid, held = format_dollars(now.paid_cents), format_dollars(now.work.held_cents)
    data = now.dataset
    unsent = (
        (("calls", f"{in_words(now.n_unsent)}; `mitl harvest` carries that out"),) if now.n_unsent else ()
    )
    return (
        (
            "data set",
            f"{data.name}: {several(data.n_images, 'image')}, {several(data.n_captions, 'caption')}",
        ),
        ("pairs", f"{now.n_pairs:,} proposed, {now.n_judged:,} judged, {now.n_open:,} open"),
        ("HITs", f"{hits:,} in {batches}, {now.work.hits:,} out, {now.n_again:,} to ask again"),
        ("answers", f"{several(now.n_submissions, 'submission')}, {now.n_queued:,} wait for a person"),
        *unsent,
        ("controls", rate),
        ("money", f"{paid} paid, {held} held for work that is not decided"),
    )


def _next(now: _Now, annotators: Sequence[str], *, publish: str) -> str:
    if not now.n_pairs:
        return first_step(annotators)
    if now.n_unsent:
        return "mitl harvest"
    if now.n_queued:
        return "mitl review"
    if now.work.hits:
        helpers = "" if now.environment is Environment.LIVE else " (or mitl simulate)"
        return f"mitl serve for people{helpers}, then mitl harvest"
    if now.n_again or now.n_open:
        return publish
    return "mitl build-dataset --out DIR" if now.n_judged else "mitl harvest"

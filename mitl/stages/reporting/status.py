"""One screen on where a project stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, TypedDict

from mitl.campaign.kinds import other_kinds_asked, to_ask_again
from mitl.campaign.kinds.protocol import PAIRS_COMMAND
from mitl.core.pricing import format_dollars
from mitl.crowd.context import Context, open_context
from mitl.crowd.golds import gold_state
from mitl.db.store import answers as answer_store
from mitl.db.store import audits as audit_store
from mitl.db.store import collection as collection_store
from mitl.db.store import desk as desk_store
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store import journal, open_work
from mitl.db.store import rounds as round_store
from mitl.db.store.answer_sheets import answers_of
from mitl.db.store.items import DatasetRow
from mitl.records import AuditPurpose, Decision, Environment, HitState, StageResult, Table, several
from mitl.records.frames import Columns
from mitl.records.items import counted
from mitl.records.results import printed_by
from mitl.settings import Settings

if TYPE_CHECKING:
    from mitl.stages.auditing.showing import AuditState


class AuditCounts(TypedDict):
    """How far the valid audit of recall is."""

    number: int
    pairs: int
    complete: int
    wanted: int
    out: int
    recall: float | None
    precision: float | None


@printed_by("status")
class StatusCounts(TypedDict):
    """What `mitl status` counts."""

    environment: Annotated[str, "sandbox or live"]
    images: Annotated[int, "images of the data set"]
    captions: Annotated[int, "captions of the data set"]
    pairs: Annotated[int, "candidate pairs"]
    pairs_open: Annotated[int, "pairs on no live HIT and without a usable judgement"]
    pairs_judged: Annotated[int, "pairs with a usable judgement"]
    hits: Annotated[dict[str, int], "HITs by state: planned, sending, posted, closed"]
    submissions: Annotated[int, "assignments submitted"]
    queued: Annotated[int, "submissions that wait for a person"]
    calls_open: Annotated[
        int, "decided submissions that the server has not heard of; `mitl harvest` carries that out"
    ]
    hits_to_ask_again: Annotated[int, "closed HITs whose answers could not be used"]
    golds_answered: Annotated[int, "answers on gold controls"]
    golds_passed: Annotated[int, "those as expected"]
    golds_withdrawn: Annotated[
        int, "controls that workers of good record fail; what was answered there is forgiven"
    ]
    audit: Annotated[
        AuditCounts | None, "the valid audit of recall: see `mitl audit show`; null where there is none"
    ]
    texts: Annotated[
        dict[str, int] | None,
        "items chosen to get a partner, texts written and images picked for them, and those of both that are faulty, "
        "refused, accepted or waiting for a review: see `mitl collect show`; null where no item was chosen",
    ]
    paid_cents: Annotated[int, "rewards and fees paid"]
    hits_out: Annotated[int, "posted HITs that still wait for a worker"]
    held_cents: Annotated[int, "rewards promised for work that is not decided"]


def status(settings: Settings, environment: Environment | None = None) -> StageResult:
    """Pairs, HITs, answers, gold pass rate, money, and the next step."""
    with open_context(settings, environment, read_only=True) as context:
        dataset = item_store.dataset(context.session)
        n_batches = len(hit_store.batches(context.session, context.environment))
        scores = [
            kind.scores for kind in other_kinds_asked(context.session, context.environment) if kind.scores
        ]
        answers = answers_of(context.session, context.environment)
        again = to_ask_again(context.session, context.environment, answers)
        state = _audit(context)
        now = _counts(context, dataset, answers, sum(map(len, again.values())), state)
        under_way = round_store.open_round(context.session, context.environment)
    rows = _rows(now, dataset, n_batches, state)
    following = _next(now, settings.annotators, next(iter(again), PAIRS_COMMAND), scores, dataset.pair_sides)
    if under_way is not None:
        rows = (*rows, ("round", f"{under_way.number} is under way; see `mitl round show`"))
        if following.startswith(PAIRS_COMMAND):  # which a round has for itself while it is open
            following = f"mitl round run --{now['environment']}"
    title = f"{settings.project.name} · {context.environment}"
    return StageResult(
        counts=now,
        tables=(Table(title, ("what", "now"), rows),),
        next=following,
    )


def _audit(context: Context) -> AuditState | None:
    """The valid audit of recall as it stands; what computes its bounds is loaded only where there is one."""
    if audit_store.current(context.session, context.environment, AuditPurpose.RECALL) is None:
        return None
    from mitl.stages.auditing.showing import audit_state

    return audit_state(context)


def _counts(
    context: Context,
    dataset: DatasetRow,
    answers: Columns,
    hits_to_ask_again: int,
    audit: AuditState | None,
) -> StatusCounts:
    session, chosen = context.session, context.environment
    pairs = open_work.pair_counts(session, chosen, answers)
    decisions = answer_store.decision_counts(session, chosen)
    golds = gold_state(session, chosen, context.settings.gold_rule, answers)
    states = hit_store.state_counts(session, chosen)
    work = open_work.open_work(session, chosen)
    return {
        "environment": chosen.value,
        "images": dataset.n_images,
        "captions": dataset.n_captions,
        "pairs": pairs.candidates,
        "pairs_open": pairs.open,
        "pairs_judged": pairs.judged,
        "hits": {state.value: states[state] for state in HitState},
        "submissions": sum(decisions.values()),
        "queued": decisions.get(Decision.QUEUED, 0),
        "calls_open": desk_store.unsent(session, chosen),
        "hits_to_ask_again": hits_to_ask_again,
        "golds_answered": sum(record.golds for record in golds.records.values()),
        "golds_passed": sum(record.passes for record in golds.records.values()),
        "golds_withdrawn": len(golds.withdrawn),
        "audit": None if audit is None else _audit_counts(audit),
        "texts": _text_counts(context),
        "paid_cents": sum(journal.spent(session, chosen).values()),
        "hits_out": work.hits,
        "held_cents": work.held_cents,
    }


def _audit_counts(state: AuditState) -> AuditCounts:
    return {
        "number": state.audit.number,
        "pairs": state.audit.design.sample,
        "complete": state.complete,
        "wanted": state.wanted,
        "out": state.out,
        "recall": None if state.bound is None else state.bound.recall,
        "precision": None if state.bound is None else state.bound.precision,
    }


def _text_counts(context: Context) -> dict[str, int] | None:
    if not collection_store.is_collecting(context.session, context.environment):
        return None
    from mitl.campaign.kinds.texts.standing import standing, tally

    counted = tally(standing(context.session, context.environment))
    return {**asdict(counted), "waiting": counted.waiting}


def _rows(
    now: StatusCounts, data: DatasetRow, n_batches: int, audit: AuditState | None
) -> tuple[tuple[object, ...], ...]:
    golds, passes, withdrawn = now["golds_answered"], now["golds_passed"], now["golds_withdrawn"]
    rate = f"{passes:,} of {golds:,} passed ({100 * passes / golds:.1f} %)" if golds else "none answered yet"
    if withdrawn:
        rate += f"; {withdrawn:,} withdrawn, because workers of good record fail them"
    batches = "1 batch" if n_batches == 1 else f"{n_batches} batches"
    hits, out, again = sum(now["hits"].values()), now["hits_out"], now["hits_to_ask_again"]
    paid, held = format_dollars(now["paid_cents"]), format_dollars(now["held_cents"])
    pairs = f"{now['pairs']:,} proposed, {now['pairs_judged']:,} judged, {now['pairs_open']:,} open"
    unsent, texts = now["calls_open"], now["texts"]
    rows = (
        (
            "data set",
            f"{data.name}: {counted(data.pair_sides, data.n_images, data.n_captions)}",
        ),
        ("pairs", pairs),
        ("HITs", f"{hits:,} in {batches}, {out:,} out, {again:,} to ask again"),
        ("answers", f"{several(now['submissions'], 'submission')}, {now['queued']:,} wait for a person"),
        ("calls", _calls_line(unsent)) if unsent else None,
        ("controls", rate),
        None if audit is None else ("audit", audit.line),
        None if texts is None else ("texts", _texts_line(texts)),
        ("money", f"{paid} paid, {held} held for work that is not decided"),
    )
    return tuple(row for row in rows if row is not None)


def _calls_line(unsent: int) -> str:
    from mitl.stages.reviewing.review import in_words

    return f"{in_words(unsent)}; `mitl harvest` carries that out"


def _texts_line(texts: Mapping[str, int]) -> str:
    given = texts["written"] + texts["picked"]
    return (
        f"{several(texts['chosen'], 'item')} chosen, {given:,} written or picked, {texts['accepted']:,} accepted, "
        f"{texts['refused'] + texts['faulty']:,} refused or against a rule, {texts['waiting']:,} without a review"
    )


def _next(
    now: StatusCounts, annotators: Sequence[str], asks: str, scores: Sequence[str], sides: tuple[str, str]
) -> str:
    """The next step.

    Args:
        asks: the command that asks what is open, or asks again what could not be used.
        scores: commands that show what came of other kinds of campaign than pairs.
        sides: of pairs, by name.
    """
    if not now["pairs"] and not sum(now["hits"].values()):
        from mitl.stages.setup.init import first_step

        return first_step(annotators, min(now["images"], now["captions"]), sides)
    if now["calls_open"]:
        return "mitl harvest"
    if now["queued"]:
        return "mitl review"
    if now["hits_out"]:
        helpers = "" if now["environment"] == Environment.LIVE else " (or mitl simulate)"
        return f"mitl serve for people{helpers}, then mitl harvest"
    audit = now["audit"]
    if (
        now["hits_to_ask_again"]
        or now["pairs_open"]
        or (audit is not None and audit["wanted"] > audit["out"])
    ):
        return f"{asks} --{now['environment']}"
    if now["pairs_judged"]:
        return "mitl build-dataset --out DIR"
    return "; ".join(scores) if scores and now["submissions"] else "mitl harvest"

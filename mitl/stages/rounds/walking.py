"""Walking rounds: opening one, going on with it step by step, closing it, taking it back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, TypedDict

from mitl.campaign.kinds.pairs.planning import asked_of
from mitl.campaign.kinds.protocol import leftover
from mitl.crowd.context import Context, open_context
from mitl.db.locks import PUBLISH, ROUND, only_one
from mitl.db.store import audits as audit_store
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store import open_work
from mitl.db.store import rounds as round_store
from mitl.db.store.rounds import RoundRow
from mitl.errors import RoundError, UsageError
from mitl.records import AuditPurpose, BatchKind, Environment, StageResult, several
from mitl.records.results import printed_by
from mitl.records.rounds import DOUBTS, RoundStep
from mitl.selection.strategies import strategy_named
from mitl.settings import Settings
from mitl.stages.rounds.asking import asked_pairs, unanswered
from mitl.stages.rounds.figures import RoundFigures, figures_of, rounds_table
from mitl.stages.rounds.preview import Preview, preview_of, preview_table
from mitl.stages.rounds.steps import STEPS, room
from mitl.stages.rounds.wish import RoundRequest, Talk, Turn, Waits
from mitl.stages.training.train import TrainRequest, check


@printed_by("round next", "round run", "round close", "round rollback")
class RoundCounts(TypedDict, total=False):
    """What walking a round counts."""

    environment: Annotated[str, "sandbox or live"]
    round: Annotated[int, "number of the newest round that was walked"]
    steps: Annotated[dict[str, dict[str, Any]], "its steps that are done → what each came to"]
    waits_for: Annotated[str | None, "why it cannot go on yet; null where nothing is awaited"]
    closed: Annotated[list[int], "rounds that this command closed"]
    figures: Annotated[RoundFigures, "the round as `mitl round show` counts it"]
    dropped: Annotated[int, "choices that stand on no HIT and have no answer, and are dropped (`rollback`)"]
    withdrawn: Annotated[int, "runs of machine labels that were taken back (`rollback`)"]
    unlearnt: Annotated[list[str], "annotators that learnt in it and are withdrawn (`rollback`)"]
    asks: Annotated[
        Preview,
        "what it would ask (`next --dry-run`): pairs, strategy, hits, cents, kept_cents (to ask again what cannot be "
        "used), lost (pages answered so far, and those of them that had to be asked again), asked_first (questions of "
        "audits and of HITs that are asked again, among them); expected: matches "
        "with low and high (95 %) and those beyond_originals, null where nothing is fused and of doubts; originals "
        "among the pairs; images and captions: items, asked_before, most pairs of one",
    ]


def next_round(settings: Settings, environment: Environment, wish: RoundRequest, talk: Talk) -> StageResult:
    """Open a round and walk it until its choices are posted; one that was posted before is ended first.

    Raises:
        RoundError: the budget is below one HIT, a round of other wishes is under way, or nothing is open.
        MitlError: what the steps raise; the same command goes on with the step that failed.
    """
    with only_one(settings.db_url, ROUND):
        closed: list[int] = []
        row = _under_way(settings, environment)
        if row is not None and RoundStep.PUBLISH in _done(settings, environment, row):
            waits = _walk(Turn(settings, environment, row, RoundRequest.of(row), talk))
            if waits is not None:
                return _result(settings, environment, row, waits, closed)
            closed, row = [row.number], None
        row = _opened(settings, environment, wish, row)
        _walk(Turn(settings, environment, row, RoundRequest.of(row), talk), last=RoundStep.PUBLISH)
        told = (
            "mitl serve for people"
            if environment is Environment.LIVE
            else "mitl simulate --sandbox, or mitl serve for people"
        )
        following = f"{told}; then mitl round run --{environment.value}, which ends the round"
        return _result(settings, environment, row, None, closed, following)


def dry_run(settings: Settings, environment: Environment, wish: RoundRequest) -> StageResult:
    """What a round of this wish would ask if it were opened now; nothing is opened, trained, fused or stored.

    Raises:
        RoundError: a round is under way, the budget is too small, or nothing is open.
        StoreError: nothing has been proposed yet.
        UsageError: there is no such strategy.
    """
    with open_context(settings, environment, read_only=True) as context:
        row = round_store.open_round(context.session, environment)
        if row is not None:
            raise RoundError(
                f"round {row.number} is under way, and another one begins when it is ended; see `mitl round show`, or "
                "end it with `mitl round run` or `mitl round close`"
            )
        number = hit_store.next_round(context.session, item_store.dataset(context.session).id)
        asks = preview_of(context, wish, number)
    counts: RoundCounts = {"environment": environment.value, "round": number, "asks": asks}
    before = "trains, proposes and fuses" if wish.train else "proposes and fuses"
    return StageResult(
        status="nothing_to_do",
        counts=counts,
        tables=(preview_table(asks, number, wish),),
        lines=(f"dry run: nothing was opened or stored; a round {before} first, and may choose others then",),
        next="the same command without --dry-run",
    )


def run_rounds(
    settings: Settings, environment: Environment, wish: RoundRequest | None, talk: Talk
) -> StageResult:
    """Walk rounds to their ends, one after the other; the same command goes on where an earlier one stopped.

    Args:
        wish: with ``turns`` rounds in all; None ends the round that is under way, and opens none.

    Raises:
        RoundError: as `next_round`; or none is under way and nothing is wished.
    """
    with only_one(settings.db_url, ROUND):
        row = _under_way(settings, environment)
        if row is None and wish is None:
            raise RoundError(
                "no round is under way; give --budget to open one, as `mitl round run --budget 20.00`"
            )
        closed: list[int] = []
        turn = _next_turn(settings, environment, wish) if wish is not None and row is None else 1
        while True:
            if wish is not None:
                row = _opened(settings, environment, replace(wish, turn=turn), row)
            assert row is not None
            of = RoundRequest.of(row)
            waits = _walk(Turn(settings, environment, row, of, talk))
            if waits is not None:
                return _result(settings, environment, row, waits, closed)
            closed.append(row.number)
            if wish is None or of.turn >= wish.turns:
                following = (
                    f"mitl build-dataset --{environment} --out DIR, or mitl round next --{environment}"
                )
                return _result(settings, environment, row, None, closed, following)
            turn, row = of.turn + 1, None


def close(settings: Settings, environment: Environment | None, talk: Talk) -> StageResult:
    """End the open round with the answers that are there.

    Raises:
        RoundError: none is open, or it has posted nothing.
    """
    with only_one(settings.db_url, ROUND):
        with open_context(settings, environment, read_only=True) as context:
            chosen = context.environment
            row = round_store.open_round(context.session, chosen)
            if row is None:
                raise _none_open(context)
            turn = Turn(settings, chosen, row, RoundRequest.of(row), talk)
            missing = len(unanswered(context, turn))
        done = _done(settings, chosen, row)
        if RoundStep.PUBLISH not in done:
            raise RoundError(
                f"round {row.number} has not posted all that it chose; go on with the command that opened it, or take "
                "it back with `mitl round rollback`"
            )
        if RoundStep.HARVEST not in done:  # an interrupted try has told what it came to
            _ended(turn, RoundStep.HARVEST, {"unanswered": missing})
        _walk(turn)
        following = f"mitl round next --{chosen}, or mitl build-dataset --{chosen} --out DIR"
        return _result(settings, chosen, row, None, [row.number], following)


def rollback(settings: Settings, environment: Environment | None, number: int | None = None) -> StageResult:
    """Take the newest round back: what it trained and labelled is withdrawn, what it had not asked is dropped.

    Labels that its own had replaced stand again. Answers and money stay: people gave the ones and have the other.

    Raises:
        RoundError: there is none, a newer one stands, or HITs of it are planned and not posted.
        StoreError: another command walks rounds or changes HITs.
    """
    with (
        only_one(settings.db_url, ROUND),
        only_one(settings.db_url, PUBLISH),  # whose plan would ask what is dropped here
        open_context(settings, environment) as context,
    ):
        session, chosen = context.session, context.environment
        standing = [row for row in round_store.rounds(session, chosen) if row.rolled_back_at is None]
        if not standing:
            raise RoundError(f"no round stands on {chosen}, so there is none to take back")
        row = standing[-1]
        if number is not None and number != row.number:
            raise RoundError(
                f"round {number} cannot be taken back: the newest that stands is round {row.number}, and rounds are "
                "taken back newest first"
            )
        planned = leftover(session, chosen, BatchKind.PAIRS, hit_store.hit_items)
        if row.is_open and planned:
            raise RoundError(
                f"publishing round {row.number} was interrupted, and {several(len(planned.hits), 'HIT')} of it are "
                f"not posted; complete it with `mitl publish --{chosen} --chosen`, then take the round back"
            )
        label = round_store.steps(session, row.id).get(RoundStep.LABEL)
        withdrawn = restored = 0
        if label is not None:
            now = context.now()
            withdrawn, restored = audit_store.take_back(
                session, chosen, label.started_at, label.ended_at or now, now
            )
        unlearnt = [
            annotator.name for annotator in round_store.trained(session) if annotator.round_id == row.id
        ]
        dropped = round_store.drop_unasked(session, row.id, asked_pairs(context, row))
        out = round_store.hits_out(session, row.id)
        round_store.roll_back(session, row.id, context.now())
        session.commit()
    counts: RoundCounts = {
        "environment": chosen.value,
        "round": row.number,
        "dropped": dropped,
        "withdrawn": withdrawn,
        "unlearnt": unlearnt,
    }
    again = ", and those that they had replaced stand again" if restored else ""
    return StageResult(
        counts=counts,
        lines=(
            f"round {row.number} is taken back: {several(dropped, 'choice')} without a HIT or an answer dropped, "
            f"{several(withdrawn, 'run')} of machine labels withdrawn{again}; its answers and what they cost stay",
            *(
                (
                    f"{several(out, 'HIT')} with its choices still {'is' if out == 1 else 'are'} out: answers that "
                    "come in are paid and count; end them with `mitl hits expire BATCH`",
                )
                if out
                else ()
            ),
            *(f"{name} is withdrawn: what it ranked is not read any more" for name in unlearnt),
        ),
        next=f"mitl round next --{chosen.value}, or mitl publish --{chosen.value}",
    )


def _none_open(context: Context) -> RoundError:
    closed = [row for row in round_store.rounds(context.session, context.environment) if row.closed_at]
    if not closed:
        return RoundError(f"no round was opened on {context.environment}; open one with `mitl round next`")
    last = closed[-1]
    how = "taken back" if last.rolled_back_at else "closed"
    at = last.rolled_back_at or last.closed_at
    return RoundError(f"round {last.number} was {how} already, at {at:%Y-%m-%d %H:%M} UTC, and none is open")


def _under_way(settings: Settings, environment: Environment) -> RoundRow | None:
    with open_context(settings, environment, read_only=True) as context:
        return round_store.open_round(context.session, environment)


def _next_turn(settings: Settings, environment: Environment, wish: RoundRequest) -> int:
    """Of a run that was interrupted between two rounds; 1 where none was."""
    with open_context(settings, environment, read_only=True) as context:
        rows = round_store.rounds(context.session, environment)
    if not rows or rows[-1].rolled_back_at is not None:
        return 1
    last = RoundRequest.of(rows[-1])
    return last.turn + 1 if last.same_as(wish) and last.turn < wish.turns else 1


def _opened(
    settings: Settings, environment: Environment, wish: RoundRequest, row: RoundRow | None
) -> RoundRow:
    """The round that is under way, where it was asked for the same; else a new one."""
    if row is not None:
        if not RoundRequest.of(row).same_as(wish):
            raise RoundError(
                f"round {row.number} is under way and was asked for with other options; repeat those, end it with "
                "`mitl round run`, or take it back with `mitl round rollback`"
            )
        return row
    strategy_named(wish.strategy)
    if wish.train:
        learners = wish.annotators or settings.annotators
        if not learners:
            raise UsageError(
                "--train has no annotator to train; name one or several, as --annotators clip-mini"
            )
        check(TrainRequest(learners, wish.recipe(settings.seed)))
    with open_context(settings, environment) as context:
        session = context.session
        if wish.strategy == DOUBTS and not open_work.usable_workers(session, environment):
            raise RoundError(
                f"nobody has answered a pair on {environment} yet, so no answer is in doubt; run a round by another "
                "strategy first"
            )
        # The sample is drawn once there are probabilities, which may be in this very round.
        drawn = audit_store.current(session, environment, AuditPurpose.LABELS)
        again, questions = asked_of(session, wish.campaign(environment))(())
        room(context, wish, again, questions + (0 if drawn else wish.label_sample or 0))
        if leftover(session, environment, BatchKind.PAIRS, hit_store.hit_items):
            raise RoundError(
                f"HITs of an interrupted run are not posted yet; complete it with `mitl publish --{environment}` first"
            )
        dataset = item_store.dataset(session).id
        session.rollback()
        round_ = round_store.add_round(
            session, dataset, environment, wish.strategy, wish.config, context.now()
        )
        session.commit()
    return round_


def _done(settings: Settings, environment: Environment, row: RoundRow) -> dict[str, Mapping[str, Any]]:
    """The steps that ended, with what they came to."""
    with open_context(settings, environment, read_only=True) as context:
        steps = round_store.steps(context.session, row.id)
    return {step: step_row.result for step, step_row in steps.items() if step_row.ended_at is not None}


def _walk(turn: Turn, last: RoundStep = RoundStep.CERTIFY) -> Waits | None:
    """Do the steps that are not done, up to ``last``; what the first of them waits for."""
    done = _done(turn.settings, turn.environment, turn.row)
    for step, do in STEPS.items():
        if step not in done:
            with open_context(turn.settings, turn.environment) as context:
                round_store.begin_step(context.session, turn.row.id, step, context.now())
                context.session.commit()
            outcome = do(turn)
            if isinstance(outcome, Waits):
                return outcome
            turn.talk.say(f"round {turn.row.number}, {step.value}: {outcome.line}")
            _ended(turn, step, outcome.result)
        if step is last:
            break
    return None


def _ended(turn: Turn, step: RoundStep, result: Mapping[str, Any]) -> None:
    """Write down what a step came to; the last one closes the round in the same transaction."""
    with open_context(turn.settings, turn.environment) as context:
        session, now = context.session, context.now()
        round_store.begin_step(session, turn.row.id, step, now)
        round_store.end_step(session, turn.row.id, step, result, now)
        if step is RoundStep.CERTIFY:
            round_store.close_round(session, turn.row.id, now)
        session.commit()


def _result(
    settings: Settings,
    environment: Environment,
    row: RoundRow,
    waits: Waits | None,
    closed: list[int],
    following: str = "",
) -> StageResult:
    """What was done; ``following`` comes next unless a step waits."""
    with open_context(settings, environment, read_only=True) as context:
        rows = {stored.number: stored for stored in round_store.rounds(context.session, environment)}
        steps = round_store.steps(context.session, row.id)
        figures = [figures_of(context, rows[number]) for number in sorted({*closed, row.number})]
    counts: RoundCounts = {
        "environment": environment.value,
        "round": row.number,
        "steps": {step.value: dict(done.result) for step, done in steps.items() if done.ended_at is not None},
        "waits_for": None if waits is None else waits.line,
        "closed": closed,
        "figures": figures[-1],
    }
    did = bool(following or closed) or (waits is not None and waits.did)
    return StageResult(
        status="done" if did else "nothing_to_do",
        counts=counts,
        tables=(rounds_table(figures),),
        lines=() if waits is None else (f"round {row.number} waits: {waits.line}",),
        next=following if waits is None else waits.next,
    )

"""Rounds that choose what they ask, what each of their steps came to, and the annotators that they trained."""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Mapping, Set
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, func, or_, select, update
from sqlalchemy.orm import Session

from mitl.core.arrays import unpack_pairs
from mitl.db.base import columns
from mitl.db.models import Batch, ChosenPair, Hit, HitItemRow, PairRow, Round, StepOfRound, TrainedAnnotator
from mitl.db.store import journal
from mitl.db.store.commitments import paid_by
from mitl.db.store.hits import next_round
from mitl.db.store.proposals import ensure_pairs, runs, unmark_withdrawn
from mitl.db.store.statements import add_tuples, change_among, table_of
from mitl.errors import RoundError
from mitl.records import PAIRS_COMMAND, ROUND_COMMAND, Environment, HitState, Pair, PairRole
from mitl.records.frames import frame
from mitl.records.rounds import CHOSEN, TEACHING, RoundStep

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class RoundRow:
    """A round that chooses what it asks."""

    id: int
    number: int
    strategy: str
    config: Mapping[str, Any]
    opened_at: dt.datetime
    closed_at: dt.datetime | None
    rolled_back_at: dt.datetime | None

    @property
    def is_open(self) -> bool:
        """Neither closed nor rolled back."""
        return self.closed_at is None


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step that was begun."""

    step: RoundStep
    result: Mapping[str, Any]
    started_at: dt.datetime
    ended_at: dt.datetime | None


@dataclass(frozen=True, slots=True)
class TrainedRow:
    """An annotator that learnt here."""

    id: int
    name: str
    round_id: int | None
    base: str
    base_fingerprint: str
    file: str
    """Relative to the project."""
    weights_sha256: str
    recipe: Mapping[str, Any]
    made_at: dt.datetime
    withdrawn_at: dt.datetime | None


def rounds(session: Session, environment: Environment) -> list[RoundRow]:
    """The rounds of an environment that chose what they asked, oldest first."""
    query = select(*columns(RoundRow, Round)).where(Round.environment == environment)
    return [
        RoundRow(**row | {"config": json.loads(row["config"] or "{}")})
        for row in map(dict, session.execute(query.order_by(Round.number)).mappings())
    ]


def by_batch(session: Session, environment: Environment) -> dict[int, RoundRow]:
    """Batch → the round that chose what it asks; without those of `mitl publish`."""
    of_id = {row.id: row for row in rounds(session, environment)}
    query = select(Batch.id, Batch.round_id).where(Batch.round_id.in_(of_id)).order_by(Batch.id)
    return {batch: of_id[round_id] for batch, round_id in session.execute(query)}


def open_round(session: Session, environment: Environment) -> RoundRow | None:
    """The round that is under way; None where there is none."""
    return next((row for row in rounds(session, environment) if row.is_open), None)


def pairs_command(session: Session, environment: Environment) -> str:
    """The command that asks about pairs now: while a round is open, ``mitl publish`` refuses."""
    return PAIRS_COMMAND if open_round(session, environment) is None else ROUND_COMMAND


def after_pages(session: Session, environment: Environment) -> str:
    """What to do where no page is out and none waits for a decision."""
    if not runs(session):
        return "mitl status, which says what comes first"
    return f"{pairs_command(session, environment)} --{environment}, or mitl build-dataset --{environment} --out DIR"


def first_command(session: Session) -> str:
    """The command that asks about pairs that were just proposed: a round's where one is open, else on the sandbox."""
    under_way = (f"{ROUND_COMMAND} --{of}" for of in Environment if open_round(session, of) is not None)
    return next(under_way, f"{PAIRS_COMMAND} --{Environment.SANDBOX}")


def add_round(
    session: Session,
    dataset_id: int,
    environment: Environment,
    strategy: str,
    config: Mapping[str, Any],
    now: dt.datetime,
) -> RoundRow:
    """Open the next round.

    Raises:
        RoundError: one is under way.
    """
    under_way = open_round(session, environment)
    if under_way is not None:
        raise RoundError(
            f"round {under_way.number} is under way; finish it with `mitl round run`, or take it back with "
            "`mitl round rollback`"
        )
    session.add(
        Round(
            dataset_id=dataset_id,
            number=next_round(session, dataset_id),
            environment=environment,
            strategy=strategy,
            config=json.dumps(config, sort_keys=True),
            opened_at=now,
        )
    )
    session.flush()
    return rounds(session, environment)[-1]


def close_round(session: Session, round_id: int, now: dt.datetime) -> None:
    """Mark a round as done.

    Raises:
        RoundError: it is closed already.
    """
    row = session.get_one(Round, round_id)
    if row.closed_at is not None:
        raise RoundError(f"round {row.number} was closed already, at {row.closed_at:%Y-%m-%d %H:%M} UTC")
    row.closed_at = now


def roll_back(session: Session, round_id: int, now: dt.datetime) -> None:
    """Close a round; what it trained is withdrawn with all that this alone proposed, and its answers stay."""
    row = session.get_one(Round, round_id)
    row.rolled_back_at = now
    row.closed_at = row.closed_at or now
    session.execute(
        update(TrainedAnnotator)
        .where(TrainedAnnotator.round_id == round_id, TrainedAnnotator.withdrawn_at.is_(None))
        .values(withdrawn_at=now)
    )
    unmark_withdrawn(session)


def steps(session: Session, round_id: int) -> dict[RoundStep, StepRow]:
    """The steps that were begun, in their order."""
    query = select(StepOfRound).where(StepOfRound.round_id == round_id)
    stored = {row.step: row for row in session.scalars(query)}
    return {
        step: StepRow(step, json.loads(stored[step].result), stored[step].started_at, stored[step].ended_at)
        for step in RoundStep
        if step in stored
    }


def begin_step(session: Session, round_id: int, step: RoundStep, now: dt.datetime) -> None:
    """Write down that a step is tried; a repeated try keeps the time of the first."""
    if step not in steps(session, round_id):
        session.add(StepOfRound(round_id=round_id, step=step, result="{}", started_at=now))
        session.flush()


def end_step(
    session: Session, round_id: int, step: RoundStep, result: Mapping[str, Any], now: dt.datetime
) -> None:
    """Write down what a step came to."""
    session.execute(
        update(StepOfRound)
        .where(StepOfRound.round_id == round_id, StepOfRound.step == step)
        .values(result=json.dumps(result, sort_keys=True), ended_at=now)
    )


def choose_pairs(session: Session, round_id: int, chosen: pd.DataFrame) -> None:
    """Store what a round asks (``CHOSEN``); pairs that no annotator proposed are added."""
    pairs = unpack_pairs(chosen["pair"].to_numpy())
    ids = ensure_pairs(session, pairs)
    others = (chosen[name].tolist() for name in ("place", "score", "strategy"))
    add_tuples(
        session,
        ChosenPair,
        ("round_id", "pair_id", "place", "score", "strategy"),
        ((round_id, ids[pair], *rest) for pair, *rest in zip(pairs, *others, strict=True)),
    )


def chosen_pairs(session: Session, round_id: int) -> pd.DataFrame:
    """What a round asks (``CHOSEN``), in order."""
    query = (
        select(PairRow.left_id, PairRow.right_id, ChosenPair.place, ChosenPair.score, ChosenPair.strategy)
        .join(PairRow, PairRow.id == ChosenPair.pair_id)
        .where(ChosenPair.round_id == round_id)
        .order_by(ChosenPair.place)
    )
    rows = table_of(session, query)
    return frame(CHOSEN, {name: rows[name] for name in CHOSEN})


def spent(session: Session, environment: Environment, round_id: int) -> int:
    """Cents paid so far for the HITs that a round pays for: rewards, fees and bonuses."""
    return sum(journal.spent(session, environment, paid_by(session, environment, round_id)).values())


def posted_hits(session: Session, environment: Environment, round_id: int) -> int:
    """How many HITs that a round pays for reached the server."""
    query = select(func.count(Hit.id)).join(Batch, Batch.id == Hit.batch_id)
    asked = query.where(paid_by(session, environment, round_id), Hit.mturk_hit_id.is_not(None))
    return session.scalar(asked) or 0


def hits_out(session: Session, round_id: int) -> int:
    """How many HITs of a round's batches, or of earlier ones that ask its choices again, still wait for workers."""
    choices = (
        select(HitItemRow.hit_id)
        .join(ChosenPair, ChosenPair.pair_id == HitItemRow.pair_id)
        .where(ChosenPair.round_id == round_id, HitItemRow.role.in_([r for r in PairRole if r.is_asked]))
    )
    query = (
        select(func.count(Hit.id))
        .join(Batch, Batch.id == Hit.batch_id)
        .join(Round, Round.environment == Batch.environment)
        .where(Round.id == round_id, Hit.state == HitState.POSTED)
    )
    return session.scalar(query.where(or_(Batch.round_id == round_id, Hit.id.in_(choices)))) or 0


def drop_unasked(session: Session, round_id: int, asked: Set[Pair]) -> int:
    """Take out the choices of a round that stand on none of its HITs; returns how many.

    Args:
        asked: what stays all the same, for a HIT of another round asks it or it is answered.
    """
    asked_rows = (
        select(HitItemRow.pair_id)
        .join(Hit, Hit.id == HitItemRow.hit_id)
        .join(Batch, Batch.id == Hit.batch_id)
        .where(Batch.round_id == round_id)
    )
    query = (
        select(ChosenPair.id, PairRow.left_id, PairRow.right_id)
        .join(PairRow, PairRow.id == ChosenPair.pair_id)
        .where(ChosenPair.round_id == round_id, ChosenPair.pair_id.not_in(asked_rows))
    )
    gone = [row for row, *pair in session.execute(query) if Pair(*pair) not in asked]
    change_among(session, delete(ChosenPair), ChosenPair.id, gone)
    return len(gone)


def add_trained(session: Session, row: TrainedRow, taught: pd.DataFrame) -> None:
    """Store an annotator that learnt from these pairs (``TEACHING``); its ``id`` is given here."""
    recipe = json.dumps(row.recipe, sort_keys=True)
    values = asdict(row) | {"id": None, "recipe": recipe, "taught": taught.to_parquet(index=False)}
    session.add(TrainedAnnotator(**values))
    session.flush()


def trained(session: Session, *, withdrawn: bool = False) -> list[TrainedRow]:
    """The annotators that learnt here, oldest first; withdrawn ones only where asked for."""
    query = select(*columns(TrainedRow, TrainedAnnotator)).order_by(TrainedAnnotator.id)
    return [
        TrainedRow(**row | {"recipe": json.loads(row["recipe"])})
        for row in map(dict, session.execute(query).mappings())
        if withdrawn or row["withdrawn_at"] is None
    ]


def taught(session: Session, name: str) -> pd.DataFrame:
    """The pairs that taught an annotator (``TEACHING``).

    Raises:
        RoundError: no annotator of this name learnt here.
    """
    parquet = session.scalar(select(TrainedAnnotator.taught).where(TrainedAnnotator.name == name))
    if parquet is None:
        raise RoundError(f"no annotator called {name!r} was trained here")
    import pandas as pd

    pairs = pd.read_parquet(io.BytesIO(parquet))
    return frame(TEACHING, {column: pairs[column] for column in TEACHING})

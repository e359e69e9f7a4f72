"""What a release owes to rounds: the pairs that they chose, and the annotators that learnt between them."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from sqlalchemy.orm import Session

from mitl.db.store import proposals as proposal_store
from mitl.db.store import rounds as round_store
from mitl.db.store.rounds import TrainedRow
from mitl.positives.chosen import first_choices
from mitl.positives.release_input import ChosenRound, TrainedMachine
from mitl.records import Environment


@dataclass(frozen=True, slots=True, eq=False)
class Learning:
    """The rounds of one environment, and the annotators that learnt here and proposed; often none of either."""

    rounds: tuple[ChosenRound, ...]
    trained: tuple[TrainedMachine, ...]
    chosen: pd.DataFrame
    """``CHOSEN_BY``."""
    configuration: dict[str, object]
    """What decided them, as JSON; empty where there were none."""


def learning(session: Session, environment: Environment) -> Learning:
    """Read it; a round that chose nothing yet is left out."""
    every = [
        (row, round_store.chosen_pairs(session, row.id)) for row in round_store.rounds(session, environment)
    ]
    every = [(row, chosen) for row, chosen in every if len(chosen)]
    numbers = {
        row.id: row.number for other in Environment for row in round_store.rounds(session, other)
    }  # an annotator may have learnt in a round of the other environment
    proposers = {row.name for row in proposal_store.annotators(session)}
    learnt = [row for row in round_store.trained(session, withdrawn=True) if row.name in proposers]
    trained = tuple(_machine(session, row, numbers) for row in learnt)
    configuration: dict[str, object] = {}
    if every:
        configuration["rounds"] = [
            {
                "number": row.number,
                "strategy": row.strategy,
                "pairs": len(chosen),
                "rolled_back": row.rolled_back_at is not None,
                "config": dict(row.config),
            }
            for row, chosen in every
        ]
    if trained:
        configuration["trained"] = [
            {
                "name": one.name,
                "base": one.base,
                "base_fingerprint": row.base_fingerprint,
                "round": one.round,
                "weights_sha256": one.weights_sha256,
                "answers": one.answers,
                "pairs": one.pairs,
                "recipe": {key: value for key, value in row.recipe.items() if key != "outcome"},
            }
            for row, one in zip(learnt, trained, strict=True)
        ]
    return Learning(
        rounds=tuple(
            ChosenRound(
                row.number, _strategy(row.strategy, chosen), len(chosen), row.rolled_back_at is not None
            )
            for row, chosen in every
        ),
        trained=trained,
        chosen=first_choices((row.number, chosen) for row, chosen in every),
        configuration=configuration,
    )


def _strategy(wished: str, chosen: pd.DataFrame) -> str:
    """By which the pairs were chosen: a first round may lack what the wished one goes by, and take another."""
    used = chosen["strategy"].unique()
    return str(used[0]) if len(used) == 1 else wished


def _machine(session: Session, row: TrainedRow, numbers: dict[int, int]) -> TrainedMachine:
    taught = round_store.taught(session, row.name)
    return TrainedMachine(
        name=row.name,
        base=row.base,
        round=None if row.round_id is None else numbers.get(row.round_id),
        weights_sha256=row.weights_sha256,
        answers=int(taught["n"].sum()),
        pairs=int((taught["n"] > 0).sum()),
        collected=int(row.recipe.get("collected", 0)),
    )

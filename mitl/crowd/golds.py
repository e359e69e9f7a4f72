"""The workers' gold records and the controls on trial, as the stored answers have them now."""

from __future__ import annotations

from functools import partial

import pandas as pd
from sqlalchemy.orm import Session

from mitl.db.store import desk as desk_store
from mitl.db.store.columns import answer_columns, pairs_of_rows
from mitl.judgements import gold_records
from mitl.judgements.gold_records import GoldState
from mitl.records import Environment
from mitl.records.gold_rule import GoldRule


def gold_state(
    session: Session, environment: Environment, rule: GoldRule, answers: pd.DataFrame | None = None
) -> GoldState:
    """Records and withdrawn controls over all stored answers of an environment.

    Args:
        answers: those of this environment, where they are at hand.
    """
    return gold_records.gold_state(
        answer_columns(session, environment) if answers is None else answers,
        rule,
        names=desk_store.worker_names(session, environment),
        pairs_of=partial(pairs_of_rows, session),
    )

"""The workers' gold records and the controls on trial, as the stored answers have them now."""

from __future__ import annotations

from functools import partial

from sqlalchemy.orm import Session

from mitl.db.store import desk as desk_store
from mitl.db.store.control_sheets import control_answers
from mitl.db.store.proposals import pairs_of_rows
from mitl.judgements import gold_records
from mitl.judgements.gold_records import GoldState
from mitl.records import Environment
from mitl.records.questions import GoldRule


def gold_state(session: Session, environment: Environment, rule: GoldRule) -> GoldState:
    """Records and withdrawn controls over all stored answers of an environment."""
    return gold_records.gold_state(
        control_answers(session, environment),
        rule,
        names=desk_store.worker_names(session, environment),
        pairs_of=partial(pairs_of_rows, session),
    )

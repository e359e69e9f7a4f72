"""Counting where a project stands: pairs, HITs, answers, controls, money, what is to be asked again."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from mitl.campaign.kinds import kind_of, other_kinds_asked, to_ask_again
from mitl.crowd.context import choose_environment, named
from mitl.db.session import open_database
from mitl.db.store import answers as answer_store
from mitl.db.store import audits as audit_store
from mitl.db.store import collection as collection_store
from mitl.db.store import desk as desk_store
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store import journal, open_work, standings
from mitl.db.store import rounds as round_store
from mitl.db.store.control_sheets import gold_state
from mitl.db.store.standings import Standing
from mitl.db.store.worker_tallies import tallies_of
from mitl.records import AuditPurpose, Decision, Environment, HitState, Label
from mitl.records.collection import TEXTS
from mitl.records.questions import GoldRule
from mitl.settings import Settings


def takes_in(session: Session, environment: Environment) -> str:
    """The command for answers that wait for a person, else for those that are out; empty where there are none."""
    if answer_store.decision_counts(session, environment).get(Decision.QUEUED):
        return f"mitl review{named(session, environment)}"
    if hit_store.state_counts(session, environment)[HitState.POSTED]:
        return f"mitl harvest{named(session, environment)}"
    return ""


def standing(session: Session, environment: Environment, rule: GoldRule) -> Standing:
    """Where the environment stands now, counted from the rows.

    Raises:
        StoreError: no data set is loaded.
    """
    dataset = item_store.dataset(session)
    tallies = tallies_of(session, environment)
    pairs = open_work.pair_counts(session, environment, tallies)
    groups = desk_store.submission_groups(session, environment)
    golds = gold_state(session, environment, rule)
    states = hit_store.state_counts(session, environment)
    work = open_work.open_work(session, environment)
    again = {command: len(hits) for command, hits in to_ask_again(session, environment, tallies).items()}
    under_way = round_store.open_round(session, environment)
    return {
        "rule": standings.rule_of(rule),
        "default": choose_environment(session, None).value,
        "dataset": dataset.name,
        "sides": dataset.pair_sides,
        "excluded": pairs.excluded,
        "batches": len(hit_store.batches(session, environment)),
        "again": again,
        "disputed": len(audit_store.disputes(session, environment)),
        "scores": [kind.scores for kind in other_kinds_asked(session, environment) if kind.scores],
        "round": None if under_way is None else under_way.number,
        "ended": work.ended,
        "audited": audit_store.current(session, environment, AuditPurpose.RECALL) is not None,
        "counts": {
            "images": dataset.n_images,
            "captions": dataset.n_captions,
            "pairs": pairs.candidates,
            "pairs_open": pairs.open,
            "pairs_judged": pairs.judged,
            "hits": {state.value: states[state] for state in HitState},
            "submissions": sum(group.submissions for group in groups),
            "queued": sum(group.submissions for group in groups if group.decision is Decision.QUEUED),
            "calls_open": desk_store.unsent(session, environment, groups),
            "hits_to_ask_again": sum(again.values()),
            "golds_answered": sum(record.golds for record in golds.records.values()),
            "golds_passed": sum(record.passes for record in golds.records.values()),
            "golds_withdrawn": len(golds.withdrawn),
            "texts": _texts(session, environment),
            "paid_cents": sum(journal.spent(session, environment).values()),
            "hits_out": work.hits,
            "held_cents": work.held_cents,
        },
    }


def _texts(session: Session, environment: Environment) -> dict[str, int] | None:
    if not collection_store.is_collecting(session, environment):
        return None
    texts: Any = kind_of(TEXTS)  # by its name, as kinds build on this folder
    counts: dict[str, int] = texts.tallied(session, environment)
    return counts


def keep_standing(session: Session, environment: Environment, rule: GoldRule) -> None:
    """Count and keep it, where it is not known, and commit; for the end of a command that writes."""
    kept = standings.kept(session.connection()).get(environment)
    if kept is None or kept["rule"] != standings.rule_of(rule):
        standings.keep(session, environment, standing(session, environment, rule))
    session.commit()


def keep_standings(settings: Settings) -> None:
    """Count and keep where each environment stands that has batches, or the one that would; for a command's end.

    Raises:
        StoreError: no data set is loaded, or as `mitl.db.session.open_database`.
    """
    with open_database(settings.db_url) as session:
        chosen = choose_environment(session, None)
        for environment in hit_store.environments(session) or [chosen]:
            keep_standing(session, environment, settings.gold_rule)


def false_standings(session: Session) -> int:
    """How many of those that are kept say something else than the rows; it looks at every row."""
    return sum(
        kept != standing(session, environment, _rule(kept))
        for environment, kept in standings.kept(session.connection()).items()
    )


def _rule(known: Standing) -> GoldRule:
    return GoldRule(**{side: tuple(map(Label, labels)) for side, labels in known["rule"].items()})

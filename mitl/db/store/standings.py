"""Where a project stands, counted by whoever wrote last and read at once, whatever its size.

The database itself forgets it when a row of any table changes that it rests on, by triggers (revision p0011), whoever
changes it. So what is kept is what counting the rows would give; `mitl db verify` counts and compares. It is read and
written without the models, which take `mitl status` longer to load than all that it does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from sqlalchemy import Connection, text

from mitl.records import BatchKind, Decision, Environment
from mitl.records.collection import COLLECT_COMMAND
from mitl.records.questions import GoldRule
from mitl.records.similarity import RATE_COMMAND

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


class Standing(TypedDict):
    """Where an environment stands."""

    rule: dict[str, list[str]]
    """Which answers passed a control when this was counted."""
    default: str
    """The environment that is meant where none is named."""
    dataset: str
    """Its name."""
    sides: tuple[str, str]
    """What the two sides of pairs are called."""
    excluded: int
    """Proposed pairs that nobody is asked about because exclusion lists name them."""
    batches: int
    again: Mapping[str, int]
    """Command → closed HITs that leave something to it, pairs first."""
    disputed: int
    """Pairs of the sample for machine labels that want further workers who are not asked yet."""
    scores: Sequence[str]
    """Commands that show what came of other kinds of campaign than pairs."""
    round: int | None
    """The number of the one under way."""
    ended: int
    """Of the HITs that are out, those that nobody new may take."""
    audited: bool
    """Whether there is a valid audit of recall."""
    counts: Mapping[str, Any]
    """Of `mitl status`, but for the audit."""


def rule_of(rule: GoldRule) -> dict[str, list[str]]:
    """A rule as it is kept."""
    return {"positive": [*rule.positive], "negative": [*rule.negative]}


def kept(connection: Connection) -> dict[Environment, Standing]:
    """What is known of each environment; nothing of one that was written to since, or that another mitl counted."""
    rows = connection.execute(text("SELECT environment, content FROM standing"))
    standings: dict[Environment, Standing] = {}
    for name, content in rows:
        standing: Standing = json.loads(content)
        if standing.keys() != Standing.__annotations__.keys():  # an earlier or later mitl counts other things
            continue
        left, right = standing["sides"]
        standings[Environment(name)] = {**standing, "sides": (left, right)}
    return standings


_FIRST_OF = {"similarity_sample": RATE_COMMAND, "collection_choice": COLLECT_COMMAND}
"""Table of what is to be asked without a proposal → the command that asks it."""


def unproposed_command(connection: Connection) -> str | None:
    """The command that asks what was sampled or chosen without a proposal; None where nothing was."""
    for table, command in _FIRST_OF.items():
        if connection.scalar(text(f"SELECT 1 FROM {table} LIMIT 1")):
            return command
    return None


def all_at_hand(connection: Connection, side: str) -> bool:
    """Whether each item of a side has a file or is a text."""
    lacking = text(
        "SELECT 1 FROM part p JOIN side s ON s.id = p.side_id "
        "WHERE s.name = :side AND p.file IS NULL AND p.text IS NULL LIMIT 1"
    )
    return connection.scalar(lacking, {"side": side}) is None


def is_released(connection: Connection, environment: Environment) -> bool:
    """Whether a release of its answers was built, or one that does not say whose it holds."""
    built = connection.execute(text("SELECT rules FROM release WHERE rules IS NOT NULL")).scalars()
    return any(json.loads(rules).get("environment", environment) == environment for rules in built)


def other_work(connection: Connection, environment: Environment) -> dict[str, dict[str, int]]:
    """Kind of campaign that is not of pairs → its HITs, submissions, and those of them that are kept."""
    kept = ", ".join(f"'{decision.value}'" for decision in Decision if decision.keeps_answers)
    rows = connection.execute(
        text(
            f"SELECT b.kind, count(DISTINCT h.id), count(a.id), count(CASE WHEN a.decision IN ({kept}) THEN 1 END) "
            "FROM batch b JOIN hit h ON h.batch_id = b.id LEFT JOIN assignment a ON a.hit_id = h.id "
            "WHERE b.environment = :name AND b.kind <> :pairs GROUP BY b.kind ORDER BY b.kind"
        ),
        {"name": environment.value, "pairs": BatchKind.PAIRS.value},
    )
    return {kind: dict(zip(("hits", "submissions", "kept"), numbers, strict=True)) for kind, *numbers in rows}


def forget(connection: Connection) -> None:
    """Let everything be counted again: a newer mitl may count by other rules."""
    connection.execute(text("DELETE FROM standing"))


def keep(session: Session, environment: Environment, standing: Standing) -> None:
    """Keep it in place of what was kept; in the transaction in which it was counted."""
    connection = session.connection()
    connection.execute(text("DELETE FROM standing WHERE environment = :name"), {"name": environment.value})
    connection.execute(
        text("INSERT INTO standing (environment, content) VALUES (:name, :content)"),
        {"name": environment.value, "content": json.dumps(standing)},
    )

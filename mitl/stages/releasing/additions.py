"""What a release holds beside answers and proposals: rounds and what they taught, texts of people, certificates.

Certificates are the complete audit of the pool as it is, and the bound of its machine labels.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

import pandas as pd
from sqlalchemy.orm import Session

from mitl.campaign.kinds.texts.standing import standing, tally
from mitl.core.arrays import contains
from mitl.crowd.context import Context
from mitl.db.store import audits as audit_store
from mitl.db.store import collection as collection_store
from mitl.db.store import proposals as proposal_store
from mitl.db.store import rounds as round_store
from mitl.db.store.rounds import TrainedRow
from mitl.errors import AuditError
from mitl.positives.certifying import AuditRecord, certified
from mitl.positives.exclusions import Exclusions
from mitl.positives.merging import Merged
from mitl.positives.release_input import (
    ChosenRound,
    CollectedText,
    Collecting,
    LabelledPart,
    MachineBound,
    ReleaseInput,
    TrainedMachine,
)
from mitl.positives.scrubbing import scrub_all
from mitl.records import AuditPurpose, Environment, several
from mitl.records.frames import NONE, frame
from mitl.records.rounds import CHOSEN_BY
from mitl.stages.auditing.showing import audit_record


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
        (row, chosen)
        for row in round_store.rounds(session, environment)
        if len(chosen := round_store.chosen_pairs(session, row.id))
    ]
    numbers = {
        row.id: row.number for other in Environment for row in round_store.rounds(session, other)
    }  # an annotator may have learnt in a round of the other environment
    proposers = {row.name for row in proposal_store.annotators(session)}
    learnt = [row for row in round_store.trained(session, withdrawn=True) if row.name in proposers]
    trained = tuple(_machine(session, row, numbers) for row in learnt)
    configuration = {
        "rounds": [
            {
                "number": row.number,
                "strategy": row.strategy,
                "pairs": len(chosen),
                "rolled_back": row.rolled_back_at is not None,
                "config": dict(row.config),
            }
            for row, chosen in every
        ],
        "trained": [
            {
                "name": machine.name,
                "base": machine.base,
                "base_fingerprint": row.base_fingerprint,
                "round": machine.round,
                "weights_sha256": machine.weights_sha256,
                "answers": machine.answers,
                "pairs": machine.pairs,
                "recipe": {key: value for key, value in row.recipe.items() if key != "outcome"},
            }
            for row, machine in zip(learnt, trained, strict=True)
        ],
    }
    return Learning(
        rounds=tuple(
            ChosenRound(
                row.number, _strategy(row.strategy, chosen), len(chosen), row.rolled_back_at is not None
            )
            for row, chosen in every
        ),
        trained=trained,
        chosen=first_choices((row.number, chosen) for row, chosen in every),
        configuration={name: told for name, told in configuration.items() if told},
    )


def first_choices(rounds: Iterable[tuple[int, pd.DataFrame]]) -> pd.DataFrame:
    """``CHOSEN_BY`` of rounds, each with its number and its ``CHOSEN``; the earliest counts where two chose a pair."""
    parts = [chosen.assign(round=number)[list(CHOSEN_BY)] for number, chosen in rounds]
    if not parts:
        return frame(CHOSEN_BY, {name: [] for name in CHOSEN_BY})
    every = pd.concat(parts, ignore_index=True).sort_values(["pair", "round"], kind="stable")
    first = every.drop_duplicates("pair", ignore_index=True)
    return frame(CHOSEN_BY, {name: first[name] for name in CHOSEN_BY})


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


def collected(texts: Sequence[CollectedText], ids: Iterable[str]) -> tuple[CollectedText, ...]:
    """The accepted texts; of what was written, addresses, long numbers and ids are taken out."""
    scrubbed = scrub_all({text.text for text in texts if text.caption is None}, ids)
    return tuple(
        replace(text, text=scrubbed[text.text].text) if text.caption is None else text for text in texts
    )


def collecting(context: Context) -> Collecting | None:
    """How many were asked for and given; None where no item was chosen to get a partner."""
    standings = standing(context.session, context.environment)
    if not standings:
        return None
    paid = collection_store.paid_cents(context.session, context.environment)
    return Collecting(**asdict(tally(standings)), paid_cents=paid)


def with_certificate(
    context: Context, data: ReleaseInput, exclusions: Exclusions
) -> tuple[ReleaseInput, str]:
    """The release with what only the audit found and its certificate; or as it was, and in one line why."""
    record, why = _record(context)
    if record is not None and data.rules.official:
        record, why = None, "the official filters reproduce files that had no audit, so it is not read"
    if record is not None:
        try:
            runs = [run.config for run in proposal_store.runs(context.session)]
            merged, audit = certified(
                record, data.merged, exclusions, data.proposals, runs, strict=data.rules.strict
            )
        except AuditError as error:
            why = str(error)
        else:
            configuration = {**data.configuration, "audit": audit.named}
            warnings = data.warnings + _excluded_since(record, data.merged)
            whole = replace(data, merged=merged, audit=audit, configuration=configuration, warnings=warnings)
            return whole, ""
    return data, why and f"the release has no certificate: {why}"


def _excluded_since(record: AuditRecord, merged: Merged) -> tuple[str, ...]:
    """What no file of the release tells: lists may have been made by the audit's answers, which the bounds forbid."""
    known = record.audited.loc[record.audited["known"], "pair"]
    gone = int(contains(merged.where("excluded"), known.to_numpy()).sum())
    if not gone:
        return ()
    return (
        f"{several(gone, 'audited pair')} left the positives by an exclusion list after the audit was drawn: if the "
        "list goes by the audit's answers, the certificate's bounds are too high, so keep such pairs in and let "
        "conflicts.csv tell of them",
    )


def _record(context: Context) -> tuple[AuditRecord | None, str]:
    """The newest valid audit of recall; or none and, where one was drawn, why none is valid."""
    session, environment = context.session, context.environment
    audit = audit_store.current(session, environment, AuditPurpose.RECALL)
    if audit is not None:
        return audit_record(context, audit), ""
    drawn = [row for row in audit_store.audits(session, environment) if row.purpose is AuditPurpose.RECALL]
    if not drawn:
        return None, ""
    return None, (
        f"the data set or the queries asked have changed since audit {drawn[-1].number} was drawn, which voids it; "
        "draw another with `mitl audit draw`"
    )


def with_machine_bound(context: Context, data: ReleaseInput) -> ReleaseInput:
    """The release with the bound under which the machine labels that stand were given."""
    labelling = audit_store.standing(context.session, context.environment)
    assert labelling is not None  # its labels are in the release
    config = json.loads(labelling.config)
    parts = (
        LabelledPart(
            part["stratum"], part["pairs"], part["sampled"], part["labelled"], part["bound_among_labelled"]
        )
        for part in config["strata"]
    )
    bound = MachineBound(config["confidence"], config["loss"], config["siding"], tuple(parts))
    first = audit_store.audited(context.session, labelling.audit_id)["first"]
    lost = config.get("answered", 0) - int((first != NONE).sum())
    warnings = data.warnings
    if lost > 0:
        warnings += (
            f"{several(lost, 'sampled pair')} that the bound of the machine labels rests on "
            f"{'has' if lost == 1 else 'have'} no usable answer any more, so the bound is not proved now; run `mitl "
            "publish --drawn`, `mitl harvest` and `mitl label` again",
        )
    configuration = {**data.configuration, "machine_labels": config}
    return replace(data, machine=bound, configuration=configuration, warnings=warnings)

"""What each round asked, cost and found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypedDict

import numpy as np

from mitl.core.arrays import Ints, contains, distinct, pack_pairs, unpack_pairs
from mitl.core.formats import lower_bound, percent
from mitl.core.pricing import format_dollars
from mitl.crowd.context import Context, open_context
from mitl.db.store import columns, open_work
from mitl.db.store import items as item_store
from mitl.db.store import rounds as round_store
from mitl.db.store.rounds import RoundRow
from mitl.errors import RoundError
from mitl.records import Environment, StageResult, Table
from mitl.records.results import EnvironmentCounts, printed_by
from mitl.records.rounds import DOUBTS, RoundStep
from mitl.settings import Settings
from mitl.stages.fusing.gathering import answered
from mitl.stages.rounds.asking import committed_cents


class RoundFigures(TypedDict):
    """One round, as ``--json`` prints it."""

    round: int
    strategy: str
    trained: list[str]
    state: str
    budget_cents: int
    asked: int
    answered: int
    paid_cents: int
    promised_cents: int
    positives: int
    beyond_originals: int
    per_dollar: float | None
    recall: float | None
    precision: float | None
    auc: float | None
    labelled: int
    proposed_by: dict[str, float]


@printed_by("round show")
class RoundShowCounts(EnvironmentCounts):
    """The rounds of an environment."""

    rounds: Annotated[
        list[RoundFigures],
        "oldest first: strategy, trained (annotators that learnt in it), state (open, closed, rolled_back), "
        "budget_cents, asked (pairs it chose), answered, paid_cents and promised_cents of its HITs and of those it "
        "asked again, positives among its answers (of doubts those that were none before), those beyond_originals, "
        "positives per_dollar paid, the audit's bounds of recall and precision when it was closed, auc of the fusion "
        "before it, pairs labelled by machine, and by annotator the share of the positives that it proposed",
    ]


def show(settings: Settings, environment: Environment | None = None) -> StageResult:
    """All rounds of an environment.

    Raises:
        RoundError: none was opened.
    """
    with open_context(settings, environment, read_only=True) as context:
        rows = round_store.rounds(context.session, context.environment)
        if not rows:
            raise RoundError(f"no round was opened on {context.environment}; open one with `mitl round next`")
        figures = [figures_of(context, row) for row in rows]
    counts: RoundShowCounts = {"environment": context.environment.value, "rounds": figures}
    shares = [
        (of_round["round"], name, percent(share, 0))
        for of_round in figures
        for name, share in of_round["proposed_by"].items()
    ]
    tables = [rounds_table(figures)]
    if shares:
        tables.append(
            Table("positives by who proposed them", ("round", "annotator", "of them"), tuple(shares))
        )
    return StageResult(
        counts=counts,
        tables=tuple(tables),
        lines=() if [row.number for row in rows] == list(range(1, len(rows) + 1)) else (_NUMBERS,),
        next=f"mitl round run --{context.environment.value}{'' if rows[-1].is_open else ' --budget DOLLARS'}",
    )


_NUMBERS = (
    "a number that is missing here stands for what `mitl publish` asks without a round, or is of the other "
    "environment"
)


def figures_of(context: Context, row: RoundRow) -> RoundFigures:
    """A round by the answers that are there now; answers on audits' places are not read."""
    session = context.session
    chosen = distinct(round_store.chosen_pairs(session, row.id)["pair"].to_numpy())
    positive, n_answered = _found(context, row, chosen)
    originals = distinct(columns.original_columns(session, item_store.dataset(session).id))
    paid = round_store.spent(session, context.environment, row.id)
    steps = {step: one.result for step, one in round_store.steps(session, row.id).items()}
    bounds = steps.get(RoundStep.CERTIFY, {})
    return {
        "round": row.number,
        "strategy": str(steps.get(RoundStep.CHOOSE, {}).get("strategy", row.strategy)),
        "trained": list(steps.get(RoundStep.TRAIN, {}).get("trained", {}).values()),
        "state": "open" if row.is_open else "rolled_back" if row.rolled_back_at else "closed",
        "budget_cents": int(row.config["budget_cents"]),
        "asked": len(chosen),
        "answered": n_answered,
        "paid_cents": paid,
        "promised_cents": committed_cents(context, row.id) - paid,
        "positives": len(positive),
        "beyond_originals": int((~contains(originals, positive)).sum()),
        "per_dollar": 100 * len(positive) / paid if paid else None,
        "recall": bounds.get("recall"),
        "precision": bounds.get("precision"),
        "auc": steps.get(RoundStep.FUSE, {}).get("auc"),
        "labelled": int(steps.get(RoundStep.LABEL, {}).get("labelled", 0)),
        "proposed_by": _shares(context, positive),
    }


def _found(context: Context, row: RoundRow, chosen: Ints) -> tuple[Ints, int]:
    """The matches among a round's choices (packed), and how many of these are answered.

    Of doubts, what was asked again and is called a match now, and was none by the answers that came before.
    """
    if row.strategy == DOUBTS:
        again = open_work.answered_again(context.session, context.environment, row.id)
        kept = {pair: again[pair] for pair in unpack_pairs(chosen) if pair in again}
        return pack_pairs([pair for pair, (now, before) in kept.items() if now > 0 >= before]), len(kept)
    answers = answered(context, np.empty(0, np.int64))
    answers = answers[contains(chosen, answers["pair"].to_numpy())]
    return answers.loc[answers["yes"] > answers["no"], "pair"].to_numpy(), len(answers)


def _shares(context: Context, positive: np.ndarray) -> dict[str, float]:
    """Annotator → share of these pairs that it proposed."""
    proposals = columns.proposal_columns(context.session, withdrawn=True)
    here = proposals[contains(distinct(positive), proposals["pair"].to_numpy())]
    counts = here.groupby("annotator", observed=False)["pair"].nunique()
    return {str(name): int(count) / len(positive) for name, count in counts.items()} if len(positive) else {}


_COLUMNS = "round|strategy|learnt|state|asked|answered|paid|matches|new|per dollar|recall ≥|precision ≥|AUC|by machine"


def rounds_table(found: Sequence[RoundFigures]) -> Table:
    """A row for each round."""
    names = tuple(_COLUMNS.split("|"))
    rows = tuple(
        (
            of_round["round"],
            of_round["strategy"],
            ", ".join(of_round["trained"]) or "nobody",
            of_round["state"].replace("_", " "),
            of_round["asked"],
            of_round["answered"],
            format_dollars(of_round["paid_cents"]),
            of_round["positives"],
            of_round["beyond_originals"],
            None if of_round["per_dollar"] is None else f"{of_round['per_dollar']:.1f}",
            *(
                None if bound is None else lower_bound(bound)
                for bound in (of_round["recall"], of_round["precision"])
            ),
            None if of_round["auc"] is None else f"{of_round['auc']:.3f}",
            of_round["labelled"],
        )
        for of_round in found
    )
    return Table("rounds", names, rows)

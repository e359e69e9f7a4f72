"""The report's sections of the loop: what rounds asked and found, and how annotators learnt."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pandas as pd

from mitl.analysis.report.inputs import AnalysisSection, Section
from mitl.analysis.report.loop_plots import RoundFound, TrainingCurve, rounds_svg, training_svg
from mitl.core.formats import points
from mitl.crowd.context import Context
from mitl.db.store import rounds as round_store
from mitl.db.store.rounds import TrainedRow
from mitl.records import Environment, Table
from mitl.stages.analysing.snapshot import ProjectSnapshot
from mitl.stages.rounds.figures import RoundFigures, figures_of, rounds_table

_CURVE = ["step", "loss", "map_at_r"]


def rounds_section(context: Context, project: ProjectSnapshot) -> AnalysisSection | None:
    """What each round asked, cost and found, and who had proposed it; None where no round was opened."""
    rows = round_store.rounds(context.session, context.environment)
    if not rows:
        return None
    found = [figures_of(context, row) for row in rows]
    names = list(dict.fromkeys(name for one in found for name in one["proposed_by"]))
    place = {row.name: at for at, row in enumerate(project.annotators)}  # without those withdrawn
    shares = tuple(
        (name, *(points(_percent(one["proposed_by"].get(name))) for one in found))
        for name in sorted(names, key=lambda name: (place.get(name, len(place)), name))
    )
    who = Table(
        "Of a round's matches, the percentage that an annotator has proposed by now, whoever did first",
        ("annotator", *(f"round {one['round']}" for one in found)),
        shares,
    )
    figures = [
        RoundFound(
            one["round"], one["answered"], one["paid_cents"], one["positives"], one["beyond_originals"]
        )
        for one in found
    ]
    return AnalysisSection(
        Section("rounds", "Rounds", "What each round asked, cost and found", "Pairs"),
        tables=(_told(rounds_table(found), found), *([who] if shares else [])),
        lines=_rounds_lines(context.environment, found),
        drawings={"rounds": lambda: rounds_svg(figures)},
        captions={
            "rounds": "Pairs that people call a match, all rounds so far; the number is the round's. Paid are all HITs "
            "of a round, those of audits and controls among them"
        },
    )


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _told(table: Table, found: Sequence[RoundFigures]) -> Table:
    """With how many learnt; who they are stands beside how they learnt."""
    at = table.columns.index("learnt")
    rows = (
        (*row[:at], len(one["trained"]), *row[at + 1 :]) for row, one in zip(table.rows, found, strict=True)
    )
    return Table(
        "A match is a pair of the round that people call one; new is what the original annotation lacks. Bounds are "
        "the audit's when the round was closed, AUC is that of the probabilities before it",
        table.columns,
        tuple(rows),
    )


def _rounds_lines(environment: Environment, found: Sequence[RoundFigures]) -> tuple[str, ...]:
    back = [str(one["round"]) for one in found if one["state"] == "rolled_back"]
    lines = []
    if environment is Environment.SANDBOX:
        lines.append("paid is practice money of the sandbox")
    if back:
        taken = "rounds" if len(back) > 1 else "round"
        lines.append(f"{taken} {', '.join(back)} taken back: the answers and what they cost stay")
    return tuple(lines)


def training_section(context: Context, project: ProjectSnapshot) -> AnalysisSection | None:
    """How each annotator learnt, by the curve that its training kept; None where none did."""
    rows = round_store.trained(context.session, withdrawn=True)
    if not rows:
        return None
    curves: dict[str, list[TrainingCurve]] = defaultdict(list)
    gone = []
    for row in rows:
        curve = _curve(project, row)
        if curve is None:
            gone.append(row.name)
        else:
            curves[row.base].append(curve)
    lost = f"no curve of {', '.join(gone)} can be read from the project's folder trained" if gone else ""
    columns = (
        "annotator|learnt from|loss|labels|judged pairs|originals|steps|kept step|before|after|ended|state"
    )
    return AnalysisSection(
        Section("training", "Training", "How annotators learnt", "Machines"),
        tables=(
            Table(
                "mAP@R of held-out queries in percent, before the first step and with the weights that were kept",
                tuple(columns.split("|")),
                tuple(_row(context, row) for row in rows),
            ),
        ),
        lines=(lost,) if lost else (),
        drawings={"training": lambda: training_svg(curves)},
        captions={
            "training": "A dot is the look whose weights were kept, a cross where training stopped since nothing was "
            "better. Each training holds out other queries: compare a line with its own start, not with another"
        },
    )


def _curve(project: ProjectSnapshot, row: TrainedRow) -> TrainingCurve | None:
    """As its CSV has it; None where that is gone or is none."""
    try:
        curve = pd.read_csv((project.settings.project / row.file).with_suffix(".csv"))[_CURVE].astype(float)
    except (OSError, ValueError, KeyError):
        return None
    outcome = row.recipe.get("outcome", {})
    return TrainingCurve(row.name, curve, int(outcome.get("best_step", 0)), bool(outcome.get("stopped")))


def _row(context: Context, row: TrainedRow) -> tuple[object, ...]:
    taught, outcome = round_store.taught(context.session, row.name)["n"], row.recipe.get("outcome", {})
    return (
        row.name,
        row.base,
        row.recipe.get("loss"),
        row.recipe.get("labels"),
        int((taught > 0).sum()),
        int((taught == 0).sum()),
        outcome.get("steps"),
        outcome.get("best_step"),
        *(points(_percent(outcome.get(when))) for when in ("before", "after")),
        "early" if outcome.get("stopped") else "at its last step",
        "in use" if row.withdrawn_at is None else "withdrawn",
    )

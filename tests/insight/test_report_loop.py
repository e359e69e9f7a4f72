"""The report of a project with rounds and annotators that learnt in them."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from process_kit import project_settings
from world_kit import SANDBOX, make_world, run_propose, work_until_done

from mitl.analysis.report.inputs import AnalysisSection, ProposalPlaces, ReportInput
from mitl.analysis.report.render import render_report
from mitl.crowd.context import open_context
from mitl.db.store import items as item_store
from mitl.db.store import rounds as round_store
from mitl.db.store.rounds import TrainedRow
from mitl.records.rounds import RoundStep
from mitl.stages.collecting.show import collected
from mitl.stages.reporting.report import ReportSource, collect, report_input
from mitl.stages.reporting.sections import rounds_section, training_section
from mitl.stages.reporting.truth import funnel_counts, proposal_places
from mitl.stages.rounds.figures import show
from mitl.stages.training.gathering import no_lesson, teaching

NOW = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)


def _trained(name: str, round_id: int, *, stopped: bool, withdrawn: bool) -> TrainedRow:
    outcome = {"steps": 9, "best_step": 5, "before": 0.25, "after": 0.5, "stopped": stopped}
    recipe = {"loss": "bcls", "labels": "graded", "outcome": outcome}
    gone = NOW if withdrawn else None
    return TrainedRow(
        0, name, round_id, "near", "0" * 64, f"trained/{name}.safetensors", "0" * 64, recipe, NOW, gone
    )


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rounds of answered pairs, the second taken back, with an annotator that learnt in each."""
    folder = tmp_path_factory.mktemp("loop")
    settings = make_world(folder, n_images=14)
    run_propose(settings, image_queries=5, caption_queries=10)
    work_until_done(settings)
    with open_context(settings, SANDBOX) as context:
        session = context.session
        dataset = item_store.dataset(session).id
        lesson = teaching(context, no_lesson(context), collected(context))
        judged = lesson[lesson["n"] > 0]["pair"].to_numpy()
        half = len(judged) // 2
        for name, pairs in (("near-r1", judged[:half]), ("near-r2", judged[half:])):
            config = {"budget_cents": 500}
            row = round_store.add_round(session, dataset, SANDBOX, "expected", config, NOW)
            chosen = {"pair": pairs, "place": range(1, len(pairs) + 1), "score": 0.5, "strategy": "expected"}
            round_store.choose_pairs(session, row.id, pd.DataFrame(chosen))
            round_store.begin_step(session, row.id, RoundStep.CERTIFY, NOW)
            round_store.end_step(
                session, row.id, RoundStep.CERTIFY, {"recall": 0.6189, "precision": None}, NOW
            )
            round_store.close_round(session, row.id, NOW)
            first = name.endswith("1")
            round_store.add_trained(
                session, _trained(name, row.id, stopped=first, withdrawn=not first), lesson
            )
        round_store.roll_back(session, row.id, NOW)
        session.commit()
    trained = folder / "trained"
    trained.mkdir()
    (trained / "near-r1.csv").write_text(
        "step,loss,rate,i2t_map_at_r,t2i_map_at_r,map_at_r\n0,nan,0,0.2,0.3,0.25\n5,0.4,0.1,0.5,0.5,0.5\n"
        "9,0.3,0.1,0.4,0.4,0.4\n"
    )
    return folder


@pytest.fixture(scope="module")
def source(project: Path) -> ReportSource:
    """What its report reads."""
    return collect(project_settings(project))


@pytest.fixture(scope="module")
def told(source: ReportSource) -> dict[str, AnalysisSection]:
    """The sections of its report."""
    return {made.section.id: made for made in report_input(source).analyses}


def page_of(section: AnalysisSection) -> str:
    """A report with this section and nothing else."""
    return render_report(ReportInput("p", "scenes", SANDBOX, 14, 70, 5, 10, analyses=(section,)))


def test_rounds_are_shown_as_the_command_tells_them(project, told):
    """Asked, paid, matches and bounds of each; a bound is rounded down; one taken back is said to be."""
    known = show(project_settings(project), SANDBOX).counts["rounds"]

    table, who = told["rounds"].tables
    at = {name: table.columns.index(name) for name in table.columns}
    for row, one in zip(table.rows, known, strict=True):
        shown = [row[at[name]] for name in ("round", "strategy", "asked", "answered", "matches", "new")]
        names = ("round", "strategy", "asked", "answered", "positives", "beyond_originals")
        assert shown == [one[name] for name in names]
        assert row[at["recall ≥"]] == "0.618"
        assert row[at["precision ≥"]] is None
    assert sum(one["positives"] for one in known) > 0
    assert [row[0] for row in who.rows] == ["near", "far"]
    assert any(f"round {known[-1]['round']} taken back" in line for line in told["rounds"].lines)
    page = page_of(told["rounds"])
    drawn = page[page.index('id="rounds"') :]
    assert f"{sum(one['positives'] for one in known)} of {sum(one['asked'] for one in known)}" in drawn


def test_trainings_are_shown_with_their_curves_and_a_lost_curve_is_told(told):
    """The row of each, in use or withdrawn; only what has a curve is drawn, and what has none is named."""
    (table,) = told["training"].tables
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert [(row["annotator"], row["ended"], row["state"]) for row in rows] == [
        ("near-r1", "early", "in use"),
        ("near-r2", "at its last step", "withdrawn"),
    ]
    assert {(row["kept step"], row["before"], row["after"]) for row in rows} == {(5, "25.0", "50.0")}
    assert all(row["judged pairs"] > 0 and row["originals"] > 0 for row in rows)
    assert told["training"].lines == ("no curve of near-r2 can be read from the project's folder trained",)
    assert "Loss and held-out mAP@R by step of near-r1; see the table" in page_of(told["training"])


@pytest.mark.parametrize("content", ["", "step,loss\n1,2\n", "step,loss,map_at_r\n1,x,y\n", "\0\n"])
def test_a_damaged_curve_is_a_lost_one(project, source, content):
    """The table stands; nothing is drawn of it."""
    path = project / "trained" / "near-r2.csv"
    path.write_text(content)

    try:
        with open_context(project_settings(project), SANDBOX) as context:
            section = training_section(context, source.project)
    finally:
        path.unlink()

    assert section is not None and "near-r2" in section.lines[0]


def test_without_rounds_and_trainings_there_are_no_such_sections(tmp_path):
    """A project that never opened one is not told what it lacks."""
    settings = make_world(tmp_path, n_images=14)
    source = collect(settings)

    with open_context(settings, SANDBOX) as context:
        assert rounds_section(context, source.project) is None
        assert training_section(context, source.project) is None
    assert not {"rounds", "training"} & {one.section.id for one in source.sections}


def test_the_funnel_holds_no_pairs_that_withdrawn_annotators_alone_proposed(tmp_path: Path) -> None:
    """Nobody will be asked about them."""
    settings = make_world(tmp_path / "p", n_images=14)
    run_propose(settings, image_queries=5, caption_queries=10)
    project = replace(collect(settings).project, withdrawn=frozenset({"far"}))

    left = project.proposals.loc[project.proposals["annotator"] == "near", "pair"]

    assert funnel_counts(project).distinct == left.nunique() < project.proposals["pair"].nunique()
    assert proposal_places(project) == ProposalPlaces(ranked=15 * 10, proposed=len(left))

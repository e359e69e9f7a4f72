"""``mitl plan`` on a small generated world: what it rests on, says, prices, draws and refuses."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import once_kit
import pandas as pd
import pytest
from cli_kit import fails, ok
from process_kit import project_settings
from sqlalchemy import text
from world_kit import SANDBOX, make_world, run_propose, run_publish, work_until_done

from mitl.analysis.report.inputs import ReportInput
from mitl.analysis.report.render import render_report
from mitl.crowd.context import open_context
from mitl.db.store import audits, open_work
from mitl.db.store import items as item_store
from mitl.db.store import rounds as round_store
from mitl.hits.packing import hits_needed
from mitl.records import AuditPurpose
from mitl.stages.analysing.snapshot import read_project
from mitl.stages.auditing.drawing import AuditRequest, draw_audit
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.simulate import simulate
from mitl.stages.planning.options import candidates, sample
from mitl.stages.proposing.propose import ProposeRequest, QueryChoice, propose
from mitl.stages.reporting.report import collect, report_input
from mitl.stages.reviewing.review import settle


@pytest.fixture(scope="module")
def piloted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A third of the candidates answered at random; nothing in the tests changes it."""
    folder = tmp_path_factory.mktemp("piloted")
    settings = make_world(folder, n_images=60)
    run_propose(settings, image_queries=30, caption_queries=60)
    run_publish(settings, pilot=10)
    simulate(settings, SANDBOX)
    harvest(settings, SANDBOX)
    return folder


@pytest.fixture(scope="module")
def said(piloted: Path) -> dict:
    return ok("plan", "--project", piloted, "--json").json["counts"]


def test_it_rests_on_a_random_pilot_and_says_so(piloted: Path, said: dict) -> None:
    assert said["random"] is True
    assert said["scored_by"] == "annotators"
    assert said["answered"] + said["open"] == said["candidates"]
    out = ok("plan", "--project", piloted).out
    assert f"{said['answered']:,} answered candidates, drawn at random" in out


def test_a_pilot_is_no_random_sample_of_candidates_that_came_later(piloted: Path, tmp_path: Path) -> None:
    """Where these are not like those that it was drawn from."""
    settings = project_settings(Path(shutil.copytree(piloted, tmp_path / "p")))
    queries = QueryChoice(60), QueryChoice(200)
    propose(settings, ProposeRequest(("near", "far"), 10, 10, *queries))

    planned = ok("plan", "--project", settings.project)

    assert ok("plan", "--project", settings.project, "--json").json["counts"]["random"] is False
    assert "by score they are not like the others" in planned.out
    assert planned.out.splitlines()[-1].endswith("and plan again")


def test_fused_scores_that_lack_a_candidate_are_not_planned_by(piloted: Path) -> None:
    """As those of candidates that came after `mitl fuse`. Answers that nothing drew stand for all candidates."""
    settings = project_settings(piloted)
    with open_context(settings, SANDBOX, read_only=True) as context:
        project = read_project(context.session, settings, SANDBOX)
    found = candidates(project)
    chances = np.linspace(0, 1, len(found.pairs))
    fused = pd.DataFrame({"pair": found.pairs, "probability": chances})

    assert sample(project, found, fused, 0).scored_by == "fusion"
    assert sample(project, found, fused[:-1], 0).scored_by == "annotators"
    chosen = replace(found, drawn=np.zeros(len(found.answered), np.bool_))
    assert sample(project, chosen, fused, 0).pilot.weights.sum() == pytest.approx(len(found.pairs))


def test_everything_is_priced_as_publishing_would_be(piloted: Path, said: dict) -> None:
    """What asks all that is open costs what publishing would, at the same terms, and what is lost on the way."""
    bill = ok(
        "publish", "--project", piloted, "--sandbox", "--dry-run", "--no-wait-for-pilot", "--json"
    ).json["counts"]
    everything = next(plan for plan in said["plans"] if plan["plan"] == "exhaustive")
    each = bill["total_cents"] / bill["hits"]

    with open_context(project_settings(piloted), SANDBOX, read_only=True) as context:
        lost = open_work.lost_pages(context.session, SANDBOX)
    assert everything["hits"] == lost.hits(hits_needed(said["open"])) >= hits_needed(said["open"])
    assert f"; {lost.words}, and prices include it" in ok("plan", "--project", piloted).out
    assert everything["cents"] == everything["hits"] * each
    assert everything["recall"]["value"] == 1.0


def test_numbers_lie_in_their_intervals_and_tolerance_saves(said: dict) -> None:
    for need in said["needs"]:
        assert need["answers"]["low"] <= need["answers"]["value"] <= need["answers"]["high"]
        assert 0 <= need["share_by_auc"] <= 1
    strict, loose = said["needs"][0], said["needs"][2]
    assert (strict["lost"], loose["lost"]) == (0.01, 0.1)
    assert loose["answers"]["value"] <= strict["answers"]["value"]
    assert set(said["curves"]) == {"score_only", "two_thresholds"}
    for curve in said["curves"].values():
        recalls = [point["recall"]["value"] for point in curve]
        assert recalls == sorted(recalls)
    assert any("of the open pairs" in line for line in said["not_reachable"])


def test_a_budget_says_what_it_reaches(piloted: Path) -> None:
    little = ok("plan", "--project", piloted, "--budget", "3", "--target-recall", "0.99", "--json").json[
        "counts"
    ]
    reached = little["within_budget"]["score_only"]
    assert reached["cents"] <= 300
    assert reached["recall"]["value"] < 0.99
    just_above = f"{reached['recall']['value'] + 1e-4:.6f}"
    out = ok("plan", "--project", piloted, "--budget", "3", "--target-recall", just_above).out
    floor = int(1000 * reached["recall"]["value"]) / 10
    assert f"people alone, by score, recall {floor:.1f} % (" in out
    assert f"{100 * float(just_above):g} % is not reachable" in out


def test_without_machine_labels_there_is_only_people(piloted: Path) -> None:
    counts = ok("plan", "--project", piloted, "--max-error", "0", "--json").json["counts"]
    assert [plan["plan"] for plan in counts["plans"]] == ["exhaustive", "score_only"]
    assert set(counts["curves"]) == {"score_only"}


def test_a_sample_that_is_answered_is_not_drawn_again_and_machine_labels_are_told(
    piloted: Path, tmp_path: Path
) -> None:
    """Another draw would be refused; and nobody is asked about what a machine has labelled."""
    settings = project_settings(Path(shutil.copytree(piloted, tmp_path / "p")))
    asked = ("plan", "--project", settings.project, "--max-error", "0.4")
    settle(settings, SANDBOX)
    before = ok(*asked).out
    draw_audit(settings, AuditRequest(AuditPurpose.LABELS, 36), SANDBOX)
    run_publish(settings, drawn=True)
    simulate(settings, SANDBOX)
    harvest(settings, SANDBOX)
    with open_context(settings, SANDBOX) as context:
        (audit,) = audits.audits(context.session, SANDBOX)
        project = read_project(context.session, settings, SANDBOX)
        open_pairs = np.setdiff1d(project.proposals["pair"], project.answers["pair"])[:5]
        labels = {"pair": open_pairs, "label": 0, "probability": 0.9, "stratum": "all"}
        context.session.rollback()
        audits.add_labelling(context.session, SANDBOX, audit.id, "{}", pd.DataFrame(labels), context.now())
        context.session.commit()

    after = ok(*asked).out
    asks = ok("publish", "--project", settings.project, "--sandbox", "--dry-run", "--json").json["counts"]

    assert "mitl audit draw --for labels --size" in before.splitlines()[-1]
    assert "mitl label --error 0.4 --siding 0.1;" in before.splitlines()[-1]
    assert "next" in after.splitlines()[-1] and "mitl audit draw" not in after.splitlines()[-1]
    assert f"a machine labelled 5 of the {asks['pairs'] + 5:,} open candidates" in after
    assert f"asks only about the other {asks['pairs']:,};" in after
    audited = ok("audit", "plan", "--project", settings.project, "--sandbox").out
    assert (
        "ask these (5 candidates with a machine label only after `mitl label --withdraw`), and plan"
        in audited
    )


def test_the_drawing_is_the_same_twice_and_in_the_report(piloted: Path, tmp_path: Path) -> None:
    file = tmp_path / "frontier.svg"
    first = ok("plan", "--project", piloted, "--plot", file, "--json").json
    content = file.read_bytes()
    once_kit.drawn.clear()
    again = ok("plan", "--project", piloted, "--plot", file, "--json").json
    told = report_input(collect(project_settings(piloted))).analyses
    section = tuple(made for made in told if made.section.id == "plan")
    html = render_report(ReportInput("p", "scenes", SANDBOX, 60, 300, 30, 60, analyses=section))

    assert first == again
    assert file.read_bytes() == content
    ElementTree.fromstring(content)
    assert 'id="plan"' in html
    assert "What further answers would bring" in html
    assert "of the open pairs" in html


def test_answers_from_the_top_of_a_list_are_weighted_or_refused(tmp_path: Path) -> None:
    """`--limit` asks the first pairs in order, which no chance chose; without a pilot it says so."""
    settings = make_world(tmp_path, n_images=60)
    run_propose(settings, image_queries=10, caption_queries=20)
    run_publish(settings, limit=90)
    simulate(settings, SANDBOX)
    harvest(settings, SANDBOX)

    counts = ok("plan", "--project", tmp_path, "--json").json["counts"]
    out = ok("plan", "--project", tmp_path).out
    assert counts["random"] is False
    assert "of which 0 were drawn at random" in out
    assert "mitl publish --sandbox --pilot 10" in out
    with open_context(settings, SANDBOX) as context:
        number = item_store.dataset(context.session).id
        round_store.add_round(context.session, number, SANDBOX, "random", {}, context.now())
        context.session.commit()
    # While a round is open, `mitl publish` refuses.
    assert ok("plan", "--project", tmp_path).out.endswith("mitl round run --sandbox\n")


def test_what_cannot_be_planned_is_one_line(piloted: Path, tmp_path: Path) -> None:
    settings = make_world(tmp_path, n_images=14)
    assert "no candidate pair to plan for" in fails(1, "plan", "--project", tmp_path)
    run_propose(settings, image_queries=5, caption_queries=15)
    pilot = "ask some at random with `mitl publish --sandbox --pilot 10`, and run `mitl harvest`"
    assert f"nobody has answered a candidate yet; {pilot}" in fails(1, "plan", "--project", tmp_path)
    with open_context(settings, SANDBOX) as context:
        number = item_store.dataset(context.session).id
        round_ = round_store.add_round(context.session, number, SANDBOX, "random", {}, context.now())
        context.session.commit()
    first = f"end the round with `mitl round run --sandbox`, then {pilot}"
    assert f"yet; {first}" in fails(1, "plan", "--project", tmp_path)
    with open_context(settings, SANDBOX) as context:
        round_store.close_round(context.session, round_.id, context.now())
        context.session.commit()
    run_publish(settings, pilot=2)
    assert "no candidate has a usable answer yet; run `mitl harvest`" in fails(
        1, "plan", "--project", tmp_path
    )
    lost = project_settings(Path(shutil.copytree(tmp_path, tmp_path / "lost")))
    simulate(lost, SANDBOX, population="random")
    harvest(lost, SANDBOX)
    settle(lost, SANDBOX)
    with open_context(lost, SANDBOX) as context:  # whatever those workers' luck was
        context.session.execute(text("UPDATE judgement SET usable = 0"))
        context.session.commit()
    assert "no candidate has a usable answer yet; `mitl status` says what comes first" in fails(
        1, "plan", "--project", lost.project
    )
    simulate(settings, SANDBOX, max_hits=1)
    harvest(settings, SANDBOX)
    few = "a plan needs 60 answered candidates, but there are 18"
    waits = "pilot b1 is out: run `mitl harvest` once it is answered"
    assert f"{few}; {waits}" in fails(1, "plan", "--project", tmp_path)
    simulate(settings, SANDBOX, population="random")
    harvest(settings, SANDBOX)
    decide = "pilot b1 is out: run `mitl review`"
    assert fails(1, "plan", "--project", tmp_path).endswith(f"; {decide}")
    assert "--target-recall is 1.5" in fails(2, "plan", "--project", piloted, "--target-recall", "1.5")
    assert "--max-error is nan" in fails(2, "plan", "--project", piloted, "--max-error", "nan")
    assert "none-such" in fails(1, "plan", "--project", piloted, "--template", "none-such")


def test_answers_beside_the_candidates_are_none_on_them(piloted: Path, tmp_path: Path) -> None:
    """As those on deeper ranks than were proposed; a plan says so, whether or not something is fused."""
    beside = project_settings(Path(shutil.copytree(piloted, tmp_path / "p")))
    asked = "pair_id IN (SELECT pair_id FROM hit_item WHERE role = 'candidate')"
    with open_context(beside, SANDBOX) as context:
        context.session.execute(text(f"DELETE FROM proposal WHERE {asked}"))
        context.session.commit()

    assert "no answer is on a candidate" in fails(1, "plan", "--project", beside.project)


def test_with_nothing_open_there_is_nothing_to_plan(tmp_path: Path) -> None:
    settings = make_world(tmp_path, n_images=14)
    run_propose(settings, image_queries=3, caption_queries=5)
    work_until_done(settings)

    result = ok("plan", "--project", tmp_path, "--json").json
    assert result["status"] == "nothing_to_do"
    assert result["counts"]["open"] == 0
    shutil.rmtree(tmp_path)

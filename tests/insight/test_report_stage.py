"""The report of a real project: its people under pseudonyms, its disagreements, its file, its way to rebuild."""

from __future__ import annotations

import datetime as dt
import json
import re
import resource
import shlex
import shutil
import signal
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from harvest_kit import in_pipeline
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from process_kit import project_settings
from record_kit import answers_by_pair
from report_kit import drawn_once  # noqa: F401 - pytest finds it here
from world_kit import SANDBOX, make_world, run_build, run_propose, run_publish

from mitl.analysis.report.inputs import DisputeKind, Found, Frame
from mitl.analysis.report.machine_plots import bias_svg, ranks
from mitl.analysis.report.render import render_report
from mitl.core.arrays import unpack_pairs
from mitl.core.pricing import format_dollars
from mitl.db.session import open_database
from mitl.db.store import answers, judgements
from mitl.db.store.items import DatasetRow
from mitl.db.store.ledger import SettledWork
from mitl.errors import RetrievalError
from mitl.positives.pair_answers import majority_answers
from mitl.records import Concept, Direction, Environment, JudgementSource, Label, Shortcoming
from mitl.records.forms import TEXTS
from mitl.records.questions import CONCEPT, SHORTCOMING
from mitl.stages.analysing.multiplicity import multiplicities
from mitl.stages.analysing.snapshot import ProjectSnapshot
from mitl.stages.evaluating.figures import SCORES_FILE
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.simulate import simulate
from mitl.stages.reporting import truth
from mitl.stages.reporting.gallery import SHOWN, evenly, found_pairs
from mitl.stages.reporting.report import collect, evaluation, report, report_input
from mitl.stages.reporting.sections import money_stats
from mitl.stages.reviewing.evidence import usual_seconds

pytestmark = pytest.mark.usefixtures("drawn_once")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A worked-on sandbox project with a release, most of its pairs asked twice of hasty workers."""
    folder = tmp_path_factory.mktemp("report")
    settings = make_world(folder, n_images=14)
    run_propose(settings, image_queries=5, caption_queries=15)
    run_publish(settings, overlap=0.8)
    simulate(settings, SANDBOX, population="hasty", hits_per_worker=2)
    harvest(settings, SANDBOX)
    run_build(settings)
    return folder


@pytest.fixture(scope="module")
def data(project: Path):
    """What the report of that project shows."""
    settings = project_settings(project)
    return report_input(collect(settings))


def test_a_batch_and_its_wording_show_one_wage(project, data):
    """Both are the median over the same paid HITs, so no cent apart."""
    (batch,), (wording,) = data.batches, data.money.wages

    assert wording.median_cents and batch.wages == replace(wording, n_under=0)
    assert render_report(data).count(format_dollars(wording.median_cents)) >= 2


def test_a_positive_costs_what_hits_of_pairs_cost(project, data):
    """Other campaigns are no part of it, and beside answers of past work it is not known."""
    known = collect(project_settings(project)).project
    batch, work = known.batches[0], known.settled[0]
    rated = replace(batch, name="rated", kind="similarity")
    past = replace(batch, name="past", source=JudgementSource.IMPORT)

    with_others = replace(
        known, batches=(*known.batches, rated), settled=(*known.settled, replace(work, batch="rated"))
    )

    assert data.money.cents_a_positive == data.money.paid_cents / data.funnel.positive
    assert money_stats(with_others).cents_a_positive == data.money.cents_a_positive
    assert money_stats(replace(known, batches=(*known.batches, past))).cents_a_positive is None


def test_progress_counts_every_part_of_a_report(project, tmp_path):
    """One bar that ends at its end, also where an analysis has too little to say."""
    told = []

    @contextmanager
    def progress(label, total):
        told.append([label, total])
        yield lambda units: told.append(units)

    report(project_settings(project), tmp_path / "report.html", progress=progress)

    (label, total), *units = told
    assert (label, sum(units)) == ("report", total) and len(units) == total


@pytest.mark.slow
def test_no_id_of_a_worker_an_assignment_or_a_hit_is_in_the_file(project, data):
    """Workers stand under pseudonyms; nothing else of the crowd server's leaves the project."""
    settings = project_settings(project)
    html = render_report(data)
    with open_database(settings.db_url, read_only=True) as session:
        rows = answers.assignments(session, SANDBOX)

    assert rows
    for row in rows:
        for private in (row.worker, row.mturk_assignment_id, row.mturk_hit_id, settings.project_id):
            assert private
            assert private not in html


@pytest.mark.slow
def test_answers_as_columns_are_the_answers_as_records(project):
    """The report reads them as columns; label, number and share of every pair are those of the records."""
    settings = project_settings(project)
    known = collect(settings).project
    with open_database(settings.db_url, read_only=True) as session:
        records = [row.record for row in judgements.judgements(session, SANDBOX)]

    assert majority_answers(known.judgements) == answers_by_pair(records)


@pytest.mark.slow
def test_every_disagreement_is_one(data):
    """Workers on both sides; refused originals; refused by people, proposed by all; and against the truth."""
    found = {dispute.kind: dispute for dispute in data.disputes}

    assert found[DisputeKind.WORKERS].total > 0
    assert DisputeKind.CXC not in found  # nobody rated this world
    for pair in found[DisputeKind.WORKERS].shown:
        assert {label.is_positive for label in pair.answers} == {True, False}
    for pair in found[DisputeKind.ORIGINAL].shown:
        assert pair.original
        assert not pair.label.is_positive
    for pair in found[DisputeKind.MACHINES].shown:
        assert {name for name, _ in pair.found_by} == {"near", "far"}
        assert not pair.label.is_positive
    for pair in found[DisputeKind.TRUTH].shown:
        assert pair.truth is not None
        assert pair.truth.is_positive != pair.label.is_positive
    assert DisputeKind.WRONG not in found  # nobody was asked why
    for dispute in data.disputes:
        assert len(dispute.shown) == min(6, dispute.total) <= dispute.of


@pytest.fixture(scope="module")
def snapshot(project: Path) -> ProjectSnapshot:
    """What that project's database holds."""
    return collect(project_settings(project)).project


def test_what_nobody_will_be_asked_leaves_no_query_unfinished(snapshot):
    """As the pairs that a withdrawn annotator alone proposed, none of them answered."""
    asked = snapshot.proposals.loc[snapshot.proposals["annotator"] == "near", "pair"]
    both = replace(snapshot, judgements=snapshot.judgements[snapshot.judgements["pair"].isin(asked)])

    for project, complete in ((both, False), (replace(both, withdrawn=frozenset({"far"})), True)):
        rows = multiplicities(project)
        assert [row.answered == row.candidates for row in rows] == [complete] * 2


@pytest.mark.slow
@given(random=st.randoms(use_true_random=False), sure=st.sampled_from([0.0, 0.3, 1.0]))
@hypothesis_settings(max_examples=12, deadline=None)
def test_found_matches_are_chosen_by_one_rule_whatever_people_answer(snapshot, random, sure):
    """Six at most, no image or caption twice, none original or refused, in whatever order the answers came."""
    said = snapshot.judgements
    labels = [0 if random.random() < sure else random.randrange(len(Label)) for _ in range(len(said))]
    answered = replace(snapshot, judgements=said.assign(label=np.array(labels, np.int8)))
    shuffled = answered.judgements.sample(frac=1, random_state=random.randrange(2**32))
    matches = {
        (snapshot.image_ids[pair.image_id], snapshot.caption_ids[pair.caption_id]): (
            answered.given(pair).count(Label.YES) / len(answered.given(pair)),
            answered.people(pair),
        )
        for pair, answer in majority_answers(answered.judgements).items()
        if answer.label.is_positive and not answered.is_original(pair)
    }

    found = found_pairs(answered)

    shown = [(one.pair.image_id, one.pair.caption_id) for one in found.shown]
    assert found == found_pairs(replace(snapshot, judgements=shuffled))
    assert found.total == len(matches)
    assert set(shown) <= set(matches)
    assert len(shown) == len({image for image, _ in shown}) == len({caption for _, caption in shown}) <= SHOWN
    assert [matches[ids] for ids in shown] == sorted((matches[ids] for ids in shown), reverse=True)
    assert not shown or matches[shown[0]] == max(matches.values())
    for one in found.shown:
        assert one.own_image != one.pair.image_id
        assert one.pair.text not in one.own_captions


def test_what_was_ticked_is_told_in_one_order_whoever_answered_first(snapshot):
    """That of the page, so that a report does not change with the harvest that brought an answer."""
    twice = snapshot.judgements[snapshot.judgements["pair"] == snapshot.counting["pair"][0]].iloc[[0, 0]]
    first, last = ({SHORTCOMING.column: masks, CONCEPT.column: masks} for masks in ([1, 6], [6, 1]))
    (pair,) = unpack_pairs(twice["pair"].to_numpy()[:1])

    told = [replace(snapshot, judgements=twice.assign(**ticks)).reasons(pair) for ticks in (first, last)]

    assert told[0] == told[1] == (tuple(Shortcoming)[:3], tuple(Concept)[:3])


def test_nobody_asked_has_found_nothing(snapshot):
    """Without an answer nothing is merged or chosen."""
    assert found_pairs(replace(snapshot, judgements=snapshot.judgements[:0])) == Found()


@pytest.mark.slow
def test_the_gallery_goes_from_most_to_least_and_counts_what_it_leaves_out(data):
    """Per direction the gains fall; items of a frame are at most as many as its total."""
    for direction in {query.direction for query in data.examples}:
        gains = [query.gained for query in data.examples if query.direction is direction]
        assert gains == sorted(gains, reverse=True)
        assert gains[-1] > 0
    for query in data.examples:
        for frame, total in query.totals:
            shown = [item for item in query.items if item.frame is frame]
            assert 0 < len(shown) <= total
            if frame is Frame.REFUSED:
                assert all(item.label in (Label.WEAK_NO, Label.NO) for item in shown)


def test_the_matches_that_must_be_missing_are_those_of_the_analysis(snapshot, data):
    """Chao's bound of each direction that annotators searched, from the matches among what they proposed."""
    assert set(data.completeness) == set(Direction)
    matches = {
        pair for pair, answer in majority_answers(snapshot.judgements).items() if answer.label.is_positive
    }
    for way, direction in enumerate(Direction):
        proposed = unpack_pairs(
            snapshot.proposals.loc[snapshot.proposals["direction"] == way, "pair"].to_numpy()
        )
        bound = data.completeness[direction]
        assert bound.found == len(matches.intersection(proposed)) and bound.total >= bound.found


@pytest.mark.slow
def test_probabilities_are_held_against_the_truth_of_a_generated_world(data):
    """Every judged pair stands in one of the tenths, each with an interval around its share."""
    (found,) = data.reliability

    assert found.against == "the known truth"
    assert found.curve.cases.sum() == found.curve.n == data.funnel.usable
    ends = zip(found.curve.observed, found.intervals, strict=True)
    assert all(low <= observed <= high for observed, (low, high) in ends)


@pytest.mark.slow
def test_a_fitted_model_is_held_against_controls_too(project, tmp_path, monkeypatch):
    """With an ordinal release, controls that the fit did not know are a second yardstick; of many, one fold."""
    from mitl.positives.merging import MergeRules
    from mitl.stages.releasing.build_dataset import ReleaseOptions, build_dataset

    folder = tmp_path / "p"
    shutil.copytree(project, folder)
    settings = project_settings(folder)
    build_dataset(
        settings, folder / "ordinal", SANDBOX, options=ReleaseOptions(rules=MergeRules(aggregator="ordinal"))
    )

    known = collect(settings).project
    true = truth.packed_truth(known)
    found = truth.reliability(known, true)

    assert [one.against for one in found] == ["the known truth", "controls kept from the fit"]
    assert {one.aggregator for one in found} == {"ordinal"}
    every = found[1].curve.n
    monkeypatch.setattr(truth, "MANY_ANSWERS", 0)
    assert truth.reliability(known, true)[1].curve.n == every // truth.FOLDS


@pytest.mark.slow
def test_the_way_to_rebuild_is_made_of_commands_that_can_be_typed(data):
    """Each step parses as a command line of mitl; the release's step carries the hash of its manifest."""
    import click

    from mitl.cli import group

    steps = data.provenance.steps
    names = [shlex.split(step.command)[1] for step in steps]
    assert names == ["init", "propose", "publish", "harvest", "build-dataset", "report"]
    for step in steps:
        mitl, name, *words = shlex.split(step.command)
        assert mitl == "mitl"
        command = group.get_command(click.Context(group), name)
        assert command is not None
        with command.make_context(name, list(words), resilient_parsing=False) as context:
            assert context.params
    hashes = dict(steps[4].hashes)
    assert re.fullmatch(r"[0-9a-f]{64}", hashes["manifest.json"])


def test_directions_and_the_world_are_named_as_the_data_set_names_them(project, monkeypatch):
    """Of documents and queries: sections and drawings of analyses, and the command that makes the world again."""
    monkeypatch.setattr(DatasetRow, "pair_sides", TEXTS.sides)

    data = report_input(collect(project_settings(project)))

    assert data.provenance.steps[0].command.startswith(
        "mitl init --dataset scenes --kind texts --n-images 14"
    )
    told = [
        word
        for section in data.analyses
        for word in (
            *section.lines,
            *(cell for table in section.tables for row in table.rows for cell in row),
        )
    ]
    drawn = [bias_svg(data.machines.bias, data.form)]
    drawn += [draw() for section in data.analyses for draw in section.drawings.values()]
    words = re.findall(r"\b(?:i2t|t2i|d2q|q2d)\b", " ".join(map(str, [*told, *drawn])))
    assert set(words) == {"d2q", "q2d"}


@pytest.mark.slow
def test_each_environment_has_a_file_of_its_own(project, tmp_path):
    """The one posted to first keeps report.html, whichever of the two it is; the other does not write over it."""
    folder = tmp_path / "p"
    shutil.copytree(project, folder)
    settings = project_settings(folder)

    first = report(settings).paths["report"]
    other = report(settings, environment=Environment.LIVE).paths["report"]

    assert first == str(folder / "report.html")
    assert other == str(folder / "report-live.html")
    assert ">sandbox</span>" in Path(first).read_text(encoding="utf-8")
    assert "work in the other environment too" in Path(other).read_text(encoding="utf-8")
    assert "work in the other environment too" not in Path(first).read_text(encoding="utf-8")
    in_pipeline(settings, *(f"UPDATE {table} SET environment = 'live'" for table in ("batch", "worker")))
    assert report(settings).paths["report"] == str(folder / "report.html")
    assert report(settings, environment=SANDBOX).paths["report"] == str(folder / "report-sandbox.html")


@pytest.mark.parametrize("form", ["plain", "with intervals"])
def test_scores_are_read_with_and_without_intervals(tmp_path, form):
    """Values alone, as earlier versions wrote them, or each with its ends; other metrics and directions stay out."""
    settings = replace(project_settings_of(tmp_path))
    value: object = 0.25 if form == "plain" else {"value": 0.25, "low": 0.2, "high": 0.31}
    by_way = {"i2t": {"R@1": value, "PMRP": value}, "both": {"RSUM": 300.0}, "taught_by": 54}
    path = settings.runs / SCORES_FILE
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"official-eccv": {"clip": by_way}, "release": {"clip": by_way}}))

    score, other = evaluation(settings)

    assert (score.annotator, score.positives, score.metric, score.value) == ("clip", "release", "R@1", 0.25)
    assert score.taught_by == 54
    assert other.positives == "official-eccv"
    assert (score.low, score.high) == ((None, None) if form == "plain" else (0.2, 0.31))


def test_means_of_the_same_numbers_share_a_rank(tmp_path):
    """Summed in another order they differ by the last bit, and no annotator ranks better for that."""
    settings = project_settings_of(tmp_path)
    mean, other = (0.1 + 0.2) + 0.3, 0.1 + (0.2 + 0.3)
    by_name = {name: {"i2t": {"mAP@R": value}} for name, value in (("near", mean), ("far", other))}
    path = settings.runs / SCORES_FILE
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"original": by_name, "release": by_name}))

    assert mean != other
    assert set(ranks(evaluation(settings), Direction.I2T).values()) == {(1, 1)}


def project_settings_of(folder: Path):
    """Settings of a folder that holds nothing."""
    from mitl.settings import load

    return load(folder, environ={})


def test_a_hits_time_is_no_longer_than_it_can_have_been():
    """A claim of an hour between acceptance and submission of ten minutes counts as ten; practice counts as told."""
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    work = [
        SettledWork(
            n,
            f"a{n}",
            f"h{n}",
            "w",
            "b1",
            "t",
            start,
            start + dt.timedelta(minutes=10),
            "Approved",
            ms,
            100,
            0,
            0,
            0,
        )
        for n, ms in enumerate((3_600_000, 3_600_000, 60_000, None))
    ]

    assert usual_seconds(work, Environment.LIVE) == {"w": 600.0}
    assert usual_seconds(work, SANDBOX) == {"w": 3600.0}
    assert usual_seconds(work[3:], Environment.LIVE) == {}


def test_picks_are_spread_from_first_to_last():
    """Six of twenty-one at distances of four; all where there are no more than asked for."""
    assert evenly(range(21), 6) == [0, 4, 8, 12, 16, 20]
    assert evenly([5, 4], 6) == [5, 4]


@pytest.mark.slow
def test_a_disk_that_fills_up_leaves_no_half_of_a_report(project, tmp_path):
    """One line says which file and what to do; nothing hidden stays beside it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    kept = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        with pytest.raises(RetrievalError, match=r"report\.html.*the disk is full.*make room"):
            report(project_settings(project), tmp_path / "out" / "report.html")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, kept)

    assert list((tmp_path / "out").iterdir()) == []

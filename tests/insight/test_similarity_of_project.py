"""A project's own ratings from the crowd to the analysis, the report and the evaluation; its release gives the same."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest
from cli_kit import ok
from harvest_kit import in_pipeline
from similarity_kit import rate, run_rate, sampled
from world_kit import ANNOTATORS, SANDBOX

from mitl.records.similarity import Likeness
from mitl.settings import load
from mitl.stages.harvesting.harvest import harvest


@pytest.fixture(scope="module")
def rated(tmp_path_factory):
    """Sixteen pairs of each task with five ratings each, harvested and released as ``r``."""
    settings = sampled(tmp_path_factory.mktemp("insight") / "p")
    for task in Likeness:
        run_rate(settings, task.value)
    rate(settings)
    harvest(settings, SANDBOX)
    ok("rate", "release", "--project", settings.project, "--sandbox", "--out", settings.project / "r")
    return settings


@pytest.fixture
def project(rated, tmp_path, monkeypatch):
    """A copy of it, entered."""
    shutil.copytree(rated.project, tmp_path / "p")
    monkeypatch.chdir(tmp_path / "p")
    return load(tmp_path / "p", environ={})


def numbers(*words):
    return ok("analyse", "similarity", *words, "--json").json["counts"]["analyses"]["similarity"]


def test_the_analysis_shows_what_people_rated(project):
    """Sixteen pairs a task, seventeen orders of those within a side, as `mitl rate scores` scores them."""
    found = numbers()["scores"]["sandbox"]
    scores = ok("rate", "scores", "--sandbox", "--json").json["counts"]["tasks"]

    for task in Likeness:
        (by_method,) = found[task.value].values()
        assert by_method["unordered"] == 16
        assert by_method["pairs"] == (16 if task is Likeness.SITS else 17)
        assert 0 < by_method["sd"] < 0.2
        assert by_method["mean"] == pytest.approx(scores[task.value]["mean"], abs=0.1)


def test_a_pair_whose_raters_all_skipped_it_is_left_out_and_the_others_keep_their_scores(project):
    """It stands among them in the list of samples."""
    in_pipeline(
        project,
        "UPDATE similarity_answer SET outcome = 'skipped', score = NULL WHERE EXISTS (SELECT 1 FROM similarity_item i "
        "JOIN assignment a ON a.hit_id = i.hit_id WHERE a.id = assignment_id AND i.place = similarity_answer.place "
        "AND i.pair_id = (SELECT min(pair_id) FROM similarity_item WHERE task = 'sis' AND role = 'asked'))",
    )

    found = numbers()["scores"]["sandbox"]
    scores = ok("rate", "scores", "--sandbox", "--json").json["counts"]["tasks"]
    for task, left in ((Likeness.SIS, 15), (Likeness.SITS, 16)):
        (by_method,) = found[task.value].values()
        assert by_method["unordered"] == left
        assert by_method["mean"] == pytest.approx(scores[task.value]["mean"], abs=0.1)


def test_the_release_tells_the_same_as_the_project(project):
    """Scores but for their rounding, single ratings too; beside each other they are two splits."""
    both = numbers("--ratings", "r")

    assert list(both["scores"]) == ["test", "sandbox"]  # only splits of one folder are taken together
    own, released = both["scores"]["sandbox"], both["scores"]["test"]
    for task in Likeness:
        ((method, mine),) = own[task.value].items()
        theirs = released[task.value][method]
        assert (mine["pairs"], mine["unordered"]) == (theirs["pairs"], theirs["unordered"])
        assert mine["mean"] == pytest.approx(theirs["mean"], abs=0.006)
        assert mine["sd"] == pytest.approx(theirs["sd"])
    assert both["positives"]["sandbox"].keys() == both["positives"]["test"].keys()
    assert both["words"]["test"]["pairs"] == both["words"]["sandbox"]["pairs"] == 17


def test_the_report_has_the_section(project):
    """With all four drawings, and nobody's id; what samples the pairs of a phase is a step of the rebuilding."""
    ok("report")

    page = (project.project / "report.html").read_text()
    assert 'id="similarity"' in page
    steps = re.findall(r"mitl (propose --scheme crisscross --phase \d|rate publish)", page)
    propose = "propose --scheme crisscross --phase"
    assert steps[-5:] == [f"{propose} 1", "rate publish", "rate publish", f"{propose} 2", "rate publish"]
    for words in (
        "Scores by how the pairs were sampled",
        "Queries by how many rated positives",
        "over the likeness of their words",
        "How far a pair&#39;s ratings lie apart",
    ):
        assert words in page


def test_models_are_evaluated_on_the_release(project):
    """The project's annotators on all tasks that they can do, a baseline on those of captions."""
    words = ("--cxc", "r", "--samples", "50", "--no-intervals", "--json")
    outcome = ok("evaluate", "--baseline", "bag-of-words", "--annotator", ANNOTATORS[0], *words).json

    found = outcome["counts"]
    near = found["scores"]["cxc"][ANNOTATORS[0]]
    assert {"i2t", "t2i", "t2t"} <= set(near)
    assert set(found["correlations"][ANNOTATORS[0]]) == {"sts", "sis", "sits"}
    assert set(found["correlations"]["bag-of-words"]) == {"sts"}
    assert all(np.isfinite(value) for by_metric in near.values() for value in by_metric.values())

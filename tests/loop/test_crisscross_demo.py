"""The crisscrossed demo on a small world: what it promises of ratings, and that what it leaves can be used."""

from __future__ import annotations

import csv
import json

import pytest

import mitl.stages.crisscross_demo
from mitl.campaign.standing import keep_standings
from mitl.cli import group
from mitl.cli.app import run
from mitl.db.session import open_database
from mitl.db.store import similarity as similarity_store
from mitl.records import Environment
from mitl.records.similarity import METHODS, TASKS, Likeness, SamplingMethod
from mitl.settings import load
from mitl.stages.crisscross_demo import MARK, against_truth, crisscross_demo

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
N_IMAGES = 10
POPULATION = "careful:0.9,one-number:0.1"


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """A demo of ten images that was stopped amid its second phase and went on, and what it said."""
    pytest.importorskip("torch")
    folder, said = tmp_path_factory.mktemp("crisscross") / "demo", []

    def say(line: str) -> None:
        said.append(line)
        if line.startswith("$ mitl rate publish --sandbox --task sits"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        crisscross_demo(folder, n_images=N_IMAGES, population=POPULATION, say=say)
    stopped = len(said)
    result = crisscross_demo(folder, n_images=N_IMAGES, population=POPULATION, say=said.append)
    return folder, result, said, stopped


def test_an_interrupted_demo_goes_on_where_it_was(walked):
    """What was sampled, posted and rated before is not told again: the next step is the one that was to come."""
    _, _, said, stopped = walked

    assert said[stopped].startswith("$ mitl simulate")


def test_both_phases_are_walked_in_their_order(walked):
    """Within sides first, then across; then scores, a release, an evaluation and the report."""
    steps = [line.split("  ")[0].removeprefix("$ mitl ") for line in walked[2] if line.startswith("$")]
    once = list(dict.fromkeys(step.split(" --")[0] if "publish" not in step else step for step in steps))

    assert steps[:4] == [
        "init --dataset scenes",
        "propose --scheme crisscross --phase 1",
        "rate publish --sandbox --task sts",
        "rate publish --sandbox --task sis",
    ]
    assert once.index("rate publish --sandbox --task sits") > steps.index(
        "propose --scheme crisscross --phase 1"
    )
    assert steps.index("propose --scheme crisscross --phase 2") > steps.index("harvest")
    assert [step.split(" --")[0] for step in steps[-4:]] == [
        "rate scores",
        "rate release",
        "evaluate",
        "report",
    ]


def test_every_pair_of_both_phases_has_five_ratings_that_follow_the_truth(walked):
    """Scores correlate with the known likeness above 0.9 (Pearson), and better than single ratings do."""
    folder, result, *_ = walked
    with open_database(load(folder, environ={}).db_url, read_only=True) as session:
        sampled = similarity_store.samples(session)
        ratings = similarity_store.ratings(session, Environment.SANDBOX)

    counts = result.counts["tasks"]
    assert {METHODS[place] for place in sampled["method"]} == set(SamplingMethod)
    for task in Likeness:
        n_pairs = sampled[sampled["task"] == TASKS.index(task)]["pair"].nunique()
        assert (counts[task]["pairs"], counts[task]["ratings"]) == (n_pairs, 5 * n_pairs)
        assert counts[task]["pearson"]["value"] > 0.9
        assert (
            counts[task]["spearman"]["low"]
            <= counts[task]["spearman"]["value"]
            <= counts[task]["spearman"]["high"]
        )
        assert counts[task]["one"] < counts[task]["spearman"]["value"]
        assert counts[task]["off"] < 0.4
    assert not ratings["usable"].all()  # raters who do not look were seen by their controls


def test_originals_are_rated_high_and_a_model_is_scored_by_the_ratings(walked):
    """Images with their own captions are near 5; the released files hold what was rated; both models are scored."""
    folder, result, *_ = walked
    with (folder / "ratings" / "sits_test.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    own = [float(row["agg_score"]) for row in rows if row["sampling_method"] == "c2i_original"]

    assert sum(own) / len(own) > 4.2
    assert len(rows) == result.counts["tasks"]["sits"]["pairs"]
    assert {(model, task) for model, tasks in result.counts["correlations"].items() for task in tasks} == {
        ("clip-mini", "sts"),
        ("clip-mini", "sis"),
        ("clip-mini", "sits"),
        ("bag-of-words", "sts"),
    }


def test_the_end_compares_ratings_with_the_truth_and_says_what_comes_next(walked):
    """A table of correlations, one of models, and the next steps."""
    folder, result, *_ = walked
    truth, models = result.tables

    assert truth.title.startswith("people's ratings against the known likeness")
    assert [row[0] for row in truth.rows] == ["STS", "SIS", "SITS"]
    assert [row[0] for row in models.rows] == ["bag-of-words", "clip-mini"]
    assert f"mitl rate scores --project {folder}" in result.next
    assert (folder / "report.html").stat().st_size > 50_000


def test_a_second_demo_has_nothing_to_do(walked, capsys):
    """It says so with the same numbers, by the command too; another world in the folder is refused in words.

    No step looks again whether it has anything to do: the last one would write the mark of a complete demo anew.
    """
    folder, result, *_ = walked
    written = (folder / "runs" / MARK).stat().st_mtime_ns
    keep_standings(load(folder, environ={}))  # as the command that walked it would have at its end
    same = ["demo", str(folder), "--crisscross", "--n-images", str(N_IMAGES), "--workers", POPULATION]

    assert run(group, [*same, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["status"], again["counts"]) == ("nothing_to_do", result.counts)
    assert again["paths"] == result.paths
    assert (folder / "runs" / MARK).stat().st_mtime_ns == written
    assert run(group, [*same[:-4], "--n-images", "11"]) == 1
    assert "another" in capsys.readouterr().err
    assert against_truth(load(folder, environ={})) == result.counts["tasks"]


def test_the_project_of_the_demo_stands_as_any_other(walked, capsys):
    """Status names the scores as the next step; each command that the demo walked has nothing to do any more."""
    project = ["--project", str(walked[0])]

    assert run(group, ["status", *project]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("): mitl rate scores")
    for command in (
        ["propose", "--scheme", "crisscross"],
        ["rate", "publish", "--sandbox", "--task", "sits"],
    ):
        assert run(group, [*command, *project, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["status"] == "nothing_to_do"
    assert run(group, ["rate", "scores", *project, "--method", "model"]) == 0


def test_raters_who_never_look_end_the_demo_with_one_line(tmp_path, capsys, monkeypatch):
    """Without a page that passes there is no second phase; what is missing is said."""
    pytest.importorskip("torch")
    monkeypatch.setattr(mitl.stages.crisscross_demo, "MAX_ROUNDS", 1)
    asked = ["demo", str(tmp_path / "d"), "--crisscross", "--n-images", "10", "--workers", "one-number"]

    assert run(group, asked) == 1
    error = capsys.readouterr().err.strip()
    assert error.startswith("error: phase 2 follows from people's ratings of phase 1")
    assert "\n" not in error

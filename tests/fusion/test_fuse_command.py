"""`mitl fuse` on a small world: what it writes, what it reads, and what it says where it cannot."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli_kit import fails, ok
from fused_kit import quickest  # noqa: F401 - in the whole module
from harvest_kit import in_pipeline
from world_kit import SANDBOX, make_world, run_propose, work_until_done

from mitl.core.arrays import distinct
from mitl.crowd.context import open_context
from mitl.fusion import fusing
from mitl.fusion.answered import FOLDS
from mitl.settings import Settings
from mitl.settings import load as load_settings
from mitl.stages.fusing.fuse import fuse
from mitl.stages.fusing.gathering import answered, evidence
from mitl.stages.fusing.scores import FOLDER, fused_scores

pytest.importorskip("sklearn", reason="the extra mitl[fusion] is not installed")

NOTHING = np.empty(0, np.int64)
LEARN = fusing._learn
PLACES = (1, 5, 9, 11, 12)
"""Of a fusion's files, those before which it is killed."""
DEAD = 2**22 + 1
"""No process has this id."""
KILLED_AT = """
import os, signal, sys
from pathlib import Path

from mitl.fusion import fusing, models
from mitl.records import Environment
from mitl.settings import load
from mitl.stages.fusing.fuse import fuse

fusing.BASES = {"logistic": models.BASES["logistic"]}
os.cpu_count = lambda: 1
folder, place = sys.argv[1:]
replace, names = Path.replace, []

def counted(self, target):
    names.append(target.name)
    if len(names) == int(place):
        os.kill(os.getpid(), signal.SIGKILL)
    return replace(self, target)

Path.replace = counted
fuse(load(Path(folder), environ={}), Environment.SANDBOX)
"""


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    settings = make_world(tmp_path_factory.mktemp("fuse"))
    run_propose(settings, image_queries=15, caption_queries=30)
    work_until_done(settings)
    return settings


@pytest.fixture
def project(worked: Settings, tmp_path: Path) -> Settings:
    """A copy of the worked project."""
    shutil.copytree(worked.project, tmp_path / "copy")
    return load_settings(tmp_path / "copy", environ={})


@pytest.fixture(scope="module")
def fused_once(worked: Settings, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, Path]]:
    """The worked project after a fusion, and by place what lay in it before each of ``PLACES``, as a kill leaves it."""
    folder = tmp_path_factory.mktemp("fused")
    shutil.copytree(worked.project, folder / "whole")
    left: dict[int, Path] = {}
    replace, names = Path.replace, []

    def counted(self: Path, target: Path) -> Path:
        names.append(target.name)
        if len(names) in PLACES:
            left[len(names)] = folder / str(len(names))
            shutil.copytree(folder / "whole", left[len(names)])
            for part in left[len(names)].rglob("*.part"):  # its name says whose it is: nobody's, then
                part.rename(part.with_name(part.name.replace(f".{os.getpid()}.", f".{DEAD}.")))
        return replace(self, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "cpu_count", lambda: 1)  # while the folder is copied, nothing is written into it
        patch.setattr(Path, "replace", counted)
        fuse(load_settings(folder / "whole", environ={}), SANDBOX)
    return folder / "whole", left


@pytest.fixture
def fused(fused_once, tmp_path: Path) -> Settings:
    """A copy of the fused project."""
    shutil.copytree(fused_once[0], tmp_path / "fused")
    return load_settings(tmp_path / "fused", environ={})


def written(settings: Settings) -> Path:
    """The one file of probabilities."""
    [path] = (settings.runs / FOLDER).glob("*.parquet")
    return path


def scores(settings: Settings):
    with open_context(settings, SANDBOX, read_only=True) as context:
        return fused_scores(context)


def test_all_ranked_pairs_are_written_with_what_they_were_made_of(project):
    """A probability and a fold for each pair of the ranking files, to their full depth; figures in the JSON.

    Of embeddings that come from files, the vectors are read too.
    """
    assert scores(project) is None
    done = fuse(project, SANDBOX)
    with open_context(project, SANDBOX, read_only=True) as context:
        gathered = evidence(context, answered(context, NOTHING))
    ranked = gathered.ranked
    assert [vectors.images.name for vectors in gathered.joint] == ["near", "far"]
    found = scores(project)
    about = json.loads(next((project.runs / FOLDER).glob("*.json")).read_text())

    assert found["pair"].tolist() == distinct(ranked["pair"].to_numpy()).tolist()
    assert ranked["rank"].max() == 10
    assert found["probability"].between(0, 1).all()
    assert done.counts["auc"] > 0.6
    assert about["counts"]["auc"] == done.counts["auc"]
    assert set(done.counts["annotators"]) == {"near", "far"}


def test_other_weights_under_one_name_are_an_annotator_of_their_own(project):
    """A higher rank by weights that were replaced does not pass for one by those in use; both keep their pairs."""
    with open_context(project, SANDBOX, read_only=True) as context:
        before = evidence(context, answered(context, NOTHING)).ranked
    file = project.project / "near-captions.npz"
    with np.load(file) as stored:
        changed = {"ids": stored["ids"], "embedding": np.roll(stored["embedding"], 1, axis=0)}
    np.savez(file, **changed)
    run_propose(project, image_queries=15, caption_queries=30)
    with open_context(project, SANDBOX, read_only=True) as context:
        after = evidence(context, answered(context, NOTHING)).ranked
    rows_of = dict(list(after.groupby("annotator", observed=True)))
    [earlier] = set(rows_of) - {"near", "far"}

    assert re.fullmatch(r"near \([0-9a-f]{8}\)", earlier)
    assert len(rows_of["far"]) == (before["annotator"] == "far").sum()
    kept = rows_of[earlier].assign(annotator="near")
    was = before[before["annotator"] == "near"]
    assert kept.to_numpy().tolist() == was.to_numpy().tolist()
    assert len(rows_of["near"]) == len(was) and rows_of["near"]["rank"].tolist() != was["rank"].tolist()


def test_a_second_call_does_nothing_and_a_lost_half_is_made_again(fused):
    """Files are there whole or not at all: without the JSON there are no scores."""
    path = written(fused)
    bytes_before = path.read_bytes()

    assert fuse(fused, SANDBOX).status == "nothing_to_do"

    path.with_suffix(".json").unlink()

    assert scores(fused) is None
    assert fuse(fused, SANDBOX).status == "done"
    assert written(fused) == path and path.read_bytes() == bytes_before


@pytest.mark.parametrize(
    "spoilt", ["[]", '"text"', "null", "{}", {"made_at": "yesterday"}, {"made_at": "2026-11-20"}]
)
def test_a_spoilt_description_is_taken_for_none(fused, spoilt):
    """One that is no object, says too little or has no time of its own: the probabilities are made again."""
    about = written(fused).with_suffix(".json")
    whole = about.read_text()
    about.write_text(spoilt if isinstance(spoilt, str) else json.dumps(json.loads(whole) | spoilt))

    read = scores(fused)
    about.write_text(whole)

    assert read is None
    assert scores(fused) is not None


def test_scores_of_a_data_set_that_the_folder_held_before_are_not_taken(fused):
    """Its runs may be called the same: the same annotators ranked the same ids."""
    assert scores(fused) is not None

    in_pipeline(fused, "UPDATE dataset SET content_sha256 = 'of other texts'")

    assert scores(fused) is None
    assert fuse(fused, SANDBOX).status == "done"


@pytest.mark.parametrize("at", PLACES, ids="the {}th file".format)
def test_a_killed_fusion_goes_on_with_the_part_that_it_was_at(fused_once, monkeypatch, at):
    """Before any of its files is in place: what lay there is not made again, and the outcome is the same bytes."""
    whole, left = fused_once
    goes_on(load_settings(left[at], environ={}), load_settings(whole, environ={}), monkeypatch)


@pytest.mark.thorough
def test_a_process_that_is_killed_over_a_fusion_leaves_what_another_goes_on_with(
    worked, fused_once, tmp_path, monkeypatch
):
    """By SIGKILL, at the last file."""
    shutil.copytree(worked.project, tmp_path / "killed")
    words = (sys.executable, "-c", KILLED_AT, str(tmp_path / "killed"), str(PLACES[-1]))
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL

    goes_on(
        load_settings(tmp_path / "killed", environ={}), load_settings(fused_once[0], environ={}), monkeypatch
    )


def goes_on(project: Settings, whole: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies there is kept, the rest is made, and nothing else is left than after a fusion that nobody killed."""
    folder = project.runs / FOLDER
    folds = len(list(folder.glob("*.parts/fold-*.npz")))
    learnt = []
    monkeypatch.setattr(fusing, "_learn", lambda *given: learnt.append(1) or LEARN(*given))

    fuse(project, SANDBOX)

    assert len(list(folder.glob("*.parts/*"))) == 0 and len(list(folder.iterdir())) == 2
    assert len(learnt) == FOLDS - folds
    assert written(project).read_bytes() == written(whole).read_bytes()


def test_what_is_answered_on_an_audit_s_place_is_not_read(project):
    """Pages' candidates turned into audit places: nothing is left to learn from."""
    with open_context(project, SANDBOX, read_only=True) as context:
        before = answered(context, NOTHING)
    in_pipeline(project, "UPDATE hit_item SET role = 'audit' WHERE role = 'candidate'")
    with open_context(project, SANDBOX, read_only=True) as context:
        after = answered(context, NOTHING)

    assert len(before) > 100
    assert not set(after["pair"]) & (set(before["pair"]) - set(after["pair"]))
    assert len(after) < len(before) / 4


def test_pairs_drawn_to_bound_machine_labels_are_left_out(project):
    """Their answers speak neither for themselves nor for others."""
    with open_context(project, SANDBOX, read_only=True) as context:
        every = answered(context, NOTHING)
        drawn = np.sort(every["pair"].to_numpy()[::3])
        rest = answered(context, drawn)

    assert sorted(set(every["pair"]) - set(rest["pair"])) == drawn.tolist()


def test_scores_of_other_runs_are_not_taken_for_today_s(fused):
    """After another proposing there are none until fusing again."""
    run_propose(fused, image_queries=16, caption_queries=30)

    assert scores(fused) is None


def test_without_proposals_or_answers_one_line_says_what_to_do(tmp_path, monkeypatch):
    """No traceback, exit status 1."""
    settings = make_world(tmp_path)

    assert "run `mitl propose` first" in fails(1, "fuse", "--project", settings.project)

    run_propose(settings)

    assert "no ranked pair has a usable answer yet" in fails(1, "fuse", "--project", settings.project)


def test_the_command_prints_the_area_first(project):
    """Then each annotator's own, and what people must still judge."""
    said = ok("fuse", "--project", project.project, "--sandbox").out.splitlines()
    printed = ok("fuse", "--project", project.project, "--json").json

    assert said[0].startswith("against people's answers on ")
    assert said[2].split()[0] == "fusion"
    assert printed["status"] == "nothing_to_do"
    assert len(printed["counts"]["still_asked"]) == 3


def test_the_analysis_shows_how_far_the_probabilities_hold(project, fused, tmp_path):
    """Without probabilities one line says so; with them come areas, the curve and a drawing."""
    before = ok("analyse", "--project", project.project, "fusion", "diversity", "--json").json["counts"]
    after = ok("analyse", "--project", fused.project, "fusion", "--plots", tmp_path, "--json").json["counts"]

    assert "run `mitl fuse`" in before["left_out"]["fusion"]
    assert after["analyses"]["fusion"]["auc"] > 0.6
    assert "<svg" in (tmp_path / "reliability.svg").read_text()

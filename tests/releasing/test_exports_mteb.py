"""A whole run of mteb over an export gives what `mitl evaluate` gives: R-Precision, mAP@R, Recall@K and PMRP."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
from cli_kit import mitl as run
from cli_kit import ok
from scored_kit import tied_vectors
from world_kit import make_released

from mitl.metrics.plausible import CAP
from mitl.stages.evaluating.project import CaptionTexts, read_project

pytestmark = pytest.mark.filterwarnings("ignore")
SCORES = ("R-Precision", "mAP@R", "R@1", "R@5", "R@10")
PLAUSIBLE = ("PMRP", "PMRP zeta=0", "PMRP zeta=1", "PMRP zeta=2", f"PMRP zeta=0 R<={CAP}")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project whose release lists every image and caption, objects of its images, and a model full of ties."""
    folder = tmp_path_factory.mktemp("project")
    # All 14 images, and the 70 captions that they have.
    settings = make_released(folder, n_images=14, image_queries=14, caption_queries=70)
    sides = read_project(settings).sides
    rng = np.random.default_rng(3)
    for side in (sides.images, sides.captions):
        vectors = tied_vectors(rng, len(side))
        np.savez(folder / f"{side.plural}.npz", ids=np.array(side.ids), embedding=vectors)
    back = json.loads((folder / "release" / "caption_to_image.json").read_text())
    owners = CaptionTexts.of_project(read_project(settings)).image_of
    # mteb asks no query without a positive, so the images of such captions show nothing, which counts nowhere.
    mute = {owners[one] for one in sides.captions.ids if not back.get(one)}
    named = ("dog", "cat", "car")
    shown = {
        one: [name for name in named if one not in mute and rng.random() < 0.4] for one in sides.images.ids
    }
    (folder / "objects.json").write_text(json.dumps(shown))
    return folder


class Searcher:
    """The model of the files for mteb: dot products of the items' embeddings, whole or cut."""

    def __init__(self, mteb, folder, deepest):
        self.mteb_model_meta = mteb.models.ModelMeta.create_empty(
            {"name": "test/ties", "revision": "1", "modalities": ["text", "image"]}
        )
        self.deepest = deepest
        self.vectors = {}
        for name in ("images", "captions"):
            with np.load(folder / f"{name}.npz") as found:
                self.vectors[name] = dict(zip(found["ids"].tolist(), found["embedding"], strict=True))

    def index(self, corpus, *, hf_subset, **_):
        """Keep the ids of what is searched."""
        self.asking, self.found = ("images", "captions") if hf_subset == "i2t" else ("captions", "images")
        self.corpus = list(corpus["id"])

    def search(self, queries, *, top_k, **_):
        """Every query's similarities with the best items."""
        ranked = {}
        for query in queries["id"]:
            own = self.vectors[self.asking][query]
            scored = {item: float(own @ self.vectors[self.found][item]) for item in self.corpus}
            best = sorted(scored, key=lambda item: (-scored[item], int(item)))
            ranked[query] = {item: scored[item] for item in best[: min(top_k, self.deepest)]}
        return ranked


@pytest.fixture(scope="module")
def exported(project):
    """The folder of the export."""
    words = ("--objects", "objects.json", "--with-texts", "--with-pictures")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        ok("export", "release", "--to", "mteb", "--format", "mteb", *words)
    return project / "mteb"


def evaluated(project, monkeypatch, *more):
    """What `mitl evaluate` gives: set → direction → metric → value."""
    monkeypatch.chdir(project)
    words = ("--model", "m=images.npz,captions.npz", "--objects", "objects.json", "--no-intervals", "--json")
    found = json.loads(ok("evaluate", "--release", "release", *words, *more).out)["counts"]["scores"]
    return {name: by_model["m"] for name, by_model in found.items()}


@pytest.mark.parametrize("deepest", [10_000, 7])
@pytest.mark.thorough
def test_a_run_of_mteb_gives_the_scores_of_evaluate(project, exported, monkeypatch, deepest):
    """Ties included; of rankings that are cut there is PMRP with R bounded alone, of those that reach as far."""
    mteb = pytest.importorskip("mteb")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", project / "cache")
    expected = evaluated(project, monkeypatch)
    module = runpy.run_path(str(exported / "task.py"))

    tasks = [value() for name, value in module.items() if name.endswith(("I2T", "T2I"))]
    assert [way for task in tasks for way in task.metadata.eval_langs] == ["i2t", "t2i"]
    found = mteb.evaluate(Searcher(mteb, project, deepest), tasks, cache=None, show_progress_bar=False)

    for result in found.task_results:
        (scores,) = result.scores["test"]
        way = scores["hf_subset"]
        if deepest == 7:
            assert {name for name in scores if name.startswith("PMRP")} <= {PLAUSIBLE[-1]}
            assert scores["R@5"] == pytest.approx(expected["release"][way]["R@5"], abs=1e-5)
            continue
        for name in SCORES:
            assert scores[name] == pytest.approx(expected["release"][way][name], abs=1e-5), (way, name)
        for name in PLAUSIBLE:
            assert scores[name] == pytest.approx(expected["plausible"][way][name], abs=1e-5), (way, name)


def test_other_objects_are_another_revision_so_that_no_score_of_before_is_kept(
    project, exported, monkeypatch
):
    """mteb keeps results by the revision."""
    monkeypatch.chdir(project)
    shown = json.loads((project / "objects.json").read_text())
    (project / "others.json").write_text(json.dumps({id_: [*names, "bus"] for id_, names in shown.items()}))
    words = ("--objects", "others.json", "--with-texts", "--with-pictures")

    ok("export", "release", "--to", "again", "--format", "mteb", *words)

    tables = [path.relative_to(exported) for path in exported.rglob("*.parquet")]
    assert all((exported / name).read_bytes() == Path("again", name).read_bytes() for name in tables)
    assert (exported / "task.py").read_text() != Path("again", "task.py").read_text()


def test_objects_need_the_project_and_a_place(project, monkeypatch, tmp_path):
    """Outside nobody knows whose caption is whose; the other formats hold no scores of their own."""
    monkeypatch.chdir(project)
    words = ("export", "release", "--to", "other", "--objects", "objects.json", "--format")
    assert "no place for --objects" in run(*words, "hf").err
    monkeypatch.chdir(tmp_path)
    words = ("export", str(project / "release"), "--to", "other", "--objects", str(project / "objects.json"))
    assert "run this in the project" in run(*words, "--format", "mteb").err
    assert not (tmp_path / "other").exists()

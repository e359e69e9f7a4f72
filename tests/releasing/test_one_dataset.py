"""A release says of which data set it is, and meets no other one, though the ids of both are the same numbers."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from cli_kit import fails, mitl, ok, use_file_annotators
from rating_kit import rated_world
from release_kit import world
from text_kit import write_beir
from world_kit import SANDBOX, make_released, run_propose, run_publish

from mitl.datasets.scenes.files import read_world
from mitl.positives.rating_release import write_ratings
from mitl.positives.release import write_release
from mitl.settings import WORLD_FOLDER, load
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.simulate import simulate

OTHER = "is of another data set than"


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    """A project with a release, and one on another world of the same kind and size with answers and open HITs."""
    folder = tmp_path_factory.mktemp("worlds")
    make_released(folder / "one", n_images=12, image_queries=4, caption_queries=4)
    ok("init", "--dataset", "scenes", "--n-images", "12", "--seed", "5", "--project", folder / "two")
    use_file_annotators(folder / "two")
    two = replace(load(folder / "two", environ={}), endpoint=None)
    run_propose(two, image_queries=2, caption_queries=2)
    run_publish(two)
    simulate(two, SANDBOX)
    harvest(two, SANDBOX)
    run_propose(two, image_queries=4, caption_queries=4)
    run_publish(two)
    yield folder


def manifest(folder):
    return json.loads((folder / "manifest.json").read_bytes())


def unsaid(folder, to):
    """The release as an earlier version wrote it: its manifest names no hash of the data set."""
    shutil.copytree(folder, to)
    told = manifest(to)
    del told["dataset_sha256"]
    (to / "manifest.json").write_text(json.dumps(told))
    return to


def test_the_manifest_names_the_data_set_by_its_content(worlds):
    """The same hash that the report gives, whatever the folder of the project is called."""
    told = ok("report", "--methods", "-", "--project", worlds / "one", "--json").json["counts"]["methods"]

    found = manifest(worlds / "one" / "release")["dataset_sha256"]

    assert len(found) == 64 and f"| content of the data set (SHA-256) | {found[:16]} |" in told


def test_releases_of_two_data_sets_are_not_compared(tmp_path):
    """One line says which two, by what they were told apart, and what would do."""
    write_release(tmp_path / "one", world(dataset_sha256="1" * 64))
    write_release(tmp_path / "two", world(dataset_sha256="2" * 64))

    told = fails(1, "compare", tmp_path / "one", tmp_path / "two")

    assert told == (
        f"{tmp_path / 'two'} {OTHER} {tmp_path / 'one'}, though some ids may be the same: the SHA-256 of its ids and "
        f"texts is {'2' * 12}…, not {'1' * 12}…; give what is of one data set, or, where ids mean the same "
        "items, a folder with the release's two JSONs alone"
    )


def test_a_set_that_does_not_say_it_is_compared_as_before(tmp_path):
    """A release of an earlier version, and the two JSONs alone; a third set that differs is still told."""
    one = write_release(tmp_path / "one", world(dataset_sha256="1" * 64)).folder
    two = write_release(tmp_path / "two", world(dataset_sha256="2" * 64)).folder
    old, bare = unsaid(two, tmp_path / "old"), tmp_path / "bare"
    bare.mkdir()
    for name in ("image_to_caption.json", "caption_to_image.json"):
        shutil.copy(two / name, bare)

    for other in (old, bare):
        ok("compare", one, other)
    assert f"{two} {OTHER} {one}" in fails(1, "compare", one, two, old)


@pytest.mark.parametrize(
    "words",
    [
        ("evaluate", "--release"),
        ("export", "--format", "trec", "--to", "exported"),
        ("export", "--format", "trec", "--to", "exported", "--annotator", "near"),
        ("analyse", "sets", "--set"),
        ("explore",),
    ],
    ids=" ".join,
)
def test_a_project_takes_no_release_of_another_data_set(worlds, words, tmp_path, monkeypatch):
    """All ids are known in both, so nothing else would tell."""
    monkeypatch.chdir(tmp_path)
    release = worlds / "one" / "release"

    told = fails(1, *words, release, "--project", worlds / "two")

    assert f"{OTHER} this project" in told and str(release) in told
    assert not (tmp_path / "exported").exists()


def test_nobody_answers_by_a_release_of_another_data_set(worlds):
    """Neither scripted workers nor rankings that are made of known positives."""
    truth = f"release:{worlds / 'one' / 'release'}"
    of_two = ("--project", worlds / "two")

    simulated = mitl("simulate", "--truth", truth, *of_two)
    preferred = mitl("prefer", "publish", "--designed", truth, "--sandbox", *of_two)

    for outcome in (simulated, preferred):
        assert outcome.status == 1 and f"{truth} {OTHER} this project" in outcome.error


def test_rankings_name_the_data_set_that_was_searched(worlds, tmp_path):
    """They score on no release of another one, in a project or outside, and nobody is asked to compare them there."""
    run = next((worlds / "two" / "runs").rglob("near.i2t.parquet")).parent
    model = f"m={run / 'near.i2t.parquet'},{run / 'near.t2i.parquet'}"

    outside = fails(
        1, "evaluate", "--model", model, "--release", worlds / "one" / "release", "--project", tmp_path
    )
    inside = fails(1, "evaluate", "--model", model, "--project", worlds / "one")
    asked = ("--rankings", f"m={run / 'near.t2i.parquet'}", "--system", "near", "--direction", "t2i")
    preferred = fails(1, "prefer", "publish", *asked, "--sandbox", "--project", worlds / "one")

    ranked = f"{str(run / 'near.i2t.parquet')!r} {OTHER}"
    assert f"{ranked} {str(worlds / 'one' / 'release')!r}" in outside and f"{ranked} this project" in inside
    assert f"{str(run / 'near.t2i.parquet')!r} {OTHER} this project" in preferred


def test_rankings_of_a_data_set_that_the_folder_held_before_are_computed_again(tmp_path):
    """The run is called the same: it asks the same of the same annotator, which reads texts alone."""
    data, project = write_beir(tmp_path / "data", n=3), tmp_path / "p"
    corpus = data / "corpus.jsonl"
    found = []
    for _ in range(2):
        ok("init", "--dataset", data, "--project", project)
        ok("propose", "--annotator", "bm25", "--top-k", "1", "--depth", "1", "--project", project)
        (ranked,) = (project / "runs").rglob("bm25.t2i.parquet")
        found.append({row["query_id"]: row["item_id"] for row in pq.read_table(ranked).to_pylist()})
        (project / "mitl.db").unlink()
        documents = [json.loads(line) for line in corpus.read_text().splitlines()]
        turned = [{**one, "_id": other["_id"]} for one, other in zip(documents, documents[::-1], strict=True)]
        corpus.write_text("".join(json.dumps(one) + "\n" for one in turned))

    assert [found[1][query] for query in ("q0", "q1")] == [
        f"d{11 - int(found[0][query][1:])}" for query in ("q0", "q1")
    ]


def test_ratings_of_another_data_set_neither_score_nor_are_loaded(worlds, tmp_path):
    """A release of ratings says it as well; the folder's CSVs alone, as CxC's own, say nothing."""
    ratings = write_ratings(tmp_path / "ratings", rated_world()).folder
    csv = ratings / "sits_test.csv"
    loading = ("init", "--dataset", "scenes", "--n-images", "12", "--project", tmp_path / "new", "--cxc", csv)

    scored = fails(1, "evaluate", "--cxc", ratings, "--project", worlds / "two")
    loaded = fails(1, *loading)

    assert f"{str(ratings)!r} {OTHER} this project" in scored
    assert f"{str(csv)!r} {OTHER} this data set" in loaded and "give ratings of this data set" in loaded


def test_a_release_of_an_earlier_version_is_scored_as_before(worlds, tmp_path):
    """Nothing says of which data set it is."""
    own = worlds / "one" / "release"
    old = unsaid(own, tmp_path / "old")

    scores = [
        ok("evaluate", "--release", one, "--project", worlds / "one", "--json").json["counts"]["scores"]
        for one in (own, old)
    ]

    assert scores[0] == scores[1]


def test_plausible_matches_read_the_captions_of_the_releases_own_project(worlds, tmp_path):
    """The project tells whose caption is whose, so it must hold the release's data set."""
    release = worlds / "one" / "release"
    objects = tmp_path / "objects.json"
    objects.write_text(json.dumps({key: ["dog"] for key in read_world(worlds / "one" / WORLD_FOLDER).scenes}))

    words = ("compare", f"plausible:{objects}", release, "--project")

    ok(*words, worlds / "one")
    assert f"{release} {OTHER} this project" in fails(1, *words, worlds / "two")

"""Exports are loaded by the tools that they are for, and give there what `mitl evaluate` gives, ties included."""

from __future__ import annotations

import dataclasses
import json
import runpy
import warnings

import numpy as np
import pytest
from cli_kit import fails, ok
from cli_kit import mitl as run
from evaluate_kit import write_release as write_jsons
from release_kit import CAPTIONS, IMAGES, world
from scored_kit import make, scores

from mitl.positives.release import write_release
from mitl.positives.verifying import verify_release
from mitl.records import Direction, IdKind

pytestmark = pytest.mark.filterwarnings("ignore")


def exported(folder, form, *more):
    """The folder of an export."""
    ok("export", str(folder / "release"), "--out", str(folder / form), "--format", form, *more)
    return folder / form


def trec(folder):
    """The folder of qrels and runs of the model."""
    return exported(folder, "trec", "--model", f"m={folder / 'images.npz'},{folder / 'captions.npz'}")


@pytest.fixture(scope="module", params=list(IdKind))
def scored(request, tmp_path_factory):
    """The folder of a release and its model, that of their qrels and runs, and what `mitl evaluate` gives."""
    folder = make(tmp_path_factory.mktemp("scored"), request.param)
    return folder, trec(folder), scores(folder)


def dense(folder, way, corpus, queries):
    """The model's similarities as a tool would compute them: query → document → score."""
    images, captions = np.load(folder / "images.npz"), np.load(folder / "captions.npz")
    vector = {
        str(i): v for part in (images, captions) for i, v in zip(part["ids"], part["embedding"], strict=True)
    }
    if len(vector) < len(images["ids"]) + len(captions["ids"]):  # an id that names an image and a caption
        sides = [
            {str(i): v for i, v in zip(p["ids"], p["embedding"], strict=True)} for p in (images, captions)
        ]
        asking, found = sides if way == "i2t" else sides[::-1]
    else:
        asking = found = vector
    return {q: {d: float(asking[q] @ found[d]) for d in corpus} for q in queries}


def test_pytrec_eval_gives_the_same_scores(scored):
    """AP@R of a query is trec_eval's map at the cut R, since both divide by R."""
    pytrec_eval = pytest.importorskip("pytrec_eval")
    _, made, expected = scored

    for way in ("i2t", "t2i"):
        with (made / f"{way}.qrels").open() as qrels, (made / f"runs/m.{way}.run").open() as ranked:
            known, found = pytrec_eval.parse_qrel(qrels), pytrec_eval.parse_run(ranked)
        counts = {query: sum(items.values()) for query, items in known.items()}
        cuts = ",".join(map(str, sorted(set(counts.values()))))
        asked = {"Rprec", "success.1,5,10", f"map_cut.{cuts}"}
        by_query = pytrec_eval.RelevanceEvaluator(known, asked).evaluate(found)
        mean = {
            "R-Precision": np.mean([one["Rprec"] for one in by_query.values()]),
            "mAP@R": np.mean([by_query[q][f"map_cut_{r}"] for q, r in counts.items()]),
            **{f"R@{k}": np.mean([one[f"success_{k}"] for one in by_query.values()]) for k in (1, 5, 10)},
        }
        assert mean == pytest.approx(expected[way], abs=1e-9)


def test_ir_measures_gives_the_same_scores_and_sees_the_zeros(scored):
    """Judged@1 is one where the first item was judged, a match or not."""
    measures = pytest.importorskip("ir_measures")
    _, made, expected = scored

    for way in ("i2t", "t2i"):
        qrels = list(measures.read_trec_qrels(str(made / f"{way}.qrels")))
        ranked = list(measures.read_trec_run(str(made / f"runs/m.{way}.run")))
        asked = [measures.Rprec, *(measures.Success @ k for k in (1, 5, 10)), measures.Judged @ 10]
        found = measures.calc_aggregate(asked, qrels, ranked)
        assert found[measures.Rprec] == pytest.approx(expected[way]["R-Precision"])
        for k in (1, 5, 10):
            assert found[measures.Success @ k] == pytest.approx(expected[way][f"R@{k}"])
        assert {one.relevance for one in qrels} == {0, 1}
        positives = [one for one in qrels if one.relevance]
        assert (
            found[measures.Judged @ 10]
            > measures.calc_aggregate([measures.Judged @ 10], positives, ranked)[measures.Judged @ 10]
        )


def test_ranx_gives_the_same_scores(scored):
    """It reads both files by itself."""
    ranx = pytest.importorskip("ranx")
    _, made, expected = scored

    for way in ("i2t", "t2i"):
        qrels = ranx.Qrels.from_file(str(made / f"{way}.qrels"), kind="trec")
        ranked = ranx.Run.from_file(str(made / f"runs/m.{way}.run"), kind="trec")
        found = ranx.evaluate(qrels, ranked, ["r-precision", "hit_rate@1", "hit_rate@5", "hit_rate@10"])
        assert found["r-precision"] == pytest.approx(expected[way]["R-Precision"])
        for k in (1, 5, 10):
            assert found[f"hit_rate@{k}"] == pytest.approx(expected[way][f"R@{k}"])


def test_beirs_loader_reads_the_folder(scored):
    """Every query, every item, and each judged pair with its grade."""
    loader = pytest.importorskip("beir.datasets.data_loader")
    made = exported(scored[0], "beir")

    for way, searched in (("i2t", CAPTIONS), ("t2i", IMAGES)):
        corpus, queries, qrels = loader.GenericDataLoader(str(made / way)).load(split="test")
        assert len(corpus) == len(searched) and set(queries) == set(qrels)
        assert {grade for items in qrels.values() for grade in items.values()} == {0, 1}


def test_datasets_loads_every_table(scored, tmp_path, monkeypatch):
    """By the card's configurations, each with the split test."""
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    datasets = pytest.importorskip("datasets", minversion="5")
    made = exported(scored[0], "hf")

    for way in ("i2t", "t2i"):
        corpus, queries, qrels = (
            datasets.load_dataset(str(made), f"{way}-{name}", split="test", cache_dir=str(tmp_path / "cache"))
            for name in ("corpus", "queries", "qrels")
        )
        assert set(qrels["query-id"]) <= set(queries["id"]) and set(qrels["corpus-id"]) <= set(corpus["id"])
        assert set(qrels["score"]) == {0, 1}


def test_an_export_under_an_old_name_is_read_anew(tmp_path, monkeypatch):
    """datasets keeps what it loaded under what the card says, so the card says what the tables hold."""
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    datasets = pytest.importorskip("datasets", minversion="5")

    def matches(kind):
        folder = make(tmp_path / kind, kind)
        made = exported(folder, "hf").rename(tmp_path / "hf")
        table = datasets.load_dataset(str(made), "i2t-qrels", split="test", cache_dir=str(tmp_path / "cache"))
        found = list(table["query-id"])
        made.rename(tmp_path / f"old-{kind}")
        return found

    first, second = map(matches, IdKind)
    assert first and not set(first) & set(second)


@pytest.mark.thorough(but=("string",))
def test_mteb_loads_the_tasks_and_their_own_scores_are_the_same(scored, tmp_path, monkeypatch):
    """Its similarities are tied, and the hook puts ties as `mitl evaluate` does; the cache is the test's own."""
    pytest.importorskip("mteb")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    folder, _, expected = scored
    made = exported(folder, "mteb")
    module = runpy.run_path(str(made / "task.py"))

    for way in ("i2t", "t2i"):
        task = module[f"MitlDemo{way.upper()}"]()
        task.load_data()
        split = task.dataset[way]["test"]
        results = dense(folder, way, split["corpus"]["id"], split["queries"]["id"])
        found = task.task_specific_scores({}, split["relevant_docs"], results, "test", way)
        assert found == pytest.approx(expected[way], abs=1e-9)


def test_a_release_is_named_alone_or_by_its_option(tmp_path):
    """`mitl evaluate` takes --release, so `export` and `verify` do as well; two names, or none, are one line."""
    release = make(tmp_path) / "release"
    rest = ("--format", "trec", "--out", tmp_path / "out")

    assert run("verify", "--release", release) == run("verify", release)
    ok("export", release, *rest)
    assert ok("export", "--release", release, *rest, "--json").json["status"] == "nothing_to_do"
    for words in (("verify",), ("verify", release, "--release", release), ("export", *rest)):
        assert "name the release's folder once" in fails(2, *words)


def test_an_export_twice_is_nothing_to_do(tmp_path):
    """And another one into the same folder is refused."""
    folder = make(tmp_path)
    words = ("export", str(folder / "release"), "--to", str(folder / "out"), "--format")
    made = json.loads(ok(*words, "beir", "--json").out)
    assert made["status"] == "done" and any("every text is empty" in line for line in made["warnings"])
    assert json.loads(ok(*words, "beir", "--json").out)["status"] == "nothing_to_do"
    assert "is not empty" in run(*words, "trec").err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("nope", "--format", "trec"), "no release folder at 'nope'"),
        (("release", "--format", "csv"), "no export called 'csv'; known: trec, beir, mteb, hf"),
        (("release", "--format", "trec", "--with-texts"), "no place for --with-texts"),
        (("release", "--format", "beir", "--depth", "5"), "--depth is about runs, which --model and"),
        (("release", "--format", "hf", "--language", "deu-Latn"), "no place for --language; choose of: mteb"),
        (
            ("release", "--format", "mteb", "--language", "German"),
            "--language is 'German', but mteb wants a language",
        ),
        (("release", "--format", "hf", "--with-pictures"), "run this in the project"),
        (("release", "--format", "hf", "--model", "m=images.npz,captions.npz"), "no place for --model"),
    ],
)
def test_what_cannot_be_exported_is_told_in_one_line(tmp_path, monkeypatch, words, told):
    """Nothing is written."""
    monkeypatch.chdir(make(tmp_path))
    found = run("export", *words, "--to", "out")
    assert told in found.err and found.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_an_export_goes_where_a_link_leads(tmp_path):
    """The link stays; what it leads to holds the files, and a second call finds them."""
    release = make(tmp_path) / "release"
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    words = ("export", str(release), "--to", str(tmp_path / "out"), "--format", "trec")

    ok(*words)

    assert (tmp_path / "out").is_symlink() and (tmp_path / "disk" / "i2t.qrels").is_file()
    assert "nothing to do" in ok(*words).out


def test_an_export_into_its_release_is_refused(tmp_path):
    """With another folder in it, the release would not verify."""
    release = make(tmp_path) / "release"

    found = run("export", str(release), "--to", str(release / "trec"), "--format", "trec")

    assert "lies in a release" in found.error
    assert verify_release(release).differences == ()


def test_ids_with_white_space_are_refused_where_they_cannot_be_written(tmp_path):
    """TREC's columns are parted by it; the other formats take it."""
    ids = {n: f"item {n}" for n in IMAGES}
    release = world(IdKind.STRING)

    write_release(tmp_path / "release", dataclasses.replace(release, image_ids=ids))
    found = run("export", str(tmp_path / "release"), "--to", str(tmp_path / "out"), "--format", "trec")
    assert "the id 'item 1' is empty or has white space" in found.err
    exported(tmp_path, "beir")
    exported(tmp_path, "hf")


def test_an_export_without_queries_says_so(tmp_path):
    """Past work of which nothing was proposed makes such releases."""
    made = dataclasses.replace(world(), queries={Direction.I2T: (), Direction.T2I: ()})
    write_release(tmp_path / "release", made)
    found = ok("export", str(tmp_path / "release"), "--to", str(tmp_path / "out"), "--format", "trec")
    assert found.err == "warning: the release holds no queries, so nothing can be scored with these files\n"


def test_a_direction_without_queries_is_left_out(tmp_path):
    """Loaders fail on its empty tables."""
    images_alone = dataclasses.replace(world(), queries={**world().queries, Direction.T2I: ()})
    write_release(make(tmp_path) / "release", images_alone, replace=True)

    made = exported(tmp_path, "hf")
    again = trec(tmp_path)
    found = ok("export", str(tmp_path / "release"), "--to", str(tmp_path / "beir"), "--format", "beir")

    assert "the release lists no queries of t2i, so this direction is left out" in found.err
    assert sorted(path.name for path in made.iterdir()) == ["README.md", "i2t"]
    assert "t2i-corpus" not in (made / "README.md").read_text()
    assert sorted(path.name for path in again.rglob("*.*")) == ["i2t.qrels", "m.i2t.run"]


def test_without_judged_negatives_the_missing_zeros_are_told(tmp_path):
    """A folder of the two JSONs holds positives alone."""
    write_jsons(tmp_path / "release")
    found = ok("export", str(tmp_path / "release"), "--to", str(tmp_path / "out"), "--format", "trec")
    assert "no explicit zeros" in found.err
    with warnings.catch_warnings():
        assert (tmp_path / "out" / "i2t.qrels").read_text().split()[3] == "1"


def test_a_model_of_one_side_has_no_run(tmp_path):
    """It ranks nothing across sides, so it is named, whatever stands beside it."""
    folder = make(tmp_path, IdKind.INTEGER)
    both, seen = f"m={folder / 'images.npz'},{folder / 'captions.npz'}", f"seen={folder / 'images.npz'},"
    words = ("export", str(folder / "release"), "--to", str(tmp_path / "trec"), "--format", "trec")

    assert "seen knows one side alone" in fails(2, *words, "--model", both, "--model", seen)
    assert not (tmp_path / "trec").exists()

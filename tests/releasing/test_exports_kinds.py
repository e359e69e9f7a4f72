"""Every form of data sets goes to every tool that can hold it, and gives there what `mitl evaluate` gives."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
from cli_kit import fails, ok
from kinds_kit import SUFFIXES, scored_projects
from scored_kit import scores

from mitl.errors import ReleaseError
from mitl.positives.exports import hub
from mitl.positives.exports.content import Content, SideContent, Way
from mitl.records import Direction, PartKind
from mitl.records.forms import COMPOSED, IMAGES, SET_FORMS, SOUNDS, TEXTS, VIDEOS

pytestmark = pytest.mark.filterwarnings("ignore")
FORMS = pytest.mark.parametrize(
    "form", SET_FORMS.values(), ids=lambda form: form.nouns[0] + "-" + form.ways[1]
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A project a form, with a release, and a model whose similarities are full of ties."""
    return scored_projects(tmp_path_factory.mktemp)


@pytest.fixture
def project(folders, form, monkeypatch):
    """The folder of a form, entered."""
    monkeypatch.chdir(folders[form.sides])
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    return folders[form.sides]


def exported(name, *words):
    """The folder of an export of the release."""
    ok("export", "release", "--out", name, *words)
    return name


def options(form):
    """What puts the items themselves in."""
    return ("--with-texts",) if form is TEXTS else ("--with-texts", "--with-media")


@FORMS
def test_runs_of_every_form_score_alike_in_pytrec_eval_and_ir_measures(project, form):
    pytrec_eval = pytest.importorskip("pytrec_eval")
    measures = pytest.importorskip("ir_measures")
    exported("trec", "--format", "trec", "--model", "m=images.npz,captions.npz")
    expected = dict(zip(form.ways, scores(project).values(), strict=True))

    for way in form.ways:
        qrels = list(measures.read_trec_qrels(f"trec/{way}.qrels"))
        ranked = list(measures.read_trec_run(f"trec/runs/m.{way}.run"))
        found = measures.calc_aggregate([measures.Rprec, measures.Success @ 5], qrels, ranked)
        assert found[measures.Rprec] == pytest.approx(expected[way]["R-Precision"])
        assert found[measures.Success @ 5] == pytest.approx(expected[way]["R@5"])
        assert {one.relevance for one in qrels} == {0, 1}
        trec = project / "trec"
        with (trec / f"{way}.qrels").open() as known, (trec / f"runs/m.{way}.run").open() as run:
            evaluator = pytrec_eval.RelevanceEvaluator(pytrec_eval.parse_qrel(known), {"Rprec"})
            by_query = evaluator.evaluate(pytrec_eval.parse_run(run))
        mean = np.mean([one["Rprec"] for one in by_query.values()])
        assert mean == pytest.approx(expected[way]["R-Precision"])


@FORMS
def test_datasets_loads_the_items_of_every_form(project, form, tmp_path):
    """Texts, and files byte for byte under the feature of their kind; composed queries have both."""
    datasets = pytest.importorskip("datasets", minversion="5")
    made = exported("hf", "--format", "hf", *options(form))
    columns = dict(zip(form.sides, form.parts, strict=True))

    for way, (asking, searched) in form.searches.items():
        for name, side in (("queries", asking), ("corpus", searched)):
            table = datasets.load_dataset(made, f"{way}-{name}", split="test", cache_dir=str(tmp_path))
            kinds = {kind.value for kind in columns[side]}
            assert set(table.column_names) - {"title"} == {"id", *kinds}
            assert ("title" in table.column_names) == (form is TEXTS and (way, name) == ("q2d", "corpus"))
            for kind in columns[side]:
                if kind is PartKind.TEXT:
                    assert all(table["text"])
                    continue
                feature = getattr(datasets, kind.value.title())
                assert isinstance(table.features[kind.value], feature)
                first = table.cast_column(kind.value, feature(decode=False))[0][kind.value]
                assert first["bytes"] == (project / "files" / first["path"]).read_bytes()
                assert first["path"].endswith(SUFFIXES[kind])
        qrels = datasets.load_dataset(made, f"{way}-qrels", split="test", cache_dir=str(tmp_path))
        assert set(qrels["score"]) == {0, 1}
    assert f"{form.nouns[0]} search {form.nouns[1]}" in (project / "hf" / "README.md").read_text()


class Searcher:
    """The model of the files for mteb."""

    def __init__(self, mteb, form):
        modalities = sorted({kind.value for kinds in form.parts for kind in kinds})
        about = {"name": "test/ties", "revision": "1", "modalities": modalities}
        self.mteb_model_meta = mteb.models.ModelMeta.create_empty(about)
        self.ways = form.ways
        self.vectors = []
        for name in ("images", "captions"):
            with np.load(f"{name}.npz") as found:
                self.vectors.append(dict(zip(found["ids"].tolist(), found["embedding"], strict=True)))

    def index(self, corpus, *, hf_subset, **_):
        """Keep the ids of what is searched."""
        self.asking, self.found = self.vectors if hf_subset == self.ways[0] else self.vectors[::-1]
        self.corpus = list(corpus["id"])

    def search(self, queries, **_):
        """Every query's similarities with all items."""
        return {
            query: {item: float(self.asking[query] @ self.found[item]) for item in self.corpus}
            for query in queries["id"]
        }


CATEGORIES = {
    IMAGES: ("i2t", "t2i"),
    TEXTS: ("t2t", "t2t"),
    SOUNDS: ("a2t", "t2a"),
    VIDEOS: ("v2t", "t2v"),
    COMPOSED: ("i2it", "it2i"),
}


@FORMS
def test_mteb_runs_the_tasks_of_every_form_with_the_same_scores(project, form, monkeypatch):
    mteb = pytest.importorskip("mteb")
    if form in (SOUNDS, VIDEOS):  # mteb looks at the first item
        pytest.importorskip("torchcodec")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", project / "cache")
    languages = ("--language", "deu-Latn", "--language", "arb-Arab")
    made = exported("mteb", "--format", "mteb", *options(form), *languages)
    expected = dict(zip(form.ways, scores(project).values(), strict=True))

    module = runpy.run_path(f"{made}/task.py")
    tasks = [module[f"MitlDemo{way.upper()}"]() for way in form.ways]
    assert tuple(task.metadata.category for task in tasks) == CATEGORIES[form]
    assert [task.metadata.eval_langs for task in tasks] == [
        {way: ["deu-Latn", "arb-Arab"]} for way in form.ways
    ]
    found = mteb.evaluate(Searcher(mteb, form), tasks, cache=None, show_progress_bar=False)
    for way, result in zip(form.ways, found.task_results, strict=True):
        (measured,) = result.scores["test"]
        assert measured["hf_subset"] == way
        for name, value in expected[way].items():
            assert measured[name] == pytest.approx(value, abs=1e-5), (way, name)


@FORMS
def test_mlcroissant_and_pandas_read_the_release_of_every_form(project, form):
    mlcroissant = pytest.importorskip("mlcroissant")
    import pandas as pd

    found = mlcroissant.Dataset(str(project / "release" / "croissant.json"))
    rows = list(found.records("positives"))
    table = pd.read_parquet("release/positives.parquet")
    assert len(rows) == len(table) > 0
    pairs = {tuple(row[f"positives/{c}"].decode() for c in ("image_id", "caption_id")) for row in rows}
    assert pairs == set(zip(table["image_id"], table["caption_id"], strict=True))


@FORMS
def test_a_release_in_python_has_the_names_of_its_form(project, form):
    """Frames, directions and the arguments of a model; by place, by name and by `mitl evaluate` alike."""
    import mitl
    from mitl.errors import UsageError

    release = mitl.load("release")
    named = dict(zip(form.nouns, ("images.npz", "captions.npz"), strict=True))
    found = release.evaluate(**named)
    assert found.equals(release.evaluate("images.npz", "captions.npz"))
    values = found.set_index(["direction", "metric"])["value"]
    for way, by_metric in zip(form.ways, scores(project).values(), strict=True):
        # Outside the project, where the release alone knows which reference a query may not find.
        assert {metric: values[way, metric] for metric in by_metric} == pytest.approx(by_metric)
        assert release.queries(way)
    left, right = (f"{side}_id" for side in form.sides)
    assert {left, right} <= {*release.positives.columns} & {*release.judgements.columns}
    ranked = release.rankings(**named, depth=2)
    assert set(ranked["direction"]) == set(form.ways)
    for pairs in (release.positives, ranked):
        shown = mitl.show(pairs)._repr_html_()
        assert f"<small>{form.sides[1]} item-" in shown and (form is TEXTS) == ("text &lt;0&gt;" in shown)
    with pytest.raises(
        UsageError, match=f"there are no stones in this release; give {' and '.join(form.nouns)}"
    ):
        release.evaluate(stones={})
    with pytest.raises(UsageError, match=f"it is {' or '.join(form.ways)}"):
        release.queries("x2y")


@FORMS
def test_beirs_loader_reads_what_are_single_items(project, form):
    """A composed query is none."""
    if form is COMPOSED:
        assert fails(2, "export", "release", "--to", "beir", "--format", "beir") == (
            "--format beir cannot hold queries of an image and a text: an item of BEIR is a single text; choose of: "
            "trec, mteb, hf"
        )
        return
    loader = pytest.importorskip("beir.datasets.data_loader")
    exported("beir", "--format", "beir", "--with-texts")
    for way in form.ways:
        corpus, queries, qrels = loader.GenericDataLoader(f"beir/{way}").load(split="test")
        assert corpus and set(queries) == set(qrels)
        if form is TEXTS:
            assert all(one["text"] for one in corpus.values()) and all(queries.values())


@pytest.mark.parametrize("form", [TEXTS], ids=["texts"])
def test_options_of_pictures_are_refused_for_texts(project, form):
    words = ("export", "release", "--to", "no", "--format", "mteb")
    assert fails(2, *words, "--with-media") == (
        "the release is of documents and queries, which are texts alone; leave --with-media out"
    )
    assert "the release is of documents and queries; leave it out" in fails(2, *words, "--objects", "o.json")
    assert not (project / "no").exists()


@pytest.mark.parametrize(
    ("at", "told"),
    [
        (
            None,
            "the project does not know where the image of '7' is; name their folder with `mitl init --images",
        ),
        ("gone.png", "the image of '7' is not at 'gone.png'; put it there, or leave --with-media out"),
    ],
)
def test_a_picture_that_is_missing_says_what_to_do(at, told):
    """Whether the project never had its file, or had it once."""
    pictures = SideContent((PartKind.IMAGE,), media={"7": at and Path(at)})
    way = Way(Direction.I2T, ("7",), ("1",), {"7": {"1": True}}, "i2t")
    content = Content("demo", IMAGES, (way,), (pictures, SideContent((PartKind.TEXT,))), integers=True)

    with pytest.raises(ReleaseError) as raised:
        hub.files(content)
    assert told in str(raised.value) and "None" not in str(raised.value)

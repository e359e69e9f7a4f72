"""Proposing keeps what it computes: nothing twice, nothing stale, nothing lost by a kill or a full disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import artifact_work as work
import pytest
from encoding_kit import Hashing, Pairing, full_after
from process_kit import KILLED, Child, fork_server, project_settings, side_by_side
from world_kit import make_world, spoil

from mitl.errors import AnnotatorError, RetrievalError
from mitl.progress import no_progress
from mitl.proposals.candidates import ranking_path
from mitl.records import Direction
from mitl.retrieval import encodings, pair_scores
from mitl.retrieval.engines import LocalEngine
from mitl.retrieval.topk import top_k as ranking_by
from mitl.settings import Settings
from mitl.stages.evaluating.evaluate import evaluate
from mitl.stages.proposing import ranking
from mitl.stages.proposing.computing import PairScope, split_scope
from mitl.stages.proposing.propose import ProposeRequest, QueryChoice, propose
from mitl.stages.proposing.ranking import AnnotatorRun

POINTS = int(os.environ.get("MITL_KILL_POINTS", "5"))
N_IMAGES = 12
N_CAPTIONS = 5 * N_IMAGES
FILES = 4
"""Two annotators, two directions."""


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """A project on which nothing was proposed yet."""
    folder = tmp_path_factory.mktemp("world")
    make_world(folder, n_images=N_IMAGES)
    return folder


@pytest.fixture
def project(world, tmp_path) -> Settings:
    """A copy of it."""
    return project_settings(Path(shutil.copytree(world, tmp_path / "p")))


@pytest.fixture
def networks(monkeypatch) -> dict[str, Any]:
    """Annotators as they were built last, by name."""
    made: dict[str, Any] = {}

    def build(name, config=None, *, folder=None):
        made[name] = Pairing(name) if name == "pairing" else Hashing(name)
        return made[name]

    monkeypatch.setattr(ranking.registry, "build", build)
    return made


def run(settings: Settings, names=("hashing",), *, top_k=3, images=5, captions=6, progress=no_progress):
    return propose(
        settings,
        ProposeRequest(
            annotators=names, top_k=top_k, depth=6, images=QueryChoice(images), captions=QueryChoice(captions)
        ),
        progress=progress,
    )


def rankings(settings: Settings) -> dict[Path, bytes]:
    return {
        path.relative_to(settings.project): path.read_bytes() for path in settings.runs.rglob("*.parquet")
    }


def test_another_run_encodes_nothing(project, networks):
    """Other queries and another top k need the same encodings; so does evaluating."""
    first = run(project)
    second = run(project, top_k=4, images=7)

    assert (first.counts["images_encoded"], first.counts["captions_encoded"]) == (N_IMAGES, N_CAPTIONS)
    assert second.counts["rankings_computed"] == 2
    assert (second.counts["images_encoded"], second.counts["captions_encoded"]) == (0, 0)
    evaluate(project, annotators=["hashing"])
    assert networks["hashing"].calls == 0


def test_a_picture_that_changes_makes_new_rankings_from_one_new_encoding(project, networks):
    """The same command is a new run then; the rankings of the old one are not taken for it."""
    first = run(project)
    picture = next(iter(sorted((project.project / "dataset" / "images").glob("*.png"))))
    spoil(picture, picture.read_bytes() + b"\0")

    second = run(project)

    assert first.counts["run"] != second.counts["run"]
    assert second.counts["rankings_computed"] == 2
    assert len(networks["hashing"].asked) == 1
    assert run(project).status == "nothing_to_do"


def test_the_folders_of_artifacts_can_be_deleted_at_any_time(project, networks):
    """What is needed is made again, to the same bytes; the result says how much they take and where."""
    result = run(project, ("hashing", "pairing"))
    before = rankings(project)
    paths = {name: Path(path) for name, path in result.paths.items()}

    size = sum(
        f.stat().st_size for name in ("encodings", "scores") for f in paths[name].rglob("*") if f.is_file()
    )
    assert result.counts["kept_bytes"] == size > 0
    for folder in paths.values():
        shutil.rmtree(folder)
    again = run(project, ("hashing", "pairing"))
    assert again.counts["images_encoded"] == 2 * N_IMAGES
    assert rankings(project) == before


def test_a_scored_pair_serves_both_directions_and_later_runs(project, networks):
    """5 image queries and 6 caption queries meet in 30 pairs; one image query more adds its own pairs only."""
    first = run(project, ("pairing",))
    met = set(networks["pairing"].scored)
    second = run(project, ("pairing",), images=N_IMAGES, captions=0)

    assert first.counts["pairs_scored"] == 5 * N_CAPTIONS + 6 * N_IMAGES - 5 * 6 == len(met)
    assert second.counts["pairs_scored"] == N_IMAGES * N_CAPTIONS - len(met)
    assert second.counts["images_encoded"] == 0


def test_no_two_bars_have_one_name(project, networks):
    """Pairs are scored in both directions, and each bar names its own."""
    bars = []

    @contextmanager
    def progress(label, total):
        bars.append(label)
        yield lambda units: None

    run(project, ("hashing", "pairing"), progress=progress)

    assert {"score pairing i2t", "score pairing t2i"} <= set(bars)
    assert len(bars) == len(set(bars))


def test_ranking_by_kept_scores_is_ranking_by_embeddings(project, networks):
    """The two annotators see the same vectors, and their rankings agree."""
    from mitl.retrieval.rankings import read_ranking

    result = run(project, ("hashing", "pairing"))
    folder = Path(result.paths["rankings"])
    names = {str(i): i for i in range(10**6)}
    for direction in Direction:
        one, other = (
            read_ranking(ranking_path(folder, name, direction), names, names)
            for name in ("hashing", "pairing")
        )
        assert one.item_ids.tolist() == other.item_ids.tolist()


def test_all_items_of_both_sides_search_in_one_pass(project, networks, monkeypatch):
    """The rankings are those of two searches; of a sample, each direction is searched by itself."""
    passes = []
    real = LocalEngine.rank

    def counted(engine, annotator, sides, ks, **kwargs):
        passes.extend([1] * (len(ks) == 2))
        return real(engine, annotator, sides, ks, **kwargs)

    monkeypatch.setattr(LocalEngine, "rank", counted)

    run(project)
    assert not passes
    result = run(project, images=None, captions=None)
    once = rankings(project)
    assert passes == [1]
    assert result.counts["rankings_computed"] == 2
    monkeypatch.setattr(AnnotatorRun, "searches_both", lambda self, queries: False)
    shutil.rmtree(result.paths["rankings"])
    run(project, images=None, captions=None)
    assert rankings(project) == once


def test_shortlists_are_made_in_one_pass_too(project, networks):
    """The sources' deeper rankings of all items come from one pass, and their own are cut from them."""
    settings = shortlisting(project, shortlist=8, audit_queries=2)
    result = run(settings, ("hashing", "pairing"), images=None, captions=None)
    alone = run(project, images=None, captions=None)

    folder, other = Path(result.paths["rankings"]), Path(alone.paths["rankings"])
    for direction in Direction:
        name = f"hashing.{direction}.parquet"
        assert (folder / name).read_bytes() == (other / name).read_bytes()
    assert len(list((folder / "shortlists").glob("hashing.*.parquet"))) == 2


def shortlisting(project: Settings, **scope: object) -> Settings:
    """The project with a scope of ``pairing``."""
    table = {"scope": "shortlist", **scope}
    return replace(project, annotator_config={**project.annotator_config, "pairing": table})


NEAR = ("near", "hashing", "pairing")


@pytest.fixture
def near(networks, monkeypatch):
    """A third annotator that sees other vectors."""
    real = ranking.registry.build

    def build(name, config=None, *, folder=None):
        made = real(name, config, folder=folder)
        if name == "near":
            made.fingerprint = "b" * 64
            monkeypatch.setattr(made, "_encoded", lambda *given: Hashing._encoded(made, *_reversed(*given)))
        return made

    monkeypatch.setattr(ranking.registry, "build", build)


def _reversed(modality, items, contents):
    return modality, items, [content[::-1] for content in contents]


def test_a_shortlist_scores_only_what_others_propose_and_its_recall_is_measured(project, networks):
    """Its source sees the same vectors, so that the recall is 1; whoever makes shortlists is ranked first."""
    settings = shortlisting(project, shortlist=6, audit_queries=2)
    result = run(settings, ("pairing", "hashing"))
    again = run(settings, ("pairing", "hashing"), top_k=2)

    pairs = 5 * 6 + 6 * 6
    audits = 2 * N_CAPTIONS + 2 * N_IMAGES
    assert pairs <= result.counts["pairs_scored"] <= pairs + audits
    assert list(result.counts["annotators"]) == ["pairing", "hashing"]
    for direction in Direction:
        recall = result.counts["shortlists"][f"pairing {direction}"]
        assert (recall["share"], recall["k"], recall["depth"], recall["queries"]) == (1.0, 6, 6, 2)
        assert any(line.startswith(f"pairing {direction}: shortlist of the best 6") for line in result.lines)
    assert again.counts["pairs_scored"] == 0
    assert again.counts["shortlists"].keys() == result.counts["shortlists"].keys()
    assert run(settings, ("pairing", "hashing")).status == "nothing_to_do"


@pytest.mark.usefixtures("near")
def test_a_poor_shortlist_says_so_and_grows_where_a_recall_is_wished(project, networks):
    """A source that sees other vectors finds little; with a recall wished, the list grows until it has it."""
    poor = run(shortlisting(project, shortlist=6, shortlist_from=["near"], audit_queries=12), NEAR)
    wished = shortlisting(
        project, shortlist=6, shortlist_from=["near"], shortlist_recall=0.8, audit_queries=12
    )
    rich = run(wished, NEAR)

    for direction in ("i2t", "t2i"):
        before, after = (result.counts["shortlists"][f"pairing {direction}"] for result in (poor, rich))
        assert before["share"] < 0.8
        assert after["low"] >= 0.8
        assert after["depth"] > before["depth"]
    assert poor.counts["run"] != rich.counts["run"]


@pytest.mark.usefixtures("near")
def test_all_others_make_the_shortlist_by_default(project, networks):
    """The union of both sources has what each of them proposes."""
    both = run(shortlisting(project, shortlist=6, audit_queries=12), NEAR)
    one = run(shortlisting(project, shortlist=6, shortlist_from=["near"], audit_queries=12), NEAR)

    for direction in ("i2t", "t2i"):
        union, alone = (result.counts["shortlists"][f"pairing {direction}"] for result in (both, one))
        assert union["candidates"] > alone["candidates"]
        assert union["share"] == 1.0


def test_a_source_that_is_not_asked_is_ranked_for_the_shortlist_alone(project, networks):
    """It proposes nothing; its rankings are kept apart."""
    result = run(
        shortlisting(project, shortlist=6, shortlist_from=["hashing"], audit_queries=1), ("pairing",)
    )

    assert list(result.counts["annotators"]) == ["pairing"]
    folder = Path(result.paths["rankings"])
    assert {path.name for path in folder.glob("*.parquet")} == {"pairing.i2t.parquet", "pairing.t2i.parquet"}
    assert {path.name for path in (folder / "shortlists").glob("*.parquet")} == {
        "hashing.i2t.parquet",
        "hashing.t2i.parquet",
    }


def test_an_impossible_shortlist_is_one_clear_line(project, networks):
    """Nobody to make it, a source with a shortlist of its own, an annotator that needs none."""
    with pytest.raises(AnnotatorError, match="but no other annotator is asked; add --annotator NAME"):
        run(shortlisting(project), ("pairing",))
    with pytest.raises(AnnotatorError, match="'shortlist_from' of annotator 'pairing' names 'pairing'"):
        run(shortlisting(project, shortlist_from=["pairing"]), ("pairing", "hashing"))
    scoped = replace(project, annotator_config={"hashing": {"scope": "shortlist"}})
    with pytest.raises(AnnotatorError, match="'hashing' does not score pair by pair"):
        run(scoped, ("hashing",))


@pytest.mark.parametrize(
    ("scope", "message"),
    [
        ({"scope": "some"}, "'scope' of annotator 'vilt' is 'some'; it should be exhaustive or shortlist"),
        ({"shortlist": 0}, "'shortlist' of annotator 'vilt' is 0; it should be a whole number from 1"),
        ({"shortlist": True}, "'shortlist' of annotator 'vilt' is True; it should be a whole number from 1"),
        ({"shortlist_from": "clip"}, "'shortlist_from' of annotator 'vilt' is 'clip'; it should be a list"),
        (
            {"shortlist_recall": 1},
            "'shortlist_recall' of annotator 'vilt' is 1; it should be a number between",
        ),
        ({"audit_queries": -1}, "'audit_queries' of annotator 'vilt' is -1"),
        ({"scope": "exhaustive", "shortlist": 5}, "sets 'shortlist' although its 'scope' is 'exhaustive'"),
    ],
)
def test_a_wrong_scope_is_one_clear_line(scope, message):
    """Each setting says what it should be."""
    with pytest.raises(AnnotatorError) as caught:
        split_scope("vilt", {"weights": "x", **scope})

    assert message in str(caught.value)


def test_scopes_are_taken_out_of_the_settings_that_a_network_sees():
    """Only of annotators of pairs: another annotator's setting of the same name is its own."""
    assert split_scope("vilt", {"weights": "x", "shortlist": 5}) == ({"weights": "x"}, PairScope(5))
    assert split_scope("vilt", {"scope": "exhaustive"}) == ({}, PairScope())
    assert split_scope("mine", {"network": "vilt", "scope": "shortlist"}) == (
        {"network": "vilt"},
        PairScope(256),
    )
    assert split_scope("pcme", {"shortlist": 100}) == ({"shortlist": 100}, None)


@pytest.fixture(scope="module")
def context() -> Iterator[Any]:
    with fork_server() as made:
        yield made


@pytest.mark.slow
def test_a_killed_run_is_resumed_from_its_chunks_and_units(context, world, tmp_path):
    """Killed at a rename or a commit: the second run computes what is missing, and the bytes are the same."""
    whole = Path(shutil.copytree(world, tmp_path / "whole"))
    complete = Child(context, work.propose, whole).outcome()
    expected = rankings(project_settings(whole))
    assert complete.events is not None and complete.value is not None
    kept_something = 0
    for point in sorted({1 + round(i * (complete.events - 1) / (POINTS - 1)) for i in range(POINTS)}):
        folder = Path(shutil.copytree(world, tmp_path / f"killed-{point}"))
        assert Child(context, work.propose, folder, kill_at=point).outcome().exit_status == KILLED
        again = Child(context, work.propose, folder).value()

        assert rankings(project_settings(folder)) == expected
        if again.status == "nothing_to_do":
            continue
        for count in ("images_encoded", "captions_encoded", "pairs_scored"):
            assert again.counts[count] <= complete.value.counts[count]
            kept_something += again.counts[count] < complete.value.counts[count]
        assert not [path for path in folder.rglob("*.part") if path.name.startswith(".")]
        shutil.rmtree(folder)
    assert len(expected) == FILES
    assert kept_something >= 3


@pytest.mark.slow
def test_two_runs_at_once_do_not_harm_each_other(context, world, tmp_path):
    """Both end well, and what they leave is what one would have left."""
    alone = Path(shutil.copytree(world, tmp_path / "alone"))
    Child(context, work.propose, alone).value()
    folder = Path(shutil.copytree(world, tmp_path / "both"))

    outcomes = side_by_side(context, folder, (work.propose,), (work.propose,))

    assert [outcome.error for outcome in outcomes] == [None, None]
    assert rankings(project_settings(folder)) == rankings(project_settings(alone))
    parts = list((folder / "runs" / "encodings").glob("*/*/*"))
    assert len(parts) == FILES, "one whole part for each annotator and side"


def test_a_full_disk_stops_proposing_with_one_clear_line(project, networks, monkeypatch):
    """The chunks before it are kept; the next run encodes the rest."""
    monkeypatch.setitem(encodings.CHUNK_ITEMS, "caption", 20)
    with monkeypatch.context() as patch:
        full_after(15, patch)
        with pytest.raises(
            RetrievalError, match=r"the disk is full; the \d+ captions .* are kept; make room"
        ):
            run(project)
    again = run(project)

    assert again.counts["images_encoded"] == 0
    assert 0 < again.counts["captions_encoded"] < N_CAPTIONS


def test_scoring_is_resumed_within_a_query(project, networks, monkeypatch):
    """Interrupted in the third unit of the first query's pairs, the next run scores the others."""
    monkeypatch.setattr(pair_scores, "FIRST_UNIT", 10)
    monkeypatch.setattr(pair_scores, "_LARGEST_UNIT", 10)
    real = Pairing.scores

    def interrupted(self, *args):
        if len(self.scored) == 20:
            raise KeyboardInterrupt
        return real(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Pairing, "scores", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(project, ("pairing",), images=1, captions=0)
    again = run(project, ("pairing",), images=1, captions=0)

    assert again.counts["pairs_scored"] == N_CAPTIONS - 20


def test_a_recall_that_an_annotator_measured_itself_is_told_too(project, monkeypatch):
    """Of one that shortlists for itself, as PCME may."""

    @dataclass
    class Measured:
        k: int = 6
        count: int = 50
        recall: float = 0.9995
        queries: int = 5

        def __str__(self) -> str:
            return "a shortlist of 50 holds nearly all"

    class Shortlisting(Hashing):
        measured = None

        def top_k(self, queries, gallery, k, *, block_bytes, progress):
            self.measured = Measured()
            return ranking_by(Hashing(), queries, gallery, k)

    monkeypatch.setattr(
        ranking.registry, "build", lambda name, config=None, *, folder=None: Shortlisting(name)
    )

    result = run(project)

    wanted = {"k": 6, "depth": 50, "share": 0.9995, "queries": 5}
    assert result.counts["shortlists"] == {"hashing i2t": wanted, "hashing t2i": wanted}
    assert "hashing i2t: a shortlist of 50 holds nearly all" in result.lines

"""Engines: whoever does the work, in whatever pieces, the bytes are the same; a lost worker costs only time."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from encoding_kit import Hashing, Jealous, JealousRecipe, captions, pictures
from hypothesis import given, settings
from hypothesis import strategies as st

from annotators.base import Encoded, Ranking
from mitl import settings as known_settings
from mitl.datasets.scenes import generate, write_items
from mitl.errors import AnnotatorError, RetrievalError
from mitl.records import AnnotatorKind, CaptionItem, ImageItem
from mitl.retrieval import pair_scores, ray_engine, topk
from mitl.retrieval.encodings import EncodingStore, caption_keys, image_keys
from mitl.retrieval.engines import AnnotatorRecipe, LocalEngine
from mitl.retrieval.pair_scores import PairScores, ScoredItems, Unit
from mitl.retrieval.products import Backend
from mitl.retrieval.ray_engine import Merger, RayEngine, merged, tiles
from mitl.retrieval.topk import top_k

NETWORKS = {
    name: AnnotatorRecipe(name, {"device": "cpu", "threads": 2}) for name in ("vilt-mini", "pcme-mini")
}
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="the extra mitl[ray] is not installed")
"""Not ``importorskip``: the engine decides on what ray is told before it is imported."""


def encoded(rows: int, modality="caption", *, width: int = 5, seed: int = 0) -> Encoded:
    """Vectors of few different values, so that there are many ties."""
    values = np.random.default_rng(seed).integers(-1, 2, (rows, width)).astype(np.float32)
    return Encoded(modality, np.arange(rows, dtype=np.int64) * 3 + 1, {"embedding": values})


def assert_same(found: Ranking, wanted: Ranking) -> None:
    for name in ("query_ids", "item_ids", "similarities"):
        assert getattr(found, name).dtype == getattr(wanted, name).dtype
        assert getattr(found, name).tobytes() == getattr(wanted, name).tobytes()


@settings(max_examples=60, deadline=None)
@given(data=st.data(), queries=st.integers(0, 12), items=st.integers(1, 20))
def test_tiles_of_any_shape_in_any_order_give_the_bytes_of_one_search(data, queries, items):
    """With ties across the cuts: the top k of the tiles' top k, in canonical order, is the top k."""
    left, right = encoded(queries, "image"), encoded(items, seed=1)
    k = data.draw(st.integers(1, items))
    shape = (data.draw(st.integers(1, 12)), data.draw(st.integers(1, 20)))
    cut = data.draw(st.permutations(list(tiles(queries, items, shape))))
    merger = Merger(left, k)

    for tile in cut:
        part = right.rows(tile.gallery)
        merger.add(tile, top_k(Hashing(), left.rows(tile.queries), part, min(k, len(part))))

    assert_same(merger.ranking(), top_k(Hashing(), left, right, k))
    assert sum(tile.pairs for tile in cut) == queries * items


@settings(deadline=None)
@given(seed=st.integers(0, 99), k=st.integers(1, 6))
def test_merging_does_not_care_for_order(seed, k):
    """(a + b) + c is c + (b + a)."""
    left = encoded(3, "image")
    a, b, c = (
        top_k(Hashing(), left, encoded(12, seed=seed).rows(slice(start, start + 4)), min(k, 4))
        for start in (0, 4, 8)
    )

    assert_same(merged(merged(a, b, k), c, k), merged(c, merged(b, a, k), k))


@pytest.fixture(scope="module")
def deaths(tmp_path_factory) -> Path:
    """Where one worker dies for each test that makes this folder."""
    return tmp_path_factory.mktemp("deaths") / "one"


@pytest.fixture
def a_worker_dies(deaths):
    """Exactly one worker is killed in the middle of this test's work."""
    deaths.mkdir()
    yield
    assert (deaths / "died").exists(), "nobody was killed"
    (deaths / "died").unlink()
    deaths.rmdir()


@pytest.fixture(scope="module")
def engine(deaths, monkeypatch_module):
    """Two worker processes of this machine, for the whole module."""
    recipes = {"jealous": JealousRecipe("jealous", {"threads": 1}, deaths), **NETWORKS}
    monkeypatch_module.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    with RayEngine(recipes, cpus=2, object_store_bytes=80 << 20) as made:
        yield made


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture
def small_tiles(monkeypatch):
    monkeypatch.setattr(ray_engine, "TILE_QUERIES", 16)
    monkeypatch.setattr(ray_engine, "TILE_ITEMS", 28)


@needs_ray
def test_ray_ranks_vectors_to_the_same_bytes(engine, small_tiles):
    """A worker needs nothing but the vectors; every tile counts its pairs."""
    left, right = encoded(40, "image"), encoded(60, seed=1)
    network = Hashing()

    for queries, k in ((left, 31), (left.rows(slice(0, 0)), 3)):
        (found,) = engine.rank(network, (queries, right), (k,))
        assert_same(found, top_k(network, queries, right, k))


@pytest.fixture(scope="module")
def drawn(tmp_path_factory) -> tuple[list[ImageItem], list[CaptionItem]]:
    """Pictures and captions of a small world."""
    return write_items(generate(30, seed=5, split="check"), tmp_path_factory.mktemp("world"))


@needs_ray
@pytest.mark.thorough
def test_pairs_have_the_same_scores_from_every_engine_in_units_of_any_size(
    engine, drawn, tmp_path, monkeypatch
):
    """ViLT on two threads: all at once here, in small units by workers, and as the rest of a run that was killed."""
    vilt = NETWORKS["vilt-mini"].build()
    images, captions = drawn[0][:12], drawn[1][:50]
    sides = vilt.encode_images(images), vilt.encode_captions(captions)
    items = ScoredItems(images, captions, image_keys(images, None), caption_keys(captions))
    pairs = np.divmod(np.arange(len(images) * len(captions)), len(captions))

    def kept(name: str, doing: LocalEngine, unit: int) -> PairScores:
        monkeypatch.setattr(pair_scores, "FIRST_UNIT", unit)
        monkeypatch.setattr(pair_scores, "_LARGEST_UNIT", unit)
        return PairScores(tmp_path / name, "vilt", items, partial(doing.score, vilt, *sides))

    whole = kept("whole", LocalEngine(), 1 << 20).get(*pairs)
    some = np.random.default_rng(0).permutation(len(whole))[:200]
    kept("again", LocalEngine(), 53).get(pairs[0][some], pairs[1][some])
    resumed = kept("again", LocalEngine(), 160).get(*pairs)

    assert resumed.tobytes() == whole.tobytes()
    assert kept("ray", engine, 83).get(*pairs).tobytes() == whole.tobytes()


@needs_ray
def test_tiles_of_any_size_give_the_bytes_of_one_search_by_a_network(engine, drawn, monkeypatch):
    """PCME's last bits hang on what is compared together and by which library, so blocks are the same in all tiles.

    A worker may multiply by another library than this process: there the probabilities' own tolerance holds.
    """
    pcme = NETWORKS["pcme-mini"].build()
    images, captions = pcme.encode_images(drawn[0]), pcme.encode_captions(drawn[1])
    there, here = (one.rank(pcme, (images, captions), (20,))[0] for one in (engine, LocalEngine()))
    np.testing.assert_allclose(there.similarities, here.similarities, rtol=0, atol=1e-5)
    gaps = np.pad(-np.diff(here.similarities), ((0, 0), (1, 1)), constant_values=1.0) > 2e-5
    apart = gaps[:, :-1] & gaps[:, 1:]
    assert apart.any() and (there.item_ids[apart] == here.item_ids[apart]).all()

    monkeypatch.setattr(topk, "BLOCK", (4, 16))  # workers know nothing of it
    whole = top_k(pcme, images, captions, 20)
    for shape in ((4, 16), (12, 32), (8, 160)):
        merger = Merger(images, 20)
        for tile in tiles(len(images), len(captions), shape):
            part = captions.rows(tile.gallery)
            merger.add(tile, top_k(pcme, images.rows(tile.queries), part, min(20, len(part))))
        assert_same(merger.ranking(), whole)


def test_tiles_for_networks_are_made_of_whole_blocks():
    """Else the blocks of two tiles would lie otherwise than those of one search."""
    for tile, block in zip(ray_engine.tile_shape(AnnotatorKind.PROBABILITY), topk.BLOCK, strict=True):
        assert tile % block == 0


@needs_ray
def test_ray_ranks_both_ways_from_one_pass_to_the_same_bytes(engine, small_tiles):
    """Each tile serves both directions, whose rankings are those of two searches."""
    left, right = encoded(40, "image"), encoded(60, seed=1)
    told = []

    @contextmanager
    def progress(label, total):
        yield told.append
        told.append(-total)

    i2t, t2i = engine.rank(Hashing(), (left, right), (31, 7), progress=progress)

    assert_same(i2t, top_k(Hashing(), left, right, 31))
    assert_same(t2i, top_k(Hashing(), right, left, 7))
    assert told.pop() == -2400 == -sum(told)
    for found, wanted in zip((i2t, t2i), LocalEngine().rank(Hashing(), (left, right), (31, 7)), strict=True):
        assert_same(found, wanted)


@needs_ray
def test_what_cannot_be_ranked_fails_as_on_one_machine(engine):
    """The same line, though no tile sees the whole gallery."""
    with pytest.raises(RetrievalError, match="top-k is 9, but the gallery has 6 items"):
        engine.rank(Hashing(), (encoded(2, "image"), encoded(6)), (9,))
    with pytest.raises(RetrievalError, match="top-k is 3, but the gallery has 2 items"):
        engine.rank(Hashing(), (encoded(2, "image"), encoded(6)), (3, 3))
    with pytest.raises(RetrievalError, match="not finite"):
        bad = encoded(6)
        bad.arrays["embedding"][2] = np.nan
        engine.rank(Hashing(), (encoded(2, "image"), bad), (2,))


@needs_ray
@pytest.mark.usefixtures("a_worker_dies", "small_tiles")
def test_ranking_survives_the_loss_of_a_worker(engine, deaths):
    """A worker is killed within a tile; the tile is done again, and the bytes are those of one machine."""
    left, right = encoded(9, "image"), encoded(30, seed=1)

    (found,) = engine.rank(Jealous("jealous", deaths), (left, right), (8,))

    assert_same(found, top_k(Jealous("jealous", Path("nowhere")), left, right, 8))


@needs_ray
@pytest.mark.usefixtures("a_worker_dies")
def test_encoding_survives_the_loss_of_a_worker(engine, deaths, tmp_path, monkeypatch):
    """Chunks come back from workers and are kept here; this process itself encodes nothing."""
    monkeypatch.setattr("mitl.retrieval.encodings.CHUNK_ITEMS", {"image": 3, "caption": 3})
    network, texts = Jealous("jealous", deaths), captions(14)
    store = EncodingStore(tmp_path / "encodings")

    found = store.encoded(network, "caption", texts, partial(engine.encode, network, "caption"))

    wanted = Hashing().encode_captions(texts)
    np.testing.assert_array_equal(found.arrays["embedding"], wanted.arrays["embedding"])
    assert network.calls == 0
    assert store.computed["caption"] == 14


@needs_ray
@pytest.mark.usefixtures("a_worker_dies")
@pytest.mark.thorough
def test_scoring_pairs_survives_the_loss_of_a_worker(engine, deaths):
    """Only the rows of a unit's pairs travel; units come back in any order, each with its number."""
    annotator = Jealous("jealous", deaths)
    left, right = encoded(9, "image"), encoded(30, seed=1)
    rng = np.random.default_rng(0)
    units = [Unit(n, np.sort(rng.integers(0, 9, 6)), rng.integers(0, 30, 6)) for n in range(5)]

    found = {scored.number: scored.scores for scored in engine.score(annotator, left, right, units)}

    safe = Jealous("jealous", Path("nowhere"))
    for scored in LocalEngine().score(safe, left, right, units):
        np.testing.assert_array_equal(found.pop(scored.number), scored.scores)
    assert not found


@needs_ray
def test_an_error_in_a_worker_is_the_line_that_it_would_be_here(engine, deaths):
    """No traceback of another machine."""
    texts = captions(2)
    texts[1] = type(texts[1])(9, "9", 1, "poison")

    with pytest.raises(AnnotatorError) as caught:
        list(engine.encode(Jealous("jealous", deaths), "caption", [(0, texts)]))

    assert str(caught.value) == "caption 'poison' cannot be read; leave it out"


@needs_ray
def test_another_fingerprint_on_a_worker_is_noticed(engine, deaths):
    """A cluster whose machines hold other weights must not mix them."""
    here = Jealous("jealous", deaths)
    here.fingerprint = "other weights"

    with pytest.raises(AnnotatorError, match=r"is another one on .*; put the same files on every machine"):
        list(engine.encode(here, "caption", [(0, captions(2))]))


@needs_ray
def test_a_worker_that_greets_with_another_version_is_refused(engine, monkeypatch):
    """Results of two versions are never mixed."""
    monkeypatch.setattr("mitl.retrieval.ray_cluster.version", lambda name: "9.9")

    with pytest.raises(RetrievalError, match=r"run mitl .*, but this is 9\.9"):
        engine._cluster._greet()


@needs_ray
def test_a_worker_without_the_code_is_one_clear_line(engine, deaths, tmp_path, monkeypatch):
    """It says what is missing there and what to install."""
    (tmp_path / "only_here.py").write_text(
        "from encoding_kit import JealousRecipe\nclass Mine(JealousRecipe): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from only_here import Mine

    monkeypatch.setitem(engine._recipes, "jealous", Mine("jealous", {}, deaths))
    with pytest.raises(RetrievalError) as caught:
        list(engine.encode(Jealous("jealous", deaths), "caption", [(0, captions(2))]))

    assert "No module named 'only_here'" in str(caught.value)
    assert "with the same extras on every machine" in str(caught.value)
    assert "\n" not in str(caught.value)


@needs_ray
def test_an_annotator_that_no_worker_can_build_works_here(engine, tmp_path):
    """Without a recipe, or with encodings that mean something in this process only."""
    network, relative = Hashing("unknown"), Jealous("jealous", Path("nowhere"))
    relative.reusable_encodings = False
    images = pictures(tmp_path / "p", 3)

    for annotator in (network, relative):
        ((number, found),) = engine.encode(annotator, "image", [(7, images)])
        assert (number, found.ids.tolist(), annotator.calls) == (7, [1, 2, 3], 1)


@needs_ray
def test_ray_keeps_to_itself(engine):
    """No dashboard, no usage report, and only loopback listens."""
    import ray
    from ray._private.services import get_node_ip_address

    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    assert get_node_ip_address() == "127.0.0.1"
    assert ray.get_runtime_context().gcs_address.startswith("127.0.0.1:")


@needs_ray
@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "ray://127.0.0.1:{port}"])
def test_an_address_that_nobody_answers_at_is_one_clear_line(address):
    """Within seconds, and without ray's own retries."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        where = address.format(port=unused.getsockname()[1])
        with pytest.raises(RetrievalError) as caught, RayEngine({}, address=where):
            pass

    assert str(caught.value).startswith(f"no ray cluster can be reached at {where!r} (")
    assert "\n" not in str(caught.value)


@needs_ray
@pytest.mark.parametrize("address", ["somewhere", "host:port", "6379"])
def test_an_address_of_no_known_form_is_refused(address):
    """With the forms there are."""
    with (
        pytest.raises(RetrievalError, match="but HOST:PORT, ray://HOST:PORT or auto is wanted"),
        RayEngine({}, address=address),
    ):
        pass


def test_settings_know_the_backends_that_there_are():
    """They are listed without importing numpy."""
    assert get_args(Backend) == known_settings.BACKENDS


def test_a_missing_ray_names_the_extra(monkeypatch):
    """And the engine that needs none."""
    monkeypatch.setitem(__import__("sys").modules, "ray", None)

    with (
        pytest.raises(RetrievalError, match=r"pip install 'mitl\[ray\]', or use the engine 'local'"),
        RayEngine({}),
    ):
        pass

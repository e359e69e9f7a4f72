"""One ranking, to the last byte, from every backend, in both directions, however the work is cut."""

from __future__ import annotations

import functools
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suite_kit import examples
from topk_kit import SHAPES, Vectors, encoded, full_sort, same_bytes, some_vectors

from annotators.base import Encoded, Ranking
from mitl.errors import RetrievalError
from mitl.records import AnnotatorKind
from mitl.retrieval import choosing, faiss_lists, processor, topk, vectors
from mitl.retrieval.products import Buffers, Floors
from mitl.retrieval.rescoring import Rescorer, canonical_similarities
from mitl.retrieval.survivors import Survivors
from mitl.retrieval.topk import top_k, top_k_both
from mitl.retrieval.vectors import UNIT

BACKENDS = ["auto", "numpy", "torch", "bf16", "int16", "int8", "device", "faiss"]


@pytest.fixture(autouse=True)
def device_on_the_cpu(monkeypatch):
    """``device`` names what ``cuda`` runs, on the processor instead of a GPU."""
    monkeypatch.setattr(choosing, "CARD", "cpu")


@contextmanager
def loops(compiled_ones: bool) -> Iterator[None]:
    """With the compiled loops, where numba is installed, or without."""
    with pytest.MonkeyPatch.context() as patch:
        found = import_module("mitl.retrieval.kernels") if compiled_ones and find_spec("numba") else None
        patch.setattr(processor, "_loops", found)
        patch.setattr(processor, "STARTING_WORK", float("inf"))
        yield


def ranked(backend: str, left: Encoded, right: Encoded, k: int, block_bytes: int = 1 << 24) -> Ranking:
    name = "cuda" if backend == "device" else backend
    return top_k(Vectors(), left, right, k, backend=name, block_bytes=block_bytes)


def ranked_both(
    backend: str, left: Encoded, right: Encoded, k: int, back: int, block_bytes: int = 1 << 24
) -> tuple[Ranking, Ranking]:
    name = "cuda" if backend == "device" else backend
    return top_k_both(Vectors(), left, right, k, back, backend=name, block_bytes=block_bytes)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=examples(8, 15), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    queries=st.integers(1, 40),
    items=st.integers(1, 300),
    width=st.integers(1, 70),
    numbers=st.tuples(st.integers(1, 3), st.integers(1, 2)),
    kinds=st.tuples(st.sampled_from(SHAPES), st.sampled_from(SHAPES)),
    block_bytes=st.sampled_from([30_000, 300_000, 1 << 24]),
    compiled_ones=st.booleans(),
    data=st.data(),
)
def test_every_backend_gives_the_bytes_of_a_full_sort(
    backend, seed, queries, items, width, numbers, kinds, block_bytes, compiled_ones, data
):
    """One or several vectors an item, duplicates, zeros, huge, tiny and nearly equal ones: ids, order and bits."""
    left = encoded(some_vectors(seed, (queries, numbers[0], width), kinds[0]))
    right = encoded(some_vectors(seed + 1, (items, numbers[1], width), kinds[1]), "caption", 5)
    k, back = data.draw(st.integers(1, min(items, 30))), data.draw(st.integers(1, min(queries, 30)))
    expected, expected_back = full_sort(left, right, k), full_sort(right, left, back)

    with loops(compiled_ones):
        one_way = ranked(backend, left, right, k, block_bytes)
        there, other = ranked_both(backend, left, right, k, back, block_bytes)

    assert same_bytes(one_way, expected)
    assert same_bytes(there, expected)
    assert same_bytes(other, expected_back)


@functools.cache
def larger_gallery(
    queries: int, items: int, k: int, back: int, kind: str
) -> tuple[Encoded, Encoded, Ranking, Ranking]:
    """Images and captions, and their rankings both ways by a full sort, the same for every backend."""
    left = encoded(some_vectors(1, (queries, 24), kind))
    right = encoded(some_vectors(2, (items, 24), kind), "caption")
    return left, right, full_sort(left, right, k), full_sort(right, left, back)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["unit", "cone", "zeros", "mixed", "same"])
@pytest.mark.thorough(
    but=("mixed-int16", "mixed-faiss", "zeros-device", "same-int8", "cone-bf16", "unit-torch")
)
def test_a_larger_gallery_in_many_tiles_gives_the_same_bytes(backend, kind):
    """Several blocks of queries and spans of the gallery, over which floors rise and are sharpened."""
    left, right, expected, expected_back = larger_gallery(70, 1500, 25, 7, kind)

    # With less, the card's path has the same spans of 64 items and takes four times as long.
    narrow = 600_000 if backend == "device" else 200_000

    for block_bytes, compiled_ones in ((narrow, True), (1 << 26, False)):
        with loops(compiled_ones):
            there, back = ranked_both(backend, left, right, 25, 7, block_bytes)

            assert same_bytes(ranked(backend, left, right, 25, block_bytes), expected)
        assert same_bytes(there, expected)
        assert same_bytes(back, expected_back)


@pytest.mark.parametrize("compiled_ones", [True, False])
@pytest.mark.parametrize("backend", BACKENDS)
def test_read_only_half_precision_maps_rank_like_the_same_numbers_in_float32(
    backend, compiled_ones, tmp_path: Path
):
    """A float16 and a float32 memory map are read where they lie, and nothing is written to them."""
    array = some_vectors(2, (700, 32)).astype(np.float16)
    array[::3] *= np.float16(2.0**-16)  # numbers that float16 keeps with fewer bits
    np.save(tmp_path / "half.npy", array)
    np.save(tmp_path / "single.npy", array.astype(np.float32))
    maps = [np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("half", "single")]
    left, wide = encoded(some_vectors(1, (20, 32))), encoded(array.astype(np.float32), "caption")
    few = encoded(array[:40].astype(np.float32))

    with loops(compiled_ones):
        rankings = [ranked(backend, left, encoded(side, "caption"), 25) for side in maps]
        both = [ranked_both(backend, encoded(side[:40]), encoded(side, "caption"), 25, 9) for side in maps]

    assert all(same_bytes(ranking, full_sort(left, wide, 25)) for ranking in rankings)
    for there, back in both:
        assert same_bytes(there, full_sort(few, wide, 25))
        assert same_bytes(back, full_sort(wide, few, 9))


@pytest.mark.parametrize("backend", BACKENDS)
def test_embeddings_are_not_written_to(backend):
    """What is searched is the same afterwards, and may lie in memory in any way: backwards, or with gaps."""
    left, right = (
        encoded(some_vectors(1, (30, 40))[::-1]),
        encoded(some_vectors(2, (500, 80))[:, ::2], "caption"),
    )
    before = left.arrays["embedding"].copy(), right.arrays["embedding"].copy()

    there, back = ranked_both(backend, left, right, 5, 5)

    assert same_bytes(there, full_sort(left, right, 5))
    assert same_bytes(back, full_sort(right, left, 5))
    assert np.array_equal(left.arrays["embedding"], before[0])
    assert np.array_equal(right.arrays["embedding"], before[1])


@pytest.mark.parametrize("backend", ["numpy", "torch", "bf16", "int16", "int8"])
@pytest.mark.parametrize("number", [1, 2, 5])
def test_the_number_of_threads_changes_no_byte(backend, number, monkeypatch):
    """One thread or several over the same survivors."""
    left, right, expected, expected_back = larger_gallery(200, 3000, 25, 9, "unit")

    monkeypatch.setattr("mitl.retrieval.topk.count", lambda: number)
    there, back = ranked_both(backend, left, right, 25, 9, 2 << 20)

    assert same_bytes(there, expected)
    assert same_bytes(back, expected_back)


def test_floors_that_another_thread_raises_are_numbers():
    """Each is the one before or the one after: NaN, which nothing reaches, would lose all pairs of a tile's row."""
    rows = 1 << 16
    for _ in range(20):
        survivors = Survivors(rows, 1, 2, None)
        raising = threading.Thread(target=survivors.reach, args=(np.ones(rows),))
        raising.start()
        while raising.is_alive():
            assert not np.isnan(survivors.floors()).any()
        raising.join()
        assert (np.abs(survivors.floors() - 1) < 1e-6).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_what_is_not_finite_is_named(backend, bad):
    """The first item that cannot be used, on whichever side and with every backend."""
    array = some_vectors(2, (5000, 24))
    array[4100, 3] = bad
    left, right = encoded(some_vectors(1, (30, 24))), encoded(array, "caption")

    with pytest.raises(
        RetrievalError, match=r"^the embedding of caption 12300 is not finite or longer than 1e\+19"
    ):
        ranked(backend, left, right, 5)
    with pytest.raises(
        RetrievalError, match=r"^the embedding of caption 12300 is not finite or longer than 1e\+19"
    ):
        ranked(backend, right, left, 5)


@pytest.mark.parametrize("count", [6, 1])
def test_a_search_both_ways_of_pairs_asks_the_annotator_twice(count):
    """Where similarities are the annotator's own, both directions are searched, each with the queries first."""

    class Table(Vectors):
        def similarities(self, queries, gallery):
            left, right = (side.arrays["embedding"][:, 0] for side in (queries, gallery))
            return (
                np.subtract.outer(left, right)
                if queries.modality == "image"
                else np.subtract.outer(right, left).T
            )

    images, captions = (
        encoded(some_vectors(1, (count, 1), "raw")),
        encoded(some_vectors(2, (9, 1), "raw"), "caption"),
    )
    annotator, k = Table(AnnotatorKind.PAIRWISE), min(3, count)

    with loops(True):
        there, back = top_k_both(annotator, images, captions, 4, k)

    assert same_bytes(there, top_k(annotator, images, captions, 4))
    assert same_bytes(back, top_k(annotator, captions, images, k))
    assert there.item_ids.shape == (count, 4)
    assert back.item_ids.shape == (9, k)


def test_an_annotator_that_searches_itself_is_asked_to():
    """Its ranking is taken as it is, and it is told the memory and given the progress."""
    told = {}
    ranking = Ranking(np.arange(2), np.zeros((2, 1), np.int64), np.zeros((2, 1), np.float32))

    class Own(Vectors):
        def top_k(self, queries, gallery, k, *, block_bytes, progress):
            told.update(k=k, block_bytes=block_bytes, progress=progress)
            return ranking

    left, right = encoded(some_vectors(1, (2, 4))), encoded(some_vectors(2, (3, 4)), "caption")

    assert top_k(Own(), left, right, 1, block_bytes=12345) is ranking
    assert told["k"] == 1
    assert told["block_bytes"] == 12345


def test_faiss_searches_again_where_its_margin_is_too_small(monkeypatch):
    """A hundred near ties behind each best item do not fit the list: it is made longer until the bound holds."""
    base = some_vectors(1, (1, 64))
    gallery = np.repeat(base, 400, axis=0)
    gallery[:, 0] += np.random.default_rng(0).integers(-3, 4, 400).astype(np.float32) * np.float32(1e-8)
    listed = []
    known = faiss_lists._lists

    def lists(*args):
        listed.append(args[-1])
        return known(*args)

    monkeypatch.setattr(faiss_lists, "_lists", lists)
    left, right = encoded(base), encoded(gallery, "caption")

    assert same_bytes(ranked("faiss", left, right, 10), full_sort(left, right, 10))
    assert len(listed) > 1
    assert listed == sorted(listed)


@pytest.mark.parametrize(("share", "warnings"), [(0.23, 1), (0.97, 0)])
def test_a_slow_faiss_is_reported_once(share, warnings, monkeypatch, caplog):
    """Where its BLAS has less than half of numpy's rate, one line says how to mend it."""
    monkeypatch.setattr(faiss_lists, "blas_share", lambda: share)
    monkeypatch.setattr(faiss_lists, "searches_on_card", lambda: False)
    faiss_lists.warn_of_slow_blas.cache_clear()
    left, right = encoded(some_vectors(1, (3, 8))), encoded(some_vectors(2, (30, 8)), "caption")

    with caplog.at_level(logging.WARNING):
        ranked("faiss", left, right, 3)
        ranked("faiss", left, right, 3)

    assert [record.message[:48] for record in caplog.records] == [
        "faiss multiplies at 23 % of numpy's rate; set OP"
    ] * warnings


def test_the_rate_of_faiss_is_measured_against_numpys():
    """A share above nothing, after which faiss has the threads it had."""
    faiss = pytest.importorskip("faiss")
    before = faiss.omp_get_max_threads()

    share = faiss_lists.blas_share()

    assert 0.01 < share < 100
    assert faiss.omp_get_max_threads() == before


class FaissForCards:
    """What of faiss-gpu is called, computed by faiss-cpu: counts the lists that a card gives, and those it does not."""

    METRIC_INNER_PRODUCT = 0
    StandardGpuResources = object

    def __init__(self, cards: int):
        self.cards, self.on_card, self.on_processor = cards, 0, 0
        self._faiss = pytest.importorskip("faiss")

    def get_num_gpus(self) -> int:
        return self.cards

    def knn(self, queries, items, n, *, metric):
        self.on_processor += 1
        return self._faiss.knn(queries, items, n, metric=metric)

    def knn_gpu(self, resources, queries, items, n, *, metric):
        assert type(resources) is object and n <= 2048  # as a card's selection has it
        self.on_card += 1
        return self._faiss.knn(queries, items, n, metric=metric)


@pytest.mark.parametrize(
    ("cards", "k", "on_card", "on_processor"), [(1, 10, 2, 0), (0, 10, 0, 2), (1, 2040, 0, 2)]
)
def test_faiss_searches_on_a_card_where_it_has_one(cards, k, on_card, on_processor, monkeypatch):
    """A list that is longer than a card's is the processor's; the ranking is the same."""
    faiss = FaissForCards(cards)
    monkeypatch.setattr(faiss_lists, "import_faiss", lambda: faiss)
    monkeypatch.setattr(faiss_lists, "_FIRST_SEARCH", "pass")
    monkeypatch.setattr(faiss_lists, "warn_of_slow_blas", lambda: None)
    monkeypatch.setattr(faiss_lists, "_COLUMNS", 2100)
    faiss_lists.searches_on_card.cache_clear()
    left, right = encoded(some_vectors(1, (5, 8))), encoded(some_vectors(2, (4200, 8)), "caption")

    found = ranked("faiss", left, right, k)

    faiss_lists.searches_on_card.cache_clear()
    assert same_bytes(found, full_sort(left, right, k))
    assert (faiss.on_card, faiss.on_processor) == (on_card, on_processor)


def test_a_faiss_that_aborts_on_the_card_leaves_it_to_the_processor(tmp_path, monkeypatch, caplog):
    """A build without code for a card ends the process that searches there: that is another one."""
    aborts = """
import os, sys
METRIC_INNER_PRODUCT = 0
StandardGpuResources = object
def knn_gpu(*arguments, **options):
    print("CUDA error 209 no kernel image is available", file=sys.stderr, flush=True)
    os.abort()
"""
    (tmp_path / "faiss.py").write_text(aborts)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    faiss = FaissForCards(1)
    monkeypatch.setattr(faiss_lists, "import_faiss", lambda: faiss)
    monkeypatch.setattr(faiss_lists, "warn_of_slow_blas", lambda: None)
    faiss_lists.searches_on_card.cache_clear()
    left, right = encoded(some_vectors(1, (5, 8))), encoded(some_vectors(2, (40, 8)), "caption")

    found = [ranked("faiss", left, right, 3) for _ in range(2)]

    faiss_lists.searches_on_card.cache_clear()
    assert all(same_bytes(one, full_sort(left, right, 3)) for one in found)
    assert faiss.on_card == 0
    assert [record.message for record in caplog.records] == [
        "this faiss cannot search on the card here and takes the processor "
        "(CUDA error 209 no kernel image is available)"
    ]


def test_faiss_on_a_gpu_gives_the_same_bytes():
    """As numpy's."""
    pytest.importorskip("faiss")
    if not faiss_lists.searches_on_card():
        pytest.skip("faiss has no GPU here; the same lists were searched on the processor above")
    left, right = encoded(some_vectors(1, (900, 512))), encoded(some_vectors(2, (40_000, 512)), "caption")

    assert same_bytes(ranked("faiss", left, right, 25), ranked("numpy", left, right, 25))


@pytest.mark.parametrize("module", ["faiss", "torch"])
def test_a_backend_that_is_not_installed_says_what_to_do(module, monkeypatch):
    """One line names the extra."""
    monkeypatch.setitem(__import__("sys").modules, module, None)
    left, right = encoded(some_vectors(1, (3, 8))), encoded(some_vectors(2, (30, 8)), "caption")

    with pytest.raises(
        RetrievalError, match=rf"^backend '{module}' needs {module}, which is not installed; use"
    ):
        ranked(module, left, right, 3)


def test_a_faiss_that_cannot_start_says_why(tmp_path, monkeypatch):
    """As faiss-gpu without CUDA's libraries: its own line, and what else would do."""
    (tmp_path / "faiss.py").write_text("raise RuntimeError('nvidia-cuda-runtime-cu12 is missing')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "faiss", raising=False)

    with pytest.raises(
        RetrievalError, match=r"^faiss is installed but cannot start: nvidia-cuda-run.*or use 'auto'$"
    ):
        faiss_lists.import_faiss()


def test_without_a_gpu_the_cuda_backend_says_so(monkeypatch):
    """One line, and what to use instead."""
    torch = pytest.importorskip("torch")
    monkeypatch.undo()
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    left, right = encoded(some_vectors(1, (3, 8))), encoded(some_vectors(2, (30, 8)), "caption")

    with pytest.raises(
        RetrievalError, match=r"^backend 'cuda' needs a GPU that torch can use, and there is none"
    ):
        top_k(Vectors(), left, right, 3, backend="cuda")


def test_a_gpu_gives_the_same_bytes(monkeypatch):
    """The same as numpy's, on a real device."""
    torch = pytest.importorskip("torch")
    monkeypatch.undo()
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU; the same code ran on the processor above")
    left, right = encoded(some_vectors(1, (900, 512))), encoded(some_vectors(2, (40_000, 512)), "caption")

    there, back = top_k_both(Vectors(), left, right, 25, 25, backend="cuda")

    assert same_bytes(there, top_k(Vectors(), left, right, 25, backend="numpy"))
    assert same_bytes(back, top_k(Vectors(), right, left, 25, backend="numpy"))


def test_settings_of_libraries_come_back():
    """After a search, and after a failed one, torch, numpy and faiss have the threads and the precision they had."""
    torch = pytest.importorskip("torch")
    pools = pytest.importorskip("threadpoolctl")

    def state():
        matmul = torch.backends.cuda.matmul
        counts = sorted((pool["filepath"], pool["num_threads"]) for pool in pools.threadpool_info())
        return torch.get_num_threads(), matmul.allow_bf16_reduced_precision_reduction, counts

    left, right = encoded(some_vectors(1, (300, 24))), encoded(some_vectors(2, (5000, 24)), "caption")
    broken = encoded(np.full((50, 24), np.nan, np.float32), "caption")
    before, number = state(), processor.count()

    for backend in ("numpy", "bf16", "int8"):
        ranked(backend, left, right, 5)
        with pytest.raises(RetrievalError):
            ranked(backend, left, broken, 5)

    assert state() == before
    assert processor.count() == number


def test_compiled_loops_start_once_a_process_has_searched_enough(monkeypatch):
    """Small searches never start them; many of them do, and what they find stays the same."""
    pytest.importorskip("numba", reason="extra 'fast' is missing")
    left, right = encoded(some_vectors(1, (20, 24))), encoded(some_vectors(2, (300, 24)), "caption")
    monkeypatch.setattr(processor, "_loops", None)
    monkeypatch.setattr(processor, "_work", 0.0)
    monkeypatch.setattr(processor, "STARTING_WORK", 20 * 300 * 24 * 2)

    before = ranked("numpy", left, right, 25)
    assert processor.compiled_loops() is None
    after = ranked("numpy", left, right, 25)

    assert processor.compiled_loops() is not None
    assert same_bytes(before, after)


def test_a_numba_that_cannot_keep_what_it_compiles_is_done_without(monkeypatch):
    """numba refuses at its import where no folder can be written."""
    pytest.importorskip("numba", reason="extra 'fast' is missing")
    monkeypatch.setattr(processor, "_loops", None)
    monkeypatch.setattr(processor, "_work", 0.0)

    def refused(name: str) -> None:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(processor, "import_module", refused)
    processor.about_to_search(processor.STARTING_WORK)

    assert processor.compiled_loops() is None


CHAIN = 126
"""Small terms that one running sum loses."""


def lost_in_a_sum(lanes: int, queries: int = 16, items: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of bfloat16 numbers of whose products running sums in float32 lose all but the first and the last.

    Item 7 has, in each of the lanes that a library may add side by side, 1 + 126 2^-25 - 1 with every query: a small
    term is less than half of the last place of 1. Item 3 has four fifths of that in one term, which nothing loses.
    """
    width, total = lanes * (CHAIN + 2), lanes * CHAIN * 2.0**-25
    left, right = np.zeros((queries, width), np.float32), np.zeros((items, width), np.float32)
    left[:] = 2.0**-12
    left[:, :lanes] = left[:, -lanes:] = 1
    right[:, 0] = 2.0**-24
    right[3, 0] = (np.array([0.8 * total], np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(
        np.float32
    )[0]
    right[7] = 2.0**-13
    right[7, :lanes], right[7, -lanes:] = 1, -1
    return left, right


@pytest.mark.parametrize("backend", ["numpy", "torch", "linear", "bf16", "device"])
def test_what_a_sum_in_float32_loses_is_allowed_for(backend, monkeypatch):
    """The bound's term gamma decides: a neighbour of which a sum loses much is found, and without it it is not."""
    decided = []
    for lanes in (1, 2, 32):  # by the order in which the library adds
        left, right = lost_in_a_sum(lanes)
        sides = encoded(left), encoded(right, "caption")
        expected = full_sort(*sides, 1)
        assert set(expected.item_ids.ravel()) == {21}
        task = choosing.SearchTask(*map(vectors.Vectors, sides), 1)
        if backend == "device":
            choice = choosing.ProductChoice(device="cpu")
        else:
            choice = choosing.ProductChoice((choosing._makers(task)[backend](),), (114, 1))
        monkeypatch.setattr(topk, "choose", lambda *args, chosen=choice: chosen)

        assert same_bytes(top_k(Vectors(), *sides, 1), expected)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(vectors, "gamma", lambda width, unit=UNIT: 0.0)
            try:
                decided.append(set(top_k(Vectors(), *sides, 1).item_ids.ravel()) == {9})
            except IndexError:  # a card finds nobody above a floor that is too high
                decided.append(True)
    if not any(decided):
        pytest.skip("this library adds in another order, which loses less")


def near_ties(width: int = 1024, part: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Vectors that lose as much as they can, all of it in one direction, so that Cauchy and Schwarz give nothing away.

    Rows just beyond a tie of bfloat16, of 8-bit steps (of which the longest number is 127) and of what is near them.
    """
    up, down = 1 + 2.0**-8 + 2.0**-16, 1 + 2.0**-8 - 2.0**-16
    rows = np.array([up, down, 100.502, 100.498, -up, -down, -100.502, -100.498, 1.0, 127.0])
    left = np.repeat(rows[:, None], width, axis=1)
    left[[2, 3, 6, 7], 0] = np.sign(left[[2, 3, 6, 7], 0]) * 127
    # And one whose sum with the second is rounded down to bfloat16 as well.
    left = np.concatenate([left, left[1:2]])
    left[-1, : width * 31 // 64] += 2.0**-7
    right = np.concatenate([left * scale for scale in (1.0, 1.5, 0.75)])
    return left.astype(np.float32), right.astype(np.float32)


def loaded(backend: str, left: np.ndarray, right: np.ndarray, back: int | None = None):
    """A product with both sides' operands and their tile, and the canonical similarities by the operands' places."""
    sides = [vectors.Vectors(encoded(side)) for side in (left, right)]
    task = choosing.SearchTask(*sides, 1, back)
    product = choosing._makers(task)[backend]()
    one = product.load(sides[0], slice(0, len(left)), "left")
    other = product.load(sides[1], slice(0, len(right)), "right")
    ranking = full_sort(encoded(left), encoded(right), len(right))
    exact = np.empty((len(left), len(right)))
    np.put_along_axis(exact, ranking.item_ids // 3, ranking.similarities.astype(np.float64), 1)
    return product, one, other, product.multiply(one, other, Buffers()), exact


PRODUCTS = ["numpy", "torch", "bf16", "int16", "int8"]


def off_by(product, one, other, tile, exact) -> tuple[np.ndarray, np.ndarray]:
    """How far near similarities lie from canonical ones, and how far they may."""
    whole = slice(0, len(one)), slice(0, len(other))
    near = product.near(tile, *whole).astype(np.float64)
    allowed = vectors.product_errors(
        one.lengths, one.losses, other.lengths, other.losses, one.data.shape[2], product.roundoff
    )
    return np.abs(near - exact[:, other.places]), allowed + product.rounding * np.abs(near)


@pytest.mark.parametrize("backend", PRODUCTS)
@pytest.mark.parametrize("width", [1, 3, 64, 1100])
def test_no_product_is_further_off_than_it_says(backend, width):
    """Where both sides lose as much as they can in one direction."""
    off, allowed = off_by(*loaded(backend, *near_ties(width)))

    assert (off <= allowed).all()


@pytest.mark.parametrize("width", [1, 2, 3, 65, 4096])
def test_sums_of_16_bit_products_do_not_overflow(width):
    """Vectors with themselves and their opposites, whose sums are the largest; of one number, and of equal ones."""
    rows = np.stack([np.ones(width), np.eye(1, width)[0], np.random.default_rng(0).standard_normal(width)])
    rows = np.concatenate([rows, -rows, 1e-18 * rows, 1e16 * rows]).astype(np.float32)
    off, allowed = off_by(*loaded("int16", rows, rows))

    assert (off <= allowed).all()


def extreme_vectors(width: int) -> np.ndarray:
    """The largest sums in 8 and 16 bits: equal numbers, alternating ones, one alone, one beside small ones, zeros."""
    rows = np.stack([np.ones(width), (-1.0) ** np.arange(width), np.eye(1, width)[0], np.full(width, 1e-3)])
    rows[3, 0] = 1
    rows = np.concatenate([rows, np.random.default_rng(0).standard_normal((9, width)), np.zeros((1, width))])
    return np.concatenate([rows, -rows, 1e-18 * rows, 1e15 * rows]).astype(np.float32)


SIEVES = ["amx_kernels", "vnni_kernels", "sieve_kernels"]
"""Whose panels a search takes, the first that runs on this processor."""


@pytest.mark.parametrize("form", [*SIEVES, None])
@pytest.mark.parametrize("width", [1, 3, 32, 65, 1100])
def test_what_is_sifted_in_registers_holds_every_pair_that_reaches(width, form, monkeypatch):
    """Whatever 8 and 16 bits lose: a pair is let through where the floor of its row or column is its similarity."""
    for better in SIEVES[: SIEVES.index(form)] if form else ():
        monkeypatch.setattr(f"mitl.retrieval.{better}.runs_here", lambda: False)
    if form in SIEVES[:2] and not import_module(f"mitl.retrieval.{form}").runs_here():
        pytest.skip("this processor has no such instruction")
    product, one, other, _, exact = loaded(
        "int16", extreme_vectors(width), extreme_vectors(width)[::-1].copy()
    )
    left_out = "sift" if form else "sieve"
    monkeypatch.setattr(getattr(product, "_kernels" if form else "_sieve"), left_out, None)
    monkeypatch.setattr(product, "_patience", int(form is not None))
    if form:
        monkeypatch.setattr(f"mitl.retrieval.{form}.WORTH", 0)  # however many pass
    whole = slice(0, len(other))
    for floors in exact.T:
        asked = {side: Floors(floors, side, whole, 2 * exact.size + 12 * 32) for side in ("left", "right")}
        found = product.sifted(one, other, asked, Buffers())

        for side, pairs in (("left", exact), ("right", exact.T)):
            rows, columns, highest = found[side]
            wanted = np.zeros(exact.shape, bool)
            wanted[rows, columns] = True
            assert (wanted if side == "left" else wanted.T)[pairs >= floors[:, None]].all()
            assert (highest >= exact[rows, columns]).all()
            assert len(set(zip(rows.tolist(), columns.tolist(), strict=True))) == len(rows)


@pytest.mark.parametrize("name", ["kernels", "int16_kernels", *SIEVES])
def test_what_was_compiled_before_any_source_changed_is_not_used(name, monkeypatch):
    """Instructions are built in other files than the functions that they become part of."""
    module = import_module(f"mitl.retrieval.{name}")
    loops = [loop for loop in vars(module).values() if hasattr(loop, "py_func")]
    assert loops
    for loop in loops:
        kept = loop._cache._cache_file
        assert kept._source_stamp == import_module("mitl.retrieval.kernels").SOURCES
        if kept._load_index():
            monkeypatch.setattr(kept, "_source_stamp", "as it was before")
            assert not kept._load_index()


def test_where_too_many_reach_the_sieve_is_left_and_memory_stays_bounded(monkeypatch):
    """Of equal vectors every pair survives: what is sifted gives up in time, and the ranking is that of a full sort."""
    rows = np.ones((300, 40), np.float32)
    product, one, other, _, exact = loaded("int16", rows, rows)
    buffers = Buffers()
    monkeypatch.setattr(product, "_patience", 3)
    for _ in range(5):
        floors = {"left": Floors(exact[:, 0], "left", slice(0, len(other)), 4096)}
        assert product.sifted(one, other, floors, buffers) is None
    assert buffers.get("rows", (2, 4096), np.int32).base.size == 2 * 4096
    with monkeypatch.context() as patch:
        patch.setattr(product._sieve, "sieve", None)  # it is no longer asked
        assert product.sifted(one, other, floors, buffers) is None
    left, right = encoded(rows), encoded(rows, "caption")

    there, back = ranked_both("int16", left, right, 25, 300, 200_000)

    assert same_bytes(there, full_sort(left, right, 25))
    assert same_bytes(back, full_sort(right, left, 300))


def test_16_bit_integers_say_what_they_need(monkeypatch):
    """AVX2, or numba at all."""
    left, right = encoded(some_vectors(1, (5, 8))), encoded(some_vectors(2, (9, 8)), "caption")
    monkeypatch.setattr("mitl.retrieval.int16_kernels.runs_here", lambda: False)
    with pytest.raises(RetrievalError, match=r"^backend 'int16' needs a processor with AVX2; use 'auto'$"):
        ranked("int16", left, right, 3)

    monkeypatch.setitem(sys.modules, "mitl.retrieval.int16_kernels", None)
    with pytest.raises(RetrievalError, match=r"^backend 'int16' needs numba, .* or install mitl\[fast\]$"):
        ranked("int16", left, right, 3)


@pytest.mark.parametrize("term", ["both losses", "one loss", "of losses"])
def test_each_loss_of_the_bound_decides(term):
    """What rounding takes from one side, from the other, and from both at once: a bound without it is broken."""
    product, one, other, tile, exact = loaded("int8", *near_ties(1100))
    off, allowed = off_by(product, one, other, tile, exact)
    lengths, losses = np.stack([one.lengths, one.losses]), np.stack([other.lengths, other.losses])
    missing = {
        "both losses": lengths[0][:, None] * losses[1] + lengths[1][:, None] * losses[0],
        "one loss": lengths[1][:, None] * losses[0] / 2,
        "of losses": lengths[1][:, None] * losses[1],
    }[term]

    assert (off <= allowed).all()
    assert (off > allowed - missing).any()


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("backend", PRODUCTS)
@pytest.mark.parametrize("positive", [False, True])
def test_a_pair_reaches_its_own_similarity(backend, side, positive):
    """Whatever it lost: where the floor of a row or column is a pair's canonical similarity, it is let through."""
    left, right = near_ties()
    if positive:  # floors, which bf16 compares by their bits
        left, right = (rows[rows.min(axis=1) > 0] for rows in (left, right))
    product, _, other, tile, exact = loaded(backend, left, right, 1 if side == "right" else None)
    pairs = exact if side == "left" else exact.T
    for number, floors in enumerate(pairs.T):
        found = product.reached(tile, Floors(floors, side, slice(0, len(other)), exact.size))

        ours, theirs = (found.rows, found.columns) if side == "left" else (found.columns, found.rows)
        mine = theirs == number
        assert set(ours[mine]) == set(range(len(floors)))
        assert (found.highest[mine] >= floors[ours[mine]]).all()


@pytest.mark.parametrize("backend", PRODUCTS)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("k", [1, 4, 12])
@pytest.mark.parametrize("rounded_up", [False, True])
def test_a_first_floor_is_reached_by_k(backend, side, k, rounded_up):
    """Near similarities that are too high by as much as they can be do not raise it too far."""
    left, right = near_ties()
    if rounded_up:  # of what nothing is lost, but sums lie just above a tie of bfloat16
        left, right = np.ones((30, 1024), np.float32), np.ones((30, 1024), np.float32)
        right[:, :528] += np.float32(2.0**-7)
    right = np.repeat(right, 3, axis=0)
    if side == "right":
        left, right = right, left
    product, _, _, tile, exact = loaded(backend, left, right, 1)

    lowest = product.seeds(tile, k, side)

    assert lowest is not None
    counts = (exact >= lowest[:, None]).sum(1) if side == "left" else (exact >= lowest).sum(0)
    assert counts.min() >= k


@pytest.mark.parametrize(
    ("near", "error", "rounding"),
    [
        (0.75, 0.125, 0.0),
        (0.75, 0.0, 0.125),
        (-0.75, 0.0, 0.125),
        (0.3, 0.1, 0.01),
        (0.5 + 2.0**-25, 0.5, 0.0),
    ],
)
@pytest.mark.parametrize("pays", [False, True])
def test_a_neighbour_whose_rival_lies_as_low_as_it_can_is_kept(near, error, rounding, pays):
    """What is best by near values has the least similarity that it can have, and another as much at most."""
    highest, lowest = (near + sign * (rounding * abs(near) + error) for sign in (1, -1))
    least = np.float32(lowest)
    least = least if least >= lowest else np.nextafter(least, np.float32(np.inf))

    class Exact:
        nearer_pays = pays

        def similarities(self, rows, positions):
            return np.full(len(rows), least)

        def nearer(self, rows, positions):
            values = least + np.where(positions == 1, 0.0625, -0.0625)
            return values.astype(np.float32), np.full(len(rows), 0.0626)

    survivors = Survivors(1, 1, 4, Exact())
    survivors.add(
        np.zeros(2, np.int64), np.array([1, 0]), np.array([highest, least]), np.array([error]), rounding
    )

    assert survivors.finish()[0].tolist() == [[0]]


def scaled_sums() -> tuple[np.ndarray, np.ndarray]:
    """Parallel vectors of whole 8-bit steps, of which nothing is lost but by the steps' own rounding."""
    rng = np.random.default_rng(0)
    whole = rng.integers(100, 128, (2000, 3))
    whole[:, 0] = 127
    right = whole * 2.0 ** rng.uniform(-7, -6, (2000, 1))
    left = right[:40] * 2.0 ** rng.uniform(0, 1, (40, 1))
    return left.astype(np.float32), right.astype(np.float32)


def test_the_roundings_of_scaled_sums_decide():
    """Where 8-bit steps lose nothing, the bound without what scaling to them and back rounds is broken."""
    product, one, other, tile, exact = loaded("int8", *scaled_sums())
    off, allowed = off_by(product, one, other, tile, exact)

    assert (off <= allowed).all()
    assert (off > allowed - (6 + 2 * 2) * UNIT * np.outer(one.lengths, other.lengths)).any()


def test_what_underflows_decides():
    """Products below 2^-126 may be taken for zeros, and so may squares in a length."""
    torch = pytest.importorskip("torch")
    tiny = np.full((1, 64), 2.0**-64, np.float32)
    product, one, other, _, exact = loaded("torch", tiny, tiny)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor takes no small numbers for zeros")
    try:
        tile = product.multiply(one, other, Buffers())
    finally:
        torch.set_flush_denormal(False)
    off, allowed = off_by(product, one, other, tile, exact)

    assert off == exact > 0
    assert off <= allowed
    assert off > allowed - 2.0**-124 * 64
    assert vectors.largest_lengths(np.full((1, 1, 64), 2.0**-80, np.float32)) >= 8 * 2.0**-80


def test_a_length_is_no_less_than_it_is():
    """Whatever a running sum of squares in float32 loses."""
    for lanes in (1, 4, 8, 16, 32, 64):
        rows = lost_in_a_sum(lanes)[0][:, None]

        assert (vectors.largest_lengths(rows) >= np.linalg.norm(rows.astype(np.float64), axis=2)[:, 0]).all()


def test_what_sums_of_rescoring_lose_is_allowed_for():
    """In float32 nearer values lie within their errors; in float64 a sum beside a tie is decided by definition."""
    for lanes in (1, 2, 4, 8, 16, 32, 64):
        left, right = lost_in_a_sum(lanes)
        query, item = left[:1].astype(np.float64), np.zeros_like(right[:1])
        query[:, 2 * lanes : -lanes] = item[:, 2 * lanes : -lanes] = (
            2.0**-27
        )  # 2^-54, which a sum from 1 on loses
        item[:, :lanes], item[:, 1 - lanes or query.size :] = 1, -1
        item[0, lanes] = 2.0**-12  # 1 + 2^-24 lies between two float32
        one, other = (
            [vectors.Vectors(encoded(side.astype(np.float32))) for side in pair]
            for pair in ((left, right), (query, item))
        )
        for sides in (one, other):
            for side in sides:
                side.lengths(side.block(slice(0, len(side))), 0)
            rows, items = np.indices((len(sides[0]), len(sides[1]))).reshape(2, -1)
            exact = canonical_similarities(sides[0].array[rows], sides[1].array[items])
            with loops(False):
                rescorer = Rescorer(*sides)
                values, errors = rescorer.nearer(rows, items)

                assert (rescorer.similarities(rows, items) == exact).all()
            assert (np.abs(values.astype(np.float64) - exact) <= errors).all()

"""Exact top-k: the same bytes whatever the backend and the block, in bounded memory, ties to the smaller id."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_kit import peaks
from suite_kit import examples
from topk_kit import Vectors, encoded, same_bytes

from annotators.base import Encoded, Ranking
from mitl.errors import RetrievalError
from mitl.progress import Advance
from mitl.records import AnnotatorKind
from mitl.retrieval import topk
from mitl.retrieval.choosing import ProductChoice
from mitl.retrieval.products import NumpyProduct, Operand
from mitl.retrieval.search import MemoryCost, plan
from mitl.retrieval.topk import top_k, top_k_both

KINDS = [AnnotatorKind.INNER_PRODUCT, AnnotatorKind.MULTI_VECTOR]


class Table(Vectors):
    """An annotator that looks its similarities up: ``arrays['row']`` of queries, ``arrays['column']`` of items."""

    def __init__(self, table: np.ndarray, kind: AnnotatorKind = AnnotatorKind.PAIRWISE) -> None:
        super().__init__(kind)
        self.table = table

    def similarities(self, queries, gallery):
        return self.table[np.ix_(queries.arrays["place"], gallery.arrays["place"])]


def vectors(seed: int, count: int, shape: tuple[int, ...], duplicates: bool = True) -> np.ndarray:
    """Random unit vectors, of which about half are copies of earlier ones."""
    rng = np.random.default_rng(seed)
    array = rng.standard_normal((count, *shape), dtype=np.float32)
    array /= np.linalg.norm(array, axis=-1, keepdims=True)
    if duplicates and count > 1:
        copies = rng.integers(0, count, count // 2)
        array[rng.integers(0, count, count // 2)] = array[copies]
    return array


def naive(queries: Encoded, gallery: Encoded, k: int) -> Ranking:
    """Sort everything by (float32 of the exactly rounded sum, id)."""
    left, right = (side.arrays["embedding"] for side in (queries, gallery))
    left, right = (a.reshape(len(a), -1, a.shape[-1]).astype(np.float64) for a in (left, right))
    similarity = np.einsum("qkd,gmd->qgkm", left, right).max(axis=(2, 3)).astype(np.float32) + np.float32(0)
    order = np.lexsort((np.broadcast_to(gallery.ids, similarity.shape), -similarity))[:, :k]
    return Ranking(queries.ids, gallery.ids[order], np.take_along_axis(similarity, order, 1))


@settings(max_examples=examples(25, 50), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    queries=st.integers(0, 15),
    items=st.integers(1, 120),
    width=st.integers(1, 70),
    kind=st.sampled_from(KINDS),
    block_bytes=st.sampled_from([1, 10_000, 40_000, 400_000]),
    data=st.data(),
)
def test_bytes_do_not_depend_on_block_size_or_backend(seed, queries, items, width, kind, block_bytes, data):
    """Small blocks or large, numpy or torch: the same bytes, with many duplicates and any k."""
    k = data.draw(st.integers(1, items))
    shape = (width,) if kind is AnnotatorKind.INNER_PRODUCT else (2, width)
    left, right = (
        encoded(vectors(seed, queries, shape)),
        encoded(vectors(seed + 1, items, shape), "caption", 5),
    )

    whole = top_k(Vectors(kind), left, right, k, backend="numpy")
    blocks = top_k(Vectors(kind), left, right, k, backend="numpy", block_bytes=block_bytes)
    torch = top_k(Vectors(kind), left, right, k, backend="torch", block_bytes=block_bytes)

    assert same_bytes(whole, blocks)
    assert same_bytes(whole, torch)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("count", "k"), [(7, 7), (600, 25), (2500, 1), (2500, 200)])
def test_agrees_with_a_full_sort_in_float64(kind, count, k):
    """Ids, order and similarities are those of sorting every pair, where float64 sums round alike."""
    shape = (48,) if kind is AnnotatorKind.INNER_PRODUCT else (2, 48)
    left, right = encoded(vectors(1, 30, shape)), encoded(vectors(2, count, shape), "caption")

    found = top_k(Vectors(kind), left, right, k)
    expected = naive(left, right, k)

    assert np.array_equal(found.item_ids, expected.item_ids)
    assert np.array_equal(found.similarities, expected.similarities)


def test_near_ties_beyond_float32_products_are_ordered_by_the_float64_sum():
    """Items whose similarities differ by one float32 step come out in the exact order, for every block size."""
    rng = np.random.default_rng(3)
    query = rng.standard_normal((1, 512), dtype=np.float32)
    gallery = np.repeat(rng.standard_normal((1, 512), dtype=np.float32), 400, axis=0)
    gallery[:, 7] += rng.integers(-3, 4, 400).astype(np.float32) * np.float32(2e-7)
    left, right = encoded(query), encoded(gallery, "caption")

    rankings = [top_k(Vectors(), left, right, 30, block_bytes=size) for size in (1, 20_000, 1 << 26)]

    assert all(same_bytes(naive(left, right, 30), ranking) for ranking in rankings)


class TruncatedProduct(NumpyProduct):
    """A product that drops the low 16 bits of its inputs, and says so."""

    name = "rough"

    def load(self, vectors, rows, side):
        exact = super().load(vectors, rows, side)
        bits = np.ascontiguousarray(exact.data).view(np.uint32) & np.uint32(0xFFFF0000)
        return Operand(bits.view(np.float32), exact.lengths, 2.0**-7 * exact.lengths)


def test_a_rough_product_with_an_honest_bound_gives_the_same_bytes(monkeypatch):
    """A backend of 8 significant bits only makes more items survive."""
    left, right = encoded(vectors(5, 60, (96,))), encoded(vectors(6, 3000, (96,)), "caption")
    exact = top_k(Vectors(), left, right, 25, backend="numpy")

    monkeypatch.setattr(topk, "choose", lambda *args: ProductChoice((TruncatedProduct(),), (114, 1)))
    rough = top_k(Vectors(), left, right, 25)

    assert same_bytes(rough, exact)


def test_a_product_through_which_nearly_everything_gets_makes_room_for_a_better_one(monkeypatch):
    """Where rescoring costs more than it saves, the next product of the ladder takes over; no byte changes."""
    used: list[str] = []

    class Wild(TruncatedProduct):
        def load(self, vectors, rows, side):
            used.append("wild")
            loaded = super().load(vectors, rows, side)
            return Operand(loaded.data, loaded.lengths, 0.5 * loaded.lengths)

    class Exact(NumpyProduct):
        def load(self, vectors, rows, side):
            used.append("exact")
            return super().load(vectors, rows, side)

    left, right = encoded(vectors(5, 40, (16,))), encoded(vectors(6, 5000, (16,)), "caption")
    exact = top_k(Vectors(), left, right, 25, backend="numpy")

    monkeypatch.setattr(topk, "choose", lambda *args: ProductChoice((Wild(), Exact()), (114, 1)))
    ranking = top_k(Vectors(), left, right, 25, block_bytes=200_000)

    assert same_bytes(ranking, exact)
    assert "exact" in used[used.index("wild") :]


def test_without_queries_the_ranking_is_empty():
    """As deep as it would be."""
    right = encoded(vectors(2, 9, (8,)), "caption")

    assert top_k(Vectors(), right.rows(slice(0, 0)), right, 3).item_ids.shape == (0, 3)


@pytest.mark.parametrize("block_bytes", [2_000, 1 << 26])
@pytest.mark.thorough(but=("67108864",))
def test_all_items_equal_gives_the_smallest_ids(block_bytes):
    """With nothing to choose by, the first k ids win; signed zeros do not tell items apart."""
    gallery = np.zeros((900, 8), np.float32)
    gallery[::3] = -0.0
    left, right = encoded(vectors(1, 20, (8,))), encoded(gallery, "caption")

    ranking = top_k(Vectors(), left, right, 10, block_bytes=block_bytes)

    assert np.array_equal(ranking.item_ids, np.tile(right.ids[:10], (20, 1)))
    assert ranking.similarities.tobytes() == np.zeros((20, 10), np.float32).tobytes()


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e15])
def test_very_short_and_very_long_vectors_are_ranked_exactly(scale):
    """The bound holds where float32 products underflow and where they are huge."""
    left = encoded(vectors(1, 9, (40,)) * np.float32(scale))
    right = encoded(vectors(2, 500, (40,)) * np.float32(scale), "caption")

    ranking = top_k(Vectors(), left, right, 12, block_bytes=30_000)

    assert same_bytes(ranking, naive(left, right, 12))


def test_half_precision_memory_maps_are_ranked_without_a_copy(tmp_path: Path):
    """A read-only float16 memory map ranks like the same numbers in float32, on both backends."""
    array = vectors(2, 700, (32,)).astype(np.float16)
    np.save(tmp_path / "gallery.npy", array)
    mapped = np.load(tmp_path / "gallery.npy", mmap_mode="r")
    left, wide = encoded(vectors(1, 20, (32,))), encoded(array.astype(np.float32), "caption")

    rankings = [
        top_k(Vectors(), left, encoded(side, "caption"), 25, backend=backend)
        for side in (mapped, np.load(tmp_path / "gallery.npy", mmap_mode="r").astype(np.float32))
        for backend in ("numpy", "torch")
    ]

    assert all(same_bytes(ranking, top_k(Vectors(), left, wide, 25)) for ranking in rankings)


SEARCHES = """
import itertools
from importlib.util import find_spec
import numpy as np
from memory_kit import peak_of
from topk_kit import Vectors, encoded, some_vectors
from mitl.retrieval.topk import top_k

backends = ["numpy", *["faiss"] * (find_spec("faiss") is not None)]
for backend, (alike, block_bytes) in itertools.product(backends, ((False, 1 << 20), (False, 4 << 20), (True, 1 << 20))):
    left = encoded(some_vectors(1, (30 if alike else 300, 64)))
    right = encoded(np.ones((10_000, 64), np.float32) if alike else some_vectors(2, (10_000, 64)), "caption")
    search = lambda: top_k(Vectors(), left, right, 25, backend=backend, block_bytes=block_bytes)
    print(block_bytes, len(left), peak_of(search))
"""


def test_memory_stays_within_a_block_and_the_result():
    """The peak does not grow with the gallery, not even when every item ties with every other."""
    found = np.array(peaks(SEARCHES)).reshape(-1, 3)

    block_bytes, queries, peak = found.T
    result, rescoring = queries * 25 * 12, np.repeat([1, 4], 3)[: len(found)] << 20  # faiss takes its own
    assert len(found) in (3, 6) and (peak < block_bytes + 2 * result + rescoring).all(), found


@given(
    queries=st.integers(1, 10**6),
    items=st.integers(1, 10**7),
    cell=st.sampled_from([0, 5, 24, 256]),
    query=st.sampled_from([64, 4096, 100_000]),
    item=st.sampled_from([0, 64, 16 * 4096]),
    threads=st.integers(1, 64),
    block_bytes=st.integers(1, 1 << 30),
)
def test_blocks_are_never_empty_and_fit_where_one_pair_fits(
    queries, items, cell, query, item, threads, block_bytes
):
    """A tile has at least one query and one item, and everything stays under the budget when that much does."""
    found = plan(
        queries, items, (1024, 2048), MemoryCost(cell, query, item), threads=threads, block_bytes=block_bytes
    )

    assert 1 <= found.rows <= found.group <= queries
    assert 1 <= found.columns <= found.span <= items
    assert 1 <= found.threads <= threads
    if found.rows * found.columns > 1:
        assert found.threads * found.rows * found.columns * cell <= block_bytes
    if found.group > 1:
        assert found.group * query <= block_bytes
    if found.span > 1:
        assert found.span * item <= block_bytes


@settings(max_examples=examples(25, 60), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    queries=st.integers(1, 12),
    items=st.integers(1, 60),
    levels=st.integers(1, 9),
    block_bytes=st.sampled_from([1, 5_000, 1 << 26]),
    kind=st.sampled_from([AnnotatorKind.PAIRWISE, AnnotatorKind.PROBABILITY]),
    data=st.data(),
)
def test_given_similarities_are_ordered_by_value_then_id(
    seed, queries, items, levels, block_bytes, kind, data
):
    """Whatever the block, an annotator's own similarities come out as a stable sort puts them."""
    k = data.draw(st.integers(1, items))
    rng = np.random.default_rng(seed)
    # Neighbouring floats from a half on, of either sign.
    table = (rng.integers(0, levels, (queries, items), np.int32) + 0x3F000000).view(np.float32)
    table *= rng.choice(np.array([-1, 1], np.float32), table.shape)
    left = Encoded("image", np.arange(queries), {"place": np.arange(queries)})
    right = Encoded("caption", np.arange(items) + 100, {"place": np.arange(items)})

    ranking = top_k(Table(table, kind), left, right, k, block_bytes=block_bytes)

    order = np.argsort(-table, axis=1, kind="stable")[:, :k]
    assert np.array_equal(ranking.item_ids, order + 100)
    assert np.array_equal(ranking.similarities, np.take_along_axis(table, order, 1))


def test_progress_counts_every_pair_once():
    """The bar is opened with all pairs and ends there."""
    told: list[int] = []

    @contextmanager
    def progress(label: str, total: int) -> Iterator[Advance]:
        told.append(-total)
        yield told.append

    left, right = encoded(vectors(1, 30, (8,))), encoded(vectors(2, 100, (8,)), "caption")
    top_k(Vectors(), left, right, 5, block_bytes=15_000, progress=progress)

    assert told[0] == -3000
    assert sum(told[1:]) == 3000
    assert len(told) > 3


def test_numpy_backend_does_not_import_torch():
    """A ranking of vectors needs numpy alone."""
    import subprocess
    import sys

    code = (
        "import sys, numpy as np\n"
        "from annotators.base import Encoded\n"
        "from mitl.records import AnnotatorKind\n"
        "from mitl.retrieval.topk import top_k\n"
        "class A: name = 'a'; kind = AnnotatorKind.INNER_PRODUCT\n"
        "e = Encoded('image', np.arange(9), {'embedding': np.eye(9, dtype=np.float32)})\n"
        "print(top_k(A(), e, e, 1).item_ids.ravel().tolist(), 'torch' in sys.modules)\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == f"{list(range(9))} False"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 50}, r"^top-k is 50, but the gallery has 40 items; ask for 40 at most$"),
        ({"k": 0}, r"^top-k is 0, but it must be at least 1$"),
        (
            {"backend": "annoy"},
            r"^no top-k backend called 'annoy'; known: auto, numpy, torch, bf16, int16, int8, cuda, fai",
        ),
        ({"block_bytes": 0}, r"^a block of 0 bytes holds nothing"),
        (
            {"gallery": encoded(vectors(2, 40, (9,)), "caption")},
            r"^query embeddings of annotator '.*' are 8 wide",
        ),
        (
            {"gallery": encoded(np.ones((40, 8)), "caption")},
            r"^caption embeddings are float64 \(40, 8\); exp",
        ),
        (
            {"queries": encoded(np.full((2, 8), 4e18, np.float32))},
            r"image 0 is not finite or longer than 1e\+19; normalise or encode again$",
        ),
        (
            {"gallery": Encoded("caption", np.arange(40)[::-1], {"embedding": vectors(2, 40, (8,))})},
            r"^gallery ids must rise, but 38 follows 39$",
        ),
        (
            {"gallery": Encoded("caption", np.arange(40), {"weights": vectors(2, 40, (8,))})},
            r"\['weights'\], but inner products need 'embedding'$",
        ),
        ({"annotator": Vectors(AnnotatorKind.RANKING)}, r"^annotator 'vectors' brings its own rankings"),
    ],
)
def test_what_cannot_be_ranked_is_said_in_one_line(change, message):
    """Each misfit names what was found and what would be right."""
    call = {
        "annotator": Vectors(),
        "queries": encoded(vectors(1, 5, (8,))),
        "gallery": encoded(vectors(2, 40, (8,)), "caption"),
        "k": 3,
    } | change

    with pytest.raises(RetrievalError, match=message):
        top_k(**call)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (np.zeros((2, 3), np.float32), r"gave similarities \(2, 3\) for 2 queries and 4 gallery items$"),
        (
            np.full((2, 4), np.nan, np.float32),
            r"gave nan for query 0 and item 0; similarities must be finite$",
        ),
    ],
)
def test_an_annotators_wrong_block_is_refused(table, message):
    """Similarities of a wrong shape or without a value are the annotator's fault, and named so."""

    class Wrong(Table):
        def similarities(self, queries, gallery):
            return self.table

    left = Encoded("image", np.arange(2), {"place": np.arange(2)})
    right = Encoded("caption", np.arange(4), {"place": np.arange(4)})

    with pytest.raises(RetrievalError, match=message):
        top_k(Wrong(table), left, right, 2)


def test_two_searches_have_bars_of_two_names():
    """Where one pass cannot serve both directions, each bar says which it is."""
    bars: list[str] = []

    @contextmanager
    def progress(label: str, total: int) -> Iterator[Advance]:
        bars.append(label)
        yield lambda units: None

    annotator = Table(np.zeros((4, 6)), AnnotatorKind.PROBABILITY)
    annotator.similarities = lambda queries, gallery: np.zeros((len(queries), len(gallery)), np.float32)
    left, right = encoded(vectors(1, 4, (8,))), encoded(vectors(2, 6, (8,)), "caption")
    top_k_both(annotator, left, right, 2, 2, progress=progress)

    assert bars == [f"rank {annotator.name} i2t", f"rank {annotator.name} t2i"]

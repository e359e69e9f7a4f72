"""The best k by faiss: its k nearest and a margin are taken, proven complete by the error bound, and rescored."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.errors import RetrievalError
from mitl.progress import Advance
from mitl.retrieval.processor import one_thread_of_blas
from mitl.retrieval.rescoring import Rescorer
from mitl.retrieval.search import Best, cut
from mitl.retrieval.survivors import Survivors
from mitl.retrieval.vectors import UNIT, Floats, Vectors, product_errors

logger = logging.getLogger(__name__)

_MARGIN = 16
"""Further neighbours that faiss is asked for."""
_ROWS, _COLUMNS = 4096, 65536
"""Queries and items that faiss looks at in one go, at most."""
_LISTED_BYTES = 100
"""What a neighbour of a query takes while it is looked at."""
_CARD_LIST = 2048
"""Neighbours that faiss lists on a card, at most."""
_SLOW = 0.5
"""Share of numpy's rate below which faiss is slow."""


def best_by_faiss(
    left: Vectors, right: Vectors, k: int, *, block_bytes: int, advance: Advance = lambda pairs: None
) -> Best:
    """The best k of the right side for each item of the left.

    An item that faiss leaves out of a list is no better than the list's last. Where that, with the error of its
    float32, may still reach the k-th best found, the query is searched again with a list twice as long.

    Raises:
        RetrievalError: faiss is not installed.
    """
    nearest = nearest_by_faiss()
    found = Best.empty(len(left), k)
    numbers = 4 * left.width
    columns = max(1, min(_COLUMNS, block_bytes // (3 * numbers * right.per_item)))
    first = (k - 1) * right.per_item + 1 + _MARGIN

    def together(listed: int) -> int:
        """Queries whose lists fit into the memory."""
        of_vector = numbers + _LISTED_BYTES * min(listed, columns * right.per_item)
        return max(1, min(_ROWS, block_bytes // (3 * of_vector * left.per_item)))

    for part in cut(0, len(left), together(first)):
        open_rows, listed = np.arange(part.start, part.stop), first
        while len(open_rows):
            complete = np.empty(len(open_rows), np.bool_)
            for some in cut(0, len(open_rows), together(listed)):
                rows = open_rows[some]
                best, complete[some] = _lists(nearest, left, right, k, rows, columns, listed)
                found.positions[rows], found.similarities[rows] = best.positions, best.similarities
            open_rows, listed = open_rows[~complete], 2 * listed
        advance((part.stop - part.start) * len(right))
    return found


def _lists(
    nearest: Nearest,
    left: Vectors,
    right: Vectors,
    k: int,
    rows: NDArray[np.int64],
    columns: int,
    listed: int,
) -> tuple[Best, NDArray[np.bool_]]:
    """The best of some queries by lists of so many vectors for each block, and for whom that is proven enough."""
    queries = np.asarray(left.array[rows], np.float32)
    lengths = left.lengths(queries, int(rows[0]))
    flat = np.ascontiguousarray(queries.reshape(-1, left.width))
    places = min(4 * (k + listed) + 64, 16 * k + 1024)
    survivors = Survivors(len(rows), k, places, Rescorer(left, right).for_rows(rows))
    unseen = np.full(len(rows), -np.inf)
    for part in cut(0, len(right), columns):
        block = np.ascontiguousarray(right.block(part))
        longest = right.lengths(block, part.start).max(keepdims=True)
        errors = product_errors(lengths, 0 * lengths, longest, 0 * longest, left.width, UNIT)[:, 0]
        items = block.reshape(-1, left.width)
        count = min(listed, len(items))
        values, places = nearest(flat, items, count)
        values, places = values.reshape(len(rows), -1), places.reshape(len(rows), -1) // right.per_item
        if count < len(items):
            last = values.reshape(len(rows), left.per_item, count)[:, :, -1].max(axis=1)
            np.maximum(unseen, last + errors, out=unseen)
        row, place, value = _best_of_each(values, places, len(block))
        survivors.add(row, place + part.start, value + errors[row], errors)
    best = Best(*survivors.finish())
    return best, best.similarities[:, -1] > unseen


def _best_of_each(
    values: Floats, places: NDArray[np.int64], items: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Each row's items once, with the largest of their values: rows (rising), items and values."""
    rows = np.repeat(np.arange(len(values)), values.shape[1])
    pairs = rows * items + places.reshape(-1)
    order = np.lexsort((-values.reshape(-1), pairs))
    pairs = pairs[order]
    first = np.flatnonzero(np.diff(pairs, prepend=-1))
    row, place = np.divmod(pairs[first], items)
    return row, place, values.reshape(-1)[order[first]]


Nearest = Callable[[NDArray[np.float32], NDArray[np.float32], int], tuple[Any, Any]]
"""(Q, D) queries, (G, D) items and n give the (Q, n) largest inner products and the places of their items."""


def nearest_by_faiss() -> Nearest:
    """What faiss searches a block with: a card, where its build and this machine have one, else the processor.

    Both add float32 in an order of their own, which the error bound allows for.

    Raises:
        RetrievalError: faiss is not installed.
    """
    faiss = import_faiss()
    by_processor: Nearest = partial(faiss.knn, metric=faiss.METRIC_INNER_PRODUCT)
    if not searches_on_card():
        warn_of_slow_blas()
        return by_processor
    by_card = partial(faiss.knn_gpu, faiss.StandardGpuResources(), metric=faiss.METRIC_INNER_PRODUCT)
    return lambda queries, items, n: (by_card if n <= _CARD_LIST else by_processor)(queries, items, n)


_FIRST_SEARCH = """
import faiss, numpy
one = numpy.eye(8, dtype=numpy.float32)
_, places = faiss.knn_gpu(faiss.StandardGpuResources(), one, one, 1, metric=faiss.METRIC_INNER_PRODUCT)
assert (places[:, 0] == range(8)).all()
"""


@cache
def searches_on_card() -> bool:
    """Whether faiss has a card, and finds there what it should, in a process of its own: wrong builds abort.

    Where it does not find it, the log says so, once.

    Raises:
        RetrievalError: faiss is not installed.
    """
    faiss = import_faiss()
    if not hasattr(faiss, "StandardGpuResources") or not faiss.get_num_gpus():
        return False
    run = [sys.executable, "-c", _FIRST_SEARCH]
    done = subprocess.run(run, capture_output=True, text=True)  # noqa: S603  # our own few lines
    if done.returncode:
        why = next((line for line in done.stderr.splitlines() if "rror" in line), f"status {done.returncode}")
        logger.warning(
            "this faiss cannot search on the card here and takes the processor (%s)", why.strip()[:200]
        )
    return not done.returncode


def import_faiss() -> Any:
    """The module; RetrievalError where it is not installed, or not with all that it loads."""
    try:
        import faiss
    except ImportError as error:
        raise RetrievalError(
            "backend 'faiss' needs faiss, which is not installed; use 'auto' or install mitl[cpu] or mitl[gpu]"
        ) from error
    except (OSError, RuntimeError) as error:  # what faiss-gpu raises where it lacks a library of CUDA
        raise RetrievalError(
            f"faiss is installed but cannot start: {error}; mend that or use 'auto'"
        ) from error
    return faiss


@cache
def warn_of_slow_blas() -> None:
    """Say so, once, where faiss multiplies at less than half of numpy's rate: its wheels bring an old BLAS."""
    share = blas_share()
    if share < _SLOW:
        logger.warning(
            "faiss multiplies at %.0f %% of numpy's rate; set OPENBLAS_CORETYPE (SkylakeX, Haswell, Zen) before "
            "starting, or use backend 'auto'",
            100 * share,
        )


def blas_share() -> float:
    """The rate of faiss's search for one neighbour, which is nearly all product, by that of numpy's; by one thread."""
    faiss = import_faiss()
    rng = np.random.default_rng(0)
    left, right = rng.random((256, 512), np.float32), rng.random((2048, 512), np.float32)
    out = np.empty((256, 2048), np.float32)
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        with one_thread_of_blas():
            by_numpy = _least_s(lambda: np.matmul(left, right.T, out=out))
            by_faiss = _least_s(lambda: faiss.knn(left, right, 1, metric=faiss.METRIC_INNER_PRODUCT))
    finally:
        faiss.omp_set_num_threads(threads)
    return by_numpy / by_faiss


def _least_s(work: Callable[[], Any]) -> float:
    times = []
    for _ in range(4):
        start = time.thread_time()
        work()
        times.append(time.thread_time() - start)
    return min(times)

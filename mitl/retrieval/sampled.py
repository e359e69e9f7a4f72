"""Inner products of chosen pairs only, by torch's product of two matrices at the places of a sparse one.

The pairs go by item, so that a vector of the gallery is fetched once for all queries of a block that chose it.
"""

from __future__ import annotations

import threading
import warnings
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.retrieval.threads import exactly, loaded_torch
from mitl.retrieval.vectors import Floats, Vectors, writeable

Places = NDArray[np.int64]

_BUNCH_BYTES = 1 << 21
"""Items that are converted to float64 at once."""
_SCATTERED = 8
"""Items per pair from which there is next to nothing to share between queries."""


class SampledProducts:
    """Inner products of rows of ``queries`` (N, D) and ``gallery`` (G, D), both contiguous float32."""

    def __init__(self, torch: Any, queries: Floats, gallery: Floats, bunch_bytes: int = _BUNCH_BYTES) -> None:
        self._torch = torch
        self._queries, self._gallery = (torch.from_numpy(writeable(side)) for side in (queries, gallery))
        self._vectors = gallery
        self._bunch = max(1, bunch_bytes // (8 * gallery.shape[1]))
        self._scratch = threading.local()

    def float32(self, rows: Places, positions: Places) -> Floats:
        """Of n pairs in order of rows: (n,), accumulated in float32."""
        first, queries = self._block(rows)
        rows = rows - first
        if len(rows) * _SCATTERED < len(self._gallery):
            return self._at(queries, self._gallery, rows, positions)
        out = np.empty(len(rows), np.float32)
        order = _order(positions)
        out[order] = self._at(self._gallery, queries, positions[order], rows[order])
        return out

    def float64(self, rows: Places, positions: Places) -> NDArray[np.float64]:
        """The same accumulated in float64."""
        first, queries = self._block(rows)
        out = np.empty(len(rows))
        order = _order(positions)
        rows, positions = rows[order] - first, positions[order]
        wide = queries.double()
        new = np.flatnonzero(np.diff(positions, prepend=-1))
        for start in range(0, len(new), self._bunch):
            begins = new[start : start + self._bunch]
            pairs = slice(
                begins[0], new[start + self._bunch] if start + self._bunch < len(new) else len(rows)
            )
            items = self._wide(positions[begins])
            place = np.repeat(np.arange(len(begins)), np.diff(begins, append=pairs.stop))
            out[order[pairs]] = self._at(items, wide, place, rows[pairs])
        return out

    def _block(self, rows: Places) -> tuple[int, Any]:
        first = int(rows.min())
        return first, self._queries[first : int(rows.max()) + 1]

    def _at(self, one: Any, other: Any, rows: Places, columns: Places) -> NDArray[Any]:
        """(n,) products of rows of one with rows of the other, in order of the rows of the one."""
        torch = self._torch
        starts = np.zeros(len(one) + 1, np.int64)
        np.cumsum(np.bincount(rows, minlength=len(one)), out=starts[1:])
        pattern = torch.sparse_csr_tensor(
            torch.from_numpy(starts),
            torch.from_numpy(columns),
            torch.zeros(len(rows), dtype=one.dtype),
            size=(len(one), len(other)),
            check_invariants=False,
        )
        with exactly():
            found: NDArray[Any] = torch.sparse.sampled_addmm(pattern, one, other.T, beta=0.0).values().numpy()
        return found

    def _wide(self, positions: Places) -> Any:
        """Items in float64, valid until this thread's next call."""
        kept = self._scratch.__dict__
        if not kept:
            shape = (self._bunch, self._vectors.shape[1])
            kept["narrow"], kept["wide"] = np.empty(shape, np.float32), np.empty(shape)
        narrow, wide = kept["narrow"][: len(positions)], kept["wide"][: len(positions)]
        np.take(self._vectors, positions, axis=0, out=narrow, mode="clip")
        np.copyto(wide, narrow)
        return self._torch.from_numpy(wide)


def sampled_products(
    queries: Vectors, gallery: Vectors, bunch_bytes: int = _BUNCH_BYTES
) -> SampledProducts | None:
    """For single vectors in float32, where torch is loaded and has the product; else None."""
    torch = loaded_torch()
    if torch is None or queries.per_item != 1 or gallery.per_item != 1 or not _works():
        return None
    sides = queries.array[:, 0], gallery.array[:, 0]
    if not all(len(side) and side.dtype == np.float32 and side.flags.c_contiguous for side in sides):
        return None
    return SampledProducts(torch, *sides, bunch_bytes)


@cache
def _works() -> bool:
    """Whether this torch multiplies so on the CPU; a first call also spends its warning of being new."""
    torch = loaded_torch()
    eye = np.eye(3, dtype=np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = SampledProducts(torch, eye, eye).float32(np.arange(3), np.arange(3))
        except (RuntimeError, AttributeError):
            return False
    return bool(np.array_equal(found, np.ones(3)))


def _order(positions: Places) -> Places:
    """What sorts positions below 2^32: they and their places in one integer, which sorts fastest."""
    keys = (positions.astype(np.uint64) << np.uint64(32)) | np.arange(len(positions), dtype=np.uint64)
    keys.sort()
    keys &= np.uint64(0xFFFFFFFF)
    return keys.view(np.int64)

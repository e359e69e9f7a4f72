"""The search on a card: no pair is lost, memory is kept to, what Triton compiles finds what torch finds."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import types
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_topk_backends import near_ties
from topk_kit import Vectors, encoded, full_sort, same_bytes, some_vectors

from annotators.base import Encoded
from mitl.retrieval import card, card_sieve, choosing, vectors
from mitl.retrieval.card_lists import CardLists, list_bytes
from mitl.retrieval.card_loading import CardSide, Loader
from mitl.retrieval.card_sieve import ROUNDOFF, CardBlock, Sieve, block_bytes, errors
from mitl.retrieval.topk import top_k_both

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def on_the_processor(monkeypatch):
    """The processor stands for the card."""
    monkeypatch.setattr(choosing, "CARD", "cpu")


def block(array: np.ndarray) -> CardBlock:
    return CardBlock.of(torch, torch.from_numpy(array if array.ndim == 3 else array[:, None]))


@pytest.mark.parametrize("width", [1, 3, 64, 1100])
def test_no_pair_is_lost_that_reaches_its_floor(width):
    """Where both sides lose as much as they can in one direction; from twice the bound on every pair is let go."""
    left, right = (block(side) for side in near_ties(width))
    exact = left.exact[:, 0].double() @ right.exact[:, 0].double().T
    allowed, sieve = errors(left, right, unit=ROUNDOFF, losses=True), Sieve(torch, CPU)

    for column in range(len(right)):
        floors = exact[:, column]
        kept = sieve.sift(left, right, floors - allowed, None, exact.numel())
        gone = sieve.sift(left, right, floors + 1.01 * allowed, None, exact.numel())
        assert kept is not None
        assert gone is not None
        found = set(zip(*(part.tolist() for part in kept), strict=True))
        assert {(row, column) for row in range(len(left))} <= found
        assert column not in gone[1].tolist()


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1.0, 1e15])
def test_halves_fill_the_range_of_float16_and_say_what_they_lose(scale):
    """Whatever the vectors' length, they lose 2^-11 of each number at most; the smallest of a block lose more."""
    array = some_vectors(3, (50, 70)) * np.float32(scale)
    array[:10] *= np.float32(2.0**-20)

    made = block(array)

    back = made.halves[0, :, :70].double().numpy() / float(made.scale)
    lost = np.linalg.norm(array - back, axis=1)
    assert (lost <= made.losses.numpy()).all()
    assert (made.losses.numpy()[10:] <= 2.0**-11 * made.lengths.numpy()[10:] + 1e-37).all()
    assert made.lengths.max() == made.most[0]


@pytest.mark.parametrize("block_bytes", [3000, 1 << 24])
@pytest.mark.thorough(but=("1*", "2*"))
def test_items_that_are_all_alike_are_found_tile_by_half_tile(block_bytes):
    """Every pair reaches every floor, so tiles are crowded and lists overflow."""
    left = encoded(np.repeat(some_vectors(1, (1, 24)), 90, axis=0))
    right = encoded(np.repeat(some_vectors(2, (1, 24)), 3000, axis=0), "caption")

    there, back = top_k_both(Vectors(), left, right, 7, 9, backend="cuda", block_bytes=block_bytes)

    assert same_bytes(there, full_sort(left, right, 7))
    assert same_bytes(back, full_sort(right, left, 9))


@pytest.mark.parametrize("places", [5, 6, 40])
def test_lists_take_more_than_they_have_room_for(places):
    """At once or in several goes, in any order: the best of each stay, ties to the smaller position."""
    rng = np.random.default_rng(places)
    row, position = rng.integers(0, 3, 500), rng.permutation(500)
    value = rng.choice(np.array([-1.5, 0.0, 0.25, 0.5], np.float32), 500)
    lists = CardLists(torch, CPU, 3 + 2, 5, places)

    for part in np.array_split(np.arange(500), 4):
        lists.add(*(torch.from_numpy(each[part]) for each in (row, position, value)), (2, 1000))

    positions, values = lists.best()
    for item in range(3):
        own = np.flatnonzero(row == item)
        best = own[np.lexsort((position[own], -value[own]))[:5]]
        assert positions[2 + item].tolist() == (position[best] + 1000).tolist()
        assert values[2 + item].tolist() == value[best].tolist()


@given(
    memory=st.integers(1 << 26, 1 << 38),
    width=st.integers(1, 4096),
    several=st.integers(1, 9),
    k=st.integers(1, 1000),
    compiled=st.booleans(),
)
def test_a_plan_fits_its_memory(memory, width, several, k, compiled):
    """Spans under way, a tile with what is made of it, its pairs, what is kept and the lists."""
    left, right = (
        vectors.Vectors(
            Encoded("image", np.arange(n), {"embedding": np.zeros((n, several, width), np.float32)})
        )
        for n in (30, 50)
    )

    made = card.plan(memory, left, right, k, compiled=compiled)

    spans = made.span * block_bytes(width, several, 4) * 10
    tile = made.span * (made.span / 8 if compiled else 10 * made.span)
    assert made.most >= made.span
    if made.span > 64:
        assert spans + tile + made.kept + 30 * list_bytes(k, 50) <= memory * 7 / 8


def test_spans_are_kept_while_memory_lasts():
    """A span that is kept is loaded once, another each time it is its turn."""
    side = vectors.Vectors(encoded(some_vectors(2, (400, 64)), "caption"))
    size = 100 * block_bytes(64, 1, 4)
    loader = Loader(torch, CPU, 2 * size + 100)
    loaded: list[slice] = []
    load = loader.load
    loader.load = lambda of, rows: loaded.append(rows) or load(of, rows)  # type: ignore[method-assign]
    spans = CardSide(side, 100, loader)

    for _ in range(3):
        for number in range(4):
            found = spans.block(number)
            assert np.array_equal(found.exact[:, 0].numpy(), side.array[number * 100 : number * 100 + 100, 0])

    assert [loaded.count(part) for part in spans.spans] == [1, 1, 3, 3]
    loader.close()


def test_loops_that_do_not_compile_are_done_without(monkeypatch, caplog):
    """One line says so, and the search goes on with torch's operations."""

    class Broken:
        def __getitem__(self, grid: tuple[int, ...]) -> None:
            raise RuntimeError("no C compiler\nand much more")

    made = types.ModuleType("mitl.retrieval.card_kernels")
    made.sift_blocks = Broken()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mitl.retrieval.card_kernels", made)
    monkeypatch.setattr("mitl.retrieval.card_kernels", made, raising=False)
    card_sieve.kernels_for.cache_clear()

    with caplog.at_level(logging.WARNING):
        assert card_sieve.kernels_for("cpu") is None
    card_sieve.kernels_for.cache_clear()

    assert caplog.messages == ["the search on cpu does without compiled loops (RuntimeError: no C compiler)"]


TRITON = pytest.mark.skipif(find_spec("triton") is None, reason="triton is missing")

INTERPRETED = """
import numpy as np, torch
from topk_kit import Vectors, encoded, full_sort, same_bytes, some_vectors
from mitl.retrieval import card, card_sieve, choosing
from mitl.retrieval.topk import top_k_both

choosing.CARD = "cpu"
loops = card_sieve.kernels_for("cpu")
assert loops is not None
card.sieve_for = lambda torch, device: card_sieve.Sieve(torch, device, compiled=loops)
for seed, shape in enumerate([(1, 1), (2, 1)]):
    left = encoded(some_vectors(seed, (30, shape[0], 70)))
    right = encoded(some_vectors(seed + 1, (150, shape[1], 70)), "caption", 5)
    there, back = top_k_both(Vectors(), left, right, 5, 3, backend="cuda")
    assert same_bytes(there, full_sort(left, right, 5)) and same_bytes(back, full_sort(right, left, 3))
"""


@TRITON
def test_compiled_loops_find_what_torch_finds():
    """As Triton's interpreter runs them, without a card."""
    kits = Path(__file__).resolve().parents[1] / "kits"
    own = {
        "TRITON_INTERPRET": "1",
        "PYTHONPATH": os.pathsep.join([str(kits), os.environ.get("PYTHONPATH", "")]),
    }
    run = [sys.executable, "-c", INTERPRETED]

    done = subprocess.run(run, env=os.environ | own, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


@TRITON
@pytest.mark.parametrize("generation", [80, 90])
def test_compiled_loops_compile_for_cards(generation):
    """To their machine code, which needs no card."""
    from triton import compile as compiled
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from mitl.retrieval import card_kernels as loops

    rows, columns, depth, stages = card_sieve._LARGE
    block = {"ROWS": rows, "COLUMNS": columns, "DEPTH": depth, "GROUP": 16, "BOTH": True, "WIDTH": 512}
    types_of = {
        loops.sift_blocks: "*fp16 *fp16 *fp32 *fp32 i32 i32 *i64 *i32 *i32",
        loops.spread_words: "*i32 *i32 *i64 *i64 *i64 i32",
        loops.dot_pairs: "*fp32 *fp32 *i64 *i64 *fp64 *fp64 *fp32 *i8 i32 fp32 i32 i32",
        loops.take_pairs: "*i64 *i64 *fp64 *i64 *i64 *fp32 *i8 i32 i32 i32",
        loops.sort_keys: "*i64 *fp64 i32",
    }
    constants = {
        loops.sift_blocks: block,
        loops.spread_words: {"ROWS": rows, "ACROSS": columns // 32, "WORDS": card_sieve._WORDS},
        loops.dot_pairs: {"ROUNDED": True, "WIDTH": 512, "PAIRS": 16, "DEPTH": 128},
        loops.take_pairs: {"ROOM": 128, "PAIRS": 1024},
        loops.sort_keys: {"K": 25, "ROOM": 128, "ITEMS": 8},
    }
    for loop, types_ in types_of.items():
        chosen = constants[loop]
        names = [name for name in loop.arg_names if name not in chosen]
        signature = dict(zip(names, types_.split(), strict=True)) | dict.fromkeys(chosen, "constexpr")
        source = ASTSource(
            fn=loop,
            signature={name: signature[name] for name in loop.arg_names},
            constexprs={(loop.arg_names.index(name),): value for name, value in chosen.items()},
        )
        warps, many = (8, stages) if loop is loops.sift_blocks else (4, 3)
        made = compiled(
            source, target=GPUTarget("cuda", generation, 32), options={"num_warps": warps, "num_stages": many}
        )
        assert made.asm["cubin"]
        assert made.metadata.shared <= card_sieve._LARGE_BYTES

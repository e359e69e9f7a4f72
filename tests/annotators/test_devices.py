"""Where work runs and with which switches: no setting of the process reaches a product, no tensor stays behind."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import torch
from topk_kit import Vectors, encoded, full_sort, same_bytes, some_vectors

from annotators import devices, match_probability, registry
from annotators.devices import device_of, full_precision
from annotators.options import Options
from mitl.cli.app import run
from mitl.datasets.scenes import generate, write_items
from mitl.errors import AnnotatorError, RetrievalError
from mitl.records import AnnotatorKind, CaptionItem, ImageItem
from mitl.retrieval import choosing, ray_cluster, vectors
from mitl.retrieval.card_sieve import Sieve
from mitl.retrieval.engines import AnnotatorRecipe, LocalEngine
from mitl.retrieval.ray_cluster import Order, Space
from mitl.retrieval.ray_engine import RayEngine
from mitl.retrieval.topk import top_k, top_k_both

MATMUL, CUDNN = torch.backends.cuda.matmul, torch.backends.cudnn


def switches() -> dict[str, Any]:
    """Everything that torch may be told about the precision of products; what contradicts itself is 'mixed'."""
    found: dict[str, Any] = {}

    def note(name: str, read: Any) -> None:
        try:
            found[name] = read()
        except RuntimeError:
            found[name] = "mixed"

    note("float32 matmul", torch.get_float32_matmul_precision)
    note("cudnn tf32", lambda: CUDNN.allow_tf32)
    note("matmul tf32", lambda: MATMUL.allow_tf32)
    for name in ("enabled", "benchmark", "deterministic"):
        found[f"cudnn {name}"] = getattr(CUDNN, name)
    for kind in ("fp16", "bf16"):
        found[f"{kind} reduction"] = getattr(MATMUL, f"allow_{kind}_reduced_precision_reduction")
    found["fp16 accumulation"] = MATMUL.allow_fp16_accumulation
    if (read := getattr(torch._C, "_get_fp32_precision_getter", None)) is not None:
        for unit, step in (("generic", "all"), ("cuda", "all"), ("mkldnn", "all"), *devices._PRECISIONS):
            found[f"{unit} {step}"] = read(unit, step)
    return found


EXACT = {
    "float32 matmul": "highest",
    "cudnn tf32": False,
    "matmul tf32": False,
    "cudnn enabled": True,
    "cudnn benchmark": False,
    "cudnn deterministic": True,
    "fp16 reduction": False,
    "bf16 reduction": False,
    "fp16 accumulation": False,
}


def assert_exact(seen: list[dict[str, Any]]) -> None:
    assert seen, "nothing was multiplied"
    for state in seen:
        assert state.items() >= EXACT.items()
        assert {state.get(f"{unit} {step}", "ieee") for unit, step in devices._PRECISIONS} == {"ieee"}


def loosen(how: str) -> None:
    """Tell torch to be as imprecise as it can, in one of its ways or in both."""
    MATMUL.allow_bf16_reduced_precision_reduction = True
    MATMUL.allow_fp16_reduced_precision_reduction = True
    MATMUL.allow_fp16_accumulation = True
    CUDNN.benchmark, CUDNN.deterministic = True, False
    if how in ("old", "both"):
        torch.set_float32_matmul_precision("medium")
        CUDNN.allow_tf32 = True
    if how in ("new", "both") and hasattr(torch.backends, "fp32_precision"):
        torch.backends.fp32_precision = "tf32"
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        torch.backends.mkldnn.matmul.fp32_precision = "ieee" if how == "both" else "bf16"


@pytest.fixture(params=["as installed", "old", "new", "both"])
def owner(request):
    """Whoever owns the process has set torch's switches; they are as at the start afterwards."""
    start = switches()
    if request.param == "as installed":
        yield request.param
        assert switches() == start
        return
    known = ExitStack()
    devices._switch(known)
    loosen(request.param)
    chosen = switches()
    yield request.param
    assert switches() == chosen
    if hasattr(torch.backends, "fp32_precision"):
        torch.backends.fp32_precision = "none"
    known.close()
    assert switches() == start


def test_every_switch_is_set_within_and_comes_back(owner):
    """By whichever of torch's two ways they were set, also where those contradict each other."""
    before = switches()

    with full_precision():
        within = switches()

    assert_exact([within])
    assert switches() == before


def test_the_last_user_on_any_thread_sets_the_switches_back(owner):
    """One who leaves early takes nothing away from another."""
    before, entered, leave = switches(), threading.Event(), threading.Event()
    seen = []

    def stay() -> None:
        with full_precision():
            entered.set()
            leave.wait()
            seen.append(switches())

    other = threading.Thread(target=stay)
    with full_precision():
        other.start()
        entered.wait()
    leave.set()
    other.join()

    assert_exact(seen)
    assert switches() == before


@pytest.fixture
def seen(monkeypatch) -> list[dict[str, Any]]:
    """The switches at the moment of every product of torch's, on whichever thread."""
    found: list[dict[str, Any]] = []

    def noting(function: Any) -> Any:
        def noted(*args: Any, **options: Any) -> Any:
            if any(isinstance(one, torch.Tensor) and one.is_floating_point() for one in args):
                found.append(switches())
            return function(*args, **options)

        return noted

    for owner_, name in (
        (torch, "mm"),
        (torch.Tensor, "__matmul__"),
        (torch.nn.functional, "linear"),
        (torch.nn.functional, "scaled_dot_product_attention"),
        (torch.sparse, "sampled_addmm"),
        (torch.nn.Conv2d, "forward"),
        (torch.nn.GRU, "forward"),
        (torch.nn.Linear, "forward"),
    ):
        monkeypatch.setattr(owner_, name, noting(getattr(owner_, name)))
    return found


def on_the_processor(monkeypatch) -> None:
    """``cuda`` runs on the CPU."""
    monkeypatch.setattr(choosing, "CARD", "cpu")


@pytest.mark.parametrize("backend", ["torch", "bf16", "cuda"])
def test_products_of_a_search_are_made_with_every_switch_set(owner, seen, backend, monkeypatch):
    """On all threads of the search, both ways; without the compiled loops their rescoring too."""
    on_the_processor(monkeypatch)
    monkeypatch.setattr("mitl.retrieval.processor._loops", None)
    monkeypatch.setattr("mitl.retrieval.processor.STARTING_WORK", float("inf"))
    left, right = encoded(some_vectors(1, (40, 24))), encoded(some_vectors(2, (900, 24)), "caption")

    found = top_k(Vectors(), left, right, 5, backend=backend)
    top_k_both(Vectors(), left, right, 5, 5, backend=backend)

    assert same_bytes(found, full_sort(left, right, 5))
    assert_exact(seen)


def test_probes_and_pcmes_products_are_made_with_every_switch_set(owner, seen):
    """What chooses a product, and both of PCME's uses of torch."""
    choosing.speeds.cache_clear()
    choosing.speeds(32, compiled=False, with_torch=True)
    rng = np.random.default_rng(0)
    left, right = (rng.normal(size=(n, 2, 16)).astype(np.float32) for n in (3, 5))
    squares = [match_probability.squared_lengths(side) for side in (left, right)]
    out, odds = np.empty((3, 5), np.float32), match_probability.Odds(15, 15)
    sides = [match_probability.SampleSet.of(side) for side in (left, right)]
    match_probability._fill_on_device(torch.device("cpu"), out, *sides, odds)
    match_probability.probabilities_of_one(left[0], squares[0][0], right, squares[1], odds)

    assert_exact(seen)


@pytest.fixture(scope="module")
def items(tmp_path_factory) -> tuple[list[ImageItem], list[CaptionItem]]:
    """A small world's pictures and captions."""
    return write_items(generate(3, seed=5, split="check"), tmp_path_factory.mktemp("world"))


@pytest.mark.parametrize("name", ["pvse", "vsrn", "pcme", "vilt", "clip"])
def test_networks_run_with_every_switch_set(owner, seen, name, items):
    """Convolutions, recurrent layers, attention and products, on our threads too; cuDNN stays on."""
    annotator = registry.build(f"{name}-mini", {"device": "cpu"})
    seen.clear()

    sides = annotator.encode_images(items[0]), annotator.encode_captions(items[1])
    annotator.similarities(*sides)

    assert_exact(seen)


FRESH = """
import sys, json, numpy as np
from annotators.base import Encoded
from mitl.records import AnnotatorKind
from mitl.retrieval import choosing, topk
from mitl.retrieval.topk import top_k

class Files: name = "files"; kind = AnnotatorKind.INNER_PRODUCT

sides = [Encoded(n, np.arange(len(a)), {"embedding": a}) for n in ("image", "caption")
         for a in [np.load(f"{sys.argv[1]}/{n}.npy", mmap_mode="r")]]
assert "torch" not in sys.modules
seen = []

def choose(*args):
    chosen = known(*args)
    import torch
    torch.set_num_threads(3)
    torch.set_float32_matmul_precision("medium")
    matmul = torch.backends.cuda.matmul
    matmul.allow_bf16_reduced_precision_reduction = matmul.allow_fp16_reduced_precision_reduction = True
    known_mm = torch.mm

    def mm(*args, **options):
        seen.append([matmul.allow_bf16_reduced_precision_reduction, matmul.allow_fp16_reduced_precision_reduction,
                     matmul.allow_tf32, torch.get_float32_matmul_precision(), torch.get_num_threads()])
        return known_mm(*args, **options)

    torch.mm = mm
    return chosen

known, topk.choose = topk.choose, choose
choosing.CARD = "cpu"
top_k(Files(), *sides, 5, backend=sys.argv[2])
import torch
after = torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction, torch.get_float32_matmul_precision()
print(json.dumps([seen, after]))
"""


@pytest.mark.parametrize("backend", ["torch", "bf16", "cuda"])
@pytest.mark.thorough
def test_embeddings_from_files_are_multiplied_with_every_switch_set(backend, tmp_path: Path):
    """In a fresh process nothing has imported torch before the search chooses its product; the bound must hold then."""
    for name, count in (("image", 30), ("caption", 700)):
        np.save(tmp_path / f"{name}.npy", some_vectors(count, (count, 16)))

    run = [sys.executable, "-c", FRESH, str(tmp_path), backend]
    done = subprocess.run(run, capture_output=True, text=True, check=True)

    states, after = json.loads(done.stdout)
    assert states
    assert all(state[:4] == [False, False, False, "highest"] for state in states)
    if backend != "cuda":
        assert states[-1][4] == 1, "each of our threads has one of torch's"
    assert after == [True, "medium"]


def asked(device: object) -> Options:
    return Options("clip", {"device": device})


@pytest.mark.parametrize(
    "name", ["mps", "xpu", "meta", "gpu", "cuda:x", "cuda:9", "cuda", "cpu:1", "CUDA", "cuda:-1", "", 0]
)
def test_a_device_that_is_not_there_is_one_clear_line(name, monkeypatch):
    """Whatever torch would make of the word: what was asked, and what there is."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(AnnotatorError, match=r"^'device' of annotator 'clip' is .*; it should be ") as caught:
        device_of(asked(name))

    assert "\n" not in str(caught.value)
    if name:
        assert str(caught.value) == (
            f"'device' of annotator 'clip' is {name!r}; it should be one of auto, cpu "
            "(torch sees no CUDA device here)"
        )


def test_cards_are_named_by_their_numbers(monkeypatch):
    """``auto`` takes a card where there is one; a number beyond them is refused with those there are."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)

    assert device_of(asked("auto")).type == "cuda"
    assert device_of(asked("cuda:1")) == torch.device("cuda:1")
    assert device_of(asked("cpu")) == torch.device("cpu")
    with pytest.raises(
        AnnotatorError, match=r"'cuda:9'; it should be one of auto, cpu, cuda, cuda:0, cuda:1$"
    ):
        device_of(asked("cuda:9"))


@pytest.fixture
def card(monkeypatch):
    """torch says that it sees a card, which is this processor and as fast as ``speed`` says."""
    on_the_processor(monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    measured = choosing.card_speed
    measured.cache_clear()
    yield monkeypatch
    measured.cache_clear()


def test_auto_takes_a_card_where_it_is_faster_and_says_so(card):
    """For a search that is worth it; a slow card is left alone, and so is a fast one for a small search."""
    many = [encoded(some_vectors(seed, (8000, 64))) for seed in (1, 2)]
    tasks = [choosing.SearchTask(*map(vectors.Vectors, many), 9, back) for back in (None, 9)]
    card.setattr(choosing, "PROBE_WORK", 1.0)

    for speed, least, taken in ((1e6, 1.0, True), (1e-6, 1.0, False), (1e6, 1e12, False)):
        card.setattr(choosing, "card_speed", lambda width, speed=speed: speed)
        card.setattr(choosing, "CARD_WORK", least)
        for task in tasks:
            assert (choosing.choose("auto", task).device is not None) == taken

    card.setattr(choosing, "CARD_WORK", 1.0)
    left, right = many[0].rows(slice(0, 9)), many[1].rows(slice(0, 2000))
    engine = LocalEngine()
    assert same_bytes(*engine.rank(Vectors(), (left, right), (1,)), full_sort(left, right, 1))
    assert engine.used == {"cuda"}


def test_a_cards_speed_is_measured_and_one_that_breaks_its_bound_is_not_used(card):
    """Against one thread of numpy's product; without a card, or with one that multiplies wrongly, it is 0."""
    card.setattr(choosing, "_CARD_PROBE", (256, 1024))
    assert choosing.card_speed(16) > 0

    class Wrong(Sieve):
        def sift(self, *args: Any) -> Any:
            rows, columns = super().sift(*args)
            kept = (rows != rows[0]) | (columns % 2 == 0)  # every second pair of one query is lost
            return rows[kept], columns[kept]

    choosing.card_speed.cache_clear()
    card.setattr("mitl.retrieval.card.sieve_for", Wrong)
    assert choosing.card_speed(16) == 0
    choosing.card_speed.cache_clear()
    card.setattr(torch.cuda, "is_available", lambda: False)
    assert choosing.card_speed(16) == 0


FULL = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 15.77 GiB of which 1.13 GiB is "
    "free. Including non-PyTorch memory, this process has 14.63 GiB memory in use."
)


@pytest.mark.parametrize(
    ("said", "told"),
    [(FULL, ": 2.50 GiB more were asked for, 1.13 GiB are free"), ("CUDA error: out of memory", "")],
)
def test_a_card_whose_memory_is_full_is_one_clear_line(said, told, capsys):
    """Whatever the command was doing there: how much was asked for, how much was free, what to do."""

    @click.group()
    def group() -> None:
        pass

    @group.command()
    def propose() -> None:
        raise torch.OutOfMemoryError(said)

    assert run(group, ["propose"]) == 1
    assert capsys.readouterr().err == (
        f"error: the GPU's memory is full{told}; end what else uses it, give the annotator a smaller 'batch' or "
        "device = 'cpu', or search with --backend numpy\n"
    )


class Cluster:
    """Says what it was asked for."""

    def __init__(self, gpus: int) -> None:
        self.gpus = gpus
        self.asked: list[tuple[str, int, bool]] = []

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Resources": {"CPU": 4, "GPU": self.gpus}}, {"Resources": {"CPU": 4}}]

    def remote(self, function: Any, cores: int, *, gpu: bool) -> Any:
        self.asked.append((function.__name__, cores, gpu))
        return function


def ray(gpus: int, backend: Any = "auto", **config: object) -> tuple[RayEngine, Order]:
    engine = RayEngine({"pcme": AnnotatorRecipe("pcme", config)}, backend=backend)
    engine._cluster = Cluster(gpus)  # type: ignore[assignment]

    class Pcme:
        name, kind, fingerprint, reusable_encodings = "pcme", AnnotatorKind.PROBABILITY, "f", True

    order = engine._asked(Pcme())  # type: ignore[arg-type]
    assert isinstance(order, Order)
    return engine, order


SPACE = Space("clip", AnnotatorKind.INNER_PRODUCT, "f")


@pytest.mark.parametrize(
    ("gpus", "device", "wanted"),
    [(1, "auto", True), (1, "cuda", True), (1, "cuda:3", True), (1, "cpu", False), (0, "auto", False)],
)
def test_a_worker_that_rebuilds_a_network_has_what_it_needs(gpus, device, wanted):
    """Encoding, scoring, and a tile for which PCME is rebuilt, ask for a card and the network's threads alike."""
    engine, order = ray(gpus, device=device, threads=3)

    for work in (
        ray_cluster.encode_chunk,
        ray_cluster.score_pairs,
        ray_cluster.search_tile,
    ):
        assert engine._remote(work, order)[1] == 3

    assert {asked[1:] for asked in engine._cluster.asked} == {(3, wanted)}  # type: ignore[attr-defined]
    assert order.recipe.config["device"] == ("cuda" if device == "cuda:3" else device)


@pytest.mark.parametrize(
    ("gpus", "backend", "wanted"),
    [(1, "auto", True), (1, "cuda", True), (1, "bf16", False), (0, "auto", False)],
)
def test_a_search_among_vectors_asks_for_a_card_where_one_may_be_used(gpus, backend, wanted):
    """``auto`` chooses on the worker, which sees only the cards that it was given."""
    engine, _ = ray(gpus, backend)

    engine._remote(ray_cluster.search_tile, SPACE)

    assert engine._cluster.asked == [("search_tile", 1, wanted)]  # type: ignore[attr-defined]


def test_a_cluster_without_a_card_is_not_waited_for():
    """ray would keep work that needs one for ever."""
    engine, order = ray(0, "cuda", device="cuda")

    with pytest.raises(
        RetrievalError, match=r"^device 'cuda' of annotator 'pcme' needs a machine of the ray"
    ):
        engine._remote(ray_cluster.encode_chunk, order)
    with pytest.raises(
        RetrievalError, match=r"^backend 'cuda' needs a machine of the ray cluster with a GPU"
    ):
        engine._remote(ray_cluster.search_tile, SPACE)


@pytest.mark.thorough
def test_the_check_of_a_card_says_that_there_is_none():
    """`make gpu-check` fails in one line, for nothing was checked."""
    if torch.cuda.is_available():
        pytest.skip("there is a card")
    folder = Path(__file__).resolve().parents[2] / "benchmarks"

    done = subprocess.run([sys.executable, "gpu_check.py"], cwd=folder, capture_output=True, text=True)

    assert done.returncode == 1
    assert (done.stdout, done.stderr) == ("", "torch sees no CUDA device here, so nothing was checked\n")

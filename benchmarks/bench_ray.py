"""How the engine of Ray workers scales over 1, 2 and 4 machines of a simulated cluster.

    python benchmarks/bench_ray.py

Each machine is a Ray node of this one, with one core and processes of its own. This shows what giving out and
collecting work costs, not how fast a processor is: the stand-in annotator waits a fixed time a chunk of captions, a
unit of pairs and a tile of a search, as a machine waits for its card, so that more workers than cores can be looked
at. The annotator that judges pairs is the real one, and the server that it asks takes the same time for the four calls
of a unit. The baseline is one worker of the same run; at n workers 1.00 would be an n-th of its time. All results are
compared with those of this process.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from annotators.base import Encoded
from mitl.records import AnnotatorKind, CaptionItem
from mitl.retrieval import ray_engine
from mitl.retrieval.engines import AnnotatorRecipe, LocalEngine
from mitl.retrieval.pair_scores import Unit
from mitl.retrieval.ray_engine import RayEngine

MACHINES = (1, 2, 4)
WIDTH, UNIT_PAIRS, JUDGED_PAIRS = 64, 512, 2


class Waiting:
    """Vectors drawn from ids, and scores of pairs, each after a wait."""

    kind = AnnotatorKind.PROBABILITY
    reusable_encodings = True
    is_exact = True
    fingerprint = "waiting"

    def __init__(self, name: str, wait_s: float) -> None:
        self.name, self._wait_s = name, wait_s

    def encode_captions(self, items: Sequence[CaptionItem]) -> Encoded:
        """A vector a caption."""
        time.sleep(self._wait_s)
        return vectors("caption", np.array([item.id for item in items], np.int64))

    encode_images = encode_captions

    def scores(
        self,
        images: Encoded,
        captions: Encoded,
        image_rows: NDArray[np.int64],
        caption_rows: NDArray[np.int64],
    ) -> NDArray[np.float32]:
        """The inner products of pairs."""
        time.sleep(self._wait_s)
        left, right = (side.arrays["embedding"] for side in (images, captions))
        products: NDArray[np.float32] = (left[image_rows] * right[caption_rows]).sum(1)
        return products

    def similarities(self, queries: Encoded, gallery: Encoded) -> NDArray[np.float32]:
        """The inner products of all pairs, summed as ``scores`` does."""
        time.sleep(self._wait_s)
        left, right = queries.arrays["embedding"], gallery.arrays["embedding"]
        return np.stack([(row * right).sum(1) for row in left])


class Recipe(AnnotatorRecipe):
    """Builds it in a worker."""

    def build(self) -> Any:
        """The stand-in."""
        return Waiting(self.name, float(self.config["wait_s"]))


def vectors(modality: Any, ids: NDArray[np.int64]) -> Encoded:
    """A vector an id."""
    rows = np.sin(np.outer(ids, np.arange(1, WIDTH + 1))).astype(np.float32)
    return Encoded(modality, ids, {"embedding": rows})


@contextmanager
def model_server(wait_s: float) -> Iterator[AnnotatorRecipe]:
    """A server whose model is as sure as its question is long, and the annotator that asks it one call at a time."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

        def do_POST(self) -> None:
            time.sleep(wait_s)
            length = int(self.headers["Content-Length"])
            self.rfile.read(length)
            tops = [{"token": "A", "logprob": -length / 5000}]
            said = json.dumps({"choices": [{"logprobs": {"content": [{"top_logprobs": tops}]}}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        yield AnnotatorRecipe("judge", {"chat": url, "model": "seer", "requests": 1})
        server.shutdown()


def judging(recipe: AnnotatorRecipe, units: int) -> Callable[[LocalEngine], Any]:
    """Pairs of pictures and captions, a few a unit."""
    judge: Any = recipe.build()
    texts = [CaptionItem(n, str(n), 1, "caption " * n) for n in range(1, 41)]
    pictures = {"jpeg": np.ones((40, 2000), np.uint8), "length": np.arange(1, 41) * 50}
    images = Encoded("image", np.arange(1, 41), pictures)
    captions = judge.encode_captions(texts)
    rows = np.arange(units * JUDGED_PAIRS).reshape(units, -1)
    pairs = [Unit(n, row // 40 % 40, row % 40) for n, row in enumerate(rows)]

    def judged(engine: LocalEngine) -> Any:
        found = {unit.number: unit.scores for unit in engine.score(judge, images, captions, pairs)}
        return [found[number] for number in range(units)]

    return judged


def stages(wait_s: float, units: int) -> dict[str, Callable[[LocalEngine], Any]]:
    """Stage → its work on an engine, whose results can be compared."""
    waiting: Any = Waiting("waiting", wait_s)
    texts = [CaptionItem(i + 1, str(i), 1, f"caption {i}") for i in range(8 * units)]
    chunks = [(number, texts[8 * number : 8 * number + 8]) for number in range(units)]
    images, captions = (vectors(side, np.arange(1, 401)) for side in ("image", "caption"))
    draw = np.random.default_rng(0)
    pairs = [
        Unit(n, np.sort(draw.integers(0, 400, UNIT_PAIRS)), draw.integers(0, 400, UNIT_PAIRS))
        for n in range(units)
    ]

    def encode(engine: LocalEngine) -> Any:
        found = dict(engine.encode(waiting, "caption", chunks))
        return [found[number].arrays["embedding"] for number in range(units)]

    def score(engine: LocalEngine) -> Any:
        found = {unit.number: unit.scores for unit in engine.score(waiting, images, captions, pairs)}
        return [found[number] for number in range(units)]

    def search(engine: LocalEngine) -> Any:
        there, back = engine.rank(waiting, (images, captions), (10, 10))
        return [there.item_ids, back.item_ids]

    return {"encode": encode, "score pairs": score, "search both ways": search}


@contextmanager
def cluster(machines: int) -> Iterator[Any]:
    """That many nodes of one core each."""
    from ray.cluster_utils import Cluster

    size = {"num_cpus": 1, "object_store_memory": 80 << 20}
    made = Cluster(initialize_head=True, head_node_args={**size, "include_dashboard": False})
    try:
        for _ in range(machines - 1):
            made.add_node(**size)
        yield made
    finally:
        made.shutdown()


def timed(work: Callable[[LocalEngine], Any], engine: LocalEngine) -> tuple[float, Any]:
    """Seconds and results."""
    start = time.perf_counter()
    made = work(engine)
    return time.perf_counter() - start, made


@click.command(help=__doc__)
@click.option("--wait-ms", default=500, help="What a unit of work takes.")
@click.option("--units", default=64, help="Units of each stage.")
def main(wait_ms: int, units: int) -> None:
    """Print a row a stage."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).resolve().parents[1]), *sys.path])
    # Tiles of 50 x 50, for as many units as the other stages have.
    ray_engine.TILE_QUERIES = ray_engine.TILE_ITEMS = 4 * 400 // round(units**0.5)
    seconds: dict[str, list[float]] = {}
    with model_server(0) as recipe:
        expected = {name: stage(LocalEngine()) for name, stage in stages(0, units).items()}
        expected["judge pairs"] = judging(recipe, units)(LocalEngine())
    with model_server(wait_ms / 1000 / (2 * JUDGED_PAIRS)) as recipe:
        work = {**stages(wait_ms / 1000, units), "judge pairs": judging(recipe, units)}
        recipes = {
            "waiting": Recipe("waiting", {"wait_s": wait_ms / 1000, "threads": 1}),
            "judge": recipe,
        }
        for machines in MACHINES:
            with cluster(machines) as nodes, RayEngine(recipes, address=nodes.address) as engine:
                # Workers start, and read what they need, before the clock does.
                warm: Any = Waiting("waiting", 0)
                list(engine.encode(warm, "caption", [(number, []) for number in range(8 * machines)]))
                for name, stage in work.items():
                    took, made = timed(stage, engine)
                    assert all(map(np.array_equal, made, expected[name])), name
                    seconds.setdefault(name, []).append(took)
    print(f"{units} units of {wait_ms} ms a stage; seconds, and n times those over one worker's")
    print("| stage |" + "".join(f" {n} |" for n in MACHINES))
    print("| --- |" + " ---: |" * len(MACHINES))
    for name, took in seconds.items():
        cells = (f" {s:.1f} ({n * s / took[0]:.2f}) |" for n, s in zip(MACHINES, took, strict=True))
        print(f"| {name} |" + "".join(cells))


if __name__ == "__main__":
    main()

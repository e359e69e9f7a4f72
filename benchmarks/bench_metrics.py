"""All official metrics against the eccv_caption package: from arrays, from its own lists, from embeddings.

Images and captions of the COCO test split get random embeddings of a realistic accuracy, and from them the full
rankings of both directions. Three processes then score the same rankings:

* ``lists``: the package on its dicts of lists (some 10 GB at full depth), ours on the same lists and on arrays, metric
  by metric in turn;
* ``arrays``: ours on arrays alone, for its memory;
* ``embeddings``: ours on the embeddings alone.

Seconds are of the processor (both sides use one thread but for products, so a busy machine does not favour either);
the wall's stand beside them for whole calls. The least of the rounds counts. Memory is what a call needed at most
beyond what was there before it, measured by the kernel. ``--depth`` cuts the rankings, for a look in seconds.

    python benchmarks/bench_metrics.py
    python benchmarks/bench_metrics.py --depth 200 --rounds 3
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mitl.metrics import EmbeddingSet, official_sets, score_official_embeddings
from mitl.metrics.compat import Metrics

KS = (1, 5, 10)
EVERYTHING = (
    "coco_1k_recalls",
    "coco_5k_recalls",
    "cxc_recalls",
    "eccv_map_at_r",
    "eccv_rprecision",
    "eccv_r1",
)
ONE_BY_ONE = [
    *(
        (name, (k,))
        for name in ("coco_1k_recalls", "coco_5k_recalls", "cxc_recalls", "eccv_recalls")
        for k in KS
    ),
    ("eccv_metrics", ()),
]
_NOISE = 6.0
"""Of a caption's embedding, in units of its image's: Recall@1 of some 50 % at a width of 512."""
_BLOCK = 500
_MIB = 1 << 20


@dataclass
class Cost:
    """The least of some rounds: seconds of the processor and of the wall, and the most memory in MiB."""

    cpu_s: float
    wall_s: float
    mib: float


def main() -> None:
    """Run the three processes and print one table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--rounds", type=int, default=5, help="rounds of ours, and of the package's fast metrics"
    )
    parser.add_argument(
        "--slow-rounds", type=int, default=1, help="rounds of the package's whole call and COCO 1K"
    )
    parser.add_argument("--depth", type=int, default=0, help="cut the rankings there; 0 keeps them whole")
    parser.add_argument("--width", type=int, default=512, help="numbers of an embedding")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--process", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.process:
        print(json.dumps(PROCESSES[arguments.process](arguments)))
        return
    with tempfile.TemporaryDirectory() as folder:
        found = {name: run(name, folder) for name in PROCESSES}
    show(arguments, found)


def run(name: str, folder: str) -> Any:
    """What another process of this script found."""
    command = [sys.executable, __file__, *sys.argv[1:], "--process", name, "--folder", folder]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def prepare(arguments: argparse.Namespace) -> dict[str, float]:
    """Embeddings and their full rankings, as files."""
    sets = official_sets()
    rng = np.random.default_rng(arguments.seed)
    owner = np.searchsorted(sets.image_ids, sets.positives["coco_5k", "t2i"].item_ids)
    images = rng.standard_normal((len(sets.image_ids), arguments.width), np.float32)
    captions = images[owner] + _NOISE * rng.standard_normal((len(owner), arguments.width), np.float32)
    images /= np.linalg.norm(images, axis=1, keepdims=True)
    captions /= np.linalg.norm(captions, axis=1, keepdims=True)
    np.savez(arguments.folder / "embeddings.npz", images=images, captions=captions)
    start = time.process_time()
    rank(images, captions, sets.caption_ids, arguments.depth, arguments.folder / "i2t.npy")
    rank(captions, images, sets.image_ids, arguments.depth, arguments.folder / "t2i.npy")
    return {"cpu_s": time.process_time() - start}


def rank(queries: np.ndarray, gallery: np.ndarray, ids: np.ndarray, depth: int, path: Path) -> None:
    """Full rankings, ties to the smaller id, by sorting everything as scripts do."""
    out = np.empty((len(queries), depth or len(gallery)), np.int32)
    wide = gallery.astype(np.float64).T
    for start in range(0, len(queries), _BLOCK):
        part = slice(start, start + _BLOCK)
        similarities = (queries[part].astype(np.float64) @ wide).astype(np.float32)
        out[part] = ids[np.argsort(-similarities, axis=1, kind="stable")[:, : out.shape[1]]]
    np.save(path, out)


def lists(arguments: argparse.Namespace) -> dict[str, Any]:
    """The package and ours on the same lists, and ours on arrays, in turn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns about optional packages at import
        import eccv_caption
    theirs, ours = eccv_caption.Metrics(), metrics_for(arguments)
    arrays = load(arguments.folder)
    tables: dict[str, dict[int, list[int]]] = {}

    def make() -> None:
        for side, (queries, rows) in arrays.items():
            tables[side] = {int(q): row.tolist() for q, row in zip(queries, rows, strict=True)}

    costs: dict[str, Any] = {"input": asdict(measured(make, 1)[0])}
    sides = {"theirs": (theirs, tables), "lists": (ours, tables), "arrays": (ours, arrays)}
    whole = {}
    for name, (metrics, given) in sides.items():
        rounds = arguments.slow_rounds if name == "theirs" else arguments.rounds
        cost, whole[name] = measured(
            lambda metrics=metrics, given=given: metrics.compute_all_metrics(
                given["i2t"], given["t2i"], EVERYTHING, KS
            ),
            rounds,
        )
        costs[name] = asdict(cost)
    differences = [
        abs(whole["theirs"][key][side] - whole[name][key][side])
        for name in ("lists", "arrays")
        for key in whole["theirs"]
        for side in arrays
    ]
    costs["difference"], costs["numbers"] = max(differences), len(differences) // 2
    costs["scores"] = whole["arrays"]
    costs["one by one"] = {}
    for method, values in ONE_BY_ONE:
        least: dict[str, float] = {}
        for turn in range(arguments.rounds):
            for name, (metrics, given) in sides.items():
                if name == "theirs" and method == "coco_1k_recalls" and turn >= arguments.slow_rounds:
                    continue
                call = getattr(metrics, method)
                cost = measured(lambda call=call, given=given, values=values: call(given, "all", *values), 1)[
                    0
                ]
                least[name] = min(cost.cpu_s, least.get(name, np.inf))
        costs["one by one"][f"{method}({', '.join(map(str, values))})"] = least
    return costs


def arrays_alone(arguments: argparse.Namespace) -> dict[str, Any]:
    """Ours on arrays, in a process that holds nothing else."""
    metrics, arrays = metrics_for(arguments), load(arguments.folder)
    cost, _ = measured(
        lambda: metrics.compute_all_metrics(arrays["i2t"], arrays["t2i"], EVERYTHING, KS), arguments.rounds
    )
    return asdict(cost)


def embeddings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Ours on embeddings, and the product of all pairs beside it."""
    sets = official_sets()
    with np.load(arguments.folder / "embeddings.npz") as file:
        images, captions = file["images"], file["captions"]
    left, right = EmbeddingSet(sets.image_ids, images), EmbeddingSet(sets.caption_ids, captions)
    cost, found = measured(lambda: score_official_embeddings(left, right), arguments.rounds)
    product = measured(lambda: images @ captions.T, arguments.rounds)[0]
    names = {"R-Precision": "rprecision", "mAP@R": "map_at_r"}
    scores: dict[str, dict[str, float]] = {}
    for (name, side), values in found.items():
        for each in values:
            key = f"{name}_{names.get(each.metric, each.metric.lower().replace('@', ''))}"
            scores.setdefault(key, {})[side] = each.estimate
    return {**asdict(cost), "product": asdict(product), "scores": scores}


def metrics_for(arguments: argparse.Namespace) -> Metrics:
    """Ours; rankings that were cut may end before a fold is decided, which the package counts as a miss."""
    return Metrics(short="zero" if arguments.depth else "raise")


def load(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The rankings as (query ids, items)."""
    sets = official_sets()
    return {
        "i2t": (sets.image_ids, np.load(folder / "i2t.npy")),
        "t2i": (sets.caption_ids, np.load(folder / "t2i.npy")),
    }


def measured(work: Callable[[], Any], rounds: int) -> tuple[Cost, Any]:
    """The least cost of some rounds, and what the last one gave."""
    costs = []
    for _ in range(rounds):
        Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
        before, cpu, wall = memory("VmRSS"), time.process_time(), time.perf_counter()
        with contextlib.redirect_stderr(io.StringIO()):  # a progress bar that cannot be turned off
            found = work()
        costs.append(Cost(time.process_time() - cpu, time.perf_counter() - wall, memory("VmHWM") - before))
    return Cost(
        min(cost.cpu_s for cost in costs), min(cost.wall_s for cost in costs), max(cost.mib for cost in costs)
    ), found


def memory(name: str) -> float:
    """Of this process in MiB, as the kernel counts it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024 / _MIB
    raise RuntimeError(f"the kernel does not tell {name}")


PROCESSES: dict[str, Callable[[argparse.Namespace], Any]] = {
    "prepare": prepare,
    "lists": lists,
    "arrays": arrays_alone,
    "embeddings": embeddings,
}


def show(arguments: argparse.Namespace, found: dict[str, Any]) -> None:
    """One table of whole calls, one of single metrics."""
    costs, alone, straight = found["lists"], found["arrays"], found["embeddings"]
    theirs, made = costs["theirs"], costs["input"]
    depth = arguments.depth or "whole"
    print(f"5,000 x 25,000 both ways, depth {depth}, {costs['numbers']} numbers, width {arguments.width}")
    print(f"{'whole call':44} {'cpu s':>8} {'wall s':>8} {'MiB':>8} {'ratio':>7}")

    def line(name: str, cost: dict[str, float], base: float) -> None:
        ratio = f"{base / cost['cpu_s']:7.1f}"
        print(f"{name:44} {cost['cpu_s']:8.3f} {cost['wall_s']:8.3f} {cost['mib']:8.1f} {ratio}")

    line("lists for eccv_caption", made, made["cpu_s"])
    line("eccv_caption, from lists", theirs, theirs["cpu_s"])
    line("mitl, from the same lists", costs["lists"], theirs["cpu_s"])
    line("mitl, from arrays", {**costs["arrays"], "mib": alone["mib"]}, theirs["cpu_s"])
    ranked = found["prepare"]["cpu_s"]
    print(f"from embeddings: ranking both ways {ranked:.1f} s of cpu, then as above")
    chain = ranked + made["cpu_s"] + theirs["cpu_s"]
    again = ranked + costs["arrays"]["cpu_s"]
    print(f"{'ranking, lists, eccv_caption':44} {chain:8.3f} {'':17} {1:7.1f}")
    print(f"{'ranking, mitl from arrays':44} {again:8.3f} {'':17} {chain / again:7.1f}")
    line("mitl, from embeddings", straight, chain)
    line("the product of all pairs alone", straight["product"], chain)
    print(f"\n{'metric (cpu ms)':28} {'theirs':>9} {'lists':>8} {'ratio':>7} {'arrays':>8} {'ratio':>7}")
    for name, each in costs["one by one"].items():
        slow, ours, fast = (1000 * each[side] for side in ("theirs", "lists", "arrays"))
        print(f"{name:28} {slow:9.1f} {ours:8.2f} {slow / ours:7.1f} {fast:8.2f} {slow / fast:7.1f}")
    print(f"\ngreatest difference, lists and arrays: {costs['difference']:.1e}")
    if not arguments.depth:
        numbers = costs["scores"]
        far = max(
            abs(straight["scores"][key][side] - numbers[key][side])
            for key in numbers
            for side in numbers[key]
        )
        print(f"greatest difference, embeddings:       {far:.1e}")
    print("Recall@1 of COCO 5K:", {side: round(v, 4) for side, v in costs["scores"]["coco_5k_r1"].items()})


if __name__ == "__main__":
    main()

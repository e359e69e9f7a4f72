"""The aggregators on synthetic answers, against a plain NumPy pass, pandas and crowd-kit on the same table.

Four levels, workers of different quality, an answer or more a pair and gold controls. Each side runs in a process
of its own, which reads the columns from a file: the seconds are of the work alone, the memory is the process's
peak, imports and columns included. The plain pass is one ``bincount`` of (item, label) and one of
(worker, label): the least that any aggregator must do. pandas and crowd-kit are measured where they are
installed (they are not dependencies of the project); crowd-kit is given up to ``--crowd-kit-limit`` answers, since
its Dawid-Skene joins a table of all answers in every pass.

    python benchmarks/bench_aggregation.py --answers 10000000
    python benchmarks/bench_aggregation.py --python /path/with/crowd-kit/bin/python   # for the other side
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

PASSES = 20
"""Both Dawid-Skene fits make as many passes, so that their seconds compare."""
OURS = ("plain", "majority", "dawid-skene", "ordinal", "alpha")
THEIRS = ("pandas", "crowd-kit majority", "crowd-kit dawid-skene")


def main() -> None:
    """Print a line for each side, and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--answers", type=int, default=1_000_000)
    parser.add_argument("--per-item", type=float, default=2.0, help="mean answers an item")
    parser.add_argument("--workers", type=int, default=2000)
    parser.add_argument("--crowd-kit-limit", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python", default=sys.executable, help="interpreter that has pandas and crowd-kit")
    parser.add_argument("--side", choices=(*OURS, *THEIRS), help=argparse.SUPPRESS)
    parser.add_argument("--table", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        print(json.dumps(measure(arguments.side, arguments.table)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "answers.npy"
        np.save(path, draw(arguments.answers, arguments.per_item, arguments.workers))
        print(f"{arguments.answers:,} answers, {arguments.workers:,} workers, {PASSES} passes of Dawid-Skene")
        compare(arguments, path)


def compare(arguments: argparse.Namespace, path: Path) -> None:
    """The sides take turns; the quickest round of each counts."""
    best: dict[str, dict[str, float]] = {}
    for round_number in range(arguments.rounds):
        for side in (*OURS, *THEIRS):
            slow = side in ("ordinal", "crowd-kit dawid-skene")
            if (slow and round_number) or (
                side in THEIRS[1:] and arguments.answers > arguments.crowd_kit_limit
            ):
                continue
            found = run(arguments.python if side in THEIRS else sys.executable, side, path)
            if found and found["seconds"] < best.get(side, found)["seconds"] + 1e-9:
                best[side] = found
    plain = best["plain"]["seconds"]
    for side in (*OURS, *THEIRS):
        if side not in best:
            print(f"{side:24} not measured: not installed, or more answers than --crowd-kit-limit")
            continue
        found = best[side]
        passes = f", {found['passes']:.0f} passes" if found["passes"] else ""
        print(
            f"{side:24} {found['seconds']:9.3f} s  {found['peak_mib']:7,.0f} MiB  "
            f"{found['seconds'] / plain:8.1f} × plain{passes}"
        )
    for ours, theirs in (("majority", THEIRS[1]), ("dawid-skene", THEIRS[2])):
        if theirs in best:
            print(f"{theirs} / ours: {best[theirs]['seconds'] / best[ours]['seconds']:.1f} × the seconds")


def run(python: str, side: str, path: Path) -> dict[str, float] | None:
    """One side in a process of its own; None where its package is missing."""
    command = [python, __file__, "--side", side, "--table", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        if "No module named" in done.stderr and side in THEIRS:
            return None
        raise SystemExit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(side: str, path: Path) -> dict[str, float]:
    """Seconds, peak memory of this process, and passes."""
    columns = np.load(path)
    work = SIDES[side](columns)
    start = time.perf_counter()
    passes = work()
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "peak_mib": peak_mib(), "passes": float(passes or 0)}


def peak_mib() -> float:
    """Peak memory of this process (getrusage would give the parent's, where that held more before the fork)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def draw(n: int, per_item: float, n_workers: int) -> np.ndarray:
    """(3, n) item, worker, label: careful, hasty and blind workers; a hundredth of the items are controls."""
    rng = np.random.default_rng(0)
    n_items = max(1, int(n / per_item))
    item = np.concatenate([np.arange(n_items), rng.integers(n_items, size=n - n_items)])
    worker = (n_workers * rng.random(n) ** 2).astype(np.int64)  # some are busier
    truth = rng.choice(4, size=n_items, p=[0.1, 0.15, 0.25, 0.5])
    noise = np.where(np.arange(n_workers) % 5 == 4, 1.2, 0.5)[worker]
    label = np.clip(np.rint(truth[item] + noise * rng.standard_normal(n)), 0, 3).astype(np.int64)
    return np.stack([item, worker, label]).astype(np.int32)


def _plain(columns: np.ndarray) -> Callable[[], int]:
    item, worker, label = columns.astype(np.int64)

    def work() -> int:
        np.bincount(item * 4 + label)
        np.bincount(worker * 4 + label)
        return 0

    return work


def _ours(name: str) -> Callable[[np.ndarray], Callable[[], int]]:
    def prepare(columns: np.ndarray) -> Callable[[], int]:
        from mitl.judgements.aggregators import DawidSkeneOptions, fit_dawid_skene
        from mitl.judgements.agreement import table_alpha
        from mitl.judgements.answer_table import answer_table, majority_table
        from mitl.judgements.ordinal import fit_ordinal

        def work() -> int:
            table = answer_table(*columns)  # sorting is part of the work
            if name == "majority":
                majority_table(table)
                return 0
            if name == "alpha":
                table_alpha(table)
                return 0
            if name == "dawid-skene":
                fixed = DawidSkeneOptions(strength=0, limit=PASSES, tolerance=-1)
                return fit_dawid_skene(table, fixed).convergence.passes
            known = np.where(np.arange(table.n_items) % 100 == 0, 3, -1)
            return fit_ordinal(table.with_known(known)).convergence.passes

        return work

    return prepare


def _theirs(name: str) -> Callable[[np.ndarray], Callable[[], int]]:
    def prepare(columns: np.ndarray) -> Callable[[], int]:
        import pandas as pd

        frame = pd.DataFrame(dict(zip(("task", "worker", "label"), columns, strict=True)))

        def plain() -> int:
            frame.groupby(["task", "label"]).size().unstack(fill_value=0).idxmax(axis=1)
            return 0

        if name == "pandas":
            return plain
        from crowdkit.aggregation import DawidSkene, MajorityVote

        def work() -> int:
            if name == "crowd-kit majority":
                MajorityVote().fit_predict(frame)
                return 0
            return len(DawidSkene(PASSES, tol=-1e9).fit(frame).loss_history_)

        return work

    return prepare


SIDES = {
    "plain": _plain,
    **{name: _ours(name) for name in OURS[1:]},
    **{name: _theirs(name) for name in THEIRS},
}


if __name__ == "__main__":
    main()

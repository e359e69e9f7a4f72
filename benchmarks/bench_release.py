"""Building a release of millions of judgements, beside a plain pandas pass over the same table.

Baseline: pandas reads pair, label and worker of the usable answers from the same database, groups them by pair and
takes counts and majority, without merging, provenance or writing. Each side runs in a process of its own, so that its
peak memory is its own; the sides take turns.

    python benchmarks/bench_release.py [--judgements N] [--repeat N] [--folder DIR]

With ``--folder`` the project is made there once and kept. Ratios are of seconds and of CPU seconds.
"""

from __future__ import annotations

import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_aggregation import peak_mib
from release_project import PER_HIT, make_project
from shared_kit import parser_of

BASELINE = """
SELECT p.left_id AS image_id, p.right_id AS caption_id, j.label, a.worker_id
FROM judgement j JOIN assignment a ON a.id = j.assignment_id
JOIN hit_item i ON i.hit_id = a.hit_id AND i.place = j.place JOIN pair p ON p.id = j.pair_id
WHERE j.usable = 1 AND i.role NOT IN ('gold_positive', 'gold_negative')
"""


def build(folder: Path) -> dict[str, float]:
    """The release, as the command builds it."""
    from mitl.records import Environment
    from mitl.settings import load
    from mitl.stages.releasing.build_dataset import build_dataset

    out = folder / "release"
    shutil.rmtree(out, ignore_errors=True)
    result = build_dataset(load(folder, environ={}), out, Environment.SANDBOX)
    return {"pairs": float(str(result.counts["pairs_judged"]))}


def plain(folder: Path) -> dict[str, float]:
    """One pass of pandas."""
    import sqlite3

    import pandas as pd

    with sqlite3.connect(folder / "mitl.db") as connection:
        table = pd.read_sql_query(BASELINE, connection)
    codes = table["label"].map({"yes": 0, "weak_yes": 1, "weak_no": 2, "no": 3})
    counts = codes.groupby([table["image_id"], table["caption_id"]]).value_counts().unstack(fill_value=0)
    majority = counts.to_numpy().argmax(axis=1)
    return {"pairs": float(len(majority))}


SIDES = {"build": build, "plain": plain}


def measured(side: str, folder: Path) -> dict[str, float]:
    """One run in a process of its own: seconds, MiB, pairs."""
    words = [sys.executable, __file__, "--side", side, "--folder", str(folder)]
    found = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    values: dict[str, float] = json.loads(found.stdout.splitlines()[-1])
    return values


def main() -> None:
    """Make the project once, let the sides take turns, print medians and ratios."""
    parser = parser_of(__doc__)
    parser.add_argument("--judgements", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--side", choices=SIDES)
    given = parser.parse_args()
    if given.judgements < PER_HIT:
        parser.error(f"--judgements is at least {PER_HIT}, which make a HIT")
    if given.side:
        started = time.perf_counter()
        found = SIDES[given.side](given.folder)
        used = resource.getrusage(resource.RUSAGE_SELF)
        found["seconds"] = time.perf_counter() - started
        found["cpu"] = used.ru_utime + used.ru_stime
        found["mib"] = peak_mib()
        print(json.dumps(found))
        return
    with tempfile.TemporaryDirectory(prefix="mitl-bench-") as name:
        folder = given.folder or Path(name)
        if not (folder / "mitl.db").exists():
            started = time.perf_counter()
            make_project(folder, given.judgements)
            size = (folder / "mitl.db").stat().st_size / 1e9
            print(
                f"{given.judgements:,} judgements written in {time.perf_counter() - started:.0f} s, {size:.1f} GB"
            )
        runs = {side: [] for side in SIDES}
        for _ in range(given.repeat):
            for side in SIDES:
                runs[side].append(measured(side, folder))
    for side, found in runs.items():
        seconds = [run["seconds"] for run in found]
        mib = max(run["mib"] for run in found)
        print(
            f"{side:6} {statistics.median(seconds):7.1f} s (from {min(seconds):.1f} to {max(seconds):.1f}), "
            f"{statistics.median(run['cpu'] for run in found):.1f} s of CPU, "
            f"peak {mib:,.0f} MiB, {found[0]['pairs']:,.0f} pairs"
        )
    for what in ("seconds", "cpu"):
        ours, base = (statistics.median(run[what] for run in runs[side]) for side in SIDES)
        print(f"build / plain, {what}: {ours / base:.2f}")


if __name__ == "__main__":
    main()

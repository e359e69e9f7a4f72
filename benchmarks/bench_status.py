"""What a short command costs on a small project: a process of its own each time, from its start to its end.

Baseline: a bare script that loads SQLAlchemy and asks the same database for the same numbers in seven statements.
The sides take turns, and the least of the rounds counts; ratios are of processor time, which a busy machine changes
least. Compiled modules are kept in folders of their own, as an installed mitl has them.

    python benchmarks/bench_status.py                          # makes the project first, in half a minute
    python benchmarks/bench_status.py --against OTHER-CHECKOUT
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

WANTED_S = 0.6
COUNTED = "status, counted"
"""After a command that leaves nothing counted: what is kept of where the project stands is dropped before each run."""
AFTER = {
    "status after propose": "propose --image-queries 3 --caption-queries 3 --seed {number}",
    "status after build-dataset": "build-dataset --sandbox --out release-{number}",
}
"""What is run before each `mitl status`, so that there is something to count."""
COMMANDS = ("--help", "annotators", "status", COUNTED, *AFTER, "db current", "hits list", "workers", "review")
STEPS = (
    "init . --dataset scenes --n-images 30",
    "propose --image-queries 20 --caption-queries 40",
    "publish --sandbox",
    "simulate --workers random",
    "harvest",
)

BARE = """
import json, sys
from sqlalchemy import create_engine, text
with create_engine(f"sqlite:///{sys.argv[1]}").connect() as connection:
    ask = lambda statement: [tuple(row) for row in connection.execute(text(statement))]
    sides = dict(ask("SELECT s.name, count(*) FROM item i JOIN side s ON s.id = i.side_id GROUP BY s.name"))
    hits = dict(ask("SELECT state, count(*) FROM hit GROUP BY state"))
    decisions = dict(ask("SELECT decision, count(*) FROM assignment GROUP BY decision"))
    answers = "FROM judgement j JOIN assignment a ON a.id = j.assignment_id JOIN hit_item i " \\
        "ON i.hit_id = a.hit_id AND i.place = j.place WHERE i.role"
    judged = f"SELECT count(DISTINCT j.pair_id) {answers} IN ('candidate', 'overlap', 'repeat') AND j.usable"
    print(json.dumps({
        "images": sides["image"],
        "captions": sides["caption"],
        "pairs": ask("SELECT count(*) FROM pair WHERE proposed")[0][0],
        "pairs_judged": ask(judged)[0][0],
        "posted": hits.get("posted", 0),
        "closed": hits.get("closed", 0),
        "submissions": sum(decisions.values()),
        "queued": decisions.get("queued", 0),
        "golds_answered": ask(f"SELECT count(*) {answers} LIKE 'gold%'")[0][0],
        "paid_cents": ask("SELECT coalesce(sum(cents), 0) FROM ledger")[0][0],
    }))
"""


def main() -> None:
    """Print the table; exit with 1 where `mitl status` took longer than is wanted."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=COMMANDS)
    parser.add_argument("--project", type=Path, help="a project that is there already, with answers")
    parser.add_argument("--against", type=Path, help="another checkout of mitl, measured in turns")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mitl-status-") as folder:
        sides = {"mitl": Path(__file__).resolve().parents[1]}
        if options.against:
            sides["against"] = options.against.resolve()
        projects = {
            side: options.project or make_project(Path(folder) / f"study-{side}", checkout)
            for side, checkout in sides.items()
        }
        taken = measure(projects, sides, Path(folder), options)
    bare = taken["baseline", "mitl"]
    for (name, side), (seconds, processor) in taken.items():
        print(
            f"{side:8} {name:26} {seconds:6.3f} s {processor:6.3f} s of processor time {processor / bare[1]:6.2f} x"
        )
    if taken.get(("status", "mitl"), (0,))[0] > WANTED_S:
        raise SystemExit(f"`mitl status` took longer than {WANTED_S} s")


def make_project(folder: Path, checkout: Path) -> Path:
    """A project of 30 images, 150 captions and 30 HITs that workers answered at random, made by a checkout's mitl."""
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    for step in STEPS:
        words = [sys.executable, "-m", "mitl", *step.split(), "-q"]
        subprocess.run(words, cwd=folder, env=environment, check=True)
    return folder


def measure(
    projects: Mapping[str, Path], sides: Mapping[str, Path], scratch: Path, options: argparse.Namespace
) -> dict[tuple[str, str], tuple[float, float]]:
    """Command and side → the least seconds by the clock and of processor time."""
    bare = [sys.executable, "-c", BARE, str(projects["mitl"] / "mitl.db")]
    calls = {("baseline", "mitl"): bare} | {
        (command, side): [sys.executable, "-m", "mitl", *_typed(command).split()]
        for command in options.commands
        for side in sides
    }
    found: dict[tuple[str, str], tuple[float, float]] = {}
    environments = {
        side: {
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            "PYTHONPATH": str(checkout),
            "PYTHONPYCACHEPREFIX": str(scratch / side),
        }
        for side, checkout in sides.items()
    }
    check(projects["mitl"], bare, environments["mitl"])
    for number in range(1, options.rounds + 2):  # the first compiles
        for (name, side), words in calls.items():
            if name == COUNTED:
                forget(projects[side] / "mitl.db")
            if name in AFTER:
                before = [*words[:3], *AFTER[name].format(number=number).split(), "-q"]
                subprocess.run(before, cwd=projects[side], env=environments[side], check=True)
            one = run(words, projects[side], environments[side])
            if name == COUNTED or name in AFTER:  # and count it again for the next `status`
                harvest = [*words[:3], "harvest", "-q"]
                subprocess.run(harvest, cwd=projects[side], env=environments[side], check=True)
            best = found.get((name, side), one)
            found[name, side] = min(one[0], best[0]), min(one[1], best[1])
    return found


def _typed(command: str) -> str:
    """What a row of the table runs."""
    return "status" if command.startswith("status") else command


def forget(database: Path) -> None:
    """Drop what is kept of where the project stands, if this mitl keeps any."""
    with closing(sqlite3.connect(database)) as connection, connection:
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'standing'").fetchone():
            connection.execute("DELETE FROM standing")


def run(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> tuple[float, float]:
    """Seconds by the clock and of processor time."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(words, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def check(project: Path, bare: Sequence[str], environment: Mapping[str, str]) -> None:
    """Both sides count the same."""
    told, counted = (
        json.loads(
            subprocess.run(words, cwd=project, env=environment, capture_output=True, check=True).stdout
        )
        for words in ([sys.executable, "-m", "mitl", "status", "--json"], bare)
    )
    known = told["counts"] | told["counts"]["hits"]
    assert counted == {name: known[name] for name in counted}, (counted, known)


if __name__ == "__main__":
    main()

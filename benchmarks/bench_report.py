"""Writing the report of 50,000 judged pairs, and opening it in Chromium.

Baselines of the opening, in the same browser by turns: an empty page, and the same page without its script and
pictures. "Interactive" ends at DOMContentLoaded, "loaded" at the end of the load event; "painted" is two frames after
it, with the layout forced. Baselines of the writing: reading the same database into memory, which any report must do,
and one pass of pandas over its answers.

    python benchmarks/bench_report.py [--pairs N] [--repeat N] [--chromium FILE]
    python benchmarks/bench_report.py --project FOLDER --against OTHER-CHECKOUT   # the writing alone, beside another
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from report_project import make

HERE = Path(__file__).parent
WRITE = """
import sys, time
started = time.perf_counter()
from pathlib import Path
from mitl.settings import load
from mitl.stages.reporting.report import collect, report
settings = load(Path(sys.argv[1]), environ={})
imported = time.perf_counter()
if sys.argv[2] == "read":
    collect(settings)
elif sys.argv[2] == "pandas":
    from bench_release import plain
    plain(Path(sys.argv[1]))
else:
    report(settings, Path(sys.argv[2]))
work = time.perf_counter() - imported
from bench_aggregation import peak_mib
print(imported - started, work, time.process_time(), peak_mib())
"""

TIMES = """async () => {
  const found = performance.getEntriesByType("navigation")[0];
  document.body.getBoundingClientRect();
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return [found.domContentLoadedEventEnd, found.loadEventEnd, performance.now(), document.querySelectorAll("*").length];
}"""


def write(folder: Path, out: str, checkout: Path = HERE.parent) -> tuple[float, ...]:
    """Seconds of the imports, of the work and of processor time, and the peak in MiB, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": f"{checkout}:{HERE}"}
    words = [sys.executable, "-P", "-c", WRITE, str(folder), out]  # not what lies where this was called
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    return tuple(float(word) for word in done.stdout.split())


def beside(folder: Path, against: Path, repeat: int) -> None:
    """Writing the report here and by another checkout, by turns, and what pandas takes over the same answers."""
    sides = {"pandas": ("pandas", HERE.parent), "this": ("", HERE.parent), "against": ("", against)}
    runs: dict[str, list[tuple[float, ...]]] = {name: [] for name in sides}
    for _ in range(repeat):
        for name, (what, checkout) in sides.items():
            out = what or str(folder / f"{name}.html")
            runs[name].append(write(folder, out, checkout.resolve()))
    plain = min(run[2] for run in runs["pandas"])
    for name, found in runs.items():
        seconds, mib = min(run[2] for run in found), max(run[3] for run in found)
        print(f"{name:<8} {seconds:6.1f} s of processor time, {seconds / plain:5.2f} x, peak {mib:,.0f} MiB")
    if (folder / "this.html").read_bytes() != (folder / "against.html").read_bytes():
        raise SystemExit("the two reports are not the same bytes")


def open_page(browser: Any, file: Path) -> tuple[float, float, float, float]:
    """Milliseconds to interactive, loaded and painted, and the number of elements; in a fresh context."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(file.as_uri(), wait_until="load")
    found = page.evaluate(TIMES)
    context.close()
    return found[0], found[1], found[2], found[3]


def main() -> None:
    """Print the tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--pairs", type=int, default=50_000)
    options.add_argument("--repeat", type=int, default=5)
    options.add_argument("--chromium", default="/usr/bin/chromium")
    options.add_argument("--keep", type=Path, help="Copy the page to this file.")
    options.add_argument(
        "--project", type=Path, help="A project that `report_project.make` made, with --against."
    )
    options.add_argument("--against", type=Path, help="Another checkout of mitl.")
    given = options.parse_args()
    if given.project and given.against:
        beside(given.project, given.against, given.repeat)
        return
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        started = time.perf_counter()
        make(folder, given.pairs)
        print(f"project of about {given.pairs:,} judged pairs made in {time.perf_counter() - started:.1f} s")
        file = folder / "report.html"
        sides: dict[str, list[tuple[float, ...]]] = {"read": [], str(file): []}
        for _ in range(min(given.repeat, 3)):
            for out, found in sides.items():
                found.append(write(folder, out))
        for name, out in (("read the database alone", "read"), ("write the report", str(file))):
            imports, work = (min(run[place] for run in sides[out]) for place in (0, 1))
            print(f"{name:<28} {work:6.2f} s  (and {imports:.2f} s of imports)")
        print(f"{'size of the report':<28} {file.stat().st_size / 1e6:6.2f} MB")
        if given.keep:
            given.keep.write_bytes(file.read_bytes())
        browse(file, given)


def browse(file: Path, given: argparse.Namespace) -> None:
    """The opening, beside the baselines."""
    from playwright.sync_api import sync_playwright

    empty, plain = file.with_name("empty.html"), file.with_name("plain.html")
    empty.write_text("<!doctype html><html lang='en'><title>empty</title><body><p>empty</p></body></html>")
    page = file.read_text(encoding="utf-8")
    page = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    plain.write_text(re.sub(r'src="data:[^"]*"', 'src="data:,"', page), encoding="utf-8")
    names = {"the report": file, "without script and pictures": plain, "an empty page": empty}
    found: dict[str, list[tuple[float, float, float, float]]] = {name: [] for name in names}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=given.chromium, args=["--no-sandbox"])
        open_page(browser, empty)
        for _ in range(given.repeat):
            for name, one in names.items():
                found[name].append(open_page(browser, one))
        browser.close()
    print(
        f"\n{'milliseconds, best (median)':<28} {'interactive':>16} {'loaded':>16} {'painted':>16} {'elements':>9}"
    )
    for name, runs in found.items():
        cells = [
            f"{min(column):7.0f} ({statistics.median(column):5.0f})"
            for column in list(zip(*runs, strict=True))[:3]
        ]
        print(f"{name:<28} {cells[0]:>16} {cells[1]:>16} {cells[2]:>16} {int(runs[0][3]):>9,}")


if __name__ == "__main__":
    main()

"""The crowd server under load: 200 workers at once, 2,580 HITs posted by boto3, and ``kill -9`` at random moments.

A second process is the load and shares the machine's cores with the server. Workers join, open the list, accept,
look at the page and its 20 pictures, think, submit and go on; the times are those of whole answers as the load
sees them. Afterwards the database is compared with what the workers saw. The same load then goes to a bare
server on the same framework, which answers from memory.

    python benchmarks/bench_crowd_load.py                              # both engines, people's real pace: 13 min
    python benchmarks/bench_crowd_load.py --engine postgresql --think-scale 0.2
    python benchmarks/bench_crowd_load.py --kills 50                   # nothing but the kills
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from crowd_books import faults, submissions
from crowd_kills import end_with, told_trial
from crowd_servers import (
    TYPE,
    Generator,
    boto,
    database,
    free_port,
    invite,
    make_project,
    post_hits,
    prepare,
    question,
    start_bare,
    start_server,
)

from mitl.crowd_server import admin
from mitl.records import Environment

THINK_S = (5.0, 30.0)
PLACES = 5
TARGET_P99_MS = 300.0
Found = dict[str, Any]


def main() -> None:
    """Print a table for each engine; exit with 1 where anything was lost, doubled or refused."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--engine", choices=("postgresql", "sqlite", "both"), default="both")
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--hits", type=int, default=10, help="HITs of each worker")
    parser.add_argument(
        "--think-scale", type=float, default=1.0, help="1: people think 5 to 30 s; 0.1: ten times faster"
    )
    parser.add_argument(
        "--arrive", type=float, help="seconds within which workers arrive [default: 30 s, scaled]"
    )
    parser.add_argument(
        "--bare-hits", type=int, default=2, help="HITs of each worker on the bare server; 0 leaves it out"
    )
    parser.add_argument("--no-images", action="store_true", help="leave the pictures out")
    parser.add_argument("--posts", type=int, default=2580, help="HITs that boto3 posts; 0 leaves the API out")
    parser.add_argument("--post-threads", type=int, default=2)
    parser.add_argument(
        "--kills", type=int, default=0, help="kill the server so often, and measure nothing else"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    engines = ("postgresql", "sqlite") if options.engine == "both" else (options.engine,)
    wrong: list[str] = []
    for engine in engines:
        print(f"== {engine}", flush=True)
        with database(engine) as url:
            wrong += told_trial(url, options.kills, options.seed) if options.kills else _measure(url, options)
    end_with(wrong)


def _measure(url: str, options: argparse.Namespace) -> list[str]:
    engine = prepare(url)
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="mitl-load-") as folder:
        project, port = make_project(Path(folder)), free_port()
        page = Path(folder) / "page.html"
        page.write_text(question())
        base = f"http://127.0.0.1:{port}"
        server = start_server(url, port, project)
        try:
            post_hits(engine, base, -(-options.workers * options.hits * 3 // 2 // PLACES), PLACES)
            found = Generator(_plan(base, invite(engine, options.workers), options, options.hits)).finish()
            wrong += _unanswered(found, options) + faults(engine, found["confirmed"])
            kept = submissions(engine)
            posting = _post(engine, base, options) if options.posts else None
            wrong += faults(engine, found["confirmed"])
        finally:
            server.stop()
        bare, bare_posting = _bare(page, options, engine)
    print(
        f"{options.workers} workers, {options.hits} HITs each, thinking {THINK_S[0]:g}-{THINK_S[1]:g} s × "
        f"{options.think_scale:g}, {'without' if options.no_images else 'with'} pictures"
    )
    _table(found, bare, ("page", "accept", "submit", "image"))
    if posting is not None:
        print(f"{options.posts} HITs posted by boto3 on {options.post_threads} threads")
        _table(posting, bare_posting, ("create",))
    print(
        f"sent {found['sent']}, confirmed {len(found['confirmed'])}, in the database {kept}, faults {len(wrong)}"
    )
    worst = max(_quantile(found["times_ms"][kind], 0.99) for kind in ("page", "accept", "submit"))
    print(
        f"worst p99 of page, accept and submit {worst:.0f} ms (wanted: under {TARGET_P99_MS:.0f} ms with PostgreSQL)",
        flush=True,
    )
    engine.dispose()
    return wrong


def _plan(base: str, links: list[str], options: argparse.Namespace, hits: int) -> Found:
    scale = options.think_scale
    return {
        "kind": "workers",
        "base": base,
        "links": links,
        "hits": hits,
        "think_s": [seconds * scale for seconds in THINK_S],
        "arrive_s": THINK_S[1] * scale if options.arrive is None else options.arrive,
        "images": not options.no_images,
        "seed": options.seed,
    }


def _post(engine: Any, base: str, options: argparse.Namespace) -> Found:
    client = boto(engine, base)
    hit_type = client.create_hit_type(**TYPE | {"Title": "Posted under measurement"})["HITTypeId"]
    client.close()
    return Generator(_posting(engine, base, hit_type, options)).finish()


def _posting(engine: Any, base: str, hit_type: str, options: argparse.Namespace) -> Found:
    return {
        "kind": "api",
        "base": base,
        "keys": admin.keys(engine)[Environment.SANDBOX],
        "hit_type": hit_type,
        "question": question(),
        "count": options.posts,
        "threads": options.post_threads,
        "seed": options.seed,
    }


def _bare(page: Path, options: argparse.Namespace, engine: Any) -> tuple[Found | None, Found | None]:
    if not options.bare_hits:
        return None, None
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    server = start_bare(port, page)
    try:
        links = [f"/w/join/{number}" for number in range(options.workers)]
        found = Generator(_plan(base, links, options, options.bare_hits)).finish()
        posting = Generator(_posting(engine, base, "T", options)).finish() if options.posts else None
    finally:
        server.stop()
    return found, posting


def _unanswered(found: Found, options: argparse.Namespace) -> list[str]:
    wrong: list[str] = list(found["refused"])
    if len(found["confirmed"]) != found["sent"]:
        wrong.append(f"{found['sent'] - len(found['confirmed'])} answers were sent and not confirmed")
    if found["sent"] != options.workers * options.hits:
        wrong.append(f"{found['sent']} answers were sent, not {options.workers * options.hits}")
    return wrong


def _table(found: Found, bare: Found | None, kinds: tuple[str, ...]) -> None:
    print(
        f"{'ms':8} {'n':>7} {'p50':>7} {'p95':>7} {'p99':>7} {'max':>7}   {'bare p50':>8} {'p99':>7}   ratio p50, p99"
    )
    for kind in kinds:
        times = found["times_ms"].get(kind)
        if not times:
            continue
        own = [_quantile(times, share) for share in (0.5, 0.95, 0.99, 1.0)]
        line = f"{kind:8} {len(times):7} " + " ".join(f"{value:7.1f}" for value in own)
        if bare is not None and bare["times_ms"].get(kind):
            other = [_quantile(bare["times_ms"][kind], share) for share in (0.5, 0.99)]
            line += f"   {other[0]:8.1f} {other[1]:7.1f}   {own[0] / other[0]:.1f}, {own[2] / other[1]:.1f}"
        print(line)


def _quantile(times: list[float], share: float) -> float:
    """The smallest time that at least this share of all does not exceed."""
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1e6) * len(ordered) // 1_000_000) - 1))]


if __name__ == "__main__":
    main()

"""A project with millions of judgements, written straight into SQLite, for the benchmarks of releases."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.db.session import open_database
from mitl.db.store import answer_sheets

PER_HIT = 20
PER_PAIR = 2.0
"""Judgements on a pair, on average."""
_CHUNK = 200_000
_LABELS = np.array(["yes", "weak_yes", "weak_no", "no"])
_SHARES = (0.45, 0.2, 0.15, 0.2)


def make_project(folder: Path, judgements: int, *, seed: int = 0) -> str:
    """The database's URL; 18 candidates and 2 controls a HIT, 1.4 proposals a pair, a reason for weak answers."""
    url = f"sqlite:///{folder / 'mitl.db'}"
    with open_database(url, create=True):
        pass
    rng = np.random.default_rng(seed)
    hits = judgements // PER_HIT
    candidates = hits * (PER_HIT - 2)
    pairs = max(int(candidates / PER_PAIR), 1)
    images = int(2.3 * pairs**0.5) + 10
    captions = 5 * images
    connection = sqlite3.connect(folder / "mitl.db")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA journal_mode = WAL")
    _items(connection, images, captions)
    keys = rng.choice(images * captions, size=pairs, replace=False)
    keys.sort()
    ones = np.ones(pairs, np.int64)
    columns = (np.arange(1, pairs + 1), keys // captions + 1, keys % captions + 1, ones, ones, 2 * ones)
    _rows(connection, "pair (id, left_id, right_id, proposed, left_side_id, right_side_id)", *columns)
    _proposals(connection, pairs, rng)
    _work(connection, hits, pairs, rng)
    connection.commit()
    connection.execute("ANALYZE")
    connection.commit()
    connection.close()
    with open_database(url) as session:
        answer_sheets.fill(session)  # as whoever judges the work does
        session.commit()
    return url


def _items(connection: sqlite3.Connection, images: int, captions: int) -> None:
    connection.execute(
        "INSERT INTO dataset (id, name, kind, id_kind, content_sha256) VALUES (1, 'made', 'table', 'integer', '')"
    )
    connection.execute("INSERT INTO side (id, dataset_id, name) VALUES (1, 1, 'image'), (2, 1, 'caption')")
    connection.execute(
        "INSERT INTO direction (dataset_id, name, query_side_id, gallery_side_id) "
        "VALUES (1, 'i2t', 1, 2), (1, 't2i', 2, 1)"
    )
    connection.executemany(
        "INSERT INTO item (side_id, id, external_id) VALUES (1, ?, ?)",
        ((n, str(n)) for n in range(1, images + 1)),
    )
    connection.executemany(
        "INSERT INTO item (side_id, id, external_id, group_side_id, group_id) VALUES (2, ?, ?, 1, ?)",
        ((n, str(10 * n), (n - 1) // 5 + 1) for n in range(1, captions + 1)),
    )
    connection.execute(
        "INSERT INTO part (side_id, item_id, place, kind, text) "
        "SELECT side_id, id, 1, iif(side_id = 1, 'image', 'text'), iif(side_id = 1, NULL, 'words') FROM item"
    )
    connection.executemany(
        "INSERT INTO rating (left_side_id, left_id, right_side_id, right_id, score, sampling_method) "
        "VALUES (1, ?, 2, ?, 4.5, 'made')",
        (((n - 1) // 5 + 1, n) for n in range(1, captions + 1)),
    )
    connection.execute("INSERT INTO run (id, hash, config) VALUES (1, 'made', '{}')")
    connection.executemany(
        "INSERT INTO query (run_id, direction, item_id) VALUES (1, ?, ?)",
        [
            *(("i2t", n) for n in range(1, images + 1, 4)),
            *(("t2i", n) for n in range(1, captions + 1, 20)),
        ],
    )
    connection.execute(
        "INSERT INTO round (id, dataset_id, number, strategy, opened_at) VALUES (1, 1, 1, 'top-k', 0)"
    )
    connection.execute(
        "INSERT INTO batch (id, name, round_id, environment, kind, direction, template, reward_cents, assignments, "
        "seed, pilot, source, planned_at) "
        "VALUES (1, 'b1', 1, 'sandbox', 'pairs', 'both', 'pairs-plain', 100, 1, 0, 0, 'crowd', 0)"
    )


def _proposals(connection: sqlite3.Connection, pairs: int, rng: np.random.Generator) -> None:
    names = ("clip", "pcme", "pvse", "vilt", "vsrn")
    connection.executemany(
        "INSERT INTO annotator (id, name, kind, config, fingerprint) VALUES (?, ?, 'inner_product', '{}', '')",
        enumerate(names, 1),
    )
    extra = rng.choice(pairs, size=int(0.4 * pairs), replace=False) + 1
    ids = np.concatenate([np.arange(1, pairs + 1), extra])
    first = rng.integers(1, 3, pairs)
    annotator = np.concatenate([first, rng.integers(3, 6, len(extra))])
    directions = np.array(["i2t", "t2i"])[rng.integers(0, 2, len(ids))]
    ranks, similarity = rng.integers(1, 6, len(ids)), rng.random(len(ids))
    query = (
        "INSERT INTO proposal (run_id, pair_id, annotator_id, direction, rank, similarity) "
        "VALUES (1, ?, ?, ?, ?, ?)"
    )
    for part in _parts(ids, annotator, directions, ranks, similarity):
        connection.executemany(query, part)


def _work(connection: sqlite3.Connection, hits: int, pairs: int, rng: np.random.Generator) -> None:
    workers = max(hits // 50, 3)
    connection.executemany(
        "INSERT INTO worker (id, environment, mturk_worker_id) VALUES (?, 'sandbox', ?)",
        ((n, f"A{n:013d}") for n in range(1, workers + 1)),
    )
    numbers = np.arange(1, hits + 1)
    hit = (
        "INSERT INTO hit (id, batch_id, number, attempt, assignments, state, mturk_hit_id, token) "
        "VALUES (?, 1, ?, 1, 1, 'closed', ?, ?)"
    )
    names = np.char.add("H", np.char.zfill(numbers.astype(str), 12))
    for part in _parts(numbers, numbers, names, names):
        connection.executemany(hit, part)
    assignment = (
        "INSERT INTO assignment (id, hit_id, worker_id, mturk_assignment_id, accepted_at, submitted_at, status, "
        "decision, raw_xml) VALUES (?, ?, ?, ?, 0, 300000000, 'Approved', 'pass', '<x/>')"
    )
    who = rng.integers(1, workers + 1, hits)
    for part in _parts(numbers, numbers, who, np.char.add("S", names)):
        connection.executemany(assignment, part)
    for start in range(0, hits, _CHUNK // PER_HIT):
        some = numbers[start : start + _CHUNK // PER_HIT]
        _pages(connection, some, pairs, rng)


def _pages(
    connection: sqlite3.Connection, hits: NDArray[np.int64], pairs: int, rng: np.random.Generator
) -> None:
    n = len(hits) * PER_HIT
    hit, place = np.repeat(hits, PER_HIT), np.tile(np.arange(1, PER_HIT + 1), len(hits))
    pair = rng.integers(1, pairs + 1, n)
    role = np.where(
        place == PER_HIT, "gold_negative", np.where(place == PER_HIT - 1, "gold_positive", "candidate")
    )
    label = _LABELS[rng.choice(4, n, p=_SHARES)]
    item = "INSERT INTO hit_item (hit_id, place, pair_id, role) VALUES (?, ?, ?, ?)"
    connection.executemany(item, zip(hit.tolist(), place.tolist(), pair.tolist(), role.tolist(), strict=True))
    ids = (hit - 1) * PER_HIT + place
    judgement = (
        "INSERT INTO judgement (id, assignment_id, place, pair_id, outcome, label, active_ms, usable, source) "
        "VALUES (?, ?, ?, ?, 'answered', ?, ?, 1, 'crowd')"
    )
    ms = rng.integers(2_000, 30_000, n)
    columns = (ids, hit, place, pair, label, ms)
    connection.executemany(judgement, zip(*(column.tolist() for column in columns), strict=True))
    weak = np.flatnonzero((label == "weak_yes") | (label == "weak_no"))
    connection.executemany(
        "INSERT INTO rationale (judgement_id, kind, value) VALUES (?, 'shortcoming', 'described_wrongly')",
        ((int(n),) for n in ids[weak]),
    )


def _rows(connection: sqlite3.Connection, table: str, *columns: NDArray[Any]) -> None:
    marks = ", ".join("?" * len(columns))
    for part in _parts(*columns):
        connection.executemany(f"INSERT INTO {table} VALUES ({marks})", part)


def _parts(*columns: NDArray[Any]) -> Iterator[list[tuple[Any, ...]]]:
    for start in range(0, len(columns[0]), _CHUNK):
        yield list(zip(*(column[start : start + _CHUNK].tolist() for column in columns), strict=True))

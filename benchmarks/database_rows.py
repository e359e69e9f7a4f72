"""Rows of a project of any size: a gallery, pairs that five annotators proposed, HITs that people answered."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import numpy as np
import pandas as pd
from sqlalchemy import text
from sqlalchemy.orm import Session

from mitl.core.arrays import distinct, pack_ids
from mitl.db.models import (
    Assignment,
    Batch,
    FindingRow,
    Hit,
    HitItemRow,
    Journal,
    JudgementRow,
    Ledger,
    Round,
    Worker,
)
from mitl.db.store import answer_sheets
from mitl.db.store.items import add_dataset
from mitl.db.store.proposals import AnnotatorRow
from mitl.db.store.statements import add_tuples, ids_were_given
from mitl.records import AnnotatorKind, Caption, Direction, IdKind, Image, RetrievalSet
from mitl.records.frames import PROPOSALS, frame

NAMES = ("clip", "pcme", "pvse", "vilt", "vsrn")
AT = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)
CAPTIONS_PER_IMAGE = 5
PER_PAGE = 20
_BATCH = (
    *(
        "id",
        "name",
        "round_id",
        "environment",
        "direction",
        "template",
        "kind",
        "reward_cents",
        "assignments",
        "seed",
    ),
    *("pilot", "source", "server_id", "planned_at"),
)
_ASSIGNMENT = (
    *(
        "id",
        "hit_id",
        "worker_id",
        "mturk_assignment_id",
        "accepted_at",
        "submitted_at",
        "status",
        "decision",
    ),
    "raw_xml",
)
WORKERS = 500
SPREAD_US = 30 * 86_400_000_000
"""Submissions come evenly through the month before `AT`."""


def annotator_rows() -> list[AnnotatorRow]:
    """Five annotators."""
    return [AnnotatorRow(name, AnnotatorKind.INNER_PRODUCT, "{}", name) for name in NAMES]


def n_images(n_pairs: int) -> int:
    """So many that each image is in about 200 pairs, and no fewer than 100."""
    return max(n_pairs // 200, 100)


def proposal_frame(n_pairs: int, annotators: int = len(NAMES)) -> pd.DataFrame:
    """``PROPOSALS``: one of each pair by each annotator, by turns from both directions, in the order in which rankings
    give them."""
    images = n_images(n_pairs)
    place = np.arange(n_pairs)
    captions = images * CAPTIONS_PER_IMAGE
    packed = pack_ids(place % images + 1, (place // images * 7 + place % images * 5) % captions + 1)
    assert len(distinct(packed)) == n_pairs
    turn = np.repeat(np.arange(annotators), n_pairs)
    columns = {
        "pair": np.tile(packed, annotators),
        "annotator": pd.Categorical.from_codes(turn, NAMES[:annotators]),
        "direction": (np.tile(place, annotators) + turn) % len(Direction),
        "rank": turn + 1,
        "similarity": np.tile(0.5 + place / 2**40, annotators),
    }
    return frame(PROPOSALS, columns)


def fill_items(session: Session, n_pairs: int) -> None:
    """The data set."""
    images = [Image(str(i)) for i in range(1, n_images(n_pairs) + 1)]
    captions = [
        Caption(str(i), str((i - 1) // CAPTIONS_PER_IMAGE + 1), f"a picture of {i} things beside each other")
        for i in range(1, len(images) * CAPTIONS_PER_IMAGE + 1)
    ]
    add_dataset(session, RetrievalSet("d", "table", IdKind.INTEGER, tuple(images), tuple(captions)), "")


def fill_work(session: Session, n_pairs: int) -> None:
    """HITs for half the pairs, all of them answered once; one submission in a hundred waits for a person."""
    hits, at = max(n_pairs // 2 // (PER_PAGE - 2), 1), int(AT.timestamp() * 1e6)
    add_tuples(
        session, Round, ("id", "dataset_id", "number", "strategy", "opened_at"), [(1, 1, 1, "first", at)]
    )
    add_tuples(
        session,
        Batch,
        [
            "id",
            "name",
            "round_id",
            "environment",
            "direction",
            "template",
            "kind",
            "reward_cents",
            "assignments",
            "seed",
            "pilot",
            "source",
            "server_id",
            "planned_at",
        ],
        [(1, "b1", 1, "sandbox", "both", "pairs-plain", "pairs", 100, 1, 0, False, "crowd", "s", at)],
    )
    add_tuples(
        session,
        Worker,
        ("id", "environment", "mturk_worker_id"),
        ((i, "sandbox", f"A{i}") for i in range(1, WORKERS + 1)),
    )
    add_tuples(
        session,
        Hit,
        ("id", "batch_id", "number", "attempt", "assignments", "state", "mturk_hit_id", "token"),
        (
            (i, 1, i, 1, 1, "posted" if i % 50 == 0 else "closed", f"H{i}", f"t{i}")
            for i in range(1, hits + 1)
        ),
    )
    add_tuples(session, HitItemRow, ("hit_id", "place", "pair_id", "role"), _items(hits, n_pairs))
    add_tuples(
        session,
        Assignment,
        [
            "id",
            "hit_id",
            "worker_id",
            "mturk_assignment_id",
            "accepted_at",
            "submitted_at",
            "status",
            "decision",
            "raw_xml",
        ],
        (
            (
                i,
                i,
                i % WORKERS + 1,
                f"S{i}",
                came,
                came + 1,
                *(("Submitted", "queued") if i % 100 == 1 else ("Approved", "pass")),
                "<a/>" * 500,
            )
            for i in range(1, hits + 1)
            if i % 50
            for came in (at - SPREAD_US * (hits - i) // hits,)
        ),
    )
    answers = (
        (
            hit,
            place,
            pair,
            "answered",
            "yes" if role != "gold_negative" else "no",
            4000,
            hit % 100 != 1,
            "crowd",
        )
        for hit, place, pair, role in _items(hits, n_pairs)
        if hit % 50
    )
    add_tuples(
        session,
        JudgementRow,
        ["assignment_id", "place", "pair_id", "outcome", "label", "active_ms", "usable", "source"],
        answers,
    )
    paid = [i for i in range(1, hits + 1) if i % 50 and i % 100 != 1]
    add_tuples(
        session,
        Ledger,
        ("assignment_id", "kind", "key", "cents"),
        ((i, "reward", f"reward:{i}", 100) for i in paid),
    )
    add_tuples(
        session,
        Journal,
        ("kind", "key", "state", "token", "request", "at"),
        (("create", f"{i}", "done", f"t{i}", "{}", at) for i in range(1, hits + 1)),
    )
    add_tuples(
        session,
        FindingRow,
        ("assignment_id", "code", "detail"),
        ((i, "gold_failed", "1") for i in range(1, hits + 1, 100)),
    )
    for model in (Round, Batch, Worker, Hit, Assignment):
        ids_were_given(session, model)
    answer_sheets.fill(session)
    session.execute(text("ANALYZE"))


def _items(hits: int, n_pairs: int) -> Iterator[tuple[int, int, int, str]]:
    for hit in range(1, hits + 1):
        for place in range(1, PER_PAGE + 1):
            role = {1: "gold_positive", 2: "gold_negative"}.get(place, "candidate")
            pair = n_pairs - hit % 97 if place < 3 else (hit - 1) * (PER_PAGE - 2) + place - 2
            yield hit, place, pair, role

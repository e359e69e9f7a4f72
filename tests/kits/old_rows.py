"""Rows such as each revision of both databases has held, in the words of that revision; keys follow the columns."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Rows = dict[str, list[dict[str, Any]]]

T = 1_795_000_000_000_001
"""A time in microseconds since 1970, with an odd microsecond."""
AWKWARD = "ein \"Hund\", zwei 'Katzen'\t\\N \\. \\x41;\r\n\n– 🐕 %s :name {x} 'é' e\u0301 \u2028 end "


def _table(columns: str, *rows: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [dict(zip(columns.split(), row, strict=True)) for row in rows]


P0001: Rows = {
    "dataset": _table("id name kind id_kind content_sha256", (1, "scenes", "scenes", "integer", "0" * 64)),
    "image": _table(
        "id dataset_id external_id file url width height sha256",
        (1, 1, "10", "images/10.png", None, 64, 48, "ab" * 32),
        (2, 1, "9", None, "https://example.org/ö?a=1&b='2'", None, None, None),
    ),
    "caption": _table(
        "id dataset_id external_id image_id text",
        (1, 1, "101", 1, "a dog"),
        (2, 1, "102", 1, AWKWARD),
        (3, 1, "103", 2, ""),
        (7, 1, "104", 2, "x" * 5000),
    ),
    "rating": _table(
        "id image_id caption_id score sampling_method",
        (1, 1, 1, 4.850000000000001, "c2i_original"),
        (2, 2, 1, 0.1, "i2c"),
    ),
    "exclusion": _table(
        "id kind image_id caption_id reason source",
        (1, "caption", None, 3, "says nothing", "review"),
        (2, "pair", 1, 2, "", "cxc"),
    ),
    "annotator": _table(
        "id name kind config fingerprint",
        (1, "clip-mini", "inner_product", "{}", "f1"),
        (2, "pcme-mini", "probability", '{"a": 1}', "f2"),
    ),
    "run": _table("id hash config", (1, "c0ffee", '{"depth": 25}')),
    "query": _table("id run_id direction item_id", (1, 1, "i2t", 2), (2, 1, "t2i", 7)),
    "pair": _table("id image_id caption_id", (1, 1, 3), (2, 2, 1), (3, 2, 2), (11, 1, 1)),
    "proposal": _table(
        "id run_id pair_id annotator_id direction rank similarity",
        (1, 1, 1, 1, "i2t", 1, 0.30000001192092896),
        (2, 1, 1, 2, "t2i", 25, -1e-300),
        (3, 1, 2, 1, "i2t", 2, 1.7976931348623157e308),
    ),
    "round": _table(
        "id dataset_id number strategy opened_at closed_at",
        (1, 1, 1, "first", T, None),
        (2, 1, 2, "next", T + 1, T + 2),
    ),
    "batch": _table(
        "id name round_id environment direction template reward_cents assignments seed pilot server_id planned_at",
        (1, "b1", 1, "sandbox", "both", "pairs-plain", 100, 2, 0, False, "server-1", T),
        (2, "b2", 1, "live", "i2t", "pairs-rationale", 170, 1, 2**31 - 1, True, None, T + 5),
    ),
    "hit": _table(
        "id batch_id number attempt replaces_id assignments state mturk_hit_id token",
        (1, 1, 1, 1, None, 2, "closed", "3HIT1", "t1"),
        (2, 1, 1, 2, 1, 1, "posted", "3HIT2", "t2"),
        (3, 2, 1, 1, None, 1, "sending", None, "t3"),
    ),
    "hit_item": _table(
        "id hit_id place pair_id role",
        (1, 1, 1, 1, "candidate"),
        (2, 1, 2, 11, "gold_positive"),
        (3, 1, 3, 3, "gold_negative"),
        (4, 2, 1, 1, "candidate"),
        (5, 3, 1, 2, "repeat"),
    ),
    "worker": _table(
        "id environment mturk_worker_id excluded_at note",
        (1, "sandbox", "AWORKER1", None, None),
        (2, "sandbox", "AWORKER2", T + 9, "asked to leave"),
        (3, "live", "AWORKER1", None, ""),
    ),
    "assignment": _table(
        "id hit_id worker_id mturk_assignment_id accepted_at submitted_at status decision raw_xml",
        (1, 1, 1, "3ASG1", T, T + 60_000_000, "Approved", "pass", "<a>\r\n" + AWKWARD + "</a>"),
        (2, 1, 2, "3ASG2", None, None, "Rejected", "reject", "<a/>"),
        (3, 3, 3, "3ASG1", T, T + 1, "Submitted", "queued", "<a/>"),
    ),
    "judgement": _table(
        "id assignment_id place pair_id outcome label active_ms usable source",
        (1, 1, 1, 1, "answered", "weak_yes", 1234, True, "crowd"),
        (2, 1, 2, 11, "skipped", None, None, False, "crowd"),
        (3, 2, 1, 1, "answered", "no", 0, False, "crowd"),
    ),
    "rationale": _table(
        "id judgement_id kind value", (1, 1, "shortcoming", "described_wrongly"), (2, 1, "text", AWKWARD)
    ),
    "finding": _table("id assignment_id code detail", (1, 2, "gold_failed", "2, 3"), (2, 3, "too_fast", "")),
    "journal": _table(
        "id kind key state token request reply error at",
        (1, "create", "b1:1:1", "done", "t1", "{}", '{"HITId": "3HIT1"}', None, T),
        (2, "bonus", "3ASG1:AWORKER1:1", "done", "t4", "{}", "{}", None, T + 3),
        (3, "reject", "3ASG2:AWORKER2", "failed", None, "{}", None, "RequestError: " + AWKWARD, T + 4),
        (4, "create", "b2:1:1", "sending", "t3", "{}", None, None, T + 5),
        (5, "expire", "3HIT2", "planned", None, "{}", None, None, T + 6),
    ),
    "ledger": _table(
        "id assignment_id kind key cents",
        (1, 1, "reward", "reward:3ASG1:AWORKER1", 100),
        (2, 1, "fee", "fee:3ASG1:AWORKER1", 20),
        (3, 1, "bonus", "bonus:3ASG1:AWORKER1:1", 35),
    ),
    "release": _table(
        "id name manifest_sha256 rules salt",
        (1, "r1", "cd" * 32, "{}", "ef" * 16),
        (2, "r2", None, None, "01" * 16),
    ),
}

C0001: Rows = {
    "setting": _table(
        "name value", ("operator_token", "o" * 40), ("secret", "s" * 40), ("server_id", "server-1")
    ),
    "account": _table(
        "environment access_key secret_key budget_cents held_cents spent_cents",
        ("live", "AKIALIVE", "k" * 40, 5_000_000_000, 0, 0),
        ("sandbox", "AKIASANDBOX", "j" * 40, 1_000_000, 200, 135),
    ),
    "hit_type": _table(
        "id environment mturk_id group_id digest title description keywords reward_cents duration_s auto_approval_s"
        " requirements created_at",
        (1, "sandbox", "3TYPE1", "3GROUP1", "d1", AWKWARD, "", "a, b", 100, 3600, 604800, "[]", T),
    ),
    "invitation": _table(
        "id environment token_sha256 label personal max_uses uses created_at expires_at revoked_at",
        (1, "sandbox", "aa" * 32, "", True, 1, 1, T, T + 10, None),
        (4, "live", "bb" * 32, "the lab", False, None, 0, T, T + 10, T + 11),
    ),
    "qualification_type": _table(
        "id environment mturk_id name description keywords active created_at",
        (1, "sandbox", "3QUAL1", "capped", "did enough", "", True, T),
    ),
    "request_token": _table(
        "id environment kind token result used_at",
        (1, "sandbox", "hit", "t1", "3HIT1", T),
        (2, "sandbox", "bonus", "t4", "", T + 3),
    ),
    "hit": _table(
        "id environment mturk_id hit_type_id annotation max_assignments slots_left held_slots reviewing created_at"
        " expires_at settle_at deleted_at",
        (1, "sandbox", "3HIT1", 1, "mitl1:p:b1:1:1", 2, 0, 0, True, T, T + 7, None, T + 8),
        (
            2,
            "sandbox",
            "3HIT2",
            1,
            "mitl1:p:b1:1:2",
            2,
            2,
            2,
            False,
            T,
            4_000_000_000_000_000,
            4_000_000_000_000_000,
            None,
        ),
    ),
    "worker": _table(
        "id environment mturk_id invitation_id created_at",
        (1, "sandbox", "AWORKER1", 1, T),
        (2, "sandbox", "AWORKER2", 1, T + 1),
    ),
    "assignment": _table(
        "id environment hit_id worker_id mturk_id state accepted_at deadline_at submitted_at auto_approve_at decided_at"
        " feedback answer",
        (
            1,
            "sandbox",
            1,
            1,
            "3ASG1",
            "approved",
            T,
            T + 5,
            T + 2,
            T + 9,
            T + 3,
            "",
            "<a>\r\n" + AWKWARD + "</a>",
        ),
        (2, "sandbox", 1, 2, "3ASG2", "rejected", T, T + 5, T + 2, T + 9, T + 3, AWKWARD, "<a/>"),
    ),
    "hit_question": _table("hit_id xml", (1, "<q/>"), (2, "<q>" + AWKWARD + "</q>")),
    "qualification": _table(
        "id qualification_type_id worker_id value granted_at revoked_at",
        (1, 1, 1, None, T, None),
        (2, 1, 2, 100, T, T + 1),
    ),
    "bonus": _table(
        "id environment assignment_id cents reason granted_at", (1, "sandbox", 1, 35, AWKWARD, T + 3)
    ),
    "ledger": _table(
        "id environment kind hit_id assignment_id cents at",
        (1, "live", "budget", None, None, 5_000_000_000, T),
        (2, "sandbox", "budget", None, None, 1_000_000, T),
        (3, "sandbox", "hold", 1, None, 200, T),
        (4, "sandbox", "release", 1, 1, 100, T + 3),
        (5, "sandbox", "reward", 1, 1, 100, T + 3),
        (6, "sandbox", "release", 1, None, 100, T + 3),
        (7, "sandbox", "bonus", 1, 1, 35, T + 3),
        (8, "sandbox", "hold", 2, None, 200, T + 4),
    ),
}


# What each later revision brought: rows of new tables, and values of new columns by table and key.
def _design(purpose: str, *strata: tuple[int, int]) -> str:
    """The design of an audit whose strata have these sizes and samples, as p0009 keeps it."""
    named = [
        {"name": AWKWARD, "size": size, "sample": sample, "recheck_share": 0.1, "expected": 0.001}
        for size, sample in strata
    ]
    fixed = {"purpose": purpose, "seed": 3, "confidence": 0.95, "shares": None, "simple": False}
    return json.dumps({**fixed, "strata": named}, sort_keys=True)


def _recipe() -> str:
    """How an annotator was trained, as p0010 keeps it."""
    return json.dumps({"loss": AWKWARD, "steps": 3, "collected": 2}, sort_keys=True)


def _taught(*pairs: int) -> bytes:
    """The pairs that taught an annotator, as p0010 keeps them."""
    table = {
        "pair": pa.array(pairs, pa.int64()),
        "grade": pa.array([0.5] * len(pairs), pa.float64()),
        "positive": pa.array([True] * len(pairs), pa.bool_()),
        "n": pa.array([2] * len(pairs), pa.int32()),
        "original": pa.array([False] * len(pairs), pa.bool_()),
    }
    sink = io.BytesIO()
    pq.write_table(pa.table(table), sink)
    return sink.getvalue()


def _terms() -> str:
    """What a batch that collects was posted under, as p0010 keeps it."""
    words = {"least_words": 4, "most_words": 40, "most_characters": 300, "language": "en"}
    rules = {**words, "forbidden_starts": ["there is", AWKWARD]}
    return json.dumps({"rules": rules, "accepts": ["yes", "weak_yes"]}, sort_keys=True)


NEW_ROWS: dict[str, Rows] = {
    "p0002": {
        "import_file": _table(
            "id sha256 name kind columns batch_id rows imported_at",
            (1, "99" * 32, "old ö.csv", "batch_csv", None, 2, 17, T + 20),
        )
    },
    "p0003": {
        "original_verdict": _table(
            "id caption_id verdict at", (1, 3, "meaningless", T + 30), (2, 2, "keep", T + 31)
        )
    },
    "p0004": {
        "ranking_system": _table("id batch_id name origin", (1, 2, "A", "release r1"), (2, 2, "B", "")),
        "comparison": _table(
            "id hit_id place role direction query_id left_system right_system left_items right_items expected",
            (1, 3, 1, "asked", "i2t", 2, "A", "B", "[1, 2]", "[2, 7]", None),
        ),
        "preference": _table(
            "id assignment_id place outcome answer text active_ms",
            (1, 3, 1, "answered", "left", AWKWARD, 77),
            (2, 3, 2, "skipped", None, None, None),
        ),
    },
    "p0007": {
        "dataset": _table(
            "id name kind id_kind content_sha256", (2, "composed", "by hand", "string", "1" * 64)
        ),
        "side": _table("id dataset_id name", (3, 2, "query"), (4, 2, "image")),
        "direction": _table(
            "id dataset_id name query_side_id gallery_side_id", (3, 2, "c2i", 3, 4), (4, 2, "i2i", 4, 4)
        ),
        "item": _table(
            "side_id id external_id group_side_id group_id",
            (3, 1, "q", 4, 3),
            (4, 3, "ä.png", None, None),
            (4, 4, "b.png", None, None),
        ),
        "part": _table(
            "side_id item_id place kind text file url width height sha256",
            (3, 1, 1, "image", None, "ä.png", None, 640, 480, "cd" * 32),
            (3, 1, 2, "text", AWKWARD, None, None, None, None, None),
            (4, 3, 1, "image", None, "ä.png", None, 640, 480, "cd" * 32),
            (4, 4, 1, "video", None, None, "https://example.org/b", None, None, None),
        ),
        "pair": _table("id left_side_id left_id right_side_id right_id proposed", (5, 4, 3, 4, 4, False)),
        "rating": _table(
            "id left_side_id left_id right_side_id right_id score sampling_method",
            (3, 2, 1, 2, 7, 3.5, "c2c"),
        ),
    },
    "p0008": {
        "similarity_sample": _table(
            "id pair_id swapped method encoder rank similarity",
            (1, 5, False, "i2i_csim", "words", 1, 0.30000001192092896),
            (2, 5, True, "i2i_csim", AWKWARD, None, None),
        ),
        "similarity_item": _table(
            "id hit_id place task role pair_id swapped",
            (1, 1, 1, "sis", "asked", 5, True),
            (2, 1, 2, "sis", "repeated", 5, False),
        ),
        "similarity_answer": _table(
            "id assignment_id place outcome score text active_ms",
            (1, 1, 1, "answered", 2.57, AWKWARD, 77),
            (2, 1, 2, "skipped", None, None, None),
        ),
    },
    "p0009": {
        "audit": _table(
            "id environment number purpose design pool_sha256 listed drawn_at",
            (1, "sandbox", 1, "recall", _design("recall", (4, 1), (100_000, 1)), "ab" * 32, b"\x00PAR1", T),
            (2, "sandbox", 2, "labels", _design("labels"), "ab" * 32, b"", T + 1),
        ),
        "audit_pair": _table(
            "id audit_id pair_id place stratum inclusion recheck known",
            (1, 1, 5, 1, 0, 0.25, True, True),
            (2, 1, 2, 2, 1, 1e-05, False, False),
        ),
        "labelling": _table(
            "id environment audit_id config made_at withdrawn_at",
            (1, "sandbox", 2, AWKWARD, T, None),
            (2, "sandbox", 2, "{}", T, T + 5),
        ),
        "machine_label": _table(
            "id labelling_id pair_id label probability stratum", (1, 1, 5, "weak_yes", 0.987, "match")
        ),
    },
    "p0010": {
        "round": _table(
            "id dataset_id number environment strategy config opened_at closed_at rolled_back_at",
            (3, 1, 4, "sandbox", "expected", AWKWARD, T, T + 9, T + 10),
        ),
        "round_step": _table(
            "id round_id step result started_at ended_at",
            (1, 3, "train", AWKWARD, T, T + 1),
            (2, 3, "propose", "{}", T + 1, None),
        ),
        "chosen_pair": _table(
            "id round_id pair_id place score strategy", (1, 3, 5, 1, 0.30000001192092896, "expected")
        ),
        "trained_annotator": _table(
            "id name round_id base base_fingerprint file weights_sha256 recipe taught made_at withdrawn_at",
            (
                1,
                "clip-mini-r3",
                3,
                "clip-mini",
                "ab" * 32,
                "trained/ä",
                "cd" * 32,
                "{}",
                _taught(5),
                T,
                T + 10,
            ),
            (
                2,
                "mine",
                None,
                "clip-mini",
                "ab" * 32,
                "trained/mine",
                "cd" * 32,
                _recipe(),
                _taught(),
                T,
                None,
            ),
        ),
        "collection_choice": _table(
            "id environment side_id item_id place score strategy chosen_at",
            (1, "sandbox", 3, 1, 1, 2.5, "hard-negatives", T),
        ),
        "collection_terms": _table("batch_id terms", (1, _terms())),
        "collection_answer": _table(
            "id assignment_id place outcome text picked_id label active_ms",
            (1, 1, 1, "answered", AWKWARD, None, None, 77),
            (2, 1, 2, "skipped", None, None, None, None),
            (3, 1, 3, "answered", None, None, "weak_yes", 5),
        ),
        "collection_item": _table(
            "id hit_id place role side_id item_id offered reviewed_id",
            (1, 1, 1, "write", 3, 1, None, None),
            (2, 1, 2, "pick", 3, 1, "[3, 4]", None),
            (3, 1, 3, "review", 3, 1, None, 1),
        ),
    },
    "p0015": {"rating_source": _table("id sha256 name ratings", (1, "5e" * 32, AWKWARD, 2))},
    "c0002": {
        "study": _table(
            "environment version title information contact warning consent changed_at",
            ("sandbox", 2, "t", AWKWARD, "c", "", "I agree", T),
        ),
        "panel": _table(
            "id environment slug profile invitation_id worker_parameter study_parameter session_parameter"
            " hits_per_visit ends created_at closed_at",
            (
                1,
                "sandbox",
                "autumn",
                "prolific",
                1,
                "PROLIFIC_PID",
                "STUDY_ID",
                "SESSION_ID",
                3,
                "{}",
                T,
                None,
            ),
        ),
        "consent": _table("id worker_id version given at", (1, 1, 2, True, T), (2, 2, 2, False, T + 1)),
        "message": _table(
            "id environment worker_id subject text sent_at read_at", (1, "sandbox", 1, "s", AWKWARD, T, None)
        ),
        "panel_identity": _table(
            "id environment profile external_id worker_id", (1, "sandbox", "prolific", "5f" * 12, 1)
        ),
        "panel_visit": _table(
            "id panel_id worker_id session study state hits_done started_at ended_at",
            (1, 1, 1, "s1", "st", "completed", 3, T, T + 1),
        ),
        "qualification_request": _table(
            "id mturk_id environment type_id worker_id state answer started_at submitted_at decided_at reason",
            (1, "3REQ1", "sandbox", 1, 2, "pending", "<a/>", T, T + 1, None, ""),
        ),
        "worker_block": _table("worker_id environment reason blocked_at", (2, "sandbox", AWKWARD, T)),
        "late_answer": _table("id assignment_id answer received_at", (1, 2, "<a/>", T + 99)),
    },
    "c0003": {
        "sign_in": _table("caller failed last_at", ("5e" * 16, 6, T)),
        "ended_session": _table("session ends_at", ("1700000000-0123456789abcdef", T + 60)),
    },
}

NEW_VALUES: dict[str, dict[str, dict[int, dict[str, Any]]]] = {
    "p0002": {
        "batch": {1: {"source": "crowd", "estimate_s": 300}, 2: {"source": "import", "estimate_s": None}},
        "worker": {1: {"capped_at": T + 40}},
        "journal": {1: {"first_sent_at": T - 1}, 2: {"first_sent_at": T}},
    },
    "p0005": {
        "pair": {
            1: {"proposed": True},
            2: {"proposed": True},
            3: {"proposed": False},
            11: {"proposed": False},
        }
    },
    "p0004": {"batch": {1: {"kind": "pairs"}, 2: {"kind": "rankings"}}},
    "c0002": {
        "hit_type": {1: {"paused_at": T + 50}},
        "qualification_type": {
            1: {"test": "<q/>", "answer_key": None, "test_duration_s": 60, "retry_delay_s": 0}
        },
    },
    "c0004": {"qualification_request": {1: {"test": "<q/>", "test_duration_s": 60}}},
}

FIRST: dict[str, Rows] = {"p0001": P0001, "c0001": C0001}

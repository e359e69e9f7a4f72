"""What a project's database and the crowd server's say side by side, as rows that two runs can be compared by.

Left out are clock times, row numbers and the random ids that the server gives to HITs; what they link is looked up, so
that a HIT which is posted twice, or known under another's id, shows as a different row.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

State = dict[str, list[tuple[object, ...]]]

_HIT = "b.name || ':' || h.number || ':' || h.attempt"
_SUBMISSION = """assignment a JOIN hit h ON h.id = a.hit_id JOIN batch b ON b.id = h.batch_id
    JOIN worker w ON w.id = a.worker_id LEFT JOIN crowd.worker sw ON sw.mturk_id = w.mturk_worker_id
    LEFT JOIN crowd.assignment s ON s.mturk_id = a.mturk_assignment_id AND s.worker_id = sw.id"""
_THERE = (
    """crowd.assignment a JOIN crowd.worker w ON w.id = a.worker_id JOIN crowd.hit h ON h.id = a.hit_id"""
)

QUERIES = {
    "batches": """SELECT name, environment, direction, template, reward_cents, assignments, seed, pilot, source, kind
        FROM batch""",
    "HITs": f"""SELECT {_HIT}, h.state, h.assignments, h.token, s.annotation, s.max_assignments
        FROM hit h JOIN batch b ON b.id = h.batch_id LEFT JOIN crowd.hit s ON s.mturk_id = h.mturk_hit_id""",
    "pages": f"""SELECT {_HIT}, i.place, p.left_id, p.right_id, i.role FROM hit_item i
        JOIN hit h ON h.id = i.hit_id JOIN batch b ON b.id = h.batch_id JOIN pair p ON p.id = i.pair_id""",
    "comparisons": f"""SELECT {_HIT}, c.place, c.role, c.query_id, c.left_system, c.right_system, c.left_items,
        c.right_items, c.expected FROM comparison c JOIN hit h ON h.id = c.hit_id JOIN batch b ON b.id = h.batch_id""",
    "ranking systems": """SELECT b.name, s.name, s.origin FROM ranking_system s JOIN batch b ON b.id = s.batch_id""",
    "preferences": """SELECT a.mturk_assignment_id, p.place, p.outcome, p.answer, p.text FROM preference p
        JOIN assignment a ON a.id = p.assignment_id""",
    "pairs to rate": f"""SELECT {_HIT}, i.place, i.task, i.role, p.left_side_id, p.left_id, p.right_side_id, p.right_id,
        i.swapped FROM similarity_item i JOIN hit h ON h.id = i.hit_id JOIN batch b ON b.id = h.batch_id
        JOIN pair p ON p.id = i.pair_id""",
    "ratings": """SELECT a.mturk_assignment_id, r.place, r.outcome, r.score, r.text FROM similarity_answer r
        JOIN assignment a ON a.id = r.assignment_id""",
    "rounds": """SELECT number, environment, strategy, config, opened_at IS NULL, closed_at IS NULL,
        rolled_back_at IS NULL FROM round WHERE environment IS NOT NULL""",
    "steps of rounds": """SELECT r.number, s.step, s.result FROM round_step s JOIN round r ON r.id = s.round_id
        WHERE s.ended_at IS NOT NULL""",
    "choices of rounds": """SELECT r.number, c.place, c.score, c.strategy, p.left_id, p.right_id FROM chosen_pair c
        JOIN round r ON r.id = c.round_id JOIN pair p ON p.id = c.pair_id""",
    "batches of rounds": "SELECT r.number, b.name FROM batch b JOIN round r ON r.id = b.round_id",
    "audits": """SELECT a.environment, a.number, a.purpose, a.design, a.pool_sha256, d.place, d.stratum, p.left_id,
        p.right_id FROM audit a JOIN audit_pair d ON d.audit_id = a.id JOIN pair p ON p.id = d.pair_id""",
    "machine labels": """SELECT l.environment, l.config, l.withdrawn_at IS NULL, p.left_id, p.right_id, m.label
        FROM labelling l JOIN machine_label m ON m.labelling_id = l.id JOIN pair p ON p.id = m.pair_id""",
    "chosen items": "SELECT environment, side_id, item_id, place, score, strategy FROM collection_choice",
    "terms of texts": "SELECT b.name, t.terms FROM collection_terms t JOIN batch b ON b.id = t.batch_id",
    "texts to write and review": f"""SELECT {_HIT}, i.place, i.role, i.side_id, i.item_id, i.offered, w.text
        FROM collection_item i JOIN hit h ON h.id = i.hit_id JOIN batch b ON b.id = h.batch_id
        LEFT JOIN collection_answer w ON w.id = i.reviewed_id""",
    "texts and reviews": """SELECT a.mturk_assignment_id, c.place, c.outcome, c.text, c.picked_id, c.label
        FROM collection_answer c JOIN assignment a ON a.id = c.assignment_id""",
    "imported files": "SELECT sha256, kind, rows FROM import_file",
    "workers": "SELECT environment, mturk_worker_id, excluded_at IS NULL, capped_at IS NULL FROM worker",
    "submissions": f"""SELECT {_HIT}, w.mturk_worker_id, a.mturk_assignment_id, a.status, a.decision,
        a.raw_xml = s.answer, lower(a.status) = s.state FROM {_SUBMISSION}""",
    "answers": """SELECT a.mturk_assignment_id, j.place, p.left_id, p.right_id, j.outcome, j.label, j.usable
        FROM judgement j JOIN assignment a ON a.id = j.assignment_id JOIN pair p ON p.id = j.pair_id""",
    "findings": """SELECT a.mturk_assignment_id, f.code, f.detail FROM finding f
        JOIN assignment a ON a.id = f.assignment_id""",
    "journal": "SELECT kind, key, state, token FROM journal",
    "ledger": """SELECT a.mturk_assignment_id, l.kind, l.key, l.cents FROM ledger l
        JOIN assignment a ON a.id = l.assignment_id""",
    "the server's HIT types": "SELECT title, description, keywords, reward_cents FROM crowd.hit_type",
    "the server's HITs": """SELECT annotation, max_assignments, slots_left, held_slots, deleted_at IS NULL,
        expires_at < (SELECT max(created_at) FROM crowd.hit) FROM crowd.hit""",
    "the server's submissions": f"SELECT h.annotation, w.mturk_id, a.mturk_id, a.state, a.feedback FROM {_THERE}",
    "the server's bonuses": f"""SELECT h.annotation, w.mturk_id, n.cents, n.reason
        FROM {_THERE} JOIN crowd.bonus n ON n.assignment_id = a.id""",
    "the server's qualifications": """SELECT t.name, w.mturk_id, q.value, q.revoked_at IS NULL
        FROM crowd.qualification q JOIN crowd.qualification_type t ON t.id = q.qualification_type_id
        JOIN crowd.worker w ON w.id = q.worker_id""",
    "the server's money": "SELECT environment, held_cents, spent_cents FROM crowd.account",
    "the server's ledger": """SELECT environment, kind, count(*), sum(cents) FROM crowd.ledger
        GROUP BY environment, kind""",
}


def state(folder: Path) -> State:
    """The rows of a project's two databases, by what they are about."""
    with closing(sqlite3.connect(folder / "mitl.db")) as connection:
        connection.execute("ATTACH DATABASE ? AS crowd", (str(folder / "crowd.db"),))
        return {
            about: sorted(connection.execute(query).fetchall(), key=repr) for about, query in QUERIES.items()
        }


def differences(found: State, expected: State) -> list[str]:
    """What differs, in words: one line for each kind of row."""
    lines = []
    for about, rows in expected.items():
        more = [row for row in found[about] if row not in rows]
        less = [row for row in rows if row not in found[about]]
        if found[about] != rows:
            lines.append(
                f"{about}: {len(found[about])} rows for {len(rows)}; unexpected {more[:3]}, missing {less[:3]}"
            )
    return lines

"""What must hold of the crowd server's rows and no constraint says: each rule counts what breaks it."""

from __future__ import annotations

RULES: dict[str, str] = {
    "accounts differ from what their ledger adds up to": """
        SELECT count(*) FROM account a LEFT JOIN (
            SELECT environment,
                sum(CASE WHEN kind = 'budget' THEN cents ELSE 0 END) AS budget,
                sum(CASE WHEN kind = 'hold' THEN cents WHEN kind = 'release' THEN -cents ELSE 0 END) AS held,
                sum(CASE WHEN kind IN ('reward', 'bonus') THEN cents ELSE 0 END) AS spent
            FROM ledger GROUP BY environment
        ) AS l ON l.environment = a.environment
        WHERE a.budget_cents <> coalesce(l.budget, 0) OR a.held_cents <> coalesce(l.held, 0)
            OR a.spent_cents <> coalesce(l.spent, 0)""",
    "accounts hold another sum than their HITs need": """
        SELECT count(*) FROM account a LEFT JOIN (
            SELECT h.environment, sum(h.held_slots * t.reward_cents) AS held
            FROM hit h JOIN hit_type t ON t.id = h.hit_type_id GROUP BY h.environment
        ) AS n ON n.environment = a.environment
        WHERE a.held_cents <> coalesce(n.held, 0)""",
    "HITs have another number of free places than their submissions leave": """
        SELECT count(*) FROM hit h LEFT JOIN (
            SELECT hit_id, count(*) AS n FROM assignment WHERE state IN ('submitted', 'approved', 'rejected')
            GROUP BY hit_id
        ) AS done ON done.hit_id = h.id
        WHERE h.slots_left <> h.max_assignments - coalesce(done.n, 0)""",
    "approved submissions are not paid once": """
        SELECT count(*) FROM assignment a LEFT JOIN (
            SELECT assignment_id, count(*) AS n FROM ledger WHERE kind = 'reward' GROUP BY assignment_id
        ) AS paid ON paid.assignment_id = a.id
        WHERE a.state = 'approved' AND coalesce(paid.n, 0) <> 1""",
    "submissions are paid that are not approved": """
        SELECT count(*) FROM ledger l JOIN assignment a ON a.id = l.assignment_id
        WHERE l.kind = 'reward' AND a.state <> 'approved'""",
    "assignments are of another environment than their HIT or their worker": """
        SELECT count(*) FROM assignment a JOIN hit h ON h.id = a.hit_id JOIN worker w ON w.id = a.worker_id
        WHERE a.environment <> h.environment OR a.environment <> w.environment""",
    "bonuses granted and bonuses booked are not the same sum": """
        SELECT count(*) FROM account a
        WHERE (SELECT coalesce(sum(b.cents), 0) FROM bonus b WHERE b.environment = a.environment)
            <> (SELECT coalesce(sum(l.cents), 0) FROM ledger l
                WHERE l.environment = a.environment AND l.kind = 'bonus')""",
    "HITs have no question": """
        SELECT count(*) FROM hit h WHERE h.deleted_at IS NULL
            AND NOT EXISTS (SELECT 1 FROM hit_question q WHERE q.hit_id = h.id)""",
}

"""What must hold of the pipeline's rows and no constraint says: each rule is a query that counts what breaks it."""

from __future__ import annotations

RULES: dict[str, str] = {
    "queries search with an item that is not there": """
        SELECT count(*) FROM query q
        LEFT JOIN image i ON q.direction = 'i2t' AND i.id = q.item_id
        LEFT JOIN caption c ON q.direction = 't2i' AND c.id = q.item_id
        WHERE i.id IS NULL AND c.id IS NULL""",
    "comparisons are of a query that is not there": """
        SELECT count(*) FROM comparison q
        LEFT JOIN image i ON q.direction = 'i2t' AND i.id = q.query_id
        LEFT JOIN caption c ON q.direction = 't2i' AND c.id = q.query_id
        WHERE i.id IS NULL AND c.id IS NULL""",
    "pairs are marked as proposed and nothing proposed them, or the other way round": """
        SELECT count(*) FROM pair p
        WHERE p.proposed <> EXISTS (SELECT 1 FROM proposal r WHERE r.pair_id = p.id)""",
    "pairs join items of two data sets": """
        SELECT count(*) FROM pair p JOIN image i ON i.id = p.image_id JOIN caption c ON c.id = p.caption_id
        WHERE i.dataset_id <> c.dataset_id""",
    "captions belong to an image of another data set": """
        SELECT count(*) FROM caption c JOIN image i ON i.id = c.image_id WHERE i.dataset_id <> c.dataset_id""",
    "HITs are posted and have no id of the server": """
        SELECT count(*) FROM hit WHERE state = 'posted' AND mturk_hit_id IS NULL""",
    "HITs replace one of another batch": """
        SELECT count(*) FROM hit h JOIN hit r ON r.id = h.replaces_id WHERE r.batch_id <> h.batch_id""",
    "judgements are about another pair than stands at their place": """
        SELECT count(*) FROM judgement j JOIN assignment a ON a.id = j.assignment_id
        JOIN hit_item p ON p.hit_id = a.hit_id AND p.place = j.place WHERE p.pair_id <> j.pair_id""",
    "judgements have a label although nothing was answered, or none although it was": """
        SELECT count(*) FROM judgement WHERE (outcome = 'answered') <> (label IS NOT NULL)""",
    "workers of one environment have submissions in the other": """
        SELECT count(*) FROM assignment a JOIN worker w ON w.id = a.worker_id JOIN hit h ON h.id = a.hit_id
        JOIN batch b ON b.id = h.batch_id WHERE b.environment <> w.environment""",
    "ledger rows book less than nothing, or something unknown": """
        SELECT count(*) FROM ledger WHERE cents < 0 OR kind NOT IN ('reward', 'fee', 'bonus')""",
    "rewards are booked for work that is not approved": """
        SELECT count(*) FROM ledger l JOIN assignment a ON a.id = l.assignment_id
        WHERE l.kind = 'reward' AND a.status <> 'Approved'""",
    "rewards are booked at another price than their batch's": """
        SELECT count(*) FROM ledger l JOIN assignment a ON a.id = l.assignment_id JOIN hit h ON h.id = a.hit_id
        JOIN batch b ON b.id = h.batch_id WHERE l.kind = 'reward' AND l.cents <> b.reward_cents""",
    "submissions have more than one reward booked": """
        SELECT count(*) FROM (
            SELECT assignment_id FROM ledger WHERE kind = 'reward' GROUP BY assignment_id HAVING count(*) > 1
        ) AS twice""",
    "bonuses are booked and the journal knows no call that granted them": """
        SELECT count(*) FROM ledger l WHERE l.kind = 'bonus' AND NOT EXISTS (
            SELECT 1 FROM journal j WHERE j.kind = 'bonus' AND j.state = 'done' AND 'bonus:' || j.key = l.key)""",
    "bonuses were granted and are not booked": """
        SELECT count(*) FROM journal j WHERE j.kind = 'bonus' AND j.state = 'done' AND NOT EXISTS (
            SELECT 1 FROM ledger l WHERE l.key = 'bonus:' || j.key)""",
    "calls are under way or planned and have a reply": """
        SELECT count(*) FROM journal WHERE state = 'planned' AND reply IS NOT NULL""",
}

"""The two calls that post a HIT, said once: publishing makes them, a rehearsal checks and writes them down."""

from __future__ import annotations

from mitl.crowd.client import MTurkClient
from mitl.db.store.hits import HitRow
from mitl.hits.templates import HitTemplate
from mitl.settings import ASSIGNMENT_DURATION_S, AUTO_APPROVAL_S, LIFETIME_S
from mitl.stages.publishing.planning import annotation


def create_hit_type(client: MTurkClient, template: HitTemplate, reward_cents: int, guard: str) -> str:
    """The id of the HIT type of a wording at a price, which nobody sees who holds the qualification ``guard``."""
    return client.create_hit_type(
        title=template.title,
        description=template.description,
        keywords=template.keywords,
        reward_cents=reward_cents,
        assignment_duration_s=ASSIGNMENT_DURATION_S,
        auto_approval_s=AUTO_APPROVAL_S,
        exclude_qualification=guard,
    )


def create_hit(client: MTurkClient, project_id: str, hit: HitRow, hit_type_id: str, question: str) -> str:
    """Post a HIT under its own token and annotation; the id that the server gives it."""
    return client.create_hit(
        hit_type_id=hit_type_id,
        question=question,
        max_assignments=hit.assignments,
        lifetime_s=LIFETIME_S,
        annotation=annotation(project_id, hit),
        token=hit.token,
    ).hit_id

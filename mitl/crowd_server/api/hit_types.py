"""HIT types: made from a request's values, or found by their id."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any

from mitl.crowd_server.api import requirements
from mitl.crowd_server.api.registry import Call, operation
from mitl.crowd_server.errors import absent
from mitl.crowd_server.store import hit_types
from mitl.crowd_server.store.hit_types import TypeRow, TypeValues

MONTH_S = 30 * 24 * 3600
YEAR_S = 365 * 24 * 3600


@operation("CreateHITType", writes=True)
def create_hit_type(call: Call) -> dict[str, Any]:
    """Make a HIT type; the same values give the same one."""
    return {"HITTypeId": of_values(call).mturk_id}


def existing(call: Call) -> TypeRow:
    """The HIT type that the request names."""
    mturk_id = call.params.entity("HITTypeId")
    found = hit_types.find(call.connection, call.environment, mturk_id)
    if found is None:
        raise absent("HITType", "HITTypeDoesNotExist", mturk_id)
    return found


def of_values(call: Call) -> TypeRow:
    """The HIT type of the values in the request, made at its first use."""
    params = call.params
    values = TypeValues(
        title=params.text("Title", longest=128, required=True),
        description=params.text("Description", longest=2000, required=True),
        keywords=params.text("Keywords", longest=1000),
        reward_cents=params.cents("Reward"),
        duration_s=params.integer("AssignmentDurationInSeconds", 30, YEAR_S),
        auto_approval_s=params.integer("AutoApprovalDelayInSeconds", 0, MONTH_S, MONTH_S),
        requirements=requirements.read(call),
    )
    digest = hashlib.sha256(json.dumps(asdict(values), sort_keys=True).encode()).hexdigest()
    return hit_types.add(call.connection, call.environment, digest, values, call.now)

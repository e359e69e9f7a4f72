"""Keeping a worker from further HITs by a qualification of our own, which harms nobody's account."""

from __future__ import annotations

from mitl.crowd.client import MTurkClient


def exclusion_qualification(client: MTurkClient, project_id: str) -> str:
    """The id of the project's exclusion qualification type, made where it is missing.

    HIT types require that a worker does *not* hold it. Workers learn nothing from its name.
    """
    name = f"mitl {project_id} finished"
    known = client.find_qualification_type(name)
    if known is not None:
        return known
    return client.create_qualification_type(
        name,
        "Held by people who have finished their part of this study; no further tasks are offered to them.",
    )

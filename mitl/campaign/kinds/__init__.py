"""The kinds of campaigns, a folder each, whose ``kind`` module has the ``KIND``; to be here is to be registered."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import Any

from sqlalchemy.orm import Session

from mitl.campaign.kind import CampaignKind
from mitl.db.store import hits as hit_store
from mitl.records import BatchKind, Environment


def kind_of(name: str) -> CampaignKind[Any, Any]:
    """The kind of this name, as batches and requests have it."""
    kind: CampaignKind[Any, Any] = import_module(f"{__name__}.{name}.kind").KIND
    return kind


def kind_names() -> list[str]:
    """All that are registered."""
    return sorted(folder.name for folder in pkgutil.iter_modules(__path__))


def kinds_asked(session: Session, environment: Environment) -> list[CampaignKind[Any, Any]]:
    """The kinds that batches of an environment have; pairs first, and always."""
    others = {batch.kind for batch in hit_store.batches(session, environment)} - {BatchKind.PAIRS}
    return [kind_of(name) for name in (BatchKind.PAIRS, *sorted(others))]

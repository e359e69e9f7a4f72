"""The kinds of campaigns, a folder each, whose ``kind`` module has the ``KIND``; to be here is to be registered."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
from sqlalchemy.orm import Session

from mitl.campaign.kinds.protocol import CampaignKind
from mitl.db.store import hits as hit_store
from mitl.db.store import open_work
from mitl.db.store.open_work import HitToReplace
from mitl.hits.templates import HitTemplate, load_template
from mitl.records import BatchKind, Environment


def kind_of(name: str) -> CampaignKind[Any, Any]:
    """The kind of this name, as batches and requests have it."""
    kind: CampaignKind[Any, Any] = import_module(f"{__name__}.{name}.kind").KIND
    return kind


def wording_of(kind: str, name: str, wordings: Path | None) -> HitTemplate:
    """A wording of a kind: one of the project's own, a bundled one, or one that the kind brings in ``hit_templates``.

    Raises:
        TemplateError: see `load_template`.
    """
    (folder, *_) = import_module(f"{__name__}.{kind}").__path__
    return load_template(name, wordings, asks=kind, kind_folder=Path(folder) / "hit_templates")


def kind_names() -> list[str]:
    """All that are registered."""
    return sorted(folder.name for folder in pkgutil.iter_modules(__path__) if folder.ispkg)


def kinds_asked(session: Session, environment: Environment) -> list[CampaignKind[Any, Any]]:
    """The kinds that batches of an environment have; pairs first, and always."""
    others = {batch.kind for batch in hit_store.batches(session, environment)} - {BatchKind.PAIRS}
    return [kind_of(name) for name in (BatchKind.PAIRS, *sorted(others))]


def to_ask_again(
    session: Session, environment: Environment, answers: pd.DataFrame | None = None
) -> dict[str, Sequence[HitToReplace]]:
    """Command that asks again → the closed HITs that leave something to it, pairs first; nothing where none does.

    Args:
        answers: those of this environment on pairs, where they are at hand.
    """
    found = {
        kind.command: open_work.hits_to_replace(session, environment, answers)
        if kind.name == BatchKind.PAIRS
        else kind.to_replace(session, environment)
        for kind in kinds_asked(session, environment)
    }
    return {command: hits for command, hits in found.items() if hits}

"""The kinds of campaigns, a folder each, whose ``kind`` module has the ``KIND``; to be here is to be registered."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy.orm import Session

from mitl.campaign.kinds.protocol import CampaignKind, Request
from mitl.crowd.context import named
from mitl.db.store import audits, open_work
from mitl.db.store import hits as hit_store
from mitl.db.store.items import DatasetRow
from mitl.db.store.open_work import HitToReplace
from mitl.db.store.rounds import after_pages, pairs_command
from mitl.db.store.worker_tallies import Tallies
from mitl.errors import FormError
from mitl.records import PAIRS_COMMAND, BatchKind, Environment
from mitl.records.forms import IMAGES, SET_FORMS

if TYPE_CHECKING:
    from mitl.hits.templates import HitTemplate


def kind_of(name: str) -> CampaignKind[Any, Any]:
    """The kind of this name, as batches and requests have it."""
    kind: CampaignKind[Any, Any] = import_module(f"{__name__}.{name}.kind").KIND
    return kind


def wording_of(kind: str, name: str, wordings: Path | None) -> HitTemplate:
    """A wording of a kind: one of the project's own, a bundled one, or one that the kind brings in ``hit_templates``.

    Raises:
        TemplateError: see `load_template`.
    """
    from mitl.hits.templates import load_template

    (folder, *_) = import_module(f"{__name__}.{kind}").__path__
    return load_template(name, wordings, asks=kind, kind_folder=Path(folder) / "hit_templates")


def fitting(request: Request, dataset: DatasetRow | None, wordings: Path | None) -> Request:
    """The request in a wording that can show the items of this data set.

    Raises:
        FormError: this kind of campaign, or this wording, shows items of another form.
        TemplateError: see `load_template`.
    """
    if dataset is None:
        return request
    form = dataset.form
    if request.kind != BatchKind.PAIRS:
        if form is not IMAGES:
            raise FormError(
                f"`{kind_of(request.kind).command}` asks about images and captions so far, and this data set has "
                f"{' and '.join(form.nouns)}; `mitl publish` asks about pairs of them"
            )
        return request
    if request.template == IMAGES.wording:
        return replace(request, template=form.wording)
    wording = wording_of(request.kind, request.template, wordings)
    if wording.asks != form.asks:
        shown = next(
            (
                " and ".join(set_form.nouns)
                for set_form in SET_FORMS.values()
                if set_form.asks == wording.asks
            ),
            "others",
        )
        raise FormError(
            f"the wording {request.template!r} shows {shown}, and this data set has {' and '.join(form.nouns)}; leave "
            f"out --template, or give one that says asks = {form.asks!r}"
        )
    return request


def kind_names() -> list[str]:
    """All that are registered."""
    return sorted(folder.name for folder in pkgutil.iter_modules(__path__) if folder.ispkg)


def kinds_asked(session: Session, environment: Environment) -> list[CampaignKind[Any, Any]]:
    """The kinds that batches of an environment have; pairs first, and always."""
    return [kind_of(BatchKind.PAIRS), *other_kinds_asked(session, environment)]


def other_kinds_asked(session: Session, environment: Environment) -> list[CampaignKind[Any, Any]]:
    """Those but pairs, which take a while to load."""
    asked = {batch.kind for batch in hit_store.batches(session, environment)}
    return [kind_of(name) for name in sorted(asked - {BatchKind.PAIRS})]


def after_answers(session: Session, environment: Environment) -> str:
    """What comes once every page that is out was answered: more pages where pairs lack an answer, else the release;
    while a round is open, what ends it."""
    command = pairs_command(session, environment)
    if command == PAIRS_COMMAND:
        lacks = open_work.pair_counts(session, environment).open or audits.disputes(session, environment)
        build = f"mitl build-dataset{named(session, environment)} --out DIR"
        return after_pages(session, environment) if lacks else build
    return f"{command} --{environment}, which ends the round"


def to_ask_again(
    session: Session, environment: Environment, tallies: Tallies | None = None
) -> dict[str, Sequence[HitToReplace]]:
    """Command that asks again → the closed HITs that leave something to it, pairs first; nothing where none does.

    Args:
        tallies: those of this environment, where they are at hand.
    """
    to_replace: dict[str, Sequence[HitToReplace]] = {
        pairs_command(session, environment): open_work.hits_to_replace(session, environment, tallies)
    }
    for kind in other_kinds_asked(session, environment):
        to_replace[kind.ask_again] = kind.to_replace(session, environment)
    return {command: hits for command, hits in to_replace.items() if hits}

"""Which form of data sets a command is about: that of the release that it names, else the project's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mitl.errors import MitlError
from mitl.records.forms import IMAGES, SET_FORMS, SetForm
from mitl.settings import Settings


def form_of(settings: Settings, folders: Sequence[Path]) -> SetForm:
    """The form of the first release among ``folders``, else of the project; images where there is neither."""
    try:
        return _of_release(folders) or _of_project(settings)
    except MitlError:
        return IMAGES


def _of_release(folders: Sequence[Path]) -> SetForm | None:
    if not folders:
        return None
    from mitl.positives.folders import MANIFEST, read_manifest
    from mitl.positives.loading import sides_of

    release = next((folder for folder in folders if (folder / MANIFEST).is_file()), None)
    return None if release is None else SET_FORMS[sides_of(read_manifest(release))]


def _of_project(settings: Settings) -> SetForm:
    if not (settings.project / "mitl.toml").is_file():
        return IMAGES
    from mitl.db.session import open_database
    from mitl.db.store import items

    with open_database(settings.db_url, read_only=True) as session:
        dataset = items.find_dataset(session)
    return IMAGES if dataset is None else dataset.form

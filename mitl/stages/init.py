"""Making a project: its folder, its settings file, its database with images and captions."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mitl import settings as configuration
from mitl.db.engine import parse_url
from mitl.db.session import open_database
from mitl.db.store import hits, items
from mitl.errors import StoreError
from mitl.records import Exclusion, Rating, RetrievalSet, StageResult
from mitl.settings import Settings


def make_project_id(name: str) -> str:
    """A name that fits into annotations and tokens; its random tail keeps two projects apart."""
    stem = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:20] or "project"
    return f"{stem}-{secrets.token_hex(3)}"


def ensure_config(folder: Path, name: str, seed: int, tables: Mapping[str, Mapping[str, Any]]) -> bool:
    """Write ``mitl.toml`` where there is none; returns whether it was written."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / configuration.CONFIG_FILE).exists():
        return False
    about = {"name": name, "id": make_project_id(name), "seed": seed}
    configuration.write_config(folder, {"project": about, **tables})
    return True


def check_database(settings: Settings) -> None:
    """Pass where the project's database can take a data set: there is none yet, or it is of this version.

    Raises:
        SettingsError: its URL cannot be meant.
        StoreError: it is of another version, holds other tables or cannot be reached.
    """
    url = parse_url(settings.db_url)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        return
    with open_database(settings.db_url, create=True):
        pass


def init(
    settings: Settings,
    data: RetrievalSet,
    *,
    ratings: Sequence[Rating] = (),
    exclusions: Sequence[Exclusion] = (),
    now: dt.datetime | None = None,
) -> StageResult:
    """Load a data set into the project's database, once.

    Raises:
        StoreError: another data set is loaded here already.
    """
    moment = now or dt.datetime.now(dt.UTC)
    with open_database(settings.db_url, create=True) as session:
        found = items.find_dataset(session)
        if found is not None:
            return _already_loaded(found, data, settings)
        dataset_id = items.add_dataset(session, data)
        n_ratings = items.add_ratings(session, dataset_id, ratings)
        n_exclusions = items.add_exclusions(session, dataset_id, exclusions)
        hits.open_round(session, dataset_id, moment)
        session.commit()
    with_file = sum(image.file is not None for image in data.images)
    counts: dict[str, object] = {
        "images": len(data.images),
        "captions": len(data.captions),
        "image_files": with_file,
        "ratings": n_ratings,
        "exclusions": n_exclusions,
    }
    warnings = []
    if ratings and n_ratings < len(ratings):
        warnings.append(
            f"{len(ratings) - n_ratings:,} of {len(ratings):,} CxC ratings name images or captions "
            "outside the data set; they were left out"
        )
    return StageResult(
        counts=counts,
        paths={"project": str(settings.project), "config": str(settings.project / "mitl.toml")},
        warnings=tuple(warnings),
        lines=(
            f"data set {data.name}: {len(data.images):,} images ({with_file:,} with a picture at hand), "
            f"{len(data.captions):,} captions, {n_ratings:,} CxC ratings, {n_exclusions:,} exclusions",
        ),
        next="mitl propose",
    )


def _already_loaded(found: items.DatasetRow, data: RetrievalSet, settings: Settings) -> StageResult:
    same = (found.name, found.kind, found.n_images, found.n_captions) == (
        data.name,
        data.kind,
        len(data.images),
        len(data.captions),
    )
    if not same:
        raise StoreError(
            f"this project holds {found.name!r} ({found.n_images:,} images, {found.n_captions:,} captions), "
            f"not {data.name!r} ({len(data.images):,}, {len(data.captions):,}); "
            "make another project folder for it"
        )
    return StageResult(
        status="nothing_to_do",
        counts={"images": found.n_images, "captions": found.n_captions},
        paths={"project": str(settings.project)},
        lines=(f"nothing to do: {found.name} is loaded already",),
        next="mitl propose",
    )


def content_hash(data: RetrievalSet) -> str:
    """SHA-256 over ids and texts: the same data give the same hash whatever their files were called."""
    digest = hashlib.sha256()
    for image in data.images:
        digest.update(f"i\x1f{image.external_id}\n".encode())
    for caption in data.captions:
        line = f"c\x1f{caption.external_id}\x1f{caption.image_external_id}\x1f{caption.text}\n"
        digest.update(line.encode())
    return digest.hexdigest()

"""A release: the folder that others load, made from records alone."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from mitl.errors import ReleaseError
from mitl.positives.croissant import croissant
from mitl.positives.datasheet import datasheet
from mitl.positives.folders import (
    FORMAT,
    MANIFEST,
    file_entries,
    holds,
    one_writer,
    refuse_other,
    replace_folder,
)
from mitl.positives.ids import release_ids
from mitl.positives.merging import listed_queries
from mitl.positives.privacy import find_leaks
from mitl.positives.pseudonyms import shown_judgements
from mitl.positives.readme import readme
from mitl.positives.release_input import ReleaseInput
from mitl.positives.summary import Summary, summarise
from mitl.positives.tables import (
    ids_table,
    judgements_table,
    negatives_table,
    parquet_bytes,
    positives_table,
    posteriors_table,
)
from mitl.positives.texts import conflicts_csv, json_bytes, official_csv, positives_json
from mitl.records import Direction, IdKind


@dataclass(frozen=True, slots=True)
class WrittenRelease:
    """What was written where."""

    folder: Path
    manifest_sha256: str
    changed: bool
    """False where the folder already held exactly this release."""
    summary: Summary


def write_release(
    folder: Path,
    data: ReleaseInput,
    *,
    private_ids: Mapping[str, Iterable[str]] | None = None,
    replace: bool = False,
) -> WrittenRelease:
    """Write the release folder, whole or not at all; nothing is touched if it already holds these very bytes.

    Args:
        replace: put it in place of an earlier release that the folder holds.
        private_ids: kind → ids of which no file may hold one, nor a plain hash of one; looked for before writing.

    Raises:
        ReleaseError: the folder holds another release or something that is not a release's; an id, the salt or the
            configuration is unfit; a file would give a private id away; the place cannot be written.
    """
    files, summary = release_files(data)
    _refuse_leaks(files, private_ids or {})
    with one_writer(folder):
        changed = not holds(folder, files)
        if changed:
            if not replace:
                refuse_other(folder, files)
            replace_folder(folder, files)
    return WrittenRelease(folder, hashlib.sha256(files[MANIFEST]).hexdigest(), changed, summary)


def _refuse_leaks(files: Mapping[str, bytes], private_ids: Mapping[str, Iterable[str]]) -> None:
    leaks = find_leaks(files, private_ids)
    if leaks:
        first = leaks[0]
        remedy = "take it out of [release] in mitl.toml, or out of the names of the project"
        if first.file == "judgements.parquet":
            remedy = "a worker wrote it; build the release without --with-texts"
        raise ReleaseError(
            f"{first.file} would hold the id of a {first.what} ({first.form}), and {len(leaks) - 1} more places would; "
            f"nothing was written; {remedy}"
        )


def release_files(data: ReleaseInput) -> tuple[dict[str, bytes], Summary]:
    """The content of each file of the release, and its figures.

    Raises:
        ReleaseError: an id, the salt or the configuration is unfit.
    """
    if not data.name.strip():
        raise ReleaseError("the release has no name; give it one")
    images = release_ids(data.id_kind, data.image_ids, "image")
    captions = release_ids(data.id_kind, data.caption_ids, "caption")
    listed = listed_queries(data.merged, data.queries)
    summary = summarise(data, listed)
    shown = shown_judgements(data.judgements, data.salt)
    tables = {
        "positives": positives_table(data, images, captions),
        "negatives": negatives_table(data, images, captions),
        "judgements": judgements_table(data, shown, images, captions),
    }
    if data.posterior is not None:
        tables["posteriors"] = posteriors_table(data, data.posterior, images, captions)
    if data.id_kind is IdKind.STRING:
        tables["ids"] = ids_table(images, captions)
    files = {f"{name}.parquet": parquet_bytes(table) for name, table in tables.items()}
    files["image_to_caption.json"] = positives_json(listed[Direction.I2T], images, captions)
    files["caption_to_image.json"] = positives_json(listed[Direction.T2I], captions, images)
    files["mturk_parsed.csv"] = official_csv(data, shown, images, captions)
    files["conflicts.csv"] = conflicts_csv(data, images, captions)
    files["datasheet.md"] = datasheet(data, summary).encode()
    files["croissant.json"] = json_bytes(croissant(data, summary, files, tables))
    files["README.md"] = readme(data, summary, files).encode()
    files[MANIFEST] = _manifest(data, summary, files)
    return files, summary


def _manifest(data: ReleaseInput, summary: Summary, files: Mapping[str, bytes]) -> bytes:
    try:
        return json_bytes(
            {
                "format": FORMAT,
                "name": data.name,
                "dataset": data.dataset,
                "environment": data.environment.value,
                "id_kind": data.id_kind.value,
                "rules": asdict(data.rules),
                "card": asdict(data.card),
                "seeds": dict(data.seeds),
                "configuration": dict(data.configuration),
                "counts": summary.as_json(),
                "versions": _versions(),
                "files": file_entries(files),
            }
        )
    except (TypeError, ValueError) as error:
        raise ReleaseError(f"the configuration cannot be written as JSON: {error}") from error


def _versions() -> dict[str, str]:
    """What the bytes depend on."""
    versions = {"python": platform.python_version()}
    for package in ("mitl", "numpy", "pyarrow"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # run from a folder that is not installed
            versions[package] = "not installed"
    return versions

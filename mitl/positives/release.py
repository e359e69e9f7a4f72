"""A release: the folder that others load, made from records alone."""

from __future__ import annotations

import platform
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa

from mitl.errors import ReleaseError
from mitl.positives.audit_files import AUDIT_TABLES, CERTIFICATE, audit_tables, certificate_file
from mitl.positives.croissant import croissant, file_notes
from mitl.positives.datasheet import datasheet
from mitl.positives.folders import FORMAT, MANIFEST, REFERENCES, WrittenRelease, file_entries, put_release
from mitl.positives.ids import release_ids
from mitl.positives.markdown import front_matter, plain, table
from mitl.positives.merging import listed_queries
from mitl.positives.privacy import refuse_leaks, shown_judgements
from mitl.positives.release_input import MadeOf, ReleaseCard, ReleaseInput
from mitl.positives.sheet_audit import in_short
from mitl.positives.summary import Summary, summarise
from mitl.positives.tables import (
    collected_table,
    conflicts_csv,
    ids_table,
    json_bytes,
    judgements_table,
    negatives_table,
    official_csv,
    parquet_bytes,
    positives_json,
    positives_table,
    posteriors_table,
)
from mitl.records import Direction, IdKind, several
from mitl.records.forms import IMAGES, TEXTS, SetForm, of_form, phrases


def write_release(
    folder: Path,
    data: ReleaseInput,
    *,
    private_ids: Mapping[str, Iterable[str]] | None = None,
    replace: bool = False,
) -> WrittenRelease[Summary]:
    """Write the release folder, whole or not at all; nothing is touched if it already holds these very bytes.

    Args:
        replace: put it in place of an earlier release that the folder holds.
        private_ids: kind → ids of which no file may hold one, nor a plain hash of one; looked for before writing.

    Raises:
        ReleaseError: the folder holds another release or something that is not a release's; an id, the salt or the
            configuration is unfit; a file would give a private id away; the place cannot be written.
    """
    files, summary = release_files(data)
    refuse_leaks(files, private_ids or {})
    return put_release(folder, files, summary, replace=replace)


def release_files(data: ReleaseInput) -> tuple[dict[str, bytes], Summary]:
    """The content of each file of the release, and its figures.

    Raises:
        ReleaseError: an id, the salt or the configuration is unfit.
    """
    images = release_ids(data.id_kind, data.image_ids, "image")
    names = images, release_ids(data.id_kind, data.caption_ids, "caption")
    listed = listed_queries(data.merged, data.queries)
    summary = summarise(data, listed)
    shown = shown_judgements(data.judgements, data.salt)
    files: dict[str, bytes] = {}
    schemas: dict[str, pa.Schema] = {}
    filled = []

    def keep(name: str, table: pa.Table) -> None:
        """Its bytes and its columns alone: of millions of judgements the table itself is the largest thing here."""
        files[f"{name}.parquet"], schemas[name] = parquet_bytes(table), table.schema
        if table.num_rows:
            filled.append(name)

    keep("positives", positives_table(data, names))
    keep("negatives", negatives_table(data, names))
    keep("judgements", judgements_table(data, shown, names))
    if data.posterior is not None:
        keep("posteriors", posteriors_table(data, data.posterior, names))
    if data.audit is not None:
        for name, made in audit_tables(data, data.audit, names).items():
            keep(name, made)
        files[CERTIFICATE] = json_bytes(certificate_file(data.audit))
    if data.collected:
        keep("collected", collected_table(data, images))
    if data.id_kind is IdKind.STRING:
        keep("ids", ids_table(names))
    for direction, file in zip(Direction, data.form.lists, strict=True):
        files[file] = positives_json(listed[direction], *direction.ordered(*names))
    if data.references:
        files[REFERENCES] = json_bytes(dict(data.references))
    if data.form is IMAGES:  # the official file knows images and captions alone
        files["mturk_parsed.csv"] = official_csv(data, shown, names)
    files["conflicts.csv"] = conflicts_csv(data, names)
    sheet = datasheet(data, summary)
    machines = {*data.origins.kinds, *summary.proposed_by}
    makers = makers_words(data.card, data.name, data.dataset, *machines)
    files["datasheet.md"] = of_form(sheet, data.form, makers).encode()
    described = croissant(data, summary, files, schemas)
    files["croissant.json"] = json_bytes(described_of_form(described, data.form, makers))
    files["README.md"] = readme(data, summary, files, filled, makers).encode()
    files[MANIFEST] = _manifest(data, summary, files)
    return files, summary


def _manifest(data: ReleaseInput, summary: Summary, files: Mapping[str, bytes]) -> bytes:
    # Where nobody collected, an upgraded project releases the bytes that it released before there was collecting.
    counts = {name: count for name, count in summary.as_json().items() if name != "collected" or count}
    own: dict[str, object] = {"rules": asdict(data.rules), "counts": counts}
    if data.form is not IMAGES:
        own["sides"] = list(data.sides)
    return manifest(data, FORMAT, files, own)


def manifest(data: MadeOf, kind: str, files: Mapping[str, bytes], own: Mapping[str, object]) -> bytes:
    """What a release says of itself, as JSON: what all releases say, and what is this one's own."""
    if not data.name.strip():
        raise ReleaseError("the release has no name; give it one")
    try:
        return json_bytes(
            {
                "format": kind,
                "name": data.name,
                "dataset": data.dataset,
                "dataset_sha256": data.dataset_sha256,
                "environment": data.environment.value,
                "id_kind": data.id_kind.value,
                "card": asdict(data.card),
                "seeds": dict(data.seeds),
                "configuration": dict(data.configuration),
                "versions": versions(),
                "files": file_entries(files),
                **own,
            }
        )
    except (TypeError, ValueError) as error:
        raise ReleaseError(f"the configuration cannot be written as JSON: {error}") from error


def versions() -> dict[str, str]:
    """What the bytes depend on."""
    by_package = {"python": platform.python_version()}
    for package in ("mitl", "numpy", "pyarrow"):
        try:
            by_package[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # run from a folder that is not installed
            by_package[package] = "not installed"
    return by_package


_TABLES = ("positives", "negatives", "judgements", "posteriors", *AUDIT_TABLES, "collected", "ids")
_REST = {
    "croissant.json": "The tables and their columns, described for machines (MLCommons Croissant).",
    "manifest.json": "Hashes of these files, and the configuration, seeds and versions that rebuild them.",
}


def readme(
    data: ReleaseInput,
    summary: Summary,
    files: Iterable[str],
    filled: Collection[str],
    makers: Collection[str],
) -> str:
    """What is in the folder and how to load it; the front matter lets the ``datasets`` library load the tables by name.

    Args:
        files: names of the release's other files, those that are not written yet left out.
        filled: tables with a row or more; ``datasets`` cannot load one without rows.
        makers: see :func:`makers_words`.
    """
    names = set(files)
    body = [
        f"# {plain(data.name)}",
        f"{several(summary.positives, 'pair')} of {plain(data.dataset)} in which the caption describes the image. How "
        "they came to be is told in `datasheet.md`.",
        file_listing(names, file_notes(data)),
        *(
            (
                f"In the tables `image_id` is the {data.sides[0]} and `caption_id` the {data.sides[1]}. `mitl export` "
                "writes them as the files of BEIR and TREC. The layout of `eccv_caption` and its CSV know none of "
                "these, so they are left out.",
            )
            if data.form is not IMAGES
            else (
                "`image_to_caption.json` and `caption_to_image.json` load in the `eccv_caption` package:",
                "```python\nfrom eccv_caption import Metrics\n\nmetrics = Metrics()\n"
                'metrics.set_eccv_gts("image_to_caption.json", "caption_to_image.json")\n```',
            )
        ),
        _lists(data, summary),
    ]
    if data.id_kind is IdKind.STRING:
        body.append(
            f"The integers in them{' and in `mturk_parsed.csv`' if data.form is IMAGES else ''} stand for ids that are "
            "text: `ids.parquet` tells which."
        )
    if data.audit is not None:
        body += [
            "How complete and how right it is, within the pairs of the queries that were asked:",
            in_short(data.audit.certificate.lines()),
            "`certificate.json` and `datasheet.md` tell what that rests on; `mitl verify FOLDER` computes it again "
            "from these files alone.",
        ]
    if data.has_machine_labels:
        body.append(
            "Some pairs were labelled by a machine alone: in `positives.parquet` and `negatives.parquet` their "
            "`sources` say `machine`. What they are worth is told in `datasheet.md`."
        )
    if summary.texts is not None:
        body.append(
            "`judgements.parquet` holds the workers' own words in its column `text`, after a scan that took addresses, "
            "long numbers and ids out."
        )
    told = of_form("\n\n".join(body), data.form, makers)
    tables = {name: f"{name}.parquet" for name in _TABLES if name in filled}
    return front_matter(data.name, data.card.license, configurations(tables)) + told + "\n"


def configurations(tables: Mapping[str, str]) -> Iterator[str]:
    """Names for the ``datasets`` library, each of a file, the first by default; lines of a README's front matter."""
    for place, (config, file) in enumerate(tables.items()):
        yield from (f"- config_name: {config}", f"  data_files: {file}")
        yield from () if place else ("  default: true",)


def file_listing(files: Collection[str], told: Mapping[str, tuple[str, str]]) -> str:
    """What each file of a release holds, as a table; ``told`` says its media type and its content."""
    notes = {name: note for name, (_, note) in told.items() if name in files} | _REST
    return table(("file", "holds"), [(f"`{name}`", note) for name, note in notes.items()])


def _lists(data: ReleaseInput, summary: Summary) -> str:
    """Whose positives the JSONs list."""
    if not any(summary.queries_asked.values()):
        return (
            "They are empty, as it is not known which images and captions searched: see `positives.parquet`."
        )
    numbers = " and ".join(
        f"{several(summary.query_positives[direction], 'positive')} of "
        f"{several(summary.queries_listed[direction], f'{noun} query', f'{noun} queries')}"
        for direction, noun in ((Direction.I2T, "image"), (Direction.T2I, "caption"))
    )
    if "query_lists" in data.configuration:
        return f"They list {numbers}, which the makers named; `positives.parquet` holds every pair."
    return f"They list {numbers}: the positives of other images and captions were not looked for."


_SAID = frozenset(phrases(TEXTS))
"""Of these words alone nobody is the maker."""


def makers_words(card: ReleaseCard, *names: str) -> frozenset[str]:
    """What the makers of a data set wrote, as it is and as Markdown; their words are theirs."""
    given = [*names, *card.creators, *(value for value in asdict(card).values() if isinstance(value, str))]
    return frozenset(
        form for value in given if value and value not in _SAID for form in (value, plain(value))
    )


def described_of_form(
    value: Any, form: SetForm, makers: Collection[str] = (), *, described: bool = False
) -> Any:
    """The same of every description within Croissant's JSON-LD; ``described`` where the value is one."""
    if isinstance(value, Mapping):
        return {
            key: described_of_form(
                part, form, makers, described=key == "description" or key.startswith("rai:")
            )
            for key, part in value.items()
        }
    if isinstance(value, list):
        return [described_of_form(part, form, makers, described=described) for part in value]
    return of_form(value, form, makers) if described and isinstance(value, str) else value

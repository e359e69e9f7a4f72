"""Positives read back: from a release, or the official ones."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from mitl.datasets import official
from mitl.datasets.official import OfficialPositives, OfficialSet
from mitl.errors import ReleaseError
from mitl.positives.folders import MANIFEST, REFERENCES, checked_table, read_checked, read_manifest
from mitl.records import Direction, IdKind
from mitl.records.forms import IMAGES, SET_FORMS

if TYPE_CHECKING:
    import pyarrow as pa

_INTEGER = re.compile("-?[0-9]{1,18}")
_FILES = dict(zip(Direction, IMAGES.lists, strict=True))


@dataclass(frozen=True, slots=True)
class ReleasePositives:
    """Each query's positives, by external id (as text), for both directions."""

    name: str
    id_kind: IdKind
    by_query: Mapping[Direction, Mapping[str, tuple[str, ...]]]

    @classmethod
    def of(cls, name: str, id_kind: IdKind, pairs: OfficialPositives) -> ReleasePositives:
        """Of two directions as the official JSONs hold them."""
        tables = (pairs.image_to_caption, pairs.caption_to_image)
        return cls(name, id_kind, dict(zip(Direction, tables, strict=True)))

    def pairs(self, direction: Direction) -> frozenset[tuple[str, str]]:
        """The positives of one direction as (image, caption)."""
        listed = self.by_query[direction].items()
        return frozenset(direction.ordered(query, item) for query, items in listed for item in items)


def read_release(folder: Path) -> ReleasePositives:
    """The positives of the queries that a release lists; its files are checked against its manifest.

    A folder that holds the two JSONs alone is read as they are.

    Raises:
        ReleaseError: it is not a release, or a file is missing, changed or malformed.
    """
    if (folder / _FILES[Direction.I2T]).is_file() and not (folder / MANIFEST).is_file():
        return read_positives_json(folder)
    manifest = read_manifest(folder)
    kind = manifest.get("id_kind")
    if kind not in list(IdKind):
        raise ReleaseError(
            f"the manifest of {str(folder)!r} names the id kind {kind!r}; known: integer, string"
        )
    tables = {
        direction: _parse(read_checked(folder, manifest, name), folder / name)
        for direction, name in zip(Direction, SET_FORMS[sides_of(manifest)].lists, strict=True)
    }
    if kind == IdKind.STRING:
        ids = checked_table(folder, manifest, "ids.parquet", ["kind", "number", "external_id"])
        tables = _with_strings(tables, ids, folder)
    return ReleasePositives(str(manifest.get("name", folder.name)), IdKind(str(kind)), tables)


def read_original_images(folder: Path) -> dict[str, str]:
    """Caption → the image that the data set has it for, by external ids, as a release's positives tell it.

    A caption of several has the first; where the original was refused, and of positives without sources, nothing is
    told.
    """
    if not (folder / MANIFEST).is_file():
        return {}
    import pyarrow.compute as pc

    columns = ["image_id", "caption_id", "sources"]
    table = checked_table(folder, read_manifest(folder), "positives.parquet", columns)
    sources = table["sources"].combine_chunks()
    at = pc.list_parent_indices(sources).filter(pc.equal(pc.list_flatten(sources), "original"))
    images, captions = (table[name].take(at).to_pylist() for name in columns[:2])
    # From the last to the first, so that the first one stays.
    return dict(zip(map(str, reversed(captions)), map(str, reversed(images)), strict=True))


def sides_of(manifest: Mapping[str, object]) -> tuple[str, str]:
    """What the left and the right side of a release's pairs are called.

    Raises:
        ReleaseError: no release has such sides.
    """
    named = manifest.get("sides", list(IMAGES.sides))
    sides = next((both for both in SET_FORMS if list(both) == named), None)
    if sides is None:
        raise ReleaseError(f"the manifest names the sides {named!r}, which this version does not know")
    return sides


def read_references(folder: Path) -> dict[str, str]:
    """Composed query → the image that its text changes, which it may not find; empty for every other release.

    Raises:
        ReleaseError: the file is missing or was changed.
    """
    manifest = read_manifest(folder) if (folder / MANIFEST).is_file() else {"files": {}}
    if REFERENCES not in cast("dict[str, object]", manifest["files"]):
        return {}
    told = json.loads(read_checked(folder, manifest, REFERENCES))
    return {str(query): str(image) for query, image in told.items()}


def read_positives_json(folder: Path) -> ReleasePositives:
    """The positives of a folder that holds the two JSONs alone, in the layout that ``eccv_caption`` reads.

    Raises:
        ReleaseError: a file is missing or malformed.
    """
    tables = {}
    for direction, name in _FILES.items():
        try:
            tables[direction] = _parse((folder / name).read_bytes(), folder / name)
        except OSError as error:
            raise ReleaseError(
                f"{str(folder)!r} is not a set of positives: {name} cannot be read ({error.strerror}); it takes "
                f"{' and '.join(_FILES.values())}, or a release folder"
            ) from error
    return ReleasePositives(folder.name, IdKind.INTEGER, tables)


def official_positives(which: OfficialSet) -> ReleasePositives:
    """The positives that the ``eccv_caption`` package carries: COCO's test split, CxC or ECCV Caption.

    Raises:
        DatasetError: the package is not installed, or its files are damaged.
    """
    return ReleasePositives.of(f"official-{which}", IdKind.INTEGER, official.official_positives(which))


def _parse(content: bytes, path: Path) -> dict[str, tuple[str, ...]]:
    def each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        """The object of these keys; a doubled one, as 3 and 03 are, would leave only the last one's positives."""
        table: dict[str, object] = {}
        for key, items in pairs:
            query = _id(key, path)
            if query in table:
                raise ReleaseError(f"{str(path)!r} lists query {query} twice; give it one list of positives")
            table[query] = items
        return table

    try:
        table = json.loads(content, object_pairs_hook=each_once)
    except ValueError as error:
        raise ReleaseError(f"{str(path)!r} is not valid JSON: {error}") from error
    if not isinstance(table, dict):
        raise ReleaseError(f"{str(path)!r} holds no object of queries")
    return {query: _items(query, items, path) for query, items in table.items()}


def _items(query: str, items: object, path: Path) -> tuple[str, ...]:
    if not isinstance(items, list):
        raise ReleaseError(f"{str(path)!r} gives query {query!r} no list of items")
    return tuple(_id(item, path) for item in items)


def _id(value: object, path: Path) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ReleaseError(f"{str(path)!r} holds the id {value!r}, but ids are integers")
    # int() would also read 1_0, and digits of any script.
    if isinstance(value, str) and not _INTEGER.fullmatch(value):
        raise ReleaseError(f"{str(path)!r} holds the id {value!r}, but ids are integers")
    return str(int(value))


def _with_strings(
    tables: Mapping[Direction, Mapping[str, Iterable[str]]], ids: pa.Table, folder: Path
) -> dict[Direction, dict[str, tuple[str, ...]]]:
    names: dict[str, dict[str, str]] = {"image": {}, "caption": {}}
    for row in ids.to_pylist():
        names[row["kind"]][str(row["number"])] = row["external_id"]
    named = {}
    try:
        for direction, table in tables.items():
            queries, found = direction.ordered(names["image"], names["caption"])
            named[direction] = {
                queries[query]: tuple(found[item] for item in items) for query, items in table.items()
            }
    except KeyError as error:
        raise ReleaseError(f"the ids.parquet of {str(folder)!r} does not name {error.args[0]!r}") from None
    return named

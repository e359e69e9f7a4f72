"""Tables of pairs: captions with the image, sound or video they describe; or queries of an image and a text."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mitl.datasets.assembling import assemble
from mitl.datasets.columns import Roles, assign, parse_columns
from mitl.datasets.files import Row, caption_text, cell_id, file_text, text_of
from mitl.datasets.finding import JSON, TEXT, find_source
from mitl.datasets.images import (
    PICTURES,
    ImageFolder,
    Inside,
    Picture,
    kind_of_name,
    locate,
    look_inside,
    write_pictures,
)
from mitl.datasets.row_sources import RowSource
from mitl.errors import DatasetError, UsageError
from mitl.records import Caption, PartKind, RetrievalSet, several
from mitl.records.forms import IMAGES, SOUNDS, VIDEOS, SetForm

Rows = Mapping[int, Row]
"""Rows by their numbers, from 1."""
_ADDRESS = re.compile(r"https?://")
_OF_FILES = {PartKind.IMAGE: IMAGES, PartKind.AUDIO: SOUNDS, PartKind.VIDEO: VIDEOS}
"""The form of a data set whose left items are such files."""
_PROBES = 50
"""Pictures that are looked for in each folder beside a table."""


@dataclass(frozen=True, slots=True)
class TableReading:
    """How a table is to be read, where its columns do not say it."""

    columns: tuple[str, ...] = ()
    """``ROLE=COLUMN``."""
    split: str | None = None
    skip_empty: bool = False
    """Leave out empty captions in place of refusing the table."""


@dataclass(slots=True)
class Told:
    """What a reader says beside the data."""

    lines: list[str] = field(default_factory=list)
    """For people, on how the table was read."""
    files: dict[str, str] = field(default_factory=dict)
    """Image id → the file that the table names, whether or not it is there."""


@dataclass(frozen=True, slots=True)
class _Named:
    """What the images of the rows are called."""

    ids: Mapping[int, str]
    told: str
    weak_is_captions: bool = False
    """Whether the column ``id`` names captions."""


def read_table(
    path: Path,
    *,
    images: Path | None = None,
    url_template: str | None = None,
    unpack: Path | None = None,
    reading: TableReading | None = None,
    told: Told | None = None,
) -> RetrievalSet:
    """The pairs of whatever `find_source` knows: CSV, JSON, Parquet, Arrow, shards, folders of these.

    Columns are known by natural names (`columns.NAMES`). Captions may be lists or numbered columns. Without ids of
    their own, images are called by their file, their address or the number of the first row that holds them, and
    captions ``<image id>#<k>``, k from 0 in the order of an image's rows. Files are looked up in the folder ``images``,
    else beside the table, else in one folder there. Pictures inside a table are written to ``pictures`` in the folder
    ``unpack``, and named relative to its parent.

    Ids are integers if all of them are, else strings.

    Args:
        told: receives what there is to say beside the data.

    Raises:
        DatasetError: the file is missing or malformed, a column cannot be told, a cell is empty or cannot be meant, an
            id comes twice, two rows disagree about one image, or a picture inside cannot be read.
        UsageError: ``reading`` names a role or a split that there is not.
    """
    reading, told = reading or TableReading(), told or Told()
    source, split = find_source(path, reading.split)
    roles = assign(source.columns, parse_columns(reading.columns), source.quoted)
    rows = _of_split(dict(enumerate(source.rows(roles.read), start=1)), roles, split, source)
    looks = roles.picture is not None and unpack is not None
    kind = (roles.form or IMAGES).left_part
    inside = look_inside(source, str(roles.picture), rows, kind) if looks else Inside()
    form = roles.form or _form_of_files(rows, roles, inside, source)
    named = _image_ids(rows, roles, inside, source)
    captions, left_out = _captions(rows, roles, named, reading, source)
    pictures = _pictures(rows, roles, named, inside, source, form)
    told.lines += [_read_as(roles, named, form), *source.notes]
    if left_out:
        told.lines.append(f"left out {several(left_out, 'empty caption')}")
    told.files |= {picture.image_id: picture.file_name for picture in pictures if picture.file_name}
    folder = images or _beside(source, pictures)
    if folder is None and (elsewhere := _elsewhere(pictures)):
        told.lines.append(
            f"its files lie elsewhere; to have them read, add --images {shlex.quote(str(elsewhere))}"
        )
    located = locate(
        _by_stem(pictures, folder, form.left_part) if folder else pictures,
        folder=folder,
        url_template=url_template,
        nouns=form.nouns[0],
    )
    data = assemble("table", "table", located, captions, source=path, sides=form.sides)
    if unpack is None or images is not None or not inside.names:
        return data
    # Last, so that a table that will not do leaves no pictures behind.
    write_pictures(source, str(roles.picture), inside, unpack)
    files = {
        named.ids[number]: f"{unpack.name}/{PICTURES}/{name}"
        for number, name in inside.names.items()
        if number in named.ids
    }
    placed = (replace(image, file=files.get(image.external_id, image.file)) for image in data.images)
    return replace(data, images=tuple(placed))


def _of_split(rows: Rows, roles: Roles, split: str | None, source: RowSource) -> Rows:
    """The rows of a split that a column names; all where none is wanted."""
    if split is None:
        return rows
    if roles.split is None:
        raise UsageError(f"{source.quoted} has neither splits nor a column 'split'; leave out --split")
    splits = dict.fromkeys(str(row[roles.split]) for row in rows.values())
    if split not in splits:
        raise UsageError(f"{source.quoted} has no split {split!r}; it holds {', '.join(list(splits)[:12])}")
    return {number: row for number, row in rows.items() if str(row[roles.split]) == split}


def _form_of_files(rows: Rows, roles: Roles, inside: Inside, source: RowSource) -> SetForm:
    """What the files' names say that they hold; images where they say nothing."""
    first: dict[PartKind, str] = {}
    for number, row in rows.items():
        name = text_of(row.get(roles.file)) if roles.file else inside.paths.get(number)
        kind = kind_of_name(name) if name else None
        if name and kind:
            first.setdefault(kind, name)
    if len(first) > 1:
        both = " and ".join(map(repr, list(first.values())[:2]))
        raise DatasetError(
            f"{source.quoted} names files of several kinds, as {both}; a data set has images, sounds or videos, so "
            "make one for each"
        )
    return _OF_FILES[next(iter(first), PartKind.IMAGE)]


def _image_ids(rows: Rows, roles: Roles, inside: Inside, source: RowSource) -> _Named:
    """What each row's image is called: by its id's column, else by what ``id`` turns out to be, else by its file."""
    where = source.where

    def by(column: str) -> dict[int, str]:
        return {number: cell_id(row.get(column), column, where(number)) for number, row in rows.items()}

    if roles.image_id is not None:
        unique = roles.id is not None and _unique(rows, roles.id) and len(roles.captions) == 1
        return _Named(
            by(roles.image_id),
            f"column `{roles.image_id}`",
            unique and not roles.listed and not roles.caption_id,
        )
    place = roles.file or roles.url
    if roles.reference is not None and place is not None:
        return _Named(by(place), f"column `{place}`", weak_is_captions=roles.id is not None)
    if roles.id is not None:
        if place is None:
            return _Named(by(roles.id), f"column `{roles.id}`")
        ids, places = by(roles.id), by(place)
        if len(set(zip(places.values(), ids.values(), strict=True))) == len(set(places.values())):
            return _Named(ids, f"column `{roles.id}`")
        if not _unique(rows, roles.id) or roles.listed or len(roles.captions) > 1 or roles.caption_id:
            raise DatasetError(
                f"{source.quoted} has several {roles.id!r} on one {place!r}, but not one a row; say whose ids they are "
                f"with --columns image_id={place}, or leave the column out"
            )
        return _Named(places, f"column `{place}`", weak_is_captions=True)
    if place is not None:
        return _Named(by(place), f"column `{place}`")
    # Of a picture that is named and not inside, the name is all that tells it from others.
    told_apart = {number: f"row {number}" for number in rows} | inside.paths | inside.names
    if len(inside.paths) == len(rows):
        both = {(inside.paths[number], told_apart[number]) for number in rows}
        if len(both) == len({path for path, _ in both}) == len({name for _, name in both}):
            told = {number: cell_id(path, "path", where(number)) for number, path in inside.paths.items()}
            return _Named(told, "the pictures' own paths")
    first: dict[str, int] = {}
    for number in rows:
        first.setdefault(told_apart[number], number)
    ids = {number: str(first[told_apart[number]] - 1) for number in rows}
    return _Named(ids, "number of the first row with the picture, from 0")


def _unique(rows: Rows, column: str) -> bool:
    return len({str(row.get(column)) for row in rows.values()}) == len(rows)


def _read_as(roles: Roles, named: _Named, form: SetForm) -> str:
    """One line for people: which column is what."""
    texts = roles.captions
    numbered = f"columns `{texts[0]}` … `{texts[-1]}`"
    left, right = form.sides
    inside = "pictures" if form.left_part is PartKind.IMAGE else form.nouns[0]
    told = {
        "reference": _column(roles.reference),
        left: f"column `{roles.picture}` ({inside})" if roles.picture else _column(roles.file),
        f"{left} id": named.told,
        f"{left} address": _column(roles.url),
        right: numbered if len(texts) > 1 else f"column `{texts[0]}`{' (lists)' if roles.listed else ''}",
        f"{right} id": _column(roles.id if named.weak_is_captions else roles.caption_id),
    }
    return "read as: " + ", ".join(f"{what} = {column}" for what, column in told.items() if column)


def _column(name: str | None) -> str:
    return f"column `{name}`" if name else ""


def _captions(
    rows: Rows, roles: Roles, named: _Named, reading: TableReading, source: RowSource
) -> tuple[list[Caption], int]:
    """(the captions, how many empty ones were left out)."""
    seen: Counter[str] = Counter()
    captions, left_out = [], 0
    ids = roles.id if named.weak_is_captions else roles.caption_id
    for number, row in rows.items():
        image_id = named.ids[number]
        reference = (
            cell_id(row.get(roles.reference), roles.reference, source.where(number))
            if roles.reference
            else None
        )
        if reference is not None and reference == image_id:
            raise DatasetError(
                f"{source.where(number)} has {reference!r} as its reference and as what it looks for; a query looks "
                "for another image, so mend the row or take it out"
            )
        for caption_id, text in _texts(row, roles, ids, source.where(number), skip=reading.skip_empty):
            if text is None:
                left_out += 1
                continue
            captions.append(Caption(caption_id or f"{image_id}#{seen[image_id]}", image_id, text, reference))
            seen[image_id] += 1
    return captions, left_out


def _texts(
    row: Row, roles: Roles, ids: str | None, where: str, *, skip: bool
) -> list[tuple[str | None, str | None]]:
    """(id or None, text) of a row's captions; the text is None where it is empty and may be left out."""
    column = roles.captions[0]
    if roles.listed:
        values = row.get(column) or []
        if not (skip or (values and all(map(text_of, values)))):
            raise DatasetError(f"{where} has an empty caption among its {len(values)}; {_SKIP}")
        text_ids = row.get(ids) if ids else [None] * len(values)
        if not isinstance(text_ids, list) or len(text_ids) != len(values):
            raise DatasetError(
                f"{where} has {len(values)} captions, but {ids!r} does not list an id for each"
            )
    else:
        values = [row.get(name) for name in roles.captions]
        if len(values) > 1 and any(map(text_of, values)):
            values = [value for value in values if text_of(value)]  # an image may have fewer than another
        if len(values) > 1 and ids:
            raise DatasetError(
                f"{where} has {len(values)} captions, but {ids!r} does not list an id for each"
            )
        text_ids = [row.get(ids)] if ids else [None] * len(values)
        if not skip and not any(map(text_of, values)):
            raise DatasetError(f"{where} has no {column}; {_SKIP}")
    return [
        (
            cell_id(id_, str(ids), where) if ids else None,
            caption_text(value, column, where) if text_of(value) else None,
        )
        for id_, value in zip(text_ids, values, strict=True)
    ]


_SKIP = "mend it, or leave empty captions out with --skip-empty"


def _pictures(
    rows: Rows, roles: Roles, named: _Named, inside: Inside, source: RowSource, form: SetForm
) -> list[Picture]:
    """Each image once, references too; DatasetError where two rows disagree about one."""
    pictures: dict[str, tuple[Picture, str | None]] = {}
    for number, row in rows.items():
        image_id = named.ids[number]
        where = source.where(number)
        # Where a picture is inside, its path says no more than its id, and may be one of several.
        path = None if number in inside.names else inside.paths.get(number)
        named_file = row.get(roles.file) if roles.file else path
        file = file_text(named_file, roles.file or "path", where)
        url = file_text(row.get(roles.url), roles.url, where) if roles.url else None
        if not (file or url) and kind_of_name(image_id) is form.left_part:
            file = image_id
        holds = kind_of_name(file) if file else None
        if holds not in {None, form.left_part, PartKind.VIDEO if roles.sound_said else None}:
            raise DatasetError(
                f"{where} names {file!r}, but its column is read for {form.nouns[0]}; say what it holds "
                f"with --columns sound={roles.file} or video={roles.file}, or name other files"
            )
        new = _picture(image_id, file, url), inside.names.get(number)
        earlier = pictures.setdefault(image_id, new)
        if earlier != new:
            what = "another file or url" if earlier[0] != new[0] else "another picture"
            raise DatasetError(
                f"{where} gives {form.sides[0]} {image_id!r} {what} than before; write the same in all "
                "of its rows, or give it an id of its own"
            )
    for row in rows.values() if roles.reference else ():
        name = str(text_of(row.get(str(roles.reference))))
        pictures.setdefault(name, (_picture(name, name), None))
    return [picture for picture, _ in pictures.values()]


def _picture(id_: str, file: str | None, url: str | None = None) -> Picture:
    if file and _ADDRESS.match(file):
        file, url = None, url or file
    return Picture(id_, file_name=file, url=url)


def _beside(source: RowSource, pictures: Sequence[Picture]) -> Path | None:
    """The table's own folder if any of its files lies there, else the one folder in it that holds some."""
    own_folder = ImageFolder(source.folder.resolve())
    if any(own_folder.find(picture) for picture in pictures):
        return own_folder.folder
    probes = [picture for picture in pictures if picture.file_name][:_PROBES]
    places = [
        ImageFolder(entry) for entry in sorted(own_folder.folder.iterdir()) if probes and entry.is_dir()
    ]
    folders = [place.folder for place in places if any(map(place.find, probes))]
    if len(folders) > 1:
        raise DatasetError(
            f"the files of {source.quoted} lie in {' and in '.join(repr(folder.name) for folder in folders[:3])}; "
            "name the folder that is meant with --images"
        )
    return folders[0] if folders else None


def _elsewhere(pictures: Sequence[Picture]) -> str | None:
    """The folder of files that a table names from the root: only the user may say that they are meant."""
    named = [picture.file_name for picture in pictures if picture.file_name]
    if not named or not all(map(os.path.isabs, named)):
        return None
    return os.path.commonpath([str(Path(name).parent) for name in named])


def _by_stem(pictures: Sequence[Picture], folder: Path, kind: PartKind) -> list[Picture]:
    """Pictures that name no file, or one without its suffix, with the file in the folder that is called so."""
    bare = [p for p in pictures if not p.url and kind_of_name(p.file_name or p.image_id) is not kind]
    if not bare or not folder.is_dir():
        return list(pictures)
    stems: dict[str, list[str]] = {}
    others: dict[str, list[str]] = {}
    for entry in folder.iterdir():
        named = kind_of_name(entry.name)
        if named is kind:
            stems.setdefault(entry.stem, []).append(entry.name)
        elif named is None and entry.suffix.lower() not in (*TEXT, *JSON):  # which say something of a file
            others.setdefault(entry.stem, []).append(entry.name)
    stems = others | stems
    candidates = {p.image_id: stems.get(p.file_name or p.image_id, []) for p in bare}
    for id_, names in candidates.items():
        if len(names) > 1:
            raise DatasetError(
                f"image {id_!r} could be {' or '.join(sorted(names))} in {str(folder)!r}; name the files in a column"
            )
    return [
        replace(p, file_name=candidates[p.image_id][0]) if candidates.get(p.image_id) else p for p in pictures
    ]

"""Images and captions as read, made into a checked data set in tie order."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Container, Iterable
from pathlib import Path
from tokenize import TokenError
from typing import TypeVar

from mitl.datasets.files import read_json, readable
from mitl.errors import DatasetError, UsageError
from mitl.records import Caption, IdKind, Image, RetrievalSet
from mitl.records.forms import IMAGES

T = TypeVar("T")
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")


def is_integer_id(id_: str) -> bool:
    """Whether the text is an integer of 64 bits as Python prints it (``7``, not ``007``)."""
    return _INTEGER.fullmatch(id_) is not None


def id_kind(ids: Iterable[str]) -> IdKind:
    """Integer if all ids are integers, else string."""
    return IdKind.INTEGER if all(map(is_integer_id, ids)) else IdKind.STRING


def tie_key(kind: IdKind) -> Callable[[str], int | str]:
    """The sort key of an external id: integers by value, strings by code point."""
    return int if kind is IdKind.INTEGER else str


def assemble(
    name: str,
    kind: str,
    images: Iterable[Image],
    captions: Iterable[Caption],
    *,
    source: object,
    ids: IdKind | None = None,
    sides: tuple[str, str] = IMAGES.sides,
) -> RetrievalSet:
    """The data set in tie order; ids are integers if all are, unless ``ids`` says which kind they are.

    Raises:
        DatasetError: no images or captions, an id that comes twice, a caption of an unknown image. The
            message names ``source``, the file that was read.
    """
    images, captions = list(images), list(captions)
    if not images or not captions:
        left, right = sides
        missing = left if not images else right
        raise DatasetError(
            f"{source} gives no {missing}s; a data set needs at least one {left} and one {right}, so "
            "write a row for each pair of them"
        )
    known = by_id(sides[0], ((image.external_id, image) for image in images), source)
    told = by_id(sides[1], ((caption.external_id, caption) for caption in captions), source)
    kind_of_ids = ids or id_kind([*known, *told])
    key = tie_key(kind_of_ids)
    for caption in captions:
        if caption.image_external_id not in known:
            raise DatasetError(
                f"caption {caption.external_id!r} in {source} belongs to image "
                f"{caption.image_external_id!r}, which is not among the images; put it there, or take the caption out"
            )
        if caption.reference is not None and caption.reference not in known:
            raise DatasetError(
                f"query {caption.external_id!r} in {source} changes image {caption.reference!r}, which is not among "
                "the images; put it there, or take the query out"
            )
    return RetrievalSet(
        name,
        kind,
        kind_of_ids,
        tuple(sorted(images, key=lambda image: key(image.external_id))),
        tuple(sorted(captions, key=lambda caption: key(caption.external_id))),
        sides,
    )


def by_id(what: str, items: Iterable[tuple[str, T]], source: object) -> dict[str, T]:
    """Each item by its id, in order; DatasetError naming the first id that comes twice."""
    found: dict[str, T] = {}
    for id_, item in items:
        if id_ in found:
            raise DatasetError(
                f"{what} id {id_!r} comes twice in {source}; ids must be unique, so give each {what} one of its own"
            )
        found[id_] = item
    return found


def chosen_split(path: Path, splits: Collection[str], wanted: str | None) -> str:
    """The split that is wanted, or the only one.

    Raises:
        UsageError: there are several and none is wanted, or another one is.
    """
    if wanted is None and len(splits) > 1:
        raise UsageError(f"{str(path)!r} holds the splits {', '.join(splits)}; name one with --split")
    name = next(iter(splits)) if wanted is None else wanted
    if name not in splits:
        raise UsageError(f"{str(path)!r} has no split {name!r}; it holds {', '.join(splits)}")
    return name


WHAT = "a list of ids"
_COMMENT = re.compile(r"(?:^|\s)#")
"""Ids such as ``10.jpg#0`` hold a # themselves; only one after a space, or at the start, begins a comment."""


def read_ids(path: Path, known: Container[str] = ()) -> list[str]:
    """External ids from text with one id a line (a # of its own starts a comment), a JSON list or a NumPy array.

    A line that is one of the ``known`` ids holds no comment.

    Raises:
        DatasetError: the file is missing, malformed, of another kind, or lists nothing.
    """
    if path.suffix == ".npy":
        import numpy as np

        try:
            with readable(path, WHAT), path.open("rb") as stream:
                array = np.lib.format.read_array(stream, allow_pickle=False)
            values: list[object] = array.reshape(-1).tolist()
        except (ValueError, OverflowError, EOFError, SyntaxError, TokenError, MemoryError) as error:
            raise DatasetError(
                f"{str(path)!r} is not a NumPy array ({error}); it should hold {WHAT}"
            ) from error
    elif path.suffix == ".json":
        values = read_json(path, WHAT)
        if not isinstance(values, list):
            raise DatasetError(f"{str(path)!r} holds no JSON list; write ids as [1, 2, 3]")
    else:
        with readable(path, WHAT):
            lines = path.read_text(encoding="utf-8-sig", errors="replace").splitlines()
        texts = (
            line if line in known else _COMMENT.split(line, maxsplit=1)[0] for line in map(str.strip, lines)
        )
        values = [text.strip() for text in texts if text.strip()]
    ids = [str(value) for value in values]
    if not ids:
        raise DatasetError(f"{str(path)!r} lists no ids")
    return ids


def content_hash(data: RetrievalSet) -> str:
    """SHA-256 over ids and texts: the same data give the same hash whatever their files were called."""
    digest = hashlib.sha256()
    for image in data.images:
        digest.update(("\x1f".join(("i", image.external_id, *image.texts)) + "\n").encode())
    for caption in data.captions:
        reference = "" if caption.reference is None else f"\x1f{caption.reference}"
        line = f"c\x1f{caption.external_id}\x1f{caption.image_external_id}\x1f{caption.text}{reference}\n"
        digest.update(line.encode())
    for pair in data.positives:
        digest.update(("\x1f".join(("p", *pair)) + "\n").encode())
    return digest.hexdigest()


def require_same(expected: str, data: RetrievalSet) -> None:
    """DatasetError where the data are not those whose hash is expected."""
    if content_hash(data) != expected:
        raise DatasetError(
            f"this project holds other data than this {data.name!r} of {len(data.images):,} {data.form.nouns[0]} and "
            f"{len(data.captions):,} {data.form.nouns[1]}: ids, texts, original positives or the order of an item's "
            "positives differ; make another project folder for it"
        )

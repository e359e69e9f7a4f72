"""COCO captions and Flickr30k.

COCO as compact tables, or the official files cut down by a Karpathy split or a list of caption ids; Karpathy's split
files, ``dataset_coco.json`` and ``dataset_flickr30k.json``, the second of which is Flickr30k whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mitl.datasets.assembling import assemble, by_id, read_ids
from mitl.datasets.files import caption_text, cell_id, file_text, read_entries, read_json, read_rows
from mitl.datasets.images import COCO_ORIGIN, Picture, locate
from mitl.errors import DatasetError
from mitl.records import Caption, IdKind, RetrievalSet

_CAPTIONS = "COCO captions (an object with 'images' and 'annotations')"
_FILE_NAME = re.compile(r"COCO_([a-z]+20\d\d)_\d{12}\.jpg")
_NAME_IN_COCO = re.compile(r"(COCO_[a-z]+20\d\d_)?\d{12}\.\w+")
_COCO_URL = re.compile(r"https?://images\.cocodataset\.org/")


def read_coco(
    captions: Sequence[Path] = (),
    *,
    karpathy: Path | None = None,
    split: str = "test",
    caption_ids: Path | None = None,
    images: Path | None = None,
    url_template: str | None = None,
) -> RetrievalSet:
    """The captions of official files and/or a Karpathy split, and their images, under COCO's own ids.

    Texts come from the official files where given, else from the split file. ``caption_ids`` (.npy, .txt or
    .json) keeps the listed captions and their images only. Images are addressed on COCO's https origin unless
    a template says otherwise. Captions in COCO's layout whose images have none of COCO's file names are a table of
    somebody's own.

    Raises:
        DatasetError: a file is missing or malformed; files contradict each other; a listed caption, or one of
            the split, is not there.
    """
    if not captions and karpathy is None:
        raise DatasetError("no COCO file was given; give captions JSON files, a Karpathy split, or both")
    official, pictures = _read_official(captions)
    source = ", ".join(str(path) for path in [*captions, *([karpathy] if karpathy else [])])
    if karpathy is not None:
        entries = read_split(karpathy, split)
        told = _split_captions(entries, karpathy)
        named = _split_pictures(entries)
        pictures = {id_: pictures.get(id_, picture) for id_, picture in named.items()}
        if captions:
            told = {id_: _confirmed(caption, official, source) for id_, caption in told.items()}
        source = f"the split {split!r} of {source}"
        official = told
    chosen = list(official.values())
    if caption_ids is not None:
        chosen = select(official, read_caption_ids(caption_ids), source)
        used = {caption.image_external_id for caption in chosen}
        pictures = {id_: picture for id_, picture in pictures.items() if id_ in used}
    located = locate(list(pictures.values()), folder=images, url_template=url_template)
    is_coco = karpathy or any(
        _NAME_IN_COCO.fullmatch(picture.file_name or "") for picture in pictures.values()
    )
    kind = "coco" if is_coco else "table"
    return assemble(kind, kind, located, _checked(chosen, source), source=source, ids=IdKind.INTEGER)


def _checked(captions: Sequence[Caption], source: object) -> list[Caption]:
    """With their texts as `caption_text` gives and refuses them."""
    return [
        replace(
            caption, text=caption_text(caption.text, "text", f"caption {caption.external_id!r} in {source}")
        )
        for caption in captions
    ]


def coco_url(file_name: str, given: str | None = None) -> str | None:
    """The https address of a COCO image, from its ``coco_url`` or its file name; None where neither tells."""
    if given is not None:
        return _COCO_URL.sub(f"{COCO_ORIGIN}/", given, count=1)
    match = _FILE_NAME.fullmatch(file_name)
    return f"{COCO_ORIGIN}/{match[1]}/{file_name}" if match else None


def read_caption_ids(path: Path) -> list[str]:
    """Caption ids listed in a file: a NumPy array, a JSON list, or text with one id a line (# for comments).

    Raises:
        DatasetError: the file is missing, malformed, of another kind, empty, or lists an id twice.
    """
    if path.suffix not in (".npy", ".txt", ".json"):
        raise DatasetError(f"caption ids are read from .npy, .txt or .json files, not from {str(path)!r}")
    try:
        ids = [coco_id(text.partition("#")[0]) for text in read_ids(path)]
    except ValueError as error:
        raise DatasetError(
            f"{str(path)!r} is not a list of COCO caption ids, which are integers: {error}"
        ) from error
    return list(by_id("caption", ((id_, None) for id_ in ids), path))


def select(captions: Mapping[str, Caption], ids: Sequence[str], source: str) -> list[Caption]:
    """The captions of these ids; DatasetError naming the first that is not there."""
    missing = [id_ for id_ in ids if id_ not in captions]
    if missing:
        more = f" (nor are {len(missing) - 1:,} others)" if len(missing) > 1 else ""
        raise DatasetError(f"caption id {missing[0]} is not in {source}{more}")
    return [captions[id_] for id_ in ids]


def _read_official(paths: Sequence[Path]) -> tuple[dict[str, Caption], dict[str, Picture]]:
    captions: list[Caption] = []
    pictures: list[Picture] = []
    for path in paths:
        value = read_json(path, _CAPTIONS)
        captions += read_entries(value, "annotations", _official_caption, path, _CAPTIONS)
        pictures += read_entries(value, "images", _picture, path, _CAPTIONS)
    source = f"the captions files ({', '.join(map(str, paths))})"
    return _by_id(captions, source), by_id("image", ((p.image_id, p) for p in pictures), source)


def _by_id(captions: Iterable[Caption], source: object) -> dict[str, Caption]:
    return by_id("caption", ((caption.external_id, caption) for caption in captions), source)


def _official_caption(entry: Mapping[str, object]) -> Caption:
    return Caption(coco_id(entry["id"]), coco_id(entry["image_id"]), str(entry["caption"]))


def _picture(entry: Mapping[str, object]) -> Picture:
    file_name, url = cell_id(entry["file_name"], "file_name", "it"), entry.get("coco_url")
    match = _FILE_NAME.fullmatch(file_name)
    folder = match[1] if match else str(url).split("/")[-2] if url and str(url).count("/") > 3 else None
    width, height = entry.get("width"), entry.get("height")
    return Picture(
        coco_id(entry["id"]),
        file_name,
        folder,
        coco_url(file_name, None if url is None else str(url)),
        None if width is None else int(str(width)),
        None if height is None else int(str(height)),
    )


def coco_id(value: object) -> str:
    """An id of COCO, which some tools write as 1.0; ValueError where it is no whole number."""
    text = str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()
    # int() would also read 1_0, and digits of any script.
    if not re.fullmatch("-?[0-9]+", text):
        raise ValueError(f"{text!r} is no whole number, as ids are")
    return str(int(text))


def _split_captions(entries: Sequence[SplitImage], path: Path) -> dict[str, Caption]:
    captions: list[Caption] = []
    for entry in entries:
        for sentence_id, text in entry.sentences:
            if entry.cocoid is None or sentence_id is None:
                raise DatasetError(
                    f"{entry.file_name!r} in {str(path)!r} lacks a 'cocoid' or a 'sentid'; "
                    "dataset_coco.json has both"
                )
            captions.append(Caption(str(sentence_id), str(entry.cocoid), text))
    return _by_id(captions, path)


def _split_pictures(entries: Sequence[SplitImage]) -> dict[str, Picture]:
    return {
        str(entry.cocoid): Picture(
            str(entry.cocoid), entry.file_name, entry.folder, coco_url(entry.file_name)
        )
        for entry in entries
    }


def _confirmed(caption: Caption, official: Mapping[str, Caption], source: str) -> Caption:
    """The official caption of the split's one."""
    (confirmed,) = select(
        official, [caption.external_id], f"the captions files, though the split names it: {source}"
    )
    if confirmed.image_external_id != caption.image_external_id:
        raise DatasetError(
            f"caption {caption.external_id} belongs to image {confirmed.image_external_id} in the captions files "
            f"and to {caption.image_external_id} in the split"
        )
    return confirmed


FILE_NAME = "COCO_val2014_{:012d}.jpg"
"""Karpathy's test and validation images are all of val2014."""
COMPACT = "captions with the columns caption_id, image_id, text"


def read_compact(
    path: Path,
    *,
    caption_ids: Path | None = None,
    images: Path | None = None,
    url_template: str | None = None,
) -> RetrievalSet:
    """The captions of a Parquet or CSV file with ``caption_id``, ``image_id``, ``text``, and their images.

    A column ``file_name`` says what the image files are called; without it they are COCO val2014's.

    Raises:
        DatasetError: the file is missing or malformed, ids are not integers or come twice, or a listed caption
            is not there.
    """
    rows = read_rows(path, COMPACT, ("caption_id", "image_id", "text"), ("file_name",))
    captions: list[Caption] = []
    pictures: dict[str, Picture] = {}
    for number, row in enumerate(rows, start=1):
        caption_id, image_id = (
            _integer(row[column], column, number, path) for column in ("caption_id", "image_id")
        )
        captions.append(Caption(caption_id, image_id, str(row["text"])))
        named = file_text(row.get("file_name"), "file_name", f"row {number} of {str(path)!r}")
        file_name = named or FILE_NAME.format(int(image_id))
        picture = Picture(image_id, file_name, "val2014", coco_url(file_name))
        if pictures.setdefault(image_id, picture) != picture:
            raise DatasetError(
                f"row {number} of {str(path)!r} gives image {image_id} another file_name than before; write the "
                "same in all of its rows"
            )
    chosen = captions  # `assemble` refuses an id that comes twice
    if caption_ids is not None:
        chosen = select(_by_id(captions, path), read_caption_ids(caption_ids), str(path))
    used = dict.fromkeys(caption.image_external_id for caption in chosen)
    located = locate([pictures[id_] for id_ in used], folder=images, url_template=url_template)
    return assemble("coco", "coco", located, _checked(chosen, path), source=path, ids=IdKind.INTEGER)


def _integer(value: object, column: str, number: int, path: Path) -> str:
    try:
        return coco_id(value)
    except ValueError:
        raise DatasetError(
            f"row {number} of {str(path)!r} has {column} {value!r}, but COCO's ids are integers"
        ) from None


def read_flickr30k(
    karpathy: Path,
    *,
    split: str = "test",
    images: Path | None = None,
    url_template: str | None = None,
) -> RetrievalSet:
    """One split of Flickr30k; caption ids are ``<file name>#<k>``, k from 0 as in the official token file.

    Raises:
        DatasetError: the file is missing or malformed, or has no such split.
    """
    entries = read_split(karpathy, split)
    captions = [
        Caption(f"{entry.file_name}#{k}", entry.file_name, text)
        for entry in entries
        for k, (_, text) in enumerate(entry.sentences)
    ]
    pictures = [Picture(entry.file_name, entry.file_name, entry.folder) for entry in entries]
    located = locate(pictures, folder=images, url_template=url_template)
    checked = _checked(captions, karpathy)
    return assemble("flickr30k", "flickr30k", located, checked, source=karpathy, ids=IdKind.STRING)


_SPLIT_FILE = "a Karpathy split (an object with 'images', each with 'split', 'filename' and 'sentences')"


@dataclass(frozen=True, slots=True)
class SplitImage:
    """One image of a split file; ``cocoid`` and the sentence ids are None where the data set has none."""

    file_name: str
    folder: str | None
    split: str
    cocoid: int | None
    sentences: tuple[tuple[int | None, str], ...]
    """(sentence id, raw text) in the file's order."""


def read_split(path: Path, split: str) -> list[SplitImage]:
    """The images of one split, or of several joined by ``+``, in the file's order.

    Raises:
        DatasetError: the file is missing or malformed, or no image is of such a split.
    """
    images = read_entries(read_json(path, _SPLIT_FILE), "images", _image, path, _SPLIT_FILE)
    splits, wanted = sorted({image.split for image in images}), split.split("+")
    strange = [name for name in wanted if name not in splits]
    if strange:
        known = ", ".join(splits) or "none"
        raise DatasetError(f"no image of {str(path)!r} is of the split {strange[0]!r}; its splits: {known}")
    return [image for image in images if image.split in wanted]


def _image(entry: dict[str, Any]) -> SplitImage:
    sentences = tuple(
        (None if sentence.get("sentid") is None else int(coco_id(sentence["sentid"])), str(sentence["raw"]))
        for sentence in entry["sentences"]
    )
    cocoid = entry.get("cocoid")
    return SplitImage(
        file_name=cell_id(entry["filename"], "filename", "it"),
        folder=None if entry.get("filepath") is None else str(entry["filepath"]),
        split=str(entry["split"]),
        cocoid=None if cocoid is None else int(coco_id(cocoid)),
        sentences=sentences,
    )

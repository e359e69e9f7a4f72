"""A folder that Hugging Face ``datasets`` loads: three tables a direction in Parquet, and a card."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa

from mitl.errors import ReleaseError
from mitl.positives.exports.content import Content, Format, Way
from mitl.positives.markdown import plain
from mitl.positives.tables import parquet_bytes
from mitl.records import Direction, several

_PICTURE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_ABSENT = "not stated"


def files(content: Content) -> dict[str, bytes]:
    """``DIRECTION/corpus.parquet``, ``queries.parquet`` and ``qrels.parquet``, configurations of ``README.md``."""
    made = {}
    for way in content.ways:
        images_ask = way.direction is Direction.I2T
        for name, ids, are_images in (
            ("corpus", way.gallery, not images_ask),
            ("queries", way.queries, images_ask),
        ):
            made[f"{way.direction}/{name}.parquet"] = parquet_bytes(_items(content, ids, are_images))
        made[f"{way.direction}/qrels.parquet"] = parquet_bytes(_qrels(way))
    return {"README.md": _card(content, digest(made)).encode(), **made}


def digest(made: Mapping[str, bytes]) -> str:
    """Of the names and the bytes of the tables: another content, another digest."""
    found = hashlib.sha256()
    for name, content in sorted(made.items()):
        if name.endswith(".parquet"):
            found.update(f"{name} {len(content)} ".encode() + content)
    return found.hexdigest()


def _items(content: Content, ids: Iterable[str], are_images: bool) -> pa.Table:
    listed = list(ids)
    columns = {"id": pa.array(listed, pa.string())}
    features = {"id": {"dtype": "string", "_type": "Value"}}
    if are_images and content.pictures is not None:
        pictures = [_picture(content.pictures, one) for one in listed]
        columns["image"] = pa.array(pictures, _PICTURE)
        features["image"] = {"_type": "Image"}
    if not are_images and content.texts is not None:
        columns["text"] = pa.array([content.texts.get(one, "") for one in listed], pa.string())
        features["text"] = {"dtype": "string", "_type": "Value"}
    described = json.dumps({"info": {"features": features}})
    return pa.table(columns).replace_schema_metadata({"huggingface": described})


def _picture(pictures: Mapping[str, Path], image: str) -> dict[str, object]:
    path = pictures.get(image)
    if path is None or not path.is_file():
        raise ReleaseError(
            f"the picture of image {image!r} is not at hand ({path}); get the files, or leave --with-pictures out"
        )
    return {"bytes": path.read_bytes(), "path": path.name}


def _qrels(way: Way) -> pa.Table:
    rows = [(query, *pair) for query in way.queries for pair in way.judged.get(query, {}).items()]
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return pa.table(
        {
            "query-id": pa.array(columns[0], pa.string()),
            "corpus-id": pa.array(columns[1], pa.string()),
            "score": pa.array(columns[2], pa.int32()),
        }
    )


def _card(content: Content, version: str) -> str:
    front = [f"pretty_name: {json.dumps(content.name, ensure_ascii=False)}"]
    if content.license:
        front.append(f"license: {json.dumps(content.license, ensure_ascii=False)}")
    front.append("configs:")
    for way in content.ways:
        for name in ("corpus", "queries", "qrels"):
            # `datasets` keeps what it loaded under what the card says: a changed table has to change the card.
            front += [f"- config_name: {way.direction}-{name}", f"  description: sha256 {version}"]
            front += ["  data_files:", "  - split: test", f"    path: {way.direction}/{name}.parquet"]
    counts = [
        f"- `{way.direction}`: {several(len(way.queries), 'query', 'queries')}, {several(len(way.gallery), 'item')}, "
        f"{several(way.positives, 'positive')}, {several(way.zeros, 'judged negative')} with the score 0"
        for way in content.ways
    ]
    body = [
        f"# {plain(content.name)}",
        "Which captions and images match, judged. In `i2t` images search captions, in `t2i` captions search images.",
        "\n".join(counts),
        f"Licence of the judgements: {plain(content.license or _ABSENT)}. "
        f"Licence of images and captions: {plain(content.items_license or _ABSENT)}.",
    ]
    return "---\n" + "\n".join(front) + "\n---\n\n" + "\n\n".join(body) + "\n"


FORMAT = Format(files, holds_texts=True, holds_pictures=True)

"""A folder that Hugging Face ``datasets`` loads: three tables a direction in Parquet, and a card."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from mitl.errors import ReleaseError
from mitl.positives.exports.content import Content, Format, SideContent, Way
from mitl.positives.markdown import front_matter, plain
from mitl.positives.tables import parquet_bytes
from mitl.records import PartKind, several

_FILE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
"""How `datasets` keeps pictures, sounds and videos."""
_MOST = 2 * 10**9
"""Bytes of files in one table: a column of Arrow holds no more in one piece."""
_ABSENT = "not stated"


def files(content: Content) -> dict[str, bytes]:
    """``DIRECTION/corpus.parquet``, ``queries.parquet`` and ``qrels.parquet``, configurations of ``README.md``."""
    made = {}
    for way in content.ways:
        asking, searched = way.direction.ordered(*content.sides)
        made[f"{way.name}/corpus.parquet"] = parquet_bytes(_items(searched, way.gallery, titled=True))
        made[f"{way.name}/queries.parquet"] = parquet_bytes(_items(asking, way.queries, titled=False))
        made[f"{way.name}/qrels.parquet"] = parquet_bytes(_qrels(way))
    return {"README.md": _card(content, digest(made)).encode(), **made}


def digest(made: Mapping[str, bytes]) -> str:
    """Of the names and the bytes of files: another content, another digest."""
    sha = hashlib.sha256()
    for name, content in sorted(made.items()):
        sha.update(f"{name} {len(content)} ".encode() + content)
    return sha.hexdigest()


def _items(side: SideContent, ids: Iterable[str], *, titled: bool) -> pa.Table:
    """``id`` and a column a part, called after its kind; mteb reads ``title`` of what is searched alone."""
    listed = list(ids)
    columns = {"id": pa.array(listed, pa.string())}
    features: dict[str, object] = {"id": {"dtype": "string", "_type": "Value"}}
    if PartKind.TEXT in side.kinds and side.texts is not None:
        told = {"text": [side.words(id_) for id_ in listed]}
        pairs = [side.titled(id_) for id_ in listed]
        if titled and any(title for title, _ in pairs):
            told = {"title": [title for title, _ in pairs], "text": [text for _, text in pairs]}
        for name, texts in told.items():
            columns[name] = pa.array(texts, pa.string())
            features[name] = {"dtype": "string", "_type": "Value"}
    for kind in side.kinds:
        if kind is not PartKind.TEXT and side.media is not None:
            columns[kind.value] = pa.array(_files(side, kind, listed), _FILE)
            features[kind.value] = {"_type": kind.value.title()}
    described = json.dumps({"info": {"features": features}})
    return pa.table(columns).replace_schema_metadata({"huggingface": described})


def _files(side: SideContent, kind: PartKind, ids: Sequence[str]) -> list[dict[str, object]]:
    paths = [(side.media or {}).get(id_) for id_ in ids]
    for id_, path in zip(ids, paths, strict=True):
        if path is None:
            raise ReleaseError(
                f"the project does not know where the {kind.value} of {id_!r} is; name their "
                "folder with `mitl init --images FOLDER` and the options of the first call, or leave --with-media out"
            )
        if not path.is_file():
            raise ReleaseError(
                f"the {kind.value} of {id_!r} is not at {str(path)!r}; put it there, or leave --with-media out"
            )
    there = [path for path in paths if path is not None]
    if sum(path.stat().st_size for path in there) > _MOST:
        raise ReleaseError(
            f"the {kind.value} files of {len(there):,} items take more than 2 GB, which one table cannot hold; leave "
            "--with-media out"
        )
    return [{"bytes": path.read_bytes(), "path": path.name} for path in there]


def _qrels(way: Way) -> pa.Table:
    columns = list(zip(*way.rows, strict=True)) or [(), (), ()]
    return pa.table(
        {
            "query-id": pa.array(columns[0], pa.string()),
            "corpus-id": pa.array(columns[1], pa.string()),
            "score": pa.array(columns[2], pa.int32()),
        }
    )


def _card(content: Content, version: str) -> str:
    configs = []
    for way in content.ways:
        for name in ("corpus", "queries", "qrels"):
            # `datasets` keeps what it loaded under what the card says: a changed table has to change the card.
            configs += [f"- config_name: {way.name}-{name}", f"  description: sha256 {version}"]
            configs += ["  data_files:", "  - split: test", f"    path: {way.name}/{name}.parquet"]
    counts = [
        f"- `{way.name}`: {several(len(way.queries), 'query', 'queries')}, {several(len(way.gallery), 'item')}, "
        f"{several(way.positives, 'positive')}, {several(way.zeros, 'judged negative')} with the score 0"
        for way in content.ways
    ]
    left, right = content.form.nouns
    body = [
        f"# {plain(content.name)}",
        f"Which {right} and {left} match, judged. In `{content.form.ways[0]}` {left} search {right}, in "
        f"`{content.form.ways[1]}` {right} search {left}.",
        "\n".join(counts),
        f"Licence of the judgements: {plain(content.license or _ABSENT)}. "
        f"Licence of {left} and {right}: {plain(content.items_license or _ABSENT)}.",
    ]
    return front_matter(content.name, content.license, configs) + "\n\n".join(body) + "\n"


FORMAT = Format(files, holds_texts=True, holds_media=True)
